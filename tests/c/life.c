/*
 * life FOLDER: MPI starts and ends around the library. Leaves FOLDER/open.h5 and FOLDER/left.h5 unclosed, like a
 * program that ends too early.
 */
#include <sys/wait.h>
#include <unistd.h>

#include "common.h"

int main(int argc, char **argv)
{
    REQUIRE(argc == 2);
    char path[2][4096];
    snprintf(path[0], sizeof path[0], "%s/open.h5", argv[1]);
    snprintf(path[1], sizeof path[1], "%s/left.h5", argv[1]);

    const char *not_yet = "not initialised", *no_more = "finalised already";
    h5logfs_id file[2];
    REFUSED(H5LOGFS_ERR_MPI, not_yet, h5logfs_create(MPI_COMM_WORLD, path[0], NULL, &file[0]));
    REFUSED(H5LOGFS_ERR_MPI, not_yet, h5logfs_create_f(0, path[0], NULL, &file[0]));
    REFUSED(H5LOGFS_ERR_MPI, not_yet, h5logfs_open(MPI_COMM_WORLD, path[0], NULL, &file[0]));
    h5logfs_id datatype;
    CHECK(h5logfs_type_compound(4, &datatype));

    MPI_Init(&argc, &argv);
    int rank, ranks;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    const uint64_t dims = (uint64_t)ranks, start = (uint64_t)rank, one = 1;
    const int32_t value = rank + 1, lost = -1;
    h5logfs_id dataset[2];
    for (int i = 0; i < 2; i++) {
        file[i] = created(path[i], NULL);
        dataset[i] = plain(file[i], "/d", H5LOGFS_INT32, 1, &dims);
        CHECK(h5logfs_write_block(dataset[i], &start, &one, &value, sizeof value));
        CHECK(h5logfs_flush(file[i]));
        CHECK(h5logfs_lend_block(dataset[i], &start, &one, &lost, sizeof lost));
    }
    const pid_t child = fork();
    if (child == 0) {
        const char *forked = "this process was forked";
        REFUSED(H5LOGFS_ERR_FORKED, forked, h5logfs_write_block(dataset[0], &start, &one, &lost, sizeof lost));
        REFUSED(H5LOGFS_ERR_FORKED, forked, h5logfs_append(dataset[0], &lost, sizeof lost));
        REFUSED(H5LOGFS_ERR_FORKED, forked, h5logfs_group(file[0], "/g"));
        REFUSED(H5LOGFS_ERR_FORKED, forked, h5logfs_flush(file[0]));
        CHECK(h5logfs_close(file[0]));
        CHECK(h5logfs_close(file[1]));
        _exit(0);
    }
    int status = -1;
    REQUIRE(waitpid(child, &status, 0) == child && status == 0);
    CHECK(h5logfs_abandon(file[1]));
    MPI_Finalize();

    REFUSED(H5LOGFS_ERR_MPI, no_more, h5logfs_group(file[0], "/g"));
    REFUSED(H5LOGFS_ERR_MPI, no_more, h5logfs_set_extent(dataset[0], &dims));
    REFUSED(H5LOGFS_ERR_MPI, no_more, h5logfs_flush(file[0]));
    REFUSED(H5LOGFS_ERR_MPI, no_more, h5logfs_close(file[0]));
    REFUSED(H5LOGFS_ERR_MPI, no_more, h5logfs_create(MPI_COMM_WORLD, path[0], NULL, &file[0]));
    CHECK(h5logfs_write_block(dataset[0], &start, &one, &value, sizeof value));
    CHECK(h5logfs_type_close(datatype));
    return 0;
}
