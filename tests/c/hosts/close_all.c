/*
 * close_all before EXPECTED FILL LOG…, close_all during EXPECTED FILL DATASET LOG…: a host that closes all descriptors
 * that it does not know, and opens files of its own, which take their numbers. before: while no log is open. during:
 * while a log is open; it cannot be read then, but the bytes of another file are never taken for its own. FILL is such a
 * file, or a directory.
 */
#include "host.h"

#define OWN 64

static void close_unknown(void)
{
    for (int number = 3; number < 1024; number++) {
        close(number);
    }
}

/* Files of the host. */
struct own {
    int numbers[OWN];
    struct stat states[OWN];
};

static void open_own(struct own *own, const char *path)
{
    for (int i = 0; i < OWN; i++) {
        own->numbers[i] = open(path, O_RDONLY);
        REQUIRE(own->numbers[i] >= 0);
        REQUIRE(!fstat(own->numbers[i], &own->states[i]));
    }
}

/* None was closed, and none leads to another file. */
static void require_own(const struct own *own)
{
    for (int i = 0; i < OWN; i++) {
        struct stat now;
        REQUIRE(!fstat(own->numbers[i], &now));
        REQUIRE(now.st_ino == own->states[i].st_ino && now.st_dev == own->states[i].st_dev);
        REQUIRE(lseek(own->numbers[i], 0, SEEK_CUR) == 0);
    }
}

static void before(const char *fill, int logs, char **paths, const struct contents *expected)
{
    struct own own;
    for (int i = 0; i < logs; i++) {
        close_unknown();
        open_own(&own, fill);
        require_same(paths[i], expected);
        require_own(&own);
    }
}

/* Reads a dataset of 64-bit numbers. Either they are right, or the error names the file. */
static void require_no_other(hid_t dataset, const void *numbers, ssize_t size)
{
    void *got = malloc((size_t)size);
    REQUIRE(got);
    if (H5Dread(dataset, H5T_NATIVE_UINT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, got) < 0) {
        REQUIRE(says(".log.h5: "));
    } else {
        REQUIRE(!memcmp(got, numbers, (size_t)size));
    }
    free(got);
}

static void during(const char *fill, const char *name, const char *log, const struct contents *expected)
{
    struct own own;
    void *numbers;
    keep_quiet();
    /* HDF5 caches no chunk of it. */
    const hid_t access = H5Pcreate(H5P_DATASET_ACCESS);
    REQUIRE(H5Pset_chunk_cache(access, 0, 0, 1) >= 0);
    const hid_t file = opened(log), dataset = H5Dopen2(file, name, access);
    const ssize_t size = read_numbers(dataset, &numbers);
    REQUIRE(size > 0);
    close_unknown();
    require_no_other(dataset, numbers, size);
    open_own(&own, fill);
    require_no_other(dataset, numbers, size);
    free(numbers);
    H5Pclose(access);
    H5Dclose(dataset);
    H5Fclose(file);
    require_own(&own);
    /* The process goes on. */
    require_same(log, expected);
}

int main(int argc, char **argv)
{
    REQUIRE(argc > 4);
    const struct contents expected = contents_of(argv[2]);
    if (!strcmp(argv[1], "before")) {
        before(argv[3], argc - 4, argv + 4, &expected);
        return 0;
    }
    for (int i = 5; i < argc; i++) {
        during(argv[3], argv[4], argv[i], &expected);
    }
    return 0;
}
