/*
 * A table of events. The number of rows differs from rank to rank and from round to round; all rows
 * go to one dataset that grows. The same as examples/events.rs.
 *
 *     mpicc -std=c99 events.c $(pkg-config --cflags --libs h5logfs_writer) -o events
 *     mpirun -n 4 ./events events.h5
 *     mpirun -n 3 ./events --continue events.h5
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <h5logfs_writer.h>

#define ROUNDS 8
#define MOST_EVENTS 1000

/* Prints the library's description of an error, and stops the program. */
#define CHECK(call)                                                                   \
    do {                                                                              \
        if ((call) != H5LOGFS_OK) {                                                   \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, h5logfs_last_error()); \
            MPI_Abort(MPI_COMM_WORLD, EXIT_FAILURE);                                  \
        }                                                                             \
    } while (0)

static const char usage[] =
    "Usage: events [--continue] FILE\n"
    "\n"
    "Logs a table of events to the new log FILE. A file of that name is an error. See resubmit.sh for jobs\n"
    "that are submitted again.\n"
    "\n"
    "Options:\n"
    "  --continue   adds to the log FILE of an earlier job, whether it has closed it or not\n"
    "  -h, --help   prints this text\n";

enum kind { HIT = 1, MISS = 2 };

struct event {
    uint32_t rank, round;
    double energy;
    uint8_t kind;
};

/* The library does not write the padding that C adds behind `kind`. */
static h5logfs_id event_type(void)
{
    h5logfs_id kind, event;
    CHECK(h5logfs_type_enum(H5LOGFS_UINT8, &kind));
    CHECK(h5logfs_type_enum_insert(kind, "Hit", HIT));
    CHECK(h5logfs_type_enum_insert(kind, "Miss", MISS));
    CHECK(h5logfs_type_compound(sizeof(struct event), &event));
    CHECK(h5logfs_type_insert(event, "rank", offsetof(struct event, rank), H5LOGFS_UINT32));
    CHECK(h5logfs_type_insert(event, "round", offsetof(struct event, round), H5LOGFS_UINT32));
    CHECK(h5logfs_type_insert(event, "energy", offsetof(struct event, energy), H5LOGFS_DOUBLE));
    CHECK(h5logfs_type_insert(event, "kind", offsetof(struct event, kind), kind));
    CHECK(h5logfs_type_close(kind));
    return event;
}

/* The number of events varies; in some rounds there are none. */
static uint64_t measure(int rank, int round, struct event *found)
{
    int number = (rank * 7 + round * 13) % 50 * 20;
    for (int i = 0; i < number; i++) {
        found[i].rank = (uint32_t)rank;
        found[i].round = (uint32_t)round;
        found[i].energy = i * 0.5 + rank;
        found[i].kind = i % 3 == 0 ? HIT : MISS;
    }
    return (uint64_t)number;
}

/* A new dataset for events. */
static h5logfs_id create(h5logfs_id file, h5logfs_id event)
{
    h5logfs_dataset_spec spec;
    CHECK(h5logfs_dataset_spec_init(&spec, sizeof spec));
    const uint64_t none = 0, unlimited = H5LOGFS_UNLIMITED, chunk = 4096, two = 2;
    spec.datatype = event;
    spec.rank = 1;
    spec.dims = &none;
    spec.max_dims = &unlimited;
    spec.chunk = &chunk;
    spec.shuffle = 1;
    spec.deflate = 4;
    h5logfs_id events;
    CHECK(h5logfs_dataset(file, "/run/events", &spec, &events));
    const double thresholds[2] = {0.5, 2};
    CHECK(h5logfs_attribute(file, "/run/events", "thresholds", H5LOGFS_DOUBLE, 1, &two, thresholds,
                            sizeof thresholds));
    return events;
}

int main(int argc, char **argv)
{
    static struct event found[MOST_EVENTS];
    int rank;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);

    /* All ranks have the same arguments, so one of them speaks for all. */
    const int help = argc == 2 && (!strcmp(argv[1], "-h") || !strcmp(argv[1], "--help"));
    const int is_new = argc != 3 || strcmp(argv[1], "--continue");
    const char *path = argc > 1 ? argv[argc - 1] : "-";
    if (help || argc > 3 || (argc == 3 && is_new) || path[0] == '-') {
        if (rank == 0 && help) {
            fputs(usage, stdout);
        } else if (rank == 0) {
            fprintf(stderr, "events: it takes one file\n\n%s", usage);
        }
        MPI_Finalize();
        return help ? 0 : 2;
    }

    h5logfs_id file;
    const int started = is_new ? h5logfs_create(MPI_COMM_WORLD, path, NULL, &file)
                               : h5logfs_open(MPI_COMM_WORLD, path, NULL, &file);
    if (started != H5LOGFS_OK) {
        /* All ranks have the same error: the file is there already, for example. */
        if (rank == 0) {
            fprintf(stderr, "events: %s\n", h5logfs_last_error());
        }
        MPI_Finalize();
        return 1;
    }

    h5logfs_id event = event_type(), events;
    if (is_new) {
        events = create(file, event);
    } else {
        CHECK(h5logfs_open_dataset(file, "/run/events", event, &events));
    }
    CHECK(h5logfs_type_close(event));

    for (int round = 0; round < ROUNDS; round++) {
        const uint64_t mine = measure(rank, round, found);
        /* The flush counts the rows of all ranks, and extends the dataset. */
        CHECK(h5logfs_append(events, found, mine * sizeof *found));
        CHECK(h5logfs_flush(file));
    }
    CHECK(h5logfs_close(file));
    MPI_Finalize();
    return 0;
}
