/*
 * rounds COUNT EXPECTED LOG PLAIN REFUSED: opens and closes COUNT files, of all kinds in turn. Memory, descriptors,
 * threads and children must not grow after the first tenth. REFUSED is a broken log.
 */
#include "host.h"

/* Growth allowed to HDF5 and malloc for things that first happen after the first tenth. */
#define ALLOWANCE (1024 * 1024)

struct usage {
    size_t memory;
    unsigned descriptors, threads;
};

static size_t resident(void)
{
    unsigned long total, pages;
    FILE *file = fopen("/proc/self/statm", "r");
    REQUIRE(file && fscanf(file, "%lu %lu", &total, &pages) == 2);
    fclose(file);
    return pages * (size_t)sysconf(_SC_PAGESIZE);
}

static struct usage usage(void)
{
    return (struct usage){resident(), descriptors(), threads()};
}

static void require_refused(const char *path)
{
    REQUIRE(H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT) < 0);
}

static void open_one(unsigned long number, char **paths, const struct contents *expected)
{
    /* Rarely: a refused log is scanned again. */
    if (number % 50 == 0) {
        require_refused(paths[3]);
        return;
    }
    switch (number % 4) {
    case 0:
        require_same(paths[1], expected);
        break;
    case 1:
        REQUIRE(H5Fclose(opened(paths[1])) >= 0);
        break;
    case 2:
        REQUIRE(H5Fclose(opened(paths[2])) >= 0);
        break;
    case 3:
        require_refused("/nowhere/at-all.h5");
        break;
    }
}

int main(int argc, char **argv)
{
    REQUIRE(argc == 6);
    const unsigned long count = strtoul(argv[1], NULL, 10);
    const struct contents expected = contents_of(argv[2]);
    keep_quiet();
    struct usage early = {0};
    for (unsigned long i = 0; i < count; i++) {
        open_one(i, argv + 2, &expected);
        if (i == count / 10) {
            early = usage();
        }
    }
    const struct usage late = usage();
    if (late.memory > early.memory + ALLOWANCE) {
        FAIL("%zu bytes of memory, then %zu", early.memory, late.memory);
    }
    REQUIRE(late.descriptors == early.descriptors);
    REQUIRE(late.threads == early.threads);
    REQUIRE(waitpid(-1, NULL, WNOHANG) == -1 && errno == ECHILD);
    return 0;
}
