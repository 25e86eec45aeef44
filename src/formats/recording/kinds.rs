//! The numbers of kinds in a file. They never change, whatever the order of the kinds in the program.

use crate::profile::{FrameKind, Language, ObjectKind, Unit};

const FRAMES: [FrameKind; 10] = [
    FrameKind::Process,
    FrameKind::User,
    FrameKind::Kernel,
    FrameKind::Inlined,
    FrameKind::Jit,
    FrameKind::Script(Language::Python),
    FrameKind::Unknown,
    FrameKind::Script(Language::JavaScript),
    FrameKind::Script(Language::Java),
    FrameKind::Wait,
];

const OBJECTS: [ObjectKind; 7] = [
    ObjectKind::Unmapped,
    ObjectKind::Named,
    ObjectKind::Kernel,
    ObjectKind::Elf,
    ObjectKind::Vdso,
    ObjectKind::Anonymous,
    ObjectKind::Script,
];

const UNITS: [Unit; 4] = [Unit::Samples, Unit::Events, Unit::Nanoseconds, Unit::Bytes];

fn number<T: PartialEq>(all: &[T], kind: T) -> u64 {
    all.iter().position(|known| *known == kind).unwrap_or(0) as u64
}

fn kind<T: Copy>(all: &[T], number: u64) -> Option<T> {
    usize::try_from(number).ok().and_then(|number| all.get(number)).copied()
}

pub(super) fn number_of_frame(of: FrameKind) -> u64 {
    number(&FRAMES, of)
}

/// A kind that this reader does not know is user code.
pub(super) fn frame_kind(of: u64) -> FrameKind {
    kind(&FRAMES, of).unwrap_or(FrameKind::User)
}

pub(super) fn number_of_object(of: ObjectKind) -> u64 {
    number(&OBJECTS, of)
}

pub(super) fn object_kind(of: u64) -> ObjectKind {
    kind(&OBJECTS, of).unwrap_or_default()
}

pub(super) fn number_of_unit(of: Unit) -> u64 {
    number(&UNITS, of)
}

pub(super) fn unit(of: u64) -> Unit {
    kind(&UNITS, of).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_has_a_number() {
        assert!(FrameKind::ALL.iter().all(|known| frame_kind(number_of_frame(*known)) == *known));
        assert_eq!(frame_kind(99), FrameKind::User);
        assert_eq!(object_kind(number_of_object(ObjectKind::Script)), ObjectKind::Script);
        assert_eq!(unit(number_of_unit(Unit::Bytes)), Unit::Bytes);
    }
}
