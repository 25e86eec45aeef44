//! Tests of saving: where files go, and which targets are refused.

use super::person::{caller_of_sudo, expand, home_in_passwd};
use super::*;
use crate::formats::Format;
use std::os::unix::fs::{PermissionsExt, symlink};

fn hello(out: &mut dyn Write) -> Result<(), FormatError> {
    Ok(out.write_all(b"hello")?)
}

fn names_in(directory: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn the_ending_tells_the_format() {
    assert_eq!(Format::of(Path::new("a/b.SVG")).unwrap(), Format::Svg);
    assert_eq!(Format::of(Path::new("b.folded")).unwrap(), Format::Folded);
    assert_eq!(Format::of(Path::new("b.txt")).unwrap(), Format::Folded);
    assert_eq!(Format::of(Path::new("-")).unwrap(), Format::Folded);
    let error = Format::of(Path::new("b.png")).unwrap_err().to_string();
    assert_eq!(
        error,
        "unknown file ending: `b.png`; use one of .svg, .html, .htm, .flametop, .pprof, .pb.gz, .otlp, .otlp.json, .speedscope.json, .speedscope, .json, .firefox.json.gz, .firefox, .json.gz, .tree.json, .tree, .folded and .txt"
    );
}

#[test]
fn a_file_is_saved_whole_and_is_its_owners_alone() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.folded");
    assert_eq!(save(&path, Overwrite::No, hello).unwrap(), Saved { bytes: 5 });
    assert_eq!(fs::read(&path).unwrap(), b"hello");
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(names_in(directory.path()), ["a.folded"]);
}

#[test]
fn what_is_there_stays_unless_the_user_agrees() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.svg");
    fs::write(&path, "mine").unwrap();
    let refused = save(&path, Overwrite::No, |_| panic!("not even written"));
    assert!(matches!(refused, Err(SaveError::Exists { .. })));
    assert_eq!(fs::read(&path).unwrap(), b"mine");
    save(&path, Overwrite::Yes, hello).unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"hello");
}

#[test]
fn a_file_that_appears_meanwhile_is_not_overwritten() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.svg");
    let late = save(&path, Overwrite::No, |out| {
        fs::write(&path, "theirs")?;
        hello(out)
    });
    assert!(matches!(late, Err(SaveError::Exists { .. })), "{late:?}");
    assert_eq!(fs::read(&path).unwrap(), b"theirs");
    assert_eq!(names_in(directory.path()), ["a.svg"]);
}

#[test]
fn a_symbolic_link_is_replaced_and_not_followed() {
    let directory = tempfile::tempdir().unwrap();
    let (path, precious) = (directory.path().join("a.svg"), directory.path().join("precious"));
    fs::write(&precious, "precious").unwrap();
    symlink(&precious, &path).unwrap();
    assert!(matches!(save(&path, Overwrite::No, hello), Err(SaveError::Exists { .. })));
    save(&path, Overwrite::Yes, hello).unwrap();
    assert_eq!(fs::read(&precious).unwrap(), b"precious");
    assert!(!fs::symlink_metadata(&path).unwrap().is_symlink());
}

#[test]
fn directories_may_be_reached_by_links_of_ones_own_only() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    fs::create_dir_all(here.join("a/b")).unwrap();
    for (target, link) in [("a", "own"), ("own/../own/./b", "chain"), ("loop", "loop"), ("nowhere", "dangling")] {
        symlink(target, here.join(link)).unwrap();
    }
    symlink(here.join("a/b"), here.join("absolute")).unwrap();
    for (way, name) in
        [("own", "1.svg"), ("chain", "2.svg"), ("absolute", "3.svg"), ("a/b/../b/./", "4.svg"), ("absolute/..", "5.svg")]
    {
        save(&here.join(way).join(name), Overwrite::No, hello).unwrap_or_else(|error| panic!("{way}: {error}"));
    }
    assert_eq!(
        (names_in(&here.join("a")), names_in(&here.join("a/b"))),
        (vec!["1.svg".into(), "5.svg".into(), "b".into()], vec!["2.svg".into(), "3.svg".into(), "4.svg".to_owned()],)
    );
    assert!(matches!(check(&here.join("dangling/x.svg"), Overwrite::No, None), Err(SaveError::NoDirectory { .. })));
    let endless = check(&here.join("loop/x.svg"), Overwrite::No, None).unwrap_err().to_string();
    assert!(endless.contains("Too many levels of symbolic links"), "{endless}");
    if !rustix::process::geteuid().is_root() {
        return;
    }
    std::os::unix::fs::lchown(here.join("chain"), Some(65_534), None).unwrap();
    for refused in
        [check(&here.join("chain/x.svg"), Overwrite::Yes, None).unwrap_err(), create(&here.join("chain/x")).unwrap_err()]
    {
        let said = refused.to_string();
        assert!(said.contains(&format!("`{}` is another user's link", here.join("chain").display())), "{said}");
    }
}

#[test]
fn when_writing_fails_nothing_is_left_and_what_was_there_stays() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.svg");
    fs::write(&path, "mine").unwrap();
    let full = |out: &mut dyn Write| {
        out.write_all(&[0; 1 << 20])?;
        Err(FormatError::Write(io::ErrorKind::StorageFull.into()))
    };
    let error = save(&path, Overwrite::Yes, full).unwrap_err().to_string();
    assert!(error.ends_with("a.svg`: no storage space; make room, or choose another place"), "{error}");
    assert_eq!((names_in(directory.path()), fs::read(&path).unwrap()), (vec!["a.svg".to_owned()], b"mine".to_vec()));
    let error = save(&path, Overwrite::Yes, |_| Err(FormatError::NothingToSave)).unwrap_err().to_string();
    assert!(error.starts_with("there is nothing to save yet"), "{error}");
    assert_eq!(names_in(directory.path()), ["a.svg"]);
}

#[test]
fn places_that_cannot_be_written_are_named() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    let message = |path: &Path| save(path, Overwrite::Yes, hello).unwrap_err().to_string();
    let missing = here.join("missing");
    assert_eq!(
        message(&missing.join("a.svg")),
        format!("there is no directory `{}`; create it, or choose another", missing.display())
    );
    assert_eq!(message(here), format!("`{}` is a directory; give the name of a file", here.display()));
    assert!(message(Path::new("a.svg/")).ends_with("is a directory; give the name of a file"));
    fs::write(here.join("file"), "").unwrap();
    assert!(message(&here.join("file/a.svg")).ends_with("a part of the name before the last `/` is a file"));
    assert!(message(Path::new("/proc/a.svg")).starts_with("failed to save `/proc/a.svg`: "));
    assert!(message(&here.join("x".repeat(300) + ".svg")).contains("failed to save"));
    assert_eq!(names_in(here), ["file"]);
}

#[test]
fn devices_get_what_is_written_and_say_when_they_are_full() {
    assert_eq!(save(Path::new("/dev/null"), Overwrite::No, hello).unwrap().bytes, 5);
    let error = save(Path::new("/dev/full"), Overwrite::No, hello).unwrap_err().to_string();
    assert_eq!(error, "failed to save `/dev/full`: No space left on device (os error 28); make room, or choose another place");
}

#[test]
fn the_caller_of_sudo_is_two_plain_numbers() {
    let with = |user: &'static str, group: &'static str| {
        caller_of_sudo(move |name| Some(if name == "SUDO_UID" { user } else { group }.to_owned()))
    };
    assert_eq!(with("1000", "100"), Some((1000, 100)));
    for nonsense in ["", "-1", "+5", "4294967295", "4294967296", "root", " 1"] {
        assert_eq!(with(nonsense, "100"), None, "{nonsense:?}");
        assert_eq!(with("1000", nonsense), None, "{nonsense:?}");
    }
    assert_eq!(caller_of_sudo(|_| None), None);
}

#[test]
fn what_is_unfinished_can_be_removed_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.svg");
    let saved = save(&path, Overwrite::No, |out| {
        hello(out)?;
        // Only this test's file: other tests save at the same time.
        let all = UNFINISHED.lock().unwrap().clone();
        let ours: Vec<Place> = all.into_iter().filter(|place| place.is_beside(directory.path())).collect();
        assert_eq!(ours.len(), 1);
        remove_all(&ours);
        assert!(names_in(directory.path()).is_empty());
        Ok(())
    });
    assert!(saved.is_err(), "{saved:?}");
    assert!(!UNFINISHED.lock().unwrap().iter().any(|place| place.is_beside(directory.path())));
}

#[test]
fn a_new_file_takes_nothing_away() {
    let directory = tempfile::tempdir().unwrap();
    let (path, link, nowhere) = (directory.path().join("a"), directory.path().join("b"), directory.path().join("c"));
    create(&path).unwrap().write_all(b"mine").unwrap();
    symlink(&path, &link).unwrap();
    symlink(directory.path().join("d"), &nowhere).unwrap();
    for there in [&path, &link, &nowhere] {
        assert!(matches!(create(there), Err(SaveError::Exists { .. })), "{}", there.display());
    }
    assert_eq!(
        (fs::read(&path).unwrap(), names_in(directory.path())),
        (b"mine".to_vec(), vec!["a".into(), "b".into(), "c".into()])
    );
    assert!(matches!(create(directory.path()), Err(SaveError::IsDirectory { .. })));
    create(Path::new("/dev/null")).unwrap().write_all(b"x").unwrap();
}

#[test]
fn standard_output_has_many_names() {
    for name in ["-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"] {
        assert!(is_standard_output(Path::new(name)), "{name}");
    }
    for name in ["x.folded", "/dev/stderr", "/dev/null", "./-"] {
        assert!(!is_standard_output(Path::new(name)), "{name}");
    }
}

#[test]
fn a_tilde_at_the_start_is_home() {
    let expanded = |path: &str| expand(Path::new(path), || Some("/home/me".into()));
    assert_eq!(expanded("~/a/b.svg"), Path::new("/home/me/a/b.svg"));
    assert_eq!(expanded("~").as_os_str(), "/home/me");
    for other in ["~you/a.svg", "a/~/b.svg", "/~/a", "a.svg", ""] {
        assert_eq!(expanded(other), Path::new(other));
    }
    assert_eq!(expand(Path::new("~/a"), || None), Path::new("~/a"), "nowhere is no home");
    let passwd = "root:x:0:0:root:/root:/bin/sh\nbroken\nme:x:1000:100:Me,,:/home/me:/bin/sh\nyou:x:10:1::relative:/bin/sh\n";
    assert_eq!(home_in_passwd(passwd, 1000), Some("/home/me".into()));
    assert_eq!((home_in_passwd(passwd, 10), home_in_passwd(passwd, 7)), (None, None));
}

#[test]
fn the_name_offered_is_the_local_time() {
    let now = DateTime::from_unix(1_795_252_502, 3_600);
    assert_eq!(default_name(Format::Svg, Some("g++"), now), "flametop-g++-20261121-101502.svg");
    let odd = format!("../a b\n{}", "n".repeat(100));
    let expected = format!("flametop-.._a_b_{}-20261121-101502.svg", "n".repeat(33));
    assert_eq!(default_name(Format::Svg, Some(&odd), now), expected);
    assert_eq!(default_name(Format::Svg, None, now), "flametop-20261121-101502.svg");
    let leap = DateTime { year: 2024, month: 2, day: 29, hour: 23, minute: 59, second: 59 };
    assert_eq!(DateTime::from_unix(1_709_251_199, 0), leap);
    assert_eq!(default_name(Format::Folded, None, DateTime::from_unix(-1, 0)), "flametop-19691231-235959.folded");
}
