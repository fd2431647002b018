/*
 * parallel FILE: an MPI program of netCDF-4. It creates FILE with nc_create_par, with groups, dimensions of both kinds,
 * its own types and compression, and reopens it to append.
 */
#include <stdio.h>
#include <stdlib.h>

#include <mpi.h>
#include <netcdf.h>
#include <netcdf_par.h>

#include "../check.h"

#define NC(call)                                               \
    do {                                                       \
        const int status_ = (call);                            \
        if (status_) {                                         \
            FAIL("%s: %s", #call, nc_strerror(status_));       \
        }                                                      \
    } while (0)

enum { ROWS = 12, COLUMNS = 20, STEPS = 5 };

static int rank, ranks;

struct state {
    int count;
    double mean;
};

static void define(int file)
{
    int time, row, column, group, variable, type;
    NC(nc_def_dim(file, "time", NC_UNLIMITED, &time));
    NC(nc_def_dim(file, "row", ROWS, &row));
    NC(nc_def_dim(file, "column", COLUMNS, &column));
    const int dims[] = {time, row, column};
    NC(nc_def_var(file, "temperature", NC_FLOAT, 3, dims, &variable));
    const float missing = -1e30f;
    NC(nc_def_var_fill(file, variable, NC_FILL, &missing));
    NC(nc_put_att_text(file, variable, "units", 1, "K"));
    NC(nc_var_par_access(file, variable, NC_COLLECTIVE));
    NC(nc_def_var(file, "time", NC_DOUBLE, 1, &time, &variable));
    NC(nc_var_par_access(file, variable, NC_COLLECTIVE));
    NC(nc_def_var(file, "mask", NC_BYTE, 2, dims + 1, &variable));
    NC(nc_def_var(file, "packed", NC_INT, 2, dims + 1, &variable));
    NC(nc_def_var_deflate(file, variable, 1, 1, 4));
    NC(nc_var_par_access(file, variable, NC_COLLECTIVE));
    NC(nc_def_grp(file, "inner", &group));
    NC(nc_def_compound(group, sizeof(struct state), "state", &type));
    NC(nc_insert_compound(group, type, "count", NC_COMPOUND_OFFSET(struct state, count), NC_INT));
    NC(nc_insert_compound(group, type, "mean", NC_COMPOUND_OFFSET(struct state, mean), NC_DOUBLE));
    NC(nc_def_var(group, "states", type, 1, &row, &variable));
    NC(nc_put_att_text(file, NC_GLOBAL, "title", 5, "steps"));
    NC(nc_enddef(file));
}

/* The rows of a rank: some have more. */
static void share(size_t *first, size_t *count)
{
    *first = (size_t)(ROWS * rank / ranks);
    *count = (size_t)(ROWS * (rank + 1) / ranks) - *first;
}

static void write_step(int file, size_t step)
{
    size_t first, count;
    share(&first, &count);
    int variable;
    float values[ROWS * COLUMNS];
    for (size_t i = 0; i < count * COLUMNS; i++) {
        values[i] = (float)(step * 1000 + first * COLUMNS + i);
    }
    const size_t start[] = {step, first, 0}, size[] = {1, count, COLUMNS};
    NC(nc_inq_varid(file, "temperature", &variable));
    NC(nc_put_vara_float(file, variable, start, size, values));
    const double time = 0.5 * (double)step;
    const size_t one = 1;
    NC(nc_inq_varid(file, "time", &variable));
    NC(nc_put_vara_double(file, variable, &step, &one, &time));
}

static void write_rest(int file)
{
    size_t first, count;
    share(&first, &count);
    int variable, group;
    int values[ROWS * COLUMNS];
    signed char mask[ROWS * COLUMNS];
    struct state states[ROWS];
    for (size_t i = 0; i < count * COLUMNS; i++) {
        values[i] = (int)(first * COLUMNS + i) / 7;
        mask[i] = (signed char)(i % 3);
    }
    for (size_t i = 0; i < count; i++) {
        /* The gaps between members are written, too. */
        states[i] = (struct state){0};
        states[i].count = (int)(first + i);
        states[i].mean = 0.25 * (double)i;
    }
    const size_t start[] = {first, 0}, size[] = {count, COLUMNS};
    NC(nc_inq_varid(file, "mask", &variable));
    NC(nc_put_vara_schar(file, variable, start, size, mask));
    NC(nc_inq_varid(file, "packed", &variable));
    NC(nc_put_vara_int(file, variable, start, size, values));
    NC(nc_inq_grp_ncid(file, "inner", &group));
    NC(nc_inq_varid(group, "states", &variable));
    NC(nc_put_vara(group, variable, &first, &count, states));
}

/* Reads what other ranks have written. */
static void read_back(int file, size_t steps)
{
    static float values[STEPS * ROWS * COLUMNS];
    const size_t start[] = {0, 0, 0}, size[] = {steps, ROWS, COLUMNS};
    int variable;
    NC(nc_inq_varid(file, "temperature", &variable));
    NC(nc_var_par_access(file, variable, NC_COLLECTIVE));
    NC(nc_get_vara_float(file, variable, start, size, values));
    for (size_t step = 0; step < steps; step++) {
        for (size_t i = 0; i < ROWS * COLUMNS; i++) {
            REQUIRE(values[step * ROWS * COLUMNS + i] == (float)(step * 1000 + i));
        }
    }
}

static void collective_access(int file)
{
    const char *names[] = {"temperature", "time"};
    for (int i = 0; i < 2; i++) {
        int variable;
        NC(nc_inq_varid(file, names[i], &variable));
        NC(nc_var_par_access(file, variable, NC_COLLECTIVE));
    }
}

int main(int argc, char **argv)
{
    REQUIRE(argc == 2);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    int file;
    NC(nc_create_par(argv[1], NC_CLOBBER | NC_NETCDF4, MPI_COMM_WORLD, MPI_INFO_NULL, &file));
    define(file);
    write_rest(file);
    write_step(file, 0);
    write_step(file, 1);
    NC(nc_sync(file));
    read_back(file, 2);
    write_step(file, 2);
    NC(nc_close(file));

    NC(nc_open_par(argv[1], NC_WRITE, MPI_COMM_WORLD, MPI_INFO_NULL, &file));
    collective_access(file);
    for (size_t step = 3; step < STEPS; step++) {
        write_step(file, step);
    }
    NC(nc_redef(file));
    NC(nc_put_att_text(file, NC_GLOBAL, "history", 8, "appended"));
    NC(nc_enddef(file));
    NC(nc_close(file));

    NC(nc_open_par(argv[1], NC_NOWRITE, MPI_COMM_WORLD, MPI_INFO_NULL, &file));
    read_back(file, STEPS);
    NC(nc_close(file));
    MPI_Finalize();
    return 0;
}
