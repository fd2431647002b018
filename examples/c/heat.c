/*
 * A heat equation on a square plate. The plate is cut into strips of rows, one strip for each rank.
 * Every few steps, each rank logs its strip of the frame, and then all ranks flush the log together.
 * The same as examples/heat.rs.
 *
 *     mpicc -std=c99 heat.c $(pkg-config --cflags --libs h5logfs_writer) -o heat
 *     mpirun -n 4 ./heat heat.h5
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <h5logfs_writer.h>

#define SIDE 128
#define STEPS_PER_FRAME 20
#define DIFFUSIVITY 0.2

/* Prints the library's description of an error, and stops the program. */
#define CHECK(call)                                                                   \
    do {                                                                              \
        if ((call) != H5LOGFS_OK) {                                                   \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, h5logfs_last_error()); \
            MPI_Abort(MPI_COMM_WORLD, EXIT_FAILURE);                                  \
        }                                                                             \
    } while (0)

static const char usage[] =
    "Usage: heat [--steps NUMBER] FILE\n"
    "\n"
    "Computes a heat equation, and logs a frame every 20 steps to the new log FILE. A file of that name is\n"
    "an error. See resubmit.sh for jobs that are submitted again.\n"
    "\n"
    "Options:\n"
    "  --steps NUMBER   the number of steps (200)\n"
    "  -h, --help       prints this text\n";

struct arguments {
    const char *path;
    long steps;
    int help;
};

/* Returns what is wrong with the arguments, or NULL. */
static const char *parse(int argc, char **argv, struct arguments *given)
{
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "-h") || !strcmp(argv[i], "--help")) {
            given->help = 1;
            return NULL;
        } else if (!strcmp(argv[i], "--steps")) {
            char *end = NULL;
            given->steps = ++i < argc ? strtol(argv[i], &end, 10) : -1;
            if (given->steps < 0 || end == argv[i] || *end) {
                return "--steps needs a number";
            }
        } else if (argv[i][0] == '-') {
            return "unknown option";
        } else if (given->path) {
            return "more than one file";
        } else {
            given->path = argv[i];
        }
    }
    return given->path ? NULL : "the name of the file is missing";
}

/* The rows of one rank, with a row of each neighbour around them. */
struct strip {
    int above, below; /* ranks of the neighbours, or MPI_PROC_NULL */
    int first, rows;
    double *cells, *old;
};

static struct strip new_strip(void)
{
    int rank, ranks;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);

    struct strip strip;
    strip.above = rank > 0 ? rank - 1 : MPI_PROC_NULL;
    strip.below = rank < ranks - 1 ? rank + 1 : MPI_PROC_NULL;
    strip.first = SIDE * rank / ranks;
    strip.rows = SIDE * (rank + 1) / ranks - strip.first;
    size_t size = (size_t)(strip.rows + 2) * SIDE * sizeof(double);
    strip.cells = malloc(size);
    strip.old = malloc(size);
    if (!strip.cells || !strip.old) {
        fprintf(stderr, "no memory for %d rows\n", strip.rows);
        MPI_Abort(MPI_COMM_WORLD, EXIT_FAILURE);
    }
    for (int row = 0; row < strip.rows + 2; row++) {
        for (int x = 0; x < SIDE; x++) {
            int y = strip.first + row - 1, own = row > 0 && row <= strip.rows;
            int hot = own && y >= 48 && y < 80 && x >= 48 && x < 80;
            strip.cells[row * SIDE + x] = hot ? 373.0 : 273.0;
        }
    }
    return strip;
}

/* Receives the neighbours' rows next to this strip. A strip at the edge has one neighbour only. */
static void exchange(struct strip *strip)
{
    double *top = strip->cells + SIDE, *bottom = strip->cells + strip->rows * SIDE;
    MPI_Sendrecv(top, SIDE, MPI_DOUBLE, strip->above, 0, bottom + SIDE, SIDE, MPI_DOUBLE,
                 strip->below, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Sendrecv(bottom, SIDE, MPI_DOUBLE, strip->below, 0, top - SIDE, SIDE, MPI_DOUBLE,
                 strip->above, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static void step(struct strip *strip)
{
    memcpy(strip->old, strip->cells, (size_t)(strip->rows + 2) * SIDE * sizeof(double));
    for (int y = 1; y <= strip->rows; y++) {
        int row = strip->first + y - 1;
        if (row == 0 || row == SIDE - 1) {
            continue;
        }
        for (int x = 1; x < SIDE - 1; x++) {
            const double *here = strip->old + y * SIDE + x;
            double around = here[-SIDE] + here[SIDE] + here[-1] + here[1];
            strip->cells[y * SIDE + x] = *here + DIFFUSIVITY * (around - 4.0 * *here);
        }
    }
}

int main(int argc, char **argv)
{
    int rank;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);

    /* All ranks have the same arguments, so one of them speaks for all. */
    struct arguments given = {NULL, 200, 0};
    const char *wrong = parse(argc, argv, &given);
    if (wrong || given.help) {
        if (rank == 0 && wrong) {
            fprintf(stderr, "heat: %s\n\n%s", wrong, usage);
        } else if (rank == 0) {
            fputs(usage, stdout);
        }
        MPI_Finalize();
        return wrong ? 2 : 0;
    }

    h5logfs_id file;
    if (h5logfs_create(MPI_COMM_WORLD, given.path, NULL, &file) != H5LOGFS_OK) {
        /* All ranks have the same error: the file is there already, for example. */
        if (rank == 0) {
            fprintf(stderr, "heat: %s\n", h5logfs_last_error());
        }
        MPI_Finalize();
        return 1;
    }
    CHECK(h5logfs_attribute_text(file, "/", "title", "heat on a plate"));

    h5logfs_dataset_spec spec;
    CHECK(h5logfs_dataset_spec_init(&spec, sizeof spec));
    uint64_t dims[3] = {0, SIDE, SIDE};
    const uint64_t max_dims[3] = {H5LOGFS_UNLIMITED, SIDE, SIDE}, chunk[3] = {1, SIDE, SIDE};
    spec.datatype = H5LOGFS_DOUBLE;
    spec.rank = 3;
    spec.dims = dims;
    spec.max_dims = max_dims;
    spec.chunk = chunk;
    h5logfs_id temperature;
    CHECK(h5logfs_dataset(file, "/temperature", &spec, &temperature));
    const double diffusivity = DIFFUSIVITY;
    CHECK(h5logfs_attribute_text(file, "/temperature", "units", "K"));
    CHECK(h5logfs_attribute(file, "/temperature", "diffusivity", H5LOGFS_DOUBLE, 0, NULL,
                            &diffusivity, sizeof diffusivity));
    spec.rank = 1;
    spec.chunk = NULL;
    h5logfs_id time;
    CHECK(h5logfs_dataset(file, "/time", &spec, &time));

    struct strip strip = new_strip();
    for (long n = 1; n <= given.steps; n++) {
        exchange(&strip);
        step(&strip);
        if (n % STEPS_PER_FRAME == 0) {
            const uint64_t frame = n / STEPS_PER_FRAME - 1;
            dims[0] = frame + 1;
            CHECK(h5logfs_set_extent(temperature, dims));
            CHECK(h5logfs_set_extent(time, dims));
            const uint64_t start[3] = {frame, strip.first, 0}, count[3] = {1, strip.rows, SIDE};
            /* The strip does not change before the flush, so the library needs no copy of it. */
            CHECK(h5logfs_lend_block(temperature, start, count, strip.cells + SIDE,
                                     (size_t)strip.rows * SIDE * sizeof(double)));
            if (rank == 0) {
                const double now = (double)n;
                CHECK(h5logfs_write_block(time, start, count, &now, sizeof now));
            }
            /* Once this returns, the frame stays in the log, even if the job is killed. */
            CHECK(h5logfs_flush(file));
        }
    }
    CHECK(h5logfs_close(file));
    free(strip.cells);
    free(strip.old);
    MPI_Finalize();
    return 0;
}
