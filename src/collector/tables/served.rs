//! Whom a table serves. Pure.

use crate::collector::wire::records::ObjectKey;
use crate::profile::UserId;

/// The users whom a table or a build id serves.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum For {
    All,
    /// Only this user.
    User(UserId),
}

/// A file, and the users whom its table serves: `struct file_key` of bpf/record.h.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct FileFor {
    pub(super) key: ObjectKey,
    pub(super) users: For,
}

impl FileFor {
    pub(super) fn all(key: ObjectKey) -> FileFor {
        FileFor { key, users: For::All }
    }

    pub(super) fn user(key: ObjectKey, user: UserId) -> FileFor {
        FileFor { key, users: For::User(user) }
    }

    pub(super) fn bytes(self) -> [u8; 24] {
        /// `FOR_ALL`
        const ALL: u32 = u32::MAX;
        let mut bytes = [0; 24];
        let (key, rest) = bytes.split_at_mut(16);
        key.copy_from_slice(&self.key.bytes());
        let user = match self.users {
            For::All => ALL,
            For::User(UserId(user)) => user,
        };
        rest.iter_mut().zip(user.to_ne_bytes()).for_each(|(place, byte)| *place = byte);
        bytes
    }
}
