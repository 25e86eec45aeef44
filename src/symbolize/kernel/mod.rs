//! The running kernel: its names by asking it or by `/proc/kallsyms`, its lines by vmlinux and the files of its modules.

pub(crate) mod kallsyms;
pub(crate) mod modules;
pub(crate) mod names;
pub(crate) mod vmlinux;
