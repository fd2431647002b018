/* Datasets: what each rank writes to them, and what it reads. */
#include "random.h"

#ifdef H5_HAVE_PARALLEL
#include <mpi.h>
#endif
#include <zlib.h>

enum { MOST_RANKS = 16, MOST_DATASETS = 4 };

/* The types of elements in memory. */
enum types { THE_SAME, WHOLE, ANY };

/* What one rank transfers in one call. */
struct piece {
    hid_t space, memory_space, type;
    /* Selected elements; their places in the dataset and in memory. */
    size_t count;
    hsize_t *in_file, *in_memory;
    /* The memory has the extent and the selection of the dataset. */
    bool like_file;
    /* All elements of the memory. */
    size_t elements, size;
    unsigned char *memory;
    uint64_t *values;
};

static bool is_vlen(const struct dataset *dataset)
{
    return dataset->content == STRINGS || dataset->content == SEQUENCES;
}

static size_t elements_of(const struct dataset *dataset)
{
    return volume(dataset->rank, dataset->dims);
}

static void make_reference(uint64_t of, void *reference)
{
    char path[1024];
    if (run.live && of) {
        path_of(objects[of], path);
        H5(H5Rcreate(reference, run.file, path, H5R_OBJECT, -1));
    }
}

uint64_t *make_elements(hid_t type, enum content content, unsigned char *memory, size_t count)
{
    const size_t size = H5Tget_size(type);
    if (content == PLAIN) {
        fill_elements(type, memory, count);
        return NULL;
    }
    uint64_t *values = calloc(count + 1, sizeof *values);
    REQUIRE(values);
    for (size_t i = 0; i < count; i++) {
        if (content == REFERENCES) {
            struct object *object = one_in(4) ? NULL : pick_any();
            if (object) {
                object->pinned = true;
                values[i] = object->number;
            }
            make_reference(values[i], memory + i * size);
        } else {
            values[i] = within(1, 1000000);
            make_value(content, values[i], memory + i * size);
        }
    }
    return values;
}

void free_made(enum content content, unsigned char *memory, size_t size, uint64_t *values, size_t count)
{
    for (size_t i = 0; (content == STRINGS || content == SEQUENCES) && i < count; i++) {
        free_value(content, memory + i * size);
    }
    free(memory);
    free(values);
}

/* A transfer between memory and a box of a dataset, with its own type if conversion is allowed. */
static struct piece make_piece(const struct dataset *dataset, const hsize_t *low, const hsize_t *high, enum types types)
{
    /* HDF5 1.14.6 forgets the order of points where MPI programs write to filtered chunks. */
    const bool points = !run.mpio || !dataset->filters;
    struct piece piece = {.space = select_within(dataset->rank, dataset->dims, low, high, points)};
    piece.count = places(piece.space, &piece.in_file);
    piece.like_file = piece.count && one_in(6);
    if (piece.like_file) {
        piece.memory_space = H5(H5Scopy(piece.space));
    } else {
        piece.memory_space = select_memory(piece.count, points);
    }
    places(piece.memory_space, &piece.in_memory);
    piece.elements = (size_t)H5(H5Sget_simple_extent_npoints(piece.memory_space));
    piece.type = types == THE_SAME && dataset->content == PLAIN
                     ? H5(H5Tcopy(dataset->type))
                     : memory_type(dataset->type, dataset->content, types == WHOLE);
    piece.size = H5Tget_size(piece.type);
    piece.memory = malloc(piece.elements * piece.size + 1);
    REQUIRE(piece.memory);
    memset(piece.memory, 0, piece.elements * piece.size);
    return piece;
}

static void free_piece(struct piece *piece, enum content content)
{
    free_made(content, piece->memory, piece->size, piece->values, piece->values ? piece->elements : 0);
    free(piece->in_file);
    free(piece->in_memory);
    H5(H5Sclose(piece->space));
    H5(H5Sclose(piece->memory_space));
    H5(H5Tclose(piece->type));
}

static hid_t memory_space(const struct piece *piece)
{
    return piece->like_file ? H5S_ALL : piece->memory_space;
}

static hid_t file_space(const struct piece *piece, const struct dataset *dataset)
{
    const bool all = piece->count && piece->count == elements_of(dataset) &&
                     H5Sget_select_type(piece->space) != H5S_SEL_POINTS;
    return all ? H5S_ALL : piece->space;
}

/* The elements of the dataset in the type of the piece, or the reverse. */
static unsigned char *converted(const struct dataset *dataset, const struct piece *piece, bool to_file)
{
    const size_t most = piece->size > dataset->size ? piece->size : dataset->size;
    unsigned char *elements = malloc(piece->count * most + 1), *background = malloc(piece->count * most + 1);
    REQUIRE(elements && background);
    const size_t from = to_file ? piece->size : dataset->size, to = to_file ? dataset->size : piece->size;
    for (size_t i = 0; i < piece->count; i++) {
        const unsigned char *file = dataset->elements + piece->in_file[i] * dataset->size;
        const unsigned char *memory = piece->memory + piece->in_memory[i] * piece->size;
        memcpy(elements + i * from, to_file ? memory : file, from);
        memcpy(background + i * to, to_file ? file : memory, to);
    }
    const hid_t types[] = {to_file ? piece->type : dataset->type, to_file ? dataset->type : piece->type};
    H5(H5Tconvert(types[0], types[1], piece->count, elements, background, H5P_DEFAULT));
    free(background);
    return elements;
}

/* Writes a piece into the model. `rank` is -1 if all ranks write it. */
static void model_write(struct dataset *dataset, const struct piece *piece, int rank)
{
    unsigned char *elements = dataset->content == PLAIN ? converted(dataset, piece, true) : NULL;
    for (size_t i = 0; i < piece->count; i++) {
        unsigned char *element = dataset->elements + piece->in_file[i] * dataset->size;
        const void *from = elements ? (const void *)(elements + i * dataset->size)
                                    : (const void *)&piece->values[piece->in_memory[i]];
        memcpy(element, from, dataset->size);
        dataset->writer[piece->in_file[i]] = (signed char)rank;
    }
    free(elements);
}

/* Whether another rank wrote one of the elements since the last flush. */
static bool clashes(const struct dataset *dataset, const struct piece *piece, int rank)
{
    for (size_t i = 0; i < piece->count; i++) {
        const int writer = dataset->writer[piece->in_file[i]];
        if (writer != -1 && writer != rank) {
            return true;
        }
    }
    return false;
}

static bool is_reference_to(const void *reference, uint64_t number)
{
    static const unsigned char none[sizeof(hobj_ref_t)];
    if (!number || !memcmp(reference, none, sizeof none)) {
        return !number && !memcmp(reference, none, sizeof none);
    }
    /* In MPI programs all ranks must open the same objects. */
    if (run.mpio) {
        return true;
    }
    const hid_t object = H5(H5Rdereference2(run.file, H5P_DEFAULT, H5R_OBJECT, reference));
    H5O_info2_t got, expected;
    H5(H5Oget_info3(object, &got, H5O_INFO_BASIC));
    H5(H5Oget_info3(open_object(objects[number]), &expected, H5O_INFO_BASIC));
    H5(H5Oclose(object));
    return !memcmp(&got.token, &expected.token, sizeof got.token);
}

/* With `all`, other ranks' writes since the last flush are read, too. */
static void require_read(struct object *object, const struct piece *piece, bool all)
{
    const struct dataset *dataset = &object->dataset;
    unsigned char *expected = dataset->content == PLAIN ? converted(dataset, piece, false) : NULL;
    for (size_t i = 0; i < piece->count; i++) {
        const hsize_t place = piece->in_file[i];
        const int writer = dataset->writer[place];
        if (!all && writer != -1 && writer != run.rank) {
            continue;
        }
        const unsigned char *got = piece->memory + piece->in_memory[i] * piece->size;
        uint64_t value;
        memcpy(&value, dataset->elements + place * dataset->size, dataset->content == PLAIN ? 0 : sizeof value);
        const bool same = dataset->content == PLAIN        ? !memcmp(got, expected + i * piece->size, piece->size)
                          : dataset->content == REFERENCES ? is_reference_to(got, value)
                                                           : is_value(dataset->content, value, got);
        if (!same) {
            char path[1024];
            path_of(object, path);
            FAIL("%s, rank %d: %s: element %llu of %zu is not what was written", run.path, run.rank, path,
                 (unsigned long long)place, elements_of(dataset));
        }
    }
    free(expected);
}

/* Memory between the elements read is unchanged. */
static void require_rest(const struct piece *piece, unsigned char pattern)
{
    unsigned char *touched = calloc(piece->elements + 1, 1);
    REQUIRE(touched);
    for (size_t i = 0; i < piece->count; i++) {
        touched[piece->in_memory[i]] = 1;
    }
    for (size_t i = 0; i < piece->elements; i++) {
        for (size_t j = 0; !touched[i] && j < piece->size; j++) {
            REQUIRE(piece->memory[i * piece->size + j] == pattern);
        }
    }
    free(touched);
}

static hid_t transfer(bool collective)
{
    const hid_t plist = H5(H5Pcreate(H5P_DATASET_XFER));
#ifdef H5_HAVE_PARALLEL
    if (run.mpio && collective) {
        H5(H5Pset_dxpl_mpio(plist, H5FD_MPIO_COLLECTIVE));
    }
    /* If HDF5 1.14.6 selects and converts at once, ranks wait for each other for ever. */
    if (run.mpio) {
        H5(H5Pset_selection_io(plist, H5D_SELECTION_IO_MODE_OFF));
    }
#else
    (void)collective;
#endif
    return plist;
}

static void barrier(void)
{
#ifdef H5_HAVE_PARALLEL
    if (run.live && run.mpio) {
        MPI_Barrier(MPI_COMM_WORLD);
    }
#endif
}

static const char *name_of(const struct object *object)
{
    static char path[1024];
    path_of(object, path);
    return path;
}

static const char *extent_of(const struct dataset *dataset)
{
    static char text[128];
    size_t length = (size_t)sprintf(text, "(");
    for (int i = 0; i < dataset->rank; i++) {
        length += (size_t)sprintf(text + length, "%s%lld", i ? ", " : "", (long long)dataset->dims[i]);
    }
    strcpy(text + length, ")");
    return text;
}

void flush_all(void)
{
    TELL("flush");
    LIVE(H5Fflush(run.file, H5F_SCOPE_GLOBAL));
    barrier();
    for (uint64_t i = 1; i <= last_object; i++) {
        if (objects[i] && objects[i]->dataset.writer) {
            struct dataset *dataset = &objects[i]->dataset;
            memset(dataset->writer, -1, elements_of(dataset) + 1);
        }
    }
}

/* Puts the fill value into all elements. */
static void allocate(struct dataset *dataset)
{
    const size_t elements = elements_of(dataset);
    dataset->elements = malloc(elements * dataset->size + 1);
    dataset->writer = malloc(elements + 1);
    REQUIRE(dataset->elements && dataset->writer);
    for (size_t i = 0; i < elements; i++) {
        memcpy(dataset->elements + i * dataset->size, dataset->fill, dataset->size);
    }
    memset(dataset->writer, -1, elements + 1);
}

void free_elements(struct dataset *dataset)
{
    free(dataset->elements);
    free(dataset->fill);
    free(dataset->writer);
    if (dataset->type >= 0) {
        H5(H5Tclose(dataset->type));
    }
}

void copy_elements(struct dataset *to, const struct dataset *from)
{
    *to = *from;
    to->type = H5(H5Tcopy(from->type));
    if (!from->elements) {
        return;
    }
    to->fill = malloc(from->size);
    REQUIRE(to->fill);
    memcpy(to->fill, from->fill, from->size);
    allocate(to);
    memcpy(to->elements, from->elements, elements_of(from) * from->size);
}

static void choose_extent(struct dataset *dataset)
{
    dataset->rank = one_in(12) ? 0 : (int)within(1, MOST_RANK);
    dataset->chunked = dataset->rank && !one_in(3);
    for (int i = 0; i < dataset->rank; i++) {
        dataset->dims[i] = within(1, dataset->rank == 1 ? 100 : dataset->rank == 2 ? 16 : 8);
        dataset->max[i] = dataset->dims[i];
        dataset->chunk[i] = within(1, dataset->dims[i] + 2);
        if (dataset->chunked && one_in(2)) {
            dataset->max[i] = one_in(3) ? dataset->dims[i] + 8 : H5S_UNLIMITED;
            /* Without an unlimited dimension HDF5 1.14.6 cannot leave chunks unallocated. */
            if (dataset->max[i] == H5S_UNLIMITED && one_in(6)) {
                dataset->dims[i] = 0;
            }
        } else if (dataset->chunk[i] > dataset->dims[i]) {
            dataset->chunk[i] = dataset->dims[i];
        }
    }
}

static void choose_filters(struct dataset *dataset, hid_t plist)
{
    if (dataset->content != PLAIN || !one_in(3)) {
        return;
    }
    const bool shuffled = one_in(2), deflated = !one_in(3), checked = one_in(3);
    const bool packed = has_plain_numbers(dataset->type) && one_in(10);
    if (packed) {
        H5(H5Pset_nbit(plist));
    }
    if (shuffled) {
        H5(H5Pset_shuffle(plist));
    }
    if (deflated) {
        H5(H5Pset_deflate(plist, (unsigned)within(0, 9)));
    }
    if (checked) {
        H5(H5Pset_fletcher32(plist));
    }
    dataset->packed = packed;
    dataset->filters = packed + shuffled + deflated + checked;
    dataset->deflated = deflated && dataset->filters == 1;
    dataset->summed = checked && !deflated && !packed;
}

static hid_t creation(struct dataset *dataset)
{
    const hid_t plist = H5(H5Pcreate(H5P_DATASET_CREATE));
    if (dataset->chunked) {
        H5(H5Pset_chunk(plist, dataset->rank, dataset->chunk));
        choose_filters(dataset, plist);
        /* MPI programs can only write to allocated chunks. */
        if (run.ever_mpio && !dataset->filters) {
            H5(H5Pset_alloc_time(plist, H5D_ALLOC_TIME_EARLY));
        }
    } else if (one_in(5) && !is_vlen(dataset)) {
        dataset->compact = true;
        H5(H5Pset_layout(plist, H5D_COMPACT));
    }
    const bool filled = dataset->content == PLAIN && one_in(3);
    if (filled) {
        fill_elements(dataset->type, dataset->fill, 1);
        H5(H5Pset_fill_value(plist, dataset->type, dataset->fill));
    }
    /* Otherwise, without a fill value, HDF5 shows what was in the file before. */
    if (!filled || one_in(4)) {
        H5(H5Pset_fill_time(plist, H5D_FILL_TIME_ALLOC));
    }
    /* HDF5 writes no fill value if all elements are written at once, although some members may be left out. */
    if (H5Tget_class(dataset->type) == H5T_COMPOUND && !dataset->filters) {
        H5(H5Pset_alloc_time(plist, H5D_ALLOC_TIME_EARLY));
    }
    if (one_in(4)) {
        H5(H5Pset_attr_creation_order(plist, H5P_CRT_ORDER_TRACKED | H5P_CRT_ORDER_INDEXED));
    }
    return plist;
}

void create_dataset(void)
{
    char name[24];
    struct object *parent = pick_parent(name, "data");
    if (!parent) {
        return;
    }
    struct object *named = one_in(3) ? pick(DATATYPE) : NULL;
    enum content content;
    hid_t type = file_type(&content);
    if (named) {
        H5(H5Tclose(type));
        type = H5(H5Tcopy(named->dataset.type));
        content = named->dataset.content;
    }
    if (run.mpio && (content == STRINGS || content == SEQUENCES)) {
        H5(H5Tclose(type));
        return;
    }
    const hid_t id = open_object(parent), named_id = named ? open_object(named) : -1;
    struct object *object = add_object(DATASET, parent, name);
    struct dataset *dataset = &object->dataset;
    dataset->type = type;
    dataset->content = content;
    dataset->size = content == PLAIN ? H5Tget_size(type) : sizeof(uint64_t);
    dataset->fill = calloc(1, dataset->size);
    REQUIRE(dataset->fill);
    choose_extent(dataset);
    dataset->made_by_several = run.ranks > 1;
    const hid_t plist = creation(dataset);
    TELL("create %s %s%s, %d filters, bytes an element: %zu, class %d", name_of(object), extent_of(dataset),
         dataset->chunked ? " chunked" : dataset->compact ? " compact" : "", dataset->filters, dataset->size,
         (int)H5Tget_class(type));
    allocate(dataset);
    if (run.live) {
        const hid_t space = dataset->rank ? H5(H5Screate_simple(dataset->rank, dataset->dims, dataset->max))
                                          : H5(H5Screate(H5S_SCALAR));
        object->id = H5(H5Dcreate2(id, name, named ? named_id : type, space, H5P_DEFAULT, plist, H5P_DEFAULT));
        H5(H5Sclose(space));
    }
    H5(H5Pclose(plist));
}

/* A rank's part of a dataset: a range of one of its dimensions. */
static void share_of(const struct dataset *dataset, int axis, int rank, hsize_t *low, hsize_t *high)
{
    for (int i = 0; i < dataset->rank; i++) {
        low[i] = 0;
        high[i] = dataset->dims[i];
    }
    if (axis >= 0) {
        low[axis] = dataset->dims[axis] * (hsize_t)rank / (hsize_t)run.ranks;
        high[axis] = dataset->dims[axis] * (hsize_t)(rank + 1) / (hsize_t)run.ranks;
    }
}

/* The writes of all ranks to a dataset in one call. */
struct parts {
    struct object *object;
    struct piece of[MOST_RANKS];
    /* All write the same, as HDF5 requires for data that is metadata. */
    bool same;
};

static enum types types_of(const struct dataset *dataset)
{
    /* MPI programs cannot convert filtered data. */
    if (run.mpio && dataset->filters) {
        return THE_SAME;
    }
    /* When only some members of a whole chunk are written, HDF5 1.14.6 loses the others. */
    return dataset->chunked ? WHOLE : ANY;
}

static struct parts make_parts(struct object *object)
{
    struct dataset *dataset = &object->dataset;
    const enum types types = types_of(dataset);
    struct parts parts = {.object = object, .same = run.mpio && dataset->compact};
    const bool split = dataset->rank && run.ranks > 1 && !one_in(5) && !parts.same;
    const int axis = split ? (int)below((uint64_t)dataset->rank) : -1;
    const int shift = (int)below((uint64_t)run.ranks);
    for (int rank = 0; rank < run.ranks; rank++) {
        hsize_t low[MOST_RANK] = {0}, high[MOST_RANK] = {0};
        const int part = (rank + shift) % run.ranks;
        if (split || parts.same || !part) {
            share_of(dataset, axis, part, low, high);
        }
        if (!dataset->rank && part && !parts.same) {
            /* A scalar cannot have an empty box. */
            struct piece none = make_piece(dataset, low, high, types);
            H5(H5Sselect_none(none.space));
            H5(H5Sselect_none(none.memory_space));
            none.like_file = false;
            none.count = 0;
            parts.of[rank] = none;
        } else if (rank && parts.same) {
            parts.of[rank] = parts.of[0];
        } else {
            parts.of[rank] = make_piece(dataset, low, high, types);
        }
        struct piece *piece = &parts.of[rank];
        if (!rank || !parts.same) {
            piece->values = make_elements(piece->type, dataset->content, piece->memory, piece->elements);
        }
    }
    return parts;
}

static void free_parts(struct parts *parts)
{
    for (int rank = 0; rank < (parts->same ? 1 : run.ranks); rank++) {
        free_piece(&parts->of[rank], parts->object->dataset.content);
    }
}

static bool parts_clash(const struct parts *parts)
{
    for (int rank = 0; rank < run.ranks; rank++) {
        if (clashes(&parts->object->dataset, &parts->of[rank], parts->same ? -1 : rank)) {
            return true;
        }
    }
    return false;
}

static void model_parts(struct parts *parts)
{
    for (int rank = 0; rank < (parts->same ? 1 : run.ranks); rank++) {
        model_write(&parts->object->dataset, &parts->of[rank], parts->same ? -1 : rank);
    }
}

static bool must_be_collective(const struct dataset *dataset)
{
    return dataset->filters || dataset->compact;
}

/* Whether HDF5 can write to a dataset. */
static bool is_writable(const struct dataset *dataset)
{
    if (!run.mpio) {
        return true;
    }
    /* HDF5 1.14.6 fails in MPI programs if a filtered chunk is larger than the dataset. */
    for (int i = 0; dataset->filters && i < dataset->rank; i++) {
        if (dataset->chunk[i] > dataset->dims[i]) {
            return false;
        }
    }
    /* The connector keeps n-bit data, and compact data of one rank, with the metadata, which are the same on
     * all ranks. */
    const bool kept = dataset->packed || (dataset->compact && !dataset->made_by_several);
    return dataset->content == PLAIN && !kept;
}

void write_dataset(void)
{
    struct object *object = pick(DATASET);
    if (!object || !is_writable(&object->dataset)) {
        return;
    }
    struct dataset *dataset = &object->dataset;
    const bool collective = one_in(3) || must_be_collective(dataset);
    struct parts parts = make_parts(object);
    if (parts_clash(&parts)) {
        flush_all();
    }
    const hid_t id = open_object(object);
    const struct piece *own = &parts.of[run.rank];
    for (int rank = 0; rank < run.ranks; rank++) {
        TELL("write %s: rank %d %zu elements%s", name_of(object), rank, parts.of[rank].count,
             collective ? ", collectively" : "");
    }
    if (run.live && (own->count || collective || !run.mpio)) {
        const hid_t plist = transfer(collective);
        H5(H5Dwrite(id, own->type, memory_space(own), file_space(own, dataset), plist, own->memory));
        H5(H5Pclose(plist));
    }
    model_parts(&parts);
    free_parts(&parts);
}

void write_several(void)
{
    struct parts parts[MOST_DATASETS];
    size_t count = 0;
    const bool collective = one_in(3);
    const uint64_t tries = within(2, MOST_DATASETS);
    for (uint64_t i = 0; i < tries; i++) {
        struct object *object = pick(DATASET);
        bool use = object && is_writable(&object->dataset) &&
                   !(run.mpio && must_be_collective(&object->dataset));
        for (size_t j = 0; j < count && use; j++) {
            use = parts[j].object != object;
        }
        if (use) {
            parts[count++] = make_parts(object);
        }
    }
    bool clash = false;
    hid_t ids[MOST_DATASETS], types[MOST_DATASETS], memory[MOST_DATASETS], file[MOST_DATASETS];
    const void *buffers[MOST_DATASETS];
    for (size_t i = 0; i < count; i++) {
        const struct piece *own = &parts[i].of[run.rank];
        TELL("write %s with others: the first rank %zu elements%s", name_of(parts[i].object), own->count,
             collective ? ", collectively" : "");
        clash = clash || parts_clash(&parts[i]);
        ids[i] = open_object(parts[i].object);
        types[i] = own->type;
        memory[i] = memory_space(own);
        file[i] = file_space(own, &parts[i].object->dataset);
        buffers[i] = own->memory;
    }
    if (clash) {
        flush_all();
    }
    if (run.live && count) {
        const hid_t plist = transfer(collective);
        H5(H5Dwrite_multi(count, ids, types, memory, file, plist, buffers));
        H5(H5Pclose(plist));
    }
    for (size_t i = 0; i < count; i++) {
        model_parts(&parts[i]);
        free_parts(&parts[i]);
    }
}

/* The elements of a chunk, as a piece of the dataset whose memory is the chunk. */
static struct piece chunk_piece(const struct dataset *dataset, const hsize_t *offset)
{
    hsize_t high[MOST_RANK], zero[MOST_RANK] = {0}, count[MOST_RANK];
    for (int i = 0; i < dataset->rank; i++) {
        high[i] = offset[i] + dataset->chunk[i] < dataset->dims[i] ? offset[i] + dataset->chunk[i] : dataset->dims[i];
        count[i] = high[i] - offset[i];
    }
    struct piece piece = {.space = H5(H5Screate_simple(dataset->rank, dataset->dims, NULL))};
    H5(H5Sselect_hyperslab(piece.space, H5S_SELECT_SET, offset, NULL, count, NULL));
    piece.memory_space = H5(H5Screate_simple(dataset->rank, dataset->chunk, NULL));
    H5(H5Sselect_hyperslab(piece.memory_space, H5S_SELECT_SET, zero, NULL, count, NULL));
    piece.count = places(piece.space, &piece.in_file);
    places(piece.memory_space, &piece.in_memory);
    piece.type = H5(H5Tcopy(dataset->type));
    piece.size = dataset->size;
    piece.elements = volume(dataset->rank, dataset->chunk);
    piece.memory = malloc(piece.elements * piece.size + 1);
    REQUIRE(piece.memory);
    /* Elements outside of the extent appear when the dataset grows. */
    for (size_t i = 0; i < piece.elements; i++) {
        memcpy(piece.memory + i * piece.size, dataset->fill, piece.size);
    }
    for (size_t i = 0; i < piece.count; i++) {
        fill_elements(piece.type, piece.memory + piece.in_memory[i] * piece.size, 1);
    }
    return piece;
}

static void write_stored(hid_t id, const struct dataset *dataset, const hsize_t *offset, const struct piece *piece,
                         bool deflate)
{
    const size_t raw = piece->elements * piece->size;
    const hid_t plist = H5(H5Pcreate(H5P_DATASET_XFER));
    if (!deflate) {
        const uint32_t skipped = (UINT32_C(1) << dataset->filters) - 1;
        H5(H5Dwrite_chunk(id, plist, skipped, offset, raw, piece->memory));
    } else {
        uLongf size = compressBound(raw);
        Bytef *stored = malloc(size);
        REQUIRE(stored && compress2(stored, &size, piece->memory, raw, 5) == Z_OK);
        H5(H5Dwrite_chunk(id, plist, 0, offset, size, stored));
        free(stored);
    }
    H5(H5Pclose(plist));
}

void write_chunk(void)
{
    struct object *object = pick(DATASET);
    if (!object) {
        return;
    }
    struct dataset *dataset = &object->dataset;
    if (!dataset->chunked || dataset->content != PLAIN || (run.mpio && dataset->filters) || !elements_of(dataset)) {
        return;
    }
    /* HDF5 1.14.6 keeps the mask of skipped filters if the size of a chunk stays. With checksums it never stays. */
    if (dataset->filters && !dataset->summed && !dataset->deflated) {
        return;
    }
    hsize_t offset[MOST_RANK];
    for (int i = 0; i < dataset->rank; i++) {
        const hsize_t chunks = (dataset->dims[i] + dataset->chunk[i] - 1) / dataset->chunk[i];
        offset[i] = below(chunks) * dataset->chunk[i];
    }
    const int rank = (int)below((uint64_t)run.ranks);
    const bool deflate = dataset->deflated;
    struct piece piece = chunk_piece(dataset, offset);
    if (clashes(dataset, &piece, rank)) {
        flush_all();
    }
    const hid_t id = open_object(object);
    TELL("write a chunk of %s: rank %d, at %llu..., %s", name_of(object), rank, (unsigned long long)offset[0],
         deflate ? "deflated" : "raw");
    if (run.live && rank == run.rank) {
        write_stored(id, dataset, offset, &piece, deflate);
    }
    /* HDF5 1.14.6 remembers the last chunk without its skipped filters, and would apply them. */
    if (dataset->filters) {
        close_handle(object);
    }
    model_write(dataset, &piece, rank);
    free_piece(&piece, PLAIN);
}

void read_dataset(struct object *object)
{
    enum { PATTERN = 0x5a };
    if (!object) {
        return;
    }
    struct dataset *dataset = &object->dataset;
    const bool collective = one_in(3), whole = one_in(3);
    TELL("read %s", name_of(object));
    const hid_t id = open_object(object);
    /* Writes of others come before it. */
    barrier();
    for (int rank = 0; rank < run.ranks; rank++) {
        hsize_t low[MOST_RANK] = {0}, high[MOST_RANK];
        memcpy(high, dataset->dims, sizeof high);
        struct piece piece = make_piece(dataset, low, high, ANY);
        if (run.live && rank == run.rank) {
            const hid_t plist = transfer(collective);
            memset(piece.memory, dataset->content == PLAIN ? PATTERN : 0, piece.elements * piece.size);
            const hid_t file = whole && piece.count == elements_of(dataset) ? file_space(&piece, dataset) : piece.space;
            H5(H5Dread(id, piece.type, memory_space(&piece), file, plist, piece.memory));
            require_read(object, &piece, run.one_node || collective);
            require_rest(&piece, dataset->content == PLAIN ? PATTERN : 0);
            if (is_vlen(dataset)) {
                H5(H5Treclaim(piece.type, piece.memory_space, H5P_DEFAULT, piece.memory));
            }
            H5(H5Pclose(plist));
        }
        free_piece(&piece, dataset->content);
    }
    /* Others must not yet overwrite what this rank still reads. */
    barrier();
    /* Filtered chunks stay in the ranks' caches, where HDF5 1.14.6 does not see writes of others. */
    if (run.mpio && dataset->filters) {
        close_handle(object);
    }
}

void read_all(void)
{
    for (uint64_t i = 1; i <= last_object; i++) {
        if (objects[i] && objects[i]->kind == DATASET) {
            read_dataset(objects[i]);
        }
    }
}

/* Moves the elements to their places in another extent. */
static void resize(struct dataset *dataset, const hsize_t *dims)
{
    struct dataset old = *dataset;
    memcpy(dataset->dims, dims, sizeof dataset->dims);
    allocate(dataset);
    const size_t elements = elements_of(&old);
    for (size_t i = 0; i < elements; i++) {
        size_t rest = i, place = 0, stride = 1;
        bool inside = true;
        for (int axis = old.rank - 1; axis >= 0; axis--) {
            const hsize_t at = rest % old.dims[axis];
            rest /= old.dims[axis];
            inside = inside && at < dims[axis];
            place += at * stride;
            stride *= dims[axis];
        }
        if (inside) {
            memcpy(dataset->elements + place * old.size, old.elements + i * old.size, old.size);
            dataset->writer[place] = old.writer[i];
        }
    }
    free(old.elements);
    free(old.writer);
}

void set_extent(void)
{
    struct object *object = pick(DATASET);
    if (!object || !object->dataset.chunked) {
        return;
    }
    struct dataset *dataset = &object->dataset;
    hsize_t dims[MOST_RANK] = {0};
    bool shrinks = false;
    for (int i = 0; i < dataset->rank; i++) {
        const hsize_t most = dataset->rank == 1 ? 140 : dataset->rank == 2 ? 20 : 9;
        const hsize_t room = dataset->max[i] < most ? dataset->max[i] : most;
        /* In HDF5 1.14.6 data would return after a dimension was cut to zero. */
        dims[i] = one_in(2) || !room ? dataset->dims[i] : within(1, room);
        shrinks = shrinks || dims[i] < dataset->dims[i];
    }
    /* HDF5 1.14.6 loses track of the chunks that it cuts in MPI programs. */
    if (shrinks && run.mpio) {
        return;
    }
    const hid_t id = open_object(object);
    TELL("set the extent of %s %s", name_of(object), extent_of(dataset));
    LIVE(H5Dset_extent(id, dims));
    resize(dataset, dims);
    TELL("the extent is %s", extent_of(dataset));
}
