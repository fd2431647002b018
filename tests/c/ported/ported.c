/*
 * ported FILE [register]: a program that was ported to the Log VOL, by several ranks or one, with MPI or without. It does
 * what the examples and tests of the Log VOL do according to their descriptions, and checks what it reads. With `register`
 * it registers the connector by itself, and leaves subfiles.
 *
 * All that it writes is the same without the connector.
 */
#include <string.h>

#include <H5VL_log.h>
#include <mpi.h>

#include "../check.h"

#define OK(call) REQUIRE((call) >= 0)

enum { COLUMNS = 10, MOST = 64, RANK = 3 };

static int rank, ranks;
static hid_t file;

/* A list of blocks of at most three dimensions. */
struct list {
    int n;
    hsize_t start[MOST][RANK], count[MOST][RANK], *starts[MOST], *counts[MOST];
};

static struct list list_of(int n)
{
    struct list list = {.n = n};
    REQUIRE(n <= MOST);
    return list;
}

/* The pointers lead into the list itself, so it must not move afterwards. */
static void point(struct list *list)
{
    for (int i = 0; i < list->n; i++) {
        list->starts[i] = list->start[i];
        list->counts[i] = list->count[i];
    }
}

static herr_t write_list(hid_t dataset, hid_t type, struct list *list, hid_t transfer, const void *values)
{
    point(list);
    return H5Dwrite_n(dataset, type, list->n, list->starts, list->counts, transfer, values);
}

static herr_t read_list(hid_t dataset, hid_t type, struct list *list, hid_t transfer, void *values)
{
    point(list);
    return H5Dread_n(dataset, type, list->n, list->starts, list->counts, transfer, values);
}

static hid_t created(const char *name, hid_t type, int dims, const hsize_t *extent, const hsize_t *most, hid_t plist)
{
    const hid_t space = H5Screate_simple(dims, extent, most);
    const hid_t dataset = H5Dcreate2(file, name, type, space, H5P_DEFAULT, plist, H5P_DEFAULT);
    OK(dataset);
    OK(H5Sclose(space));
    return dataset;
}

/* Single elements of a row for each rank, by H5Dwrite, and then with other values as a list. */
static void elements(void)
{
    const hsize_t extent[] = {(hsize_t)ranks, COLUMNS}, one[] = {1, 1};
    const hid_t dataset = created("elements", H5T_STD_I32LE, 2, extent, NULL, H5P_DEFAULT);
    const hid_t memory = H5Screate_simple(1, one, NULL), space = H5Dget_space(dataset);
    struct list list = list_of(COLUMNS);
    int values[COLUMNS], found[COLUMNS];
    for (int i = 0; i < COLUMNS; i++) {
        const hsize_t start[] = {(hsize_t)rank, (hsize_t)i};
        values[i] = rank + i;
        OK(H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, one, one));
        OK(H5Dwrite(dataset, H5T_NATIVE_INT, memory, space, H5P_DEFAULT, values + i));
        memcpy(list.start[i], start, sizeof start);
        memcpy(list.count[i], one, sizeof one);
    }
    OK(read_list(dataset, H5T_NATIVE_INT, &list, H5P_DEFAULT, found));
    REQUIRE(!memcmp(values, found, sizeof values));
    for (int i = 0; i < COLUMNS; i++) {
        values[i] += 1000;
    }
    OK(write_list(dataset, H5T_NATIVE_INT, &list, H5P_DEFAULT, values));
    OK(read_list(dataset, H5T_NATIVE_INT, &list, H5P_DEFAULT, found));
    REQUIRE(!memcmp(values, found, sizeof values));
    OK(H5Sclose(memory));
    OK(H5Sclose(space));
    OK(H5Dclose(dataset));
}

/* Blocks in no order, some of them empty and some overlapping: the last one wins. They are read in another order. */
static void order(void)
{
    const hsize_t extent[] = {(hsize_t)ranks, 6, 8};
    const hid_t dataset = created("order", H5T_IEEE_F64BE, 3, extent, NULL, H5P_DEFAULT);
    const hsize_t blocks[][2][2] = {{{4, 1}, {2, 3}}, {{0, 0}, {2, 8}}, {{1, 2}, {3, 4}}, {{5, 7}, {0, 1}}, {{5, 0}, {1, 8}}};
    enum { BLOCKS = sizeof blocks / sizeof *blocks };
    struct list list = list_of(BLOCKS);
    double expected[6][8] = {{0}};
    int values[MOST], at = 0;
    for (int b = 0; b < BLOCKS; b++) {
        const hsize_t *start = blocks[b][0], *count = blocks[b][1];
        list.start[b][0] = (hsize_t)rank;
        list.count[b][0] = 1;
        for (int d = 0; d < 2; d++) {
            list.start[b][1 + d] = start[d];
            list.count[b][1 + d] = count[d];
        }
        for (hsize_t i = 0; i < count[0] * count[1]; i++) {
            values[at] = 100 * (rank + 1) + at;
            expected[start[0] + i / count[1]][start[1] + i % count[1]] = values[at];
            at++;
        }
    }
    OK(write_list(dataset, H5T_NATIVE_INT, &list, H5P_DEFAULT, values));
    struct list back = list_of(BLOCKS);
    for (int b = 0; b < BLOCKS; b++) {
        memcpy(back.start[b], list.start[BLOCKS - 1 - b], sizeof *back.start);
        memcpy(back.count[b], list.count[BLOCKS - 1 - b], sizeof *back.count);
    }
    float found[MOST];
    OK(read_list(dataset, H5T_NATIVE_FLOAT, &back, H5P_DEFAULT, found));
    at = 0;
    for (int b = 0; b < BLOCKS; b++) {
        const hsize_t *start = back.start[b] + 1, *count = back.count[b] + 1;
        for (hsize_t i = 0; i < count[0] * count[1]; i++) {
            REQUIRE(found[at++] == (float)expected[start[0] + i / count[1]][start[1] + i % count[1]]);
        }
    }
    /* Invalid lists are refused, and nothing of them is written. */
    struct list wrong = list;
    wrong.start[2][1] = 5;
    H5E_BEGIN_TRY
    {
        REQUIRE(write_list(dataset, H5T_NATIVE_INT, &wrong, H5P_DEFAULT, values) < 0);
        REQUIRE(read_list(dataset, H5T_NATIVE_FLOAT, &wrong, H5P_DEFAULT, found) < 0);
        point(&wrong);
        wrong.starts[1] = NULL;
        REQUIRE(H5Dwrite_n(dataset, H5T_NATIVE_INT, wrong.n, wrong.starts, wrong.counts, H5P_DEFAULT, values) < 0);
        REQUIRE(H5Dwrite_n(dataset, H5T_NATIVE_INT, 1, NULL, NULL, H5P_DEFAULT, values) < 0);
        REQUIRE(H5Dwrite_n(dataset, H5T_NATIVE_INT, -1, NULL, NULL, H5P_DEFAULT, values) < 0);
        REQUIRE(write_list(dataset, H5T_NATIVE_INT, &list, H5P_DEFAULT, NULL) < 0);
        REQUIRE(write_list(file, H5T_NATIVE_INT, &list, H5P_DEFAULT, values) < 0);
    }
    H5E_END_TRY
    OK(H5Dclose(dataset));
}

/* Records of a decomposition, each written by one list; only some ranks have blocks, in a collective transfer, too. */
static void records(void)
{
    enum { RECORDS = 3, CELLS = 12 };
    const hsize_t none[] = {0, CELLS}, most[] = {H5S_UNLIMITED, CELLS}, chunk[] = {1, CELLS};
    const hid_t plist = H5Pcreate(H5P_DATASET_CREATE), transfer = H5Pcreate(H5P_DATASET_XFER);
    OK(H5Pset_chunk(plist, 2, chunk));
    const hid_t dataset = created("records", H5T_NATIVE_LONG, 2, none, most, plist);
    hbool_t buffered = 0;
    OK(H5Pget_buffered(transfer, &buffered));
    REQUIRE(buffered);
    OK(H5Pset_buffered(transfer, 0));
#ifdef H5_HAVE_PARALLEL
    if (ranks > 1) {
        OK(H5Pset_dxpl_mpio(transfer, H5FD_MPIO_COLLECTIVE));
    }
#endif
    for (hsize_t record = 0; record < RECORDS; record++) {
        const hsize_t extent[] = {record + 1, CELLS};
        OK(H5Dset_extent(dataset, extent));
        struct list list = list_of(0);
        long values[CELLS], found[CELLS];
        for (hsize_t cell = (hsize_t)rank; cell < CELLS; cell += (hsize_t)ranks) {
            /* The last rank has nothing in the second record. */
            if (record == 1 && rank == ranks - 1 && ranks > 1) {
                break;
            }
            const hsize_t start[] = {record, CELLS - 1 - cell}, count[] = {1, 1};
            values[list.n] = (long)(1000 * record + cell);
            memcpy(list.start[list.n], start, sizeof start);
            memcpy(list.count[list.n], count, sizeof count);
            list.n++;
        }
        OK(write_list(dataset, H5T_NATIVE_LONG, &list, transfer, values));
        OK(H5Fflush(file, H5F_SCOPE_GLOBAL));
        OK(read_list(dataset, H5T_NATIVE_LONG, &list, transfer, found));
        REQUIRE(!memcmp(values, found, (size_t)list.n * sizeof *values));
    }
    OK(H5Pclose(transfer));
    OK(H5Pclose(plist));
    OK(H5Dclose(dataset));
}

/* Datasets without dimensions, and with elements that are not logged. */
static void others(void)
{
    const hid_t space = H5Screate(H5S_SCALAR);
    const hid_t scalar = H5Dcreate2(file, "scalar", H5T_STD_I32LE, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    OK(scalar);
    const int values[] = {7, 8};
    int found[2];
    if (!rank) {
        OK(H5Dwrite_n(scalar, H5T_NATIVE_INT, 2, NULL, NULL, H5P_DEFAULT, values));
    }
    OK(H5Dwrite_n(scalar, H5T_NATIVE_INT, 0, NULL, NULL, H5P_DEFAULT, NULL));
    OK(H5Fflush(file, H5F_SCOPE_GLOBAL));
    MPI_Barrier(MPI_COMM_WORLD);
    OK(H5Dread_n(scalar, H5T_NATIVE_INT, 2, NULL, NULL, H5P_DEFAULT, found));
    REQUIRE(found[0] == 8 && found[1] == 8);
    OK(H5Dclose(scalar));
    OK(H5Sclose(space));
    if (ranks > 1) {
        return;
    }
    const hid_t type = H5Tcopy(H5T_C_S1);
    OK(H5Tset_size(type, H5T_VARIABLE));
    const hsize_t extent[] = {3};
    const hid_t texts = created("texts", type, 1, extent, NULL, H5P_DEFAULT);
    const char *words[] = {"two", "one"};
    struct list list = list_of(2);
    list.start[0][0] = 2;
    list.count[0][0] = list.count[1][0] = 1;
    OK(write_list(texts, type, &list, H5P_DEFAULT, words));
    OK(H5Dclose(texts));
    OK(H5Tclose(type));
}

/* One call for several datasets: an invalid one prevents writing the others. */
static void several(void)
{
    const hsize_t extent[] = {(hsize_t)ranks * 4}, part[] = {4}, start[] = {(hsize_t)rank * 4}, wrong[] = {extent[0]};
    hid_t datasets[3], types[3], memory[3], spaces[3];
    const void *values[3];
    int numbers[3][4];
    for (int i = 0; i < 3; i++) {
        char name[16];
        snprintf(name, sizeof name, "several%d", i);
        datasets[i] = created(name, i ? H5T_STD_I32LE : H5T_STD_I64BE, 1, extent, NULL, H5P_DEFAULT);
        types[i] = H5T_NATIVE_INT;
        memory[i] = H5Screate_simple(1, part, NULL);
        spaces[i] = H5Dget_space(datasets[i]);
        OK(H5Sselect_hyperslab(spaces[i], H5S_SELECT_SET, start, NULL, part, NULL));
        for (int k = 0; k < 4; k++) {
            numbers[i][k] = 100 * rank + 10 * i + k;
        }
        values[i] = numbers[i];
    }
    OK(H5Dwrite_multi(3, datasets, types, memory, spaces, H5P_DEFAULT, values));
    int found[4];
    const int other[4] = {-1, -1, -1, -1};
    const void *others[] = {other, other, other};
    OK(H5Sselect_hyperslab(spaces[2], H5S_SELECT_SET, wrong, NULL, part, NULL));
    H5E_BEGIN_TRY
    {
        REQUIRE(H5Dwrite_multi(3, datasets, types, memory, spaces, H5P_DEFAULT, others) < 0);
    }
    H5E_END_TRY
    for (int i = 0; i < 2; i++) {
        OK(H5Dread(datasets[i], H5T_NATIVE_INT, memory[i], spaces[i], H5P_DEFAULT, found));
        REQUIRE(!memcmp(found, numbers[i], sizeof found));
    }
    for (int i = 0; i < 3; i++) {
        OK(H5Sclose(memory[i]));
        OK(H5Sclose(spaces[i]));
        OK(H5Dclose(datasets[i]));
    }
}

/* All properties: getters return what was set, and lists of another class are refused. */
static void properties(void)
{
    const hid_t access = H5Pcreate(H5P_FILE_ACCESS), creation = H5Pcreate(H5P_FILE_CREATE);
    const hid_t transfer = H5Pcreate(H5P_DATASET_XFER);
    int number = 7;
    OK(H5Pget_subfiling(creation, &number));
    REQUIRE(number == H5VL_LOG_SUBFILING_OFF);
    OK(H5Pset_subfiling(creation, 3));
    OK(H5Pset_subfiling(creation, H5VL_LOG_SUBFILING_FILE_PER_NODE));
    const hid_t copy = H5Pcopy(creation);
    OK(H5Pget_subfiling(copy, &number));
    REQUIRE(number == H5VL_LOG_SUBFILING_FILE_PER_NODE);
    ssize_t size = 0;
    OK(H5Pget_nb_buffer_size(access, &size));
    REQUIRE(size == LOG_VOL_BSIZE_UNLIMITED);
    OK(H5Pset_nb_buffer_size(access, 4096));
    OK(H5Pget_nb_buffer_size(access, &size));
    REQUIRE(size == 4096);
    OK(H5Pset_idx_buffer_size(access, 5000));
    OK(H5Pget_idx_buffer_size(access, &size));
    REQUIRE(size == 5000);
    hbool_t flag = 0;
    OK(H5Pget_meta_share(access, &flag));
    REQUIRE(flag);
    OK(H5Pset_meta_share(access, 0));
    OK(H5Pget_meta_share(access, &flag));
    REQUIRE(!flag);
    OK(H5Pset_meta_merge(access, 1));
    OK(H5Pget_meta_merge(access, &flag));
    REQUIRE(flag);
    OK(H5Pset_meta_zip(access, 1));
    OK(H5Pset_passthru(access, 1));
    OK(H5Pset_single_subfile_read(access, 0));
    H5VL_log_sel_encoding_t encoding = H5VL_LOG_ENCODING_CANONICAL;
    OK(H5Pget_sel_encoding(access, &encoding));
    REQUIRE(encoding == H5VL_LOG_ENCODING_OFFSET);
    OK(H5Pset_sel_encoding(access, H5VL_LOG_ENCODING_CANONICAL));
    OK(H5Pget_sel_encoding(access, &encoding));
    REQUIRE(encoding == H5VL_LOG_ENCODING_CANONICAL);
    OK(H5Pset_data_layout(creation, H5VL_LOG_DATA_LAYOUT_CHUNK_ALIGNED));
    H5VL_log_req_type_t request = H5VL_LOG_REQ_NONBLOCKING;
    OK(H5Pget_nonblocking(transfer, &request));
    REQUIRE(request == H5VL_LOG_REQ_BLOCKING);
    OK(H5Pset_nonblocking(transfer, H5VL_LOG_REQ_NONBLOCKING));
    OK(H5Pget_nonblocking(transfer, &request));
    REQUIRE(request == H5VL_LOG_REQ_NONBLOCKING);
    H5E_BEGIN_TRY
    {
        REQUIRE(H5Pset_subfiling(access, 1) < 0);
        REQUIRE(H5Pset_buffered(access, 1) < 0);
        REQUIRE(H5Pset_meta_zip(H5P_DEFAULT, 1) < 0);
        REQUIRE(H5Pget_subfiling(creation, NULL) < 0);
    }
    H5E_END_TRY
    OK(H5Pget_buffered(access, &flag));
    REQUIRE(flag);
    OK(H5Pclose(copy));
    OK(H5Pclose(access));
    OK(H5Pclose(creation));
    OK(H5Pclose(transfer));
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    REQUIRE(argc == 2 || argc == 3);
    const hid_t access = H5Pcreate(H5P_FILE_ACCESS), creation = H5Pcreate(H5P_FILE_CREATE);
    if (ranks > 1) {
        OK(H5Pset_fapl_mpio(access, MPI_COMM_WORLD, MPI_INFO_NULL));
        OK(H5Pset_all_coll_metadata_ops(access, 1));
    }
    hid_t connector = H5I_INVALID_HID;
    if (argc == 3) {
        connector = H5VLregister_connector(&H5VL_log_g, H5P_DEFAULT);
        OK(connector);
        OK(H5Pset_vol(access, connector, NULL));
        OK(H5Pset_subfiling(creation, H5VL_LOG_SUBFILING_FILE_PER_NODE));
        const hid_t same = H5VL_log;
        REQUIRE(same == connector);
        OK(H5VLclose(same));
    }
    file = H5Fcreate(argv[1], H5F_ACC_TRUNC, creation, access);
    OK(file);
    properties();
    elements();
    order();
    records();
    others();
    several();
    OK(H5Fclose(file));
    OK(H5Pclose(access));
    OK(H5Pclose(creation));
    if (connector >= 0) {
        OK(H5VLclose(connector));
    }
    MPI_Finalize();
    return 0;
}
