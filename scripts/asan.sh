#!/bin/sh
# Runs the unit tests of what reads hostile bytes with AddressSanitizer: our code and that of the libraries it is made of, which have
# unsafe code of their own. Not C: libbpf reads nothing hostile.
#
#   scripts/asan.sh [FILTER…]     parts of tests' names; those of the readers
#
# Sanitizers are an unstable option of rustc: RUSTC_BOOTSTRAP has the stable one take it. The runtime comes with the toolchain. Leaks are
# not looked for: threads that are left behind on purpose have memory when the program ends.
set -eu
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || set -- symbolize:: formats:: object:: collector::unwind:: collector::proc:: collector::events:: collector::records:: \
    collector::fuzzing:: collector::build_id:: collector::tables::cache:: collector::tables::identity:: session::config::
triple=$(rustc -vV | sed -n 's/^host: //p')
CLANG=${CLANG:-$(scripts/setup.sh clang)}
export CLANG
# Frames are several times as large: tests of nesting that fits a thread's 2 MiB need more. Tests that hold the time something takes
# cannot hold it here.
# A target triple, though it is our own, keeps the flags away from build scripts.
RUSTC_BOOTSTRAP=1 RUSTFLAGS=-Zsanitizer=address ASAN_OPTIONS=detect_leaks=0 RUST_MIN_STACK=33554432 \
    cargo test --locked --lib --target "$triple" --target-dir "${CARGO_TARGET_DIR:-$PWD/target}/asan" -- "$@" \
    --skip any_code_is_followed_in_time --skip damaged_files_cost_neither
