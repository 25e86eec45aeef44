#!/bin/sh
# Installs flamelens, inferno and lightswitch under the given directory; flametop is measured beside them. If an installation fails, the figures of
# that program stay empty.
set -eu
root=$1
cargo=${CARGO:-cargo}

# install CRATE [PROGRAM]
install() {
    [ -x "$root/bin/${2:-$1}" ] && return
    "$cargo" install --locked --root "$root" "$1" || echo "$1 could not be installed: its figures stay empty" >&2
}

install flamelens
install inferno inferno-collapse-perf

# Its build runs the BPF compiler under the name `clang`, and links libelf and zlib statically.
[ -x "$root/bin/lightswitch" ] || {
    commands=$(mktemp -d)
    trap 'rm -rf "$commands"' EXIT
    ln -s "$(command -v "${CLANG:-clang}")" "$commands/clang"
    libraries=$(dirname "$(cc -print-file-name=libelf.a)")
    PATH=$commands:$PATH LIBBPF_SYS_LIBRARY_PATH=$libraries RUSTFLAGS="-L native=$libraries" install lightswitch
}
