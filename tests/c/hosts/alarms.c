/* alarms EXPECTED LOG…: a timer constantly interrupts the system calls of a host. */
#include "host.h"

#include <stdatomic.h>
#include <sys/time.h>

static atomic_uint alarms;

static void count_alarm(int number)
{
    (void)number;
    atomic_fetch_add(&alarms, 1);
}

int main(int argc, char **argv)
{
    REQUIRE(argc > 2);
    const struct contents expected = contents_of(argv[1]);
    /* Without SA_RESTART, interruptible calls are interrupted. */
    struct sigaction action = {.sa_handler = count_alarm};
    REQUIRE(!sigaction(SIGALRM, &action, NULL));
    const struct itimerval often = {{0, 1000}, {0, 1000}}, never = {{0, 0}, {0, 0}};
    REQUIRE(!setitimer(ITIMER_REAL, &often, NULL));
    do {
        for (int i = 2; i < argc; i++) {
            require_same(argv[i], &expected);
        }
    } while (!atomic_load(&alarms));
    REQUIRE(!setitimer(ITIMER_REAL, &never, NULL));
    return 0;
}
