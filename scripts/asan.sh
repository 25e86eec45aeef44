#!/bin/sh
# Runs the unit tests of readers of hostile bytes with AddressSanitizer. It covers our code and its Rust libraries, which contain unsafe
# code. It does not cover C: libbpf reads no hostile input.
#
#   scripts/asan.sh [FILTER…]     parts of tests' names; default: the tests of the readers
#
# Sanitizers are an unstable option of rustc; with RUSTC_BOOTSTRAP the stable rustc accepts it. The runtime comes with the toolchain.
# Leak detection is off: threads that are intentionally left behind hold memory when the program ends.
set -eu
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || set -- symbolize:: formats:: object:: collector::unwind:: collector::proc:: collector::events:: collector::records:: \
    collector::fuzzing:: collector::build_id:: collector::tables::cache:: collector::tables::identity:: session::config::
triple=$(rustc -vV | sed -n 's/^host: //p')
CLANG=${CLANG:-$(scripts/setup.sh clang)}
export CLANG
# Stack frames are several times as large, so tests of deep nesting that normally fit a thread's 2 MiB need more. Tests of time limits are
# skipped: the program is too slow here.
# An explicit target triple, although it is the host's, keeps the flags away from build scripts.
RUSTC_BOOTSTRAP=1 RUSTFLAGS=-Zsanitizer=address ASAN_OPTIONS=detect_leaks=0 RUST_MIN_STACK=33554432 \
    cargo test --locked --lib --target "$triple" --target-dir "${CARGO_TARGET_DIR:-$PWD/target}/asan" -- "$@" \
    --skip any_code_is_followed_in_time --skip damaged_files_cost_neither
