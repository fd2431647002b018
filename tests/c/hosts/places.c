/*
 * places DIRECTORY EXPECTED LOG…: relative paths, a working directory that is removed, and a file mode mask. LOG is a
 * name below DIRECTORY.
 */
#include "host.h"

int main(int argc, char **argv)
{
    REQUIRE(argc == 6);
    const char *dir = argv[1];
    const struct contents expected = contents_of(argv[2]);
    umask(0777);

    /* An open file stays open wherever the process goes. */
    REQUIRE(!chdir(dir));
    const hid_t file = opened(argv[3]);
    char away[] = "/tmp/h5logfs-away-XXXXXX";
    REQUIRE(mkdtemp(away));
    REQUIRE(!chmod(away, 0700) && !chdir(away));
    REQUIRE_CONTENTS(file, &expected);

    /* The same name is another file here. */
    char path[4096];
    keep_quiet();
    REQUIRE(H5Fopen(argv[3], H5F_ACC_RDONLY, H5P_DEFAULT) < 0);
    snprintf(path, sizeof path, "%s/%s", dir, argv[4]);
    REQUIRE(!symlink(path, argv[3]));
    require_same(argv[3], &expected);
    REQUIRE(!unlink(argv[3]));

    REQUIRE(!rmdir(away));
    REQUIRE_CONTENTS(file, &expected);
    snprintf(path, sizeof path, "%s/%s", dir, argv[5]);
    require_same(path, &expected);
    REQUIRE(H5Fopen(argv[5], H5F_ACC_RDONLY, H5P_DEFAULT) < 0);

    REQUIRE(H5Fclose(file) >= 0);
    REQUIRE(umask(0) == 0777);
    return 0;
}
