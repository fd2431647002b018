/*
 * hdf5 PATH WORK NUMBER [lists]: an ordinary program of parallel HDF5, for the benchmark. Prints the seconds of its steps and the
 * largest resident set of a rank in KiB: create, define, write, flush, close, memory.
 *
 * WORK small: NUMBER writes of ten floats by all ranks together, one after the other in a dataset.
 * WORK large: NUMBER writes of 1 MiB by all ranks together.
 * WORK datasets: NUMBER datasets in 16 groups, of which none is written.
 * WORK F, G or I: NUMBER records of that case of E3SM (e3sm.txt, whose path is PATTERNS): variables of columns, of which each rank
 * owns scattered ones. It makes the union of their hyperslabs for each variable and record, as PIO does.
 * With "lists" after NUMBER it gives the blocks to H5Dwrite_n.
 * WORK reopen: NUMBER steps, for each of which the file is opened, gets a row of 1000 doubles a rank, and is closed.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include <h5logfs_vol_api.h>
#include <mpi.h>

static int rank, ranks;

static hid_t checked(hid_t id, const char *what)
{
    if (id < 0) {
        fprintf(stderr, "rank %d: %s fails\n", rank, what);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    return id;
}

#define H5(call) checked((call), #call)

/* The time since the last call, from the first rank that began to the last one that was done. */
static double step(void)
{
    static double begun;
    const double now = MPI_Wtime();
    double bounds[2] = {-begun, now};
    MPI_Allreduce(MPI_IN_PLACE, bounds, 2, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD);
    begun = MPI_Wtime();
    return bounds[1] + bounds[0];
}

/* A process alone opens files as programs without MPI do. */
static hid_t file_access(void)
{
    const hid_t access = H5(H5Pcreate(H5P_FILE_ACCESS));
    if (ranks > 1) {
        H5(H5Pset_fapl_mpio(access, MPI_COMM_WORLD, MPI_INFO_NULL));
    }
    return access;
}

static hid_t create(const char *path)
{
    const hid_t access = file_access();
    const hid_t file = H5(H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, access));
    H5(H5Pclose(access));
    return file;
}

/* Each rank writes its own range of a dataset of floats, in pieces. */
static void write_pieces(hid_t dataset, hsize_t pieces, hsize_t elements)
{
    const hsize_t own = pieces / (hsize_t)ranks;
    float *values = malloc(elements * sizeof *values);
    for (hsize_t i = 0; i < elements; i++) {
        values[i] = (float)i;
    }
    const hid_t memory = H5(H5Screate_simple(1, &elements, NULL));
    const hid_t space = H5(H5Dget_space(dataset));
    for (hsize_t i = 0; i < own; i++) {
        const hsize_t start = ((hsize_t)rank * own + i) * elements;
        H5(H5Sselect_hyperslab(space, H5S_SELECT_SET, &start, NULL, &elements, NULL));
        H5(H5Dwrite(dataset, H5T_NATIVE_FLOAT, memory, space, H5P_DEFAULT, values));
    }
    H5(H5Sclose(space));
    H5(H5Sclose(memory));
    free(values);
}

static void create_datasets(hid_t file, int number)
{
    enum { GROUPS = 16 };
    const hsize_t dims[] = {1024, 1024};
    const hid_t space = H5(H5Screate_simple(2, dims, NULL));
    /* A chunk that is not there takes no room. */
    const hid_t plist = H5(H5Pcreate(H5P_DATASET_CREATE));
    H5(H5Pset_fill_time(plist, H5D_FILL_TIME_NEVER));
    hid_t groups[GROUPS];
    char name[64];
    for (int i = 0; i < GROUPS; i++) {
        snprintf(name, sizeof name, "/group_%02d", i);
        groups[i] = H5(H5Gcreate2(file, name, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
    }
    for (int i = 0; i < number; i++) {
        snprintf(name, sizeof name, "variable_%05d", i);
        const hid_t dataset =
            H5(H5Dcreate2(groups[i % GROUPS], name, H5T_IEEE_F64LE, space, H5P_DEFAULT, plist, H5P_DEFAULT));
        H5(H5Dclose(dataset));
    }
    for (int i = 0; i < GROUPS; i++) {
        H5(H5Gclose(groups[i]));
    }
    H5(H5Pclose(plist));
    H5(H5Sclose(space));
}

/* Variables that are alike: a record is LAYERS by COLUMNS by WIDTH, without those that are 1. */
struct kind {
    int number, dims;
    hsize_t layers, columns, width;
    /* The rank that owns each column; -1: none. */
    int *owners;
};

enum { MOST_KINDS = 8 };

static struct kind kinds[MOST_KINDS];
static int number_of_kinds, number_of_variables;

static void add_kind(int number, hsize_t layers, hsize_t width, const char *owners, int repeats)
{
    const hsize_t each = strlen(owners);
    struct kind kind = {number, 2 + (layers > 1) + (width > 1), layers, each * (hsize_t)repeats, width, NULL};
    kind.owners = malloc(kind.columns * sizeof *kind.owners);
    for (hsize_t i = 0; i < kind.columns; i++) {
        const char owner = owners[i % each];
        kind.owners[i] = owner == '.' ? -1 : ((owner - '0') * ranks / 4 + (int)(i / each)) % ranks;
    }
    kinds[number_of_kinds++] = kind;
    number_of_variables += number;
}

static void read_case(const char *wanted)
{
    FILE *file = fopen(PATTERNS, "r");
    char line[4096], name[8], owners[4096];
    int repeats = 0, number;
    unsigned long long layers, width;
    while (file && number_of_kinds < MOST_KINDS && fgets(line, sizeof line, file)) {
        if (sscanf(line, "case %7s %d", name, &number) == 2) {
            repeats = strcmp(name, wanted) ? 0 : number;
        } else if (repeats && sscanf(line, "%d %llu %llu %4095s", &number, &layers, &width, owners) == 4) {
            add_kind(number, layers, width, owners, repeats);
        }
    }
    if (!number_of_kinds) {
        fprintf(stderr, "%s has no case %s\n", PATTERNS, wanted);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    fclose(file);
}

/* The extent of a variable with so many records, or a block of it. Returns its number of dimensions. */
static int extent(const struct kind *kind, hsize_t record, hsize_t layer, hsize_t column, hsize_t within, hsize_t *sides)
{
    int dims = 0;
    sides[dims++] = record;
    if (kind->layers > 1) {
        sides[dims++] = layer;
    }
    sides[dims++] = column;
    if (kind->width > 1) {
        sides[dims++] = within;
    }
    return dims;
}

/* Selects what this rank owns of a record. Returns the number of elements. */
static hsize_t select_own(hid_t space, hsize_t record, const struct kind *kind)
{
    H5S_seloper_t how = H5S_SELECT_SET;
    hsize_t selected = 0, start[4], count[4];
    for (hsize_t layer = 0; layer < kind->layers; layer++) {
        for (hsize_t begin = 0, end; begin < kind->columns; begin = end) {
            for (end = begin + 1; end < kind->columns && kind->owners[end] == kind->owners[begin]; end++) {
            }
            if (kind->owners[begin] != rank) {
                continue;
            }
            extent(kind, record, layer, begin, 0, start);
            extent(kind, 1, 1, end - begin, kind->width, count);
            H5(H5Sselect_hyperslab(space, how, start, NULL, count, NULL));
            how = H5S_SELECT_OR;
            selected += (end - begin) * kind->width;
        }
    }
    if (!selected) {
        H5(H5Sselect_none(space));
    }
    return selected;
}

/* The blocks that this rank owns of a record of a kind of variables, as H5Dwrite_n takes them. */
struct blocks {
    int number;
    hsize_t *coordinates, **starts, **counts;
};

static struct blocks own_blocks(const struct kind *kind)
{
    const size_t most = (size_t)(kind->layers * kind->columns);
    struct blocks own = {0, malloc(most * 8 * sizeof *own.coordinates), malloc(most * sizeof *own.starts),
                         malloc(most * sizeof *own.counts)};
    for (hsize_t layer = 0; layer < kind->layers; layer++) {
        for (hsize_t begin = 0, end; begin < kind->columns; begin = end) {
            for (end = begin + 1; end < kind->columns && kind->owners[end] == kind->owners[begin]; end++) {
            }
            if (kind->owners[begin] != rank) {
                continue;
            }
            hsize_t *start = own.coordinates + 8 * own.number, *count = start + 4;
            extent(kind, 0, layer, begin, 0, start);
            extent(kind, 1, 1, end - begin, kind->width, count);
            own.starts[own.number] = start;
            own.counts[own.number++] = count;
        }
    }
    return own;
}

static void free_blocks(struct blocks *own)
{
    free(own->coordinates);
    free(own->starts);
    free(own->counts);
}

static void write_list(hid_t variable, const struct kind *kind, hsize_t record, struct blocks *own, const double *values)
{
    hsize_t dims[4];
    extent(kind, record + 1, kind->layers, kind->columns, kind->width, dims);
    H5(H5Dset_extent(variable, dims));
    for (int block = 0; block < own->number; block++) {
        own->starts[block][0] = record;
    }
    H5(H5Dwrite_n(variable, H5T_NATIVE_DOUBLE, own->number, own->starts, own->counts, H5P_DEFAULT, values));
}

static hid_t create_variable(hid_t file, const struct kind *kind, int number)
{
    hsize_t dims[4], most[4], chunk[4];
    extent(kind, 0, kind->layers, kind->columns, kind->width, dims);
    extent(kind, H5S_UNLIMITED, kind->layers, kind->columns, kind->width, most);
    extent(kind, 1, kind->layers, kind->columns, kind->width, chunk);
    const hid_t space = H5(H5Screate_simple(kind->dims, dims, most));
    const hid_t plist = H5(H5Pcreate(H5P_DATASET_CREATE));
    H5(H5Pset_chunk(plist, kind->dims, chunk));
    H5(H5Pset_fill_time(plist, H5D_FILL_TIME_NEVER));
    char name[32];
    snprintf(name, sizeof name, "variable_%03d", number);
    const hid_t dataset =
        H5(H5Dcreate2(file, name, H5T_NATIVE_DOUBLE, space, H5P_DEFAULT, plist, H5P_DEFAULT));
    H5(H5Pclose(plist));
    H5(H5Sclose(space));
    return dataset;
}

static hid_t *create_variables(hid_t file)
{
    hid_t *variables = malloc((size_t)number_of_variables * sizeof *variables);
    int number = 0;
    for (int k = 0; k < number_of_kinds; k++) {
        for (int i = 0; i < kinds[k].number; i++, number++) {
            variables[number] = create_variable(file, &kinds[k], number);
        }
    }
    return variables;
}

static double *some_values(void)
{
    hsize_t most = 0;
    for (int k = 0; k < number_of_kinds; k++) {
        const hsize_t elements = kinds[k].layers * kinds[k].columns * kinds[k].width;
        most = elements > most ? elements : most;
    }
    double *values = malloc(most * sizeof *values);
    for (hsize_t i = 0; i < most; i++) {
        values[i] = (double)i;
    }
    return values;
}

static void write_record(hid_t variable, const struct kind *kind, hsize_t record, const double *values)
{
    hsize_t dims[4];
    extent(kind, record + 1, kind->layers, kind->columns, kind->width, dims);
    H5(H5Dset_extent(variable, dims));
    const hid_t space = H5(H5Dget_space(variable));
    const hsize_t own = select_own(space, record, kind);
    const hid_t memory = H5(H5Screate_simple(1, &own, NULL));
    H5(H5Dwrite(variable, H5T_NATIVE_DOUBLE, memory, space, H5P_DEFAULT, values));
    H5(H5Sclose(memory));
    H5(H5Sclose(space));
}

static void write_records(const hid_t *variables, hsize_t records, int by_lists)
{
    double *values = some_values();
    struct blocks own[MOST_KINDS];
    for (int k = 0; k < number_of_kinds; k++) {
        own[k] = own_blocks(&kinds[k]);
    }
    for (hsize_t record = 0; record < records; record++) {
        const hid_t *variable = variables;
        for (int k = 0; k < number_of_kinds; k++) {
            for (int i = 0; i < kinds[k].number; i++, variable++) {
                if (by_lists) {
                    write_list(*variable, &kinds[k], record, &own[k], values);
                } else {
                    write_record(*variable, &kinds[k], record, values);
                }
            }
        }
    }
    for (int k = 0; k < number_of_kinds; k++) {
        free_blocks(&own[k]);
    }
    free(values);
}

enum { ROW = 1000 };

static void create_rows(hid_t file)
{
    const hsize_t dims[] = {0, (hsize_t)ranks * ROW}, most[] = {H5S_UNLIMITED, dims[1]}, chunk[] = {1, dims[1]};
    const hid_t space = H5(H5Screate_simple(2, dims, most));
    const hid_t plist = H5(H5Pcreate(H5P_DATASET_CREATE));
    H5(H5Pset_chunk(plist, 2, chunk));
    H5(H5Dclose(H5(H5Dcreate2(file, "rows", H5T_NATIVE_DOUBLE, space, H5P_DEFAULT, plist, H5P_DEFAULT))));
    H5(H5Pclose(plist));
    H5(H5Sclose(space));
}

/* As a program that keeps its file closed between its steps. Returns the file of the last one. */
static hid_t add_rows(const char *path, hsize_t steps)
{
    const hid_t access = file_access(), transfer = H5(H5Pcreate(H5P_DATASET_XFER));
    if (ranks > 1) {
        H5(H5Pset_dxpl_mpio(transfer, H5FD_MPIO_COLLECTIVE));
    }
    const hsize_t own = ROW, count[] = {1, ROW};
    const hid_t memory = H5(H5Screate_simple(1, &own, NULL));
    double values[ROW];
    for (int i = 0; i < ROW; i++) {
        values[i] = i;
    }
    hid_t file = H5I_INVALID_HID;
    for (hsize_t row = 0; row < steps; row++) {
        if (row) {
            H5(H5Fclose(file));
        }
        file = H5(H5Fopen(path, H5F_ACC_RDWR, access));
        const hid_t dataset = H5(H5Dopen2(file, "rows", H5P_DEFAULT));
        const hsize_t dims[] = {row + 1, (hsize_t)ranks * ROW}, start[] = {row, (hsize_t)rank * ROW};
        H5(H5Dset_extent(dataset, dims));
        const hid_t space = H5(H5Dget_space(dataset));
        H5(H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, count, NULL));
        H5(H5Dwrite(dataset, H5T_NATIVE_DOUBLE, memory, space, transfer, values));
        H5(H5Sclose(space));
        H5(H5Dclose(dataset));
    }
    H5(H5Sclose(memory));
    H5(H5Pclose(transfer));
    H5(H5Pclose(access));
    return file;
}

static hid_t create_values(hid_t file, hsize_t elements)
{
    const hid_t space = H5(H5Screate_simple(1, &elements, NULL));
    const hid_t dataset =
        H5(H5Dcreate2(file, "values", H5T_NATIVE_FLOAT, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
    H5(H5Sclose(space));
    return dataset;
}

static long largest_memory(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    long memory = usage.ru_maxrss;
    MPI_Allreduce(MPI_IN_PLACE, &memory, 1, MPI_LONG, MPI_MAX, MPI_COMM_WORLD);
    return memory;
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (argc != 4 && (argc != 5 || strcmp(argv[4], "lists"))) {
        return 2;
    }
    const int is_climate = strlen(argv[2]) == 1, reopens = !strcmp(argv[2], "reopen");
    const long long number = atoll(argv[3]);
    const hsize_t elements = strcmp(argv[2], "large") ? 10 : 1 << 18;
    if (is_climate) {
        read_case(argv[2]);
    }
    step();
    hid_t file = create(argv[1]);
    const double created = step();
    hid_t dataset = H5I_INVALID_HID, *variables = NULL;
    if (reopens) {
        create_rows(file);
        H5(H5Fclose(file));
    } else if (is_climate) {
        variables = create_variables(file);
    } else if (!strcmp(argv[2], "datasets")) {
        create_datasets(file, (int)number);
    } else {
        dataset = create_values(file, (hsize_t)number * elements);
    }
    const double defined = step();
    if (reopens) {
        file = add_rows(argv[1], (hsize_t)number);
    } else if (dataset >= 0) {
        write_pieces(dataset, (hsize_t)number, elements);
    } else if (is_climate) {
        write_records(variables, (hsize_t)number, argc == 5);
    }
    const double written = step();
    H5(H5Fflush(file, H5F_SCOPE_GLOBAL));
    const double flushed = step();
    if (dataset >= 0) {
        H5(H5Dclose(dataset));
    }
    for (int i = 0; i < number_of_variables; i++) {
        H5(H5Dclose(variables[i]));
    }
    H5(H5Fclose(file));
    const double closed = step();
    const long memory = largest_memory();
    if (!rank) {
        printf("%.6f %.6f %.6f %.6f %.6f %ld\n", created, defined, written, flushed, closed, memory);
    }
    MPI_Finalize();
    return 0;
}
