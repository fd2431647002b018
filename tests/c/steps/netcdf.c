/* The steps by netCDF-4. */
#include <mpi.h>
#include <netcdf.h>
#include <netcdf_par.h>

#include "steps.h"

#define NC(call)                                         \
    do {                                                 \
        const int status_ = (call);                      \
        if (status_) {                                   \
            FAIL("%s: %s", #call, nc_strerror(status_)); \
        }                                                \
    } while (0)

static int file, history;

static void create(const char *path)
{
    if (ranks) {
        NC(nc_create_par(path, NC_CLOBBER | NC_NETCDF4, MPI_COMM_WORLD, MPI_INFO_NULL, &file));
    } else {
        NC(nc_create(path, NC_CLOBBER | NC_NETCDF4, &file));
    }
    int dims[2];
    NC(nc_def_dim(file, "step", NC_UNLIMITED, &dims[0]));
    NC(nc_def_dim(file, "column", (size_t)columns(), &dims[1]));
    NC(nc_def_var(file, "history", NC_INT, 2, dims, &history));
    const int nothing = 0;
    NC(nc_def_var_fill(file, history, NC_FILL, &nothing));
    if (ranks) {
        NC(nc_var_par_access(file, history, NC_COLLECTIVE));
    }
    /* This flushes the file once, before it has any step. */
    NC(nc_enddef(file));
}

/* A write extends the file by itself. */
static void extend(int rows)
{
    (void)rows;
}

/* All ranks together. */
static void write_elements(int step, int first, int number, const int *elements)
{
    const size_t start[] = {(size_t)step, (size_t)first}, count[] = {1, (size_t)number};
    NC(nc_put_vara_int(file, history, start, count, elements));
}

/* netCDF flushes every definition. */
static void mark(int step)
{
    (void)step;
}

const struct library netcdf = {create, extend, write_elements, mark};
