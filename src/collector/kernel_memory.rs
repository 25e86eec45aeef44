//! Reads names and code of kernel addresses from the running kernel. A program that prints names or reads memory (`bpf/names.bpf.c`) is run
//! for each batch of addresses. A name costs about a microsecond. Reading all of `/proc/kallsyms` took 45 ms of CPU on the same machine.

use crate::collector::bpf_errors::bpf_error;
use crate::collector::bpf_errors::forget_complaint;
use crate::collector::sys::bpf_memory;
use crate::collector::sys::scheduling;
use std::cell::OnceCell;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::os::fd::AsFd;

use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{MapMut, OpenObject, ProgramInput, ProgramMut};

use super::error::CollectorError;
use crate::profile::{AskKernel, KernelSymbol};

#[allow(unsafe_code, unreachable_pub, unused_qualifications, clippy::all, clippy::restriction)]
mod skeleton {
    include!(concat!(env!("OUT_DIR"), "/names.skel.rs"));
}

use skeleton::{NamesSkel, NamesSkelBuilder};

/// `struct kernel_names` of `bpf/record.h`: a count, addresses, and then names.
const BATCH: usize = 32;
const NAME_BYTES: usize = 576;
const NAMES: usize = 8 + 8 * BATCH;

/// `struct kernel_code`: an address, a size, whether reading failed, and then bytes.
const CODE_BYTES: usize = 4096;
const CODE: usize = 16;

/// Names and code of the running kernel. The programs are loaded when the first name is needed: a view of a file has no addresses.
#[derive(Default)]
pub struct RunningKernel(OnceCell<Option<KernelNames>>);

impl RunningKernel {
    fn names(&mut self) -> Option<&mut KernelNames> {
        self.0.get_or_init(|| KernelNames::load().ok());
        self.0.get_mut()?.as_mut()
    }
}

impl AskKernel for RunningKernel {
    fn symbols(&mut self, addresses: &[u64]) -> Option<Vec<Option<KernelSymbol>>> {
        self.names()?.symbols(addresses).ok()
    }

    fn code(&mut self, addresses: Range<u64>) -> Option<Vec<u8>> {
        self.names()?.code(addresses).ok()?
    }
}

/// The loaded programs.
pub struct KernelNames {
    skeleton: NamesSkel<'static>,
}

impl KernelNames {
    /// Loads the programs.
    ///
    /// # Errors
    ///
    /// If the kernel refuses the programs. Then `/proc/kallsyms` has the names.
    pub fn load() -> Result<KernelNames, CollectorError> {
        forget_complaint();
        // As in the sampler, one pointer is leaked.
        let place: &'static mut MaybeUninit<OpenObject> = Box::leak(Box::new(MaybeUninit::uninit()));
        let open = NamesSkelBuilder::default()
            .open(place)
            .map_err(|error| bpf_error("open the BPF program that names kernel functions", &error))?;
        // The load is undisturbed because other programs run meanwhile, and libbpf fills a map during the load.
        let skeleton = scheduling::undisturbed(|| open.load())
            .map_err(|error| bpf_error("load the BPF program that names kernel functions", &error))?;
        Ok(KernelNames { skeleton })
    }

    /// Returns the symbol that contains each address; `None` where there is none.
    ///
    /// # Errors
    ///
    /// If the program cannot be run.
    pub fn symbols(&mut self, addresses: &[u64]) -> Result<Vec<Option<KernelSymbol>>, CollectorError> {
        let mut names = Vec::with_capacity(addresses.len());
        for batch in addresses.chunks(BATCH) {
            let mut value = vec![0u8; NAMES + BATCH * NAME_BYTES];
            let count = u32::try_from(batch.len()).unwrap_or(0).to_ne_bytes();
            let asked = count.into_iter().chain([0; 4]).chain(batch.iter().flat_map(|address| address.to_ne_bytes()));
            value.iter_mut().zip(asked).for_each(|(slot, byte)| *slot = byte);
            let value = answer(&self.skeleton.maps.batch, &self.skeleton.progs.name_addresses, &value)?;
            let texts = value.get(NAMES..).unwrap_or_default().chunks(NAME_BYTES);
            names.extend(batch.iter().zip(texts).map(|(address, text)| symbol_in(text, *address)));
        }
        names.resize(addresses.len(), None);
        Ok(names)
    }

    /// Returns the current bytes of the kernel's memory at these addresses, up to the first piece of 4,096 bytes that cannot be read.
    /// Returns `None` if the first piece cannot be read.
    ///
    /// # Errors
    ///
    /// If the program cannot be run.
    pub fn code(&mut self, addresses: Range<u64>) -> Result<Option<Vec<u8>>, CollectorError> {
        let mut bytes = Vec::new();
        for address in addresses.clone().step_by(CODE_BYTES) {
            let size = usize::try_from(addresses.end - address).unwrap_or(CODE_BYTES).min(CODE_BYTES);
            let asked = address.to_ne_bytes().into_iter().chain((size as u64).to_ne_bytes());
            let value: Vec<u8> = asked.chain(std::iter::repeat_n(0, CODE_BYTES)).collect();
            let value = answer(&self.skeleton.maps.code, &self.skeleton.progs.read_code, &value)?;
            let has_failed = value.get(12..CODE).is_none_or(|failed| failed != [0; 4]);
            let Some(read) = value.get(CODE..CODE + size).filter(|_| !has_failed) else { break };
            bytes.extend_from_slice(read);
        }
        Ok(Some(bytes).filter(|bytes| !bytes.is_empty() || addresses.is_empty()))
    }
}

/// Puts a question into a map of one element, runs the program that answers it, and returns the answer from the same element.
fn answer(map: &MapMut<'_>, program: &ProgramMut<'_>, question: &[u8]) -> Result<Vec<u8>, CollectorError> {
    let failed = |source| CollectorError::Read { path: "the kernel's functions", source };
    bpf_memory::write_mapped(map.as_fd(), 0, question).map_err(failed)?;
    program.test_run(ProgramInput::default()).map_err(|error| bpf_error("look up kernel functions", &error))?;
    bpf_memory::read_mapped(map.as_fd(), 0, question.len()).map_err(failed)
}

/// Parses a symbol from a text that ends with 0: `name+0x12/0x345` or `name+0x12/0x345 [module]`. Without a symbol the kernel writes an
/// address in hexadecimal; then the result is `None`.
fn symbol_in(text: &[u8], address: u64) -> Option<KernelSymbol> {
    let text = std::str::from_utf8(text.split(|byte| *byte == 0).next()?).ok()?;
    let (text, module) = match text.split_once(' ') {
        Some((text, module)) => (text, Some(module.to_owned())),
        None => (text, None),
    };
    let (name, place) = text.rsplit_once("+0x")?;
    let module = module.or_else(|| is_of_bpf(name).then(|| "[bpf]".to_owned()));
    let (offset, size) = place.split_once("/0x")?;
    let number = |digits| u64::from_str_radix(digits, 16).ok();
    let start = address.checked_sub(number(offset)?)?;
    Some(KernelSymbol { name: name.to_owned(), module, addresses: start..start.checked_add(number(size)?)? })
}

/// Tells whether the kernel made up this name for a BPF program or its trampoline. A program's name is `bpf_prog_`, a tag of 16 digits, and
/// its own name. The kernel prints no module for these symbols, though `/proc/kallsyms` has one.
fn is_of_bpf(name: &str) -> bool {
    let is_program = |rest: &str| {
        let tag = rest.get(..16).is_some_and(|tag| tag.bytes().all(|digit| digit.is_ascii_hexdigit()));
        tag && rest.get(16..).is_some_and(|name| name.is_empty() || name.starts_with('_'))
    };
    let is_number = |rest: &str| !rest.is_empty() && rest.bytes().all(|digit| digit.is_ascii_digit());
    name.strip_prefix("bpf_prog_").is_some_and(is_program) || name.strip_prefix("bpf_trampoline_").is_some_and(is_number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use libbpf_rs::Program;
    use libbpf_rs::query::{ProgInfoIter, ProgInfoQueryOptions};
    use std::collections::HashMap;
    use std::os::fd::AsFd;
    use std::time::Instant;

    /// `/proc/kallsyms` has the same names. If several symbols are at one address, the kernel chooses one of them.
    #[test]
    fn the_kernel_calls_its_functions_what_kallsyms_calls_them() {
        let text = std::fs::read_to_string("/proc/kallsyms").unwrap();
        let mut symbols: HashMap<u64, Vec<String>> = HashMap::new();
        for line in text.lines() {
            let fields: Vec<&str> = line.split_whitespace().collect();
            if let [address, "t" | "T", name, owner @ ..] = fields.as_slice() {
                let name = owner.first().map_or((*name).to_owned(), |owner| format!("{name} {owner}"));
                symbols.entry(u64::from_str_radix(address, 16).unwrap()).or_default().push(name);
            }
        }
        assert!(!symbols.contains_key(&0), "this test needs root: addresses of the kernel are hidden");
        // Some symbols are no functions and mark the end of code. BPF programs and trampolines of other tests come and go.
        let others = ["_etext", "_einittext", "[bpf]", "[__builtin__ftrace]", "[__builtin__kprobes]"];
        symbols.retain(|_, names| !names.iter().any(|name| others.iter().any(|other| name.ends_with(other))));
        let mut addresses: Vec<u64> = symbols.keys().copied().collect();
        addresses.sort_unstable();
        let asked: Vec<u64> = addresses.into_iter().step_by(7).collect();
        let mut kernel = KernelNames::load().unwrap();
        let began = Instant::now();
        let names = kernel.symbols(&asked).unwrap();
        println!("{} names in {:?}", names.len(), began.elapsed());
        assert!(names.len() > 5000);
        for (address, name) in asked.iter().zip(&names) {
            let found = name.clone().unwrap_or_else(|| panic!("{address:#x} has no name, and is {:?}", symbols[address]));
            let name = found.module.map_or(found.name.clone(), |module| format!("{} {module}", found.name));
            assert!(symbols[address].contains(&name), "{address:#x}: {name}, not {:?}", symbols[address]);
            assert_eq!(found.addresses.start, *address, "{name}");
        }
        assert_eq!(kernel.symbols(&[0, 0xffff_8000_0000_1000]).unwrap(), [None, None]);
        let inside: Vec<u64> = asked.iter().map(|address| address + 1).collect();
        for ((address, at), whole) in asked.iter().zip(kernel.symbols(&inside).unwrap()).zip(&names) {
            let whole = whole.as_ref().unwrap();
            assert!(at.as_ref() == Some(whole) || whole.addresses.end == address + 1, "{at:?} {whole:?}");
        }
    }

    #[test]
    fn what_the_kernel_prints_is_taken_apart() {
        let symbol = |name: &str, module: Option<&str>, addresses| {
            Some(KernelSymbol { name: name.to_owned(), module: module.map(str::to_owned), addresses })
        };
        assert_eq!(symbol_in(b"vfs_read+0x10/0x340\0rest", 0x1010), symbol("vfs_read", None, 0x1000..0x1340));
        assert_eq!(symbol_in(b"a+0xb+0x0/0x1 [ext4]\0", 7), symbol("a+0xb", Some("[ext4]"), 7..8));
        for (name, module) in [
            ("bpf_prog_6deef7357e7b4530_sd_fw_egress", Some("[bpf]")),
            ("bpf_prog_6deef7357e7b4530", Some("[bpf]")),
            ("bpf_trampoline_6442536467", Some("[bpf]")),
            ("bpf_prog_alloc_no_stats", None),
            ("bpf_prog_offload_info_fill_ns", None),
            ("bpf_trampoline_enter", None),
        ] {
            assert_eq!(symbol_in(format!("{name}+0x0/0x1").as_bytes(), 7), symbol(name, module, 7..8));
        }
        for text in ["0xffffffff81000000", "", "name", "name+0x9/0x10", "name+0x1", "name+0x1/0xffffffffffffffff"] {
            assert_eq!(symbol_in(text.as_bytes(), 8), None, "{text}");
        }
    }

    /// The expected bytes are the kernel's own copy of the code that its compiler made of a BPF program.
    #[test]
    fn code_is_what_the_kernel_says_that_it_is() {
        let mut kernel = KernelNames::load().unwrap();
        let options = ProgInfoQueryOptions::default().include_jited_prog_insns(true).include_jited_ksyms(true);
        let own = Program::id_from_fd(kernel.skeleton.progs.name_addresses.as_fd()).unwrap();
        let program = ProgInfoIter::with_query_opts(options).find(|program| program.id == own).unwrap();
        let start = u64::try_from(program.jited_ksyms[0] as usize).unwrap();
        let symbol = kernel.symbols(&[start]).unwrap().remove(0).unwrap();
        assert!(symbol.name.starts_with("bpf_prog_") && symbol.name.ends_with("_name_addresses"), "{symbol:?}");
        assert_eq!(symbol.module.as_deref(), Some("[bpf]"));
        let expected = program.jited_prog_insns;
        assert!(expected.len() > 100, "this test needs a kernel that compiles BPF programs");
        assert_eq!(kernel.code(start..start + expected.len() as u64).unwrap(), Some(expected));
    }

    #[test]
    fn code_is_read_where_there_is_some() {
        let mut kernel = KernelNames::load().unwrap();
        let text = std::fs::read_to_string("/proc/kallsyms").unwrap();
        let start = text.lines().find_map(|line| line.strip_suffix(" T vfs_read")).unwrap();
        let start = u64::from_str_radix(start, 16).unwrap();
        let whole = kernel.code(start..start + 10_000).unwrap().unwrap();
        assert_eq!(whole.len(), 10_000);
        for range in [0..1, 4095..4097, 3..9_999] {
            let part = kernel.code(start + range.start..start + range.end).unwrap().unwrap();
            assert!(part == whole[range.start as usize..range.end as usize], "{range:?}");
        }
        assert_eq!(kernel.code(start..start).unwrap(), Some(Vec::new()));
        for nowhere in [0, 0x1000, 0xffff_8000_0000_0000] {
            assert_eq!(kernel.code(nowhere..nowhere + 8).unwrap(), None);
        }
    }
}
