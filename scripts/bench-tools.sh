#!/bin/sh
# Installs what flametop is measured beside, under the directory given: flamelens and lightswitch. What cannot be installed is left
# out, and its figures stay empty.
set -eu
root=$1
cargo=${CARGO:-cargo}

install() {
    [ -x "$root/bin/$1" ] && return
    "$cargo" install --locked --root "$root" "$1" || echo "$1 could not be installed: its figures stay empty" >&2
}

install flamelens

# It calls the compiler of BPF `clang`, and links libelf and zlib statically.
[ -x "$root/bin/lightswitch" ] || {
    commands=$(mktemp -d)
    trap 'rm -rf "$commands"' EXIT
    ln -s "$(command -v "${CLANG:-clang}")" "$commands/clang"
    libraries=$(dirname "$(cc -print-file-name=libelf.a)")
    PATH=$commands:$PATH LIBBPF_SYS_LIBRARY_PATH=$libraries RUSTFLAGS="-L native=$libraries" install lightswitch
}
