#!/bin/sh
# Installs missing packages for building (or testing) flametop, with the machine's own package manager.
#
#   scripts/setup.sh build    a C compiler, clang >= 14 with the BPF target, make, pkg-config, headers of libelf and zlib
#   scripts/setup.sh check    like build, and programs of the unit tests: compilers, binutils, LLVM's symbolizer and interpreter, dwz, xz,
#                             Rust's own formatter and linter, shellcheck
#   scripts/setup.sh test     like check, and programs of the other tests: Chromium, Node.js, Java, a server of debug files, other Pythons
#   scripts/setup.sh test-all like test, and a program of the slow tests: gdb
#   scripts/setup.sh test-vm  like test, and programs that boot other kernels and build for arm64 (tests/vm): on Debian only
#   scripts/setup.sh clang    prints the clang that will be used
#
# Installed packages are never touched, so a machine that has everything needs neither root nor network. Rust itself is
# only checked: the user chooses whether it comes from rustup or from the distribution.
set -eu
cd "$(dirname "$0")/.."

CLANG_OLDEST=14 # the first whose BPF code keeps CO-RE relocations of every kind that bpf/ uses
CLANG_NEWEST=30 # how far to look for versioned names; nothing depends on it

say() { printf 'flametop: %s\n' "$*" >&2; }
fail() { say "$*"; exit 1; }
have() { command -v "$1" >/dev/null 2>&1; }

# Prints the first clang that is new enough and can make BPF code. On Debian and Ubuntu its name may be clang-16 only.
find_clang() {
    candidates="${CLANG:-} clang"
    number=$CLANG_NEWEST
    while [ "$number" -ge "$CLANG_OLDEST" ]; do
        candidates="$candidates clang-$number"
        number=$((number - 1))
    done
    for candidate in $candidates; do
        have "$candidate" || continue
        version=$("$candidate" -dumpversion 2>/dev/null | cut -d. -f1)
        [ "${version:-0}" -ge "$CLANG_OLDEST" ] 2>/dev/null || continue
        "$candidate" -print-targets 2>/dev/null | grep -q '^ *bpf ' || continue
        echo "$candidate"
        return 0
    done
    return 1
}

has_header() { printf '#include <%s>\n' "$1" | cc -E -x c - >/dev/null 2>&1; }

is_there() {
    case $1 in
    clang) find_clang >/dev/null ;;
    cc) have cc && has_header stdio.h ;;
    g++) have g++ && printf '#include <vector>\n' | g++ -E -x c++ - >/dev/null 2>&1 ;;
    # Fedora and other distributions have the archives of static glibc in a separate package.
    libc.a) printf 'int main(void) { return 0; }\n' | cc -static -x c - -o /dev/null >/dev/null 2>&1 ;;
    libelf) has_header libelf.h ;;
    zlib) has_header zlib.h ;;
    debian-archive-keyring) [ -e /usr/share/keyrings/debian-archive-keyring.gpg ] ;;
    *) have "$1" ;;
    esac
}

missing() {
    for thing in $WANTED; do
        is_there "$thing" || printf '%s ' "$thing"
    done
}

# Prints the package with a program or library: package MANAGER NAME.
package() {
    case $1:$2 in
    apk:cc) echo gcc musl-dev linux-headers ;;
    apt:cc) echo gcc libc6-dev ;;
    *:cc) echo gcc ;;
    pacman:g++) echo gcc ;;
    dnf:g++ | zypper:g++) echo gcc-c++ ;;
    apt:libelf) echo libelf-dev ;;
    dnf:libelf) echo elfutils-libelf-devel ;;
    pacman:libelf) echo libelf ;;
    zypper:libelf) echo libelf-devel ;;
    apk:libelf) echo elfutils-dev ;;
    apt:zlib) echo zlib1g-dev ;;
    pacman:zlib) echo zlib ;;
    apk:zlib) echo zlib-dev ;;
    *:zlib) echo zlib-devel ;;
    dnf:pkg-config) echo pkgconf-pkg-config ;;
    pacman:pkg-config | apk:pkg-config) echo pkgconf ;;
    dnf:shellcheck | zypper:shellcheck) echo ShellCheck ;;
    *:readelf) echo binutils ;;
    apt:libc.a) echo libc6-dev ;;
    dnf:libc.a) echo glibc-static ;;
    zypper:libc.a) echo glibc-devel-static ;;
    pacman:libc.a) echo glibc ;;
    apk:libc.a) echo musl-dev ;;
    apt:musl-gcc) echo musl-tools ;;
    dnf:musl-gcc) echo musl-gcc musl-libc-static ;;
    apk:musl-gcc) echo musl-dev ;;
    *:musl-gcc) echo musl ;;
    apt:go) echo golang-go ;;
    dnf:go) echo golang-bin ;;
    *:go) echo go ;;
    apt:xz) echo xz-utils ;;
    apt:perf) echo linux-perf ;;
    apt:qemu-system-aarch64) echo qemu-system-arm ;;
    apt:qemu-system-x86_64) echo qemu-system-x86 ;;
    *:llvm-symbolizer | *:lli) echo llvm ;;
    dnf:debuginfod) echo elfutils-debuginfod ;;
    dnf:debuginfod-find) echo elfutils-debuginfod-client ;;
    pacman:debuginfod* | apk:debuginfod*) echo debuginfod ;;
    zypper:debuginfod) echo elfutils-debuginfod ;;
    zypper:debuginfod-find) echo debuginfod-client ;;
    *:debuginfod-find) echo debuginfod ;;
    *:node) echo nodejs ;;
    apt:javac) echo default-jdk-headless ;;
    dnf:javac) echo java-latest-openjdk-devel ;;
    zypper:javac) echo java-21-openjdk-devel ;;
    pacman:javac) echo jdk-openjdk ;;
    apk:javac) echo openjdk21-jdk ;;
    *) echo "$2" ;;
    esac
}

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"
    elif [ -t 0 ]; then sudo "$@"
    else sudo -n "$@"; fi # nobody there to type a password
}

install_packages() {
    case $MANAGER in
    apt)
        # On a machine that has just started, another apt may be running: wait for it. Package lists may be old or missing.
        as_root env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 update -q >&2 || say "the package lists could not be renewed; trying with those at hand"
        as_root env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 install -y -q --no-install-recommends "$@" >&2
        ;;
    dnf) as_root dnf install -y "$@" >&2 ;;
    pacman) as_root pacman -S --needed --noconfirm "$@" >&2 ;;
    zypper) as_root zypper --non-interactive install "$@" >&2 ;;
    apk) as_root apk add "$@" >&2 ;;
    esac
}

install_missing() {
    lacking=$(missing)
    [ -n "$lacking" ] || return 0
    MANAGER=
    for candidate in apt-get:apt dnf:dnf pacman:pacman zypper:zypper apk:apk; do
        if have "${candidate%:*}"; then MANAGER=${candidate#*:}; break; fi
    done
    [ -n "$MANAGER" ] || fail "this machine lacks ${lacking% } and has none of apt, dnf, pacman, zypper, apk: install them by hand, then run make again"
    packages=
    for thing in $lacking; do packages="$packages $(package "$MANAGER" "$thing")"; done
    [ "$(id -u)" = 0 ] || have sudo || fail "this machine lacks ${lacking% }: as root, install$packages, then run make again"
    say "installing$packages"
    # shellcheck disable=SC2086 # package names, one word each
    install_packages $packages || fail "the packages could not be installed: install$packages by hand, then run make again"
    lacking=$(missing)
    [ -z "$lacking" ] || fail "still missing after installing$packages: ${lacking% } (clang must be $CLANG_OLDEST or newer, with the BPF target)"
}

check_rust() {
    needed=$(sed -n 's/^rust-version *= *"\(.*\)"/\1/p' Cargo.toml)
    remedy="install it with rustup, or with the distribution's package if that is new enough, then run make again"
    if ! have cargo || ! have rustc; then fail "flametop needs Rust $needed or newer and found none: $remedy"; fi
    found=$(rustc --version | cut -d' ' -f2)
    oldest=$(printf '%s\n%s\n' "$needed" "${found%%-*}" | sort -V | head -n 1)
    [ "$oldest" = "$needed" ] || fail "flametop needs Rust $needed or newer and found $found: $remedy"
}

check_rust_tools() {
    cargo fmt --version >/dev/null 2>&1 && cargo clippy --version >/dev/null 2>&1 && return 0
    have rustup && rustup component add rustfmt clippy >&2 && return 0
    fail "the tests need cargo fmt and cargo clippy: install the packages rustfmt and clippy (or rust-clippy), then run make again"
}

WANTED="cc clang make pkg-config libelf zlib"
case ${1:-} in
build) ;;
# gcc by name: the call chains of test programs were proved with it, and cc and c++ may be clang.
# musl-gcc and go build programs of tests/programs/truth. The other programs check names, saved files and scripts.
check | test | test-all | test-vm) WANTED="$WANTED gcc g++ libc.a musl-gcc go shellcheck readelf llvm-symbolizer lli dwz xz" ;;
clang)
    find_clang || fail "no clang of version $CLANG_OLDEST or newer with the BPF target: run scripts/setup.sh build"
    exit
    ;;
*) fail "usage: scripts/setup.sh build|check|test|test-all|test-vm|clang" ;;
esac
case $1 in test*) WANTED="$WANTED chromium node javac python3 perf debuginfod debuginfod-find" ;; esac
[ "$1" != test-all ] || WANTED="$WANTED gdb"
# Apt fetches kernels and the toolchain for arm64 from the mirror that the machine's own apt uses.
if [ "$1" = test-vm ]; then
    have apt-get || fail "tests/vm needs Debian's apt, for Debian's kernels"
    WANTED="$WANTED qemu-system-aarch64 qemu-system-x86_64 python3 zstd mmdebstrap debian-archive-keyring"
fi
install_missing
check_rust
[ "$1" = build ] || check_rust_tools
case $1 in test*) scripts/pythons.sh && scripts/nodes.sh && scripts/jdks.sh ;; esac
