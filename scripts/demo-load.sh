#!/bin/bash
# Keeps this machine busy for a few seconds with work whose names are worth looking at, for the picture in README.md.
#
#   scripts/demo-load.sh [SECONDS]
#
# Only programs that the tests build anyway and those of every Debian: what the picture shows can be had again anywhere.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-20}
programs=$(mktemp -d)
workers=()
cleanup() {
    for worker in "${workers[@]}"; do kill "$worker" 2>/dev/null || true; done
    rm -rf "$programs"
}
trap cleanup EXIT
trap 'exit 0' INT TERM HUP

flags=(-O1 -g -fno-omit-frame-pointer -pthread)
gcc "${flags[@]}" -o "$programs/threads" tests/programs/threads.c
gcc "${flags[@]}" -o "$programs/forks" tests/programs/forks.c
gcc "${flags[@]}" -o "$programs/syscalls" tests/programs/syscalls.c
g++ "${flags[@]}" -o "$programs/names" tests/programs/names.cpp
rustc --edition=2024 -C opt-level=1 -C force-frame-pointers=yes -o "$programs/rusty" tests/programs/rusty.rs 2>/dev/null

for name in threads forks syscalls names rusty; do
    # Longer than needed, so that they end when told to: bash reports those that end by their own alarm.
    # The second number is for forks only: children a second, few enough to leave the others room in the picture.
    "$programs/$name" "$((seconds + 5))" 6 >/dev/null &
    workers+=($!)
done
(
    # Compression and sorting: libraries of the distribution, without frame pointers, as on any real machine.
    end=$((SECONDS + seconds))
    while ((SECONDS < end)); do
        seq 400000 | sort -R | gzip -9 | sha256sum >/dev/null
    done
) &
workers+=($!)
# Waited for, not run: bash would see a signal only after it.
sleep "$seconds" &
workers+=($!)
wait "$!" || true
