#!/bin/sh
# Fuzzes the converter of unwind information for some time, with what rustc on its own offers: no nightly, no cargo-fuzz.
#
#   scripts/fuzz.sh [SECONDS]     60
#
# libFuzzer (in the crate libfuzzer-sys) needs a C++ compiler, and the instrumentation that LLVM's "sancov" pass puts into
# code. Sanitizers need a nightly compiler; the converter has no unsafe code, so that panics, overflows, time and memory are
# what there is to be found. Seeds are made of this machine's own files, the corpus grows in target/fuzz/corpus. What is
# found lies in target/fuzz/found, and ends the run with an error:
#
#   target/fuzz/…/release/convert FILE     runs that input once
set -eu
cd "$(dirname "$0")/.."
seconds=${1:-60}
directory="${CARGO_TARGET_DIR:-$PWD/target}/fuzz"
triple=$(rustc -vV | sed -n 's/^host: //p')
mkdir -p "$directory/seeds" "$directory/corpus" "$directory/found"

CLANG=${CLANG:-$(scripts/setup.sh clang)}
export CLANG

# A target triple, though it is our own, keeps the flags away from build scripts, which have no fuzzer to link with.
(
    # The program's own dependencies, and what the fuzzer needs besides.
    cp Cargo.lock fuzz/Cargo.lock
    cd fuzz
    instrument="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4"
    instrument="$instrument -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table"
    instrument="$instrument -Cllvm-args=-sanitizer-coverage-trace-compares"
    RUSTFLAGS="$instrument --cfg fuzzing -Ccodegen-units=1" \
        cargo build --release --quiet --target-dir "$directory" --target "$triple" --bin convert
)

convert="$directory/$triple/release/convert"

if [ -z "$(ls "$directory/seeds")" ]; then
    # Some libraries of this machine, of arm64 where there are any; programs of C, Rust, Go; the tests' own.
    {
        find /usr/lib /usr/lib64 /usr/aarch64-linux-gnu -xdev -type f -name '*.so*' 2>/dev/null | sort | awk 'NR % 7 == 1' | head -n 150
        for program in sh ls cargo go node; do command -v "$program" || true; done
        find target/tmp -type f \( -name routines -o -name plain-static -o -name throws \) 2>/dev/null | head -n 3
    } | FLAMETOP_SEEDS="$directory/seeds" "$convert"
fi

"$convert" -max_total_time="$seconds" \
    -rss_limit_mb=1024 -malloc_limit_mb=512 -timeout=10 -max_len=65536 -print_final_stats=1 \
    -artifact_prefix="$directory/found/" "$directory/corpus" "$directory/seeds"
