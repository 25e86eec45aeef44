#!/bin/bash
# Makes the pictures in README.md: the real program, drawn by examples/screenshot.rs.
#
#   scripts/picture.sh FLAMETOP OUT.svg [python3 SCRIPT]     shows SCRIPT, which it starts, or else scripts/demo-load.sh
set -euo pipefail
cd "$(dirname "$0")/.."
flametop=$(realpath "$1")
picture=$2
shift 2

cargo build --release --locked --example screenshot
if [ $# -gt 0 ]; then
    # The picture shows files, so the script runs from another path than this copy of the sources.
    copy=$(mktemp -d)
    trap 'rm -rf "$copy"' EXIT
    cp "$2" "$copy/shop.py"
    set -- -- "$1" "$copy/shop.py"
else
    # Under this load, groups of equal weight were seen to wait for seconds (Linux 6.18 with autogroups).
    setsid bash -c 'echo 19 2>/dev/null >/proc/self/autogroup || true; exec "$@"' load scripts/demo-load.sh 40 "${PICTURE_LATE:-0}" &
    load=$!
    # Wait until the compilers are done.
    sleep 6
    trap 'kill "$load" 2>/dev/null || true' EXIT
fi

as_root=()
if [ "$(id -u)" != 0 ]; then as_root=(sudo --); fi
"${as_root[@]}" "${CARGO_TARGET_DIR:-target}/release/examples/screenshot" --rows 36 --cols 132 --title flametop \
    --wait "${PICTURE_WAIT:-12s}" --keys "${PICTURE_KEYS:-Down Down Down Down Down}" --settle 2s --output "$picture.new" -- "$flametop" --color true "$@"
mv -f "$picture.new" "$picture"
