/*
 * share EXPECTED LOG…, under MPI: each rank opens the logs by itself and reads its share of each dataset, rows of the
 * first dimension. The shares are those of the expected file, and their sum is that of all that it has.
 */
#include "host.h"

#include <mpi.h>

static int rank, ranks;

struct job {
    hid_t log;
    double share, whole;
    unsigned datasets;
};

/* Selects the rows of this rank. Returns their number of elements. */
static size_t select_share(hid_t space)
{
    hsize_t dims[H5S_MAX_RANK], start[H5S_MAX_RANK] = {0};
    const int dimensions = H5Sget_simple_extent_dims(space, dims, NULL);
    REQUIRE(dimensions > 0);
    start[0] = dims[0] * (hsize_t)rank / (hsize_t)ranks;
    dims[0] = dims[0] * (hsize_t)(rank + 1) / (hsize_t)ranks - start[0];
    REQUIRE(H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, dims, NULL) >= 0);
    return (size_t)H5Sget_select_npoints(space);
}

static double *read_share(hid_t file, const char *name, size_t *elements)
{
    const hid_t dataset = H5Dopen2(file, name, H5P_DEFAULT);
    REQUIRE(dataset >= 0);
    const hid_t space = H5Dget_space(dataset);
    *elements = select_share(space);
    const hsize_t length = *elements;
    const hid_t memory = H5Screate_simple(1, &length, NULL);
    double *values = calloc(*elements + 1, sizeof *values);
    REQUIRE(values);
    REQUIRE(H5Dread(dataset, H5T_NATIVE_DOUBLE, memory, space, H5P_DEFAULT, values) >= 0);
    H5Sclose(memory);
    H5Sclose(space);
    H5Dclose(dataset);
    return values;
}

static double sum(const double *values, size_t elements)
{
    double sum = 0;
    for (size_t i = 0; i < elements; i++) {
        sum += values[i];
    }
    return sum;
}

static int has_rows_of_numbers(hid_t dataset)
{
    const hid_t type = H5Dget_type(dataset), space = H5Dget_space(dataset);
    const H5T_class_t class = H5Tget_class(type);
    const int numbers = class == H5T_INTEGER || class == H5T_FLOAT;
    const int rows = H5Sget_simple_extent_ndims(space) > 0;
    H5Sclose(space);
    H5Tclose(type);
    return numbers && rows;
}

static double whole_sum(hid_t dataset)
{
    const hid_t space = H5Dget_space(dataset);
    const size_t elements = (size_t)H5Sget_simple_extent_npoints(space);
    double *values = calloc(elements + 1, sizeof *values);
    REQUIRE(values);
    REQUIRE(H5Dread(dataset, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0);
    const double whole = sum(values, elements);
    free(values);
    H5Sclose(space);
    return whole;
}

static herr_t add_share(hid_t expected, const char *name, const H5O_info2_t *info, void *arg)
{
    struct job *job = arg;
    if (info->type != H5O_TYPE_DATASET) {
        return 0;
    }
    const hid_t dataset = H5Dopen2(expected, name, H5P_DEFAULT);
    REQUIRE(dataset >= 0);
    if (has_rows_of_numbers(dataset)) {
        size_t elements, as_many;
        double *wanted = read_share(expected, name, &elements), *got = read_share(job->log, name, &as_many);
        REQUIRE(elements == as_many);
        REQUIRE(!memcmp(wanted, got, elements * sizeof *wanted));
        job->share += sum(got, elements);
        job->whole += whole_sum(dataset);
        job->datasets++;
        free(got);
        free(wanted);
    }
    H5Dclose(dataset);
    return 0;
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    REQUIRE(argc > 2 && ranks > 1);
    const hid_t expected = opened(argv[1]);
    for (int i = 2; i < argc; i++) {
        struct job job = {opened(argv[i]), 0, 0, 0};
        double together = 0;
        REQUIRE(H5Ovisit3(expected, H5_INDEX_NAME, H5_ITER_INC, add_share, &job, H5O_INFO_BASIC) >= 0);
        REQUIRE(job.datasets > 0);
        MPI_Allreduce(&job.share, &together, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        /* Integers, so the sums are exact. */
        REQUIRE(together == job.whole);
        REQUIRE(H5Fclose(job.log) >= 0);
    }
    REQUIRE(H5Fclose(expected) >= 0);
    MPI_Finalize();
    return 0;
}
