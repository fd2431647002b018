/*
 * reap MODE EXPECTED LOG…: a host that counts the signals of its children opens unknown logs.
 * reaper: a thread of it waits for any child, all the time. ignore: SIGCHLD is ignored. block: all signals are blocked.
 * subreaper: orphans become its children; else like reaper.
 */
#include "host.h"

#include <stdatomic.h>
#include <sys/prctl.h>

static atomic_uint signals, reaped;
static atomic_int stop;

static void count_signal(int number)
{
    (void)number;
    atomic_fetch_add(&signals, 1);
}

static void *reap(void *arg)
{
    (void)arg;
    while (!atomic_load(&stop)) {
        const pid_t child = waitpid(-1, NULL, WNOHANG);
        if (child > 0) {
            atomic_fetch_add(&reaped, 1);
        }
        usleep(200);
    }
    return NULL;
}

static void handle(int number, void (*handler)(int))
{
    struct sigaction action = {.sa_handler = handler};
    REQUIRE(!sigaction(number, &action, NULL));
}

static void reads(int logs, char **paths, const struct contents *expected)
{
    for (int i = 0; i < logs; i++) {
        require_same(paths[i], expected);
    }
}

/* Checks that the host sees its own children: what it did not see was not there. */
static void require_instruments(void)
{
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (!child) {
        _exit(0);
    }
    while (!atomic_load(&reaped)) {
        usleep(200);
    }
    REQUIRE(atomic_load(&reaped) == 1);
    REQUIRE(atomic_load(&signals) == 1);
}

static void with_reaper(int logs, char **paths, const struct contents *expected)
{
    pthread_t reaper;
    handle(SIGCHLD, count_signal);
    REQUIRE(!pthread_create(&reaper, NULL, reap, NULL));
    reads(logs, paths, expected);
    REQUIRE(atomic_load(&signals) == 0);
    REQUIRE(atomic_load(&reaped) == 0);
    require_instruments();
    atomic_store(&stop, 1);
    REQUIRE(!pthread_join(reaper, NULL));
}

static void with_signals_blocked(int logs, char **paths, const struct contents *expected)
{
    /* The system fills only a part of them. */
    sigset_t all, before = {0}, after = {0}, pending;
    sigfillset(&all);
    REQUIRE(!pthread_sigmask(SIG_SETMASK, &all, NULL));
    REQUIRE(!pthread_sigmask(SIG_SETMASK, NULL, &before));
    reads(logs, paths, expected);
    REQUIRE(!pthread_sigmask(SIG_SETMASK, NULL, &after));
    REQUIRE(!memcmp(&before, &after, sizeof before));
    REQUIRE(!sigpending(&pending));
    for (int number = 1; number < SIGRTMAX; number++) {
        REQUIRE(sigismember(&pending, number) != 1);
    }
}

int main(int argc, char **argv)
{
    REQUIRE(argc > 3);
    const char *mode = argv[1];
    const int logs = argc - 3;
    char **paths = argv + 3;
    const struct contents expected = contents_of(argv[2]);
    if (!strcmp(mode, "subreaper")) {
        REQUIRE(!prctl(PR_SET_CHILD_SUBREAPER, 1));
    }
    if (!strcmp(mode, "block")) {
        with_signals_blocked(logs, paths, &expected);
    } else if (!strcmp(mode, "ignore")) {
        handle(SIGCHLD, SIG_IGN);
        reads(logs, paths, &expected);
        struct sigaction action;
        REQUIRE(!sigaction(SIGCHLD, NULL, &action) && action.sa_handler == SIG_IGN);
    } else {
        with_reaper(logs, paths, &expected);
    }
    REQUIRE(waitpid(-1, NULL, WNOHANG) == -1 && errno == ECHILD);
    return 0;
}
