#!/bin/sh
# Fetches official builds of Node.js from npm for tests/node.rs, into target/nodes/VERSION. Where that fails, target/nodes/VERSION.missing
# says so. It fetches nothing twice.
set -eu
cd "$(dirname "$0")/.."
into="${CARGO_TARGET_DIR:-$PWD/target}/nodes"
mkdir -p "$into"

case $(uname -m) in
x86_64) platform=linux-x64 ;;
*) platform=linux-arm64 ;;
esac

for version in 16.20.2 18.20.8 20.20.2 22.23.5 24.22.3 26.12.1; do
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
