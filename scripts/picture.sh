#!/bin/bash
# Makes the pictures in README.md: the real program, drawn by examples/screenshot.rs.
#
#   scripts/picture.sh FLAMETOP OUT.svg [python3 SCRIPT]     looking at a script that it starts, or at scripts/demo-load.sh
set -euo pipefail
cd "$(dirname "$0")/.."
flametop=$(realpath "$1")
picture=$2
shift 2

cargo build --release --locked --example screenshot
if [ $# -gt 0 ]; then
    # The picture shows files: not where this copy of the sources lies.
    copy=$(mktemp -d)
    trap 'rm -rf "$copy"' EXIT
    cp "$2" "$copy/shop.py"
    set -- -- "$1" "$copy/shop.py"
else
    # Groups of equal weight have been seen to wait for seconds beside this load (Linux 6.18 with autogroups).
    setsid bash -c 'echo 19 2>/dev/null >/proc/self/autogroup || true; exec "$@"' load scripts/demo-load.sh 40 "${PICTURE_LATE:-0}" &
    load=$!
    # The compilers are done.
    sleep 6
    trap 'kill "$load" 2>/dev/null || true' EXIT
fi

as_root=()
if [ "$(id -u)" != 0 ]; then as_root=(sudo --); fi
"${as_root[@]}" "${CARGO_TARGET_DIR:-target}/release/examples/screenshot" --rows 36 --cols 132 --title flametop \
    --wait "${PICTURE_WAIT:-12s}" --keys "${PICTURE_KEYS:-Down Down Down Down Down}" --settle 2s --output "$picture.new" -- "$flametop" --color true "$@"
mv -f "$picture.new" "$picture"
