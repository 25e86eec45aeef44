//! Identifies the user behind sudo: `~` is their home, and files belong to them.

use std::fs;
use std::path::{Path, PathBuf};

/// Expands `~` in a typed path that no shell has seen. `~` and `~/…` mean the home of the user who called sudo, or the current
/// user's home.
pub fn expand_home(path: &Path) -> PathBuf {
    expand(path, home)
}

pub(super) fn expand(path: &Path, home: impl FnOnce() -> Option<PathBuf>) -> PathBuf {
    // Whole components are compared: `~x/` is another user's home, which is left to shells.
    match path.strip_prefix("~") {
        Ok(rest) => home().map_or_else(|| path.to_owned(), |home| if rest == Path::new("") { home } else { home.join(rest) }),
        Err(_) => path.to_owned(),
    }
}

/// Returns the home of the file's future owner. sudo sets `HOME` to root's home on many systems.
fn home() -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if rustix::process::geteuid().is_root()
        && let Some((user, _)) = caller_of_sudo(|name| std::env::var(name).ok())
        && let Some(home) =
            set("SUDO_HOME").or_else(|| home_in_passwd(&fs::read_to_string("/etc/passwd").unwrap_or_default(), user))
    {
        return Some(home);
    }
    set("HOME")
}

/// Finds a home directory in lines like `name:password:uid:gid:comment:home:shell`.
pub(super) fn home_in_passwd(passwd: &str, user: u32) -> Option<PathBuf> {
    let home = |line: &str| {
        let fields: Vec<&str> = line.split(':').collect();
        let found = fields.get(2)?.parse() == Ok(user);
        fields.get(5).filter(|home| found && home.starts_with('/')).map(PathBuf::from)
    };
    passwd.lines().find_map(home)
}

/// Under sudo, gives the file to the user instead of root. If that is impossible (FAT has no owners), the file is kept anyway.
pub(super) fn give_to_caller_of_sudo(file: &fs::File) {
    if rustix::process::geteuid().is_root()
        && let Some((user, group)) = caller_of_sudo(|name| std::env::var(name).ok())
    {
        let _ = std::os::unix::fs::fchown(file, Some(user), Some(group));
    }
}

/// Returns the ids of the user who called sudo, if both are plain numbers. `u32::MAX` is no user's id: to the kernel it means "do
/// not change".
pub(super) fn caller_of_sudo(variable: impl Fn(&str) -> Option<String>) -> Option<(u32, u32)> {
    let id = |name: &str| {
        let text = variable(name).filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()))?;
        text.parse().ok().filter(|id| *id != u32::MAX)
    };
    Some((id("SUDO_UID")?, id("SUDO_GID")?))
}
