#!/usr/bin/env bash
# python.sh wheel DIRECTORY: builds the wheel of the Python package in DIRECTORY, which then has no other one.
# python.sh install: builds it, and installs it into .venv.
# python.sh portable [ARCHITECTURE]: builds the wheel for any Linux with the C library of `make dist`, in target/dist, of the
# program and the plug-ins that scripts/dist.sh builds for x86_64 or aarch64. auditwheel tells whether PyPI would take it as such.
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
dist=$targets/dist
wheels=$targets/python/wheels
inside=$package/python/h5logfs
# The C library of scripts/dist.sh, by the name that wheels give it.
portable=manylinux_2_28
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
lock_package() {
    mkdir -p "$targets"
    exec 9>"$targets/wheel.lock"
    flock 9
}

# What the wheel has in it besides what maturin finds: from a directory of what was built.
collect() {
    install -D -m 755 "$1/h5logfs" $inside/bin/h5logfs
    install -D -m 755 -t $inside/plugins "$1/libh5logfs_driver.so" "$1/libh5logfs_connector.so"
    collect_licenses
}

# pack DIRECTORY ARGUMENTS: a wheel of what was collected.
pack() {
    .venv/bin/maturin build --quiet --locked --profile "$profile" --manifest-path $package/Cargo.toml --out "$@"
}

build_wheel() {
    local out=$1
    mkdir -p "$out"
    lock_package
    "$cargo" build --locked --profile "$profile" --target-dir "$targets" --features static-hdf5 --bin h5logfs
    # maturin finds the native module built. With the driver alone, what both need would be compiled twice.
    "$cargo" build --locked --profile "$profile" --target-dir "$targets" \
        -p h5logfs-plugin-driver -p h5logfs-plugin-connector -p h5logfs-python
    collect "$built"
    strip $inside/bin/h5logfs $inside/plugins/*.so
    rm -f "$out"/h5logfs-*.whl
    pack "$out" --target-dir "$targets" --interpreter .venv/bin/python \
        --compatibility "manylinux_$(needed_libc "$built/h5logfs" $inside/plugins/*.so)"
    exec 9>&-
}

build_portable() {
    local architecture=$1 wheel
    local target=$architecture-unknown-linux-gnu
    scripts/dist.sh build "$architecture"
    lock_package
    # Where others are built, this has been stripped.
    collect "$(realpath -m "${CARGO_TARGET_DIR:-target}")/$target/${profile/%dev/debug}"
    rm -f "$dist"/h5logfs-*"_$architecture.whl"
    # maturin has a compiler of its own around that of zig. In the directory of dist.sh each would have all compiled again for the other.
    PATH="$PWD/.venv-dist/bin:$PATH" pack "$dist" --target-dir "${targets%/python}/python" --zig --target "$target" --compatibility $portable
    exec 9>&-
    wheel=$(ls "$dist"/h5logfs-*"-${portable}_$architecture.whl")
    check_portable "$wheel"
    echo "$wheel"
}

# Fails where auditwheel finds that a wheel needs a newer C library than its name says, or others.
check_portable() {
    local found tag
    # Its text is broken into lines.
    found=$(.venv-dist/bin/auditwheel show "$1" | tr -s '[:space:]' ' ')
    tag=$(sed -n 's/.*consistent with the following platform tag: "\(manylinux_2_[0-9]*\)_.*/\1/p' <<<"$found")
    if [ -z "$tag" ] || ! printf '%s\n' "$tag" $portable | sort -CV; then
        printf 'python.sh: %s is no wheel for %s: %s\n' "$1" $portable "$found" >&2
        exit 1
    fi
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
portable) build_portable "${2:-$(uname -m)}" ;;
test) run_tests "${@:2}" ;;
*)
    echo "usage: python.sh wheel DIRECTORY | install | portable [ARCHITECTURE] | test [ARGUMENTS]" >&2
    exit 2
    ;;
esac
