/* The steps by HDF5. */
#include <hdf5.h>

#include "steps.h"

#define OK(call) REQUIRE((call) >= 0)

static hid_t file, history;

static void create(const char *path)
{
    const hid_t access = H5Pcreate(H5P_FILE_ACCESS);
    if (ranks) {
        OK(H5Pset_fapl_mpio(access, MPI_COMM_WORLD, MPI_INFO_NULL));
    }
    file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, access);
    OK(file);
    OK(H5Pclose(access));
    const hsize_t width = (hsize_t)columns();
    const hsize_t dims[] = {0, width}, max[] = {H5S_UNLIMITED, width}, chunk[] = {1, width};
    const hid_t space = H5Screate_simple(2, dims, max), plist = H5Pcreate(H5P_DATASET_CREATE);
    OK(H5Pset_chunk(plist, 2, chunk));
    history = H5Dcreate2(file, "history", H5T_STD_I32LE, space, H5P_DEFAULT, plist, H5P_DEFAULT);
    OK(history);
    OK(H5Pclose(plist));
    OK(H5Sclose(space));
}

static void extend(int rows)
{
    const hsize_t dims[] = {(hsize_t)rows, (hsize_t)columns()};
    OK(H5Dset_extent(history, dims));
}

/* Each rank by itself. */
static void write_elements(int step, int first, int number, const int *elements)
{
    const hid_t space = H5Dget_space(history);
    const hsize_t start[] = {(hsize_t)step, (hsize_t)first}, count[] = {1, (hsize_t)number};
    OK(H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, count, NULL));
    const hid_t memory = H5Screate_simple(1, count + 1, NULL);
    OK(H5Dwrite(history, H5T_NATIVE_INT, memory, space, H5P_DEFAULT, elements));
    OK(H5Sclose(memory));
    OK(H5Sclose(space));
}

static void mark(int step)
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

const struct library hdf5 = {create, extend, write_elements, mark};
