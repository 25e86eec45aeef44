//! The running kernel: its names from the kernel itself or `/proc/kallsyms`, its lines from vmlinux and the files of its modules.

pub(crate) mod kallsyms;
pub(crate) mod modules;
pub(crate) mod names;
pub(crate) mod vmlinux;
