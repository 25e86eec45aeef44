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
[ $# -gt 0 ] || set -- symbolize:: formats:: object:: runtimes:: unwind:: session::config:: collector::fuzzing:: \
    collector::processes:: collector::probes::spec:: collector::wire:: collector::tables::cache:: collector::tables::digest:: \
    collector::tables::files:: collector::tables::identity:: collector::tables::layout::
# Tests of time limits: the program is too slow here.
too_slow="any_code_is_followed_in_time damaged_files_cost_neither the_caller_is_asked_often sixty_thousand_mappings"
triple=$(rustc -vV | sed -n 's/^host: //p')
CLANG=${CLANG:-$(scripts/setup.sh clang)}
export CLANG

# Stack frames are several times as large, so tests of deep nesting that normally fit a thread's 2 MiB need more.
# An explicit target triple, although it is the host's, keeps the flags away from build scripts.
tests() {
    RUSTC_BOOTSTRAP=1 RUSTFLAGS=-Zsanitizer=address ASAN_OPTIONS=detect_leaks=0 RUST_MIN_STACK=33554432 \
        cargo test --locked --lib --target "$triple" --target-dir "${CARGO_TARGET_DIR:-$PWD/target}/asan" -- "$@"
}

# A filter that selects no test is out of date.
all=$(tests --list)
for filter in "$@" $too_slow; do
    printf '%s\n' "$all" | grep -q -e "$filter.*: test$" || {
        echo "flametop: no test has \`$filter\` in its name; correct it in scripts/asan.sh or on the command line" >&2
        exit 1
    }
done
for name in $too_slow; do
    set -- "$@" --skip "$name"
done
tests "$@"
