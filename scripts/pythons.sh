#!/bin/sh
# Fetches programs for tests/python.rs, which also runs the interpreters of this machine, into target/pythons:
#
#   sid/, trixie/   Debian's CPython 3.15, 3.14 and 3.13, unpacked, each with its C library. That needs Debian's apt. The settings of apt and
#                   the packages of this machine do not change. Where it fails, sid.missing or trixie.missing says so.
#   py-spy/         a profiler of Python
#   greenlet-3.X/   the package greenlet for each interpreter of this machine that pip can install it for
#
# With arguments, it unpacks packages of Debian into a directory, and nothing else: scripts/pythons.sh unpack DIRECTORY SUITE ARCHITECTURE PACKAGE…
#
# It fetches nothing twice.
set -eu
cd "$(dirname "$0")/.."
into="${CARGO_TARGET_DIR:-$PWD/target}/pythons"
mkdir -p "$into"

say() { printf 'flametop: %s\n' "$*" >&2; }

# The packages of a suite.
packages() {
    echo libc6 libssl3t64 libexpat1 zlib1g libgcc-s1 libzstd1 libffi8
    case $1 in
    sid) versions="3.15 3.14" ;;
    trixie) versions="3.13" ;;
    esac
    for version in $versions; do
        echo "python$version-minimal" "libpython$version-minimal" "libpython$version-stdlib" "libpython$version"
    done
}

# Unpacks packages of a suite, from the mirror that the machine has its own packages from.
unpack() {
    into=$1 suite=$2 architecture=$3
    shift 3
    [ "$(cat "$into/.have" 2>/dev/null)" != "$*" ] || return 0
    # shellcheck disable=SC2016 # apt's own variable
    mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Component: main' | grep -v security | head -n 1)
    keys=/usr/share/keyrings/debian-archive-keyring.gpg
    rm -rf "${into:?}"
    mkdir -p "$into/apt/lists/partial" "$into/apt/archives/partial" "$into/apt/packages"
    echo "deb [signed-by=$keys] $mirror $suite main" >"$into/apt/sources.list"
    apt="apt-get -qq -o Dir::Etc::SourceList=$into/apt/sources.list -o Dir::Etc::SourceParts=/dev/null -o Dir::State=$into/apt"
    apt="$apt -o Dir::Etc::PreferencesParts=/dev/null -o Dir::State::status=/dev/null -o Dir::Cache=$into/apt"
    apt="$apt -o APT::Sandbox::User=root -o Acquire::Languages=none -o APT::Architecture=$architecture -o Acquire::Retries=3"
    $apt update
    (cd "$into/apt/packages" && $apt download "$@")
    for package in "$into"/apt/packages/*.deb; do dpkg-deb -x "$package" "$into"; done
    rm -rf "$into/apt"
    echo "$*" >"$into/.have"
}

# A separate call, so that the first command that fails ends it.
if [ "${1:-}" = unpack ]; then
    shift
    unpack "$@"
    exit
fi

for suite in sid trixie; do
    rm -f "$into/$suite.missing"
    # shellcheck disable=SC2046 # a list of words
    if command -v apt-get >/dev/null && [ "$(uname -m)" = x86_64 ] &&
        scripts/pythons.sh unpack "$into/$suite" "$suite" amd64 $(packages "$suite"); then
        continue
    fi
    rm -rf "${into:?}/$suite"
    echo "Debian's apt gives this machine no packages of $suite" >"$into/$suite.missing"
    say "NOT TESTED: Pythons of $suite: Debian's apt gives this machine no packages of it"
done

# A profiler to compare with, for `make bench ROW=languages`.
if [ ! -e "$into/py-spy/bin/py-spy" ]; then
    PIP_ROOT_USER_ACTION=ignore python3 -m pip install -qq --disable-pip-version-check --target "$into/py-spy" py-spy==0.4.1 ||
        say "pip cannot install py-spy"
fi

for python in python3 "$HOME"/.pyenv/versions/3.*/bin/python; do
    version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null) || continue
    if [ "$version" = 3.6 ] || [ -e "$into/greenlet-$version/greenlet" ]; then continue; fi
    PIP_ROOT_USER_ACTION=ignore "$python" -m pip install -qq --disable-pip-version-check --target "$into/greenlet-$version" greenlet==3.1.1 ||
        say "pip of $python cannot install greenlet"
done
