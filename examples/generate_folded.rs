//! Makes a large file of folded stacks that looks like a real one, always the same for the same arguments.
//!
//! ```text
//! cargo run --release --example generate_folded -- 1000000 sorted > /tmp/1m.folded
//! ```
//!
//! The stacks are random walks over a call graph of 20,000 functions: a function has few callees or, rarely, many; the first
//! ones are called far more often; walks end after 25 frames on average. Names have 10 to 60 characters. All stacks differ.

use std::collections::HashSet;
use std::io::{self, BufWriter, Write};

const FUNCTIONS: usize = 20_000;
const MEAN_DEPTH: u64 = 25;
const COMMANDS: [&str; 8] = ["nginx", "postgres", "cc1plus", "rustc", "java", "python3", "containerd-shim", "kworker/u16:2"];
const WORDS: [&str; 24] = [
    "parse", "read", "alloc", "node", "buffer", "expr", "visit", "type", "lock", "queue", "page", "table", "encode", "hash", "std",
    "vector", "insert", "tokio", "runtime", "poll", "schedule", "iterator", "fmt", "map",
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

    /// From 0 up to `limit`, small numbers far more often.
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

fn walk(program: &Program, random: &mut Random) -> Vec<u32> {
    let command = random.skewed(COMMANDS.len() as u64) as u32;
    let mut stack = vec![command];
    let mut function = command * 100;
    while stack.len() < 4 || random.below(MEAN_DEPTH - 3) > 0 {
        stack.push(function);
        let callees = &program.callees[function as usize];
        function = callees[random.skewed(callees.len() as u64) as usize];
    }
    stack
}

fn main() -> io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let count: usize = arguments.next().and_then(|text| text.parse().ok()).unwrap_or(100_000);
    let sorted = arguments.next().is_none_or(|order| order == "sorted");
    let mut random = Random(42);
    let program = program(&mut random);
    let mut stacks: HashSet<Vec<u32>> = HashSet::with_capacity(count);
    let mut in_order = Vec::with_capacity(count);
    while in_order.len() < count {
        let stack = walk(&program, &mut random);
        if stacks.insert(stack.clone()) {
            let names: Vec<&str> = stack.iter().skip(1).map(|function| program.names[*function as usize].as_str()).collect();
            in_order.push(format!("{};{}", COMMANDS[stack[0] as usize], names.join(";")));
        }
    }
    if sorted {
        in_order.sort_unstable();
    }
    let mut out = BufWriter::new(io::stdout().lock());
    for stack in in_order {
        writeln!(out, "{stack} {}", 1 + random.skewed(1000))?;
    }
    out.flush()
}
