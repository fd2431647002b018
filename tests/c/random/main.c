/*
 * random_hdf5 DIRECTORY FIRST COUNT NUMBER RANKS...: runs session NUMBER of the programs of COUNT seeds. Sessions
 * create DIRECTORY/SEED.h5 and append to it. RANKS has the number of ranks of each session; 0 is a program without MPI.
 * Earlier sessions must have been run. The session after the last reads everything, with as many ranks as the last.
 */
#include "random.h"

#ifdef H5_HAVE_PARALLEL
#include <mpi.h>
#endif

struct run run;

static hid_t access_list(void)
{
    const hid_t plist = H5(H5Pcreate(H5P_FILE_ACCESS));
    const H5F_libver_t least[] = {H5F_LIBVER_EARLIEST, H5F_LIBVER_V18, H5F_LIBVER_V110, H5F_LIBVER_LATEST};
    H5(H5Pset_libver_bounds(plist, least[below(4)], H5F_LIBVER_LATEST));
#ifdef H5_HAVE_PARALLEL
    if (run.live && run.mpio) {
        H5(H5Pset_fapl_mpio(plist, MPI_COMM_WORLD, MPI_INFO_NULL));
        H5(H5Pset_coll_metadata_write(plist, one_in(2)));
    } else if (run.mpio) {
        one_in(2);
    }
#endif
    return plist;
}

static void create_file(void)
{
    TELL("create %s, %d ranks%s", run.path, run.ranks, run.mpio ? "" : " without MPI");
    const hid_t access = access_list();
    const hid_t creation = H5(H5Pcreate(H5P_FILE_CREATE));
    if (one_in(3)) {
        H5(H5Pset_link_creation_order(creation, H5P_CRT_ORDER_TRACKED | H5P_CRT_ORDER_INDEXED));
    }
    if (run.live) {
        run.file = H5(H5Fcreate(run.path, H5F_ACC_TRUNC, creation, access));
    }
    H5(H5Pclose(creation));
    H5(H5Pclose(access));
}

static void open_file(unsigned flags)
{
    TELL("open %s", flags == H5F_ACC_RDONLY ? "to read" : "to append");
    const hid_t access = access_list();
    if (run.live) {
        run.file = H5(H5Fopen(run.path, flags, access));
    }
    H5(H5Pclose(access));
}

static void close_file(void)
{
    flush_all();
    const bool early = !run.mpio && one_in(3);
    TELL("close%s", early ? " before the objects" : "");
    if (early) {
        /* The file stays open until its objects are closed. */
        LIVE(H5Fclose(run.file));
    }
    close_handles();
    if (!early) {
        LIVE(H5Fclose(run.file));
    }
}

static void reopen_file(void)
{
    close_file();
    if (one_in(2)) {
        open_file(H5F_ACC_RDONLY);
        read_dataset(pick(DATASET));
        read_all();
        close_file();
    }
    open_file(H5F_ACC_RDWR);
}

static void step(void)
{
    switch (below(20)) {
    case 0:
    case 1:
    case 2:
        create_dataset();
        break;
    case 3:
    case 4:
    case 5:
    case 6:
        write_dataset();
        break;
    case 7:
        write_several();
        break;
    case 8:
        write_chunk();
        break;
    case 9:
    case 10:
        set_extent();
        break;
    case 11:
    case 12:
        read_dataset(pick(DATASET));
        break;
    case 13:
    case 14:
        change_attributes();
        break;
    case 15:
    case 16:
    case 17:
        change_tree();
        break;
    case 18:
        flush_all();
        break;
    default:
        if (one_in(3)) {
            reopen_file();
        } else {
            flush_all();
            read_all();
        }
    }
}

/* With RANDOM_READS=1 in the environment everything is read after each step, which reveals the faulty step. */
static void read_between(void)
{
    if (run.live && getenv("RANDOM_READS")) {
        const uint64_t state = number();
        flush_all();
        read_all();
        seed(state);
    } else if (getenv("RANDOM_READS")) {
        seed(number());
    }
}

/* Some datasets first, so that there is something to work on. */
static void steps(bool first)
{
    const uint64_t number = within(20, 80);
    for (uint64_t i = 0; first && i < 4; i++) {
        create_dataset();
    }
    for (uint64_t i = 0; i < number; i++) {
        step();
        read_between();
    }
}

static void session(uint64_t of, int number, int ranks)
{
    seed(of * 1000 + (uint64_t)number);
    run.mpio = ranks > 0;
    run.ranks = ranks > 0 ? ranks : 1;
    if (number) {
        open_file(H5F_ACC_RDWR);
    } else {
        create_file();
    }
    steps(!number);
    close_file();
}

static void check_session(int ranks)
{
    seed(0);
    run.mpio = ranks > 0;
    run.ranks = ranks > 0 ? ranks : 1;
    open_file(H5F_ACC_RDONLY);
    read_all();
    close_file();
}

static void begin(int *argc, char ***argv, int ranks)
{
#ifdef H5_HAVE_PARALLEL
    if (ranks) {
        int size;
        MPI_Init(argc, argv);
        MPI_Comm_rank(MPI_COMM_WORLD, &run.rank);
        MPI_Comm_size(MPI_COMM_WORLD, &size);
        REQUIRE(size == ranks);
        MPI_Comm node;
        MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
        MPI_Comm_size(node, &size);
        MPI_Comm_free(&node);
        int least;
        MPI_Allreduce(&size, &least, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
        run.one_node = least == ranks;
    }
#else
    (void)argc;
    (void)argv;
    REQUIRE(!ranks);
#endif
}

static void end(int ranks)
{
#ifdef H5_HAVE_PARALLEL
    if (ranks) {
        MPI_Finalize();
    }
#else
    (void)ranks;
#endif
}

/* The sessions of one seed up to that one; only the last is real. */
static void run_seed(uint64_t of, int number, int sessions, char **ranks)
{
    make_root();
    run.live = false;
    for (int i = 0; i <= number && i < sessions; i++) {
        run.live = i == number;
        session(of, i, atoi(ranks[i]));
    }
    if (number == sessions) {
        run.live = true;
        check_session(atoi(ranks[sessions - 1]));
    }
}

int main(int argc, char **argv)
{
    REQUIRE(argc > 5);
    const uint64_t first = strtoull(argv[2], NULL, 10), count = strtoull(argv[3], NULL, 10);
    const int number = atoi(argv[4]), sessions = argc - 5;
    char **all = argv + 5;
    run.told = getenv("RANDOM_TOLD");
    for (int i = 0; i < sessions; i++) {
        run.ever_mpio = run.ever_mpio || atoi(all[i]) > 0;
    }
    const int ranks = atoi(all[number < sessions ? number : sessions - 1]);
    begin(&argc, &argv, ranks);
    for (uint64_t of = first; of < first + count; of++) {
        snprintf(run.path, sizeof run.path, "%s/%llu.h5", argv[1], (unsigned long long)of);
        run_seed(of, number, sessions, all);
    }
    H5(H5close());
    end(ranks);
    return 0;
}
