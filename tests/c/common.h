/* Common parts of the C test programs: checks that report where they fail, and end the job. */
#ifndef COMMON_H
#define COMMON_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <h5logfs_writer.h>

#include "check.h"

#define LENGTH(array) (sizeof(array) / sizeof *(array))

/* The call must return this code. */
#define EXPECT(code, call)                                                                \
    do {                                                                                  \
        int got = (call), wanted = (code);                                                \
        if (got != wanted) {                                                              \
            FAIL("%d instead of %d from %s: %s", got, wanted, #call, h5logfs_last_error()); \
        }                                                                                 \
    } while (0)

#define CHECK(call) EXPECT(H5LOGFS_OK, call)

/* The call must return this code, and a message with these words. */
#define REFUSED(code, words, call)                                                     \
    do {                                                                               \
        EXPECT(code, call);                                                            \
        if (!strstr(h5logfs_last_error(), words)) {                                    \
            FAIL("no '%s' in the message of %s: %s", words, #call, h5logfs_last_error()); \
        }                                                                              \
    } while (0)

static inline h5logfs_id created(const char *path, const h5logfs_options *options)
{
    h5logfs_id file = 0;
    CHECK(h5logfs_create(MPI_COMM_WORLD, path, options, &file));
    return file;
}

static inline h5logfs_dataset_spec spec_of(h5logfs_id datatype, int rank, const uint64_t *dims)
{
    h5logfs_dataset_spec spec;
    CHECK(h5logfs_dataset_spec_init(&spec, sizeof spec));
    spec.datatype = datatype;
    spec.rank = rank;
    spec.dims = dims;
    return spec;
}

/* A dataset of fixed extent without further properties. */
static inline h5logfs_id plain(h5logfs_id file, const char *path, h5logfs_id datatype, int rank,
                               const uint64_t *dims)
{
    h5logfs_dataset_spec spec = spec_of(datatype, rank, dims);
    h5logfs_id dataset = 0;
    CHECK(h5logfs_dataset(file, path, &spec, &dataset));
    return dataset;
}

#endif
