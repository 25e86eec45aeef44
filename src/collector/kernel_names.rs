//! What addresses of the kernel are called, asked of the kernel itself: a program that prints them (`bpf/names.bpf.c`) is run for
//! a batch at a time. A name costs about a microsecond; to read all of `/proc/kallsyms` took 45 ms of CPU here.

use std::mem::MaybeUninit;

use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{MapCore, MapFlags, OpenObject, ProgramInput};

use super::error::CollectorError;
use super::sampler::{bpf_error, forget_complaint};

#[allow(unsafe_code, unreachable_pub, unused_qualifications, clippy::all, clippy::restriction)]
mod skeleton {
    include!(concat!(env!("OUT_DIR"), "/names.skel.rs"));
}

use skeleton::{NamesSkel, NamesSkelBuilder};

/// `struct kernel_names` of `bpf/record.h`: a count, addresses, and behind them names.
const BATCH: usize = 32;
const NAME_BYTES: usize = 576;
const NAMES: usize = 8 + 8 * BATCH;

/// The program, loaded.
pub struct KernelNames {
    skeleton: NamesSkel<'static>,
}

impl KernelNames {
    /// Loads the program.
    ///
    /// # Errors
    ///
    /// When the kernel does not take it: then names are to be had from `/proc/kallsyms`.
    pub fn load() -> Result<KernelNames, CollectorError> {
        forget_complaint();
        // As the sampler does: one pointer is left behind.
        let place: &'static mut MaybeUninit<OpenObject> = Box::leak(Box::new(MaybeUninit::uninit()));
        let open = NamesSkelBuilder::default().open(place).map_err(|error| bpf_error("open the program that names", &error))?;
        let skeleton = open.load().map_err(|error| bpf_error("load the program that names", &error))?;
        Ok(KernelNames { skeleton })
    }

    /// What the kernel prints of each address: `name` or `name [module]`; `None` where there is no symbol.
    ///
    /// # Errors
    ///
    /// When the program cannot be run.
    pub fn names(&mut self, addresses: &[u64]) -> Result<Vec<Option<String>>, CollectorError> {
        let mut names = Vec::with_capacity(addresses.len());
        for batch in addresses.chunks(BATCH) {
            let mut value = vec![0u8; NAMES + BATCH * NAME_BYTES];
            let count = u32::try_from(batch.len()).unwrap_or(0).to_ne_bytes();
            let asked = count.into_iter().chain([0; 4]).chain(batch.iter().flat_map(|address| address.to_ne_bytes()));
            value.iter_mut().zip(asked).for_each(|(slot, byte)| *slot = byte);
            let map = &self.skeleton.maps.batch;
            let zero = 0u32.to_ne_bytes();
            map.update(&zero, &value, MapFlags::ANY).map_err(|error| bpf_error("ask for names", &error))?;
            let ran = self.skeleton.progs.name_addresses.test_run(ProgramInput::default());
            ran.map_err(|error| bpf_error("run the program that names", &error))?;
            let value = map.lookup(&zero, MapFlags::ANY).map_err(|error| bpf_error("read names", &error))?.unwrap_or_default();
            let texts = value.get(NAMES..).unwrap_or_default().chunks(NAME_BYTES);
            names.extend(batch.iter().zip(texts).map(|(_, text)| name_in(text)));
        }
        names.resize(addresses.len(), None);
        Ok(names)
    }
}

/// The name in a text that ends with 0; an address in hexadecimal, as stands there without one, is none.
fn name_in(text: &[u8]) -> Option<String> {
    let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
    let text = String::from_utf8_lossy(text);
    (!text.is_empty() && !text.starts_with("0x")).then(|| text.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;
    use std::time::Instant;

    /// `/proc/kallsyms` says the same; where several names stand at one address, the kernel chooses one of them.
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
        // Some are no functions and say where the code ends; BPF programs of other tests come and go, and what calls them.
        let others = ["_etext", "_einittext", "[bpf]", "[__builtin__ftrace]", "[__builtin__kprobes]"];
        symbols.retain(|_, names| !names.iter().any(|name| others.iter().any(|other| name.ends_with(other))));
        let mut addresses: Vec<u64> = symbols.keys().copied().collect();
        addresses.sort_unstable();
        let asked: Vec<u64> = addresses.into_iter().step_by(7).collect();
        let mut kernel = KernelNames::load().unwrap();
        let began = Instant::now();
        let names = kernel.names(&asked).unwrap();
        println!("{} names in {:?}", names.len(), began.elapsed());
        assert!(names.len() > 5000);
        for (address, name) in asked.iter().zip(&names) {
            let name = name.clone().unwrap_or_else(|| panic!("{address:#x} has no name, and is {:?}", symbols[address]));
            assert!(symbols[address].contains(&name), "{address:#x}: {name}, not {:?}", symbols[address]);
        }
        assert_eq!(kernel.names(&[0, 0xffff_8000_0000_1000]).unwrap(), [None, None]);
    }
}
