/*
 * appended FILE, under MPI: the ranks add a row each to the dataset "rows", whose rows have 4 doubles, and create the
 * group "by_ranks" with such a dataset.
 */
#include "../hosts/host.h"

#include <mpi.h>

#define OK(call) REQUIRE((call) >= 0)

enum { COLUMNS = 4 };

static int rank, ranks;
static hid_t transfer;

/* Each rank writes the row `first` + rank, all together. */
static void write_rows(hid_t dataset, hsize_t first)
{
    const hsize_t start[] = {first + (hsize_t)rank, 0}, count[] = {1, COLUMNS};
    const hid_t space = H5Dget_space(dataset), memory = H5Screate_simple(2, count, NULL);
    OK(H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, count, NULL));
    double values[COLUMNS];
    for (int i = 0; i < COLUMNS; i++) {
        values[i] = 1000 * (rank + 1) + i;
    }
    OK(H5Dwrite(dataset, H5T_NATIVE_DOUBLE, memory, space, transfer, values));
    OK(H5Sclose(memory));
    OK(H5Sclose(space));
}

static void extend(hid_t file)
{
    const hid_t dataset = H5Dopen2(file, "rows", H5P_DEFAULT), space = H5Dget_space(dataset);
    hsize_t dims[2];
    OK(H5Sget_simple_extent_dims(space, dims, NULL));
    OK(H5Sclose(space));
    const hsize_t first = dims[0];
    dims[0] += (hsize_t)ranks;
    OK(H5Dset_extent(dataset, dims));
    write_rows(dataset, first);
    OK(H5Dclose(dataset));
}

static void create(hid_t file)
{
    const hsize_t dims[] = {(hsize_t)ranks, COLUMNS}, most[] = {H5S_UNLIMITED, COLUMNS};
    const hid_t group = H5Gcreate2(file, "by_ranks", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    const hid_t space = H5Screate_simple(2, dims, most), made = H5Pcreate(H5P_DATASET_CREATE);
    OK(H5Pset_chunk(made, 2, dims));
    const hid_t dataset = H5Dcreate2(group, "rows", H5T_NATIVE_DOUBLE, space, H5P_DEFAULT, made, H5P_DEFAULT);
    OK(dataset);
    write_rows(dataset, 0);
    OK(H5Dclose(dataset));
    OK(H5Pclose(made));
    OK(H5Sclose(space));
    OK(H5Gclose(group));
}

int main(int argc, char **argv)
{
    REQUIRE(argc == 2);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    const hid_t file_access = H5Pcreate(H5P_FILE_ACCESS);
    transfer = H5Pcreate(H5P_DATASET_XFER);
    OK(H5Pset_fapl_mpio(file_access, MPI_COMM_WORLD, MPI_INFO_NULL));
    OK(H5Pset_dxpl_mpio(transfer, H5FD_MPIO_COLLECTIVE));
    const hid_t file = H5Fopen(argv[1], H5F_ACC_RDWR, file_access);
    OK(file);
    extend(file);
    create(file);
    OK(H5Fclose(file));
    OK(H5Pclose(transfer));
    OK(H5Pclose(file_access));
    MPI_Finalize();
    return 0;
}
