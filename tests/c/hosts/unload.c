/*
 * unload LIBRARY DATASET LOG…: a host that repeatedly loads HDF5 on demand, and unloads it together with the plug-in.
 * It is not linked to HDF5.
 */
#include "host.h"

#include <dlfcn.h>

#define ROUNDS 10
/* HDF5's own name for it, H5F_ACC_RDONLY, is a call of the library. */
#define READ_ONLY 0

/* Number of mappings of files whose names have these words. */
static unsigned mapped(const char *words)
{
    char line[8192];
    unsigned found = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    REQUIRE(maps);
    while (fgets(line, sizeof line, maps)) {
        found += strstr(line, words) != NULL;
    }
    fclose(maps);
    return found;
}

typedef herr_t (*without_argument)(void);
typedef hid_t (*open_file)(const char *, unsigned, hid_t);
typedef hid_t (*open_dataset)(hid_t, const char *, hid_t);
typedef herr_t (*close_object)(hid_t);

static void *function(void *library, const char *name)
{
    void *found = dlsym(library, name);
    REQUIRE(found);
    return found;
}

static void one_round(const char *library, const char *name, const char *log)
{
    void *hdf5 = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (!hdf5) {
        FAIL("%s", dlerror());
    }
    REQUIRE(((without_argument)function(hdf5, "H5open"))() >= 0);
    const hid_t file = ((open_file)function(hdf5, "H5Fopen"))(log, READ_ONLY, H5P_DEFAULT);
    REQUIRE(file >= 0);
    /* A log opened without the driver has no such dataset. */
    const hid_t dataset = ((open_dataset)function(hdf5, "H5Dopen2"))(file, name, H5P_DEFAULT);
    REQUIRE(dataset >= 0);
    REQUIRE(mapped("libh5logfs_") > 0);
    REQUIRE(((close_object)function(hdf5, "H5Dclose"))(dataset) >= 0);
    REQUIRE(((close_object)function(hdf5, "H5Fclose"))(file) >= 0);
    REQUIRE(((without_argument)function(hdf5, "H5close"))() >= 0);
    REQUIRE(!dlclose(hdf5));
    REQUIRE(!mapped("libhdf5"));
}

static void *thread(void *arg)
{
    return arg;
}

int main(int argc, char **argv)
{
    REQUIRE(argc > 3);
    one_round(argv[1], argv[2], argv[3]);
    const unsigned parts = mapped("libh5logfs_");
    for (int i = 1; i < ROUNDS; i++) {
        one_round(argv[1], argv[2], argv[3 + i % (argc - 3)]);
    }
    REQUIRE(mapped("libh5logfs_") == parts);
    /* Remnants in the process must do no harm. */
    pthread_t ends;
    REQUIRE(!pthread_create(&ends, NULL, thread, NULL) && !pthread_join(ends, NULL));
    const pid_t pid = fork();
    REQUIRE(pid >= 0);
    if (!pid) {
        exit(0);
    }
    require_success(pid);
    return 0;
}
