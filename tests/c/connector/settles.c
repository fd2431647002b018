/*
 * settles FILE, under MPI: the ranks make a log with elements that it keeps by itself, and others, and close it. Each
 * prints the error of the close, and closes it again after a failure.
 */
#include "../hosts/host.h"

#include <mpi.h>

#define OK(call) REQUIRE((call) >= 0)

static int rank, ranks;
static char sentence[1000];

/* Keeps the innermost description on the error stack. */
static herr_t keep(unsigned n, const H5E_error2_t *error, void *arg)
{
    (void)arg;
    if (n == 0) {
        snprintf(sentence, sizeof sentence, "%s", error->desc);
    }
    return 0;
}

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

/* An attribute of a committed datatype: only the program h5logfs closes such a log. */
static void commit_type(hid_t file)
{
    const hid_t type = H5Tcopy(H5T_STD_I16BE);
    OK(type);
    OK(H5Tcommit2(file, "type", type, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
    OK(H5Tclose(type));
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    REQUIRE(argc == 3);
    OK(H5Eset_auto2(H5E_DEFAULT, NULL, NULL));
    const hid_t fapl = H5Pcreate(H5P_FILE_ACCESS);
    OK(H5Pset_fapl_mpio(fapl, MPI_COMM_WORLD, MPI_INFO_NULL));
    const hid_t file = H5Fcreate(argv[1], H5F_ACC_TRUNC, H5P_DEFAULT, fapl);
    OK(file);
    OK(H5Pclose(fapl));
    write_own(file);
    if (!strcmp(argv[2], "type")) {
        commit_type(file);
    }
    strcpy(sentence, "done");
    if (H5Fclose(file) < 0) {
        OK(H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, keep, NULL));
        OK(H5Fclose(file));
    }
    printf("rank %d: %s\n", rank, sentence);
    MPI_Finalize();
    return 0;
}
