/*
 * Common parts of the hosts: programs that know HDF5 and nothing of logs, and use their process freely. Each fails with
 * a line on stderr, and prints nothing else.
 */
#ifndef HOST_H
#define HOST_H

#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <hdf5.h>

#include "../check.h"

/* The contents of all numeric datasets, and their number. */
struct contents {
    uint64_t hash;
    unsigned datasets;
};

static inline uint64_t mix(uint64_t hash, const void *bytes, size_t size)
{
    const unsigned char *next = bytes;
    for (size_t i = 0; i < size; i++) {
        hash = (hash ^ next[i]) * UINT64_C(0x100000001b3);
    }
    return hash;
}

/* Reads all of a dataset. Returns the number of bytes; 0 if the dataset is not numeric, -1 if it cannot be read. */
static inline ssize_t read_numbers(hid_t dataset, void **bytes)
{
    *bytes = NULL;
    const hid_t stored = H5Dget_type(dataset), space = H5Dget_space(dataset);
    const H5T_class_t class = H5Tget_class(stored);
    const hssize_t elements = H5Sget_simple_extent_npoints(space);
    ssize_t size = 0;
    if ((class == H5T_INTEGER || class == H5T_FLOAT) && elements > 0) {
        const hid_t type = H5Tget_native_type(stored, H5T_DIR_ASCEND);
        size = (ssize_t)((size_t)elements * H5Tget_size(type));
        *bytes = malloc((size_t)size);
        REQUIRE(*bytes);
        if (H5Dread(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, *bytes) < 0) {
            size = -1;
        }
        H5Tclose(type);
    }
    H5Sclose(space);
    H5Tclose(stored);
    return size;
}

static inline herr_t add_object(hid_t file, const char *name, const H5O_info2_t *info, void *arg)
{
    struct contents *contents = arg;
    if (info->type != H5O_TYPE_DATASET) {
        return 0;
    }
    const hid_t dataset = H5Dopen2(file, name, H5P_DEFAULT);
    if (dataset < 0) {
        return -1;
    }
    void *bytes;
    const ssize_t size = read_numbers(dataset, &bytes);
    if (size > 0) {
        contents->hash = mix(mix(contents->hash, name, strlen(name)), bytes, (size_t)size);
        contents->datasets++;
    }
    free(bytes);
    H5Dclose(dataset);
    return size < 0 ? -1 : 0;
}

/* Whether everything in an open file is readable. */
static inline int read_all(hid_t file, struct contents *contents)
{
    *contents = (struct contents){UINT64_C(0xcbf29ce484222325), 0};
    return H5Ovisit3(file, H5_INDEX_NAME, H5_ITER_INC, add_object, contents, H5O_INFO_BASIC) >= 0;
}

static inline int is_same(const struct contents *a, const struct contents *b)
{
    return a->hash == b->hash && a->datasets == b->datasets;
}

/* Opens a file like a program that knows nothing of drivers. */
static inline hid_t opened(const char *path)
{
    const hid_t file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
    if (file < 0) {
        H5Eprint2(H5E_DEFAULT, stderr);
        FAIL("%s cannot be opened", path);
    }
    return file;
}

static inline struct contents contents_of(const char *path)
{
    struct contents contents;
    const hid_t file = opened(path);
    if (!read_all(file, &contents)) {
        H5Eprint2(H5E_DEFAULT, stderr);
        FAIL("%s cannot be read", path);
    }
    REQUIRE(H5Fclose(file) >= 0);
    REQUIRE(contents.datasets > 0);
    return contents;
}

#define REQUIRE_CONTENTS(file, expected)               \
    do {                                               \
        struct contents got;                           \
        REQUIRE(read_all(file, &got));                 \
        REQUIRE(is_same(&got, expected));              \
    } while (0)

/* Fails unless the log at `path` reads like the expected file. */
static inline void require_same(const char *path, const struct contents *expected)
{
    const struct contents got = contents_of(path);
    if (!is_same(&got, expected)) {
        FAIL("%s: not what is expected", path);
    }
}

struct sentence {
    const char *words;
    int found;
};

static inline herr_t look_for_words(unsigned number, const H5E_error2_t *error, void *arg)
{
    (void)number;
    struct sentence *sentence = arg;
    sentence->found |= error->desc && strstr(error->desc, sentence->words) != NULL;
    return 0;
}

/* Whether a line of HDF5's error stack has these words. */
static inline int says(const char *words)
{
    struct sentence sentence = {words, 0};
    H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, look_for_words, &sentence);
    return sentence.found;
}

/* For expected failures: HDF5 keeps its errors, and prints none. */
static inline void keep_quiet(void)
{
    REQUIRE(H5Eset_auto2(H5E_DEFAULT, NULL, NULL) >= 0);
}

/* Waits for a child, which must succeed. */
static inline void require_success(pid_t child)
{
    int status;
    REQUIRE(waitpid(child, &status, 0) == child);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        FAIL("a child ended with the status %#x", status);
    }
}

/* Number of entries in a directory of /proc, without "." and "..". */
static inline unsigned entries_of(const char *path)
{
    DIR *dir = opendir(path);
    REQUIRE(dir);
    unsigned entries = 0;
    for (const struct dirent *entry; (entry = readdir(dir));) {
        entries += entry->d_name[0] != '.';
    }
    closedir(dir);
    return entries;
}

/* Number of open descriptors of this process, without the one used for counting. */
static inline unsigned descriptors(void)
{
    return entries_of("/proc/self/fd") - 1;
}

static inline unsigned threads(void)
{
    return entries_of("/proc/self/task");
}

#endif
