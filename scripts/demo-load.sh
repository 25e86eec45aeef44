#!/bin/bash
# Keeps this machine busy for a few seconds with work whose names are worth looking at, for the picture in README.md.
#
#   scripts/demo-load.sh [SECONDS [LATE]]     one of the programs begins LATE seconds after the others
#
# A small shop with its customers (scripts/demo-shop.cpp), and beside it, nicer, programs that the tests build anyway and those of
# every Debian: what the picture shows can be had again anywhere.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-20}
late=${2:-0}
programs=$(mktemp -d)
workers=()
cleanup() {
    for worker in "${workers[@]}"; do kill "$worker" 2>/dev/null || true; done
    rm -rf "$programs"
}
trap cleanup EXIT
trap 'exit 0' INT TERM HUP

# The picture shows files and lines: not where this copy of the sources lies.
flags=(-O1 -g -fno-omit-frame-pointer -fno-optimize-sibling-calls -pthread "-ffile-prefix-map=$PWD=/flametop")
g++ "${flags[@]}" -static -o "$programs/shop" scripts/demo-shop.cpp
g++ "${flags[@]}" -o "$programs/names" tests/programs/names.cpp
rustc --edition=2024 -C opt-level=1 -C force-frame-pointers=yes --remap-path-prefix "$PWD=/flametop" -o "$programs/rusty" tests/programs/rusty.rs 2>/dev/null

# Longer than needed, so that they end when told to: bash reports those that end by their own alarm.
"$programs/shop" "$((seconds + 5))" &
workers+=($!)
for name in names rusty; do
    wait=0
    if [ "$name" = rusty ]; then wait=$late; fi
    (sleep "$wait" && exec nice -n 8 "$programs/$name" "$((seconds + 5))" >/dev/null) &
    workers+=($!)
done
(
    # Compression and sorting: libraries of the distribution, without frame pointers, as on any real machine.
    end=$((SECONDS + seconds))
    while ((SECONDS < end)); do
        seq 400000 | nice -n 8 sort -R | nice -n 8 gzip -9 | sha256sum >/dev/null
    done
) &
workers+=($!)
# Waited for, not run: bash would see a signal only after it.
sleep "$seconds" &
workers+=($!)
wait "$!" || true
