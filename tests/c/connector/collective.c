/*
 * collective EXPECTED LOG…, under MPI: the ranks open each log together, by MPI-IO, and read each dataset at once. The
 * file's properties are those that they have requested.
 */
#include "../hosts/host.h"

#include <mpi.h>

static hid_t together;

static herr_t compare(hid_t expected, const char *name, const H5O_info2_t *info, void *arg)
{
    if (info->type != H5O_TYPE_DATASET) {
        return 0;
    }
    const hid_t log = *(hid_t *)arg, wanted = H5Dopen2(expected, name, H5P_DEFAULT), got = H5Dopen2(log, name, H5P_DEFAULT);
    REQUIRE(wanted >= 0 && got >= 0);
    void *bytes;
    const ssize_t size = read_numbers(wanted, &bytes);
    if (size > 0) {
        void *all = malloc((size_t)size);
        const hid_t stored = H5Dget_type(got), type = H5Tget_native_type(stored, H5T_DIR_ASCEND);
        REQUIRE(H5Dread(got, type, H5S_ALL, H5S_ALL, together, all) >= 0);
        REQUIRE(!memcmp(bytes, all, (size_t)size));
        H5Tclose(type);
        H5Tclose(stored);
        free(all);
    }
    free(bytes);
    REQUIRE(H5Dclose(got) >= 0 && H5Dclose(wanted) >= 0);
    return 0;
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    REQUIRE(argc > 2);
    const hid_t fapl = H5Pcreate(H5P_FILE_ACCESS), expected = opened(argv[1]);
    together = H5Pcreate(H5P_DATASET_XFER);
    REQUIRE(H5Pset_fapl_mpio(fapl, MPI_COMM_WORLD, MPI_INFO_NULL) >= 0);
    REQUIRE(H5Pset_dxpl_mpio(together, H5FD_MPIO_COLLECTIVE) >= 0);
    for (int i = 2; i < argc; i++) {
        hid_t log = H5Fopen(argv[i], H5F_ACC_RDONLY, fapl);
        REQUIRE(log >= 0);
        REQUIRE(H5Ovisit3(expected, H5_INDEX_NAME, H5_ITER_INC, compare, &log, H5O_INFO_BASIC) >= 0);
        const hid_t list = H5Fget_access_plist(log);
        REQUIRE(H5Pget_driver(list) == H5FD_MPIO);
        REQUIRE(H5Pclose(list) >= 0 && H5Fclose(log) >= 0);
    }
    REQUIRE(H5Pclose(together) >= 0 && H5Pclose(fapl) >= 0 && H5Fclose(expected) >= 0);
    MPI_Finalize();
    return 0;
}
