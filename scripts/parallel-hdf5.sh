#!/usr/bin/env bash
# parallel-hdf5.sh: builds HDF5 1.14 for MPI programs, which Debian 12 does not have, with its driver for subfiling, its
# Fortran modules and netCDF-C, and prints the directory they are in. It takes about two minutes, once: the result is kept
# in the user's cache directory. Tests link programs to it.
# parallel-hdf5.sh directory: prints that directory without building anything; it may not exist.
# parallel-hdf5.sh bare [directory]: the same for HDF5 alone, as most parallel programs have it: not safe for threads, so
# that its functions take no locks. This takes about half a minute.
# MPICC names the compiler of another MPI than the usual one, such as mpicc.mpich, as for the crate of MPI.
set -euo pipefail
cd "$(dirname "$0")/.."

# The crates carry the sources. This is the last version with HDF5 1.14; later ones have HDF5 2.
hdf5=hdf5-metno-src=0.9.5
netcdf=netcdf-src=0.5.3
mpicc=${MPICC:-mpicc}
mpif90=${mpicc%mpicc*}mpif90${mpicc##*mpicc}
# What the tests need, and nothing that takes long to compile.
options=(
    "-DCMAKE_C_COMPILER=$mpicc"
    -DCMAKE_BUILD_TYPE=None
    "-DCMAKE_C_FLAGS=-O2 -w -DNDEBUG"
    -DHDF5_ENABLE_PARALLEL=ON
    -DHDF5_ENABLE_THREADSAFE=ON
    -DHDF5_ENABLE_Z_LIB_SUPPORT=ON
    -DHDF5_ENABLE_SZIP_SUPPORT=OFF
    -DBUILD_SHARED_LIBS=ON
    -DBUILD_STATIC_LIBS=OFF
    -DBUILD_TESTING=OFF
    -DHDF5_BUILD_TOOLS=OFF
    -DHDF5_BUILD_UTILS=OFF
    -DHDF5_BUILD_HL_LIB=ON
    -DHDF5_BUILD_CPP_LIB=OFF
    -DHDF5_NO_PACKAGES=ON
)
# HDF5 does not promise that Fortran and threads go together.
fortran_options=(
    -DHDF5_BUILD_FORTRAN=ON
    -DALLOW_UNSUPPORTED=ON
    "-DCMAKE_Fortran_COMPILER=$mpif90"
    "-DCMAKE_Fortran_FLAGS=-O2 -w"
)
netcdf_options=(
    "-DCMAKE_C_COMPILER=$mpicc"
    -DCMAKE_BUILD_TYPE=None
    "-DCMAKE_C_FLAGS=-O2 -w -DNDEBUG"
    -DBUILD_SHARED_LIBS=ON
    -DNETCDF_ENABLE_PARALLEL4=ON
    -DNETCDF_BUILD_UTILITIES=OFF
    -DNETCDF_ENABLE_EXAMPLES=OFF
    -DNETCDF_ENABLE_TESTS=OFF
    -DNETCDF_ENABLE_FILTER_TESTING=OFF
    -DNETCDF_ENABLE_PARALLEL_TESTS=OFF
    -DNETCDF_ENABLE_PLUGINS=OFF
    -DNETCDF_ENABLE_DAP=OFF
    -DNETCDF_ENABLE_BYTERANGE=OFF
    -DNETCDF_ENABLE_NCZARR=OFF
    -DNETCDF_ENABLE_S3=OFF
    -DNETCDF_ENABLE_LIBXML2=OFF
)

fail() {
    printf 'parallel-hdf5: %s\n' "$@" >&2
    exit 1
}

is_bare=
if [ "${1:-}" = bare ]; then
    is_bare=yes
    options+=(-DHDF5_ENABLE_THREADSAFE=OFF)
    shift
else
    options+=(-DHDF5_ENABLE_SUBFILING_VFD=ON)
fi

for program in cargo cmake make "$mpicc" python3; do
    command -v "$program" >/dev/null || fail "$program is not there: scripts/setup.sh bench-mpi installs it"
done

compilers() {
    "$mpicc" -show && "$mpicc" --version
    "$mpif90" -show && "$mpif90" --version
}

# Another MPI or compiler needs another build.
state=$(printf '%s\n' "$hdf5" "$netcdf" "${options[@]}" "${fortran_options[@]}" "${netcdf_options[@]}" &&
    { compilers 2>/dev/null || true; })
cache=${XDG_CACHE_HOME:-$HOME/.cache}/h5logfs-tests
prefix=$cache/hdf5-1.14-$(printf %s "$state" | sha256sum | cut -c 1-16)
if [ "${1:-}" = directory ] || [ -d "$prefix" ]; then
    printf '%s\n' "$prefix"
    exit
fi

# Adds HDF5's Fortran modules to the sources of HDF5.
add_fortran() {
    local archive
    archive=$(scripts/hdf5-source.sh) || return 1
    tar -x -z -f "$archive" -C "$1" --strip-components=1 --wildcards '*/fortran'
}

# Shows the end of what a step said if it fails.
step() {
    "$@" >"$work/said" 2>&1 || {
        tail -n 20 "$work/said" >&2
        fail "this has failed: $*"
    }
}

# Builds what lies in a directory, and puts it below $work/root.
build() {
    local source=$1
    shift
    step cmake -S "$source" -B "$source/build" "$@" -DCMAKE_INSTALL_PREFIX="$prefix"
    step cmake --build "$source/build" --parallel "$(nproc)"
    DESTDIR=$work/root step cmake --install "$source/build"
}

build_hdf5() {
    local from
    from=$(scripts/crate.sh "$hdf5") || fail "cargo cannot get $hdf5"
    cp -R "$from/ext/hdf5" "$work/hdf5"
    if [ -n "$is_bare" ]; then
        :
    elif command -v gfortran >/dev/null && add_fortran "$work/hdf5"; then
        options+=("${fortran_options[@]}")
    else
        echo "parallel-hdf5: without Fortran: gfortran, or the sources of HDF5's Fortran modules, cannot be had" >&2
    fi
    build "$work/hdf5" "${options[@]}"
}

build_netcdf() {
    local from
    from=$(scripts/crate.sh "$netcdf") || fail "cargo cannot get $netcdf"
    cp -R "$from/source" "$work/netcdf"
    # The crate has no tests, but they are configured.
    mkdir -p "$work/netcdf/h5_test"
    touch "$work/netcdf/h5_test/run_par_tests.sh.in"
    build "$work/netcdf" "${netcdf_options[@]}" -DCMAKE_PREFIX_PATH="$work/root$prefix" -DHDF5_ROOT="$work/root$prefix"
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
    echo "parallel-hdf5: building HDF5 1.14 with MPI, which takes about two minutes, or half a minute without netCDF" >&2
    build_hdf5
    [ -n "$is_bare" ] || build_netcdf
    mv "$work/root$prefix" "$prefix"
fi
printf '%s\n' "$prefix"
