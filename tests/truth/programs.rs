//! Builds the programs of `tests/programs/truth` in the usual forms of programs.

use std::collections::hash_map::DefaultHasher;
use std::fmt::Write as _;
use std::hash::{Hash, Hasher as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::common::{Program, go_build};
use super::grammar::Grammar;

/// How a program is compiled and linked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Form {
    /// As distributions do: -O2, position independent, no frame pointers, lazy binding.
    Usual,
    /// Like `Usual`, with frame pointers in all functions, also in leaves.
    FramePointers,
    /// One file, glibc in it.
    Static,
    /// The same, loaded anywhere.
    StaticPie,
    /// One file, musl in it.
    Musl,
}

impl Form {
    fn name(self) -> &'static str {
        match self {
            Form::Usual => "",
            Form::FramePointers => "-fp",
            Form::Static => "-static",
            Form::StaticPie => "-static-pie",
            Form::Musl => "-musl",
        }
    }

    fn flags(self) -> &'static [&'static str] {
        match self {
            Form::Usual => &["-fomit-frame-pointer", "-pie", "-fPIE", "-Wl,-z,lazy"],
            Form::FramePointers => &["-fno-omit-frame-pointer", "-DKEEP_FRAMES", "-pie", "-fPIE", "-Wl,-z,lazy"],
            Form::Static => &["-fomit-frame-pointer", "-static"],
            Form::StaticPie => &["-fomit-frame-pointer", "-static-pie", "-fPIE"],
            Form::Musl => &["-fomit-frame-pointer", "-static"],
        }
    }

    fn is_static(self) -> bool {
        !matches!(self, Form::Usual | Form::FramePointers)
    }
}

/// A program and the calls that there are in it.
#[derive(Clone)]
pub(crate) struct Built {
    pub(crate) path: PathBuf,
    pub(crate) grammar: Grammar,
}

fn sources_of_ours() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/truth")
}

/// Directory of the sources. In a guest, `tests/vm` puts them next to the programs.
fn sources() -> PathBuf {
    match std::env::var_os(PROGRAMS) {
        Some(directory) if in_guest() => Path::new(&directory).join("sources"),
        _ => sources_of_ours(),
    }
}

fn text(source: &str) -> String {
    let path = sources().join(source);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("failed to read {}: {error}", path.display()))
}

/// The compiler for another machine, if `TRUTH_TOOLS` names the command that runs it; else ours.
fn tool(name: &str) -> Command {
    let Some(tools) = std::env::var_os(TOOLS) else { return Command::new(name) };
    let mut command = Command::new(tools);
    command.arg("--tool").arg(name);
    command
}

/// Programs that are built for another machine, see [`made`].
const PROGRAMS: &str = "TRUTH_PROGRAMS";
const TOOLS: &str = "TRUTH_TOOLS";

/// Whether programs are for arm64: ours are, and `TRUTH_TOOLS` makes no others.
pub(crate) fn for_arm64() -> bool {
    cfg!(target_arch = "aarch64") || std::env::var_os(TOOLS).is_some()
}

/// Returns the file that `make` writes, as [`Program::made`] does. In the guests of `tests/vm` it returns the file that the host
/// has made.
///
/// `TRUTH_PROGRAMS` is a directory in which the host puts programs by their names, sources beside them, and where its guest
/// finds them.
fn made(name: &str, key: &impl Hash, make: impl FnOnce(&Path) -> std::io::Result<()>) -> PathBuf {
    let Some(directory) = std::env::var_os(PROGRAMS) else { return Program::made(name, key, make).path };
    let path = Path::new(&directory).join(name);
    if !in_guest() {
        let built = Program::made(name, &("put into a directory", std::env::var_os(TOOLS), key), make);
        std::fs::create_dir_all(&directory).expect("a directory for programs can be made");
        run(Command::new("cp").args(["-a", "--no-target-directory"]).arg(&built.path).arg(&path));
    }
    assert!(path.exists(), "{} has not been built for this guest", path.display());
    path
}

/// Whether this runs where nothing can be compiled.
pub(crate) fn in_guest() -> bool {
    std::env::var_os(PROGRAMS).is_some() && !sources_of_ours().exists()
}

/// Whether programs are only built, for a guest that is not ours.
pub(crate) fn are_for_a_guest() -> bool {
    std::env::var_os(PROGRAMS).is_some() && !in_guest()
}

fn run(command: &mut Command) {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().unwrap_or_else(|error| panic!("failed to run {program} (`make test` installs it): {error}"));
    assert!(output.status.success(), "{command:?} failed:\n{}", String::from_utf8_lossy(&output.stderr));
}

/// A source's name without its ending.
fn stem(source: &str) -> &str {
    source.split('.').next().unwrap_or(source)
}

/// A C or C++ program of `tests/programs/truth`.
pub(crate) fn c(source: &str, form: Form) -> Built {
    c_text(source, &text(source), form)
}

fn c_text(source: &str, program: &str, form: Form) -> Built {
    let compiler = match (form, source.ends_with(".cpp")) {
        (Form::Musl, false) => "musl-gcc",
        (_, true) => "g++",
        (_, false) => "gcc",
    };
    // fno-builtin: calls of memcpy and similar functions remain calls.
    let usual = ["-O2", "-g0", "-pthread", "-fno-builtin", "-Wall", "-Wextra", "-Werror"];
    let header = text("truth.h");
    let name = format!("{}{}", stem(source), form.name());
    let key = ("c", source, program, &header, compiler, usual, form.flags());
    let path = made(&name, &key, |output| {
        let input = output.with_file_name(source);
        std::fs::write(&input, program)?;
        let mut command = tool(compiler);
        command.args(usual).args(form.flags()).arg("-I").arg(sources()).arg(&input).arg("-o").arg(output);
        run(&mut command);
        Ok(())
    });
    // Its first code jumps to code that jumps again. So the function that calls main has no caller.
    let jumps = form == Form::Musl && for_arm64();
    let root = if jumps { "//= ^libc_start_main_stage2 > main | <libc,stdc++,gcc:boot> | <rest:boot>" } else { "" };
    Built { path, grammar: Grammar::read(&[&header, root, program], form.is_static()) }
}

/// A release program of Rust.
pub(crate) fn rust(source: &str) -> Built {
    let program = text(source);
    let flags = ["--edition=2024", "-O", "--crate-name", "truth_closures"];
    let path = made(stem(source), &("rust", &program, flags), |output| {
        run(tool("rustc").args(flags).arg("-o").arg(output).arg(sources().join(source)));
        Ok(())
    });
    Built { path, grammar: Grammar::read(&[&program], false) }
}

/// A program of Go. If it calls C, it is linked with libc.
pub(crate) fn go(source: &str) -> Built {
    let program = text(source);
    let calls_c = program.contains("import \"C\"");
    let path = made(stem(source), &("go", &program), |output| {
        // Go refuses sources of C beside its own.
        let input = output.with_file_name(source);
        std::fs::write(&input, &program)?;
        run(&mut go_build(tool("go"), calls_c, output, &input));
        Ok(())
    });
    Built { path, grammar: Grammar::read(&[&program], !calls_c) }
}

/// A chain of `count` functions: each calls the next. Their numbers have `digits` digits. Their frames hold different data:
/// nothing, registers saved over the call (also the frame pointer), arrays, alloca, arguments.
pub(crate) fn chain(count: usize, digits: usize, form: Form) -> Built {
    let mut program = String::from("#include \"truth.h\"\n#include <alloca.h>\n");
    let function = |n: usize| format!("f{n:0digits$}");
    for n in (0..count).rev() {
        let (name, next) = (function(n), if n + 1 < count { function(n + 1) } else { "last".to_owned() });
        if n + 1 == count {
            program.push_str("NOINLINE long last(long n)\n{\n\tburn(n);\n\tsink++;\n\treturn n;\n}\n//= last > burn\n");
        }
        let body = match (n * 7 + n / 13) % 7 {
            0 | 1 => format!("long below = {next}(n);\n\tsink += below;\n\treturn below + 1;"),
            2 => format!(
                "long a = sink, b = sink * 3, c = sink * 5, d = sink * 7, e = sink * 9, f = sink * 11;\n\tlong below = {next}(n);\n\
                 \tsink += a ^ b ^ c ^ d ^ e ^ f;\n\treturn below + a - a;"
            ),
            3 => format!("volatile long room[{}];\n\troom[0] = {next}(n);\n\tsink++;\n\treturn room[0];", n % 37 + 1),
            4 => format!(
                "volatile char *room = alloca((n & 63) + {n});\n\troom[0] = 1;\n\tlong below = {next}(n);\n\treturn below + room[0] - 1;"
            ),
            5 => {
                format!("static long (*volatile pointer)(long) = {next};\n\tlong below = pointer(n);\n\tsink++;\n\treturn below;")
            }
            _ => format!("_Alignas(64) volatile long room[8];\n\troom[1] = {next}(n);\n\tsink++;\n\treturn room[1];"),
        };
        writeln!(program, "NOINLINE long {name}(long n)\n{{\n\t{body}\n}}").expect("a string takes all");
    }
    writeln!(
        program,
        "//= main > f[{:0digits$}..{}] > last\n//= main > <libc:main>\nint main(int argc, char **argv)\n{{\n\tbegin(argc, argv);\n\
         \tfor (;;)\n\t\tsink += {}(1000000);\n}}",
        0,
        function(count - 1).trim_start_matches('f'),
        function(0),
    )
    .expect("a string takes all");
    c_text(&format!("chain{count}.c"), &program, form)
}

/// How many functions are bound one after the other.
const BOUND: usize = 500;

/// The libraries that `loader.c` opens, in one directory, and its grammar.
pub(crate) fn loader() -> (Built, PathBuf) {
    let functions = || (0..BOUND).map(|n| format!("bound{n:03}"));
    let mut bound = String::from("static volatile long sink;\n");
    let mut binds = String::new();
    for name in functions() {
        writeln!(bound, "long {name}(long n)\n{{\n\tsink += n;\n\treturn n + 1;\n}}").expect("a string takes all");
        writeln!(binds, "long {name}(long n);").expect("a string takes all");
    }
    binds.push_str("long binds_all(long n)\n{\n");
    functions().for_each(|name| writeln!(binds, "\tn += {name}(n);").expect("a string takes all"));
    binds.push_str("\treturn n;\n}\n");
    let grammar = format!("//= binds_all > {}", functions().collect::<Vec<_>>().join(" | "));

    let churn = text("churn.c");
    let flags = ["-O2", "-fomit-frame-pointer", "-shared", "-fPIC", "-Wl,-z,lazy"];
    let libraries = made("libraries", &(&churn, &bound, &binds, flags), |output| {
        std::fs::create_dir_all(output)?;
        let build = |name: &str, source: &str, defines: &[String]| -> std::io::Result<()> {
            let input = output.join(format!("{name}.c"));
            std::fs::write(&input, source)?;
            let library = output.join(format!("{name}.so"));
            run(tool("gcc").args(flags).args(defines).arg(&input).arg("-o").arg(library));
            std::fs::remove_file(input)
        };
        build("bound", &bound, &[])?;
        build("binds", &binds, &[])?;
        (0..8)
            .try_for_each(|n| build(&format!("churn{n}"), &churn, &[format!("-DNAME=churn{n}"), format!("-DSIZE={}", n * 3 + 2)]))
    });
    let program = format!("{}\n{grammar}\n", text("loader.c"));
    (c_text("loader.c", &program, Form::Usual), libraries)
}

/// A helper of the tests that is not sampled itself.
pub(crate) fn helper(source: &str) -> PathBuf {
    let program = text(source);
    made(stem(source), &("helper", &program), |output| {
        run(tool("gcc").args(["-O2", "-Wall", "-Werror", "-o"]).arg(output).arg(sources().join(source)));
        Ok(())
    })
}

/// A path for a test's temporary file, different for each text.
pub(crate) fn scratch(name: &str) -> PathBuf {
    let mut hasher = DefaultHasher::new();
    (name, std::process::id()).hash(&mut hasher);
    let directory = if in_guest() { std::env::temp_dir() } else { PathBuf::from(env!("CARGO_TARGET_TMPDIR")) };
    directory.join(format!("truth-{:016x}", hasher.finish()))
}
