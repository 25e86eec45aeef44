//! Names kernel frames. Asks the kernel if possible; else uses the table of kernel symbols, and decides when to read it again.
//!
//! Core kernel text never moves. Modules and BPF programs come and go. So their names are only taken from a table that was read after the
//! last known change. An address that is missing from the table triggers another reading, less and less often while that does not help.

use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::kallsyms::KernelSymbols;
use crate::locks::lock;
use crate::object::reason::Reason;
use crate::profile::{AskKernel, FrameId, FrameKind, KernelSymbol, Names};
use crate::symbolize::symbols::demangle::{Detail, demangle};
use crate::symbolize::tally::Tally;

/// Shortest time between two readings. A reading takes 30 ms of system time on 122,117 symbols, so at most 3 % of a CPU.
const PAUSE: Duration = Duration::from_secs(1);
/// Longest time between two readings for addresses that are not found.
const LONGEST_PAUSE: Duration = Duration::from_secs(64);
/// Time between two checks, during a wait, whether the service has ended.
const NAP: Duration = Duration::from_millis(20);

/// The object name of the core kernel's functions.
pub(crate) const CORE: &str = "kernel";

/// The kernel's names.
#[derive(Default)]
pub(crate) struct KernelNames {
    ask: Mutex<Option<Box<dyn AskKernel>>>,
    table: Mutex<NameTable>,
    changed: AtomicBool,
    memory: AtomicUsize,
}

#[derive(Default)]
struct NameTable {
    symbols: Option<KernelSymbols>,
    reason: Option<Reason>,
    read_at: Option<Instant>,
    /// How long to wait before an unknown address triggers another reading.
    patience: Duration,
}

impl KernelNames {
    /// Records that a module or BPF program was loaded or unloaded.
    pub(crate) fn changed(&self) {
        self.changed.store(true, Ordering::Release);
    }

    /// Returns the bytes held.
    pub(crate) fn memory(&self) -> usize {
        self.memory.load(Ordering::Relaxed)
    }

    /// Makes this the way to ask the kernel, as long as it answers.
    pub(crate) fn ask_by(&self, ask: Box<dyn AskKernel>) {
        *lock(&self.ask) = Some(ask);
    }

    /// Asks the kernel for the current symbol of each address. `None` if it cannot be asked; then it is never asked again.
    pub(crate) fn symbols(&self, addresses: &[u64]) -> Option<Vec<Option<KernelSymbol>>> {
        let mut ask = lock(&self.ask);
        let answer = ask.as_mut().and_then(|ask| ask.symbols(addresses));
        if answer.is_none() {
            *ask = None;
        }
        answer
    }

    /// Returns bytes of the kernel's memory, if they can be read.
    pub(crate) fn code(&self, addresses: Range<u64>) -> Option<Vec<u8>> {
        lock(&self.ask).as_mut()?.code(addresses)
    }

    /// Names all frames. Returns the frames that now have a name: the next step looks them up in debug information.
    pub(crate) fn name(&self, names: &Names, tally: &Tally, frames: &[FrameId], stopped: &AtomicBool) -> Vec<FrameId> {
        let address = |frame: &FrameId| names.frames.get(*frame).map_or(0, |frame| frame.called_from());
        let Some(answer) = self.symbols(&frames.iter().map(address).collect::<Vec<u64>>()) else {
            return self.name_by_table(names, tally, frames, stopped);
        };
        let mut named = Vec::new();
        for (frame, symbol) in frames.iter().zip(answer) {
            match symbol {
                Some(symbol) => {
                    give_name(names, *frame, symbol.name.as_bytes(), symbol.module.as_deref().unwrap_or(CORE));
                    named.push(*frame);
                }
                None => leave_unnamed(names, *frame),
            }
        }
        let unnamed = (frames.len() - named.len()) as u64;
        tally.count(named.len() as u64, unnamed);
        if unnamed > 0 {
            tally.set_reason(Some(Reason::NoSymbolThere));
        }
        named
    }

    /// Names all frames from the table: frames of the core kernel at once, others when the table is fresh.
    fn name_by_table(&self, names: &Names, tally: &Tally, frames: &[FrameId], stopped: &AtomicBool) -> Vec<FrameId> {
        let mut table = lock(&self.table);
        if table.read_at.is_none() {
            self.read(&mut table);
        }
        let changed = self.changed.load(Ordering::Acquire);
        let (mut named, mut later) = (Vec::new(), Vec::new());
        for frame in frames {
            let is_named = table.name(names, *frame, !changed);
            if is_named { &mut named } else { &mut later }.push(*frame);
        }
        if !later.is_empty() && self.refresh(&mut table, changed, stopped) {
            let before = named.len();
            later.retain(|frame| {
                let is_named = table.name(names, *frame, true);
                named.extend(is_named.then_some(*frame));
                !is_named
            });
            table.patience = if named.len() > before { PAUSE } else { (table.patience * 2).min(LONGEST_PAUSE) };
        }
        for frame in &later {
            leave_unnamed(names, *frame);
        }
        tally.count(named.len() as u64, later.len() as u64);
        if !later.is_empty() {
            tally.set_reason(Some(table.reason.unwrap_or(Reason::NoSymbolThere)));
        }
        named
    }

    /// Reads the table again if that may help and is not too soon. After a known change, waits until reading is allowed.
    fn refresh(&self, table: &mut NameTable, changed: bool, stopped: &AtomicBool) -> bool {
        let age = || table.read_at.map_or(Duration::MAX, |at| at.elapsed());
        if changed {
            while age() < PAUSE && !stopped.load(Ordering::Relaxed) {
                std::thread::sleep(NAP);
            }
        } else if age() < table.patience {
            return false;
        }
        self.read(table);
        true
    }

    fn read(&self, table: &mut NameTable) {
        // Reset before reading: a change during the reading requires another one.
        self.changed.store(false, Ordering::Release);
        table.symbols = None;
        match KernelSymbols::read() {
            Ok(symbols) => {
                self.memory.store(symbols.memory(), Ordering::Relaxed);
                table.reason = None;
                table.symbols = Some(symbols);
            }
            Err(reason) => {
                self.memory.store(0, Ordering::Relaxed);
                table.reason = Some(reason);
            }
        }
        table.patience = table.patience.max(PAUSE);
        table.read_at = Some(Instant::now());
    }
}

impl NameTable {
    /// Names a frame if its symbol is known. Unless the table is `fresh`, the symbol must be the core kernel's. Returns whether the frame
    /// is named.
    fn name(&self, names: &Names, id: FrameId, fresh: bool) -> bool {
        let Some(frame) = names.frames.get(id) else { return true };
        let found = self.symbols.as_ref().and_then(|symbols| symbols.find(frame.called_from()));
        let Some(found) = found.filter(|found| fresh || found.core) else { return false };
        give_name(names, id, found.name, found.owner);
        true
    }
}

fn give_name(names: &Names, id: FrameId, name: &[u8], owner: &str) {
    let readable = demangle(of_function(name), Detail::default());
    let label = names.labels.intern(&readable, owner, FrameKind::Kernel);
    names.name_frame(id, &[label]);
}

/// Returns the name of the function whose padding has this name. Compilers fill the bytes before a function (`__pfx_`) and may put a type there
/// (`__cfi_`). No call is in them: a return address behind them is that of a function that was interrupted at its first instruction.
fn of_function(name: &[u8]) -> &[u8] {
    name.strip_prefix(b"__pfx_").or_else(|| name.strip_prefix(b"__cfi_")).unwrap_or(name)
}

/// Gives a frame its address for a name, for good.
fn leave_unnamed(names: &Names, id: FrameId) {
    let Some(frame) = names.frames.get(id) else { return };
    let label = names.labels.intern(&format!("kernel+{:#x}", frame.address()), "kernel", FrameKind::Kernel);
    names.name_frame(id, &[label]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::Frame;
    use crate::profile::KernelAddress;

    fn frame(names: &Names, address: u64) -> FrameId {
        names.intern_frame(Frame::Kernel { address: KernelAddress(address), is_return: false }).0
    }

    fn name(names: &Names, id: FrameId) -> String {
        let mut name = String::new();
        names.labels_of(id, |label| name.push_str(names.labels.name(label)));
        name
    }

    fn table(kallsyms: &str) -> NameTable {
        let symbols = KernelSymbols::parse(kallsyms.as_bytes()).unwrap();
        NameTable { symbols: Some(symbols), read_at: Some(Instant::now()), patience: LONGEST_PAUSE, ..NameTable::default() }
    }

    #[test]
    fn a_module_is_not_named_from_a_table_older_than_the_last_change() {
        let names = Names::default();
        let table = table("ffffffff81000000 T core\nffffffff81000100 T _etext\nffffffffc0000000 t old\t[mod]\n");
        let (core, module) = (frame(&names, 0xffffffff81000010), frame(&names, 0xffffffffc0000010));
        assert!(table.name(&names, core, false));
        assert!(!table.name(&names, module, false));
        assert_eq!((name(&names, core), name(&names, module)), ("core".into(), "kernel+0xffffffffc0000010".into()));
        assert!(table.name(&names, module, true));
        assert_eq!(name(&names, module), "old");
    }

    /// An interrupt's caller looks like any other caller, but its address is that of an instruction that did not run yet.
    #[test]
    fn a_function_that_was_interrupted_at_its_begin_has_its_own_name() {
        let names = Names::default();
        let table = table(
            "ffffffff81000000 T core\nffffffff810000f0 T __pfx_next\nffffffff81000100 T next\nffffffff810001f0 T __cfi_last\n",
        );
        for (address, expected) in [(0xffffffff810000f0, "core"), (0xffffffff81000100, "next"), (0xffffffff81000200, "last")] {
            let frame = names.intern_frame(Frame::Kernel { address: KernelAddress(address), is_return: true }).0;
            assert!(table.name(&names, frame, true));
            assert_eq!(name(&names, frame), expected, "{address:#x}");
        }
    }

    /// A kernel that answers only once.
    struct Once(bool);

    impl AskKernel for Once {
        fn symbols(&mut self, addresses: &[u64]) -> Option<Vec<Option<KernelSymbol>>> {
            let symbol = |(name, module): (&str, Option<&str>)| {
                Some(KernelSymbol { name: name.to_owned(), module: module.map(str::to_owned), addresses: 0..1 })
            };
            assert_eq!(addresses.len(), 3 - usize::from(!self.0) * 2, "asked again after there was no answer");
            let is_first = std::mem::take(&mut self.0);
            is_first.then(|| vec![symbol(("asked", Some("[mod]"))), symbol(("plain", None)), None])
        }

        fn code(&mut self, _: Range<u64>) -> Option<Vec<u8>> {
            None
        }
    }

    #[test]
    fn the_kernel_is_asked_and_once_it_does_not_answer_the_table_is() {
        let names = Names::default();
        let kernel = KernelNames { table: Mutex::new(table("ffffffff81000000 T core\n")), ..KernelNames::default() };
        kernel.ask_by(Box::new(Once(true)));
        let frames = [0xffffffffc0000000, 0xffffffff81000020, 0xffffffffa0000000].map(|address| frame(&names, address));
        let tally = Tally::default();
        let named = kernel.name(&names, &tally, &frames, &AtomicBool::new(false));
        assert_eq!(named, frames[..2], "not the unknown one");
        let label = |frame| {
            let mut found = None;
            names.labels_of(frame, |label| found = names.labels.get(label));
            found.map(|label| (label.name.to_string(), label.object.to_string())).unwrap()
        };
        assert_eq!(label(frames[0]), ("asked".to_owned(), "[mod]".to_owned()));
        assert_eq!(label(frames[1]), ("plain".to_owned(), "kernel".to_owned()));
        assert_eq!(label(frames[2]).0, "kernel+0xffffffffa0000000");
        assert_eq!(tally.counts(), crate::symbolize::Counts { named: 2, unnamed: 1 });
        for address in [0xffffffff81000001, 0xffffffff81000002] {
            let later = frame(&names, address);
            kernel.name(&names, &tally, &[later], &AtomicBool::new(false));
            assert_eq!(label(later).0, "core");
        }
    }

    #[test]
    fn an_unknown_address_keeps_its_address_for_a_name_and_is_counted() {
        let names = Names::default();
        let kernel = KernelNames { table: Mutex::new(table("ffffffff81000000 T core\n")), ..KernelNames::default() };
        let tally = Tally::default();
        let unknown = frame(&names, 0xffffffffa0000000);
        kernel.name(&names, &tally, &[unknown, frame(&names, 0xffffffff81000001)], &AtomicBool::new(false));
        let mut labels = Vec::new();
        names.labels_of(unknown, |label| labels.push(label));
        let label = names.labels.get(labels[0]).unwrap();
        assert_eq!((&*label.name, label.kind, label.provisional), ("kernel+0xffffffffa0000000", FrameKind::Kernel, false));
        assert_eq!(tally.counts(), crate::symbolize::Counts { named: 1, unnamed: 1 });
    }
}
