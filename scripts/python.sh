#!/usr/bin/env bash
# python.sh wheel DIRECTORY: builds the Python package's wheel in DIRECTORY, which then has no other one.
# python.sh install: the same, and installs it into .venv.
#
# PROFILE=dev builds it as the tests need it: compiled quickly, not optimized. The wheel has the program with an HDF5 of
# its own, and the HDF5 file driver. Both are built in target/python, because crates that are compiled for one libhdf5 do
# not fit the other.
set -euo pipefail
cd "$(dirname "$0")/.."
package=crates/python
profile=${PROFILE:-release}
cargo=${CARGO:-cargo}
targets=$(realpath -m "${CARGO_TARGET_DIR:-target}")/python
built=$targets/${profile/%dev/debug}
# Debian's cmake is too old for the sources of HDF5.
export CMAKE=${CMAKE:-$PWD/.venv/bin/cmake}

# The newest version of the C library that any of the files asks for.
needed_libc() {
    objdump -T "$@" | grep -o 'GLIBC_2\.[0-9]*' | sort -uV | tail -n 1 | tr -d _GLIBC | tr . _
}

build_wheel() {
    local out=$1
    "$cargo" build --locked --profile "$profile" --target-dir "$targets" --features static-hdf5 --bin h5logfs
    "$cargo" build --locked --profile "$profile" --target-dir "$targets" -p h5logfs-driver
    install -D -m 755 "$built/h5logfs" $package/python/h5logfs/bin/h5logfs
    install -D -m 755 "$built/libh5logfs_driver.so" $package/python/h5logfs/plugins/libh5logfs_driver.so
    strip $package/python/h5logfs/bin/h5logfs $package/python/h5logfs/plugins/libh5logfs_driver.so
    rm -f "$out"/h5logfs-*.whl
    .venv/bin/maturin build --quiet --locked --profile "$profile" --target-dir "$targets" \
        --manifest-path $package/Cargo.toml --interpreter .venv/bin/python \
        --compatibility "manylinux_$(needed_libc "$built/h5logfs" "$built/libh5logfs_driver.so")" --out "$out"
}

case ${1:-} in
wheel) build_wheel "${2:?wheel needs a directory}" ;;
install)
    build_wheel "$targets/wheels"
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --force-reinstall \
        "$targets"/wheels/h5logfs-*.whl
    ;;
*)
    echo "usage: python.sh wheel DIRECTORY | install" >&2
    exit 2
    ;;
esac
