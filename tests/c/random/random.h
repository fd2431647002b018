/*
 * A random HDF5 program: a sequence of HDF5 calls determined by a seed, and a model of the file's content. All ranks
 * make the same decisions, so each knows the writes of all. They write different elements between flushes. After a
 * barrier each reads what all have written; on several nodes only where all read together.
 *
 * Earlier sessions of a file are run on the model alone, so a later session, with any number of ranks, knows the file.
 */
#ifndef RANDOM_H
#define RANDOM_H

#define _GNU_SOURCE
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <hdf5.h>

#include "../check.h"

/* An HDF5 call that must succeed. The value is that of the call. */
#define H5(call)                            \
    __extension__({                         \
        const __auto_type result_ = (call); \
        if (result_ < 0) {                  \
            FAIL("%s: %s", run.path, #call); \
        }                                   \
        result_;                            \
    })

/* An HDF5 call that must succeed, skipped in past sessions. */
#define LIVE(call)        \
    do {                  \
        if (run.live) {   \
            H5(call);     \
        }                 \
    } while (0)

#define MOST_RANK 3

/* State of a whole session. */
struct run {
    char path[512];
    /* Whether calls are made; false in a past session. */
    bool live;
    /* Whether the file is opened by MPI-IO. */
    bool mpio;
    /* Whether any session of the file uses MPI-IO. */
    bool ever_mpio;
    int rank, ranks;
    /* Whether all ranks are on one node. */
    bool one_node;
    hid_t file;
    /* Whether calls are logged. */
    bool told;
};
extern struct run run;

/* With RANDOM_TOLD=1 in the environment the first rank prints its actions. */
#define TELL(...)                                  \
    do {                                           \
        if (run.live && run.told && !run.rank) {   \
            fprintf(stderr, __VA_ARGS__);          \
            fputc('\n', stderr);                   \
        }                                          \
    } while (0)

/* numbers.c: the same on all ranks. */
void seed(uint64_t seed);
uint64_t number(void);
uint64_t below(uint64_t end);
uint64_t within(uint64_t least, uint64_t most);
bool one_in(uint64_t times);

/* types.c */

/* How the model keeps elements. */
enum content {
    /* As stored in the file. */
    PLAIN,
    /* Strings and sequences of variable length: a number for the value; 0 for none. */
    STRINGS,
    SEQUENCES,
    /* References to objects: the number of the object; 0 for none. */
    REFERENCES,
};

hid_t file_type(enum content *content);
bool has_plain_numbers(hid_t type);
/* A type that elements of a file type can be converted to and from; with all members if `whole`. */
hid_t memory_type(hid_t type, enum content content, bool whole);
/* Random elements of numbers and similar types. */
void fill_elements(hid_t type, void *elements, size_t count);
/* Values of variable length in memory, for the number that the model keeps. */
void make_value(enum content content, uint64_t of, void *element);
void free_value(enum content content, void *element);
bool is_value(enum content content, uint64_t of, const void *element);

/* spaces.c */

/* The product. */
size_t volume(int rank, const hsize_t *dims);
/* A random selection within a box of an extent. It may consist of points. */
hid_t select_within(int rank, const hsize_t *dims, const hsize_t *low, const hsize_t *high, bool points);
/* The places of selected elements in the extent, in the order of the selection. */
size_t places(hid_t space, hsize_t **found);
/* A selection of `count` elements in some extent. It may consist of points. */
hid_t select_memory(size_t count, bool points);

/* tree.c */

enum kind { GROUP, DATASET, DATATYPE };

struct dataset {
    hid_t type;
    enum content content;
    int rank;
    hsize_t dims[MOST_RANK], max[MOST_RANK], chunk[MOST_RANK];
    bool chunked, compact, made_by_several;
    int filters;
    /* The only filter is deflate. */
    bool deflated;
    /* One of the filters is n-bit. */
    bool packed;
    /* The filters add a checksum, and otherwise keep the number of bytes. */
    bool summed;
    /* Bytes of an element of the model. */
    size_t size;
    unsigned char *elements, *fill;
    /* The rank that wrote an element since the last flush; -1 if none did. */
    signed char *writer;
};

struct attribute {
    char name[16];
    hid_t type;
    enum content content;
    size_t elements;
};

struct link {
    char name[24];
    /* NULL for soft and external links. */
    struct object *target;
};

struct object {
    enum kind kind;
    uint64_t number;
    int links;
    /* References point to it, so it stays. */
    bool pinned;
    /* An open handle, or -1. */
    hid_t id;
    int attributes;
    struct attribute attribute[16];
    /* Children of a group. */
    int children;
    struct link child[24];
    struct dataset dataset;
};

extern struct object *root;
/* All numbered objects: deleted ones are NULL. */
extern struct object *objects[512];
extern uint64_t last_object;
/* Number of names given so far. */
extern unsigned names;

/* Forgets all objects of the file before, and begins a new one. */
void make_root(void);
/* An object of a kind, or NULL. */
struct object *pick(enum kind kind);
struct object *pick_any(void);
/* Opens an object, or returns its open handle. -1 in a past session. */
hid_t open_object(struct object *object);
void close_handle(struct object *object);
void close_handles(void);
void reopen_some_handles(void);
/* One change of groups, links or names; none where it is impossible. */
void change_tree(void);
/* The path by which an object is found. */
void path_of(const struct object *object, char *path);
/* A group with room for a link, and a new name. */
struct object *pick_parent(char *name, const char *begin);
struct object *add_object(enum kind kind, struct object *parent, const char *name);

/* data.c */

/* From now on each rank sees what the others wrote. */
void flush_all(void);
void create_dataset(void);
void write_dataset(void);
void write_several(void);
void write_chunk(void);
void read_dataset(struct object *object);
void read_all(void);
void set_extent(void);
void copy_elements(struct dataset *to, const struct dataset *from);
void free_elements(struct dataset *dataset);
/* Random elements of any content in memory, and the model's form of those that are not PLAIN. */
uint64_t *make_elements(hid_t type, enum content content, unsigned char *memory, size_t count);
void free_made(enum content content, unsigned char *memory, size_t size, uint64_t *values, size_t count);

/* attributes.c */
void change_attributes(void);

#endif
