#!/usr/bin/env bash
# hdf5-tests.sh: builds the tests that come with HDF5 1.14, for one process and for MPI programs, and prints the directory they
# are in. This takes about ten minutes, once: the result is kept in the user's cache directory. `make test-hdf5` runs them.
# MPICC names the compiler of another MPI than the usual one, such as mpicc.mpich, as for the crate of MPI.
set -euo pipefail
cd "$(dirname "$0")/.."

mpicc=${MPICC:-mpicc}
# Assertions are checked: they tell what a plug-in does that HDF5 does not expect.
options=(
    -DCMAKE_BUILD_TYPE=None
    "-DCMAKE_C_FLAGS=-O1 -w"
    -DBUILD_SHARED_LIBS=ON
    -DBUILD_STATIC_LIBS=OFF
    -DBUILD_TESTING=ON
    -DHDF5_TEST_API=ON
    -DHDF5_TEST_API_ENABLE_ASYNC=ON
    -DHDF5_ENABLE_Z_LIB_SUPPORT=ON
    -DHDF5_ENABLE_SZIP_SUPPORT=OFF
    -DHDF5_BUILD_TOOLS=OFF
    -DHDF5_BUILD_UTILS=OFF
    -DHDF5_BUILD_HL_LIB=OFF
    -DHDF5_BUILD_CPP_LIB=OFF
    -DHDF5_BUILD_EXAMPLES=OFF
    -DHDF5_NO_PACKAGES=ON
)
serial=(-DHDF5_ENABLE_THREADSAFE=ON)
parallel=("-DCMAKE_C_COMPILER=$mpicc" -DHDF5_ENABLE_PARALLEL=ON)
fail() {
    printf 'hdf5-tests: %s\n' "$@" >&2
    exit 1
}

for program in cmake make "$mpicc"; do
    command -v "$program" >/dev/null || fail "$program is not there: scripts/setup.sh test installs it"
done
archive=$(scripts/hdf5-source.sh)

# Another MPI, compiler or version needs another build.
state=$(printf '%s\n' "${options[@]}" "${serial[@]}" "${parallel[@]}" && cat scripts/hdf5-tests-source.sh && sha256sum <"$archive" &&
    "$mpicc" -show && "$mpicc" --version)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/h5logfs-tests
dir=$cache/hdf5-tests-$(printf %s "$state" | sha256sum | cut -c 1-16)

# Shows the end of what a step said if it fails.
step() {
    "$@" >"$dir/said" 2>&1 || {
        tail -n 20 "$dir/said" >&2
        fail "this has failed: $*"
    }
}

# build NAME DIRECTORY... [-- OPTION...]: builds what these directories of the sources name.
build() {
    local name=$1 directories=()
    shift
    while [ "$1" != -- ]; do
        directories+=("$1")
        shift
    done
    shift
    step cmake -S "$dir/source" -B "$dir/$name" -G 'Unix Makefiles' "${options[@]}" "$@"
    local directory
    for directory in "${directories[@]}"; do
        step make --no-print-directory -j "$(nproc)" -C "$dir/$name/$directory"
    done
}

mkdir -p "$dir"
exec 9>"$dir/lock"
flock 9
if [ ! -e "$dir/done" ]; then
    echo "hdf5-tests: building the tests of HDF5 1.14, which takes about ten minutes" >&2
    scripts/hdf5-tests-source.sh "$dir/source"
    build serial test -- "${serial[@]}"
    build parallel testpar -- "${parallel[@]}"
    touch "$dir/done"
fi
printf '%s\n' "$dir"
