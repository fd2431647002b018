/*
 * goes_on FILE, under MPI: the ranks open a log that the program `unflushed` has left, and print its number of rows, or
 * why it cannot be opened. Then each writes that number to its own elements of the dataset "more", and all close the
 * file.
 */
#include "../hosts/host.h"

#include <mpi.h>

#define OK(call) REQUIRE((call) >= 0)

/* Prints the innermost description on the error stack. */
static herr_t print(unsigned n, const H5E_error2_t *error, void *arg)
{
    (void)arg;
    if (n == 0) {
        puts(error->desc);
    }
    return 0;
}

int main(int argc, char **argv)
{
    REQUIRE(argc == 2);
    int rank, ranks;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    OK(H5Eset_auto2(H5E_DEFAULT, NULL, NULL));
    const hid_t access = H5Pcreate(H5P_FILE_ACCESS);
    OK(H5Pset_fapl_mpio(access, MPI_COMM_WORLD, MPI_INFO_NULL));
    const hid_t file = H5Fopen(argv[1], H5F_ACC_RDWR, access);
    if (file < 0) {
        OK(H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, print, NULL));
        MPI_Finalize();
        return 0;
    }
    const hid_t dataset = H5Dopen2(file, "rows", H5P_DEFAULT);
    OK(dataset);
    const hid_t extent = H5Dget_space(dataset);
    hsize_t dims[2];
    REQUIRE(H5Sget_simple_extent_dims(extent, dims, NULL) == 2);
    const int rows = (int)dims[0];
    printf("%d rows\n", rows);

    const hsize_t elements = (hsize_t)ranks, own = (hsize_t)rank, one = 1;
    const hid_t space = H5Screate_simple(1, &elements, NULL), memory = H5Screate_simple(1, &one, NULL);
    const hid_t more = H5Dcreate2(file, "more", H5T_NATIVE_INT, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    OK(more);
    OK(H5Sselect_hyperslab(space, H5S_SELECT_SET, &own, NULL, &one, NULL));
    OK(H5Dwrite(more, H5T_NATIVE_INT, memory, space, H5P_DEFAULT, &rows));
    OK(H5Sclose(memory));
    OK(H5Sclose(space));
    OK(H5Sclose(extent));
    OK(H5Dclose(more));
    OK(H5Dclose(dataset));
    OK(H5Fclose(file));
    OK(H5Pclose(access));
    MPI_Finalize();
    return 0;
}
