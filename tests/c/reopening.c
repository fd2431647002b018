/*
 * reopening FILE: a job closes FILE; a second one continues it and does not close it; a third one, with half of the
 * ranks and a Fortran communicator, does.
 */
#include "common.h"

#include <stddef.h>

static int rank, ranks;

/* With a gap in memory, which the file lacks. */
struct event {
    int8_t rank;
    double step;
};

static h5logfs_id event_type(size_t size, size_t offset)
{
    h5logfs_id type;
    CHECK(h5logfs_type_compound(size, &type));
    CHECK(h5logfs_type_insert(type, "rank", 0, H5LOGFS_INT8));
    CHECK(h5logfs_type_insert(type, "step", offset, H5LOGFS_DOUBLE));
    return type;
}

/* One more step: a value and an event of each rank. */
static void advance(h5logfs_id series, h5logfs_id events, uint64_t expected)
{
    uint64_t dims[2];
    int number;
    CHECK(h5logfs_get_extent(series, 2, dims, &number));
    REQUIRE(number == 2 && dims[0] == expected && rank < (int)dims[1]);
    const uint64_t start[2] = {dims[0]++, (uint64_t)rank}, count[2] = {1, 1};
    CHECK(h5logfs_set_extent(series, dims));
    const double value = (double)(start[0] * 100) + rank;
    CHECK(h5logfs_write_block(series, start, count, &value, sizeof value));
    const struct event event = {(int8_t)rank, (double)start[0]};
    CHECK(h5logfs_append(events, &event, sizeof event));
}

static void create(const char *path, h5logfs_id event)
{
    h5logfs_id file = created(path, NULL), series, events;
    const uint64_t dims[2] = {0, (uint64_t)ranks}, most[2] = {H5LOGFS_UNLIMITED, dims[1]};
    h5logfs_dataset_spec spec = spec_of(H5LOGFS_DOUBLE, 2, dims);
    spec.max_dims = most;
    CHECK(h5logfs_dataset(file, "/air/series", &spec, &series));
    spec.rank = 1;
    spec.datatype = event;
    CHECK(h5logfs_dataset(file, "/events", &spec, &events));
    advance(series, events, 0);
    CHECK(h5logfs_close(file));
}

static void open_datasets(h5logfs_id file, h5logfs_id event, h5logfs_id *series, h5logfs_id *events)
{
    CHECK(h5logfs_open_dataset(file, "/air/series", H5LOGFS_DOUBLE, series));
    CHECK(h5logfs_open_dataset(file, "/events", event, events));
}

/* The sample of the user guide. */
static void go_on(const char *path)
{
    h5logfs_id file, series;
    uint64_t dims[2];
    int number, exists;
    CHECK(h5logfs_open(MPI_COMM_WORLD, path, NULL, &file));
    CHECK(h5logfs_open_dataset(file, "/air/series", H5LOGFS_DOUBLE, &series));
    CHECK(h5logfs_get_extent(series, 2, dims, &number));
    CHECK(h5logfs_exists(file, "/air/limits", &exists));
    REQUIRE(dims[0] == 1 && !exists);
    CHECK(h5logfs_close(file));
}

static void refuse(h5logfs_id file, h5logfs_id series)
{
    h5logfs_id other = 7;
    const int no = H5LOGFS_ERR_DEFINITION, bad = H5LOGFS_ERR_INVALID_ARGUMENT;
    REFUSED(no, "opened with f32", h5logfs_open_dataset(file, "/air/series", H5LOGFS_FLOAT, &other));
    REQUIRE(other == 0);
    REFUSED(no, "/air is a group", h5logfs_open_dataset(file, "/air", H5LOGFS_FLOAT, &other));
    REFUSED(no, "no dataset /none", h5logfs_open_dataset(file, "none", H5LOGFS_FLOAT, &other));
    REFUSED(bad, "handle", h5logfs_open_dataset(series, "/events", H5LOGFS_FLOAT, &other));
    REFUSED(bad, "handle", h5logfs_open_dataset(file, "/events", series, &other));
    REFUSED(bad, "path", h5logfs_open_dataset(file, NULL, H5LOGFS_FLOAT, &other));
    REFUSED(bad, "dataset", h5logfs_open_dataset(file, "/events", H5LOGFS_FLOAT, NULL));
    /* The first call has defined the offsets of the struct's members. */
    h5logfs_id packed = event_type(9, 1);
    REFUSED(no, "other places in memory", h5logfs_open_dataset(file, "/events", packed, &other));
    CHECK(h5logfs_type_close(packed));
    int exists = 7;
    REFUSED(bad, "handle", h5logfs_exists(series, "/", &exists));
    REFUSED(bad, "exists", h5logfs_exists(file, "/", NULL));
    REQUIRE(exists == 7);
}

int main(int argc, char **argv)
{
    REQUIRE(argc == 2);
    const char *path = argv[1];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    h5logfs_id event = event_type(sizeof(struct event), offsetof(struct event, step));
    h5logfs_id file = 7, series, events;
    REFUSED(H5LOGFS_ERR_FAILED, "no such file", h5logfs_open(MPI_COMM_WORLD, path, NULL, &file));
    REQUIRE(file == 0);
    create(path, event);
    go_on(path);

    h5logfs_options options;
    CHECK(h5logfs_options_init(&options, sizeof options));
    options.overwrite = 1;
    const int failed = H5LOGFS_ERR_FAILED;
    REFUSED(failed, "`overwrite` is for", h5logfs_open(MPI_COMM_WORLD, path, &options, &file));
    options.overwrite = 0;
    CHECK(h5logfs_open(MPI_COMM_WORLD, path, &options, &file));
    open_datasets(file, event, &series, &events);
    refuse(file, series);
    int exists;
    CHECK(h5logfs_exists(file, "/air/limits", &exists));
    REQUIRE(!exists);
    const double limits[2] = {-1, 1};
    const uint64_t two = 2;
    CHECK(h5logfs_write(plain(file, "/air/limits", H5LOGFS_DOUBLE, 1, &two), limits, sizeof limits));
    CHECK(h5logfs_attribute_text(file, "/air/limits", "units", "Pa"));
    CHECK(h5logfs_exists(file, "air/limits", &exists));
    REQUIRE(exists);
    advance(series, events, 1);
    CHECK(h5logfs_flush(file));
    uint64_t start, count;
    CHECK(h5logfs_appended(events, &start, &count));
    REQUIRE(start == (uint64_t)(ranks + rank) && count == 1);
    CHECK(h5logfs_abandon(file));
    REFUSED(H5LOGFS_ERR_CLOSED, "closed", h5logfs_write(series, limits, sizeof limits));
    MPI_Barrier(MPI_COMM_WORLD);

    MPI_Comm half;
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
    if (rank % 2 == 0) {
        CHECK(h5logfs_open_f(MPI_Comm_c2f(half), path, NULL, &file));
        open_datasets(file, event, &series, &events);
        advance(series, events, 2);
        CHECK(h5logfs_close(file));
    }
    MPI_Comm_free(&half);
    CHECK(h5logfs_type_close(event));
    MPI_Finalize();
    return 0;
}
