/* refuse WORDS LOG…: no log can be opened, and the error has these words. The host survives. */
#include "host.h"

int main(int argc, char **argv)
{
    REQUIRE(argc > 2);
    keep_quiet();
    for (int i = 2; i < argc; i++) {
        REQUIRE(H5Fopen(argv[i], H5F_ACC_RDONLY, H5P_DEFAULT) < 0);
        if (!says(argv[1])) {
            H5Eprint2(H5E_DEFAULT, stderr);
            FAIL("the error does not say %s", argv[1]);
        }
    }
    return 0;
}
