/*
 * threads EXPECTED LOG…: eight threads, with stacks as small as HDF5 allows, open and read the same logs. HDF5's own
 * lock lets one at a time into it.
 */
#include "host.h"

#define READERS 8
#define ROUNDS 5
#define STACK (256 * 1024)

static struct contents expected;
static char **paths;
static int logs;

static void *reader(void *arg)
{
    const int number = *(const int *)arg;
    for (int i = 0; i < ROUNDS * logs; i++) {
        require_same(paths[(number + i) % logs], &expected);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    REQUIRE(argc > 2);
    hbool_t safe;
    REQUIRE(H5is_library_threadsafe(&safe) >= 0 && safe);
    expected = contents_of(argv[1]);
    paths = argv + 2;
    logs = argc - 2;

    pthread_attr_t small;
    REQUIRE(!pthread_attr_init(&small));
    REQUIRE(!pthread_attr_setstacksize(&small, STACK));
    pthread_t readers[READERS];
    int numbers[READERS];
    for (int i = 0; i < READERS; i++) {
        numbers[i] = i;
        REQUIRE(!pthread_create(&readers[i], &small, reader, &numbers[i]));
    }
    for (int i = 0; i < READERS; i++) {
        REQUIRE(!pthread_join(readers[i], NULL));
    }
    /* No thread of ours is left. */
    REQUIRE(threads() == 1);
    return 0;
}
