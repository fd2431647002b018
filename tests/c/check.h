/* Checks of the C test programs: each reports where it fails, and ends the program. */
#ifndef CHECK_H
#define CHECK_H

#include <stdio.h>
#include <stdlib.h>

#define FAIL(...)                                       \
    do {                                                \
        fprintf(stderr, "%s:%d: ", __FILE__, __LINE__); \
        fprintf(stderr, __VA_ARGS__);                   \
        fputc('\n', stderr);                            \
        abort();                                        \
    } while (0)

#define REQUIRE(condition)                     \
    do {                                       \
        if (!(condition)) {                    \
            FAIL("not so: %s", #condition);    \
        }                                      \
    } while (0)

#endif
