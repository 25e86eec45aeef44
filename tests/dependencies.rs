//! The crates that flametop depends on come from one source, under licences that `deny.toml` allows. `cargo deny` checks this and more
//! where it is installed.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeSet;
use std::process::Command;

/// Name and licence of all packages that flametop is built and tested with on the architectures that we support. The lock file
/// has more packages: those of features that are not enabled.
fn packages() -> BTreeSet<(String, String)> {
    let mut all = BTreeSet::new();
    for target in ["x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"] {
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.args(["tree", "--locked", "--offline", "--prefix=none", "--format={p}|{l}", "--target", target]);
        let output = cargo.current_dir(env!("CARGO_MANIFEST_DIR")).output().expect("cargo can be run");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).expect("UTF-8");
        let lines = text.lines().filter_map(|line| line.trim_end_matches(" (*)").split_once('|'));
        all.extend(lines.map(|(name, licence)| (name.split(' ').next().unwrap().to_owned(), licence.to_owned())));
    }
    assert!(all.len() > 100, "{} packages only", all.len());
    all
}

/// The words in quotes of a list or of a line of `deny.toml`.
fn quoted(text: &str) -> BTreeSet<String> {
    text.split('"').skip(1).step_by(2).map(str::to_owned).collect()
}

/// Licences that are allowed, for a package.
struct Allowed {
    all: BTreeSet<String>,
    /// Lines of exceptions: a crate's name and its licence.
    exceptions: Vec<BTreeSet<String>>,
}

impl Allowed {
    fn read() -> Allowed {
        let text = include_str!("../deny.toml");
        let list = |name: &str| text.split_once(&format!("\n{name} = [\n")).unwrap().1.split("\n]").next().unwrap();
        Allowed { all: quoted(list("allow")), exceptions: list("exceptions").lines().map(quoted).collect() }
    }

    /// `(MIT OR Apache-2.0) AND Unicode-3.0`: all parts of one of the alternatives; the older `/` is an OR.
    fn allows(&self, package: &str, licence: &str) -> bool {
        let except = |one: &str| self.exceptions.iter().any(|words| words.contains(package) && words.contains(one));
        let one = |word: &str| self.all.contains(word.trim()) || except(word.trim());
        let flat = licence.replace('/', " OR ");
        flat.split(" AND ")
            .all(|part| part.trim_matches(['(', ')', ' ']).split(" OR ").any(|word| one(word.trim_matches(['(', ')']))))
    }
}

#[test]
fn licences_are_those_that_are_allowed() {
    let allowed = Allowed::read();
    assert!(allowed.all.contains("MIT") && allowed.exceptions.len() == 2, "{:?}", allowed.all);
    let refused: Vec<_> = packages().into_iter().filter(|(name, licence)| !allowed.allows(name, licence)).collect();
    assert!(refused.is_empty(), "deny.toml does not allow: {refused:#?}");
}

#[test]
fn packages_come_from_one_registry() {
    let lock = include_str!("../Cargo.lock");
    let sources: BTreeSet<&str> = lock.lines().filter_map(|line| line.strip_prefix("source = ")).collect();
    assert!(sources.len() == 1 && sources.iter().all(|source| source.starts_with("\"registry+")), "{sources:?}");
    let packages = lock.matches("\n[[package]]").count();
    assert_eq!(packages, lock.matches("\nchecksum = ").count() + 1, "each but flametop has a checksum");
}

#[test]
fn a_licence_that_is_not_allowed_is_found() {
    let allowed = Allowed::read();
    for fine in
        ["MIT", "MIT/Apache-2.0", "GPL-3.0-only OR MIT", "(MIT OR Apache-2.0) AND Unicode-3.0", "Apache-2.0 WITH LLVM-exception"]
    {
        assert!(allowed.allows("x", fine), "{fine}");
    }
    for not in ["GPL-3.0-only", "MIT AND GPL-3.0-only", "none", "(MIT OR Apache-2.0) AND AGPL-3.0", "CDDL-1.0"] {
        assert!(!allowed.allows("x", not), "{not}");
    }
    assert!(allowed.allows("inferno", "CDDL-1.0"));
}
