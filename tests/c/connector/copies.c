/*
 * copies FILE, under MPI: the last rank alone writes half of the dataset "/from", and all ranks copy it. The copy has that half
 * at once, and after the file was opened again.
 */
#include "../hosts/host.h"

#include <mpi.h>
#include <string.h>

#define OK(call) REQUIRE((call) >= 0)

enum { ELEMENTS = 8, WRITTEN = 4, FILL = -1 };

static int rank, ranks;

static hid_t made(hid_t file)
{
    const hsize_t dims[] = {ELEMENTS}, chunk[] = {WRITTEN};
    const int fill = FILL;
    const hid_t space = H5Screate_simple(1, dims, NULL), creation = H5Pcreate(H5P_DATASET_CREATE);
    OK(H5Pset_chunk(creation, 1, chunk));
    OK(H5Pset_fill_value(creation, H5T_NATIVE_INT, &fill));
    const hid_t dataset = H5Dcreate2(file, "from", H5T_NATIVE_INT, space, H5P_DEFAULT, creation, H5P_DEFAULT);
    OK(dataset);
    OK(H5Pclose(creation));
    OK(H5Sclose(space));
    return dataset;
}

static void write_half(hid_t dataset)
{
    const int values[WRITTEN] = {1, 2, 3, 4};
    const hsize_t start[] = {0}, count[] = {WRITTEN};
    const hid_t space = H5Dget_space(dataset), memory = H5Screate_simple(1, count, NULL);
    OK(H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, count, NULL));
    OK(H5Dwrite(dataset, H5T_NATIVE_INT, memory, space, H5P_DEFAULT, values));
    OK(H5Sclose(memory));
    OK(H5Sclose(space));
}

static void check(hid_t file)
{
    const int wanted[ELEMENTS] = {1, 2, 3, 4, FILL, FILL, FILL, FILL};
    int values[ELEMENTS];
    const hid_t copy = H5Dopen2(file, "copy", H5P_DEFAULT);
    OK(copy);
    OK(H5Dread(copy, H5T_NATIVE_INT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values));
    REQUIRE(memcmp(values, wanted, sizeof values) == 0);
    OK(H5Dclose(copy));
}

int main(int argc, char **argv)
{
    REQUIRE(argc == 2);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    const hid_t access = H5Pcreate(H5P_FILE_ACCESS);
    OK(H5Pset_fapl_mpio(access, MPI_COMM_WORLD, MPI_INFO_NULL));
    hid_t file = H5Fcreate(argv[1], H5F_ACC_TRUNC, H5P_DEFAULT, access);
    const hid_t from = made(file);
    if (rank == ranks - 1) {
        write_half(from);
    }
    OK(H5Dclose(from));
    OK(H5Fflush(file, H5F_SCOPE_GLOBAL));
    OK(H5Ocopy(file, "from", file, "copy", H5P_DEFAULT, H5P_DEFAULT));
    OK(H5Fflush(file, H5F_SCOPE_GLOBAL));
    check(file);
    OK(H5Fclose(file));
    file = H5Fopen(argv[1], H5F_ACC_RDONLY, access);
    OK(file);
    check(file);
    OK(H5Fclose(file));
    OK(H5Pclose(access));
    MPI_Finalize();
    return 0;
}
