/*
 * ranks DIRECTORY, under MPI: the ranks make a file together, with collective and independent transfers, read it back,
 * and make a file each. The first prints the results.
 */
#include "../hosts/host.h"

#include <mpi.h>

#define OK(call) REQUIRE((call) >= 0)

enum { ROWS = 16, COLUMNS = 32 };

static int rank, ranks;

static hid_t dataset_of(hid_t file, const char *name, int chunked)
{
    const hsize_t dims[2] = {(hsize_t)ranks * ROWS, COLUMNS}, chunk[2] = {ROWS, COLUMNS};
    const hid_t space = H5Screate_simple(2, dims, NULL), dcpl = H5Pcreate(H5P_DATASET_CREATE);
    OK(H5Pset_obj_track_times(dcpl, 0));
    if (chunked) {
        OK(H5Pset_chunk(dcpl, 2, chunk));
    }
    const hid_t dataset = H5Dcreate2(file, name, H5T_NATIVE_INT, space, H5P_DEFAULT, dcpl, H5P_DEFAULT);
    OK(dataset);
    OK(H5Pclose(dcpl));
    OK(H5Sclose(space));
    return dataset;
}

static void rows_of(int who, int rows[ROWS][COLUMNS])
{
    for (int i = 0; i < ROWS * COLUMNS; i++) {
        rows[i / COLUMNS][i % COLUMNS] = who * 10000 + i;
    }
}

static void transfer(hid_t dataset, int who, hid_t dxpl, int rows[ROWS][COLUMNS], int writes)
{
    const hsize_t start[2] = {(hsize_t)who * ROWS, 0}, count[2] = {ROWS, COLUMNS};
    const hid_t space = H5Dget_space(dataset), memory = H5Screate_simple(2, count, NULL);
    OK(H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, count, NULL));
    if (writes) {
        OK(H5Dwrite(dataset, H5T_NATIVE_INT, memory, space, dxpl, rows));
    } else {
        OK(H5Dread(dataset, H5T_NATIVE_INT, memory, space, dxpl, rows));
    }
    OK(H5Sclose(memory));
    OK(H5Sclose(space));
}

static void together(const char *path, hid_t fapl, hid_t collective)
{
    int rows[ROWS][COLUMNS], got[ROWS][COLUMNS];
    rows_of(rank, rows);
    const hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, fapl);
    OK(file);
    const hid_t datasets[2] = {dataset_of(file, "contiguous", 0), dataset_of(file, "chunks", 1)};
    for (int i = 0; i < 2; i++) {
        transfer(datasets[i], rank, i ? collective : H5P_DEFAULT, rows, 1);
    }
    OK(H5Fflush(file, H5F_SCOPE_GLOBAL));
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < 2; i++) {
        const int who = (rank + 1) % ranks;
        transfer(datasets[i], who, i ? H5P_DEFAULT : collective, got, 0);
        rows_of(who, rows);
        REQUIRE(!memcmp(rows, got, sizeof got));
        OK(H5Dclose(datasets[i]));
    }
    const hid_t list = H5Fget_access_plist(file);
    MPI_Comm comm;
    MPI_Info info;
    OK(H5Pget_fapl_mpio(list, &comm, &info));
    int size;
    MPI_Comm_size(comm, &size);
    MPI_Comm_free(&comm);
    if (info != MPI_INFO_NULL) {
        MPI_Info_free(&info);
    }
    if (rank == 0) {
        printf("%s driver, %s ranks\n", H5Pget_driver(list) == H5FD_MPIO ? "its own" : "another",
               size == ranks ? "all" : "other");
    }
    OK(H5Pclose(list));
    OK(H5Fclose(file));
    const hid_t again = H5Fopen(path, H5F_ACC_RDONLY, fapl);
    OK(again);
    const hid_t dataset = H5Dopen2(again, "chunks", H5P_DEFAULT);
    transfer(dataset, rank, collective, got, 0);
    rows_of(rank, rows);
    REQUIRE(!memcmp(rows, got, sizeof got));
    OK(H5Dclose(dataset));
    OK(H5Fclose(again));
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    REQUIRE(argc == 2);
    char path[300], own[300];
    snprintf(path, sizeof path, "%s/together.h5", argv[1]);
    snprintf(own, sizeof own, "%s/rank%d.h5", argv[1], rank);
    const hid_t fapl = H5Pcreate(H5P_FILE_ACCESS), collective = H5Pcreate(H5P_DATASET_XFER);
    OK(H5Pset_fapl_mpio(fapl, MPI_COMM_WORLD, MPI_INFO_NULL));
    OK(H5Pset_dxpl_mpio(collective, H5FD_MPIO_COLLECTIVE));
    together(path, fapl, collective);
    int rows[ROWS][COLUMNS];
    rows_of(rank, rows);
    const hid_t file = H5Fcreate(own, H5F_ACC_EXCL, H5P_DEFAULT, H5P_DEFAULT), dataset = dataset_of(file, "own", 1);
    transfer(dataset, rank, H5P_DEFAULT, rows, 1);
    OK(H5Dclose(dataset));
    OK(H5Fclose(file));
    OK(H5Pclose(collective));
    OK(H5Pclose(fapl));
    MPI_Finalize();
    return 0;
}
