//! The user who runs a command that flametop starts: `--user NAME`.
//!
//! `/etc/passwd` and `/etc/group` are read. If `/etc/passwd` lacks the user, `getent` is run, because it also knows users of directory
//! services such as LDAP. The groups of such a user are those that `id` lists.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::process::{Command, Stdio};
use std::str::FromStr;
use std::sync::Arc;

use crate::profile::{UserId, sanitize};

use anyhow::{Context, Result, bail};
use rustc_hash::FxHashMap;
use rustix::process::{Gid, Uid};
use rustix::thread::{
    CapabilitySet, CapabilitySets, clear_ambient_capability_set, set_capabilities, set_thread_groups, set_thread_res_gid,
    set_thread_res_uid,
};

/// Longest answer of `getent` and `id` that is read.
const LONGEST_ANSWER: usize = 1 << 16;

/// A user: the entry of the user database, and the user's groups.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct User {
    pub(super) name: String,
    pub(super) ids: Ids,
    home: String,
    shell: String,
}

/// The ids of a user and of the user's groups. As text: `UID:GID:GROUP,GROUP`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Ids {
    user: u32,
    group: u32,
    groups: Vec<u32>,
}

impl User {
    /// Looks a user up, by name or by number.
    ///
    /// # Errors
    ///
    /// If there is no such user, or if flametop may not change to another user.
    pub(super) fn find(wanted: &str) -> Result<User> {
        let passwd = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
        let mut user = match User::in_passwd(&passwd, wanted) {
            Some(user) => user,
            None => User::of_directory(wanted).with_context(|| format!("--user {wanted}: there is no such user"))?,
        };
        if !rustix::process::geteuid().is_root() && rustix::process::geteuid().as_raw() != user.ids.user {
            bail!("--user {wanted}: only root can start a command as another user; start flametop as root");
        }
        if user.ids.groups.is_empty() {
            let groups = std::fs::read_to_string("/etc/group").unwrap_or_default();
            user.ids.groups = groups_of(&groups, &user.name, user.ids.group);
        }
        Ok(user)
    }

    /// Returns the user's number.
    pub(super) fn id(&self) -> u32 {
        self.ids.user
    }

    /// Returns the first entry with this name, else the first with this number: `name:password:uid:gid:comment:home:shell`.
    fn in_passwd(passwd: &str, wanted: &str) -> Option<User> {
        let users = || passwd.lines().filter_map(User::parse);
        users().find(|user| user.name == wanted).or_else(|| users().find(|user| user.is_number(wanted)))
    }

    fn is_number(&self, wanted: &str) -> bool {
        plain_id(wanted) == Some(self.ids.user)
    }

    fn parse(line: &str) -> Option<User> {
        let fields: Vec<&str> = line.split(':').collect();
        let [name, _, user, group, _, home, shell, ..] = fields.as_slice() else { return None };
        let ids = Ids { user: plain_id(user)?, group: plain_id(group)?, groups: Vec::new() };
        let or = |text: &str, other: &str| if text.starts_with('/') { text.to_owned() } else { other.to_owned() };
        Some(User { name: (*name).to_owned(), ids, home: or(home, "/"), shell: or(shell, "/bin/sh") })
    }

    fn of_directory(wanted: &str) -> Option<User> {
        let mut user = User::in_passwd(&answer_of("getent", &["passwd", wanted])?, wanted)?;
        let groups = answer_of("id", &["-G", &user.name])?;
        user.ids.groups = groups.split_whitespace().filter_map(plain_id).collect();
        Some(user)
    }

    /// Returns the variables that a login sets in the environment.
    pub(super) fn environment(&self) -> [(&'static str, &str); 4] {
        [("HOME", &self.home), ("USER", &self.name), ("LOGNAME", &self.name), ("SHELL", &self.shell)]
    }

    /// Returns the user's number in the kernel's type.
    pub(super) fn uid(&self) -> Uid {
        Uid::from_raw(self.ids.user)
    }
}

/// Returns the names of the users in `/etc/passwd`.
pub(super) fn all_users() -> FxHashMap<UserId, Arc<str>> {
    let passwd = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let mut users = FxHashMap::default();
    for user in passwd.lines().filter_map(User::parse) {
        // If a number has several lines, the first one counts.
        users.entry(UserId(user.ids.user)).or_insert_with(|| sanitize(&user.name).into());
    }
    users
}

/// Parses a number that the kernel accepts as an id. The kernel takes `u32::MAX` as "do not change the id".
fn plain_id(text: &str) -> Option<u32> {
    let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|id| plain && *id != u32::MAX)
}

/// Returns the groups of a user: the user's own, and all that list the user as a member. Lines are `name:password:gid:member,member`.
fn groups_of(groups: &str, user: &str, own: u32) -> Vec<u32> {
    let listing = |line: &str| {
        let mut fields = line.split(':').skip(2);
        let (group, members) = (plain_id(fields.next()?)?, fields.next()?);
        members.split(',').any(|member| member == user).then_some(group)
    };
    let mut found = vec![own];
    found.extend(groups.lines().filter_map(listing).filter(|group| *group != own));
    found
}

fn answer_of(program: &str, arguments: &[&str]) -> Option<String> {
    let [.., name] = arguments else { return None };
    if name.starts_with('-') {
        return None;
    }
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    let text = output.stdout.get(..LONGEST_ANSWER).unwrap_or(&output.stdout);
    output.status.success().then(|| String::from_utf8_lossy(text).into_owned())
}

impl Ids {
    /// Changes the calling thread to this user; so the process must have no other thread. Groups are changed first: after the
    /// change of user, the thread may not change them. Unless the user is root, no capability is left afterwards.
    pub(super) fn become_them(&self) -> Result<()> {
        let (user, group) = (Uid::from_raw(self.user), Gid::from_raw(self.group));
        if rustix::process::geteuid() != user || rustix::process::geteuid().is_root() {
            let groups: Vec<Gid> = self.groups.iter().copied().map(Gid::from_raw).collect();
            set_thread_groups(&groups).context("failed to change to the user's groups")?;
            set_thread_res_gid(group, group, group).context("failed to change to the user's group")?;
            set_thread_res_uid(user, user, user).context("failed to change to the user")?;
        }
        if !user.is_root() {
            let none = CapabilitySet::empty();
            let _ = clear_ambient_capability_set();
            set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })
                .context("failed to drop capabilities")?;
        }
        Ok(())
    }

    /// Returns the ids as an argument of `__hold`.
    pub(super) fn to_text(&self) -> String {
        let groups: Vec<String> = self.groups.iter().map(u32::to_string).collect();
        format!("{}:{}:{}", self.user, self.group, groups.join(","))
    }
}

impl Ids {
    /// A user who owns nothing.
    pub(super) const NOBODY: Ids = Ids { user: 65534, group: 65534, groups: Vec::new() };
}

impl FromStr for Ids {
    type Err = String;

    fn from_str(text: &str) -> Result<Ids, String> {
        let fields: Vec<&str> = text.split(':').collect();
        let [user, group, groups] = fields.as_slice() else { return Err("not of the form UID:GID:GROUPS".to_owned()) };
        let id = |text: &str| plain_id(text).ok_or_else(|| format!("{text} is not a user or group number"));
        let groups: Result<Vec<u32>, String> = groups.split(',').filter(|group| !group.is_empty()).map(id).collect();
        Ok(Ids { user: id(user)?, group: id(group)?, groups: groups? })
    }
}

/// Returns a sentence for a command without `--user`: it runs as root because flametop was started with sudo, and `--user` starts it as
/// the user who called sudo. Returns `None` if flametop does not run as root, or if the caller of sudo is root, is not known, or has
/// an unusual name.
pub(super) fn runs_as_root(name: &str) -> Option<String> {
    let caller = std::env::var_os("SUDO_USER")?;
    let is_plain = |name: &OsStr| name.as_bytes().iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_.@".contains(byte));
    if !rustix::process::geteuid().is_root() || caller.is_empty() || caller == "root" || !is_plain(&caller) {
        return None;
    }
    let caller = caller.to_string_lossy();
    Some(format!("{name} runs as root, as flametop does; --user {caller} starts it as {caller}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &str = "root:x:0:0:root:/root:/bin/bash\nbroken\nme:x:1000:100:Me,,:/home/me:/bin/zsh\n100:x:7:7::relative:\n";

    #[test]
    fn users_are_found_by_name_then_by_number() {
        let me = User::in_passwd(PASSWD, "me").unwrap();
        assert_eq!(me.environment(), [("HOME", "/home/me"), ("USER", "me"), ("LOGNAME", "me"), ("SHELL", "/bin/zsh")]);
        assert_eq!(User::in_passwd(PASSWD, "1000"), Some(me));
        assert_eq!(User::in_passwd(PASSWD, "100").unwrap().ids.user, 7, "a name first");
        assert_eq!(User::in_passwd(PASSWD, "7").unwrap().home, "/", "no home is the root directory");
        for nobody in ["", "m", "1001", "-1", "+0", "broken", "4294967295", "4294967296"] {
            assert_eq!(User::in_passwd(PASSWD, nobody), None, "{nobody:?}");
        }
    }

    #[test]
    fn groups_are_ones_own_and_those_that_list_one() {
        let groups = "root:x:0:\nusers:x:100:me\nwheel:x:10:you,me\nmean:x:11:mean\nbroken:x:y:me\nnone\nall:x:12:me";
        assert_eq!(groups_of(groups, "me", 100), [100, 10, 12]);
    }

    #[test]
    fn ids_survive_the_command_line() {
        for groups in [vec![], vec![5], vec![5, 6]] {
            let ids = Ids { user: 1000, group: 100, groups };
            assert_eq!(ids.to_text().parse(), Ok(ids));
        }
        for nonsense in ["", "1", "1:2", "1:2:3:4", "-1:2:", "1:x:", "1:2:3,,y", "4294967295:1:"] {
            assert!(nonsense.parse::<Ids>().is_err(), "{nonsense}");
        }
    }

    #[test]
    fn who_is_not_there_is_said_so() {
        let said = format!("{:#}", User::find("no-such-user-anywhere").unwrap_err());
        assert_eq!(said, "--user no-such-user-anywhere: there is no such user");
        assert!(User::find("--help").is_err());
    }
}
