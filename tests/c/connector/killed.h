/* Common parts of programs that write to a file through HDF5 until a test kills them. They report their progress in
 * files. */
#ifndef KILLED_H
#define KILLED_H

#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#include <hdf5.h>
#include <mpi.h>

#include "../check.h"

/* An HDF5 call that must succeed. The value is that of the call. */
#define H5(call)                            \
    __extension__({                         \
        const __auto_type result_ = (call); \
        if (result_ < 0) {                  \
            FAIL("failed: %s", #call);      \
        }                                   \
        result_;                            \
    })

static int rank, ranks;
/* The directory of those files. */
static const char *notes;

static FILE *open_note(const char *name)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", notes, name);
    FILE *file = fopen(path, "a");
    REQUIRE(file);
    return file;
}

/* The first rank adds a line to "acknowledged". */
__attribute__((format(printf, 1, 2))) static void acknowledge(const char *format, ...)
{
    if (rank) {
        return;
    }
    FILE *file = open_note("acknowledged");
    va_list arguments;
    va_start(arguments, format);
    vfprintf(file, format, arguments);
    va_end(arguments);
    fputc('\n', file);
    fclose(file);
}

/* Adds a line once all ranks are there. */
#define ACKNOWLEDGE_ALL(...)         \
    do {                             \
        MPI_Barrier(MPI_COMM_WORLD); \
        acknowledge(__VA_ARGS__);    \
    } while (0)

/* Starts MPI, and writes the process number of each rank to pid.RANK, then "ready". */
static void begin(int *argc, char ***argv)
{
    MPI_Init(argc, argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    notes = (*argv)[2];
    char name[32];
    snprintf(name, sizeof name, "pid.%d", rank);
    FILE *file = open_note(name);
    fprintf(file, "%d", (int)getpid());
    fclose(file);
    ACKNOWLEDGE_ALL("ready");
}

#endif
