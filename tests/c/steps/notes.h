#ifndef NOTES_H
#define NOTES_H

/* Records the process number of the rank. */
void notes_begin(const char *directory, int rank);

/* All ranks are there. */
void notes_ready(const char *directory);

void notes_step_begins(void);

/* The rank has written a step. It waits this long before the next one. */
void notes_step_ends(int step, int milliseconds);

#endif
