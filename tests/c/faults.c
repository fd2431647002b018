/*
 * faults FOLDER: errors are reported on the right ranks, and harm nothing. The file FOLDER/kept.h5 is closed in the
 * end, with everything that was valid.
 */
#include "common.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/file.h>
#include <unistd.h>

static int rank, ranks;
static const char *folder;

static const char *in_folder(const char *name)
{
    static char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

/* No function takes an invalid handle, or one of the wrong kind. */
static void handles(h5logfs_id file, h5logfs_id dataset, h5logfs_id datatype)
{
    const h5logfs_id none[] = {0, -1, 12345, INT64_MAX, INT64_MIN, dataset + 1000};
    uint64_t number = 0;
    size_t size;
    int dimensions;
    h5logfs_id id;
    h5logfs_dataset_spec spec = spec_of(H5LOGFS_INT32, 0, NULL);
    for (size_t i = 0; i < LENGTH(none) + 2; i++) {
        /* In place of a file, and of a dataset. */
        h5logfs_id f = i < LENGTH(none) ? none[i] : i == LENGTH(none) ? dataset : datatype;
        h5logfs_id d = i < LENGTH(none) ? none[i] : i == LENGTH(none) ? file : H5LOGFS_DOUBLE;
        h5logfs_id t = i < LENGTH(none) ? none[i] : i == LENGTH(none) ? file : dataset;
        const int bad = H5LOGFS_ERR_INVALID_ARGUMENT;
        REFUSED(bad, "handle", h5logfs_group(f, "/x"));
        REFUSED(bad, "handle", h5logfs_attribute_text(f, "/", "x", "y"));
        REFUSED(bad, "handle", h5logfs_attribute_texts(f, "/", "x", 0, NULL));
        REFUSED(bad, "handle", h5logfs_attribute(f, "/", "x", H5LOGFS_UINT64, 0, NULL, &number, 8));
        REFUSED(bad, "handle", h5logfs_attribute(file, "/", "x", t, 0, NULL, &number, 8));
        REFUSED(bad, "handle", h5logfs_dataset(f, "/x", &spec, &id));
        REFUSED(bad, "handle", h5logfs_flush(f));
        REFUSED(bad, "handle", h5logfs_close(f));
        REFUSED(bad, "handle", h5logfs_abandon(f));
        REFUSED(bad, "handle", h5logfs_buffered(f, &number));
        REFUSED(bad, "handle", h5logfs_set_extent(d, &number));
        REFUSED(bad, "handle", h5logfs_get_extent(d, 1, &number, &dimensions));
        REFUSED(bad, "handle", h5logfs_write(d, &number, 8));
        REFUSED(bad, "handle", h5logfs_lend_block(d, &number, &number, &number, 8));
        REFUSED(bad, "handle", h5logfs_type_insert(t, "x", 0, H5LOGFS_INT8));
        REFUSED(bad, "handle", h5logfs_type_insert(datatype, "x", 0, t));
        REFUSED(bad, "handle", h5logfs_type_enum(t, &id));
        REFUSED(bad, "handle", h5logfs_type_size(t, &size));
        REFUSED(bad, "handle", h5logfs_type_close(t));
        spec.datatype = t;
        REFUSED(bad, "handle", h5logfs_dataset(file, "/x", &spec, &id));
        REQUIRE(id == 0);
        spec.datatype = H5LOGFS_INT32;
    }
    REFUSED(H5LOGFS_ERR_INVALID_ARGUMENT, "predefined", h5logfs_type_close(H5LOGFS_INT8));
}

static void arguments(h5logfs_id file, h5logfs_id dataset)
{
    const int bad = H5LOGFS_ERR_INVALID_ARGUMENT;
    const uint64_t number = 1;
    const char latin[] = "/caf\xe9";
    const char *texts[] = {"a", NULL};
    uint64_t room;
    h5logfs_id id = 7;
    REFUSED(bad, "the path of the group is NULL", h5logfs_group(file, NULL));
    REFUSED(bad, "UTF-8", h5logfs_group(file, latin));
    REFUSED(bad, "attribute x of /: the text is NULL", h5logfs_attribute_text(file, "/", "x", NULL));
    REFUSED(bad, "NULL", h5logfs_attribute_text(file, "/", NULL, "x"));
    REFUSED(bad, "NULL", h5logfs_attribute_text(file, NULL, "x", "x"));
    REFUSED(bad, "UTF-8", h5logfs_attribute_text(file, "/", "x", latin));
    REFUSED(bad, "NULL", h5logfs_attribute_texts(file, "/", "x", 2, texts));
    REFUSED(bad, "NULL", h5logfs_attribute_texts(file, "/", "x", 2, NULL));
    REFUSED(bad, "attribute x of /: a rank of -1",
            h5logfs_attribute(file, "/", "x", H5LOGFS_INT8, -1, &number, &number, 1));
    REFUSED(H5LOGFS_ERR_DEFINITION, "attribute x of /: the value has 3 bytes",
            h5logfs_attribute(file, "/", "x", H5LOGFS_INT32, 1, &number, "123", 3));
    REFUSED(bad, "rank", h5logfs_attribute(file, "/", "x", H5LOGFS_INT8, 33, &number, &number, 1));
    REFUSED(bad, "NULL", h5logfs_attribute(file, "/", "x", H5LOGFS_INT8, 1, NULL, &number, 1));
    REFUSED(bad, "NULL", h5logfs_attribute(file, "/", "x", H5LOGFS_INT8, 1, &number, NULL, 1));
    REFUSED(bad, "NULL", h5logfs_buffered(file, NULL));
    REFUSED(bad, "NULL", h5logfs_get_extent(dataset, 1, NULL, &(int){0}));
    REFUSED(bad, "NULL", h5logfs_get_extent(dataset, 1, &room, NULL));
    REFUSED(bad, "room", h5logfs_get_extent(dataset, -1, &room, &(int){0}));
    REFUSED(bad, "NULL", h5logfs_type_size(H5LOGFS_INT8, NULL));
    REFUSED(bad, "NULL", h5logfs_type_compound(8, NULL));
    REFUSED(bad, "dataset /numbers: dims is NULL", h5logfs_set_extent(dataset, NULL));
    REFUSED(bad, "charset", h5logfs_type_text(8, 2, &id));
    REFUSED(bad, "order", h5logfs_type_with_order(H5LOGFS_INT8, -1, &id));
    REFUSED(bad, "rank", h5logfs_type_array(H5LOGFS_INT8, -1, &number, &id));
    REFUSED(H5LOGFS_ERR_DEFINITION, "array", h5logfs_type_array(H5LOGFS_INT8, 0, NULL, &id));
    REFUSED(H5LOGFS_ERR_DEFINITION, "compound", h5logfs_type_compound(0, &id));
    REFUSED(H5LOGFS_ERR_DEFINITION, "3 bytes", h5logfs_type_bitfield(3, &id));
    REQUIRE(id == 0);

    h5logfs_dataset_spec spec = spec_of(H5LOGFS_INT32, 1, &number), changed;
    REFUSED(bad, "dataset /x: the struct is NULL", h5logfs_dataset(file, "/x", NULL, &id));
    REFUSED(bad, "NULL", h5logfs_dataset(file, "/x", &spec, NULL));
    REFUSED(bad, "NULL", h5logfs_dataset(file, NULL, &spec, &id));
    REFUSED(bad, "NULL", h5logfs_dataset_spec_init(NULL, sizeof spec));
    REFUSED(bad, "initialised", h5logfs_dataset_spec_init(&spec, sizeof spec - 1));
#define CHANGED(words, code, field, value)                          \
    changed = spec;                                                 \
    changed.field = value;                                          \
    REFUSED(code, words, h5logfs_dataset(file, "/x", &changed, &id))
    CHANGED("rank", bad, rank, -1);
    CHANGED("rank", bad, rank, 33);
    CHANGED("NULL", bad, dims, NULL);
    CHANGED("deflate", bad, deflate, 10);
    CHANGED("deflate", bad, deflate, -2);
    CHANGED("shuffle", bad, shuffle, 2);
    CHANGED("fletcher32", bad, fletcher32, -1);
    CHANGED("initialised", bad, size, 0);
    const uint64_t nought = 0;
    CHANGED("largest extent", H5LOGFS_ERR_DEFINITION, max_dims, &nought);
    CHANGED("chunk", H5LOGFS_ERR_DEFINITION, chunk, &nought);
#undef CHANGED
}

static void definitions(h5logfs_id file, h5logfs_id dataset)
{
    const uint64_t fewer = 1;
    h5logfs_id id = 7, compound;
    h5logfs_dataset_spec spec = spec_of(H5LOGFS_INT32, 1, &fewer);
    /* An existing group, made by a call or as a parent, is no error. */
    CHECK(h5logfs_group(file, "/there"));
    CHECK(h5logfs_group(file, "/there"));
    CHECK(h5logfs_group(file, "/there/below/it"));
    CHECK(h5logfs_group(file, "/there/below"));
    CHECK(h5logfs_group(file, "/"));
    REFUSED(H5LOGFS_ERR_DEFINITION, "there is a dataset already", h5logfs_group(file, "/numbers"));
    REFUSED(H5LOGFS_ERR_DEFINITION, "/there", h5logfs_dataset(file, "/there", &spec, &id));
    REQUIRE(id == 0);
    REFUSED(H5LOGFS_ERR_DEFINITION, "no such object",
            h5logfs_attribute_text(file, "/nowhere", "x", "y"));
    REFUSED(H5LOGFS_ERR_DEFINITION, "shrink", h5logfs_set_extent(dataset, &fewer));
    REFUSED(H5LOGFS_ERR_DEFINITION, "bytes",
            h5logfs_attribute(file, "/", "x", H5LOGFS_INT32, 1, &fewer, "12345678", 8));
    CHECK(h5logfs_type_compound(8, &compound));
    spec.datatype = compound;
    REFUSED(H5LOGFS_ERR_DEFINITION, "members", h5logfs_dataset(file, "/y", &spec, &id));
    CHECK(h5logfs_type_insert(compound, "x", 0, H5LOGFS_INT32));
    REFUSED(H5LOGFS_ERR_DEFINITION, "twice", h5logfs_type_insert(compound, "x", 4, H5LOGFS_INT32));
    REFUSED(H5LOGFS_ERR_DEFINITION, "ends past",
            h5logfs_type_insert(compound, "y", 4, H5LOGFS_INT64));
    CHECK(h5logfs_type_close(compound));
    REFUSED(H5LOGFS_ERR_CLOSED, "datatype is closed", h5logfs_type_close(compound));
    REFUSED(H5LOGFS_ERR_CLOSED, "datatype is closed", h5logfs_dataset(file, "/y", &spec, &id));
}

/* All ranks hear once of the write that the last one has refused. */
static void hear(h5logfs_id file, const char *words)
{
    char who[32];
    snprintf(who, sizeof who, "rank %d", ranks - 1);
    REFUSED(H5LOGFS_ERR_REFUSED, words, h5logfs_flush(file));
    REQUIRE(strstr(h5logfs_last_error(), who));
    CHECK(h5logfs_flush(file));
}

/* The message of the call names the file and the rank, too. */
#define REFUSED_ON_LAST(code, words, call)                           \
    do {                                                             \
        if (rank == ranks - 1) {                                     \
            char place[32];                                          \
            snprintf(place, sizeof place, "kept.h5: rank %d", rank); \
            REFUSED(code, words, call);                              \
            REQUIRE(strstr(h5logfs_last_error(), place));            \
        }                                                            \
        hear(file, words);                                           \
    } while (0)

static void writes(h5logfs_id file, h5logfs_id dataset)
{
    static int32_t data[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    const uint64_t start = 2 * (uint64_t)rank, two = 2, far = 2 * (uint64_t)ranks - 1;
    /* Valid data goes to the file beside invalid data. */
    CHECK(h5logfs_write_block(dataset, &start, &two, data, 8));
    REFUSED_ON_LAST(H5LOGFS_ERR_WRITE, "out of the extent",
                    h5logfs_write_block(dataset, &far, &two, data, 8));
    REFUSED_ON_LAST(H5LOGFS_ERR_WRITE, "1 elements for a selection of 2",
                    h5logfs_write_block(dataset, &start, &two, data, 4));
    REFUSED_ON_LAST(H5LOGFS_ERR_WRITE, "dataset /numbers: 7 bytes are no whole number of elements of 4",
                    h5logfs_write_block(dataset, &start, &two, data, 7));
    REFUSED_ON_LAST(H5LOGFS_ERR_INVALID_ARGUMENT, "NULL",
                    h5logfs_write_block(dataset, &start, &two, NULL, 8));
    REFUSED_ON_LAST(H5LOGFS_ERR_INVALID_ARGUMENT, "dataset /numbers: start is NULL",
                    h5logfs_write_block(dataset, NULL, &two, data, 8));
    REFUSED_ON_LAST(H5LOGFS_ERR_INVALID_ARGUMENT, "points",
                    h5logfs_write_points(dataset, SIZE_MAX, &start, data, 8));
    const uint64_t *const starts[2] = {&start, NULL}, *const counts[2] = {&two, &two};
    REFUSED_ON_LAST(H5LOGFS_ERR_INVALID_ARGUMENT, "dataset /numbers: block 1: starts is NULL",
                    h5logfs_write_n(dataset, 2, starts, counts, data, 16));
    REFUSED_ON_LAST(H5LOGFS_ERR_WRITE, "elements", h5logfs_write(dataset, data, 4));
    /* Errors of lent data are reported at once. */
    REFUSED_ON_LAST(H5LOGFS_ERR_WRITE, "out of the extent",
                    h5logfs_lend_block(dataset, &far, &two, data, 8));
    REFUSED_ON_LAST(H5LOGFS_ERR_WRITE, "elements",
                    h5logfs_lend_hyperslab(dataset, &start, NULL, &two, NULL, data, 4));
}

/* A full buffer goes to the file, and larger data at once. Appended rows stay, and leave no room. */
static void full_buffer(void)
{
    const uint64_t dims = 200, start = 0, half = 100;
    static const double data[200] = {1};
    h5logfs_options options;
    CHECK(h5logfs_options_init(&options, sizeof options));
    options.buffer_limit = 1000;
    h5logfs_id file = created(in_folder("full.h5"), &options);
    h5logfs_id dataset = plain(file, "/d", H5LOGFS_DOUBLE, 1, &dims);
    for (int i = 0; i < 3; i++)
        CHECK(h5logfs_write_block(dataset, &start, &half, data, sizeof data / 2));
    CHECK(h5logfs_write_block(dataset, &start, &dims, data, sizeof data));
    CHECK(h5logfs_lend(dataset, data, sizeof data));
    CHECK(h5logfs_flush(file));
    const uint64_t none = 0, most = H5LOGFS_UNLIMITED;
    h5logfs_dataset_spec spec = spec_of(H5LOGFS_DOUBLE, 1, &none);
    spec.max_dims = &most;
    h5logfs_id rows;
    CHECK(h5logfs_dataset(file, "/rows", &spec, &rows));
    CHECK(h5logfs_append(rows, data, sizeof data / 2));
    REFUSED(H5LOGFS_ERR_BUFFER_FULL, "the buffer is full",
            h5logfs_write_block(dataset, &half, &half, data, sizeof data / 2));
    CHECK(h5logfs_flush(file));
    CHECK(h5logfs_write_block(dataset, &half, &half, data, sizeof data / 2));
    CHECK(h5logfs_close(file));
}

static void creations(void)
{
    h5logfs_options options;
    CHECK(h5logfs_options_init(&options, sizeof options));
    const int bad = H5LOGFS_ERR_INVALID_ARGUMENT;
    h5logfs_id file = 7;
    char who[32];
    REFUSED(bad, "MPI_COMM_NULL", h5logfs_create(MPI_COMM_NULL, "x", NULL, &file));
    REQUIRE(file == 0);
    REFUSED(bad, "NULL", h5logfs_create(MPI_COMM_WORLD, NULL, NULL, &file));
    REFUSED(bad, "NULL", h5logfs_create(MPI_COMM_WORLD, in_folder("x"), NULL, NULL));
    REFUSED(bad, "UTF-8", h5logfs_create(MPI_COMM_WORLD, in_folder("\xff"), NULL, &file));
    REFUSED(bad, "empty", h5logfs_create(MPI_COMM_WORLD, "", NULL, &file));
    REFUSED(bad, "initialised", h5logfs_options_init(&options, 8));
    options.fsync = 17;
    REFUSED(bad, "fsync has no value 17",
            h5logfs_create(MPI_COMM_WORLD, in_folder("x"), &options, &file));
    /* Only one rank is wrong: nobody waits for it. */
    snprintf(who, sizeof who, "rank %d", ranks - 1);
    if (rank == ranks - 1) {
        REFUSED(bad, "NULL", h5logfs_create(MPI_COMM_WORLD, NULL, NULL, &file));
    } else {
        const char *path = in_folder("x");
        REFUSED(H5LOGFS_ERR_FAILED, who, h5logfs_create(MPI_COMM_WORLD, path, NULL, &file));
    }
    REFUSED(H5LOGFS_ERR_FAILED, "rank 0: the directory",
            h5logfs_create(MPI_COMM_WORLD, in_folder("missing/x"), NULL, &file));
    REFUSED(H5LOGFS_ERR_FAILED, "another job writes it",
            h5logfs_create(MPI_COMM_WORLD, in_folder("kept.h5"), NULL, &file));
    REQUIRE(file == 0);
}

/* A close settles the file, or reports that it is a log. */
static void settling(void)
{
    const uint64_t dims = (uint64_t)ranks, start = (uint64_t)rank, one = 1;
    const int32_t number = 7 * rank;
    h5logfs_options options;
    CHECK(h5logfs_options_init(&options, sizeof options));
    REQUIRE(!options.settle && options.settle_memory == 256 << 20);
    REQUIRE(options.flush_every == 0 && options.flush_bytes == 0);
    options.settle = 1;
    for (int locked = 0; locked < 2; locked++) {
        const char *path = in_folder(locked ? "locked.h5" : "settled.h5");
        h5logfs_id file = created(path, &options);
        h5logfs_id dataset = plain(file, "/d", H5LOGFS_INT32, 1, &dims);
        CHECK(h5logfs_write_block(dataset, &start, &one, &number, sizeof number));
        if (!locked) {
            CHECK(h5logfs_close(file));
            continue;
        }
        /* The descriptor of a reading program. */
        const int reader = open(path, O_RDONLY);
        REQUIRE(reader >= 0 && !flock(reader, LOCK_SH));
        REFUSED(H5LOGFS_ERR_NOT_SETTLED, "locked.h5` can be run later", h5logfs_close(file));
        REQUIRE(strstr(h5logfs_last_error(), "locked.h5: closed, but not settled: another program"));
        close(reader);
        REFUSED(H5LOGFS_ERR_CLOSED, "file is closed", h5logfs_close(file));
        REFUSED(H5LOGFS_ERR_CLOSED, "file of this dataset is closed", h5logfs_write(dataset, "", 1));
    }
    h5logfs_id file;
    options.subfiles = H5LOGFS_SUBFILES_PER_NODE;
    REFUSED(H5LOGFS_ERR_FAILED, "`settle` is for a log in one file",
            h5logfs_create(MPI_COMM_WORLD, in_folder("x"), &options, &file));
    options.settle = 2;
    REFUSED(H5LOGFS_ERR_INVALID_ARGUMENT, "settle has no value 2",
            h5logfs_create(MPI_COMM_WORLD, in_folder("x"), &options, &file));
}

/* An unclosed log is replaced only if both options are set. */
static void replacements(void)
{
    h5logfs_options options;
    h5logfs_id file;
    CHECK(h5logfs_options_init(&options, sizeof options));
    REQUIRE(!options.overwrite && !options.discard_unclosed);
    file = created(in_folder("again.h5"), NULL);
    CHECK(h5logfs_flush(file));
    CHECK(h5logfs_abandon(file));
    MPI_Barrier(MPI_COMM_WORLD);
    for (options.overwrite = 0; options.overwrite < 2; options.overwrite++) {
        REFUSED(H5LOGFS_ERR_FAILED, "left 1 flush in it",
                h5logfs_create(MPI_COMM_WORLD, in_folder("again.h5"), &options, &file));
    }
    options.overwrite = 1;
    options.discard_unclosed = 1;
    CHECK(h5logfs_close(created(in_folder("again.h5"), &options)));
    options.discard_unclosed = 0;
    CHECK(h5logfs_close(created(in_folder("again.h5"), &options)));
    options.discard_unclosed = 2;
    REFUSED(H5LOGFS_ERR_INVALID_ARGUMENT, "discard_unclosed has no value 2",
            h5logfs_create(MPI_COMM_WORLD, in_folder("again.h5"), &options, &file));
    /* A program compiled with the first header has shorter options. */
    const size_t first = offsetof(h5logfs_options, discard_unclosed);
    options.discard_unclosed = 7;
    CHECK(h5logfs_options_init(&options, first));
    REQUIRE(options.size == first && options.discard_unclosed == 7);
    options.overwrite = 1;
    CHECK(h5logfs_close(created(in_folder("again.h5"), &options)));
}

/* Ranks that disagree are told, and can stop. */
static void disagreement(void)
{
    const uint64_t dims = 4 + (rank == 1);
    char started[32];
    h5logfs_id file = created(in_folder("abandoned.h5"), NULL);
    CHECK(h5logfs_group(file, "/same"));
    CHECK(h5logfs_flush(file));
    /* An attribute is left out, and can be defined again. */
    snprintf(started, sizeof started, "10:00:0%d", rank);
    CHECK(h5logfs_attribute_text(file, "/same", "started", started));
    REFUSED(H5LOGFS_ERR_REFUSED,
            "abandoned.h5: flushed without attribute started of /same "
            "(rank 1 defines it as \"10:00:01\", rank 0 as \"10:00:00\")",
            h5logfs_flush(file));
    CHECK(h5logfs_flush(file));
    CHECK(h5logfs_attribute_text(file, "/same", "started", "10:00:00"));
    CHECK(h5logfs_flush(file));
    plain(file, "/grid", H5LOGFS_DOUBLE, 1, &dims);
    const char *words = "rank 1 defines dataset /grid with extent [5], rank 0 with extent [4]";
    REFUSED(H5LOGFS_ERR_FAILED, words, h5logfs_flush(file));
    REFUSED(H5LOGFS_ERR_FAILED, words, h5logfs_close(file));
    REQUIRE(strstr(h5logfs_last_error(), "abandoned.h5: flush failed on rank 1"));
    CHECK(h5logfs_abandon(file));
    REFUSED(H5LOGFS_ERR_CLOSED, "file is closed", h5logfs_flush(file));
}

static void *in_a_thread(void *arg)
{
    h5logfs_id file = *(h5logfs_id *)arg;
    REQUIRE(!strcmp(h5logfs_last_error(), ""));
    REFUSED(H5LOGFS_ERR_INVALID_ARGUMENT, "4711", h5logfs_flush(4711));
    /* MPI was told that only one thread would call it. */
    int level;
    MPI_Query_thread(&level);
    REQUIRE(level == MPI_THREAD_FUNNELED);
    REFUSED(H5LOGFS_ERR_MPI, "thread", h5logfs_flush(file));
    REFUSED(H5LOGFS_ERR_MPI, "thread", h5logfs_group(file, "/thread"));
    return NULL;
}

static void messages_of_threads(h5logfs_id file)
{
    pthread_t threads[2];
    const uint64_t dims = (uint64_t)ranks, start = (uint64_t)rank, one = 1;
    int32_t lent = 5;
    h5logfs_id dataset = plain(file, "/lent", H5LOGFS_INT32, 1, &dims);
    CHECK(h5logfs_lend_block(dataset, &start, &one, &lent, sizeof lent));
    REFUSED(H5LOGFS_ERR_INVALID_ARGUMENT, "1234", h5logfs_flush(1234));
    for (size_t i = 0; i < LENGTH(threads); i++) {
        REQUIRE(!pthread_create(&threads[i], NULL, in_a_thread, &file));
    }
    for (size_t i = 0; i < LENGTH(threads); i++) {
        REQUIRE(!pthread_join(threads[i], NULL));
    }
    REQUIRE(strstr(h5logfs_last_error(), "1234"));
    /* After a flush the caller may change the buffer, although this one is constant. */
    lent = 6;
    CHECK(h5logfs_flush(file));
}

int main(int argc, char **argv)
{
    REQUIRE(argc == 2);
    folder = argv[1];
    int level;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);

    const uint64_t dims = 2 * (uint64_t)ranks;
    h5logfs_id file = created(in_folder("kept.h5"), NULL), datatype;
    h5logfs_id dataset = plain(file, "/numbers", H5LOGFS_INT32, 1, &dims);
    CHECK(h5logfs_type_compound(4, &datatype));
    handles(file, dataset, datatype);
    arguments(file, dataset);
    definitions(file, dataset);
    writes(file, dataset);
    creations();
    replacements();
    settling();
    full_buffer();
    disagreement();
    messages_of_threads(file);

    /* A close with a refused write still closes. */
    if (rank == 0) {
        EXPECT(H5LOGFS_ERR_WRITE, h5logfs_write(dataset, "", 1));
    }
    REFUSED(H5LOGFS_ERR_REFUSED, "rank 0", h5logfs_close(file));
    REFUSED(H5LOGFS_ERR_CLOSED, "file is closed", h5logfs_close(file));
    REFUSED(H5LOGFS_ERR_CLOSED, "file is closed", h5logfs_group(file, "/late"));
    REFUSED(H5LOGFS_ERR_CLOSED, "file of this dataset is closed", h5logfs_write(dataset, "", 1));
    REFUSED(H5LOGFS_ERR_CLOSED, "file of this dataset is closed", h5logfs_set_extent(dataset, &dims));
    MPI_Finalize();
    return 0;
}
