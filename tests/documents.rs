//! Documents for users agree with the program: a list of options that no test checks is wrong within a year.

mod common;

use std::collections::BTreeSet;

use flametop::ui::{BINDINGS, Section};

/// The options that the program's own help lists, of all its commands.
fn options() -> BTreeSet<String> {
    let mut options = BTreeSet::new();
    for command in ["", "record", "export", "dump", "view", "doctor", "names", "unwind-check"] {
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
        // Words after ` -- ` belong to the started command.
        let own = line.split('#').next().unwrap_or(line).split(" -- ").next().unwrap_or(line);
        for word in own.split_whitespace().map(|word| word.trim_matches('`')) {
            if word.starts_with('-') && word.chars().any(char::is_alphabetic) {
                assert!(options.contains(word), "README.md uses {word}, which flametop does not know: {line}");
            }
        }
    }
}

/// The keys as the manual page has them, from the table that the program itself uses.
fn keys_for_the_manual_page() -> String {
    let escape = |text: &str| text.replace('\\', "\\e").replace('-', "\\-").replace('"', "\\(dq");
    let mut page = ".SH KEYS\nKeys of the screen. In brackets: what the action is called in the configuration file.\n".to_owned();
    for section in Section::ALL {
        page.push_str(&format!(".SS {}\n", section.title()));
        for binding in BINDINGS.iter().filter(|binding| binding.section == section) {
            let keys = binding.keys.iter().filter(|key| key.is_ascii()).map(|key| escape(key)).collect::<Vec<_>>();
            let (help, name) = (escape(binding.help), escape(&binding.action.name()));
            page.push_str(&format!(".TP\n.B \"{}\"\n{help} [{name}]\n", keys.join(", ")));
        }
    }
    page
}

#[test]
fn the_manual_page_lists_the_keys_of_the_table() {
    let page = include_str!("../assets/flametop.1");
    let from = page.find(".SH KEYS\n").unwrap();
    let to = page.find(".SH FILES\n").unwrap();
    let expected = keys_for_the_manual_page();
    if std::env::var("INSTA_UPDATE").is_ok_and(|update| update == "always") {
        std::fs::write("assets/flametop.1", format!("{}{expected}{}", &page[..from], &page[to..])).unwrap();
        return;
    }
    assert!(
        page[from..to] == expected,
        "assets/flametop.1 has other keys than the table in src/ui/keys.rs; `INSTA_UPDATE=always cargo test --test documents` writes them"
    );
}

#[test]
fn the_manual_page_formats_without_a_complaint() {
    let output =
        std::process::Command::new("man").args(["--warnings", "-l", "assets/flametop.1"]).env("MANWIDTH", "100").output();
    let output = match output {
        Ok(output) => output,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            println!("NOT TESTED: there is no `man` here");
            return;
        }
        Err(error) => panic!("{error}"),
    };
    let complaints = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && complaints.trim().is_empty(), "{complaints}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("callers and callees of the selected function [sandwich]"));
}
