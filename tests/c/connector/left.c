/*
 * left LOG PLAIN: a program that ends with open files: each by two handles, and a dataset.
 */
#include <hdf5.h>

#include "../check.h"

#define OK(call) REQUIRE((call) >= 0)

static void leave(const char *path)
{
    const hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    const hid_t again = H5Fopen(path, H5F_ACC_RDWR, H5P_DEFAULT);
    OK(file);
    OK(again);
    const hsize_t length = 3;
    const int values[] = {1, 2, 3};
    const hid_t space = H5Screate_simple(1, &length, NULL);
    const hid_t dataset = H5Dcreate2(again, "values", H5T_NATIVE_INT, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    OK(dataset);
    OK(H5Dwrite(dataset, H5T_NATIVE_INT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values));
    OK(H5Iinc_ref(file));
}

int main(int argc, char **argv)
{
    REQUIRE(argc == 3);
    leave(argv[1]);
    leave(argv[2]);
    return 0;
}
