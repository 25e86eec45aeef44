//! Saving where it cannot succeed, and saving for the user who ran sudo. Needs root: for a file system of 64 kB, and to become others.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use common::{TinyDisk, root_or_fail};
use flametop::formats::FormatError;
use flametop::formats::save::{Overwrite, save};

#[test]
fn a_full_disk_leaves_nothing_behind_and_what_was_there_stays() {
    root_or_fail();
    let directory = tempfile::tempdir().unwrap();
    let disk = TinyDisk::mount(directory.path());
    let path = disk.0.join("graph.svg");
    fs::write(&path, "mine").unwrap();
    let large = |out: &mut dyn Write| -> Result<(), FormatError> {
        for _ in 0..100 {
            out.write_all(&[b'x'; 10_000])?;
        }
        Ok(())
    };
    let error = save(&path, Overwrite::Yes, large).unwrap_err().to_string();
    let expected =
        format!("failed to save `{}`: No space left on device (os error 28); make room, or choose another place", path.display());
    assert_eq!(error, expected);
    let left: Vec<_> = fs::read_dir(&disk.0).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["graph.svg"]);
    assert_eq!(fs::read(&path).unwrap(), b"mine");
}

/// Runs `child_that_saves` in a separate process; returns the message of `save` there.
fn save_as(command: &mut Command, path: &Path) -> String {
    let command = command.args(["--exact", "child_that_saves", "--nocapture"]).env("FLAMETOP_TEST_SAVE", path);
    let out = command.output().unwrap();
    let text = String::from_utf8(out.stdout).unwrap();
    text.lines().find_map(|line| line.split_once("SAID ")).unwrap_or_else(|| panic!("{text}")).1.to_owned()
}

#[test]
fn child_that_saves() {
    let Some(path) = std::env::var_os("FLAMETOP_TEST_SAVE") else { return };
    let said = save(Path::new(&path), Overwrite::No, |out| Ok(out.write_all(b"hello")?));
    println!("\nSAID {}", said.map_or_else(|error| error.to_string(), |saved| saved.bytes.to_string()));
}

fn this_program() -> Command {
    Command::new(std::env::current_exe().unwrap())
}

#[test]
fn the_file_belongs_to_the_person_who_called_sudo() {
    root_or_fail();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.svg");
    assert_eq!(save_as(this_program().env("SUDO_UID", "12345").env("SUDO_GID", "23456"), &path), "5");
    let metadata = fs::metadata(&path).unwrap();
    assert_eq!((metadata.uid(), metadata.gid()), (12345, 23456));
    let other = directory.path().join("b.svg");
    assert_eq!(save_as(this_program().env("SUDO_UID", "-1").env("SUDO_GID", "x"), &other), "5");
    assert_eq!(fs::metadata(&other).unwrap().uid(), 0);
}

#[test]
fn a_directory_of_somebody_else_is_named_in_the_message() {
    root_or_fail();
    // A copy of this program where everyone can run it, and a directory where nobody but root can write.
    let directory = tempfile::tempdir().unwrap();
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let program = directory.path().join("program");
    // `cp` copies, as a file that this process has open for writing cannot be run while another test forks.
    assert!(Command::new("cp").arg(std::env::current_exe().unwrap()).arg(&program).status().unwrap().success());
    let path = directory.path().join("a.svg");
    let said = save_as(Command::new(&program).uid(65_534).gid(65_534), &path);
    let expected = "; choose a directory that you may write to";
    assert!(
        said.starts_with(&format!("failed to save `{}`: Permission denied", path.display())) && said.ends_with(expected),
        "{said}"
    );
    assert!(!path.exists());
}
