/*
 * ghosts FILE: a grid whose blocks have ghost cells in memory, as tests/programs/port/ghosts.rs writes it.
 */
#include "common.h"

#include <stdbool.h>

enum { ROWS = 3, COLUMNS = 5, GHOSTS = 2, HEIGHT = ROWS + 2 * GHOSTS, WIDTH = COLUMNS + 2 * GHOSTS };

int main(int argc, char **argv)
{
    int rank, ranks;
    REQUIRE(argc == 2);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    h5logfs_id file = created(argv[1], NULL);

    const uint64_t corner[2] = {(uint64_t)rank % 2 * ROWS, (uint64_t)rank / 2 * COLUMNS};
    double cells[HEIGHT][WIDTH];
    for (int row = 0; row < HEIGHT; row++) {
        for (int column = 0; column < WIDTH; column++) {
            const int r = row - GHOSTS, c = column - GHOSTS;
            const bool is_inner = r >= 0 && r < ROWS && c >= 0 && c < COLUMNS;
            cells[row][column] =
                is_inner ? 1000.0 * (double)(corner[0] + r) + (double)(corner[1] + c) : -1;
        }
    }
    const uint64_t whole[2] = {2 * ROWS, (uint64_t)ranks / 2 * COLUMNS};
    h5logfs_id field = plain(file, "/field", H5LOGFS_DOUBLE, 2, whole);
    h5logfs_id lent = plain(file, "/lent", H5LOGFS_DOUBLE, 2, whole);
    const uint64_t chunk[2] = {2, 4}, planes[3] = {(uint64_t)ranks, ROWS, 3};
    h5logfs_dataset_spec spec = spec_of(H5LOGFS_DOUBLE, 2, whole);
    spec.chunk = chunk;
    spec.deflate = 6;
    h5logfs_id filtered;
    CHECK(h5logfs_dataset(file, "/filtered", &spec, &filtered));
    h5logfs_id coarse = plain(file, "/coarse", H5LOGFS_DOUBLE, 3, planes);

    const uint64_t dims[2] = {HEIGHT, WIDTH}, start[2] = {GHOSTS, GHOSTS}, inner[2] = {ROWS, COLUMNS};
    h5logfs_memory_space space;
    CHECK(h5logfs_memory_space_init(&space, sizeof space));
    space.rank = 2;
    space.dims = dims;
    space.start = start;
    space.count = inner;
    CHECK(h5logfs_write_block_from(field, corner, inner, &space, cells, sizeof cells));
    CHECK(h5logfs_write_hyperslab_from(filtered, corner, NULL, inner, NULL, &space, cells, sizeof cells));
    CHECK(h5logfs_lend_hyperslab_from(lent, corner, NULL, inner, NULL, &space, cells, sizeof cells));

    const uint64_t stride[2] = {1, 2}, thin[2] = {ROWS, 3};
    space.stride = stride;
    space.count = thin;
    const uint64_t plane[3] = {(uint64_t)rank, 0, 0}, one[3] = {1, ROWS, 3};
    CHECK(h5logfs_lend_block_from(coarse, plane, one, &space, cells, sizeof cells));
    CHECK(h5logfs_flush(file));

    /* A refused write is reported at the next flush. */
    REFUSED(H5LOGFS_ERR_WRITE, "15 elements", h5logfs_write_block_from(field, corner, inner, &space, cells, 15 * sizeof **cells));
    REFUSED(H5LOGFS_ERR_WRITE, "in memory", h5logfs_write_block_from(field, corner, inner, &space, cells, sizeof cells));
    space.rank = 33;
    REFUSED(H5LOGFS_ERR_INVALID_ARGUMENT, "the memory space", h5logfs_write_block_from(field, corner, inner, &space, cells, sizeof cells));
    EXPECT(H5LOGFS_ERR_REFUSED, h5logfs_close(file));
    MPI_Finalize();
    return 0;
}
