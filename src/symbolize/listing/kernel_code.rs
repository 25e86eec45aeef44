//! Instructions of the running kernel, its modules and BPF programs, read from the kernel's memory.
//!
//! ```text
//! address ── symbol of the kernel ──► where the function begins and ends ──► its bytes ──► instructions ──► symbols of calls
//! ```
//!
//! The code in files differs from the code in memory. The kernel overwrites some of its instructions at boot to suit the processor
//! ("alternatives"), and others while it runs (static branches, ftrace). Modules are not linked. BPF programs have no file.

use std::sync::Arc;

use crate::object::headers::Arch;
use crate::profile::{FrameId, FrameWeight, KernelSymbol, ObjectId, Rows, sanitize};
use crate::symbolize::kernel::names::{CORE, KernelNames};
use crate::symbolize::service::Service;
use crate::symbolize::symbols::demangle::{Detail, demangle};

use super::called::Called;
use super::code::{Code, MAX_BYTES};

/// Returns the instructions of the kernel's function at this address, and the rows of its sampled addresses. The error is the end of a
/// sentence.
pub(super) fn instructions(service: &Service, by: FrameId, frames: &[FrameWeight]) -> Result<Rows, &'static str> {
    let place = |frame: FrameId| {
        let frame = service.names.frames.get(frame).filter(|frame| frame.object() == ObjectId::KERNEL);
        frame.map(|frame| frame.called_from())
    };
    let address = place(by).ok_or("this function's addresses are not the kernel's")?;
    let ask = || {
        let asked = service.kernel.symbols(&[address]).ok_or("the running kernel does not show its symbols")?;
        let symbol = asked.into_iter().flatten().next().filter(|symbol| is_called(service, by, symbol));
        symbol.ok_or("this function is not loaded any more")
    };
    let symbol = ask()?;
    let range = symbol.addresses.clone();
    let end = range.end.min(range.start.saturating_add(MAX_BYTES));
    let bytes = service.kernel.code(range.start..end).ok_or("the running kernel's code cannot be read")?;
    // A module may have been replaced by another one between the two questions.
    if ask()? != symbol {
        return Err("the kernel's functions are changing");
    }
    let file = sanitize(symbol.module.as_deref().unwrap_or(CORE));
    let code = Code { arch: Arch::OWN, bytes: &bytes, range, note: "", file: &file };
    let places = frames.iter().filter_map(|weight| Some((weight.frame, place(weight.frame)?)));
    code.rows(Asked(Arc::clone(&service.kernel)), places)
}

/// Whether the function there is still the one that was sampled: modules and BPF programs come and go.
fn is_called(service: &Service, frame: FrameId, symbol: &KernelSymbol) -> bool {
    let label = service.symbol_of(frame).and_then(|label| service.names.labels.get(label));
    label.is_some_and(|label| {
        *label.name == *demangle(symbol.name.as_bytes(), Detail::default())
            && *label.object == *symbol.module.as_deref().unwrap_or(CORE)
    })
}

/// Asks the kernel for the names of its addresses.
struct Asked(Arc<KernelNames>);

impl Called for Asked {
    fn name(&self, address: u64) -> Option<(u64, String)> {
        let symbol = self.0.symbols(&[address])?.into_iter().flatten().next()?;
        let name = demangle(symbol.name.as_bytes(), Detail::Short);
        Some((symbol.addresses.start, name.into_owned()))
    }
}

#[cfg(test)]
mod tests {
    use crate::profile::KernelAddress;
    use std::ops::Range;

    use super::*;
    use crate::profile::AskKernel;
    use crate::profile::{Frame, FrameKind, LabelId};
    use crate::symbolize::listing::{Lister, Question};

    const START: u64 = 0xffff_ffff_c010_0000;
    /// The target of its call.
    const CALLEE: u64 = START + 0x1000;

    /// A kernel with two functions, and the code of the first.
    struct Kernel {
        called: &'static str,
        code: Option<Vec<u8>>,
    }

    impl AskKernel for Kernel {
        fn symbols(&mut self, addresses: &[u64]) -> Option<Vec<Option<KernelSymbol>>> {
            let symbols = [(self.called, Some("[my_thing]"), START..START + 12), ("other_thing", None, CALLEE..CALLEE + 64)];
            let symbol = |address: &u64| {
                let (name, module, addresses) = symbols.iter().find(|(.., addresses)| addresses.contains(address))?;
                let module = module.map(str::to_owned);
                Some(KernelSymbol { name: (*name).to_owned(), module, addresses: addresses.clone() })
            };
            Some(addresses.iter().map(symbol).collect())
        }

        fn code(&mut self, addresses: Range<u64>) -> Option<Vec<u8>> {
            assert_eq!(addresses, START..START + 12);
            self.code.clone()
        }
    }

    /// Lists a function that was sampled at its begin and once in its middle.
    fn listing(called: &'static str, code: Option<Vec<u8>>) -> (Result<crate::profile::Listing, String>, [FrameId; 2]) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let mut service = Service::new(Arc::default(), runtime.handle().clone());
        let root = tempfile::tempdir().unwrap();
        service.objects.root = crate::symbolize::kernel::vmlinux::Root(root.path().to_owned());
        let service = Arc::new(service);
        service.kernel.ask_by(Box::new(Kernel { called, code }));
        let label = service.names.labels.intern("thing_read", "[my_thing]", FrameKind::Kernel);
        let frames = [START, START + 4].map(|address| {
            let frame = Frame::Kernel { address: KernelAddress(address), is_return: false };
            let frame = service.names.intern_frame(frame).0;
            service.names.name_frame(frame, &[label]);
            frame
        });
        let weights = frames.map(|frame| FrameWeight { frame, own: 1, total: 1 }).to_vec();
        (ask(&runtime, &service, label, weights), frames)
    }

    fn ask(
        runtime: &tokio::runtime::Runtime,
        service: &Arc<Service>,
        label: LabelId,
        frames: Vec<FrameWeight>,
    ) -> Result<crate::profile::Listing, String> {
        runtime.block_on(Lister::default().ask(service, Question { label, frames, by: None })).unwrap()
    }

    /// Returns the code of `call CALLEE`, filled up to twelve bytes.
    fn code() -> Vec<u8> {
        if cfg!(target_arch = "aarch64") {
            // nop; bl; ret
            [0xd503_201f_u32, 0x9400_03ff, 0xd65f_03c0].iter().flat_map(|word| word.to_le_bytes()).collect()
        } else {
            // endbr64; call; ret; nop; nop
            vec![0xf3, 0x0f, 0x1e, 0xfa, 0xe8, 0xf7, 0x0f, 0, 0, 0xc3, 0x90, 0x90]
        }
    }

    #[test]
    fn what_is_in_memory_is_shown_where_no_file_is_installed() {
        let (listing, frames) = listing("thing_read", Some(code()));
        let listing = listing.unwrap();
        assert!(listing.source.unwrap_err().contains("in none of the kernel's files"));
        let code = listing.code.unwrap();
        assert_eq!((&*code.file, code.note.as_str(), code.rows[0].place), ("[my_thing]", "", START));
        assert!(code.rows[1].text.ends_with(" other_thing"), "{:?}", code.rows);
        assert_eq!([code.row_of[&frames[0]], code.row_of[&frames[1]]], [0, 1]);
    }

    #[test]
    fn of_code_that_is_gone_or_hidden_nothing_is_shown() {
        for (called, code, why) in
            [("another_thing", Some(code()), "not loaded any more"), ("thing_read", None, "cannot be read")]
        {
            let said = listing(called, code).0.unwrap_err();
            assert!(said.starts_with("neither source nor instructions") && said.contains(why), "{said}");
        }
    }
}
