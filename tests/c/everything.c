/*
 * everything FILE: writes with every function of the library. tests/c/everything.py checks the result.
 */
#include "common.h"

#include <stdbool.h>

static int rank, ranks;

struct inner {
    int16_t a;
    double b;
};

struct outer {
    uint8_t tag;
    struct inner pair[2];
    char name[5];
};

/* One element per rank, in a dataset of as many elements. */
static void one_each(h5logfs_id file, const char *path, h5logfs_id datatype, const void *value)
{
    size_t size;
    CHECK(h5logfs_type_size(datatype, &size));
    const uint64_t dims = (uint64_t)ranks, start = (uint64_t)rank, count = 1;
    h5logfs_id dataset = plain(file, path, datatype, 1, &dims);
    CHECK(h5logfs_write_block(dataset, &start, &count, value, size));
}

#define ATOMIC(path, datatype, type)                   \
    do {                                               \
        const type value = (type)(rank + 1);           \
        one_each(file, path, datatype, &value);        \
    } while (0)

static void atomic_types(h5logfs_id file)
{
    ATOMIC("/atomic/int8", H5LOGFS_INT8, int8_t);
    ATOMIC("/atomic/int16", H5LOGFS_INT16, int16_t);
    ATOMIC("/atomic/int32", H5LOGFS_INT32, int32_t);
    ATOMIC("/atomic/int64", H5LOGFS_INT64, int64_t);
    ATOMIC("/atomic/uint8", H5LOGFS_UINT8, uint8_t);
    ATOMIC("/atomic/uint16", H5LOGFS_UINT16, uint16_t);
    ATOMIC("/atomic/uint32", H5LOGFS_UINT32, uint32_t);
    ATOMIC("/atomic/uint64", H5LOGFS_UINT64, uint64_t);
    ATOMIC("/atomic/float", H5LOGFS_FLOAT, float);
    ATOMIC("/atomic/double", H5LOGFS_DOUBLE, double);
    ATOMIC("/atomic/bool", H5LOGFS_BOOL, bool);
}

static void other_types(h5logfs_id file)
{
    h5logfs_id big, array, text, opaque, bits, level, inner, pair, name, outer;

    CHECK(h5logfs_type_with_order(H5LOGFS_INT32, H5LOGFS_BIG_ENDIAN, &big));
    const uint8_t bytes[4] = {0, 0, 1, (uint8_t)rank};
    one_each(file, "types/big", big, bytes);

    const uint64_t two_by_three[2] = {2, 3};
    CHECK(h5logfs_type_array(H5LOGFS_INT16, 2, two_by_three, &array));
    const int16_t six[6] = {1, 2, 3, 4, 5, (int16_t)rank};
    one_each(file, "types/array", array, six);

    CHECK(h5logfs_type_text(8, H5LOGFS_UTF8, &text));
    char word[8] = "h\xc3\xa4t 0";
    word[5] = (char)('0' + rank);
    one_each(file, "types/text", text, word);

    CHECK(h5logfs_type_opaque(3, "three bytes", &opaque));
    const uint8_t three[3] = {7, 8, (uint8_t)rank};
    one_each(file, "types/opaque", opaque, three);

    CHECK(h5logfs_type_bitfield(2, &bits));
    const uint16_t mask = (uint16_t)(0x8001 + rank);
    one_each(file, "types/bits", bits, &mask);

    CHECK(h5logfs_type_enum(H5LOGFS_INT8, &level));
    CHECK(h5logfs_type_enum_insert(level, "LOW", -1));
    CHECK(h5logfs_type_enum_insert(level, "HIGH", 100));
    const int8_t high = rank == 0 ? -1 : 100;
    one_each(file, "types/enum", level, &high);

    const uint64_t two = 2;
    CHECK(h5logfs_type_compound(sizeof(struct inner), &inner));
    CHECK(h5logfs_type_insert(inner, "a", offsetof(struct inner, a), H5LOGFS_INT16));
    CHECK(h5logfs_type_insert(inner, "b", offsetof(struct inner, b), H5LOGFS_DOUBLE));
    CHECK(h5logfs_type_array(inner, 1, &two, &pair));
    CHECK(h5logfs_type_text(5, H5LOGFS_ASCII, &name));
    CHECK(h5logfs_type_compound(sizeof(struct outer), &outer));
    CHECK(h5logfs_type_insert(outer, "tag", offsetof(struct outer, tag), H5LOGFS_UINT8));
    CHECK(h5logfs_type_insert(outer, "pair", offsetof(struct outer, pair), pair));
    CHECK(h5logfs_type_insert(outer, "name", offsetof(struct outer, name), name));
    struct outer nested = {(uint8_t)rank, {{1, 0.5}, {2, rank + 0.25}}, "abc"};
    one_each(file, "types/compound", outer, &nested);
    /* An attribute of such a type loses the same gaps. */
    const uint64_t one = 1;
    nested.tag = 9;
    nested.pair[1].b = 1.5;
    CHECK(h5logfs_attribute(file, "/types", "compound", outer, 1, &one, &nested, sizeof nested));

    h5logfs_id made[] = {big, array, text, opaque, bits, level, inner, pair, name, outer};
    for (size_t i = 0; i < LENGTH(made); i++) {
        CHECK(h5logfs_type_close(made[i]));
    }
}

static void attributes(h5logfs_id file)
{
    const double matrix[2][2] = {{1, 2}, {3, 4}};
    const uint64_t dims[2] = {2, 2};
    const char *const colours[] = {"red", "gr\xc3\xbcn", ""};
    const int32_t answer = 42;
    CHECK(h5logfs_group(file, "/described/deep"));
    CHECK(h5logfs_attribute(file, "/described/deep", "matrix", H5LOGFS_DOUBLE, 2, dims, matrix,
                            sizeof matrix));
    CHECK(h5logfs_attribute(file, "/", "answer", H5LOGFS_INT32, 0, NULL, &answer, sizeof answer));
    CHECK(h5logfs_attribute_text(file, "/described", "title", "W\xc3\xa4rme"));
    CHECK(h5logfs_attribute_texts(file, "/described", "colours", LENGTH(colours), colours));
}

/* Each kind of selection, in the rows of the ranks: 2 rows per rank, 12 columns. */
static void selections(h5logfs_id file, const char *folder, bool lend)
{
#define PUT(kind, ...) (lend ? h5logfs_lend##kind(__VA_ARGS__) : h5logfs_write##kind(__VA_ARGS__))
    static double data[2][5][24];
    double(*of)[24] = data[lend];
    const uint64_t dims[2] = {2 * (uint64_t)ranks, 12}, row = 2 * (uint64_t)rank, small = 24;
    const char *const names[] = {"block", "hyperslab", "blocks", "points", "all"};
    h5logfs_id sets[5];
    for (size_t i = 0; i < LENGTH(sets); i++) {
        char path[64];
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        sets[i] = plain(file, path, H5LOGFS_DOUBLE, i == 4 ? 1 : 2, i == 4 ? &small : dims);
        for (int n = 0; n < 24; n++) {
            of[i][n] = 100.0 * (rank + 1) + n;
        }
    }
    const uint64_t start[2] = {row, 3}, count[2] = {2, 4};
    CHECK(PUT(_block, sets[0], start, count, of[0], 8 * sizeof(double)));

    const uint64_t first[2] = {row, 1}, stride[2] = {1, 5}, times[2] = {2, 2}, block[2] = {1, 3};
    CHECK(PUT(_hyperslab, sets[1], first, stride, times, block, of[1], 12 * sizeof(double)));
    /* Without strides and blocks: single elements, next to each other. */
    const uint64_t last[2] = {row, 11}, twice[2] = {2, 1};
    CHECK(PUT(_hyperslab, sets[1], last, NULL, twice, NULL, of[1] + 12, 2 * sizeof(double)));

    const uint64_t starts[3][2] = {{row, 0}, {row + 1, 10}, {row, 1}};
    const uint64_t counts[3][2] = {{1, 3}, {1, 2}, {2, 1}};
    CHECK(PUT(_blocks, sets[2], 1, &starts[0][0], &counts[0][0], of[2], 3 * sizeof(double)));
    /* As lists of blocks. */
    const uint64_t *const of_starts[2] = {starts[1], starts[2]};
    const uint64_t *const of_counts[2] = {counts[1], counts[2]};
    CHECK(PUT(_n, sets[2], 2, of_starts, of_counts, of[2] + 3, 4 * sizeof(double)));

    const uint64_t points[3][2] = {{row + 1, 7}, {row, 2}, {row, 3}};
    CHECK(PUT(_points, sets[3], 3, &points[0][0], of[3], 3 * sizeof(double)));

    if (rank == ranks - 1) {
        CHECK(PUT(, sets[4], of[4], 24 * sizeof(double)));
    }
    /* A rank without data may say so. */
    const uint64_t none[2] = {0, 0};
    CHECK(PUT(_block, sets[0], none, none, NULL, 0));
    CHECK(PUT(_points, sets[3], 0, NULL, NULL, 0));
    CHECK(PUT(_n, sets[2], 0, NULL, NULL, NULL, 0));
#undef PUT
}

/* Extents, fill values, filters, scalars; and lent data, which override written data. */
static void shapes(h5logfs_id file)
{
    const uint64_t dims[2] = {0, 4}, max_dims[2] = {H5LOGFS_UNLIMITED, 6}, chunk[2] = {2, 4};
    const int32_t fill = -7;
    h5logfs_dataset_spec spec = spec_of(H5LOGFS_INT32, 2, dims);
    spec.max_dims = max_dims;
    spec.chunk = chunk;
    spec.fill = &fill;
    spec.deflate = 6;
    spec.shuffle = 1;
    spec.fletcher32 = 1;
    h5logfs_id grown;
    CHECK(h5logfs_dataset(file, "/shapes/grown", &spec, &grown));
    const uint64_t now[2] = {2 * (uint64_t)ranks, 5};
    CHECK(h5logfs_set_extent(grown, now));
    uint64_t told[2];
    int dimensions;
    CHECK(h5logfs_get_extent(grown, 2, told, &dimensions));
    REQUIRE(dimensions == 2 && told[0] == now[0] && told[1] == 5);
    CHECK(h5logfs_get_extent(grown, 0, NULL, &dimensions));
    REQUIRE(dimensions == 2);
    const uint64_t start[2] = {2 * (uint64_t)rank, 0}, count[2] = {1, 5};
    const int32_t five[5] = {rank, rank, rank, rank, rank};
    CHECK(h5logfs_write_block(grown, start, count, five, sizeof five));

    h5logfs_id scalar = plain(file, "/shapes/scalar", H5LOGFS_DOUBLE, 0, NULL);
    const double pi = 3.25;
    if (rank == 0) {
        CHECK(h5logfs_write(scalar, &pi, sizeof pi));
    }

    const uint64_t both[2] = {(uint64_t)ranks, 3};
    h5logfs_id order = plain(file, "/shapes/order", H5LOGFS_INT32, 2, both);
    const uint64_t at[2] = {(uint64_t)rank, 0}, three[2] = {1, 3};
    static int32_t lent[3] = {5, 5, 5};
    int32_t written[3] = {1, 1, 1};
    CHECK(h5logfs_lend_block(order, at, three, lent, sizeof lent));
    CHECK(h5logfs_write_block(order, at, three, written, sizeof written));
    /* Written data was copied, lent data was not. */
    memset(written, 0, sizeof written);
    lent[2] = 6;
    uint64_t bytes;
    CHECK(h5logfs_buffered(file, &bytes));
    REQUIRE(bytes > 0);
    CHECK(h5logfs_flush(file));
    memset(lent, 0, sizeof lent);
    CHECK(h5logfs_buffered(file, &bytes));
    REQUIRE(bytes == 0);
}

/* Rows that find their places themselves: rank + 1 rows of each rank, one of them lent. */
static void appends(h5logfs_id file)
{
    const uint64_t none[2] = {0, 2}, most[2] = {H5LOGFS_UNLIMITED, 2};
    h5logfs_dataset_spec spec = spec_of(H5LOGFS_INT32, 2, none);
    spec.max_dims = most;
    h5logfs_id rows;
    CHECK(h5logfs_dataset(file, "/rows", &spec, &rows));
    static int32_t lent[2];
    lent[0] = rank;
    lent[1] = -1;
    CHECK(h5logfs_lend_append(rows, lent, sizeof lent));
    for (int n = 0; n < rank; n++) {
        const int32_t row[2] = {rank, n};
        CHECK(h5logfs_append(rows, row, sizeof row));
    }
    CHECK(h5logfs_append(rows, NULL, 0));
    CHECK(h5logfs_flush(file));
    uint64_t start, count;
    CHECK(h5logfs_appended(rows, &start, &count));
    REQUIRE(start == (uint64_t)rank * (uint64_t)(rank + 1) / 2 && count == (uint64_t)rank + 1);
}

int main(int argc, char **argv)
{
    REQUIRE(argc == 2);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);

    const char *const keys[] = {"cb_nodes"}, *const values[] = {"1"};
    h5logfs_options options;
    CHECK(h5logfs_options_init(&options, sizeof options));
    options.overwrite = 1;
    options.subfiles = 2;
    options.fsync = H5LOGFS_FSYNC_NONE;
    options.hints = 1;
    options.hint_keys = keys;
    options.hint_values = values;
    h5logfs_id file;
    CHECK(h5logfs_create_f(MPI_Comm_c2f(MPI_COMM_WORLD), argv[1], &options, &file));
    atomic_types(file);
    other_types(file);
    attributes(file);
    selections(file, "/written", false);
    selections(file, "/lent", true);
    shapes(file);
    appends(file);
    /* The close flushes what is lent, too. */
    const uint64_t dims = 3;
    static const float late[3] = {1.5f, 2.5f, 3.5f};
    h5logfs_id last = plain(file, "/late", H5LOGFS_FLOAT, 1, &dims);
    if (rank == 0) {
        CHECK(h5logfs_lend(last, late, sizeof late));
    }
    CHECK(h5logfs_close(file));
    REQUIRE(!strcmp(h5logfs_last_error(), ""));
    MPI_Finalize();
    return 0;
}
