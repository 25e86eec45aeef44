#!/bin/sh
# Everything that must hold before a change is merged; CI runs this and nothing else.
#
#   scripts/test.sh            scripts, formatting, lints, documentation, all tests
#   scripts/test.sh --check    only fast tests that need no root: unit tests, architecture, documents, dependencies, oldest Rust
#   scripts/test.sh --all      also slow tests (#[ignore]), each fuzz target for 30 s, and AddressSanitizer
#   scripts/test.sh NAME       only tests with NAME in their names, including slow tests
set -eu
cd "$(dirname "$0")/.."
begin=$(date +%s)

step() {
    printf '\n== %s\n' "$1"
    shift
    "$@" || {
        printf '\nflametop: FAILED: %s\n' "$*" >&2
        exit 1
    }
}

mode=${1:-}
# tests/python.rs looks at some versions of Python without this.
case $mode in "" | --check) ;; *) export EVERY_PYTHON=1 ;; esac

# The tests of the collector load BPF programs. Cargo starts test programs through a "runner". The runner uses sudo, so
# cargo itself runs as the user, and its files belong to the user.
as_root=
if [ "$mode" != --check ] && [ "$(id -u)" != 0 ]; then
    if ! command -v sudo >/dev/null 2>&1; then
        echo "flametop: the tests load BPF programs and need root: run make test as root" >&2
        exit 1
    fi
    # sudo drops PATH, but tests need it to find rustc. A user's PATH may lack root's directories. Tests get a separate home, because
    # files that Chromium, Go and others leave there as root would be in the user's way.
    home=${CARGO_TARGET_DIR:-$PWD/target}/tmp/home
    mkdir -p "$home"
    rust="RUSTUP_HOME=${RUSTUP_HOME:-$HOME/.rustup} CARGO_HOME=${CARGO_HOME:-$HOME/.cargo}"
    as_root="sudo env PATH=$PATH:/usr/sbin:/sbin"
    runner="$as_root HOME=$home $rust CI=${CI:-} ${EVERY_PYTHON:+EVERY_PYTHON=1}"
    triple=$(rustc -vV | sed -n 's/^host: //p' | tr 'a-z-' 'A-Z_')
    export "CARGO_TARGET_${triple}_RUNNER=$runner"
fi

# Runs tests, and prints failures once more at the end.
run_tests() {
    log=$(mktemp)
    { cargo test --locked --no-fail-fast "$@" 2>&1 || echo failed >"$log.status"; } | tee "$log"
    [ -e "$log.status" ] || { rm "$log"; return 0; }
    printf '\n== what failed\n'
    grep -A 60 -e 'panicked at' -e '^error' "$log" | grep -v -e 'stack backtrace' -e '^ *[0-9]*: ' -e '^ *at ' | cut -c 1-1000
    rm "$log" "$log.status"
    return 1
}

test_all() {
    step "with one feature" with_features live disassembly
    # Slow tests run one at a time: they measure, and would disturb each other.
    # Other kernels are tested by a separate command: make test-vm.
    step "slow tests" run_tests -- --ignored --test-threads=1 --skip kernels_of_both_architectures
    step "memory stays flat" soak
    # Earlier findings are covered by tests. A new finding deserves a look, no matter in whose run it appears.
    step "fuzzing" scripts/fuzz.sh 30
    step "AddressSanitizer" scripts/asan.sh
}

# The ten-minute form of `make soak`.
soak() {
    cargo build --profile dist --locked || return 1
    $as_root scripts/soak 10 "${CARGO_TARGET_DIR:-target}/dist/flametop"
}

# tests/dependencies.rs also checks licences and sources, from cargo's own output. Building cargo-deny takes minutes, so it runs only where
# it is installed.
dependencies() {
    if ! command -v cargo-deny >/dev/null; then
        echo "NOT RUN: cargo-deny is not installed (cargo install cargo-deny --locked); tests/dependencies.rs looks at licences and sources"
        return 0
    fi
    cargo deny --offline --locked check --hide-inclusion-graph licenses bans sources || return 1
    if [ -n "$(ls "${CARGO_HOME:-$HOME/.cargo}/advisory-dbs" 2>/dev/null)" ]; then
        cargo deny --offline --locked check advisories
    else
        echo "NOT CHECKED: advisories; their database is not here (cargo deny fetch db)"
    fi
}

# Unit tests, and tests of the repository itself.
quick_tests() {
    set --
    if [ "$(id -u)" != 0 ]; then
        names=$(grep -v '^#' scripts/needs-root)
        for name in $names; do
            set -- "$@" --skip "$name"
        done
        echo "NOT RUN without root: the $(($# / 2)) unit tests of scripts/needs-root (make test runs them)"
    fi
    run_tests --lib --test architecture --test documents --test dependencies -- "$@"
}

# Lints with these features only. The viewer alone builds without clang and libbpf. It has a separate target directory: otherwise cargo
# would forget the skeletons of the other build.
with_features() {
    for features in "$@"; do
        clang=/nonexistent
        [ "$features" = live ] && clang=${CLANG:-$(scripts/setup.sh clang)}
        CLANG=$clang cargo clippy --locked --target-dir "${CARGO_TARGET_DIR:-$PWD/target}/viewer" --no-default-features \
            --features "$features" -- -D warnings || return 1
    done
}

# The program with the oldest Rust that Cargo.toml promises.
oldest_rust() {
    oldest=$(sed -n 's/^rust-version *= *"\(.*\)"/\1/p' Cargo.toml)
    if ! rustup run "$oldest" rustc --version 2>/dev/null; then
        echo "NOT TESTED: Rust $oldest is not installed (rustup toolchain install $oldest --profile minimal)"
        return 0
    fi
    rustup run "$oldest" cargo check --locked --target-dir "${CARGO_TARGET_DIR:-target}/oldest"
}

documentation() { RUSTDOCFLAGS="-D warnings" cargo doc --locked --no-deps --quiet; }

case $mode in
"" | --all | --check) ;;
*)
    step "tests with $mode in their names" run_tests -- --include-ignored "$mode"
    exit 0
    ;;
esac
step "scripts" shellcheck scripts/*.sh .ci/run tests/vm/build tests/vm/cross-arm64 tests/vm/events
step "formatting" cargo fmt --check
step "lints" cargo clippy --locked --all-targets -- -D warnings
step "oldest Rust" oldest_rust
step "without features" with_features ""
step "documentation" documentation
step "dependencies" dependencies
if [ "$mode" = --check ]; then
    step "unit tests" quick_tests
else
    step "tests" run_tests
fi
if [ "$mode" = --all ]; then
    test_all
fi
printf '\nflametop: all tests passed in %s s\n' "$(($(date +%s) - begin))"
