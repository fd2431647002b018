/*
 * Loaded before MPICH: its processes wait in a loop around ucp_worker_progress, and more ranks than cores would take the
 * processor from those that they wait for.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sched.h>

unsigned ucp_worker_progress(void *worker)
{
    static unsigned (*progress)(void *);
    if (!progress)
        *(void **)(&progress) = dlsym(RTLD_NEXT, "ucp_worker_progress");
    unsigned done = progress(worker);
    if (!done)
        sched_yield();
    return done;
}
