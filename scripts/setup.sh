#!/usr/bin/env bash
# setup.sh PURPOSE: installs what one purpose needs.
#
# build: a build. build-system-hdf5: one with the libhdf5 of the system. mpi: a build with the writer. python: the Python package. bench: the benchmark of reading. bench-mpi: the
# benchmarks of writing, which compile HDF5. demo: the part of the demo that reads. demo-mpi: the one that writes. deb: the Debian packages. dist: the archive for other machines.
# test-dist: its tests. test: make test. all: make test-all, but
# for what these install: tables: the tests of PyTables. vtk: that of ParaView's readers. openpmd: that of earlier releases of openpmd-api. notebook: that of the notebook. types: those of the Python package's types. climate: those of NCO and CDO. distributed: those of a distributed file
# system. nfs: those of NFS.
#
# It installs Debian packages, current Python readers in .venv (python, bench, demo, test, all), PyTables in .venv-tables
# (tables), VTK in .venv-vtk (vtk), openpmd-api in .venv-openpmd-0.15 and .venv-openpmd-0.16 (openpmd), Jupyter's kernel and matplotlib in .venv-notebook (notebook), mypy in .venv-types (types),
# and compiles a parallel HDF5 1.14 with netCDF (test, all). It leaves alone what is there already, so a second run does nothing and needs no network.
set -euo pipefail
cd "$(dirname "$0")/.."

purpose=${1:-test}
packages=(gcc libc6-dev pkg-config)
# HDF5 is compiled, by a cmake that is newer than that of Debian 12: scripts/cmake.sh.
hdf5=(make python3 python3-venv)
system_hdf5=(libhdf5-dev)
# bindgen uses libclang to make the Rust binding from the header of MPI.
mpi=(libopenmpi-dev openmpi-bin libclang-dev)
# The other MPI. Debian prefers Open MPI for the names that both have, such as mpicc, so nothing else changes.
other_mpi=(mpich libmpich-dev)
readers=(fuse3 mount util-linux hdf5-tools netcdf-bin python3 python3-h5py python3-venv)
# Programs that copy files.
copying=(rsync)
# scripts/deb.sh strips the files that it packs, and finds their dependencies with dpkg-shlibdeps. So does scripts/python.sh,
# with objdump.
packing=(binutils dpkg-dev)
python=(binutils)
# autofs mounts on demand; systemd checks the units, and runs them in a container, where it needs dbus for users' services.
administration=(autofs dbus systemd)
# Nodes are made of network namespaces, and others. What readers ask a disk for is counted by strace.
nodes=(iproute2 nftables util-linux strace)
# A test mounts file systems of its own, and takes their power away.
power=(e2fsprogs mount)
# scripts/parallel-hdf5.sh compiles HDF5 and netCDF.
compiling=(cmake make gfortran python3 zlib1g-dev)
# scripts/nfs.sh starts a virtual machine; the tests in it start a server of NFS.
nfs=(qemu-system-x86 busybox-static nfs-kernel-server nfs-common e2fsprogs mount util-linux)
# Whole systems, in which packages are installed, and what is packed for them.
systems=(debootstrap buildah)
# scripts/aarch64.sh starts a virtual machine.
arm=(qemu-system-arm cpio)
case $purpose in
build) packages+=("${hdf5[@]}") ;;
build-system-hdf5) packages+=("${system_hdf5[@]}") ;;
deb) packages+=("${packing[@]}") ;;
mpi) packages+=("${hdf5[@]}" "${system_hdf5[@]}" "${mpi[@]}") ;;
dist) packages+=("${hdf5[@]}" "${mpi[@]}" "${packing[@]}" rpm) ;;
test-dist) packages+=("${hdf5[@]}" "${mpi[@]}" "${packing[@]}" rpm "${systems[@]}" "${arm[@]}") ;;
python) packages+=("${hdf5[@]}" "${python[@]}") ;;
bench) packages+=("${hdf5[@]}" "${system_hdf5[@]}" "${readers[@]}") ;;
bench-mpi) packages+=("${hdf5[@]}" "${mpi[@]}" "${compiling[@]}") ;;
tables | vtk | openpmd | notebook | types) packages=(python3 python3-venv) ;;
nfs) packages=("${nfs[@]}") ;;
climate) packages=(nco cdo) ;;
# No server is started: the tests start their own.
distributed) packages=(glusterfs-server glusterfs-client) ;;
demo) packages+=("${system_hdf5[@]}" "${readers[@]}") ;;
demo-mpi) packages+=("${mpi[@]}") ;;
test | all)
    packages+=("${hdf5[@]}" "${system_hdf5[@]}" "${mpi[@]}" "${other_mpi[@]}" "${readers[@]}" "${copying[@]}" "${packing[@]}" man-db mandoc "${administration[@]}" "${nodes[@]}"
        "${power[@]}" "${compiling[@]}")
    ;;
*)
    echo "usage: setup.sh build|build-system-hdf5|mpi|python|bench|bench-mpi|demo|demo-mpi|deb|dist|test-dist|test|all|tables|vtk|notebook|types|climate|distributed|nfs" >&2
    exit 2
    ;;
esac

fail() {
    printf 'setup: %s\n' "$@" >&2
    exit 1
}

as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    elif command -v sudo >/dev/null; then
        sudo "$@"
    else
        fail "root is needed for: $*" "Run it as root, then try again."
    fi
}

is_installed() {
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

install_packages() {
    if ! command -v dpkg-query >/dev/null; then
        echo "setup: not a Debian system: the counterparts of these packages are taken to be there:" "${packages[@]}" >&2
        return
    fi
    local missing=() package
    for package in "${packages[@]}"; do
        is_installed "$package" || missing+=("$package")
    done
    [ ${#missing[@]} -eq 0 ] && return
    echo "setup: installing" "${missing[@]}"
    apt_get update -qq
    apt_get install -qq -y --no-install-recommends "${missing[@]}"
}

# Runs apt-get. Waits while another program holds one of the locks of apt, as on a machine in its first minutes. apt-get can
# wait by itself (DPkg::Lock::Timeout), but not for the lock of the package lists.
apt_get() {
    local errors patience=${H5LOGFS_SETUP_SECONDS:-600} said=
    local deadline=$((SECONDS + patience))
    until errors=$(as_root env LC_ALL=C DEBIAN_FRONTEND=noninteractive apt-get "$@" 2>&1 >/dev/null); do
        case $errors in
        *"Could not get lock"*) ;;
        *) fail "apt-get $1: $errors" ;;
        esac
        [ $SECONDS -lt $deadline ] ||
            fail "apt-get $1: another program has held a lock for $patience seconds: $errors" "Wait for it, then try again."
        [ -n "$said" ] || echo "setup: waiting up to $patience seconds for another program that installs packages: $errors"
        said=yes
        sleep 1
    done
    [ -z "$errors" ] || printf '%s\n' "$errors" >&2
}

check_cargo() {
    command -v cargo >/dev/null ||
        fail "cargo is not there. Rust 1.89 or later is needed: see https://rustup.rs"
}

install_readers() {
    install_python .venv tests/requirements.txt 'h5py, netCDF4, xarray, h5netcdf, pyfive, fsspec, pytest'
}

# install_python DIRECTORY LIST MODULES: makes a virtual environment with the packages of a list, unless it is there. Uses
# Debian's interpreter: the environment must not depend on another one in PATH.
install_python() {
    local dir=$1 list=$2 modules=$3 done=$1/installed.txt
    if cmp -s "$list" "$done" && "$dir/bin/python" -c "import $modules" 2>/dev/null; then
        return
    fi
    echo "setup: installing the Python packages of $list in $dir"
    rm -rf "$dir"
    /usr/bin/python3 -m venv "$dir"
    "$dir/bin/python" -m pip install --quiet --disable-pip-version-check --only-binary :all: -r "$list"
    cp "$list" "$done"
}

# zig, which compiles and links for the C library of older systems, and for other processors; and the standard library of Rust for
# these.
install_cross_compiler() {
    install_python .venv-dist packaging/dist/requirements.txt ziglang
    local target=aarch64-unknown-linux-gnu
    if command -v rustup >/dev/null && ! rustup target list --installed | grep -q -x $target; then
        rustup --quiet target add $target || echo "setup: there is no Rust for $target: no archive can be made for it" >&2
    fi
}

# Without it the tests of parallel programs are skipped.
build_parallel_hdf5() {
    scripts/parallel-hdf5.sh >/dev/null || echo "setup: there is no parallel HDF5: tests that need it will be skipped" >&2
}

# The tests run with cargo test as well. To build cargo-nextest takes longer than it saves, so that is left to users.
look_for_nextest() {
    cargo nextest --version >/dev/null 2>&1 && return
    echo "setup: cargo-nextest is not installed, and tests take longer without it: cargo install --locked cargo-nextest"
}

check_fuse() {
    if [ ! -e /dev/fuse ] && [ "$(id -u)" -eq 0 ] && command -v modprobe >/dev/null; then
        modprobe fuse 2>/dev/null || true
    fi
    [ -e /dev/fuse ] || fail "/dev/fuse is not there, so nothing can be mounted." \
        "Load the kernel module as root: modprobe fuse" \
        "In a container, start it with: --device /dev/fuse --cap-add SYS_ADMIN"
    if ! (: <>/dev/fuse) 2>/dev/null; then
        fail "$(id -un) may not open /dev/fuse ($(stat -c %A /dev/fuse))." \
            "Debian's own setting is: chmod 666 /dev/fuse (as root)"
    fi
}

# fusermount3 unmounts for an ordinary user only if /etc/mtab exists. An installed system has it in this form; a bare
# root directory, as in a chroot, lacks it.
provide_mtab() {
    [ -e /etc/mtab ] && return
    echo "setup: /etc/mtab is missing: making it a link to /proc/self/mounts"
    as_root ln -sf ../proc/self/mounts /etc/mtab
}

install_packages
check_cargo
# What is compiled is compiled while the readers are downloaded.
compilations=()
case $purpose in
test | all)
    build_parallel_hdf5 &
    compilations+=($!)
    ;;
esac
case $purpose in
dist | test-dist) install_cross_compiler ;;
esac
case $purpose in
python) install_readers ;;
tables) install_python .venv-tables tests/tables.txt tables ;;
vtk) install_python .venv-vtk tests/vtk.txt 'vtk, h5py' ;;
openpmd)
    # PyPI has openpmd-api 0.15 for Python up to 3.11 alone.
    if /usr/bin/python3 -c 'import sys; sys.exit(sys.version_info > (3, 12))'; then
        install_python .venv-openpmd-0.15 tests/openpmd-0.15.txt openpmd_api
    else
        echo "setup: there is no openpmd-api 0.15 for this Python: its test will be skipped" >&2
    fi
    install_python .venv-openpmd-0.16 tests/openpmd-0.16.txt openpmd_api
    ;;
notebook) install_python .venv-notebook tests/notebook.txt 'nbclient, ipykernel, matplotlib' ;;
types) install_python .venv-types tests/types.txt mypy ;;
bench | demo | test | all)
    install_readers
    check_fuse
    provide_mtab
    ;;
esac
# After the readers, which have a cmake, too.
case $purpose in
build | mpi | dist | test-dist | python | bench | bench-mpi) scripts/cmake.sh install >/dev/null ;;
esac
for compilation in "${compilations[@]}"; do
    wait "$compilation"
done
case $purpose in
test | all) look_for_nextest ;;
esac
