/*
 * regrown FILE, under MPI: the ranks write five rows, and reopen the file for each step: the dataset shrinks to two
 * rows, and grows to four, to seven, and to eight. Unwritten elements then have the fill value.
 */
#include "../hosts/host.h"

#include <mpi.h>

#define OK(call) REQUIRE((call) >= 0)

enum { FILL = -1, WRITTEN = 7 };

static int rank, ranks;
static hid_t file_access, transfer;

static void close_all(hid_t file, hid_t dataset)
{
    OK(H5Dclose(dataset));
    OK(H5Fclose(file));
}

static void create(const char *path, hsize_t rows)
{
    const hsize_t dims[] = {rows, (hsize_t)ranks}, most[] = {H5S_UNLIMITED, dims[1]}, chunk[] = {1, dims[1]};
    const hid_t space = H5Screate_simple(2, dims, most), made = H5Pcreate(H5P_DATASET_CREATE);
    const int fill = FILL;
    OK(H5Pset_chunk(made, 2, chunk));
    OK(H5Pset_fill_value(made, H5T_NATIVE_INT, &fill));
    const hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, file_access);
    const hid_t dataset = H5Dcreate2(file, "rows", H5T_NATIVE_INT, space, H5P_DEFAULT, made, H5P_DEFAULT);
    OK(dataset);
    const hsize_t start[] = {0, (hsize_t)rank}, count[] = {rows, 1};
    OK(H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, count, NULL));
    const hid_t memory = H5Screate_simple(1, &rows, NULL);
    int values[16];
    for (hsize_t i = 0; i < rows; i++) {
        values[i] = WRITTEN;
    }
    OK(H5Dwrite(dataset, H5T_NATIVE_INT, memory, space, transfer, values));
    OK(H5Sclose(memory));
    OK(H5Sclose(space));
    OK(H5Pclose(made));
    close_all(file, dataset);
}

static void resize(const char *path, hsize_t rows)
{
    const hid_t file = H5Fopen(path, H5F_ACC_RDWR, file_access);
    OK(file);
    const hid_t dataset = H5Dopen2(file, "rows", H5P_DEFAULT);
    OK(dataset);
    const hsize_t dims[] = {rows, (hsize_t)ranks};
    OK(H5Dset_extent(dataset, dims));
    close_all(file, dataset);
}

int main(int argc, char **argv)
{
    REQUIRE(argc == 2);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    file_access = H5Pcreate(H5P_FILE_ACCESS);
    transfer = H5Pcreate(H5P_DATASET_XFER);
    OK(H5Pset_fapl_mpio(file_access, MPI_COMM_WORLD, MPI_INFO_NULL));
    OK(H5Pset_dxpl_mpio(transfer, H5FD_MPIO_COLLECTIVE));
    create(argv[1], 5);
    const hsize_t rows[] = {2, 4, 7, 8};
    for (int i = 0; i < 4; i++) {
        resize(argv[1], rows[i]);
    }
    OK(H5Pclose(transfer));
    OK(H5Pclose(file_access));
    MPI_Finalize();
    return 0;
}
