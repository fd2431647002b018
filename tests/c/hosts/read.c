/* read EXPECTED LOG…: each log reads like the expected file. */
#include "host.h"

int main(int argc, char **argv)
{
    REQUIRE(argc > 2);
    const struct contents expected = contents_of(argv[1]);
    for (int i = 2; i < argc; i++) {
        require_same(argv[i], &expected);
    }
    return 0;
}
