#ifndef STEPS_H
#define STEPS_H

#include "../check.h"

/* Elements of each rank in a row. */
enum { WIDTH = 1200 };

/* 0 ranks: a process without MPI. */
extern int rank, ranks;

/* How a library writes `history`, which has a row per step with elements of each rank: that in column C is STEP *
 * 1000 + C. */
struct library {
    void (*create)(const char *path);
    /* All ranks extend it to this many rows. */
    void (*extend)(int rows);
    void (*write)(int step, int first, int number, const int *elements);
    /* All ranks make an object for a step. */
    void (*mark)(int step);
};

extern const struct library hdf5, netcdf;

static inline int columns(void)
{
    return WIDTH * (ranks > 1 ? ranks : 1);
}

#endif
