/*
 * unasked FILE NOTES: MPI ranks write steps to a file through HDF5, and never flush it, until they are killed.
 *
 * Step S extends the dataset `history` by a row, which each rank writes by itself, in pieces of its own number. Element E of it is
 * S * 1000 + E. Every fourth step makes a group with an attribute. tests/tools/unasked.py checks it. In the directory NOTES
 * lie pid.RANK and "ready", and the number of each step that the first rank has written.
 */
#include "killed.h"

#define OK(call) REQUIRE((call) >= 0)

enum { WIDTH = 1200 };

static hid_t create(const char *path, hid_t *history)
{
    const hid_t access = H5Pcreate(H5P_FILE_ACCESS);
    OK(H5Pset_fapl_mpio(access, MPI_COMM_WORLD, MPI_INFO_NULL));
    const hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, access);
    OK(file);
    OK(H5Pclose(access));
    const hsize_t width = (hsize_t)ranks * WIDTH;
    const hsize_t dims[] = {0, width}, max[] = {H5S_UNLIMITED, width}, chunk[] = {1, width};
    const hid_t space = H5Screate_simple(2, dims, max), plist = H5Pcreate(H5P_DATASET_CREATE);
    OK(H5Pset_chunk(plist, 2, chunk));
    *history = H5Dcreate2(file, "history", H5T_STD_I32LE, space, H5P_DEFAULT, plist, H5P_DEFAULT);
    OK(*history);
    OK(H5Pclose(plist));
    OK(H5Sclose(space));
    return file;
}

static void write_piece(hid_t dataset, int step, int first, int number)
{
    const hid_t space = H5Dget_space(dataset);
    const hsize_t start[] = {(hsize_t)step, (hsize_t)first}, count[] = {1, (hsize_t)number};
    OK(H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, count, NULL));
    const hid_t memory = H5Screate_simple(1, count + 1, NULL);
    int values[WIDTH];
    for (int i = 0; i < number; i++) {
        values[i] = step * 1000 + first + i;
    }
    OK(H5Dwrite(dataset, H5T_NATIVE_INT, memory, space, H5P_DEFAULT, values));
    OK(H5Sclose(memory));
    OK(H5Sclose(space));
}

static void make_group(hid_t file, int step)
{
    char name[16];
    snprintf(name, sizeof name, "g%d", step);
    const hid_t group = H5Gcreate2(file, name, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    const hid_t space = H5Screate(H5S_SCALAR);
    const hid_t attribute = H5Acreate2(group, "step", H5T_STD_I32LE, space, H5P_DEFAULT, H5P_DEFAULT);
    OK(H5Awrite(attribute, H5T_NATIVE_INT, &step));
    OK(H5Aclose(attribute));
    OK(H5Sclose(space));
    OK(H5Gclose(group));
}

int main(int argc, char **argv)
{
    REQUIRE(argc == 3);
    begin(&argc, &argv);
    hid_t history;
    const hid_t file = create(argv[1], &history);
    const int pieces = 1 + rank;
    for (int step = 0;; step++) {
        const hsize_t dims[] = {(hsize_t)step + 1, (hsize_t)ranks * WIDTH};
        OK(H5Dset_extent(history, dims));
        for (int piece = 0; piece < pieces; piece++) {
            const int number = WIDTH / pieces;
            write_piece(history, step, rank * WIDTH + piece * number, number);
            usleep(1000);
        }
        if (step % 4 == 3) {
            make_group(file, step);
        }
        acknowledge("%d", step);
    }
}
