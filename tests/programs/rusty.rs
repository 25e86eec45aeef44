//! Rust names: modules, generics, trait methods, closures.
//!
//! ```text
//! rusty::main → rusty::garden::plant::<u64> → <rusty::garden::Bed as rusty::garden::Grow>::grow
//!             → rusty::garden::water                                               the busy leaf
//! rusty::main → rusty::garden::each::<u64> → rusty::main::{closure#0} → rusty::garden::water     one round in five
//! ```
//!
//! Promised by `inline(never)` and `black_box` after each call; built with frame pointers (`-C force-frame-pointers=yes`).
//! Between `main` and the start of the process are frames of the standard library, which is not compiled with this flag.
//! Arguments: `[SECONDS]`. Says "ready" when the loop begins.

use std::hint::black_box;
use std::time::{Duration, Instant};

mod garden {
    use std::hint::black_box;

    pub trait Grow {
        fn grow(&self, rounds: u64) -> u64;
    }

    pub struct Bed(pub u64);

    impl Grow for Bed {
        #[inline(never)]
        fn grow(&self, rounds: u64) -> u64 {
            black_box(water(self.0, rounds)) + 1
        }
    }

    #[inline(never)]
    pub fn plant<Seed: Copy + Into<u64>>(bed: &dyn Grow, seed: Seed) -> u64 {
        black_box(bed.grow(black_box(seed).into())) + 1
    }

    #[inline(never)]
    pub fn each<Count: Copy + Into<u64>>(rounds: Count, work: &dyn Fn(u64) -> u64) -> u64 {
        black_box(black_box(work)(black_box(rounds).into())) + 1
    }

    #[inline(never)]
    pub fn water(start: u64, rounds: u64) -> u64 {
        (0..rounds).fold(start, |sum, round| black_box(sum.rotate_left(5) ^ round))
    }
}

fn main() {
    let seconds = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(60);
    let end = Instant::now() + Duration::from_secs(seconds);
    println!("ready");
    while Instant::now() < end {
        black_box(garden::plant(&garden::Bed(7), 40_000_000_u64));
        black_box(garden::each(10_000_000_u64, &|rounds| black_box(garden::water(3, rounds)) + 1));
    }
}
