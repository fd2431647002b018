#!/usr/bin/env bash
# crate.sh NAME=VERSION: prints the directory of a crate, which cargo downloads if it is not there yet. Crates carry the sources of HDF5
# and netCDF-C.
set -euo pipefail
name=${1%=*} version=${1#*=}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
printf '%s\n' '[package]' 'name = "sources"' 'version = "0.0.0"' 'edition = "2021"' '[lib]' 'path = "lib.rs"' '[dependencies]' \
    "$name = \"=$version\"" >"$dir/Cargo.toml"
touch "$dir/lib.rs"
metadata=(cargo metadata --quiet --format-version 1 --manifest-path "$dir/Cargo.toml")
{ "${metadata[@]}" --offline 2>/dev/null || "${metadata[@]}"; } | python3 -c '
import json, os, sys
packages = json.load(sys.stdin)["packages"]
manifest = next(p["manifest_path"] for p in packages if p["name"] == sys.argv[1])
print(os.path.dirname(manifest))
' "$name"
