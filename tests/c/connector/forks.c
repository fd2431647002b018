/*
 * forks FILE HOW WHEN WHAT [parallel]: a program forks while it has a file open for writing. The child does WHAT to the file
 * that it has inherited, and ends by exit(), in which libhdf5 closes all files.
 *
 * HOW: "new", the file is created; "append", it is opened again; "idle", the same, and nothing is written.
 * WHEN: "first", before the parent goes on; "after", when the parent has closed the file; "later", when the parent has opened it
 * again after that, written to it and closed it; "killed", when the parent was killed.
 * WHAT: see act().
 *
 * With LISTS, elements are written by lists of blocks.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <hdf5.h>
#include <mpi.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef LISTS
#include <H5VL_log.h>
#endif

#include "../check.h"

#define OK(call) REQUIRE((call) >= 0)
#define LENGTH 1000

static const char *path;
static hid_t access_list = H5P_DEFAULT;
static int rank = 0, ranks = 1;

/* A failing child ends without a word from libhdf5. */
static void refused(herr_t status, const char *what)
{
    if (status >= 0) {
        fprintf(stderr, "the child was not refused: %s\n", what);
        _exit(3);
    }
}

#define REFUSED(call) refused((herr_t)(call), #call)

static herr_t put(hid_t dataset, const int *values)
{
#ifdef LISTS
    hsize_t from = 0, number = LENGTH, *start = &from, *count = &number;
    return H5Dwrite_n(dataset, H5T_NATIVE_INT, 1, &start, &count, H5P_DEFAULT, values);
#else
    return H5Dwrite(dataset, H5T_NATIVE_INT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values);
#endif
}

static hid_t made(hid_t file, const char *name)
{
    const hsize_t extent = LENGTH, most = H5S_UNLIMITED, chunk = 100;
    const hid_t space = H5Screate_simple(1, &extent, &most), plist = H5Pcreate(H5P_DATASET_CREATE);
    OK(H5Pset_chunk(plist, 1, &chunk));
    const hid_t dataset = H5Dcreate2(file, name, H5T_NATIVE_INT, space, H5P_DEFAULT, plist, H5P_DEFAULT);
    H5Pclose(plist);
    H5Sclose(space);
    return dataset;
}

static void values_of(const char *name, int *values)
{
    for (int i = 0; i < LENGTH; i++) {
        values[i] = i * name[0];
    }
}

/* Makes a dataset, whose elements the last rank writes. */
static void add(hid_t file, const char *name)
{
    int values[LENGTH];
    values_of(name, values);
    const hid_t dataset = made(file, name);
    OK(dataset);
    if (rank == ranks - 1) {
        OK(put(dataset, values));
    }
    OK(H5Dclose(dataset));
}

static int differs(hid_t file, const char *name)
{
    int values[LENGTH], found[LENGTH];
    values_of(name, values);
    const hid_t dataset = H5Dopen2(file, name, H5P_DEFAULT);
    const bool is_read = H5Dread(dataset, H5T_NATIVE_INT, H5S_ALL, H5S_ALL, H5P_DEFAULT, found) >= 0;
    H5Dclose(dataset);
    return !is_read ? -1 : memcmp(values, found, sizeof values) ? 1 : 0;
}

static void has(const char *of, const char *names)
{
    const hid_t file = H5Fopen(of, H5F_ACC_RDONLY, access_list);
    OK(file);
    for (; *names; names++) {
        const char name[] = {*names, 0};
        if (differs(file, name)) {
            FAIL("%s has no good %s", of, name);
        }
    }
    OK(H5Fclose(file));
}

/* The child's actions. Whatever it would change is refused. */
static void act(const char *what, hid_t file, hid_t dataset, const char *name, bool is_open, const char *own)
{
    int values[LENGTH];
    values_of("x", values);
    hsize_t longer = 2 * LENGTH;
    H5E_BEGIN_TRY
    {
        if (!strcmp(what, "exec")) {
            execlp("/no/such/program", "program", NULL);
        } else if (!strcmp(what, "close")) {
            H5Dclose(dataset);
            if (H5Fclose(file) < 0) {
                _exit(4);
            }
        } else if (!strcmp(what, "library")) {
            H5close();
        } else if (!strcmp(what, "flush")) {
            REFUSED(H5Fflush(file, H5F_SCOPE_GLOBAL));
            REFUSED(H5Dflush(dataset));
        } else if (!strcmp(what, "write")) {
            REFUSED(put(dataset, values));
            REFUSED(H5Dset_extent(dataset, &longer));
        } else if (!strcmp(what, "objects")) {
            REFUSED(H5Gcreate2(file, "g", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
            REFUSED(made(file, "d"));
            REFUSED(H5Ldelete(file, name, H5P_DEFAULT));
            const hid_t space = H5Screate(H5S_SCALAR);
            REFUSED(H5Acreate2(dataset, "a", H5T_NATIVE_INT, space, H5P_DEFAULT, H5P_DEFAULT));
        } else if (!strcmp(what, "read")) {
            /* The right content, or nothing. */
            const int difference = differs(file, name);
            if (difference != (is_open && ranks == 1 ? 0 : -1)) {
                _exit(5);
            }
        } else if (!strcmp(what, "own")) {
            H5Dclose(dataset);
            H5Fclose(file);
            const hid_t mine = H5Fcreate(own, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
            add(mine, "x");
            OK(H5Fclose(mine));
            if (!is_open) {
                /* Anybody may open it now. */
                const hid_t again = H5Fopen(path, H5F_ACC_RDWR, H5P_DEFAULT);
                add(again, "c");
                OK(H5Fclose(again));
            }
        } else if (!strcmp(what, "grandchild")) {
            const pid_t child = fork();
            if (child > 0) {
                int status;
                waitpid(child, &status, 0);
                _exit(WEXITSTATUS(status));
            }
            REFUSED(put(dataset, values));
        }
        /* "exit" and "clone" do nothing more. */
    }
    H5E_END_TRY
}

int main(int argc, char **argv)
{
    REQUIRE(argc >= 5);
    path = argv[1];
    const char *how = argv[2], *when = argv[3], *what = argv[4];
    char own[4096];
    snprintf(own, sizeof own, "%s.child", path);
    if (argc > 5) {
        MPI_Init(&argc, &argv);
        MPI_Comm_rank(MPI_COMM_WORLD, &rank);
        MPI_Comm_size(MPI_COMM_WORLD, &ranks);
        access_list = H5Pcreate(H5P_FILE_ACCESS);
        OK(H5Pset_fapl_mpio(access_list, MPI_COMM_WORLD, MPI_INFO_NULL));
    }
    hid_t file;
    if (strcmp(how, "new")) {
        file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, access_list);
        add(file, "o");
        OK(H5Fclose(file));
        file = H5Fopen(path, H5F_ACC_RDWR, access_list);
    } else {
        file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, access_list);
    }
    OK(file);
    const bool is_idle = !strcmp(how, "idle"), is_killed = !strcmp(when, "killed");
    if (!is_idle) {
        add(file, "x");
        OK(H5Fflush(file, H5F_SCOPE_GLOBAL));
        add(file, "y");
    }
    const char *name = is_idle ? "o" : "x";
    const hid_t dataset = H5Dopen2(file, name, H5P_DEFAULT);
    OK(dataset);
    int gate[2];
    REQUIRE(!pipe2(gate, O_CLOEXEC));
    const pid_t child = !strcmp(what, "clone") ? (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0) : fork();
    if (child == 0) {
        char byte;
        close(gate[1]);
        if (strcmp(when, "first") && read(gate[0], &byte, 1) < 0) {
            _exit(6);
        }
        act(what, file, dataset, name, !strcmp(when, "first"), own);
        exit(0);
    }
    close(gate[0]);
    int status = 0;
    if (is_killed) {
        raise(SIGKILL);
    }
    if (!strcmp(when, "first")) {
        REQUIRE(waitpid(child, &status, 0) == child);
    }
    if (!is_idle) {
        add(file, "z");
    }
    OK(H5Dclose(dataset));
    OK(H5Fclose(file));
    if (!strcmp(when, "later")) {
        file = H5Fopen(path, H5F_ACC_RDWR, access_list);
        OK(file);
        add(file, "w");
        OK(H5Fclose(file));
    }
    close(gate[1]);
    if (strcmp(when, "first")) {
        REQUIRE(waitpid(child, &status, 0) == child);
    }
    if (status) {
        FAIL("the child ended with %d", WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status));
    }
    has(path, is_idle ? "o" : strcmp(how, "new") ? "oxyz" : "xyz");
    has(path, strcmp(when, "later") ? "" : "w");
    if (!strcmp(what, "own") && rank == 0 && ranks == 1) {
        has(own, "x");
        has(path, strcmp(when, "first") ? "c" : "");
    }
    if (argc > 5) {
        OK(H5Pclose(access_list));
        MPI_Finalize();
    }
    return 0;
}
