/*
 * steps FILE NOTES hdf5|netcdf ranks|alone together|apart ENDING STEP: MPI ranks, or one process without MPI, write steps to a
 * file, and never flush it, until they are killed. Each tells in NOTES when it has written which step (notes.c).
 *
 * together: the ranks extend the file for each step. apart: only for each 50th; in between they make no call together, and each
 * takes another time for a step. The file is flushed before the first one, where that happens each second.
 *
 * What happens after this many steps: abort (the last rank calls MPI_Abort), crash (the last rank raises SIGSEGV while the
 * others wait for it). Or all leave the program without closing the file: exit, finalize (after MPI_Finalize), _exit. never:
 * nothing.
 */
#include <mpi.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "notes.h"
#include "steps.h"

int rank, ranks;

static void begin(const char *notes, int *argc, char ***argv)
{
    if (ranks) {
        MPI_Init(argc, argv);
        MPI_Comm_rank(MPI_COMM_WORLD, &rank);
        MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    }
    notes_begin(notes, rank);
}

static void tell_ready(const char *notes)
{
    if (ranks) {
        MPI_Barrier(MPI_COMM_WORLD);
    }
    if (!rank) {
        notes_ready(notes);
    }
}

/* In one call the first rank requests a flush, which happens in the next one. */
static void let_flush(const struct library *library, int rows)
{
    usleep(1100000);
    library->extend(rows);
    library->extend(rows);
}

static void write_step(const struct library *library, int step, int pieces)
{
    int elements[WIDTH];
    const int number = WIDTH / pieces;
    for (int piece = 0; piece < pieces; piece++) {
        const int first = rank * WIDTH + piece * number;
        for (int i = 0; i < number; i++) {
            elements[i] = step * 1000 + first + i;
        }
        library->write(step, first, number, elements);
    }
}

static void end(const char *how)
{
    const int is_last = rank == ranks - 1;
    if (!strcmp(how, "finalize")) {
        MPI_Finalize();
        exit(0);
    }
    if (!strcmp(how, "exit")) {
        exit(0);
    }
    if (!strcmp(how, "_exit")) {
        _exit(0);
    }
    if (!strcmp(how, "abort") && is_last) {
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    if (!strcmp(how, "crash")) {
        if (is_last) {
            raise(SIGSEGV);
        }
        MPI_Barrier(MPI_COMM_WORLD);
    }
}

int main(int argc, char **argv)
{
    REQUIRE(argc == 8);
    const struct library *library = strcmp(argv[3], "netcdf") ? &hdf5 : &netcdf;
    const int are_together = !strcmp(argv[5], "together");
    const char *ending = argv[6];
    const int last = atoi(argv[7]), stride = are_together ? 1 : 50;
    ranks = !strcmp(argv[4], "ranks");
    begin(argv[2], &argc, &argv);
    if (are_together) {
        tell_ready(argv[2]);
    }
    library->create(argv[1]);
    if (!are_together) {
        let_flush(library, stride);
        tell_ready(argv[2]);
    }
    for (int step = 0;; step++) {
        notes_step_begins();
        if (step % stride == 0) {
            library->extend(step + stride);
        }
        /* Collective calls must be equally many on each rank. */
        write_step(library, step, library == &hdf5 ? 1 + rank : 1);
        if (are_together && step % 4 == 3) {
            library->mark(step);
        }
        notes_step_ends(step, are_together ? 10 : 5 + 3 * rank);
        if (step == last) {
            end(ending);
        }
    }
}
