#!/usr/bin/env bash
# fuzz.sh [TARGET...]: runs all fuzz targets, or those that are named, for FUZZ_SECONDS (60) each, and prints how many
# inputs each was given. An input that makes a target fail is left in fuzz/artifacts. Once the fault is fixed, move it
# to fuzz/regressions/TARGET, where `make test` runs it. FUZZ_SANITIZER=address needs a nightly toolchain
# (FUZZ_TOOLCHAIN=nightly); the default, none, needs no more than the build does.
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=${FUZZ_SECONDS:-60}
sanitizer=${FUZZ_SANITIZER:-none}
cargo=${CARGO:-cargo}
toolchain=${FUZZ_TOOLCHAIN:+"+$FUZZ_TOOLCHAIN"}

if ! "$cargo" fuzz --version >/dev/null 2>&1; then
    echo "fuzz.sh: cargo-fuzz is missing: it is installed from crates.io"
    "$cargo" install cargo-fuzz --locked
fi

# The targets in the manifest.
mapfile -t targets < <("$cargo" fuzz list)
if [ $# -gt 0 ]; then
    targets=("$@")
fi

# shellcheck disable=SC2086 # an empty toolchain is no argument
"$cargo" $toolchain fuzz build --sanitizer "$sanitizer"

report=$(mktemp)
trap 'rm -f "$report"' EXIT
failed=0
for target in "${targets[@]}"; do
    echo "== $target: $seconds s"
    # The code bounds memory and time by far less than these limits, whatever an input asks for.
    # shellcheck disable=SC2086
    if "$cargo" $toolchain fuzz run --sanitizer "$sanitizer" "$target" -- \
        -max_total_time="$seconds" -timeout=10 -rss_limit_mb=1024 -malloc_limit_mb=256 \
        -max_len=16384 -len_control=20 -print_final_stats=1 >"$report" 2>&1; then
        outcome=good
    else
        outcome=FAILED
        failed=1
        tail -n 60 "$report"
    fi
    runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$report")
    peak=$(sed -n 's/^stat::peak_rss_mb: *//p' "$report")
    echo "$target: $outcome, ${runs:-?} executions, ${peak:-?} MiB at most"
done
exit "$failed"
