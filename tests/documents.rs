//! What is written for users agrees with the program: a list of options that no test runs is wrong within a year.

mod common;

use std::collections::BTreeSet;

/// The options that the program's own help lists, of all its commands.
fn options() -> BTreeSet<String> {
    let mut options = BTreeSet::new();
    for command in ["", "record", "view", "doctor", "names", "unwind-check"] {
        let command: Vec<&str> = [command, "--help"].into_iter().filter(|word| !word.is_empty()).collect();
        let output = common::flametop(&command);
        assert!(output.status.success(), "flametop {command:?} failed: {}", String::from_utf8_lossy(&output.stderr));
        for line in String::from_utf8_lossy(&output.stdout).lines() {
            // `  -p, --pid <PID>  …`: only the beginnings of entries, not what texts mention.
            let entry = line.trim_start();
            if entry.starts_with('-') {
                let names = entry.split("  ").next().unwrap_or_default();
                options.extend(
                    names
                        .split([' ', ',', '=', '['])
                        .filter(|word| word.starts_with('-') && word.len() > 1 && *word != "--")
                        .map(str::to_owned),
                );
            }
        }
    }
    options
}

#[test]
fn the_manual_page_knows_every_option() {
    let options = options();
    assert!(options.contains("--help") && options.contains("--pid"), "help lists only {options:?}");
    let page = include_str!("../assets/flametop.1").replace("\\-", "-").replace("\\fI", " ").replace("\\fR", " ");
    let words: BTreeSet<&str> = page.split(|c: char| c.is_whitespace() || matches!(c, ',' | '"')).collect();
    let missing: Vec<_> = options.iter().filter(|option| !words.contains(option.as_str())).collect();
    assert!(missing.is_empty(), "assets/flametop.1 does not explain {missing:?}");
    let unknown: Vec<_> =
        words.iter().filter(|word| word.starts_with("--") && word.len() > 2 && !options.contains(**word)).collect();
    assert!(unknown.is_empty(), "assets/flametop.1 explains {unknown:?}, which flametop does not know");
}

#[test]
fn the_readme_uses_only_options_that_exist() {
    let options = options();
    let readme = include_str!("../README.md");
    for line in readme.lines().filter(|line| line.contains("flametop ") && !line.starts_with('#')) {
        // What comes after ` -- ` is the started command's own.
        let own = line.split('#').next().unwrap_or(line).split(" -- ").next().unwrap_or(line);
        for word in own.split_whitespace().map(|word| word.trim_matches('`')) {
            if word.starts_with('-') && word.chars().any(char::is_alphabetic) {
                assert!(options.contains(word), "README.md uses {word}, which flametop does not know: {line}");
            }
        }
    }
}

#[test]
fn the_manual_page_knows_every_action_that_keys_can_be_bound_to() {
    let page = include_str!("../assets/flametop.1").replace("\\-", "-");
    let words: BTreeSet<&str> = page.split(|c: char| c.is_whitespace() || matches!(c, ',' | '.')).collect();
    for binding in flametop::ui::BINDINGS {
        let name = binding.action.name();
        assert!(words.contains(name.as_str()), "assets/flametop.1 does not name the action {name}");
    }
}
