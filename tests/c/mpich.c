/*
 * Loaded before MPICH.
 *
 * Its processes wait in a loop around ucp_worker_progress, and more ranks than cores would take the processor from those
 * that they wait for. Here they let each other run.
 *
 * At its end a process closes its connections, and then waits in a barrier of PMI, without a further look at UCX. Over TCP
 * a close wants an answer of the other end. A process whose closes were answered answers none any more, and where others
 * still wait for one, the job never ends: MPICH 4.0.2 on several nodes (pmodels/mpich#6596). Here it goes on answering.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

static void *worker;
static int closing;

static unsigned progress(void)
{
    static unsigned (*next)(void *);
    if (!next)
        *(void **)(&next) = dlsym(RTLD_NEXT, "ucp_worker_progress");
    return next(worker);
}

unsigned ucp_worker_progress(void *wanted)
{
    worker = wanted;
    unsigned done = progress();
    if (!done)
        sched_yield();
    return done;
}

void *ucp_disconnect_nb(void *connection)
{
    static void *(*next)(void *);
    if (!next)
        *(void **)(&next) = dlsym(RTLD_NEXT, "ucp_disconnect_nb");
    closing = 1;
    return next(connection);
}

void ucp_worker_destroy(void *gone)
{
    static void (*next)(void *);
    if (!next)
        *(void **)(&next) = dlsym(RTLD_NEXT, "ucp_worker_destroy");
    closing = 0;
    next(gone);
}

/* Whether this is the connection to the process that started this one. */
static int is_of_pmi(int file)
{
    const char *number = getenv("PMI_FD");
    return number && file == atoi(number);
}

ssize_t read(int file, void *buffer, size_t size)
{
    static ssize_t (*next)(int, void *, size_t);
    if (!next)
        *(void **)(&next) = dlsym(RTLD_NEXT, "read");
    if (closing && worker && is_of_pmi(file)) {
        struct pollfd answer = {.fd = file, .events = POLLIN};
        while (poll(&answer, 1, 1) == 0)
            progress();
    }
    return next(file, buffer, size);
}
