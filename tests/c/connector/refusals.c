/*
 * refusals DIRECTORY, under MPI: all ranks or one do what is refused for a log, and what fails on one rank, and print
 * the messages. In between they write and flush, and finally close the file.
 */
#include "../hosts/host.h"

#include <mpi.h>

#define OK(call) REQUIRE((call) >= 0)

enum { ELEMENTS = 1 << 16 };

static int rank, ranks;
static char sentence[1000];

/* Keeps the innermost description on the error stack. */
static herr_t keep(unsigned n, const H5E_error2_t *error, void *arg)
{
    (void)arg;
    if (n == 0) {
        snprintf(sentence, sizeof sentence, "%s", error->desc);
    }
    return 0;
}

/* Must be called before any other HDF5 function, which clears the error stack. */
static herr_t noted(herr_t status)
{
    if (status < 0) {
        OK(H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, keep, NULL));
    }
    return status;
}

static void report(const char *what, herr_t status)
{
    if (status >= 0) {
        strcpy(sentence, "done");
    }
    printf("%s, rank %d: %s\n", what, rank, sentence);
    fflush(stdout);
    MPI_Barrier(MPI_COMM_WORLD);
}

static hid_t dataset_of(hid_t file, const char *name, hid_t type, hsize_t elements, hid_t dcpl)
{
    const hid_t space = H5Screate_simple(1, &elements, NULL);
    const hid_t dataset = H5Dcreate2(file, name, type, space, H5P_DEFAULT, dcpl, H5P_DEFAULT);
    OK(dataset);
    OK(H5Sclose(space));
    return dataset;
}

/* Each rank writes its part. */
static herr_t write_part(hid_t dataset, int number, hid_t dxpl)
{
    static int values[ELEMENTS];
    const hsize_t count = ELEMENTS, start = (hsize_t)rank * count;
    for (int i = 0; i < ELEMENTS; i++) {
        values[i] = number * 1000000 + rank * ELEMENTS + i;
    }
    const hid_t space = H5Dget_space(dataset), memory = H5Screate_simple(1, &count, NULL);
    OK(H5Sselect_hyperslab(space, H5S_SELECT_SET, &start, NULL, &count, NULL));
    const herr_t status = noted(H5Dwrite(dataset, H5T_NATIVE_INT, memory, space, dxpl, values));
    OK(H5Sclose(memory));
    OK(H5Sclose(space));
    return status;
}

/* Memory and file have selections of different sizes. */
static herr_t write_wrong(hid_t dataset, hid_t dxpl)
{
    const hsize_t count = 3;
    const int values[3] = {1, 2, 3};
    const hid_t memory = H5Screate_simple(1, &count, NULL);
    const herr_t status = noted(H5Dwrite(dataset, H5T_NATIVE_INT, memory, H5S_ALL, dxpl, values));
    OK(H5Sclose(memory));
    return status;
}

/* The first elements are those written by the ranks as `number`; the others were never written, or were cut off. */
static void holds(hid_t dataset, int number, hsize_t written, hsize_t elements)
{
    const hid_t space = H5Dget_space(dataset);
    REQUIRE((hsize_t)H5Sget_simple_extent_npoints(space) == elements);
    OK(H5Sclose(space));
    int *const values = malloc(elements * sizeof *values);
    REQUIRE(values);
    OK(H5Dread(dataset, H5T_NATIVE_INT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values));
    for (hsize_t i = 0; i < elements; i++) {
        REQUIRE(values[i] == (i < written ? number * 1000000 + (int)i : 0));
    }
    free(values);
}

static void limit_files(rlim_t bytes)
{
    struct rlimit limit;
    REQUIRE(!getrlimit(RLIMIT_FSIZE, &limit));
    limit.rlim_cur = bytes;
    REQUIRE(!setrlimit(RLIMIT_FSIZE, &limit));
}

static void limit_descriptors(rlim_t number)
{
    struct rlimit limit;
    REQUIRE(!getrlimit(RLIMIT_NOFILE, &limit));
    limit.rlim_cur = number ? number : limit.rlim_max;
    REQUIRE(!setrlimit(RLIMIT_NOFILE, &limit));
}

/* Another log is reopened, which one rank cannot do, or does differently. */
static void opened_again(const char *path, hid_t fapl, int last)
{
    const hid_t other = H5Pcopy(fapl), file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, fapl);
    OK(file);
    OK(H5Pset_fclose_degree(other, last ? H5F_CLOSE_STRONG : H5F_CLOSE_SEMI));
    report("open otherwise on one", noted(H5Fopen(path, H5F_ACC_RDWR, other) < 0 ? -1 : 0));
    OK(H5Pclose(other));
    OK(H5Fclose(file));
    if (last) {
        limit_descriptors(3);
    }
    report("open without descriptors on one", noted(H5Fopen(path, H5F_ACC_RDWR, fapl) < 0 ? -1 : 0));
    limit_descriptors(0);
    const hid_t again = H5Fopen(path, H5F_ACC_RDWR, fapl);
    report("open again", noted(again < 0 ? -1 : 0));
    OK(H5Fclose(again));
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    REQUIRE(argc == 2);
    /* A file that grows too large is an error, not the end of the process. */
    signal(SIGXFSZ, SIG_IGN);
    OK(H5Eset_auto2(H5E_DEFAULT, NULL, NULL));
    char path[300];
    snprintf(path, sizeof path, "%s/log.h5", argv[1]);
    const int last = rank == ranks - 1;
    const hid_t fapl = H5Pcreate(H5P_FILE_ACCESS), collective = H5Pcreate(H5P_DATASET_XFER);
    OK(H5Pset_fapl_mpio(fapl, MPI_COMM_WORLD, MPI_INFO_NULL));
    OK(H5Pset_all_coll_metadata_ops(fapl, 1));
    OK(H5Pset_coll_metadata_write(fapl, 1));
    OK(H5Pset_dxpl_mpio(collective, H5FD_MPIO_COLLECTIVE));
    const hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, fapl);
    OK(file);
    const hsize_t all = (hsize_t)ranks * ELEMENTS, chunk = ELEMENTS;
    const hid_t plain = dataset_of(file, "plain", H5T_NATIVE_INT, all, H5P_DEFAULT);
    const hid_t filters = H5Pcreate(H5P_DATASET_CREATE);
    OK(H5Pset_chunk(filters, 1, &chunk));
    OK(H5Pset_shuffle(filters));
    OK(H5Pset_deflate(filters, 1));
    const hid_t filtered = dataset_of(file, "filtered", H5T_NATIVE_INT, all, filters);
    const hid_t text = H5Tcopy(H5T_C_S1);
    OK(H5Tset_size(text, H5T_VARIABLE));
    const hid_t texts = dataset_of(file, "texts", text, 2, H5P_DEFAULT);

    const char *const words[2] = {"one", "two"};
    report("texts of all", noted(H5Dwrite(texts, text, H5S_ALL, H5S_ALL, collective, words)));
    report("texts of one", last ? noted(H5Dwrite(texts, text, H5S_ALL, H5S_ALL, H5P_DEFAULT, words)) : 0);
    report("atomicity", noted(H5Fset_mpi_atomicity(file, 1)));
    report("wrong on one", last ? write_wrong(plain, collective) : write_part(plain, 0, collective));
    report("collective", write_part(plain, 1, collective) | write_part(filtered, 1, collective));
    /* One rank takes part without elements. */
    const hid_t none = H5Dget_space(plain);
    OK(H5Sselect_none(none));
    const int nothing = 0;
    report("collective but for one", last ? H5Dwrite(plain, H5T_NATIVE_INT, none, none, collective, &nothing)
                                          : write_part(plain, 1, collective));
    OK(H5Sclose(none));
    report("flush", noted(H5Fflush(file, H5F_SCOPE_GLOBAL)));

    report("second", write_part(plain, 2, H5P_DEFAULT));
    if (last) {
        limit_files(1000);
    }
    report("flush with a full disk on one", noted(H5Fflush(file, H5F_SCOPE_GLOBAL)));
    if (last) {
        limit_files(RLIM_INFINITY);
    }
    report("flush again", noted(H5Fflush(file, H5F_SCOPE_GLOBAL)));

    /* Elements that were cut off return as fill values, which takes a flush. */
    const hsize_t fewer = all / 2;
    const hid_t shrunk = dataset_of(file, "shrunk", H5T_NATIVE_INT, all, filters);
    /* Some ranks write nothing to it. */
    if (!last) {
        OK(write_part(shrunk, 5, H5P_DEFAULT));
    }
    OK(H5Fflush(file, H5F_SCOPE_GLOBAL));
    OK(H5Dset_extent(shrunk, &fewer));
    OK(write_part(plain, 2, H5P_DEFAULT));
    if (last) {
        limit_files(1000);
    }
    report("extent with a full disk on one", noted(H5Dset_extent(shrunk, &all)));
    if (last) {
        limit_files(RLIM_INFINITY);
    }
    holds(shrunk, 5, fewer, fewer);
    report("extent again", noted(H5Dset_extent(shrunk, &all)));
    holds(shrunk, 5, fewer, all);
    OK(H5Dclose(shrunk));

    report("third", write_part(plain, 3, collective));
    char another[300];
    snprintf(another, sizeof another, "%s/again.h5", argv[1]);
    opened_again(another, fapl, last);
    OK(H5Dclose(plain));
    OK(H5Dclose(filtered));
    OK(H5Dclose(texts));
    if (last) {
        limit_files(1000);
    }
    report("close with a full disk on one", noted(H5Fclose(file)));
    limit_files(RLIM_INFINITY);
    OK(H5Tclose(text));
    OK(H5Pclose(filters));
    OK(H5Pclose(collective));
    OK(H5Pclose(fapl));
    MPI_Finalize();
    return 0;
}
