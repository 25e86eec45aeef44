//! Makes a large, realistic file of folded stacks. The same arguments always make the same file.
//!
//! ```text
//! cargo run --release --example generate_folded -- 1000000 sorted profile > /tmp/1m.folded
//! ```
//!
//! The stacks are random walks over a call graph of 20,000 functions. Most functions have few callees, some have many. The
//! first callees are called far more often. Names have 10 to 60 characters. All stacks differ. They are 25 frames deep on average.
//!
//! - `profile`: a new stack branches off from an earlier stack a few frames above its leaf, as in profiles of programs. This takes
//!   about 4 nodes of the trie a stack.
//! - `scattered`: each stack is a separate walk from the root and shares little with others. This takes about 15 nodes a stack.
//!   No program is like that, but generators of test files are.

use std::collections::HashSet;
use std::io::{self, BufWriter, Write};

const FUNCTIONS: usize = 20_000;
const COMMANDS: [&str; 8] = ["nginx", "postgres", "cc1plus", "rustc", "java", "python3", "containerd-shim", "kworker/u16:2"];
const WORDS: [&str; 24] = [
    "parse", "read", "alloc", "node", "buffer", "expr", "visit", "type", "lock", "queue", "page", "table", "encode", "hash",
    "std", "vector", "insert", "tokio", "runtime", "poll", "schedule", "iterator", "fmt", "map",
];

/// SplitMix64, by S. Vigna (<https://prng.di.unimi.it/splitmix64.c>, public domain).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    /// Returns a number from 0 up to `limit`. Small numbers are far more frequent.
    fn skewed(&mut self, limit: u64) -> u64 {
        let unit = self.below(1 << 20) as f64 / f64::from(1 << 20);
        (unit * unit * unit * limit as f64) as u64
    }
}

struct Program {
    names: Vec<String>,
    callees: Vec<Vec<u32>>,
}

fn program(random: &mut Random) -> Program {
    let mut names = Vec::with_capacity(FUNCTIONS);
    let mut callees = Vec::with_capacity(FUNCTIONS);
    for function in 0..FUNCTIONS {
        let length = 6 + random.below(50) as usize;
        let mut name = String::new();
        while name.len() < length {
            name.push_str(WORDS[random.below(WORDS.len() as u64) as usize]);
            name.push_str(["::", "_", "<"][random.skewed(3) as usize]);
        }
        name.truncate(length);
        names.push(format!("{name}{function:04x}"));
        let many = if random.below(20) == 0 { 60 } else { 6 };
        let count = 1 + random.skewed(many);
        callees.push((0..count).map(|_| random.below(FUNCTIONS as u64) as u32).collect());
    }
    Program { names, callees }
}

impl Program {
    /// Extends `stack` by random callees. After each one it stops with a chance of one in `stop`.
    fn walk(&self, random: &mut Random, stack: &mut Vec<u32>, stop: u64) {
        loop {
            let callees = &self.callees[stack[stack.len() - 1] as usize];
            stack.push(callees[random.skewed(callees.len() as u64) as usize]);
            if random.below(stop) == 0 {
                return;
            }
        }
    }

    fn line(&self, stack: &[u32]) -> String {
        let functions: Vec<&str> = stack[1..].iter().map(|function| self.names[*function as usize].as_str()).collect();
        format!("{};{}", COMMANDS[stack[0] as usize], functions.join(";"))
    }

    /// Returns a new stack: a command, then functions.
    fn scattered(&self, random: &mut Random) -> Vec<u32> {
        let command = random.skewed(COMMANDS.len() as u64) as u32;
        let mut stack = vec![command, command * 100];
        self.walk(random, &mut stack, 10);
        stack
    }

    /// Returns a stack that branches off from a known stack somewhere near its leaf.
    fn variant(&self, random: &mut Random, known: &[Vec<u32>]) -> Vec<u32> {
        let Some(like) = known.get(random.below(known.len().max(1) as u64) as usize).filter(|_| known.len() > 100) else {
            return self.scattered(random);
        };
        let cut = 1 + random.skewed(13) as usize;
        let mut stack = like[..like.len().saturating_sub(cut).max(2)].to_vec();
        self.walk(random, &mut stack, 3);
        stack
    }
}

fn main() -> io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let count: usize = arguments.next().and_then(|text| text.parse().ok()).unwrap_or(100_000);
    let sorted = arguments.next().is_none_or(|order| order == "sorted");
    let scattered = arguments.next().is_some_and(|shape| shape == "scattered");
    let mut random = Random(42);
    let program = program(&mut random);
    let mut seen: HashSet<u64> = HashSet::with_capacity(count);
    let mut stacks: Vec<Vec<u32>> = Vec::with_capacity(count);
    while stacks.len() < count {
        let stack = if scattered { program.scattered(&mut random) } else { program.variant(&mut random, &stacks) };
        let fingerprint = stack.iter().fold(0, |sum, function| Random(sum ^ u64::from(*function)).next());
        if stack.len() < 120 && seen.insert(fingerprint) {
            stacks.push(stack);
        }
    }
    let mut lines: Vec<String> = stacks.iter().map(|stack| program.line(stack)).collect();
    if sorted {
        lines.sort_unstable();
    }
    let frames: usize = stacks.iter().map(Vec::len).sum();
    eprintln!("{count} stacks, {:.1} frames each", frames as f64 / count as f64);
    let mut out = BufWriter::new(io::stdout().lock());
    for line in lines {
        writeln!(out, "{line} {}", 1 + random.skewed(1000))?;
    }
    out.flush()
}
