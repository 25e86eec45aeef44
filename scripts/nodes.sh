#!/bin/sh
# Fetches official builds of Node.js from npm. Where that fails, a file VERSION.missing says so. It fetches nothing twice.
#
#   scripts/nodes.sh                              those of tests/node.rs, into target/nodes/VERSION
#   scripts/nodes.sh PLACE PLATFORM VERSION…      into PLACE/VERSION
set -eu
cd "$(dirname "$0")/.."
if [ $# -eq 0 ]; then
    case $(uname -m) in
    x86_64) platform=linux-x64 ;;
    *) platform=linux-arm64 ;;
    esac
    set -- "${CARGO_TARGET_DIR:-$PWD/target}/nodes" "$platform" 16.20.2 18.20.8 20.20.2 22.23.5 24.22.3 26.12.1
fi
into=$1 platform=$2
shift 2
mkdir -p "$into"

for version; do
    [ ! -x "$into/$version/bin/node" ] || continue
    new=$(mktemp -d "$into/new.XXXXXX")
    if (cd "$new" && npm pack --silent "node-$platform@$version" && tar xzf ./*.tgz) >"$into/$version.missing" 2>&1; then
        mv "$new/package" "$into/$version"
        rm -f "$into/$version.missing"
    else
        printf 'flametop: no Node.js %s: %s\n' "$version" "$(tail -n 1 "$into/$version.missing")" >&2
    fi
    rm -rf "$new"
done
