//! Finds the running kernel's own debug information, and the running kernel's addresses in it.
//!
//! ```text
//! /sys/kernel/notes ── build id ──► vmlinux with the same build id, where distributions put it
//! /proc/kallsyms ──── `_stext` ──┐
//! vmlinux ─────────── `_stext` ──┴─► slide = the one − the other        address in vmlinux = address − slide
//! ```
//!
//! The kernel is loaded at another address at each boot (KASLR), as a whole: one slide serves all of `_stext` to `_etext`. A file of
//! another build is never taken: its names would look right and be wrong. The file's answer for an address is ignored if the kernel itself
//! has another name for the function there ([`same_function`]).
//!
//! Each module has a separate file: see [`modules`](super::modules).

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use crate::object::debug_files::{self, Places};
use crate::object::elf::{Image, TableKind};
use crate::object::headers::SYMBOL;
use crate::object::numbers::{u32_at, u64_at};
use crate::object::object_files::{Images, Placement};
use crate::object::reason::Reason;
use crate::profile::BuildId;

/// Most bytes of the kernel's notes, which take some hundred bytes.
pub(crate) const MAX_NOTES: u64 = 64 << 10;
/// Bytes of `/proc/kallsyms` that are searched for `_stext`: it is among the first lines of code, after some hundred lines of data.
const MAX_KALLSYMS: u64 = 4 << 20;
/// Most bytes of symbol names. Debian's 6.1 has 4 MB.
const MAX_STRINGS: u64 = 64 << 20;
/// Most symbols read. Debian's 6.1 has 130,000.
const MAX_SYMBOLS: u64 = 4_000_000;
/// Symbols read at once.
const CHUNK: u64 = 4096;
/// Page size in bytes. The kernel moves by whole pages.
const PAGE: u64 = 4096;

/// The root directory of the kernel's files: ours, except in tests.
#[derive(Clone, Debug)]
pub(crate) struct Root(pub(crate) PathBuf);

impl Default for Root {
    fn default() -> Self {
        Root(PathBuf::from("/"))
    }
}

/// Opens the running kernel's vmlinux. [`Reason::NotFound`] if no vmlinux with debug information is installed.
pub(crate) fn open(root: &Root) -> Result<Images, Reason> {
    let id = build_id(&root.0).ok_or(Reason::NotFound)?;
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let places = Places::under(root.0.clone());
    let image = candidates(id, &release).iter().find_map(|path| places.images(path).find(|image| is_wanted(image, id)));
    let image = image.ok_or(Reason::NotFound)?;
    let runs_at = running_symbol(&root.0, "_stext")?;
    let [start, end] = symbols_called(&image, ["_stext", "_etext"])?;
    let text = start.ok_or(Reason::NoSymbols)?..end.ok_or(Reason::NoSymbols)?;
    let slide = runs_at.wrapping_sub(text.start);
    if slide % PAGE != 0 || text.is_empty() {
        return Err(Reason::Malformed);
    }
    let alternative = debug_files::alternative(&image, &places);
    Ok(Images::of_kernel(image, alternative, places, Placement { text: vec![text], slide }))
}

/// Checks whether inlined functions and lines of the running kernel can be found.
///
/// # Errors
///
/// [`Reason::NotFound`] if no vmlinux of this build with debug information is installed; else why the installed one is of no use.
pub fn kernel_debug_information() -> Result<(), Reason> {
    open(&Root::default()).map(|_| ())
}

/// Returns the places that distributions and builders use for vmlinux. Debian and Ubuntu: `boot`, and by build id. Fedora and SUSE:
/// `lib/modules`. Last comes the tree that the kernel was built in.
fn candidates(id: BuildId, release: &str) -> Vec<PathBuf> {
    let named = [
        format!("/usr/lib/debug/boot/vmlinux-{release}"),
        format!("/usr/lib/debug/lib/modules/{release}/vmlinux"),
        format!("/usr/lib/debug/boot/vmlinux-{release}.debug"),
        format!("/usr/lib/debug/lib/modules/{release}/vmlinux.debug"),
        format!("/lib/modules/{release}/build/vmlinux"),
        format!("/boot/vmlinux-{release}"),
    ];
    by_build_id(id).into_iter().chain(named.map(PathBuf::from)).collect()
}

/// Returns where distributions put a debug file of this build.
pub(crate) fn by_build_id(id: BuildId) -> Option<PathBuf> {
    let digits = id.to_string();
    let (first, rest) = digits.split_at_checked(2)?;
    Some(PathBuf::from(format!("/usr/lib/debug/.build-id/{first}/{rest}.debug")))
}

pub(crate) fn is_wanted(image: &Image, id: BuildId) -> bool {
    let has_dwarf = || image.sections_named(|name| matches!(name, ".debug_info" | ".zdebug_info"));
    image.build_id() == Some(id) && has_dwarf().is_ok_and(|sections| !sections.is_empty())
}

/// Returns the build id of the running kernel.
fn build_id(root: &Path) -> Option<BuildId> {
    let mut notes = Vec::new();
    File::open(root.join("sys/kernel/notes")).ok()?.take(MAX_NOTES).read_to_end(&mut notes).ok()?;
    BuildId::in_notes(&notes, 4)
}

/// Whether the kernel that runs here has this build id, if it is given, and this symbol at this address.
pub fn runs_here(build_id_of: Option<BuildId>, symbol: &str, address: u64) -> bool {
    let root = Path::new("/");
    let is_same_build = build_id_of.is_none_or(|wanted| build_id(root) == Some(wanted));
    is_same_build && running_symbol(root, symbol).is_ok_and(|runs_at| runs_at == address)
}

/// Returns the address of a function that begins the running kernel's code: `_text`, `_stext`.
fn running_symbol(root: &Path, symbol: &str) -> Result<u64, Reason> {
    let file = File::open(root.join("proc/kallsyms")).map_err(|error| Reason::KernelSymbolsUnreadable(error.kind()))?;
    let mut lines = BufReader::with_capacity(64 << 10, file.take(MAX_KALLSYMS));
    let mut line = Vec::new();
    while lines.read_until(b'\n', &mut line)? > 0 {
        let text = std::str::from_utf8(&line).unwrap_or_default().trim_end();
        if let Some(address) = text.strip_suffix(symbol).and_then(|rest| rest.strip_suffix(" T ")) {
            let address = u64::from_str_radix(address, 16).map_err(|_| Reason::Malformed)?;
            return if address == 0 { Err(Reason::KernelAddressesHidden) } else { Ok(address) };
        }
        line.clear();
    }
    Err(Reason::NoSymbols)
}

/// Returns the addresses of the symbols with these names.
fn symbols_called<const N: usize>(image: &Image, names: [&str; N]) -> Result<[Option<u64>; N], Reason> {
    let table = image.table(TableKind::Full).ok_or(Reason::NoSymbols)?;
    let strings = image.source.read(table.strings, table.strings_size, MAX_STRINGS)?;
    let is_called = |place: u32, name: &str| {
        let rest = strings.get(place as usize..).and_then(|rest| rest.strip_prefix(name.as_bytes()));
        rest.is_some_and(|rest| rest.first() == Some(&0))
    };
    let mut found = [None; N];
    let count = table.count.min(MAX_SYMBOLS);
    for first in (0..count).step_by(CHUNK as usize) {
        let size = (count - first).min(CHUNK) * SYMBOL as u64;
        let offset = table.offset.checked_add(first * SYMBOL as u64).ok_or(Reason::Malformed)?;
        for symbol in image.source.read(offset, size, CHUNK * SYMBOL as u64)?.chunks_exact(SYMBOL) {
            let (Some(place), Some(address)) = (u32_at(symbol, 0), u64_at(symbol, 8)) else { continue };
            for (found, name) in found.iter_mut().zip(names) {
                if found.is_none() && is_called(place, name) {
                    *found = Some(address);
                }
            }
        }
        if found.iter().all(Option::is_some) {
            break;
        }
    }
    Ok(found)
}

/// Whether two names mean the same function: `symbol` from the kernel, `called` from debug information. Suffixes that the compiler adds for
/// a copy or a part of a function (`.isra.0`, `.constprop.0`, `.cold`) are ignored.
pub(crate) fn same_function(symbol: &str, called: &str) -> bool {
    let bare = |name: &str| name.find('.').filter(|at| *at > 0).unwrap_or(name.len());
    symbol.get(..bare(symbol)) == called.get(..bare(called))
}

#[cfg(test)]
pub(crate) mod tests {
    use crate::profile::KernelAddress;
    use std::process::Command;
    use std::sync::Arc;

    use std::ops::Range;

    use super::*;
    use crate::profile::AskKernel;
    use crate::profile::{Frame, FrameId, FrameKind, FrameWeight, KernelSymbol, LabelId, NameRequest, ProcessAddress, Tgid};
    use crate::symbolize::listing::Question;
    use crate::symbolize::service::Service;

    const SOURCE: &str = "\
static inline __attribute__((always_inline)) int check(volatile int *x) { *x = *x * 3; return *x; }
int vfs_read(volatile int *x) {
  int sum = 0;
  for (int i = 0; i < 9; i++)
    sum += check(x + i);
  return sum;
}
int vfs_write(volatile int *x) { return check(x) + 1; }
";
    const TEXT: u64 = 0xffff_ffff_8100_0000;
    /// The slide of the pretended kernel.
    const SHIFT: u64 = 0x1240_0000;

    /// A root directory with a vmlinux and the files in which this kernel describes itself.
    struct Pretended {
        root: tempfile::TempDir,
        vmlinux: PathBuf,
    }

    /// Parses llvm-symbolizer's answer for each address: functions and their lines, innermost first.
    pub(crate) fn chains_of_llvm(said: &str) -> Vec<Vec<(&str, u32)>> {
        let answers = said.split("\n\n").map(str::trim).filter(|answer| !answer.is_empty());
        answers
            .map(|answer| {
                let pairs = answer.lines().zip(answer.lines().skip(1)).step_by(2);
                pairs.map(|(name, place)| (name, place.rsplit(':').nth(1).unwrap().parse().unwrap())).collect()
            })
            .collect()
    }

    pub(crate) fn run(command: &mut Command) -> String {
        let output = command.output().unwrap();
        assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    impl Pretended {
        fn new() -> Pretended {
            let root = tempfile::tempdir().unwrap();
            // The user who started the kernel is unknown: its source is shown only if everyone may read it.
            std::fs::set_permissions(root.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
            let release = rustix::system::uname().release().to_str().unwrap().to_owned();
            let boot = root.path().join("usr/lib/debug/boot");
            for directory in [&boot, &root.path().join("sys/kernel"), &root.path().join("proc")] {
                std::fs::create_dir_all(directory).unwrap();
            }
            let vmlinux = boot.join(format!("vmlinux-{release}"));
            let source = root.path().join("read_write.c");
            std::fs::write(&source, SOURCE).unwrap();
            let model: &[&str] = if cfg!(target_arch = "x86_64") { &["-mcmodel=kernel"] } else { &[] };
            let places = [
                format!("-Wl,-Ttext={TEXT:#x},--defsym=_stext={TEXT:#x},--defsym=_etext={:#x}", TEXT + 0x1000),
                "-Wl,--build-id,-e,0".to_owned(),
            ];
            let how = ["-g", "-O1", "-nostdlib", "-static", "-no-pie", "-fno-pie"];
            run(Command::new("gcc").args(how).args(model).args(places).arg("-o").arg(&vmlinux).arg(&source));
            let pretended = Pretended { root, vmlinux };
            pretended.write_notes();
            pretended.write_stext(TEXT + SHIFT);
            pretended
        }

        /// Writes the build id, in a note.
        fn write_notes(&self) {
            let id = self.build_id();
            let digits: Vec<u8> = (0..id.len()).step_by(2).map(|at| u8::from_str_radix(&id[at..at + 2], 16).unwrap()).collect();
            let numbers = [4, digits.len() as u32, 3].map(u32::to_le_bytes).concat();
            std::fs::write(self.root.path().join("sys/kernel/notes"), [&numbers, &b"GNU\0"[..], &digits].concat()).unwrap();
        }

        fn build_id(&self) -> String {
            let source = crate::object::bytes::Source::file(File::open(&self.vmlinux).unwrap()).unwrap();
            Image::read(source).unwrap().build_id().unwrap().to_string()
        }

        fn write_stext(&self, address: u64) {
            let text = format!("0000000000000000 A fixed_percpu_data\n{address:016x} T _stext\n{address:016x} T _text\n");
            std::fs::write(self.root.path().join("proc/kallsyms"), text).unwrap();
        }

        /// Returns the address range of a function in vmlinux.
        fn function(&self, name: &str) -> Range<u64> {
            let symbols = run(Command::new("nm").arg("-S").arg(&self.vmlinux));
            let line = symbols.lines().find(|line| line.ends_with(&format!(" T {name}"))).unwrap();
            let mut numbers = line.split(' ').map_while(|number| u64::from_str_radix(number, 16).ok());
            let (start, size) = (numbers.next().unwrap(), numbers.next().unwrap());
            start..start + size
        }

        /// Returns the names and the line of each instruction of `vfs_read`. The pretended kernel names them all `called`.
        fn names(&self, called: &'static str) -> Vec<(Vec<String>, Option<u32>)> {
            let addresses: Vec<u64> = self.function("vfs_read").collect();
            self.names_at(&addresses, move |_| called.to_owned())
        }

        /// Returns a symbolizer that has named these addresses of vmlinux, and their frames.
        fn named(
            &self,
            addresses: &[u64],
            called: impl Fn(u64) -> String + Send + 'static,
        ) -> (tokio::runtime::Runtime, Arc<Service>, Vec<FrameId>) {
            let moved: Vec<u64> = addresses.iter().map(|address| address + SHIFT).collect();
            named_under(self.root.path(), &moved, move |address| called(address.wrapping_sub(SHIFT)))
        }

        /// Returns the names and the line of any addresses of vmlinux. The pretended kernel names them by `called`.
        fn names_at(
            &self,
            addresses: &[u64],
            called: impl Fn(u64) -> String + Send + 'static,
        ) -> Vec<(Vec<String>, Option<u32>)> {
            let (runtime, service, frames) = self.named(addresses, called);
            about(&runtime, &service, &frames)
        }
    }

    /// A kernel whose names come from a function, and whose code cannot be read.
    struct Called<F>(F);

    impl<F: Fn(u64) -> String + Send> AskKernel for Called<F> {
        fn symbols(&mut self, addresses: &[u64]) -> Option<Vec<Option<KernelSymbol>>> {
            let symbol = |address: &u64| {
                let called = (self.0)(*address);
                let (name, module) = called.split_once(' ').map_or((&*called, None), |(name, module)| (name, Some(module)));
                let module = module.map(str::to_owned);
                Some(KernelSymbol { name: name.to_owned(), module, addresses: *address..*address + 1 })
            };
            Some(addresses.iter().map(symbol).collect())
        }

        fn code(&mut self, _: Range<u64>) -> Option<Vec<u8>> {
            None
        }
    }

    /// Returns a symbolizer that has named these addresses of a kernel with its files under this root.
    pub(in crate::symbolize) fn named_under(
        root: &Path,
        addresses: &[u64],
        called: impl Fn(u64) -> String + Send + 'static,
    ) -> (tokio::runtime::Runtime, Arc<Service>, Vec<FrameId>) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let mut service = Service::new(Arc::default(), runtime.handle().clone());
        service.objects.root = Root(root.to_owned());
        let service = Arc::new(service);
        service.kernel.ask_by(Box::new(Called(called)));
        let names = &service.names;
        let frame = |at: &u64| names.intern_frame(Frame::Kernel { address: KernelAddress(*at), is_return: false }).0;
        let frames: Vec<FrameId> = addresses.iter().map(frame).collect();
        let nowhere = ProcessAddress(0)..ProcessAddress(0);
        let request = |frame: &FrameId| NameRequest {
            frame: *frame,
            tgid: Tgid(1),
            user: crate::profile::UserId(0),
            files: crate::object::open::own_files(),
            mapping: nowhere.clone(),
        };
        service.request(frames.iter().map(request).collect());
        let begin = std::time::Instant::now();
        while service.pending() > 0 {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        println!("{} addresses in {:?}; held: {:?} bytes, files", frames.len(), begin.elapsed(), service.objects.usage());
        (runtime, service, frames)
    }

    /// Returns the names and the line of each frame. All frames must be named.
    pub(in crate::symbolize) fn about(
        runtime: &tokio::runtime::Runtime,
        service: &Arc<Service>,
        frames: &[FrameId],
    ) -> Vec<(Vec<String>, Option<u32>)> {
        let names = &service.names;
        assert!(service.objects.problems(names).is_empty(), "all have names: {:?}", service.objects.problems(names));
        let counts = service.objects.counts();
        assert_eq!((counts.named, counts.unnamed), (frames.len() as u64, 0), "each counts once");
        let locator = crate::symbolize::service::locate::Locator::default();
        let about = |frame: &FrameId| {
            let mut chain = Vec::new();
            names.labels_of(*frame, |label| {
                let label = names.labels.get(label).unwrap();
                assert_eq!(label.kind == FrameKind::Kernel, chain.is_empty(), "the function itself is the kernel's");
                chain.push(label.name.to_string());
            });
            let place = runtime.block_on(locator.ask(service, *frame)).unwrap();
            (chain, place.map(|place| place.line))
        };
        frames.iter().map(about).collect()
    }

    #[test]
    fn functions_of_a_kernel_that_was_moved_have_their_inlined_calls_and_lines() {
        let names = Pretended::new().names("vfs_read");
        assert!(names.iter().all(|(chain, line)| chain[0] == "vfs_read" && line.is_some_and(|line| line <= 7)), "{names:?}");
        let inlined: Vec<_> = names.iter().filter(|(chain, _)| chain.get(1).is_some_and(|name| name == "check")).collect();
        assert!(!inlined.is_empty() && inlined.len() < names.len(), "{names:?}");
        assert!(inlined.iter().all(|(chain, line)| chain.len() == 2 && *line == Some(1)), "{names:?}");
        let part = Pretended::new().names("vfs_read.isra.0");
        assert_eq!(part.iter().map(|(chain, _)| chain.len()).collect::<Vec<_>>(), {
            names.iter().map(|(chain, _)| chain.len()).collect::<Vec<_>>()
        });
    }

    #[test]
    fn the_source_and_the_instructions_of_a_function_are_listed() {
        let pretended = Pretended::new();
        let range = pretended.function("vfs_read");
        let addresses: Vec<u64> = range.clone().collect();
        let (runtime, service, frames) = pretended.named(&addresses, |_| "vfs_read".to_owned());
        let weights = frames.iter().map(|frame| FrameWeight { frame: *frame, own: 1, total: 1 }).collect();
        let label = service.names.labels.intern("vfs_read", "kernel", FrameKind::Kernel);
        let lister = crate::symbolize::listing::Lister::default();
        let listing = runtime.block_on(lister.ask(&service, Question { label, frames: weights, by: None })).unwrap().unwrap();
        let source = listing.source.unwrap();
        assert_eq!((source.rows.len(), &*source.rows[1].text), (8, "int vfs_read(volatile int *x) {"));
        let code = listing.code.unwrap();
        assert_eq!((code.rows[0].place, code.row_of.len()), (range.start, addresses.len()));
        assert!(code.note.contains("overwritten"), "{}", code.note);
        // Without vmlinux; and for a function of a module.
        std::fs::remove_file(&pretended.vmlinux).unwrap();
        let away = Pretended::new();
        for (pretended, addresses, why) in
            [(&pretended, range.start..range.start + 1, "not installed"), (&away, 0..1, "this function's place")]
        {
            let (runtime, service, frames) = pretended.named(&addresses.collect::<Vec<_>>(), |_| "vfs_read".to_owned());
            let weights = vec![FrameWeight { frame: frames[0], own: 1, total: 1 }];
            let said = runtime
                .block_on(lister.ask(&service, Question { label: LabelId(0), frames: weights, by: None }))
                .unwrap()
                .unwrap_err();
            assert!(said.contains(why), "{said}");
        }
    }

    #[test]
    fn where_the_kernel_calls_it_something_else_nothing_is_added() {
        for (called, shown) in [("vfs_write", "vfs_write"), ("vfs_read [ext4]", "vfs_read"), ("vfs_reading", "vfs_reading")] {
            let names = Pretended::new().names(called);
            assert!(names.iter().all(|(chain, _)| chain == &[shown]), "{called}: {names:?}");
        }
        let names = Pretended::new().names("vfs_write");
        assert!(names.iter().all(|(_, line)| line.is_none()), "{names:?}");
    }

    #[test]
    fn another_builds_file_a_hidden_place_and_one_that_makes_no_sense_are_left_alone() {
        let plain = |pretended: &Pretended| {
            let names = pretended.names("vfs_read");
            assert!(names.iter().all(|(chain, line)| chain == &["vfs_read"] && line.is_none()), "{names:?}");
        };
        let pretended = Pretended::new();
        let notes = pretended.root.path().join("sys/kernel/notes");
        let own = std::fs::read(&notes).unwrap();
        let mut other = own.clone();
        *other.last_mut().unwrap() ^= 1;
        std::fs::write(&notes, &other).unwrap();
        plain(&pretended);
        std::fs::write(&notes, &own).unwrap();
        for address in [0, TEXT + SHIFT + 16] {
            pretended.write_stext(address);
            plain(&pretended);
        }
        std::fs::remove_file(pretended.root.path().join("proc/kallsyms")).unwrap();
        plain(&pretended);
        pretended.write_stext(TEXT + SHIFT);
        assert!(pretended.names("vfs_read").iter().any(|(chain, _)| chain.len() == 2), "and only because of that");
        run(Command::new("objcopy").arg("--strip-debug").arg(&pretended.vmlinux));
        plain(&pretended);
    }

    #[test]
    fn it_is_found_by_its_build_id_too() {
        let pretended = Pretended::new();
        let id = pretended.build_id();
        let directory = pretended.root.path().join("usr/lib/debug/.build-id").join(&id[..2]);
        std::fs::create_dir_all(&directory).unwrap();
        let moved = directory.join(format!("{}.debug", &id[2..]));
        std::fs::rename(&pretended.vmlinux, &moved).unwrap();
        let found = Pretended { vmlinux: moved, ..pretended };
        assert!(found.names("vfs_read").iter().any(|(chain, _)| chain.len() == 2));
    }

    /// `VMLINUX=/usr/lib/debug/boot/vmlinux-… cargo test --lib llvm_symbolizer -- --nocapture` tests with the vmlinux of any kernel.
    #[test]
    fn inlined_calls_and_lines_are_those_of_llvm_symbolizer() {
        let pretended = Pretended::new();
        let symbols = |file: &Path| -> Vec<(u64, String)> {
            let listed = run(Command::new("nm").arg("-n").arg(file));
            let symbol = |line: &str| {
                let fields: Vec<&str> = line.split(' ').collect();
                let is_code = matches!(fields.get(1), Some(&("t" | "T" | "w" | "W")));
                is_code.then(|| Some((u64::from_str_radix(fields[0], 16).ok()?, fields[2].to_owned())))?
            };
            listed.lines().filter_map(symbol).collect()
        };
        let (mut addresses, mut functions) = (pretended.function("vfs_read").collect::<Vec<u64>>(), symbols(&pretended.vmlinux));
        addresses.extend(pretended.function("vfs_write"));
        if let Some(real) = std::env::var_os("VMLINUX") {
            std::fs::copy(&real, &pretended.vmlinux).unwrap();
            pretended.write_notes();
            functions = symbols(&pretended.vmlinux);
            let at = |name: &str| functions.iter().find(|(_, known)| known == name).unwrap().0;
            let (start, end) = (at("_stext"), at("_etext"));
            pretended.write_stext(start + SHIFT);
            addresses = (start..end).step_by(usize::try_from((end - start) / 20_000).unwrap() | 1).collect();
        }
        let mut llvm = Command::new("llvm-symbolizer");
        llvm.args(["--functions=linkage", "--inlines", "--obj"]).arg(&pretended.vmlinux);
        let theirs = run(llvm.args(addresses.iter().map(|address| format!("{address:#x}"))));
        let theirs = chains_of_llvm(&theirs);
        assert_eq!(theirs.len(), addresses.len());
        let by_kernel = move |at: u64| functions[functions.partition_point(|(start, _)| *start <= at) - 1].1.clone();
        let known = by_kernel.clone();
        let ours = pretended.names_at(&addresses, by_kernel);
        let (mut same, mut inlined, mut apart, mut wrong) = (0, 0, 0, 0);
        for ((address, (chain, line)), theirs) in addresses.iter().zip(&ours).zip(&theirs) {
            let called: Vec<&str> = theirs.iter().rev().map(|(name, _)| *name).collect();
            let is_one = chain[0] == known(*address) && chain[1..] == called[1..];
            if is_one && line.unwrap_or(0) == theirs[0].1 {
                same += 1;
                inlined += usize::from(chain.len() > 1);
            } else if chain.len() == 1 && line.is_none() && theirs.len() == 1 {
                // The function has another name, which its debug information does not have.
                apart += 1;
                println!("{address:#x}: {chain:?} apart from {theirs:?}");
            } else {
                wrong += 1;
                println!("{address:#x}: {chain:?}, line {line:?}, and theirs {theirs:?}");
            }
        }
        println!("{same} the same, {inlined} of them inlined; {apart} with another name, and so left alone; {wrong} wrong");
        assert_eq!(wrong, 0);
        assert!(inlined > 0 && apart * 1000 <= ours.len(), "{apart} left alone");
    }

    #[test]
    fn parts_and_copies_of_a_function_are_told_from_others() {
        for (symbol, called) in [("a", "a"), ("a.isra.0", "a"), ("a.cold", "a"), ("a.part.0.constprop.1", "a"), ("a", "a.llvm.7")]
        {
            assert!(same_function(symbol, called), "{symbol}, {called}");
        }
        for (symbol, called) in [("a", "b"), ("ab", "a"), ("a", "ab"), (".a", ".b"), ("", "a")] {
            assert!(!same_function(symbol, called), "{symbol}, {called}");
        }
    }
}
