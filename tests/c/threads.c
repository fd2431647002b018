/*
 * threads FOLDER: four threads of each rank write to one file at once; then two of them have a file each, and flush
 * independently.
 */
#include "common.h"

#include <pthread.h>

#define THREADS 4
#define WRITES 500

static int rank, ranks;
static const char *folder;
static h5logfs_id shared;

struct task {
    int number;
    MPI_Comm comm;
};

/* Rows of one thread, one by one; each value tells its place. */
static void *write_rows(void *arg)
{
    const struct task *task = arg;
    for (int i = 0; i < WRITES; i++) {
        const uint64_t row = (uint64_t)((rank * THREADS + task->number) * WRITES + i);
        const uint64_t start[2] = {row, 0}, count[2] = {1, 2};
        const int64_t data[2] = {(int64_t)row, -(int64_t)row};
        CHECK(h5logfs_write_block(shared, start, count, data, sizeof data));
    }
    return NULL;
}

static void *write_file(void *arg)
{
    const struct task *task = arg;
    char path[4096];
    snprintf(path, sizeof path, "%s/own%d.h5", folder, task->number);
    const uint64_t dims[2] = {(uint64_t)ranks * 10, 2};
    h5logfs_id file;
    CHECK(h5logfs_create(task->comm, path, NULL, &file));
    h5logfs_id dataset = plain(file, "/rows", H5LOGFS_INT64, 2, dims);
    for (int i = 0; i < 10; i++) {
        const uint64_t start[2] = {(uint64_t)(rank * 10 + i), 0}, count[2] = {1, 2};
        const int64_t data[2] = {(int64_t)start[0], -(int64_t)start[0]};
        CHECK(h5logfs_write_block(dataset, start, count, data, sizeof data));
        CHECK(h5logfs_flush(file));
    }
    CHECK(h5logfs_close(file));
    return NULL;
}

static void run(int threads, struct task *tasks, void *(*what)(void *))
{
    pthread_t running[THREADS];
    for (int i = 0; i < threads; i++) {
        REQUIRE(!pthread_create(&running[i], NULL, what, &tasks[i]));
    }
    for (int i = 0; i < threads; i++) {
        REQUIRE(!pthread_join(running[i], NULL));
    }
}

int main(int argc, char **argv)
{
    REQUIRE(argc == 2);
    folder = argv[1];
    int level;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);

    char path[4096];
    snprintf(path, sizeof path, "%s/shared.h5", folder);
    const uint64_t dims[2] = {(uint64_t)(ranks * THREADS * WRITES), 2};
    h5logfs_id file = created(path, NULL);
    shared = plain(file, "/rows", H5LOGFS_INT64, 2, dims);
    struct task tasks[THREADS];
    for (int i = 0; i < THREADS; i++) {
        tasks[i].number = i;
        MPI_Comm_dup(MPI_COMM_WORLD, &tasks[i].comm);
    }
    run(THREADS, tasks, write_rows);
    CHECK(h5logfs_close(file));

    if (level == MPI_THREAD_MULTIPLE) {
        run(2, tasks, write_file);
        puts("with files of their own");
    }
    MPI_Finalize();
    return 0;
}
