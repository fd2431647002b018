/* What a program that writes steps tells the test, in files of the directory NOTES: "steps.RANK" has a line for each step that the
 * rank has written, with its number and the times before and after it, in seconds. A program of Fortran calls these, too. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include "../check.h"
#include "notes.h"

static int file = -1;
static double begun;

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_REALTIME, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

void notes_begin(const char *directory, int rank)
{
    char path[512];
    snprintf(path, sizeof path, "%s/steps.%d", directory, rank);
    file = open(path, O_WRONLY | O_CREAT | O_APPEND, 0644);
    REQUIRE(file >= 0);
    snprintf(path, sizeof path, "%s/pid.%d", directory, rank);
    FILE *pid = fopen(path, "w");
    REQUIRE(pid);
    fprintf(pid, "%d", (int)getpid());
    fclose(pid);
}

void notes_ready(const char *directory)
{
    char path[512];
    snprintf(path, sizeof path, "%s/acknowledged", directory);
    FILE *acknowledged = fopen(path, "a");
    REQUIRE(acknowledged);
    fputs("ready\n", acknowledged);
    fclose(acknowledged);
}

void notes_step_begins(void)
{
    begun = now();
}

void notes_step_ends(int step, int milliseconds)
{
    char line[100];
    const int length = snprintf(line, sizeof line, "%d %.6f %.6f\n", step, begun, now());
    /* One call, so that the line is complete or missing. */
    REQUIRE(write(file, line, (size_t)length) == length);
    usleep((useconds_t)milliseconds * 1000);
}
