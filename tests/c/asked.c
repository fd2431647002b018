/*
 * Loaded before a program: records in the file named by ASKED_NOTES which HDF5 variables the program reads and gets.
 */
#include <fcntl.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

extern char **environ;

static char *find(const char *name)
{
    const size_t len = strlen(name);
    for (char **at = environ; at && *at; at++) {
        if (!strncmp(*at, name, len) && (*at)[len] == '=') {
            return *at + len + 1;
        }
    }
    return NULL;
}

static int is_of_hdf5(const char *name)
{
    static const char *const begins[] = {"HDF5_", "H5_", "H5D_", "H5FD_"};
    for (size_t i = 0; i < sizeof begins / sizeof *begins; i++) {
        if (!strncmp(name, begins[i], strlen(begins[i]))) {
            return 1;
        }
    }
    return 0;
}

static void note(const char *name)
{
    const char *const notes = find("ASKED_NOTES");
    const int file = notes ? open(notes, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666) : -1;
    if (file >= 0) {
        char line[200];
        const size_t len = strnlen(name, sizeof line - 1);
        memcpy(line, name, len);
        line[len] = '\n';
        const ssize_t written = write(file, line, len + 1);
        (void)written;
        close(file);
    }
}

char *getenv(const char *name)
{
    char *const found = find(name);
    if (found && is_of_hdf5(name)) {
        note(name);
    }
    return found;
}
