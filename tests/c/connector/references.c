/*
 * references FILE: makes a file with HDF5 1.12 references, which an older libhdf5 cannot read, and reads the rest of
 * it.
 */
#include <string.h>

#include <hdf5.h>

#include "../check.h"

#define OK(call) REQUIRE((call) >= 0)

static void make(const char *path)
{
    const hsize_t dims[] = {4}, one[] = {1};
    const int values[] = {1, 2, 3, 4};
    const hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    OK(file);
    const hid_t space = H5Screate_simple(1, dims, NULL), single = H5Screate_simple(1, one, NULL);
    const hid_t x = H5Dcreate2(file, "x", H5T_NATIVE_INT, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    OK(H5Dwrite(x, H5T_NATIVE_INT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values));
    H5R_ref_t reference;
    OK(H5Rcreate_object(file, "x", H5P_DEFAULT, &reference));
    const hid_t attribute = H5Acreate2(x, "own", H5T_STD_REF, single, H5P_DEFAULT, H5P_DEFAULT);
    OK(H5Awrite(attribute, H5T_STD_REF, &reference));
    const hid_t dataset = H5Dcreate2(file, "refs", H5T_STD_REF, single, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    OK(H5Dwrite(dataset, H5T_STD_REF, H5S_ALL, H5S_ALL, H5P_DEFAULT, &reference));
    OK(H5Rdestroy(&reference));
    OK(H5Aclose(attribute));
    OK(H5Dclose(dataset));
    OK(H5Dclose(x));
    OK(H5Sclose(single));
    OK(H5Sclose(space));
    OK(H5Fclose(file));
}

int main(int argc, char **argv)
{
    REQUIRE(argc == 2);
    make(argv[1]);
    const hid_t file = H5Fopen(argv[1], H5F_ACC_RDONLY, H5P_DEFAULT);
    OK(file);
    const hid_t x = H5Dopen2(file, "x", H5P_DEFAULT);
    OK(x);
    int values[4];
    OK(H5Dread(x, H5T_NATIVE_INT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values));
    REQUIRE(values[0] == 1 && values[3] == 4);
    OK(H5Dclose(x));
    OK(H5Fclose(file));
    return 0;
}
