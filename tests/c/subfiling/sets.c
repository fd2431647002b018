/* Random files of HDF5's subfiling driver, and what that driver reads of them.
 *
 *   sets write FILE SEED closed    all ranks write a file, and open it again for some seeds
 *   sets write FILE SEED killed    the same, and all ranks die after a flush
 *   sets read FILE OUT             one rank reads all datasets with the driver, and writes their elements to OUT
 *   sets plain FILE OUT            the same of an ordinary file
 */
#include <hdf5.h>
#include <mpi.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include "../check.h"

#define MOST_DATASETS 16
#define COLUMNS 60

static int rank, ranks;
static uint64_t state;

/* The same numbers on each rank: splitmix64. */
static uint64_t draw(uint64_t below)
{
    uint64_t z = (state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (z ^ (z >> 31)) % below;
}

/* Properties for opening a file. An existing file keeps its stripes. */
static hid_t access_of(int64_t stripe, int32_t subfiles)
{
    hid_t access = H5Pcreate(H5P_FILE_ACCESS);
    REQUIRE(H5Pset_mpi_params(access, MPI_COMM_WORLD, MPI_INFO_NULL) >= 0);
    H5FD_subfiling_config_t config;
    REQUIRE(H5Pget_fapl_subfiling(access, &config) >= 0);
    if (subfiles > 0) {
        config.shared_cfg.stripe_size = stripe;
        config.shared_cfg.stripe_count = subfiles;
        REQUIRE(H5Pset_fapl_subfiling(access, &config) >= 0);
    } else {
        REQUIRE(H5Pset_fapl_subfiling(access, NULL) >= 0);
    }
    return access;
}

/* Makes dataset `number`, of which each rank writes its rows. */
static void add(hid_t file, int number)
{
    int is_chunked = draw(3) > 0, is_compressed = is_chunked && draw(2), grows = is_chunked && draw(2);
    int is_float = (int)draw(2);
    hsize_t rows = 1 + draw(40), columns = 1 + draw(COLUMNS);
    hsize_t dims[2] = {rows * (hsize_t)ranks, columns}, most[2] = {H5S_UNLIMITED, columns};
    hsize_t chunk[2] = {1 + draw(dims[0]), 1 + draw(columns)};
    hid_t space = H5Screate_simple(2, dims, grows ? most : NULL);
    hid_t creation = H5Pcreate(H5P_DATASET_CREATE);
    if (is_chunked) {
        REQUIRE(H5Pset_chunk(creation, 2, chunk) >= 0);
    }
    if (is_compressed) {
        REQUIRE(H5Pset_shuffle(creation) >= 0 && H5Pset_deflate(creation, 4) >= 0);
    }
    char name[16];
    snprintf(name, sizeof name, "d%d", number);
    hid_t type = is_float ? H5T_NATIVE_DOUBLE : H5T_NATIVE_INT;
    hid_t dataset = H5Dcreate(file, name, type, space, H5P_DEFAULT, creation, H5P_DEFAULT);
    REQUIRE(dataset >= 0);
    hsize_t start[2] = {rows * (hsize_t)rank, 0}, count[2] = {rows, columns};
    REQUIRE(H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, count, NULL) >= 0);
    hid_t own = H5Screate_simple(2, count, NULL);
    /* Filtered chunks can only be written without conversion. */
    double *floats = malloc(rows * columns * sizeof *floats);
    int *integers = malloc(rows * columns * sizeof *integers);
    for (hsize_t i = 0; i < rows * columns; i++) {
        integers[i] = number * 1000003 + (int)(start[0] * columns + i);
        floats[i] = integers[i] / 7.0;
    }
    hid_t transfer = H5Pcreate(H5P_DATASET_XFER);
    REQUIRE(H5Pset_dxpl_mpio(transfer, H5FD_MPIO_COLLECTIVE) >= 0);
    const void *values = is_float ? (const void *)floats : integers;
    REQUIRE(H5Dwrite(dataset, type, own, space, transfer, values) >= 0);
    free(floats);
    free(integers);
    H5Pclose(transfer);
    H5Sclose(own);
    H5Dclose(dataset);
    H5Pclose(creation);
    H5Sclose(space);
}

static void write_file(const char *path, uint64_t seed, int is_killed)
{
    static const int64_t stripes[] = {700, 1000, 4096, 5000, 65536, 1 << 20};
    state = seed;
    int64_t stripe = stripes[draw(sizeof stripes / sizeof *stripes)];
    hid_t access = access_of(stripe, 1 + (int32_t)draw(6));
    if (draw(2)) {
        REQUIRE(H5Pset_libver_bounds(access, H5F_LIBVER_V110, H5F_LIBVER_LATEST) >= 0);
    }
    hid_t creation = H5Pcreate(H5P_FILE_CREATE);
    if (draw(4) == 0) {
        REQUIRE(H5Pset_userblock(creation, 512) >= 0);
    }
    hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, creation, access);
    REQUIRE(file >= 0);
    H5Pclose(creation);
    H5Pclose(access);
    int before = 1 + (int)draw(5), after = (int)draw(4);
    for (int number = 0; number < before; number++) {
        add(file, number);
    }
    if (draw(2)) {
        REQUIRE(H5Fclose(file) >= 0);
        access = access_of(0, 0);
        file = H5Fopen(path, H5F_ACC_RDWR, access);
        REQUIRE(file >= 0);
        H5Pclose(access);
    }
    for (int number = before; number < before + after; number++) {
        add(file, number);
    }
    if (is_killed) {
        REQUIRE(H5Fflush(file, H5F_SCOPE_GLOBAL) >= 0);
        MPI_Barrier(MPI_COMM_WORLD);
        kill(getpid(), SIGKILL);
    }
    REQUIRE(H5Fclose(file) >= 0);
}

static void read_file(const char *path, hid_t access, const char *to)
{
    hid_t file = H5Fopen(path, H5F_ACC_RDONLY, access);
    if (file < 0) {
        FAIL("%s cannot be opened", path);
    }
    FILE *out = fopen(to, "wb");
    REQUIRE(out != NULL);
    for (int number = 0; number < MOST_DATASETS; number++) {
        char name[16];
        snprintf(name, sizeof name, "d%d", number);
        if (H5Lexists(file, name, H5P_DEFAULT) <= 0) {
            break;
        }
        hid_t dataset = H5Dopen(file, name, H5P_DEFAULT), space = H5Dget_space(dataset), type = H5Dget_type(dataset);
        size_t bytes = (size_t)H5Sget_simple_extent_npoints(space) * H5Tget_size(type);
        void *values = malloc(bytes);
        REQUIRE(H5Dread(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0);
        REQUIRE(fwrite(values, 1, bytes, out) == bytes);
        free(values);
        H5Tclose(type);
        H5Sclose(space);
        H5Dclose(dataset);
    }
    REQUIRE(fclose(out) == 0);
    REQUIRE(H5Fclose(file) >= 0);
}

int main(int argc, char **argv)
{
    int provided;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    REQUIRE(provided == MPI_THREAD_MULTIPLE);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (argc == 5 && strcmp(argv[1], "write") == 0) {
        write_file(argv[2], strtoull(argv[3], NULL, 10), strcmp(argv[4], "killed") == 0);
    } else if (argc == 4 && strcmp(argv[1], "read") == 0) {
        hid_t access = access_of(0, 0);
        read_file(argv[2], access, argv[3]);
        H5Pclose(access);
    } else if (argc == 4) {
        read_file(argv[2], H5P_DEFAULT, argv[3]);
    } else {
        FAIL("which file?");
    }
    MPI_Finalize();
    return 0;
}
