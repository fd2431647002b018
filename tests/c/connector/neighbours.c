/*
 * neighbours FILE independent|collective, under MPI: ranks read what others have written, after a barrier and without a
 * flush. The ranks write independently.
 */
#include "../hosts/host.h"

#include <mpi.h>

#define OK(call) REQUIRE((call) >= 0)

enum { COLUMNS = 1000, TIMES = 5, LARGE = 300000 };

static int rank, ranks;
static hid_t reading;

static hid_t dataset_of(hid_t file, const char *name, hsize_t rows, hsize_t columns, int chunked)
{
    const hsize_t dims[2] = {rows, columns}, chunk[2] = {1, columns / 4};
    const hid_t space = H5Screate_simple(2, dims, NULL), dcpl = H5Pcreate(H5P_DATASET_CREATE);
    if (chunked) {
        OK(H5Pset_chunk(dcpl, 2, chunk));
    }
    OK(H5Pset_alloc_time(dcpl, H5D_ALLOC_TIME_EARLY));
    const hid_t dataset = H5Dcreate2(file, name, H5T_NATIVE_INT, space, H5P_DEFAULT, dcpl, H5P_DEFAULT);
    OK(dataset);
    OK(H5Pclose(dcpl));
    OK(H5Sclose(space));
    return dataset;
}

/* Every `stride`th element of a row, from `first` on. */
static hid_t selected(hid_t dataset, hsize_t row, hsize_t first, hsize_t stride, hsize_t count)
{
    const hid_t space = H5Dget_space(dataset);
    const hsize_t start[2] = {row, first}, strides[2] = {1, stride}, counts[2] = {1, count};
    OK(H5Sselect_hyperslab(space, H5S_SELECT_SET, start, strides, counts, NULL));
    return space;
}

static void transfer(hid_t dataset, hid_t space, int *values, int writes)
{
    const hsize_t count = (hsize_t)H5Sget_select_npoints(space);
    const hid_t memory = H5Screate_simple(1, &count, NULL);
    if (writes) {
        OK(H5Dwrite(dataset, H5T_NATIVE_INT, memory, space, H5P_DEFAULT, values));
    } else {
        OK(H5Dread(dataset, H5T_NATIVE_INT, memory, space, reading, values));
    }
    OK(H5Sclose(memory));
    OK(H5Sclose(space));
}

static void fill(int *values, size_t count, int first)
{
    for (size_t i = 0; i < count; i++) {
        values[i] = first + (int)i;
    }
}

/* The elements of a row are `first` and consecutive numbers. */
static void require_row(hid_t dataset, int row, size_t columns, int first)
{
    int *values = calloc(columns, sizeof *values);
    REQUIRE(values);
    transfer(dataset, selected(dataset, (hsize_t)row, 0, 1, columns), values, 0);
    for (size_t i = 0; i < columns; i++) {
        if (values[i] != first + (int)i) {
            FAIL("rank %d: row %d, element %zu is %d, not %d", rank, row, i, values[i], first + (int)i);
        }
    }
    free(values);
}

static void write_row(hid_t dataset, int row, size_t columns, int first)
{
    int *values = calloc(columns, sizeof *values);
    REQUIRE(values);
    fill(values, columns, first);
    transfer(dataset, selected(dataset, (hsize_t)row, 0, 1, columns), values, 1);
    free(values);
}

/* The first rank overwrites everything repeatedly, as HDF5's own test does. */
static void overwritten(hid_t dataset)
{
    int values[COLUMNS];
    for (int time = 0; time < TIMES; time++) {
        for (int row = 0; row < ranks && !rank; row++) {
            fill(values, COLUMNS, time * 10000 + row);
            transfer(dataset, selected(dataset, (hsize_t)row, 0, 1, COLUMNS), values, 1);
        }
        MPI_Barrier(MPI_COMM_WORLD);
        for (int row = 0; row < ranks; row++) {
            require_row(dataset, row, COLUMNS, time * 10000 + row);
        }
        MPI_Barrier(MPI_COMM_WORLD);
    }
}

/* Each rank writes some elements of each row one by one, and then the others at once. */
static void interleaved(hid_t dataset, int first)
{
    const hsize_t own = COLUMNS / (hsize_t)ranks;
    int values[COLUMNS];
    for (int row = 0; row < ranks; row++) {
        for (hsize_t i = 0; i < own / 2; i++) {
            const hsize_t at = i * (hsize_t)ranks + (hsize_t)rank;
            values[0] = first + row + (int)at;
            transfer(dataset, selected(dataset, (hsize_t)row, at, 1, 1), values, 1);
        }
        const hsize_t from = own / 2 * (hsize_t)ranks + (hsize_t)rank;
        for (hsize_t i = 0; i < own - own / 2; i++) {
            values[i] = first + row + (int)(from + i * (hsize_t)ranks);
        }
        transfer(dataset, selected(dataset, (hsize_t)row, from, (hsize_t)ranks, own - own / 2), values, 1);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    for (int row = 0; row < ranks; row++) {
        require_row(dataset, row, own * (hsize_t)ranks, first + row);
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    REQUIRE(argc == 3);
    const hid_t fapl = H5Pcreate(H5P_FILE_ACCESS);
    reading = H5Pcreate(H5P_DATASET_XFER);
    OK(H5Pset_fapl_mpio(fapl, MPI_COMM_WORLD, MPI_INFO_NULL));
    if (!strcmp(argv[2], "collective")) {
        OK(H5Pset_dxpl_mpio(reading, H5FD_MPIO_COLLECTIVE));
    }
    hid_t file = H5Fcreate(argv[1], H5F_ACC_TRUNC, H5P_DEFAULT, fapl);
    OK(file);
    hid_t chunks = dataset_of(file, "chunks", (hsize_t)ranks, COLUMNS, 1);
    const hid_t rows = dataset_of(file, "rows", (hsize_t)ranks, COLUMNS, 0);
    const hid_t large = dataset_of(file, "large", (hsize_t)ranks, LARGE, 0);
    overwritten(chunks);
    OK(H5Fflush(file, H5F_SCOPE_GLOBAL));
    interleaved(chunks, 500000);
    interleaved(rows, 600000);
    /* Data this large goes to disk at once, with what was buffered. */
    write_row(large, rank, LARGE, rank * 7);
    write_row(rows, rank, COLUMNS, rank * 3);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int row = 0; row < ranks; row++) {
        require_row(large, row, LARGE, row * 7);
        require_row(rows, row, COLUMNS, row * 3);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    /* After a flush any rank may overwrite the data of others. */
    OK(H5Fflush(file, H5F_SCOPE_GLOBAL));
    MPI_Barrier(MPI_COMM_WORLD);
    write_row(rows, (rank + 1) % ranks, COLUMNS, rank * 5);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int row = 0; row < ranks; row++) {
        require_row(rows, (row + 1) % ranks, COLUMNS, row * 5);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    OK(H5Dclose(large));
    OK(H5Dclose(rows));
    OK(H5Dclose(chunks));
    OK(H5Fclose(file));
    file = H5Fopen(argv[1], H5F_ACC_RDWR, fapl);
    OK(file);
    chunks = H5Dopen2(file, "chunks", H5P_DEFAULT);
    OK(chunks);
    overwritten(chunks);
    OK(H5Dclose(chunks));
    OK(H5Fclose(file));
    OK(H5Pclose(reading));
    OK(H5Pclose(fapl));
    MPI_Finalize();
    return 0;
}
