//! Memory in use, by purpose.

/// Bytes held, by purpose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Samples, their stacks and threads, and the baseline.
    pub samples: usize,
    /// Names of functions, files and threads.
    pub names: usize,
    /// Symbol tables and debug information.
    pub tables: usize,
    /// Facts about processes, files with unwind tables, and the kernel.
    pub known: usize,
    /// Trees and tables that views show.
    pub trees: usize,
}

impl Held {
    /// Returns the sum of all parts.
    pub fn total(&self) -> usize {
        self.samples + self.names + self.tables + self.known + self.trees
    }
}
