#!/usr/bin/env bash
# parallel-hdf5.sh: builds HDF5 1.14 for MPI programs, which Debian 12 does not have, and prints the directory it is in.
# It takes about a minute, once: the result is kept in the user's cache directory. Tests link programs to it.
# parallel-hdf5.sh directory: prints that directory without building anything; it may not exist.
set -euo pipefail
cd "$(dirname "$0")/.."

# The crate carries the sources. This is its last version with HDF5 1.14; later ones have HDF5 2.
crate=hdf5-metno-src
crate_version=0.9.5
# What the tests need, and nothing that takes long to compile.
options=(
    -DCMAKE_C_COMPILER=mpicc
    -DCMAKE_BUILD_TYPE=None
    "-DCMAKE_C_FLAGS=-O1 -w"
    -DHDF5_ENABLE_PARALLEL=ON
    -DHDF5_ENABLE_THREADSAFE=ON
    -DHDF5_ENABLE_Z_LIB_SUPPORT=ON
    -DHDF5_ENABLE_SZIP_SUPPORT=OFF
    -DBUILD_SHARED_LIBS=ON
    -DBUILD_STATIC_LIBS=OFF
    -DBUILD_TESTING=OFF
    -DHDF5_BUILD_TOOLS=OFF
    -DHDF5_BUILD_UTILS=OFF
    -DHDF5_BUILD_HL_LIB=OFF
    -DHDF5_BUILD_CPP_LIB=OFF
    -DHDF5_BUILD_FORTRAN=OFF
    -DHDF5_NO_PACKAGES=ON
)

fail() {
    printf 'parallel-hdf5: %s\n' "$@" >&2
    exit 1
}

for program in cargo cmake make mpicc python3; do
    command -v "$program" >/dev/null || fail "$program is not there"
done

# Another MPI or compiler needs another build.
state=$(printf '%s\n' "$crate_version" "${options[@]}" && mpicc -show && mpicc --version)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/h5logfs-tests
prefix=$cache/hdf5-1.14-$(printf %s "$state" | sha256sum | cut -c 1-16)
if [ "${1:-}" = directory ] || [ -d "$prefix" ]; then
    printf '%s\n' "$prefix"
    exit
fi

# Prints the directory of the sources. Cargo downloads the crate if it is not there yet.
sources() {
    mkdir "$work/crate"
    printf '%s\n' '[package]' 'name = "sources"' 'version = "0.0.0"' 'edition = "2021"' '[lib]' 'path = "lib.rs"' \
        '[dependencies]' "$crate = \"=$crate_version\"" >"$work/crate/Cargo.toml"
    touch "$work/crate/lib.rs"
    local metadata=(cargo metadata --quiet --format-version 1 --manifest-path "$work/crate/Cargo.toml")
    { "${metadata[@]}" --offline 2>/dev/null || "${metadata[@]}"; } | python3 -c '
import json, os, sys
packages = json.load(sys.stdin)["packages"]
manifest = next(p["manifest_path"] for p in packages if p["name"] == sys.argv[1])
print(os.path.join(os.path.dirname(manifest), "ext/hdf5"))
' "$crate"
}

# Shows the end of what a step said if it fails.
step() {
    "$@" >"$work/said" 2>&1 || {
        tail -n 20 "$work/said" >&2
        fail "this has failed: $*"
    }
}

mkdir -p "$cache"
exec 9>"$prefix.lock"
flock 9
if [ ! -d "$prefix" ]; then
    # The lock is ours, so what lies here is of a build that was ended.
    work=$prefix.partial
    rm -rf "$work"
    mkdir "$work"
    trap 'rm -rf "$work"' EXIT
    source=$(sources) || fail "cargo cannot get $crate $crate_version"
    echo "parallel-hdf5: building HDF5 1.14 with MPI, which takes about a minute" >&2
    step cmake -S "$source" -B "$work/build" "${options[@]}" -DCMAKE_INSTALL_PREFIX="$prefix"
    step cmake --build "$work/build" --parallel "$(nproc)"
    DESTDIR=$work/root step cmake --install "$work/build"
    mv "$work/root$prefix" "$prefix"
fi
printf '%s\n' "$prefix"
