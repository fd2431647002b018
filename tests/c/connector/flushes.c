/*
 * flushes FILE NOTES FLUSHES CYCLE: MPI ranks write to a file through HDF5, flush it FLUSHES times, and close and
 * reopen it after each CYCLE flushes. The content after flush F tells F everywhere: tests/tools/flushes.py checks it.
 *
 * The directory NOTES has pid.RANK, and lines about the progress of all ranks: "ready", "F" after flush F, "closing F"
 * and "closed F".
 */
#include <string.h>

#include "killed.h"

enum { WIDTH = 10000 };

static hid_t access_list(void)
{
    const hid_t plist = H5(H5Pcreate(H5P_FILE_ACCESS));
    H5(H5Pset_fapl_mpio(plist, MPI_COMM_WORLD, MPI_INFO_NULL));
    return plist;
}

/* `history` gets a row with each flush, `last` is rewritten, `text` has elements that no log keeps by itself. */
static hid_t create(const char *path)
{
    const hid_t access = access_list();
    const hid_t file = H5(H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, access));
    H5(H5Pclose(access));
    const hsize_t width = (hsize_t)ranks * WIDTH;
    const hsize_t dims[] = {0, width}, max[] = {H5S_UNLIMITED, width}, chunk[] = {4, 5000};
    hid_t space = H5(H5Screate_simple(2, dims, max));
    const hid_t plist = H5(H5Pcreate(H5P_DATASET_CREATE));
    H5(H5Pset_chunk(plist, 2, chunk));
    H5(H5Dclose(H5(H5Dcreate2(file, "history", H5T_STD_I32LE, space, H5P_DEFAULT, plist, H5P_DEFAULT))));
    H5(H5Pclose(plist));
    H5(H5Sclose(space));
    space = H5(H5Screate_simple(1, &width, NULL));
    H5(H5Dclose(H5(H5Dcreate2(file, "last", H5T_STD_I32BE, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT))));
    H5(H5Sclose(space));
    space = H5(H5Screate(H5S_SCALAR));
    H5(H5Aclose(H5(H5Acreate2(file, "flush", H5T_STD_I32LE, space, H5P_DEFAULT, H5P_DEFAULT))));
    H5(H5Sclose(space));
    return file;
}

static hid_t open_again(const char *path)
{
    const hid_t access = access_list();
    const hid_t file = H5(H5Fopen(path, H5F_ACC_RDWR, access));
    H5(H5Pclose(access));
    return file;
}

static void write_row(hid_t dataset, int row, int value)
{
    const hid_t space = H5(H5Dget_space(dataset));
    const hsize_t start[] = {(hsize_t)row, (hsize_t)rank * WIDTH}, count[] = {1, WIDTH};
    const int skip = H5Sget_simple_extent_ndims(space) == 1;
    int values[WIDTH];
    for (int i = 0; i < WIDTH; i++) {
        values[i] = value + i;
    }
    H5(H5Sselect_hyperslab(space, H5S_SELECT_SET, start + skip, NULL, count + skip, NULL));
    const hsize_t elements = WIDTH;
    const hid_t memory = H5(H5Screate_simple(1, &elements, NULL));
    H5(H5Dwrite(dataset, H5T_NATIVE_INT, memory, space, H5P_DEFAULT, values));
    H5(H5Sclose(memory));
    H5(H5Sclose(space));
}

static void write_flush(hid_t file, int flush)
{
    const hsize_t dims[] = {(hsize_t)flush, (hsize_t)ranks * WIDTH};
    const hid_t history = H5(H5Dopen2(file, "history", H5P_DEFAULT));
    H5(H5Dset_extent(history, dims));
    write_row(history, flush - 1, flush * 1000);
    H5(H5Dclose(history));
    const hid_t last = H5(H5Dopen2(file, "last", H5P_DEFAULT));
    write_row(last, 0, flush * 1000);
    H5(H5Dclose(last));
    const hid_t attribute = H5(H5Aopen(file, "flush", H5P_DEFAULT));
    H5(H5Awrite(attribute, H5T_NATIVE_INT, &flush));
    H5(H5Aclose(attribute));
    char name[16];
    snprintf(name, sizeof name, "g%d", flush);
    H5(H5Gclose(H5(H5Gcreate2(file, name, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT))));
}

int main(int argc, char **argv)
{
    REQUIRE(argc == 5);
    begin(&argc, &argv);
    const int flushes = atoi(argv[3]), cycle = atoi(argv[4]);
    hid_t file = create(argv[1]);
    for (int flush = 1; flush <= flushes; flush++) {
        write_flush(file, flush);
        H5(H5Fflush(file, H5F_SCOPE_GLOBAL));
        ACKNOWLEDGE_ALL("%d", flush);
        if (flush % cycle == 0) {
            ACKNOWLEDGE_ALL("closing %d", flush);
            H5(H5Fclose(file));
            ACKNOWLEDGE_ALL("closed %d", flush);
            file = open_again(argv[1]);
        }
    }
    H5(H5Fclose(file));
    ACKNOWLEDGE_ALL("closed %d", flushes);
    MPI_Finalize();
    return 0;
}
