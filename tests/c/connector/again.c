/*
 * again FILE: reopens a file that this program is writing, in each way in which it may be open. Its disk state is
 * unreadable meanwhile: libhdf5 keeps most metadata in memory. The library has the file open, and shows it.
 */
#include "../hosts/host.h"

#define OK(call) REQUIRE((call) >= 0)

enum { BYTES = 100000 };

static unsigned char bytes[BYTES], got[BYTES];

static hid_t dataset_of(hid_t file, const char *name)
{
    const hsize_t length = BYTES;
    const hid_t space = H5Screate_simple(1, &length, NULL);
    const hid_t dataset = H5Dcreate2(file, name, H5T_NATIVE_UCHAR, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    OK(dataset);
    OK(H5Dwrite(dataset, H5T_NATIVE_UCHAR, H5S_ALL, H5S_ALL, H5P_DEFAULT, bytes));
    OK(H5Sclose(space));
    return dataset;
}

/* Opens the file for reading and writing, finds the bytes, and closes it again. */
static void holds(const char *path, const char *name)
{
    const hid_t file = H5Fopen(path, H5F_ACC_RDWR, H5P_DEFAULT);
    if (file < 0) {
        H5Eprint2(H5E_DEFAULT, stderr);
        FAIL("%s, which is open, cannot be opened again", path);
    }
    const hid_t dataset = H5Dopen2(file, name, H5P_DEFAULT);
    OK(dataset);
    OK(H5Dread(dataset, H5T_NATIVE_UCHAR, H5S_ALL, H5S_ALL, H5P_DEFAULT, got));
    REQUIRE(!memcmp(got, bytes, BYTES));
    OK(H5Dclose(dataset));
    OK(H5Fclose(file));
}

int main(int argc, char **argv)
{
    REQUIRE(argc == 2);
    const char *path = argv[1];
    char other[1000];
    snprintf(other, sizeof other, "%s.other", path);
    for (int i = 0; i < BYTES; i++) {
        bytes[i] = (unsigned char)(i * 7);
    }
    const hid_t latest = H5Pcreate(H5P_FILE_ACCESS);
    OK(H5Pset_libver_bounds(latest, H5F_LIBVER_LATEST, H5F_LIBVER_LATEST));

    /* The file is open. */
    hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, latest);
    OK(file);
    hid_t dataset = dataset_of(file, "one");
    holds(path, "one");
    /* Only a dataset of the file is open. */
    OK(H5Fclose(file));
    holds(path, "one");
    OK(H5Dclose(dataset));
    holds(path, "one");
    /* The file was opened, not created. */
    file = H5Fopen(path, H5F_ACC_RDWR, latest);
    OK(file);
    OK(H5Dclose(dataset_of(file, "two")));
    holds(path, "two");
    OK(H5Fclose(file));

    /* A link of another file leads to it. */
    const hid_t from = H5Fcreate(other, H5F_ACC_TRUNC, H5P_DEFAULT, latest);
    OK(from);
    OK(H5Lcreate_external(path, "/", from, "link", H5P_DEFAULT, H5P_DEFAULT));
    file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, latest);
    OK(file);
    dataset = dataset_of(file, "three");
    holds(other, "link/three");
    OK(H5Fclose(file));
    holds(other, "link/three");
    OK(H5Dclose(dataset));
    /* The file is open only because the link has led to it. */
    dataset = H5Dopen2(from, "link/three", H5P_DEFAULT);
    OK(dataset);
    const hid_t attribute_space = H5Screate(H5S_SCALAR);
    for (int i = 0; i < 50; i++) {
        char name[20];
        snprintf(name, sizeof name, "a%d", i);
        OK(H5Aclose(H5Acreate2(dataset, name, H5T_NATIVE_INT, attribute_space, H5P_DEFAULT, H5P_DEFAULT)));
    }
    OK(H5Dclose(dataset_of(from, "link/four")));
    holds(path, "three");
    holds(path, "four");
    OK(H5Dclose(dataset));
    OK(H5Sclose(attribute_space));
    OK(H5Fclose(from));
    OK(H5Pclose(latest));
    holds(path, "four");
    return 0;
}
