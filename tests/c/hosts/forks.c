/*
 * forks EXPECTED LOG…: a host forks with open logs, and both processes read, at the same time; several threads read
 * while another one forks. HDF5 itself is no good in a child that was forked in the midst of a call, so the host has a
 * lock around HDF5, which the fork takes, too, where the child reads.
 */
#include "host.h"

#include <stdatomic.h>

#define READERS 4
#define FORKS 30
#define MOST_LOGS 64

static pthread_mutex_t hdf5 = PTHREAD_MUTEX_INITIALIZER;
static struct contents expected;
static hid_t files[MOST_LOGS];
static char **paths;
static int logs;
static atomic_int stop;

static void read_open_files(void)
{
    for (int i = 0; i < logs; i++) {
        REQUIRE(!pthread_mutex_lock(&hdf5));
        REQUIRE_CONTENTS(files[i], &expected);
        REQUIRE(!pthread_mutex_unlock(&hdf5));
    }
}

static void read_closed_files(void)
{
    for (int i = 0; i < logs; i++) {
        REQUIRE(!pthread_mutex_lock(&hdf5));
        require_same(paths[i], &expected);
        REQUIRE(!pthread_mutex_unlock(&hdf5));
    }
}

static void close_files(void)
{
    for (int i = 0; i < logs; i++) {
        REQUIRE(H5Fclose(files[i]) >= 0);
    }
}

/* A child has one thread. It reads what the parent had open, and what it opens itself. */
static void read_everything(void)
{
    read_open_files();
    read_closed_files();
}

/* A child has a child of its own, which reads while it reads. */
static void child(void)
{
    read_everything();
    const pid_t pid = fork();
    REQUIRE(pid >= 0);
    read_everything();
    if (pid) {
        require_success(pid);
    }
    close_files();
    exit(0);
}

static pid_t fork_reader(void)
{
    REQUIRE(!pthread_mutex_lock(&hdf5));
    const pid_t pid = fork();
    REQUIRE(pid >= 0);
    REQUIRE(!pthread_mutex_unlock(&hdf5));
    if (!pid) {
        child();
    }
    return pid;
}

/* During the readers' work. The child does not use HDF5. */
static pid_t fork_bystander(void)
{
    const pid_t pid = fork();
    REQUIRE(pid >= 0);
    if (!pid) {
        execl("/bin/true", "true", (char *)NULL);
        _exit(1);
    }
    return pid;
}

static void *reader(void *arg)
{
    (void)arg;
    while (!atomic_load(&stop)) {
        read_everything();
    }
    return NULL;
}

int main(int argc, char **argv)
{
    REQUIRE(argc > 2 && argc - 2 <= MOST_LOGS);
    expected = contents_of(argv[1]);
    paths = argv + 2;
    logs = argc - 2;
    for (int i = 0; i < logs; i++) {
        files[i] = opened(paths[i]);
    }
    /* One thread; the child reads first, then the parent. */
    require_success(fork_reader());
    read_open_files();

    pthread_t readers[READERS];
    for (int i = 0; i < READERS; i++) {
        REQUIRE(!pthread_create(&readers[i], NULL, reader, NULL));
    }
    for (int i = 0; i < FORKS; i++) {
        const pid_t bystander = fork_bystander(), pid = fork_reader();
        require_success(bystander);
        require_success(pid);
    }
    atomic_store(&stop, 1);
    for (int i = 0; i < READERS; i++) {
        REQUIRE(!pthread_join(readers[i], NULL));
    }
    close_files();
    return 0;
}
