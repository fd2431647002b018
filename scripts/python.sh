#!/usr/bin/env bash
# python.sh wheel DIRECTORY: builds the wheel of the Python package in DIRECTORY, which then has no other one.
# python.sh install: builds it, and installs it into .venv.
# python.sh test [ARGUMENTS]: builds it, and tests it with pytest from a new virtual environment, in which only this wheel
# is installed; what it reads with comes from .venv, and what runs the notebook from .venv-notebook, if that is there.
#
# PROFILE=dev builds quickly, without optimization. The wheel has the program with an HDF5 of its own, and the plug-ins of
# HDF5: the file driver and the VOL connector. A build for release takes what `make build` has built. Any other one is in
# target/python, because the programs of the tests, in target/debug, are linked to the libhdf5 of the system.
set -euo pipefail
cd "$(dirname "$0")/.."
package=crates/python
profile=${PROFILE:-release}
cargo=${CARGO:-cargo}
targets=$(realpath -m "${CARGO_TARGET_DIR:-target}")
wheels=$targets/python/wheels
[ "$profile" = release ] || targets=$targets/python
built=$targets/${profile/%dev/debug}
CMAKE=$(scripts/cmake.sh)
export CMAKE

# The newest version of the C library that one of these files asks for, as 2_34.
needed_libc() {
    objdump -T "$@" | grep -o 'GLIBC_2\.[0-9]*' | sort -uV | tail -n 1 | sed 's/GLIBC_//; s/\./_/'
}

# The directory with the sources of a crate.
sources_of() {
    "$cargo" metadata --locked --format-version 1 --features static-hdf5 | .venv/bin/python -c '
import json, pathlib, sys
packages = json.load(sys.stdin)["packages"]
print(next(pathlib.Path(p["manifest_path"]).parent for p in packages if p["name"] == sys.argv[1]))' "$1"
}

# The licences of what the wheel has in it.
collect_licenses() {
    rm -rf $package/licenses
    install -D -m 644 -t $package/licenses LICENSE LICENSE-MIT LICENSE-APACHE
    install -m 644 "$(sources_of hdf5-metno-src)/ext/hdf5/LICENSE" $package/licenses/LICENSE-HDF5
    install -m 644 "$(sources_of libz-sys)/src/zlib/LICENSE" $package/licenses/LICENSE-zlib
}

# Two of these at once would pack each other's files.
build_wheel() {
    local out=$1 inside=$package/python/h5logfs
    mkdir -p "$targets" "$out"
    exec 9>"$targets/wheel.lock"
    flock 9
    "$cargo" build --locked --profile "$profile" --target-dir "$targets" --features static-hdf5 --bin h5logfs
    # maturin finds the native module built. With the driver alone, what both need would be compiled twice.
    "$cargo" build --locked --profile "$profile" --target-dir "$targets" \
        -p h5logfs-plugin-driver -p h5logfs-plugin-connector -p h5logfs-python
    install -D -m 755 "$built/h5logfs" $inside/bin/h5logfs
    install -D -m 755 -t $inside/plugins "$built/libh5logfs_driver.so" "$built/libh5logfs_connector.so"
    strip $inside/bin/h5logfs $inside/plugins/*.so
    collect_licenses
    rm -f "$out"/h5logfs-*.whl
    .venv/bin/maturin build --quiet --locked --profile "$profile" --target-dir "$targets" \
        --manifest-path $package/Cargo.toml --interpreter .venv/bin/python \
        --compatibility "manylinux_$(needed_libc "$built/h5logfs" $inside/plugins/*.so)" --out "$out"
    exec 9>&-
}

install_wheel() {
    .venv/bin/python -m pip --python "$1" install --quiet --disable-pip-version-check --no-index --no-deps \
        --force-reinstall "$2"/h5logfs-*.whl
}

run_tests() {
    local work
    work=$(mktemp -d)
    trap "rm -rf '$work'" EXIT
    build_wheel "$work"
    /usr/bin/python3 -m venv --without-pip "$work/venv"
    install_wheel "$work/venv/bin/python" "$work"
    # The new environment comes first, so its package hides one that is installed in .venv.
    local readers=(.venv/lib/python3*/site-packages)
    [ ! -d .venv-notebook ] || readers+=(.venv-notebook/lib/python3*/site-packages)
    realpath "${readers[@]}" >"$(echo "$work"/venv/lib/python3*/site-packages)/readers.pth"
    "$work/venv/bin/python" -m pytest -c $package/pyproject.toml --rootdir $package "$@" $package/tests
}

case ${1:-} in
wheel) build_wheel "${2:?wheel needs a directory}" ;;
install)
    build_wheel "$wheels"
    install_wheel .venv/bin/python "$wheels"
    ;;
test) run_tests "${@:2}" ;;
*)
    echo "usage: python.sh wheel DIRECTORY | install | test [ARGUMENTS]" >&2
    exit 2
    ;;
esac
