//! Frames: places in code, each with its address space.

use crate::profile::ids::{FileOffset, KernelAddress, LabelId, ObjectId, ProcessAddress};

/// A place in code, as a stack holds it.
///
/// `is_return` distinguishes the two kinds of code address. An instruction pointer is the address of the instruction that was running. A
/// return address is the address of the instruction after a call. Only [`Frame::called_from`] needs the difference.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Frame {
    /// A name and nothing else, as folded files have it.
    Named(LabelId),
    /// Code of the kernel, of its modules and BPF programs.
    Kernel {
        /// Where it runs.
        address: KernelAddress,
        /// Whether a call will return there.
        is_return: bool,
    },
    /// Code of an ELF file, or of the vDSO.
    File {
        /// The file.
        object: ObjectId,
        /// Where in the file it is; in the vDSO, in its image.
        offset: FileOffset,
        /// Whether a call will return there.
        is_return: bool,
    },
    /// Code of an interpreter's file that serves to run a function: it can be [folded](crate::profile::Folding) into the function.
    Interpreter {
        /// The interpreter's file.
        object: ObjectId,
        /// Where in the file it is.
        offset: FileOffset,
        /// Whether a call will return there.
        is_return: bool,
    },
    /// Code that a process made at run time.
    Process {
        /// All such code of that process.
        object: ObjectId,
        /// Where it runs.
        address: ProcessAddress,
        /// Whether a call will return there.
        is_return: bool,
    },
    /// A function that an interpreter runs.
    Script {
        /// The file of its source.
        object: ObjectId,
        /// The function.
        label: LabelId,
        /// The line that runs, from 1 on; 0 where it is not known.
        line: u32,
    },
    /// An address without a mapping.
    Unmapped,
    /// All code of an object whose addresses are not told apart, because names have filled their memory.
    AnyOf(ObjectId),
}

impl Frame {
    /// Returns the object that holds it.
    pub fn object(self) -> ObjectId {
        match self {
            Frame::Named(_) => ObjectId::NAMED,
            Frame::Kernel { .. } => ObjectId::KERNEL,
            Frame::File { object, .. }
            | Frame::Interpreter { object, .. }
            | Frame::Process { object, .. }
            | Frame::Script { object, .. }
            | Frame::AnyOf(object) => object,
            Frame::Unmapped => ObjectId::UNMAPPED,
        }
    }

    /// Returns the frame with another object.
    pub(crate) fn with_object(self, object: ObjectId) -> Frame {
        match self {
            Frame::File { offset, is_return, .. } => Frame::File { object, offset, is_return },
            Frame::Interpreter { offset, is_return, .. } => Frame::Interpreter { object, offset, is_return },
            Frame::Process { address, is_return, .. } => Frame::Process { object, address, is_return },
            Frame::Script { label, line, .. } => Frame::Script { object, label, line },
            Frame::AnyOf(_) => Frame::AnyOf(object),
            Frame::Named(_) | Frame::Kernel { .. } | Frame::Unmapped => self,
        }
    }

    /// Returns its address as a number, for display. Zero for frames without an address.
    pub fn address(self) -> u64 {
        match self {
            Frame::Kernel { address, .. } => address.0,
            Frame::File { offset, .. } | Frame::Interpreter { offset, .. } => offset.0,
            Frame::Process { address, .. } => address.0,
            Frame::Named(_) | Frame::Script { .. } | Frame::Unmapped | Frame::AnyOf(_) => 0,
        }
    }

    /// Whether a call will return there.
    pub fn is_return(self) -> bool {
        match self {
            Frame::Kernel { is_return, .. }
            | Frame::File { is_return, .. }
            | Frame::Interpreter { is_return, .. }
            | Frame::Process { is_return, .. } => is_return,
            Frame::Named(_) | Frame::Script { .. } | Frame::Unmapped | Frame::AnyOf(_) => false,
        }
    }

    /// Returns the address to look up: the instruction's own address, or an address in the call before a return address (its last byte).
    /// The return address itself will not do: a call may be the last instruction of its function.
    pub fn called_from(self) -> u64 {
        self.address().saturating_sub(u64::from(self.is_return()))
    }

    /// Returns [`called_from`](Frame::called_from) if it is a place in a file.
    pub fn file_offset(self) -> Option<FileOffset> {
        matches!(self, Frame::File { .. } | Frame::Interpreter { .. }).then(|| FileOffset(self.called_from()))
    }

    /// Returns [`called_from`](Frame::called_from) if it is an address of the kernel.
    pub fn kernel_address(self) -> Option<KernelAddress> {
        matches!(self, Frame::Kernel { .. }).then(|| KernelAddress(self.called_from()))
    }

    /// Returns [`called_from`](Frame::called_from) if it is an address of a process.
    pub fn process_address(self) -> Option<ProcessAddress> {
        matches!(self, Frame::Process { .. }).then(|| ProcessAddress(self.called_from()))
    }
}

/// A [`Frame`] in 16 bytes, as tables hold it.
///
/// ```text
/// | object 4 | space 1 | is_return 1 | - 2 | address, or label, or label and line 8 |
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(in crate::profile) struct PackedFrame {
    object: ObjectId,
    space: Space,
    is_return: bool,
    address: u64,
}

const _: () = assert!(size_of::<PackedFrame>() == 16);

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
enum Space {
    Named,
    Kernel,
    File,
    Interpreter,
    Process,
    Script,
    Unmapped,
    AnyOf,
}

impl PackedFrame {
    /// Whether it is a [`Frame::Interpreter`].
    pub(in crate::profile) fn is_of_interpreter(self) -> bool {
        self.space == Space::Interpreter
    }
}

impl From<Frame> for PackedFrame {
    fn from(frame: Frame) -> PackedFrame {
        let (space, address) = match frame {
            Frame::Named(label) => (Space::Named, u64::from(label.0)),
            Frame::Kernel { address, .. } => (Space::Kernel, address.0),
            Frame::File { offset, .. } => (Space::File, offset.0),
            Frame::Interpreter { offset, .. } => (Space::Interpreter, offset.0),
            Frame::Process { address, .. } => (Space::Process, address.0),
            Frame::Script { label, line, .. } => (Space::Script, u64::from(label.0) << 32 | u64::from(line)),
            Frame::Unmapped => (Space::Unmapped, 0),
            Frame::AnyOf(_) => (Space::AnyOf, 0),
        };
        PackedFrame { object: frame.object(), space, is_return: frame.is_return(), address }
    }
}

impl From<PackedFrame> for Frame {
    fn from(PackedFrame { object, space, is_return, address }: PackedFrame) -> Frame {
        match space {
            Space::Named => Frame::Named(LabelId(u32::try_from(address).unwrap_or(0))),
            Space::Kernel => Frame::Kernel { address: KernelAddress(address), is_return },
            Space::File => Frame::File { object, offset: FileOffset(address), is_return },
            Space::Interpreter => Frame::Interpreter { object, offset: FileOffset(address), is_return },
            Space::Process => Frame::Process { object, address: ProcessAddress(address), is_return },
            Space::Script => Frame::Script { object, label: LabelId((address >> 32) as u32), line: address as u32 },
            Space::Unmapped => Frame::Unmapped,
            Space::AnyOf => Frame::AnyOf(object),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_return_address_is_looked_up_where_the_call_is() {
        let address = KernelAddress(0x1000);
        assert_eq!(Frame::Kernel { address, is_return: true }.called_from(), 0xfff);
        assert_eq!(Frame::Kernel { address, is_return: false }.called_from(), 0x1000);
        let file = Frame::File { object: ObjectId::VDSO, offset: FileOffset(0x20), is_return: true };
        assert_eq!((file.file_offset(), file.kernel_address(), file.process_address()), (Some(FileOffset(0x1f)), None, None));
    }

    #[test]
    fn what_is_packed_is_unpacked() {
        let object = ObjectId(77);
        for is_return in [false, true] {
            for frame in [
                Frame::Named(LabelId(u32::MAX)),
                Frame::Kernel { address: KernelAddress(u64::MAX), is_return },
                Frame::File { object, offset: FileOffset(1 << 47), is_return },
                Frame::Interpreter { object, offset: FileOffset(0), is_return },
                Frame::Process { object, address: ProcessAddress(0), is_return },
                Frame::Script { object, label: LabelId(u32::MAX), line: 7 },
                Frame::Unmapped,
                Frame::AnyOf(object),
            ] {
                assert_eq!(Frame::from(PackedFrame::from(frame)), frame);
            }
        }
    }
}
