/*
 * unflushed FILE NOTES ROWS: MPI ranks make a file through HDF5, flush it, and then write ROWS rows without a flush:
 * element C of row R is R * 1000000 + C. Then they wait until they are killed.
 *
 * The directory NOTES has pid.RANK; the lines "ready" and "written" tell the progress of all ranks.
 */
#include "killed.h"

enum { WIDTH = 10000 };

int main(int argc, char **argv)
{
    REQUIRE(argc == 4);
    begin(&argc, &argv);
    const hsize_t rows = (hsize_t)atoi(argv[3]);

    const hid_t access = H5(H5Pcreate(H5P_FILE_ACCESS));
    H5(H5Pset_fapl_mpio(access, MPI_COMM_WORLD, MPI_INFO_NULL));
    const hid_t file = H5(H5Fcreate(argv[1], H5F_ACC_TRUNC, H5P_DEFAULT, access));
    const hsize_t width = (hsize_t)ranks * WIDTH;
    const hsize_t dims[] = {0, width}, max[] = {H5S_UNLIMITED, width}, chunk[] = {1, WIDTH};
    const hid_t space = H5(H5Screate_simple(2, dims, max));
    const hid_t plist = H5(H5Pcreate(H5P_DATASET_CREATE));
    H5(H5Pset_chunk(plist, 2, chunk));
    const hid_t dataset =
        H5(H5Dcreate2(file, "rows", H5T_STD_I32LE, space, H5P_DEFAULT, plist, H5P_DEFAULT));
    H5(H5Fflush(file, H5F_SCOPE_GLOBAL));

    static int elements[WIDTH];
    for (hsize_t row = 0; row < rows; row++) {
        const hsize_t extent[] = {row + 1, width};
        H5(H5Dset_extent(dataset, extent));
        for (int i = 0; i < WIDTH; i++) {
            elements[i] = (int)row * 1000000 + rank * WIDTH + i;
        }
        const hid_t whole = H5(H5Dget_space(dataset));
        const hsize_t start[] = {row, (hsize_t)rank * WIDTH}, count[] = {1, WIDTH};
        H5(H5Sselect_hyperslab(whole, H5S_SELECT_SET, start, NULL, count, NULL));
        const hid_t memory = H5(H5Screate_simple(2, count, NULL));
        H5(H5Dwrite(dataset, H5T_NATIVE_INT, memory, whole, H5P_DEFAULT, elements));
        H5(H5Sclose(memory));
        H5(H5Sclose(whole));
    }
    ACKNOWLEDGE_ALL("written");
    for (;;) {
        pause();
    }
}
