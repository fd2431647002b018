/*
 * leave MODE EXPECTED LOG: a host ends with an open log, of which it has read something. return, exit: as programs end;
 * _exit: at once; thread: the last thread ends; child: a forked child exits, and the parent reads on; quick: quick_exit.
 */
#include "host.h"

static void *leave_later(void *arg)
{
    (void)arg;
    usleep(1000);
    exit(0);
}

int main(int argc, char **argv)
{
    REQUIRE(argc == 4);
    const char *mode = argv[1];
    const struct contents expected = contents_of(argv[2]);
    const hid_t file = opened(argv[3]);
    REQUIRE_CONTENTS(file, &expected);
    if (!strcmp(mode, "_exit")) {
        _exit(0);
    }
    if (!strcmp(mode, "exit")) {
        exit(0);
    }
    if (!strcmp(mode, "quick")) {
        quick_exit(0);
    }
    if (!strcmp(mode, "thread")) {
        pthread_t thread;
        REQUIRE(!pthread_create(&thread, NULL, leave_later, NULL));
        pthread_exit(NULL);
    }
    if (!strcmp(mode, "child")) {
        const pid_t pid = fork();
        REQUIRE(pid >= 0);
        if (!pid) {
            REQUIRE_CONTENTS(file, &expected);
            exit(0);
        }
        require_success(pid);
        REQUIRE_CONTENTS(file, &expected);
    }
    return 0;
}
