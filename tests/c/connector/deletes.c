/*
 * deletes DIRECTORY, under MPI: the ranks make logs and delete them together. Deleting an open log is refused to all of
 * them, and the log continues.
 */
#include "../hosts/host.h"

#include <mpi.h>

#define OK(call) REQUIRE((call) >= 0)

enum { ROUNDS = 4 };

static int rank, ranks;

static void write_own(hid_t file)
{
    const hsize_t all = (hsize_t)ranks, at = (hsize_t)rank;
    const hid_t space = H5Screate_simple(1, &all, NULL), one = H5Screate(H5S_SCALAR);
    const hid_t dataset = H5Dcreate2(file, "ranks", H5T_NATIVE_INT, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    OK(dataset);
    OK(H5Sselect_elements(space, H5S_SELECT_SET, 1, &at));
    OK(H5Dwrite(dataset, H5T_NATIVE_INT, one, space, H5P_DEFAULT, &rank));
    OK(H5Sclose(one));
    OK(H5Sclose(space));
    OK(H5Dclose(dataset));
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    REQUIRE(argc == 2);
    OK(H5Eset_auto2(H5E_DEFAULT, NULL, NULL));
    char path[300];
    snprintf(path, sizeof path, "%s/log.h5", argv[1]);
    const hid_t fapl = H5Pcreate(H5P_FILE_ACCESS);
    OK(H5Pset_fapl_mpio(fapl, MPI_COMM_WORLD, MPI_INFO_NULL));
    for (int round = 0; round < ROUNDS; round++) {
        const hid_t file = H5Fcreate(path, H5F_ACC_EXCL, H5P_DEFAULT, fapl);
        OK(file);
        write_own(file);
        OK(H5Fflush(file, H5F_SCOPE_GLOBAL));
        REQUIRE(H5Fdelete(path, fapl) < 0);
        REQUIRE(!access(path, F_OK));
        OK(H5Fclose(file));
        OK(H5Fdelete(path, fapl));
        REQUIRE(access(path, F_OK));
        /* There is nothing to delete: the first rank knows, and no other waits for it. */
        const herr_t status = H5Fdelete(path, fapl);
        REQUIRE(rank > 0 || status < 0);
    }
    OK(H5Pclose(fapl));
    MPI_Finalize();
    return 0;
}
