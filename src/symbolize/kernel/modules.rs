//! Finds debug information of the kernel's modules, and the addresses of loaded modules in it.
//!
//! ```text
//! /sys/module/NAME/notes/.note.gnu.build-id ── build id ──► NAME.ko with debug information, where distributions put it
//! /sys/module/NAME/sections/.text, … ── addresses ──┐
//! NAME.ko ── relocations ───────────────────────────┴─► its DWARF as if it had been linked to where it runs
//! ```
//!
//! A module's file is not linked: each section begins at 0, and the kernel places each where there is room. So its debug information is
//! relocated in the same way ([`relocate`](crate::object::relocate)). It then has the running addresses. As with the kernel itself
//! ([`vmlinux`](super::vmlinux)), a file of another build is never taken. Its answer for an address is ignored if the kernel has another
//! name for the function there.
//!
//! Each loaded module is a separate object, identified by its build id and its address. Its frames are frames of the kernel. Sections that
//! the kernel frees after loading (`.init.text`) are left out: their memory may hold something else now.

use crate::object::elf::Placed;
use crate::symbolize::Names;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use dashmap::DashMap;
use rustc_hash::FxBuildHasher;

use super::vmlinux::{MAX_NOTES, Root, by_build_id, is_wanted};
use crate::object::debug_files::{self, Places};
use crate::object::object_files::Images;
use crate::object::object_files::Placement;
use crate::object::reason::Reason;
use crate::profile::{BuildId, Object, ObjectId, ObjectKind};

/// Most bytes read of `modules.dep`. Debian's 6.1 has 600 kB.
const MAX_LIST: u64 = 16 << 20;
/// Most bytes of a number as the kernel prints it.
const MAX_ADDRESS: u64 = 64;
/// Most sections of a module that are examined: the address of each is in a separate file.
const MAX_LOADED: usize = 4096;
/// Longest name of a module. The kernel's names are shorter than 64.
const MAX_NAME: usize = 64;

/// Modules that were requested, by the kernel's name for them; `None` for modules that are not loaded.
#[derive(Default)]
pub(crate) struct Modules(DashMap<Box<str>, Option<ObjectId>, FxBuildHasher>);

impl Modules {
    /// Returns the object of a loaded module.
    pub(crate) fn object_of(&self, name: &str, root: &Root, names: &Names) -> Option<ObjectId> {
        if let Some(known) = self.0.get(name) {
            return *known;
        }
        let found = loaded(root, name).map(|object| names.objects.intern(object));
        self.0.insert(name.into(), found);
        found
    }

    /// Forgets all modules, because one was loaded or unloaded.
    pub(crate) fn changed(&self) {
        self.0.clear();
    }
}

/// Returns the module in an object's path or a label: `ext4` of `[ext4]`.
pub(crate) fn module_in(path: &str) -> Option<&str> {
    path.strip_prefix('[')?.strip_suffix(']')
}

/// Returns the object of the loaded module with this name.
fn loaded(root: &Root, name: &str) -> Option<Object> {
    let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    if name.is_empty() || name.len() > MAX_NAME || !name.as_bytes().iter().all(is_name) {
        return None;
    }
    let place = root.0.join("sys/module").join(name);
    let mut notes = Vec::new();
    File::open(place.join("notes/.note.gnu.build-id")).ok()?.take(MAX_NOTES).read_to_end(&mut notes).ok()?;
    let build_id = Some(BuildId::in_notes(&notes, 4)?);
    // The kernel shows 0 to users who may not read addresses.
    let text = section_address(&place.join("sections"), ".text").unwrap_or(0);
    Some(Object {
        kind: ObjectKind::Kernel,
        path: format!("[{name}]").into(),
        build_id,
        file: Some((text, 0)),
        ..Object::default()
    })
}

/// Opens the debug information of a [`loaded`] module. [`Reason::NotFound`] if none is installed, or if the module is gone.
pub(crate) fn open(root: &Root, module: &Object) -> Result<Images, Reason> {
    let name = module_in(&module.path).ok_or(Reason::NotFound)?;
    if loaded(root, name).as_ref() != Some(module) {
        return Err(Reason::NotFound);
    }
    let id = module.build_id.ok_or(Reason::NotFound)?;
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let places = Places::under(root.0.clone());
    let by_path = file_of(&root.0, &release, name).map(|file| candidates(&release, &file)).unwrap_or_default();
    let mut paths = by_build_id(id).into_iter().chain(by_path);
    let image = paths.find_map(|path| places.images(&path).find(|image| is_wanted(image, id)));
    let mut image = image.ok_or(Reason::NotFound)?;
    let sections = root.0.join("sys/module").join(name).join("sections");
    let (mut placed, mut text) = (Placed::default(), Vec::new());
    let in_memory = image.loaded_sections()?;
    for section in in_memory.iter().take(MAX_LOADED) {
        let is_one = in_memory.iter().filter(|other| other.name == section.name).count() == 1;
        let address = section_address(&sections, &section.name).filter(|_| is_one && !is_let_go_of(&section.name));
        let Some(address) = address else { continue };
        placed.0.resize(placed.0.len().max(section.index + 1), None);
        placed.0.get_mut(section.index).into_iter().for_each(|place| *place = Some(address));
        if let Some(end) = address.checked_add(section.size).filter(|end| section.is_code && *end > address) {
            text.push(address..end);
        }
    }
    if text.is_empty() {
        return Err(Reason::KernelAddressesHidden);
    }
    image.placed = Some(placed);
    let alternative = debug_files::alternative(&image, &places);
    Ok(Images::of_kernel(image, alternative, places, Placement { text, slide: 0 }))
}

fn is_let_go_of(section: &str) -> bool {
    section.starts_with(".init")
}

/// Returns the address of a section, if the kernel shows it.
fn section_address(sections: &Path, name: &str) -> Option<u64> {
    if name.contains('/') || matches!(name, "" | "." | "..") {
        return None;
    }
    let mut text = String::new();
    File::open(sections.join(name)).ok()?.take(MAX_ADDRESS).read_to_string(&mut text).ok()?;
    u64::from_str_radix(text.trim().strip_prefix("0x")?, 16).ok().filter(|address| *address != 0)
}

/// Returns the module's file below `/lib/modules/RELEASE`, as depmod has listed it. The kernel replaces each `-` of its name by `_`.
fn file_of(root: &Path, release: &str, name: &str) -> Option<String> {
    let list = File::open(root.join("lib/modules").join(release).join("modules.dep")).ok()?;
    let mut lines = BufReader::with_capacity(64 << 10, list.take(MAX_LIST));
    let mut line = Vec::new();
    while lines.read_until(b'\n', &mut line).ok()? > 0 {
        let path = std::str::from_utf8(&line).ok().and_then(|line| Some(line.split_once(':')?.0));
        let path = path.and_then(|path| Some(path.get(..path.rfind(".ko")? + 3)?.to_owned()));
        let is_its = |path: &String| {
            let file = path.rsplit('/').next().unwrap_or(path).strip_suffix(".ko");
            file.is_some_and(|file| file.replace('-', "_") == name)
        };
        if let Some(path) = path.filter(is_its) {
            return Some(path);
        }
        line.clear();
    }
    None
}

/// Returns where a file with debug information may be. Debian and Ubuntu: the whole module. Fedora and SUSE: its debug information. Last
/// comes the module itself, as on a machine where the kernel was built.
fn candidates(release: &str, file: &str) -> Vec<PathBuf> {
    let debug = format!("/usr/lib/debug/lib/modules/{release}/{file}");
    let merged = format!("/usr/lib/debug/usr/lib/modules/{release}/{file}");
    let own = format!("/lib/modules/{release}/{file}");
    [format!("{debug}.debug"), format!("{merged}.debug"), debug, merged, own].map(PathBuf::from).into()
}

#[cfg(test)]
mod tests {
    use crate::profile::FrameId;
    use crate::profile::KernelAddress;
    use std::process::Command;

    use super::*;
    use crate::object::bytes::Source;
    use crate::object::elf::Image;
    use crate::profile::{FrameKind, FrameWeight};
    use crate::symbolize::kernel::vmlinux::tests::{about, chains_of_llvm, named_under, run};
    use crate::symbolize::listing::Question;

    const SOURCE: &str = "\
int printk(const char *text, int number);
static inline __attribute__((always_inline)) int check(volatile int *x) { *x = *x * 3; return *x; }
int thing_read(volatile int *x) {
  int sum = 0;
  for (int i = 0; i < 9; i++)
    sum += check(x + i);
  return printk(\"%d\\n\", sum);
}
__attribute__((section(\".text.unlikely\"))) int thing_write(volatile int *x) { return check(x) + 1; }
__attribute__((section(\".init.text\"))) int thing_init(volatile int *x) { return check(x) + 2; }
__attribute__((section(\".exit.text\"))) int thing_exit(volatile int *x) { return check(x) + 3; }
";
    /// Section addresses in the pretended kernel.
    const PLACES: [(&str, u64); 4] = [
        (".text", 0xffff_ffff_c010_0000),
        (".text.unlikely", 0xffff_ffff_c090_3010),
        (".init.text", 0xffff_ffff_c0a0_0000),
        (".exit.text", 0xffff_ffff_c0b0_4400),
    ];

    /// A root directory with a module that is loaded.
    struct Loaded {
        root: tempfile::TempDir,
        /// Its file with debug information.
        file: PathBuf,
        places: Vec<(String, u64)>,
    }

    type Names = Vec<(Vec<String>, Option<u32>)>;

    impl Loaded {
        /// Builds a module with these compiler `options`. Its file gets the path `place` below the root.
        fn new(options: &[&str], place: &str) -> Loaded {
            let root = tempfile::tempdir().unwrap();
            // The user who started the kernel is unknown: its source is shown only if everyone may read it.
            std::fs::set_permissions(root.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
            let release = rustix::system::uname().release().to_str().unwrap().to_owned();
            let file = root.path().join(place.replace("RELEASE", &release));
            let (source, object) = (root.path().join("thing.c"), root.path().join("thing.o"));
            std::fs::write(&source, SOURCE).unwrap();
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            let model: &[&str] = if cfg!(target_arch = "x86_64") { &["-mcmodel=kernel"] } else { &[] };
            let how = ["-g", "-O1", "-c", "-fno-pie", "-ffreestanding", "-fno-asynchronous-unwind-tables"];
            run(Command::new("gcc").args(how).args(model).args(options).arg("-o").arg(&object).arg(&source));
            run(Command::new("ld").args(["-r", "--build-id", "-o"]).arg(&file).arg(&object));
            let modules = root.path().join("lib/modules").join(release);
            std::fs::create_dir_all(&modules).unwrap();
            std::fs::write(modules.join("modules.dep"), "kernel/other.ko.xz:\nkernel/a/my-thing.ko.zst: kernel/other.ko.xz\n")
                .unwrap();
            Loaded::of(root, file, PLACES.map(|(name, address)| (name.to_owned(), address)).to_vec())
        }

        /// Takes any file, with its sections at these addresses.
        fn of(root: tempfile::TempDir, file: PathBuf, places: Vec<(String, u64)>) -> Loaded {
            let module = root.path().join("sys/module/my_thing");
            std::fs::create_dir_all(module.join("sections")).unwrap();
            std::fs::create_dir_all(module.join("notes")).unwrap();
            for (name, address) in &places {
                std::fs::write(module.join("sections").join(name), format!("{address:#018x}\n")).unwrap();
            }
            let loaded = Loaded { root, file, places };
            std::fs::write(
                loaded.note(),
                run_bytes(Command::new("objcopy").args(["-O", "binary", "--only-section=.note.gnu.build-id"]), &loaded.file),
            )
            .unwrap();
            loaded
        }

        fn note(&self) -> PathBuf {
            self.root.path().join("sys/module/my_thing/notes/.note.gnu.build-id")
        }

        /// Returns the file as `ld` links it to its running addresses.
        fn linked(&self) -> PathBuf {
            let (linked, script) = (self.root.path().join("linked"), self.root.path().join("places.ld"));
            let place = |(name, address): &(String, u64)| format!("{name} {address:#x} : {{ *({name}) }}\n");
            // ld's default script would put `.text.unlikely` and other sections into `.text`.
            std::fs::write(&script, format!("SECTIONS {{\n{}}}\n", self.places.iter().map(place).collect::<String>())).unwrap();
            let how = ["--unresolved-symbols=ignore-all", "-e", "0", "--noinhibit-exec", "-T"];
            // ld reports that calls reach too far, but still links.
            let said = Command::new("ld").args(how).arg(&script).arg("-o").arg(&linked).arg(&self.file).output().unwrap();
            assert!(linked.exists(), "{}", String::from_utf8_lossy(&said.stderr));
            linked
        }

        /// Returns the running addresses of a function.
        fn function(&self, name: &str) -> Vec<u64> {
            let symbols = run(Command::new("nm").arg("-S").arg(self.linked()));
            let line = symbols.lines().find(|line| line.ends_with(&format!(" T {name}"))).unwrap();
            let mut numbers = line.split(' ').map_while(|number| u64::from_str_radix(number, 16).ok());
            let (start, size) = (numbers.next().unwrap(), numbers.next().unwrap());
            (start..start + size).collect()
        }

        fn names_at(&self, addresses: &[u64], called: impl Fn(u64) -> String + Send + 'static) -> Names {
            let (runtime, service, frames) = named_under(self.root.path(), addresses, called);
            about(&runtime, &service, &frames)
        }

        fn names(&self, function: &'static str) -> Names {
            self.names_at(&self.function(function), move |_| format!("{function} [my_thing]"))
        }
    }

    fn run_bytes(command: &mut Command, file: &Path) -> Vec<u8> {
        let written = tempfile::NamedTempFile::new().unwrap();
        run(command.arg(file).arg(written.path()));
        std::fs::read(written.path()).unwrap()
    }

    const DEBIAN: &str = "usr/lib/debug/lib/modules/RELEASE/kernel/a/my-thing.ko";

    /// Whether `check` is inlined at some of a function's instructions, and all have lines.
    fn has_inlined(names: &Names, function: &str) -> bool {
        let all = names.iter().all(|(chain, line)| chain[0] == function && line.is_some_and(|line| (2..=12).contains(&line)));
        let inlined: Vec<_> = names.iter().filter(|(chain, _)| chain.len() == 2 && chain[1] == "check").collect();
        all && !inlined.is_empty() && inlined.len() < names.len() && inlined.iter().all(|(_, line)| *line == Some(2))
    }

    #[test]
    fn functions_of_a_module_have_their_inlined_calls_and_lines() {
        for options in [&[][..], &["-gdwarf-4"], &["-gz"], &["-gdwarf-5", "-ffunction-sections"]] {
            // The pretended kernel does not list the addresses of per-function sections.
            let apart = options.contains(&"-ffunction-sections");
            let module = Loaded::new(options, DEBIAN);
            for function in ["thing_read", "thing_write", "thing_exit"] {
                if !apart || function != "thing_read" {
                    let names = module.names(function);
                    assert!(has_inlined(&names, function), "{options:?}: {names:?}");
                }
            }
            let names = module.names("thing_init");
            assert!(names.iter().all(|(chain, line)| chain == &["thing_init"] && line.is_none()), "let go of: {names:?}");
        }
    }

    #[test]
    fn it_is_found_where_distributions_and_builders_put_it() {
        for place in ["usr/lib/debug/lib/modules/RELEASE/kernel/a/my-thing.ko.debug", "lib/modules/RELEASE/kernel/a/my-thing.ko"]
        {
            assert!(has_inlined(&Loaded::new(&[], place).names("thing_read"), "thing_read"), "{place}");
        }
        let module = Loaded::new(&[], "anywhere/thing.ko");
        let plain = module.names("thing_read");
        assert!(plain.iter().all(|(chain, line)| chain.len() == 1 && line.is_none()), "{plain:?}");
        let id = Image::read(Source::file(File::open(&module.file).unwrap()).unwrap()).unwrap().build_id().unwrap();
        let by_id = module.root.path().join(by_build_id(id).unwrap().strip_prefix("/").unwrap());
        std::fs::create_dir_all(by_id.parent().unwrap()).unwrap();
        // As in a package: without the code itself.
        run(Command::new("objcopy").arg("--only-keep-debug").arg(&module.file).arg(&by_id));
        assert!(has_inlined(&module.names("thing_read"), "thing_read"));
    }

    #[test]
    fn another_builds_file_hidden_places_and_other_names_are_left_alone() {
        let plain = |module: &Loaded| {
            let names = module.names("thing_read");
            assert!(names.iter().all(|(chain, line)| chain == &["thing_read"] && line.is_none()), "{names:?}");
        };
        let module = Loaded::new(&[], DEBIAN);
        let own = std::fs::read(module.note()).unwrap();
        let mut other = own.clone();
        *other.last_mut().unwrap() ^= 1;
        std::fs::write(module.note(), &other).unwrap();
        plain(&module);
        std::fs::remove_file(module.note()).unwrap();
        plain(&module);
        std::fs::write(module.note(), &own).unwrap();
        let sections = module.root.path().join("sys/module/my_thing/sections");
        for address in ["0x0000000000000000\n", "nonsense", "", "0xffffffffd0000000\n"] {
            std::fs::write(sections.join(".text"), address).unwrap();
            plain(&module);
        }
        std::fs::write(sections.join(".text"), format!("{:#x}\n", PLACES[0].1)).unwrap();
        assert!(has_inlined(&module.names("thing_read"), "thing_read"), "and only because of that");
        for called in ["thing_write [my_thing]", "thing_read", "thing_read [bpf]", "thing_read [../my_thing]"] {
            let names = module.names_at(&module.function("thing_read"), |_| called.to_owned());
            assert!(names.iter().all(|(chain, line)| chain.len() == 1 && line.is_none()), "{called}: {names:?}");
        }
    }

    #[test]
    fn a_module_that_was_loaded_again_elsewhere_is_looked_up_there() {
        let mut module = Loaded::new(&[], DEBIAN);
        let addresses = module.function("thing_read");
        let (runtime, service, _) = named_under(module.root.path(), &addresses, |_| "thing_read [my_thing]".to_owned());
        module.places[0].1 += 0x10_0000;
        let file = module.root.path().join("sys/module/my_thing/sections/.text");
        std::fs::write(file, format!("{:#x}\n", module.places[0].1)).unwrap();
        service.modules.changed();
        let addresses = module.function("thing_read");
        let intern = |address: &u64| {
            service.names.intern_frame(crate::profile::Frame::Kernel { address: KernelAddress(*address), is_return: false }).0
        };
        let frames: Vec<FrameId> = addresses.iter().map(intern).collect();
        let nowhere = crate::profile::ProcessAddress(0)..crate::profile::ProcessAddress(0);
        let tgid = crate::profile::Tgid(1);
        service.request(
            frames
                .iter()
                .map(|frame| crate::profile::NameRequest {
                    frame: *frame,
                    tgid,
                    user: crate::profile::UserId(0),
                    files: crate::object::open::own_files(),
                    mapping: nowhere.clone(),
                })
                .collect(),
        );
        while service.pending() > 0 {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        let locator = crate::symbolize::service::locate::Locator::default();
        let mut inlined = 0;
        for frame in &frames {
            service.names.labels_of(*frame, |label| inlined += usize::from(service.names.labels.name(label) == "check"));
            assert!(runtime.block_on(locator.ask(&service, *frame)).unwrap().is_some());
        }
        assert!(inlined > 0);
    }

    #[test]
    fn the_source_of_a_function_is_listed_and_why_its_instructions_are_not() {
        let module = Loaded::new(&[], DEBIAN);
        let (runtime, service, frames) =
            named_under(module.root.path(), &module.function("thing_read"), |_| "thing_read [my_thing]".to_owned());
        let weights: Vec<_> = frames.iter().map(|frame| FrameWeight { frame: *frame, own: 1, total: 1 }).collect();
        let label = service.names.labels.intern("thing_read", "[my_thing]", FrameKind::Kernel);
        let lister = crate::symbolize::listing::Lister::default();
        let question = |label, frames| Question { label, frames, by: None };
        let listing = runtime.block_on(lister.ask(&service, question(label, weights))).unwrap().unwrap();
        assert_eq!(&*listing.source.unwrap().rows[2].text, "int thing_read(volatile int *x) {");
        assert!(listing.code.unwrap_err().contains("is not linked"));
        std::fs::remove_file(&module.file).unwrap();
        let (runtime, service, frames) =
            named_under(module.root.path(), &module.function_of_nothing(), |_| "thing_read [my_thing]".to_owned());
        let weights = vec![FrameWeight { frame: frames[0], own: 1, total: 1 }];
        let said = runtime.block_on(lister.ask(&service, question(label, weights))).unwrap().unwrap_err();
        assert!(said.contains("this module is not installed"), "{said}");
    }

    impl Loaded {
        fn function_of_nothing(&self) -> Vec<u64> {
            vec![self.places[0].1]
        }
    }

    /// `MODULE=/usr/lib/debug/lib/modules/…/ext4.ko cargo test --lib kernel_modules -- --nocapture` tests with a module of any kernel.
    #[test]
    fn inlined_calls_and_lines_are_those_of_llvm_symbolizer_in_the_linked_file() {
        let mut module = Loaded::new(&[], DEBIAN);
        if let Some(real) = std::env::var_os("MODULE") {
            std::fs::copy(&real, &module.file).unwrap();
            let Loaded { root, file, .. } = module;
            module = Loaded::of(root, file, PLACES.map(|(name, address)| (name.to_owned(), address)).to_vec());
        }
        let linked = module.linked();
        let listed = run(Command::new("nm").args(["-n"]).arg(&linked));
        let code = |line: &str| {
            let fields: Vec<&str> = line.split(' ').collect();
            let is_code = matches!(fields.get(1), Some(&("t" | "T" | "w" | "W")));
            is_code.then(|| Some((u64::from_str_radix(fields[0], 16).ok()?, fields[2].to_owned())))?
        };
        let functions: Vec<(u64, String)> = listed.lines().filter_map(code).collect();
        let sections = Image::read(Source::file(File::open(&module.file).unwrap()).unwrap()).unwrap().loaded_sections().unwrap();
        let mut addresses = Vec::new();
        for (name, start) in module.places.iter().filter(|(name, _)| name != ".init.text") {
            let Some(section) = sections.iter().find(|section| *section.name == **name) else { continue };
            addresses.extend((*start..start + section.size).step_by(((section.size / 20_000) | 1) as usize));
        }
        let mut llvm = Command::new("llvm-symbolizer");
        llvm.args(["--functions=linkage", "--inlines", "--obj"]).arg(&linked);
        let asked = addresses.iter().map(|address| format!("{address:#x}\n")).collect::<String>();
        let input = module.root.path().join("asked");
        std::fs::write(&input, asked).unwrap();
        let theirs = run(llvm.stdin(File::open(input).unwrap()));
        let theirs = chains_of_llvm(&theirs);
        assert_eq!(theirs.len(), addresses.len());
        let by_kernel = move |at: u64| functions[functions.partition_point(|(start, _)| *start <= at) - 1].1.clone();
        let known = by_kernel.clone();
        let ours = module.names_at(&addresses, move |at| format!("{} [my_thing]", by_kernel(at)));
        let (mut same, mut inlined, mut apart, mut wrong) = (0, 0, 0, 0);
        for ((address, (chain, line)), theirs) in addresses.iter().zip(&ours).zip(&theirs) {
            let called: Vec<&str> = theirs.iter().rev().map(|(name, _)| *name).collect();
            let is_one = chain[0] == known(*address) && chain[1..] == called[1..];
            if is_one && line.unwrap_or(0) == theirs[0].1 {
                same += 1;
                inlined += usize::from(chain.len() > 1);
            } else if chain.len() == 1 && line.is_none() {
                // The function has another name, which its debug information does not have.
                apart += 1;
                println!("{address:#x}: {chain:?} apart from {theirs:?}");
            } else {
                wrong += 1;
                println!("{address:#x}: {chain:?}, line {line:?}, and theirs {theirs:?}");
            }
        }
        println!("{same} the same, {inlined} of them inlined; {apart} left alone; {wrong} wrong");
        assert_eq!(wrong, 0);
        assert!(inlined > 0 && apart * 1000 <= ours.len(), "{apart} left alone");
    }
}
