#!/bin/sh
# Fuzzes readers of hostile files for some time, with stable rustc only: no nightly, no cargo-fuzz.
#
#   scripts/fuzz.sh [SECONDS [TARGET…]]     default: 60 s, all targets:
#
#     convert       unwind information
#     names         symbols and debug information
#     jit           maps of code made at run time
#     debug_files   separate debug files, dwz files, split DWARF
#     collector     the kernel's data about processes: side-band events, samples, /proc; the cache
#     listing       code of x86_64 and arm64, source text, mangled names
#     texts         folded stacks, the configuration
#     profiles      files of profiles of all formats
#     interpreters  objects of Python and V8 in a process's memory, records of its functions
#
# libFuzzer (in the crate libfuzzer-sys) needs a C++ compiler, and the instrumentation that LLVM's "sancov" pass puts into
# code. The fuzzed code has no unsafe code, so the possible findings are panics, overflows, and too much time or memory. Some seeds are
# kept in fuzz/corpus/TARGET; others are made from files of this machine. The corpus grows in target/fuzz/TARGET. Findings are saved in
# target/fuzz/found. After all targets have run, a finding makes the script fail:
#
#   target/fuzz/…/release/TARGET FILE     runs that input once
set -eu
cd "$(dirname "$0")/.."
seconds=${1:-60}
[ $# -eq 0 ] || shift
[ $# -gt 0 ] || set -- convert names jit debug_files collector listing texts profiles interpreters
directory="${CARGO_TARGET_DIR:-$PWD/target}/fuzz"
triple=$(rustc -vV | sed -n 's/^host: //p')
mkdir -p "$directory/found"

CLANG=${CLANG:-$(scripts/setup.sh clang)}
export CLANG

# An explicit target triple, although it is the host's, keeps the flags away from build scripts, which have no fuzzer to link with.
(
    # The dependencies of the program, and additional ones of the fuzzer.
    cp Cargo.lock fuzz/Cargo.lock
    cd fuzz
    instrument="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4"
    instrument="$instrument -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table"
    instrument="$instrument -Cllvm-args=-sanitizer-coverage-trace-compares"
    RUSTFLAGS="$instrument --cfg fuzzing -Ccodegen-units=1" \
        cargo build --release --quiet --target-dir "$directory" --target "$triple" --bins
)

programs="$directory/$triple/release"

# Some libraries of this machine, also of arm64 if there are any; programs in C, Rust and Go; programs of the tests.
seeds_of_convert() {
    {
        find /usr/lib /usr/lib64 /usr/aarch64-linux-gnu -xdev -type f -name '*.so*' 2>/dev/null | sort | awk 'NR % 7 == 1' | head -n 150
        for program in sh ls cargo go node; do command -v "$program" || true; done
        find target/tmp -type f \( -name routines -o -name plain-static -o -name throws \) 2>/dev/null | head -n 3
    } | FLAMETOP_SEEDS="$1" "$programs/convert"
}

# Small programs: with debug information in its forms, without it, and with symbols in .gnu_debugdata.
seeds_of_names() {
    source="$1/a.c"
    printf '%s\n' 'static inline int twice(int a) { return a * 2; }' \
        'static int more(int a, int b) { int s = 0; while (a-- > b) s += twice(s + a); return s; }' \
        'int _start(void) { return more(7, 1) + more(9, 2); }' >"$source"
    for options in -gdwarf-5 -gdwarf-4 -gdwarf-2 "-gdwarf-5 -gz" "-gdwarf-4 -gz=zlib-gnu" "-gsplit-dwarf" "-g0" "-g -fno-pie -no-pie"; do
        # shellcheck disable=SC2086 # several options
        gcc -O2 -nostdlib $options "$source" -o "$1/seed$options" 2>/dev/null || true
    done
    cp "$1/seed-g0" "$1/mini"
    xz -f "$1/mini"
    objcopy --strip-all --add-section=.gnu_debugdata="$1/mini.xz" "$1/seed-g0" "$1/seed-mini"
    rm -f "$source" "$1"/*.dwo "$1/mini.xz"
}

# A map, and the head of a jitdump with a function (its magic, version, sizes; then kind 0).
seeds_of_jit() {
    printf '\0001000 20 one\n0x1020 0x10 two words\n1010 8 later\n' >"$1/map"
    {
        printf '\001DTiJ\001\000\000\000\050\000\000\000\076\000\000\000'
        head -c 24 /dev/zero
        printf '\000\000\000\000\074\000\000\000'
        head -c 16 /dev/zero
        printf '\000\020\000\000\000\000\000\000\000\020\000\000\000\000\000\000\004\000\000\000\000\000\000\000'
        head -c 8 /dev/zero
        printf 'f\000\220\220\220\220'
    } >"$1/dump"
}

# The length of an object, the object, and a file that belongs to it: by build id, by link, as a dwz file, or as split DWARF.
seeds_of_debug_files() {
    (
        cd "$1"
        printf '%s\n' 'static inline int twice(int a) { return a * 2; }' \
            'int _start(int a, int b) { int s = 0; while (a-- > b) s += twice(s + a); return s; }' >a.c
        pair() {
            length=$(wc -c <"$1")
            for shift in 0 8 16 24; do
                # shellcheck disable=SC2059 # an octal escape, made here
                printf "\\$(printf %03o $((length >> shift & 255)))"
            done
            cat "$1" "$2"
        }
        build="gcc -O2 -nostdlib -Wl,--build-id=0x0011223344556677"
        $build -g -o whole a.c && objcopy --only-keep-debug whole a.debug && objcopy --strip-debug whole object
        pair object a.debug >by-id
        objcopy --add-gnu-debuglink=a.debug --remove-section=.note.gnu.build-id object linked && pair linked a.debug >by-link
        printf '/alt\000\000\021\042\063\104\125\146\167' >./link
        objcopy --add-section=.gnu_debugaltlink=link whole other && pair other a.debug >by-altlink
        $build -g -gsplit-dwarf -o split a.c && mv ./*.dwo a.dwo && pair split a.dwo >by-split
        rm -f a.c whole a.debug object linked link other split a.dwo
    )
}

found=
for target; do
    corpus="$directory/$target/corpus"
    seeds="$directory/$target/seeds"
    mkdir -p "$corpus" "$seeds"
    case $target in
    collector | listing | texts | profiles | interpreters) ;;
    *) [ -n "$(ls "$seeds")" ] || "seeds_of_$target" "$seeds" ;;
    esac
    echo "== $target"
    # The output of libFuzzer has thousands of lines.
    "$programs/$target" -max_total_time="$seconds" \
        -rss_limit_mb=1024 -malloc_limit_mb=512 -timeout=10 -max_len=65536 -print_final_stats=1 -verbosity=0 \
        -artifact_prefix="$directory/found/" "$corpus" "fuzz/corpus/$target" "$seeds" >"$directory/$target/log" 2>&1 || {
        tail -n 60 "$directory/$target/log"
        found="$found $target"
    }
    grep -e '^stat::number' -e '^stat::peak' "$directory/$target/log" || true
done
[ -z "$found" ] || {
    echo "flametop: fuzzing found something:$found" >&2
    exit 1
}
