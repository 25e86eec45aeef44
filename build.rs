//! Compiles the BPF programs in `bpf/` for the target architecture and generates their skeletons into `OUT_DIR`. Without the feature `live`
//! there are none.

#[cfg(not(feature = "live"))]
fn main() {}

#[cfg(feature = "live")]
fn main() -> std::process::ExitCode {
    programs::build_all()
}

#[cfg(feature = "live")]
mod programs {
    use std::env;
    use std::path::{Path, PathBuf};
    use std::process::{Command, ExitCode, Stdio};

    use libbpf_cargo::SkeletonBuilder;

    /// The version that builds the programs in our tests, first; then what distributions call theirs.
    const CLANGS: [&str; 7] = ["clang", "clang-19", "clang-18", "clang-17", "clang-16", "clang-15", "clang-14"];

    pub(super) fn build_all() -> ExitCode {
        println!("cargo::rerun-if-changed=bpf");
        println!("cargo::rerun-if-env-changed=CLANG");
        match build() {
            Ok(()) => ExitCode::SUCCESS,
            Err(message) => {
                for line in message.lines() {
                    println!("cargo::error={line}");
                }
                ExitCode::FAILURE
            }
        }
    }

    fn build() -> Result<(), String> {
        let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("OUT_DIR is not set: run this through cargo")?);
        let builder = |source: &str, more: &[&str]| -> Result<SkeletonBuilder, String> {
            let mut builder = SkeletonBuilder::new();
            // -mcpu=v3: jumps on 32-bit halves and atomics, in every kernel that we support.
            let flags = ["-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter", "-mcpu=v3"];
            builder.source(source).clang(find_clang()?).clang_args(flags.iter().chain(more));
            // Nobody reads the skeletons, and rustup's proxy for rustfmt fails where rustfmt is not installed.
            builder.rustfmt(out.join("no-rustfmt"));
            Ok(builder)
        };
        for name in ["sampler", "probes", "waits", "sleepers", "names"] {
            let source = format!("bpf/{name}.bpf.c");
            let built = builder(&source, &[])?.build_and_generate(out.join(format!("{name}.skel.rs")));
            built.map_err(|error| format!("failed to build {source}: {error:#}"))?;
        }
        // Objects for tests. A package for users has no tests, and needs none.
        for name in ["mappings", "registers", "tailcalls"] {
            let source = format!("tests/programs/{name}.bpf.c");
            println!("cargo::rerun-if-changed={source}");
            if Path::new(&source).exists() {
                let built = builder(&source, &[])?.obj(out.join(format!("{name}.bpf.o"))).build();
                built.map_err(|error| format!("failed to build {source}: {error:#}"))?;
            }
        }
        if Path::new("tests/architecture").exists() {
            for architecture in ["x86", "arm64"] {
                let object = out.join(format!("sampler.{architecture}.bpf.o"));
                let built = builder("bpf/sampler.bpf.c", &[&format!("-D__TARGET_ARCH_{architecture}")])?.obj(object).build();
                built.map_err(|error| format!("failed to build the sampler for {architecture}: {error:#}"))?;
            }
        }
        Ok(())
    }

    /// The compiler named by `CLANG`, or the first of the usual names that runs.
    fn find_clang() -> Result<String, String> {
        let runs = |name: &str| {
            let version = Command::new(name).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
            version.is_ok_and(|status| status.success())
        };
        if let Ok(chosen) = env::var("CLANG") {
            return if runs(&chosen) {
                Ok(chosen)
            } else {
                Err(format!("CLANG={chosen} does not run: set it to a clang of version 14 or later"))
            };
        }
        CLANGS.iter().find(|name| runs(name)).map(ToString::to_string).ok_or_else(|| {
        "flametop's BPF programs are built with clang 14 or later, and none was found; install it (Debian and Ubuntu: apt install clang; \
         Fedora: dnf install clang; Arch: pacman -S clang) or name it in the environment variable CLANG"
            .to_string()
    })
    }
}
