//! A release program of Rust: generic functions with closures, iterators, panics that are caught, threads, a sort that calls
//! back. The lines that declare calls are explained in truth.h; Rust's own library is in the program, hence `rest`.
//!
//!   closures | panics | threads

use std::hint::black_box;
use std::io::{Read, Write};

//= ^<ldentry:boot>*1 > <ld:boot> > <libc,gcc:boot> | <rest:boot>
//= <ldentry:boot>*1 > <rest:boot> > <libc,gcc:boot>
//= <libc,gcc:boot> > <ld:exit> > <rest:boot> | <libc,gcc:boot>
//= ^_start > <libc:start>*1..3 > main | <libc,gcc:boot> | <rest:boot>
//= main > <rest:main> > closures_mode | panics_mode | threads_mode | <libc,ld,vdso:main>

#[inline(never)]
#[unsafe(no_mangle)]
pub fn spin(rounds: u64) -> u64 {
    let mut sum = 0u64;
    for i in 0..rounds {
        sum = black_box(sum.wrapping_mul(31) ^ i);
    }
    sum
}

// The closures of `apply` may be inlined into it; then `apply` itself calls.
//= closures_mode > truth_closures::apply > truth_closures::closures_mode::{{closure}} | spin
//= closures_mode > truth_closures::call > truth_closures::closures_mode::{{closure}} > spin

#[inline(never)]
pub fn apply<F: Fn(u64) -> u64, G: Fn(u64) -> u64>(first: F, second: G, n: u64) -> u64 {
    let between = first(n);
    black_box(second(between)) + 1
}

#[inline(never)]
pub fn call<F: Fn(u64) -> u64>(function: F, n: u64) -> u64 {
    black_box(function(n)) + 1
}

#[inline(never)]
#[unsafe(no_mangle)]
pub fn order(a: &u64, b: &u64) -> std::cmp::Ordering {
    let weight = spin(20);
    black_box(weight);
    a.cmp(b)
}
//= order > spin

#[inline(never)]
#[unsafe(no_mangle)]
pub fn sorts(n: u64) -> u64 {
    let mut numbers: Vec<u64> = (0..400).map(|i| spin(3) ^ i * 7919 ^ n).collect();
    numbers.sort_by(|a, b| order(a, b));
    numbers[7]
}
//= closures_mode > sorts > spin | order | <rest:sort> | <libc:sort>
//= <rest:sort> > order | spin | truth_closures::sorts::{{closure}} | <libc:sort>
//= truth_closures::sorts::{{closure}} > order | spin
//= <libc:sort> > order

#[inline(never)]
#[unsafe(no_mangle)]
pub fn closures_mode() {
    for n in 0u64.. {
        black_box(apply(|x: u64| spin(2000) ^ x, |x: u64| spin(1000) + n + x, n));
        // The compiler cannot know this closure, so it has its own frame.
        let chosen: &dyn Fn(u64) -> u64 = &|x: u64| spin(1000) + n + x;
        black_box(call(black_box(chosen), n));
        black_box(sorts(n));
    }
}

struct Guard(u64);

impl Drop for Guard {
    #[inline(never)]
    fn drop(&mut self) {
        black_box(spin(50) ^ self.0);
    }
}

#[inline(never)]
#[unsafe(no_mangle)]
pub fn fall(depth: u64) -> u64 {
    let guard = Guard(depth);
    let below = if depth == 0 { failing(depth) } else { fall(depth - 1) };
    black_box(&guard);
    black_box(below) + 1
}
// The compiler chooses which function drops a guard, and whether the drop is inlined.
//= fall > fall | failing | <rest,gcc,libc,ld,vdso:panic> | drop_guard
//= drop_guard > spin
//= <rest,gcc,libc,ld,vdso:panic> > spin

#[inline(never)]
#[unsafe(no_mangle)]
pub fn failing(n: u64) -> u64 {
    spin(1000);
    if black_box(n) == 0 {
        std::panic::panic_any(n);
    }
    n
}
//= failing > spin | <rest,gcc,libc,ld,vdso:panic>

#[inline(never)]
#[unsafe(no_mangle)]
pub fn panics_mode() {
    std::panic::set_hook(Box::new(|_| ()));
    loop {
        let result = std::panic::catch_unwind(|| fall(20));
        assert!(black_box(result).is_err());
    }
}
//= panics_mode > <rest,gcc,libc,ld,vdso:catch> > fall | <rest,gcc,libc,ld,vdso:panic>
//= panics_mode > fall | <rest,gcc,libc,ld,vdso:panic>

#[inline(never)]
#[unsafe(no_mangle)]
pub fn in_thread(rounds: u64) -> u64 {
    black_box(spin(rounds)) + 1
}
//= in_thread > spin

#[inline(never)]
#[unsafe(no_mangle)]
pub fn threads_mode() {
    loop {
        let threads = (0..8).map(|i| std::thread::spawn(move || black_box(in_thread(200_000 + i * 100_000))));
        let threads: Vec<_> = threads.collect();
        for thread in threads {
            black_box(thread.join().is_ok());
        }
    }
}
//= threads_mode > <rest,libc,ld,gcc:spawn>
//= ^<clone:thread>*1 > <libc:thread>*1 > <rest:thread> > in_thread | <libc,ld,gcc,vdso:thread>
//= <libc:thread>*1 > <libc,ld,gcc:threads>
//= <libc,ld,gcc:threads> > <rest:threads> > <libc,ld,gcc:ends>

fn main() {
    println!("ready");
    std::io::stdout().flush().expect("somebody listens");
    assert!(matches!(std::io::stdin().read(&mut [0]), Ok(1)), "somebody says a word");
    match std::env::args().nth(1).as_deref() {
        Some("closures") => closures_mode(),
        Some("panics") => panics_mode(),
        Some("threads") => threads_mode(),
        _ => std::process::exit(2),
    }
}
