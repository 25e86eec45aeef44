//! Reads what guests say of functions that runtimes run: stacks that programs tell, and recorded stacks.
//!
//! ```text
//! WORD VERSION        for each runtime
//! tier TIER           for each way in which it runs functions, then a line for each chain of calls
//! TIER;FRAME;… COUNT  folded stacks; the processes are called after the tiers
//! ```

use super::{NO, first_line, succeeded};

/// Programs of a runtime that tell their own stacks.
struct Programs<Chain> {
    word: &'static str,
    tiers: usize,
    /// Chains of a tier. Lines that follow each other are of one chain, so many each.
    chains: usize,
    lines_of_a_chain: usize,
    told: fn(&str) -> Option<Chain>,
    /// Returns the functions of a stack, outermost first. `None` if the stack is not one in a leaf.
    functions: fn(&str) -> Option<Vec<&str>>,
    is_chain: fn(&[&str], &Chain) -> bool,
    /// Whether a stack that has no functions missing begins where the program does.
    is_whole: fn(&str) -> bool,
    /// Whether a chain must be seen in a tier.
    is_wanted: fn(&Chain, &str) -> bool,
}

/// Counts samples in a leaf whose functions are those that the program has told, for each tier. A stack that is whole and no chain's is wrong. Some
/// lack functions: see [`Programs::is_wanted`].
fn counted<Chain>(said: &str, programs: &Programs<Chain>) -> Vec<String> {
    let said = format!("\n{said}");
    let (mut cells, mut holds) = (Vec::new(), succeeded(&said));
    for of_version in said.split(&format!("\n{} ", programs.word)).skip(1) {
        let mut cell = first_line(of_version).to_owned();
        for of_tier in of_version.split("\ntier ").skip(1) {
            let told: Vec<Chain> = of_tier.lines().filter_map(programs.told).collect();
            let tier = first_line(of_tier);
            let (mut all, mut right, mut missing, mut wrong, mut of_chain) = (0, 0, 0, 0, vec![0; told.len()]);
            let stacks =
                of_version.lines().filter(|line| line.starts_with(&format!("{tier};"))).filter_map(|line| line.rsplit_once(' '));
            for (stack, count) in stacks {
                let count: usize = count.parse().unwrap_or(0);
                let Some(functions) = (programs.functions)(stack) else { continue };
                all += count;
                match told.iter().position(|told| (programs.is_chain)(&functions, told)) {
                    Some(chain) => (right, of_chain[chain]) = (right + count, of_chain[chain] + count),
                    // A name that starts with a bracket says that something is missing.
                    None if functions.iter().any(|function| function.starts_with('[')) => missing += count,
                    None => wrong += if (programs.is_whole)(stack) { count } else { 0 },
                }
            }
            cell += &format!(", {tier} {right} of {all} and {wrong} wrong");
            let seen = told.chunks(programs.lines_of_a_chain).zip(of_chain.chunks(programs.lines_of_a_chain));
            let is_wanted = |chain: &[Chain]| chain.iter().any(|told| (programs.is_wanted)(told, tier));
            let unseen = seen.filter(|(told, seen)| is_wanted(told) && seen.iter().sum::<usize>() == 0).count();
            if unseen > 0 {
                cell += &format!(" ({unseen} chains have no sample)");
            }
            let is_told = told.len() == programs.chains * programs.lines_of_a_chain && unseen == 0;
            let is_whole = (right + missing) * 10 >= all * 9 && right * 2 >= all;
            holds &= all >= 200 && wrong == 0 && is_whole && is_told;
        }
        holds &= cell.matches(" and 0 wrong").count() == programs.tiers;
        cells.push(cell);
    }
    let cells = cells.join("; ");
    vec![if holds && !cells.is_empty() { cells } else { format!("{NO}: {cells}: {said}") }]
}

/// Returns the answer of `tests/vm/node-functions`. A line of JSON for each chain of calls is `[CHAIN, [[NAME, FILE, LINE], …]]`, with the innermost
/// function first.
pub(crate) fn nodes(said: &str) -> Vec<String> {
    let programs = Programs {
        word: "node",
        tiers: 4,
        chains: 12,
        lines_of_a_chain: 1,
        told: chain_of_calls,
        functions: |stack| {
            let functions: Vec<&str> = stack.split(';').filter_map(|frame| frame.strip_suffix("_[s]")).collect();
            // Not those in which the program finds out its stack.
            (functions.contains(&"leaf") && !stack.contains("repareStackTrace")).then_some(functions)
        },
        is_chain: |functions, told: &Vec<[String; 2]>| is_chain(functions, told),
        is_whole: |stack| stack.contains(";_start;"),
        // V8 does not note which function's a loop without calls is in code that it has inlined into another one.
        is_wanted: |_, tier| matches!(tier, "Ignition" | "Sparkplug"),
    };
    counted(said, &programs)
}

/// Whether these functions, outermost first, are those of a chain of calls. V8 does not note where it has inlined built-in functions, such as
/// `Array.prototype.map`.
fn is_chain(functions: &[&str], told: &[[String; 2]]) -> bool {
    let is = |found: &str, name: &str| found == name || matches!(name, "" | "eval") && found.starts_with("(anonymous");
    let same =
        |told: &[&str]| told.len() == functions.len() && functions.iter().rev().zip(told).all(|(found, name)| is(found, name));
    let all: Vec<&str> = told.iter().map(|[name, _]| &**name).collect();
    let own: Vec<&str> = told.iter().filter(|[name, file]| !file.is_empty() || name == "eval").map(|[name, _]| &**name).collect();
    same(&all) || same(&own)
}

/// Reads a chain of calls from a line of JSON: the name and the file of each function.
fn chain_of_calls(line: &str) -> Option<Vec<[String; 2]>> {
    let line: serde_json::Value = line.starts_with("[\"").then(|| serde_json::from_str(line).ok())??;
    let text = |site: &serde_json::Value, at: usize| site[at].as_str().unwrap_or_default().to_owned();
    Some(line[1].as_array()?.iter().map(|site| [text(site, 0), text(site, 1)]).collect())
}

/// Returns the answer of `tests/vm/java-functions`. Two lines for each chain of calls are those of tests/programs/java/Stacks.java.
pub(crate) fn javas(said: &str) -> Vec<String> {
    let programs = Programs {
        word: "java",
        tiers: 4,
        chains: 11,
        lines_of_a_chain: 2,
        told: chain_of_methods,
        functions: |stack| {
            let methods =
                stack.split(';').filter_map(|frame| frame.strip_suffix("_[v]")).filter(|name| !name.starts_with("[jvm "));
            let methods: Vec<&str> = methods.map(|name| name.split('(').next().unwrap_or_default()).collect();
            // Not those before the first chain, nor those in which the program finds out its stack.
            let is_of_chain = methods.get(1) != Some(&"Stacks.shapes") && !methods.contains(&"Stacks.tell");
            (is_of_chain && methods.contains(&"Stacks.leaf")).then_some(methods)
        },
        is_chain: |methods, told: &Vec<String>| methods.iter().rev().eq(told),
        is_whole: |stack| stack.contains(";Stacks.main("),
        // The time of a walk is short in an emulated machine.
        is_wanted: |told, _| told.len() < 60,
    };
    counted(said, &programs)
}

/// Reads a chain of calls: its name, the method that finds it out, and CLASS METHOD LINE of each method. Classes that a JVM makes have a number, which
/// samples do not have.
fn chain_of_methods(line: &str) -> Option<Vec<String>> {
    let method = |method: &str| {
        let [class, name, _] = method.split(' ').collect::<Vec<_>>()[..] else { return None };
        let class = match class.find("/0x").or(class.find("+0x")) {
            Some(end) => class[..end].trim_end_matches(|c: char| c.is_ascii_digit()).trim_end_matches('$'),
            None => class,
        };
        Some(format!("{class}.{name}"))
    };
    line.contains("\tStacks tell ").then(|| line.split('\t').skip(2).map(method).collect())?
}

#[test]
fn functions_of_runtimes_are_counted() {
    let chain = |name: &str| {
        format!("[\"{name}\",[[\"leaf\",\"x.js\",3],[\"map\",\"\",0],[\"{name}\",\"x.js\",9],[\"\",\"x.js\",30]]]\n")
    };
    let names: Vec<String> = (0..12).map(|number| format!("f{number}")).collect();
    let lines = |line: &dyn Fn(&str) -> String| names.iter().map(|name| line(name)).collect::<String>();
    let mut said = "node v22\n".to_owned();
    for tier in ["Ignition", "Sparkplug", "TurboFan", "all"] {
        let stack = |name: &str| format!("{tier};_start;(anonymous 30)_[s];node;{name}_[s];map_[s];leaf_[s] 20\n");
        said += &format!("tier {tier}\n{}{}", lines(&chain), lines(&stack));
    }
    said += "status 0\n";
    let right = |tier: &str| format!(", {tier} 240 of 240 and 0 wrong");
    let all = ["Ignition", "Sparkplug", "TurboFan", "all"].map(right).concat();
    assert_eq!(nodes(&said), [format!("v22{all}")]);
    assert_eq!(nodes(&said.replace("f7_[s];map_[s]", "f7_[s]")), [format!("v22{all}")]);
    assert!(nodes(&said.replacen("f7_[s]", "g_[s]", 1))[0].starts_with(NO));
    assert!(nodes(&said.replace("tier all", ""))[0].starts_with(NO));
    assert!(nodes(&said.replace("status 0", "status 1"))[0].starts_with(NO));
}

#[test]
fn methods_of_java_are_counted() {
    let mut said = "java 21\n".to_owned();
    for tier in ["interpreter", "C1", "C2", "all"] {
        said += &format!("tier {tier}\n");
        for number in 0..11 {
            let told = format!("f{number}\tStacks tell 35\tStacks leaf 31\tStacks$$Lambda/0x12 f{number} -1\tStacks main 9\n");
            said += &format!("{told}{told}{tier};start;Stacks.main(String[])_[v];Stacks$$Lambda.f{number}(int)_[v];");
            said += "[jvm stub]_[v];Stacks.leaf()_[v] 20\n";
        }
    }
    said += "status 0\n";
    let right = |tier: &str| format!(", {tier} 220 of 220 and 0 wrong");
    let all = ["interpreter", "C1", "C2", "all"].map(right).concat();
    assert_eq!(javas(&said), [format!("21{all}")]);
    assert!(javas(&said.replacen("f7(int)_[v];", "", 1))[0].starts_with(NO));
    assert!(javas(&said.replace("tier all", ""))[0].starts_with(NO));
    assert!(javas(&said.replace("status 0", "status 1"))[0].starts_with(NO));
}
