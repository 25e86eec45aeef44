#!/bin/bash
# Keeps this machine busy for a few seconds, for the picture in README.md. The work has instructive function names.
#
#   scripts/demo-load.sh [SECONDS [LATE]]     one of the programs begins LATE seconds after the others
#
# It runs a small shop with its customers (scripts/demo-shop.cpp). At a higher nice value it runs programs that the tests build anyway
# and programs of every Debian. So the picture can be reproduced anywhere.
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

# The picture shows files and lines, so the path of this copy of the sources is replaced.
flags=(-O1 -g -fno-omit-frame-pointer -fno-optimize-sibling-calls -pthread "-ffile-prefix-map=$PWD=/flametop")
g++ "${flags[@]}" -static -o "$programs/shop" scripts/demo-shop.cpp
g++ "${flags[@]}" -o "$programs/names" tests/programs/names.cpp
rustc --edition=2024 -C opt-level=1 -C force-frame-pointers=yes --remap-path-prefix "$PWD=/flametop" -o "$programs/rusty" tests/programs/rusty.rs 2>/dev/null

# Programs get more time than needed, so that the script ends them: bash prints a message if a program ends by its alarm.
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
# In the background: bash handles a signal during `wait`, but not during a command in the foreground.
sleep "$seconds" &
workers+=($!)
wait "$!" || true
