#!/bin/bash
# Makes the picture in README.md: the real program, looking at scripts/demo-load.sh, drawn by examples/screenshot.rs.
#
#   scripts/picture.sh FLAMETOP OUT.svg
set -euo pipefail
cd "$(dirname "$0")/.."
flametop=$(realpath "$1")
picture=$2

cargo build --release --locked --example screenshot
scripts/demo-load.sh 25 &
load=$!
trap 'kill "$load" 2>/dev/null || true' EXIT

as_root=()
if [ "$(id -u)" != 0 ]; then as_root=(sudo --); fi
"${as_root[@]}" "${CARGO_TARGET_DIR:-target}/release/examples/screenshot" --rows 36 --cols 132 --title flametop \
    --wait 12s --keys "${PICTURE_KEYS:-Down Down Down Down Down}" --settle 2s --output "$picture.new" -- "$flametop" --color true
mv -f "$picture.new" "$picture"
