/*
 * scales FILE: dimensions with names for netCDF and xarray, as in tests/programs/port/scales.rs.
 */
#include "common.h"

enum { CELLS = 4, STEPS = 3 };

static int rank, ranks;
static h5logfs_id file;

static h5logfs_id of_doubles(const char *path, int dimensions, const uint64_t *dims)
{
    return plain(file, path, H5LOGFS_DOUBLE, dimensions, dims);
}

static h5logfs_id growing(const char *path, int dimensions, const uint64_t *dims)
{
    uint64_t most[2] = {H5LOGFS_UNLIMITED, dims[dimensions - 1]};
    h5logfs_dataset_spec spec = spec_of(H5LOGFS_DOUBLE, dimensions, dims);
    spec.max_dims = most;
    h5logfs_id dataset;
    CHECK(h5logfs_dataset(file, path, &spec, &dataset));
    return dataset;
}

static void dimension_without_variable(void)
{
    const uint64_t two = 2;
    h5logfs_id member = plain(file, "/member", H5LOGFS_FLOAT, 1, &two);
    CHECK(h5logfs_make_scale(member, H5LOGFS_NETCDF_DIMENSION));
    h5logfs_id seeds = plain(file, "/seeds", H5LOGFS_INT32, 1, &two);
    CHECK(h5logfs_attach_scale(seeds, 0, member));
}

static void several_scales(void)
{
    const uint64_t three = 3;
    h5logfs_id centre = of_doubles("/hdf5/_centre", 1, &three);
    h5logfs_id edge = of_doubles("/hdf5/edge", 1, &three);
    CHECK(h5logfs_make_scale(centre, "the centre"));
    CHECK(h5logfs_make_scale(edge, NULL));
    h5logfs_id field = of_doubles("/hdf5/field", 1, &three);
    CHECK(h5logfs_attach_scale(field, 0, centre));
    CHECK(h5logfs_attach_scale(field, 0, edge));
}

static void faults(h5logfs_id pressure, h5logfs_id time)
{
    REFUSED(H5LOGFS_ERR_DEFINITION, "it is one already", h5logfs_make_scale(time, "again"));
    REFUSED(H5LOGFS_ERR_DEFINITION, "2 dimensions", h5logfs_make_scale(pressure, NULL));
    REFUSED(H5LOGFS_ERR_DEFINITION, "already", h5logfs_attach_scale(pressure, 0, time));
    REFUSED(H5LOGFS_ERR_DEFINITION, "number 2", h5logfs_attach_scale(pressure, 2, time));
    REFUSED(H5LOGFS_ERR_INVALID_ARGUMENT, "-1", h5logfs_attach_scale(pressure, -1, time));
    REFUSED(H5LOGFS_ERR_INVALID_ARGUMENT, "NULL", h5logfs_set_label(pressure, 0, NULL));
    REFUSED(H5LOGFS_ERR_INVALID_ARGUMENT, "handle", h5logfs_attach_scale(pressure, 0, file));
}

int main(int argc, char **argv)
{
    REQUIRE(argc == 2);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    file = created(argv[1], NULL);

    uint64_t dims[2] = {0, (uint64_t)ranks * CELLS};
    h5logfs_id pressure = growing("/air/pressure", 2, dims);
    h5logfs_id time = growing("/time", 1, dims);
    h5logfs_id x = of_doubles("/x", 1, &dims[1]);
    CHECK(h5logfs_make_scale(time, "time"));
    CHECK(h5logfs_make_scale(x, "x"));
    CHECK(h5logfs_attach_scale(pressure, 0, time));
    CHECK(h5logfs_attach_scale(pressure, 1, x));
    CHECK(h5logfs_attribute_text(file, "/time", "units", "hours since 2000-01-01"));
    dimension_without_variable();
    several_scales();
    CHECK(h5logfs_set_label(pressure, 1, "place"));
    faults(pressure, time);

    for (uint64_t step = 0; step < STEPS; step++) {
        dims[0] = step + 1;
        CHECK(h5logfs_set_extent(time, dims));
        CHECK(h5logfs_set_extent(pressure, dims));
        const uint64_t start[2] = {step, (uint64_t)rank * CELLS}, count[2] = {1, CELLS};
        double values[CELLS], places[CELLS];
        for (int n = 0; n < CELLS; n++) {
            values[n] = 100.0 * (double)step + rank;
            places[n] = (rank * CELLS + n) / 2.0;
        }
        CHECK(h5logfs_write_block(pressure, start, count, values, sizeof values));
        if (rank == 0) {
            const double hour = 6.0 * (double)step;
            CHECK(h5logfs_write_block(time, start, count, &hour, sizeof hour));
        }
        if (step == 0) {
            CHECK(h5logfs_write_block(x, &start[1], &count[1], places, sizeof places));
        }
        CHECK(h5logfs_flush(file));
    }
    CHECK(h5logfs_close(file));
    MPI_Finalize();
    return 0;
}
