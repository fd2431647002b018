/*
 * The writer of h5logfs: the processes of an MPI program log what they have, each on its own, and
 * flush together. The files are HDF5 files in the layout of the Log VOL connector, which h5logfs
 * mounts as ordinary, chunked HDF5. A flush that has returned on all ranks is safe, whatever happens
 * to the job: an unclosed file shows it, and `h5logfs recover` closes such a file.
 *
 * Compile with mpicc, and the flags that `pkg-config --cflags --libs h5logfs_writer` prints.
 * MPI is initialised before the first call and finalised after the last close, by the caller.
 *
 * Results. Functions return H5LOGFS_OK, which is 0, or an error code of h5logfs_status;
 * h5logfs_last_error() has the message. Results go to pointers, which must not be NULL, and are
 * written where all is well.
 *
 * Collective and local. Calls that are documented as collective are made by all ranks of the file's
 * communicator, with the same arguments and in the same order. Definitions (groups, datasets,
 * attributes, extents) are collective, but cost no communication; creating, flushing and closing
 * wait for all ranks. Writes are local and only fill a buffer.
 *
 * Errors of one rank. A write that is refused on one rank is missing in the next flush, which is
 * complete otherwise, and returns H5LOGFS_ERR_REFUSED on all ranks. Whatever makes a collective call
 * fail on one rank makes it fail on all. Of arguments that only one rank has wrong, the others learn
 * in h5logfs_create, and of definitions at the next flush; but a rank that passes a wrong handle to
 * h5logfs_flush or h5logfs_close, or does not call it, leaves the others waiting, as in MPI. So does
 * one with a wrong communicator.
 *
 * Handles. An h5logfs_id stands for a file, a dataset or a datatype of this process. 0 is never one.
 * A handle that is wrong or closed is an error. No handle is given twice.
 *
 * Memory. Texts are in UTF-8 and end with a zero byte. All that a call gets is copied before it
 * returns, but for data that are lent (below). Arrays of coordinates have one uint64_t a dimension,
 * the slowest dimension first, and count elements; where the rank is 0 they may be NULL. Sizes of data
 * are in bytes, and are checked against the selection.
 *
 * Lent data. The h5logfs_lend functions do not copy: the buffer must stay, and stay unchanged, until
 * the next h5logfs_flush or h5logfs_close of the file has returned on this rank, with whatever code, or
 * the file was abandoned. What is wrong with such a write is told at once. In the file lent data come
 * behind all data that were written, not lent, since the last flush: where both cover an element, the
 * lent value wins. Data that have to be changed on their way (filtered, or structs with gaps) are
 * copied in any case. The buffer limit does not count lent data.
 *
 * Threads. All functions may be called by several threads at once; calls with the same file take
 * turns. Collective calls also call MPI, so the thread has to be one that may, by the level of thread
 * support that MPI was initialised with: it is an error otherwise. At MPI_THREAD_SERIALIZED the
 * library's own calls take turns; the program keeps its own calls of MPI apart from them. The first
 * rank calls libhdf5 while it closes a file; libhdf5 is not reentrant, so a program that uses it too
 * does not do so in another thread meanwhile.
 *
 * Processes that end, or finalise MPI, with files open lose what was not flushed, and nothing else.
 */


#ifndef H5LOGFS_WRITER_H
#define H5LOGFS_WRITER_H

/* Made by cbindgen from src/capi of h5logfs: changes belong there. */

#include <stddef.h>
#include <stdint.h>
#include <mpi.h>

/**
 * As many subfiles as the job has nodes: a value of `subfiles`.
 */
#define H5LOGFS_SUBFILES_PER_NODE -1

/**
 * Bytes are forced to the disk when the system likes: a value of `fsync`.
 */
#define H5LOGFS_FSYNC_NONE 0

/**
 * Before a close returns: a value of `fsync`.
 */
#define H5LOGFS_FSYNC_CLOSE 1

/**
 * Before a flush returns, too: a value of `fsync`.
 */
#define H5LOGFS_FSYNC_FLUSH 2

/**
 * The least significant byte comes first.
 */
#define H5LOGFS_LITTLE_ENDIAN 0

/**
 * The most significant byte comes first.
 */
#define H5LOGFS_BIG_ENDIAN 1

/**
 * A text of ASCII characters.
 */
#define H5LOGFS_ASCII 0

/**
 * A text in UTF-8.
 */
#define H5LOGFS_UTF8 1

/**
 * The dimension may grow without limit: a value of `max_dims`.
 */
#define H5LOGFS_UNLIMITED UINT64_MAX

/**
 * What the functions return: 0, or why not.
 */
typedef enum h5logfs_status {
    /**
     * All is well.
     */
    H5LOGFS_OK = 0,
    /**
     * A handle that is none or of the wrong kind, a NULL pointer, a negative rank, a text that is
     * not UTF-8, an unknown value of an option. The call had no effect; but a write to a dataset that
     * is known counts as refused, as with H5LOGFS_ERR_WRITE.
     */
    H5LOGFS_ERR_INVALID_ARGUMENT = 1,
    /**
     * A definition (group, dataset, attribute, extent, datatype) that cannot be. The call had no
     * effect. All ranks make the same definitions, and get the same answer.
     */
    H5LOGFS_ERR_DEFINITION = 2,
    /**
     * A write that does not fit its dataset: shape, extent or size of the elements. Nothing of it
     * was taken. All ranks get H5LOGFS_ERR_REFUSED at the next flush.
     */
    H5LOGFS_ERR_WRITE = 3,
    /**
     * The buffer has no room for a write. Nothing of it was taken, nothing before it is lost: it
     * fits after a flush, of which the program must tell the other ranks.
     */
    H5LOGFS_ERR_BUFFER_FULL = 4,
    /**
     * A collective call failed, on this rank or another one, on all ranks alike. What was flushed
     * before is as it was, what was not flushed is still held, and the call can be made again.
     */
    H5LOGFS_ERR_FAILED = 5,
    /**
     * A flush or close is complete, but without a write that some rank had refused before.
     */
    H5LOGFS_ERR_REFUSED = 6,
    /**
     * The file or datatype of this handle was closed.
     */
    H5LOGFS_ERR_CLOSED = 7,
    /**
     * MPI is not initialised, or is finalised already, or must not be called by this thread.
     */
    H5LOGFS_ERR_MPI = 8,
    /**
     * A fault of the library itself. The file of the call can only be abandoned; what was flushed
     * is safe.
     */
    H5LOGFS_ERR_PANIC = 9,
} h5logfs_status;

/**
 * Options of a new file. `h5logfs_options_init` fills them in; change what shall be otherwise. All
 * ranks give the same ones.
 */
typedef struct h5logfs_options {
    /**
     * Bytes of this struct as the caller knows it. Set by `h5logfs_options_init`.
     */
    size_t size;
    /**
     * 1: replace a file of that name, whose readers keep the old one. 0 (default): that is an error.
     */
    int overwrite;
    /**
     * When bytes are forced to the disk, against a loss of power: H5LOGFS_FSYNC_CLOSE (default),
     * _NONE or _FLUSH. The death of the job, however sudden, loses no flush in any case.
     */
    int fsync;
    /**
     * Bytes that a rank may hold between flushes, data and what describes them. Default: 256 MiB.
     */
    uint64_t buffer_limit;
    /**
     * How the log is spread: 0 (default) in the file itself; n > 0 in so many files in the directory
     * NAME.subfiles, at most one a rank; H5LOGFS_SUBFILES_PER_NODE.
     */
    int64_t subfiles;
    /**
     * 1 (default): a selection that an earlier write of the rank had is not spelled out again.
     */
    int share_selections;
    /**
     * 1 (default): the coordinates of many blocks are written as offsets, which takes half the bytes
     * or less.
     */
    int encode_selections;
    /**
     * 1: the ranks write a flush in one collective call of MPI-IO. 0 (default): each for itself. Only
     * for an MPI that tells of failures: Open MPI 4.1 on three or more ranks calls a collective write
     * to a full disk a success, or never returns from it, and no flush is safe then.
     */
    int collective;
    /**
     * Hints for MPI-IO, as an MPI_Info would have them: how many (default 0), and the arrays of their
     * keys and values. They are copied.
     */
    size_t hints;
    const char *const *hint_keys;
    const char *const *hint_values;
} h5logfs_options;

/**
 * A handle of a file, a dataset or a datatype. 0 is none.
 */
typedef int64_t h5logfs_id;

/**
 * A dataset to be made: type and shape, and how it is to look. `h5logfs_dataset_spec_init` fills it
 * in as a scalar without a type, chunks, filters and fill value.
 */
typedef struct h5logfs_dataset_spec {
    /**
     * Bytes of this struct as the caller knows it. Set by `h5logfs_dataset_spec_init`.
     */
    size_t size;
    /**
     * Datatype of the elements, as they lie in memory: one of the constants, or a handle. It is
     * copied.
     */
    h5logfs_id datatype;
    /**
     * Number of dimensions, 0 to 32. All arrays below have so many values.
     */
    int rank;
    /**
     * Level of deflate, 0 to 9; -1 (default) is none.
     */
    int deflate;
    /**
     * 1: the bytes of elements are sorted by significance, so that they deflate better.
     */
    int shuffle;
    /**
     * 1: what is stored has a checksum.
     */
    int fletcher32;
    /**
     * Extent, in elements. May be NULL where the rank is 0.
     */
    const uint64_t *dims;
    /**
     * How far each dimension may grow: a number of elements or H5LOGFS_UNLIMITED. NULL (default):
     * not at all.
     */
    const uint64_t *max_dims;
    /**
     * The chunk shape that readers see, in elements. NULL (default): it is chosen for them.
     */
    const uint64_t *chunk;
    /**
     * The value of elements that are never written: one element, as it lies in memory. NULL
     * (default): zero.
     */
    const void *fill;
} h5logfs_dataset_spec;

/**
 * int8_t
 */
#define H5LOGFS_INT8 1

/**
 * int16_t
 */
#define H5LOGFS_INT16 2

/**
 * int32_t
 */
#define H5LOGFS_INT32 3

/**
 * int64_t
 */
#define H5LOGFS_INT64 4

/**
 * uint8_t
 */
#define H5LOGFS_UINT8 5

/**
 * uint16_t
 */
#define H5LOGFS_UINT16 6

/**
 * uint32_t
 */
#define H5LOGFS_UINT32 7

/**
 * uint64_t
 */
#define H5LOGFS_UINT64 8

/**
 * float
 */
#define H5LOGFS_FLOAT 9

/**
 * double
 */
#define H5LOGFS_DOUBLE 10

/**
 * bool: a byte that is 0 or 1; to readers an enumeration of FALSE and TRUE, as h5py has it
 */
#define H5LOGFS_BOOL 11

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * The message of the last call of this thread that returned an error; an empty text if there was
 * none. Never NULL. The text belongs to the library, and lasts until the next error of this thread.
 * Local.
 */
const char *h5logfs_last_error(void);

/**
 * Fills in the defaults. `size`: sizeof(h5logfs_options), so that programs and libraries of different
 * age understand each other. Local.
 */
int h5logfs_options_init(struct h5logfs_options *options,
                         size_t size);

/**
 * Creates a file that the ranks of `comm` write together, and tells its handle, which is 0 after an
 * error. The communicator is duplicated, and remains the caller's. `options` may be NULL, for the
 * defaults. Fails on all ranks or on none. Collective over `comm`.
 */
int h5logfs_create(MPI_Comm comm,
                   const char *path,
                   const struct h5logfs_options *options,
                   h5logfs_id *file);

/**
 * The same with a communicator as Fortran has it. `path` ends with a zero byte. Collective over
 * `comm`.
 */
int h5logfs_create_f(MPI_Fint comm,
                     const char *path,
                     const struct h5logfs_options *options,
                     h5logfs_id *file);

/**
 * Makes a group, and those around it that are missing. Collective, without communication.
 */
int h5logfs_group(h5logfs_id file, const char *path);

/**
 * Gives an attribute to the group or dataset at the path `object`; "/" is the root group. The value
 * are elements of a datatype, row-major, `rank` dimensions (0 for a single one) of `dims`; `size` is
 * their number of bytes. Collective, without communication.
 */
int h5logfs_attribute(h5logfs_id file,
                      const char *object,
                      const char *name,
                      h5logfs_id datatype,
                      int rank,
                      const uint64_t *dims,
                      const void *value,
                      size_t size);

/**
 * Gives a text to an object as an attribute: a scalar of variable length, in UTF-8. Collective,
 * without communication.
 */
int h5logfs_attribute_text(h5logfs_id file, const char *object, const char *name, const char *text);

/**
 * Gives a list of `number` texts to an object as an attribute. Collective, without communication.
 */
int h5logfs_attribute_texts(h5logfs_id file,
                            const char *object,
                            const char *name,
                            size_t number,
                            const char *const *texts);

/**
 * Writes what all ranks hold, and makes it last: when it has returned on all ranks, nothing that
 * happens to the job can take it back. Buffers that were lent are the caller's again, whatever is
 * returned. Collective.
 */
int h5logfs_flush(h5logfs_id file);

/**
 * Flushes, and makes the file an HDF5 file in the Log VOL layout. The handle, and those of the file's
 * datasets, are closed after H5LOGFS_OK and H5LOGFS_ERR_REFUSED. After another error the file is
 * still open: the call can be made again, or the file abandoned. Buffers that were lent are the
 * caller's again, whatever is returned. Collective.
 */
int h5logfs_close(h5logfs_id file);

/**
 * Gives a file up without a close. It stays as the last flush left it: readable through h5logfs, and
 * closed by `h5logfs recover`. For use after a close has failed; the other ranks should do the same.
 * Local.
 */
int h5logfs_abandon(h5logfs_id file);

/**
 * Bytes that this rank holds since the last flush: copies of data, and what describes them. Data that
 * are lent do not count. Local.
 */
int h5logfs_buffered(h5logfs_id file,
                     uint64_t *bytes);

/**
 * Makes the type of a struct: `size` is its sizeof. Members are added by `h5logfs_type_insert`. Bytes
 * between them stay in memory: the file has the struct without gaps. Local.
 */
int h5logfs_type_compound(size_t size,
                          h5logfs_id *datatype);

/**
 * Adds a member to a compound. `offset` is its offsetof; members must not overlap. `member` is copied
 * as it is now. Local.
 */
int h5logfs_type_insert(h5logfs_id compound,
                        const char *name,
                        size_t offset,
                        h5logfs_id member);

/**
 * Makes an enumeration of the values of an integer type. Values are added by
 * `h5logfs_type_enum_insert`. Local.
 */
int h5logfs_type_enum(h5logfs_id base, h5logfs_id *datatype);

/**
 * Adds a value to an enumeration, and the name that it has. A value of H5LOGFS_UINT64 above 2^63 is
 * given as its two's complement. Local.
 */
int h5logfs_type_enum_insert(h5logfs_id enumeration, const char *name, int64_t value);

/**
 * Makes the type of an array: `rank` dimensions (1 to 32) of `dims` elements of type `base`, row-major.
 * Local.
 */
int h5logfs_type_array(h5logfs_id base,
                       int rank,
                       const uint64_t *dims,
                       h5logfs_id *datatype);

/**
 * Makes the type of a text of `size` bytes, padded with zeros. `charset`: H5LOGFS_ASCII or
 * H5LOGFS_UTF8. Local.
 */
int h5logfs_type_text(size_t size, int charset, h5logfs_id *datatype);

/**
 * Makes the type of `size` bytes that mean nothing to HDF5. `tag`: what they mean to those who know.
 * Local.
 */
int h5logfs_type_opaque(size_t size,
                        const char *tag,
                        h5logfs_id *datatype);

/**
 * Makes the type of the bits of an unsigned integer of 1, 2, 4 or 8 bytes. Local.
 */
int h5logfs_type_bitfield(size_t size, h5logfs_id *datatype);

/**
 * Makes the type of the same numbers in a given byte order: H5LOGFS_LITTLE_ENDIAN or
 * H5LOGFS_BIG_ENDIAN. `base`: an integer, a floating-point number, a bitfield, or an enumeration. The
 * other types have the order of this machine. Nothing is converted: the caller's memory is in that
 * order too. Local.
 */
int h5logfs_type_with_order(h5logfs_id base,
                            int order,
                            h5logfs_id *datatype);

/**
 * Bytes of an element of this type in memory. Local.
 */
int h5logfs_type_size(h5logfs_id datatype, size_t *size);

/**
 * Gives up a datatype. What was made with it stays as it is. Local.
 */
int h5logfs_type_close(h5logfs_id datatype);

/**
 * Fills in the defaults. `size`: sizeof(h5logfs_dataset_spec). Local.
 */
int h5logfs_dataset_spec_init(struct h5logfs_dataset_spec *spec, size_t size);

/**
 * Makes a dataset, and the groups around it that are missing, and tells its handle, which is 0 after
 * an error. The handle lasts until the file is closed. The struct and what it points to are copied.
 * Collective, without communication.
 */
int h5logfs_dataset(h5logfs_id file,
                    const char *path,
                    const struct h5logfs_dataset_spec *spec,
                    h5logfs_id *dataset);

/**
 * Sets the extent of a dataset: as many numbers of elements as it has dimensions, which can only
 * grow. Collective, without communication.
 */
int h5logfs_set_extent(h5logfs_id dataset, const uint64_t *dims);

/**
 * Tells the number of dimensions, and the extent. `dims` has room for `capacity` numbers; where that is
 * 0 it may be NULL, and only the rank is told. Local.
 */
int h5logfs_get_extent(h5logfs_id dataset,
                       int capacity,
                       uint64_t *dims,
                       int *rank);

/**
 * Writes the whole extent of a dataset. Copies the data. Local.
 */
int h5logfs_write(h5logfs_id dataset, const void *data, size_t size);

/**
 * Writes a block: `count` elements from `start` in each dimension. Copies the data. Local.
 */
int h5logfs_write_block(h5logfs_id dataset,
                        const uint64_t *start,
                        const uint64_t *count,
                        const void *data,
                        size_t size);

/**
 * Writes a hyperslab, as H5Sselect_hyperslab selects it: in each dimension `count` blocks of `block`
 * elements, `stride` apart from start to start. `stride` and `block` may be NULL, for ones. Copies the
 * data. Local.
 */
int h5logfs_write_hyperslab(h5logfs_id dataset,
                            const uint64_t *start,
                            const uint64_t *stride,
                            const uint64_t *count,
                            const uint64_t *block,
                            const void *data,
                            size_t size);

/**
 * Writes `number` blocks: their starts one after the other, and their counts alike. The data are
 * those of one block after the other; where blocks overlap, later ones win. Copies the data. Local.
 */
int h5logfs_write_blocks(h5logfs_id dataset,
                         size_t number,
                         const uint64_t *starts,
                         const uint64_t *counts,
                         const void *data,
                         size_t size);

/**
 * Writes `number` points: their coordinates one after the other. Copies the data. Local.
 */
int h5logfs_write_points(h5logfs_id dataset,
                         size_t number,
                         const uint64_t *points,
                         const void *data,
                         size_t size);

/**
 * As `h5logfs_write`, without a copy: lends the data until the next flush. Local.
 */
int h5logfs_lend(h5logfs_id dataset, const void *data, size_t size);

/**
 * As `h5logfs_write_block`, without a copy: lends the data until the next flush. Local.
 */
int h5logfs_lend_block(h5logfs_id dataset,
                       const uint64_t *start,
                       const uint64_t *count,
                       const void *data,
                       size_t size);

/**
 * As `h5logfs_write_hyperslab`, without a copy: lends the data until the next flush. Local.
 */
int h5logfs_lend_hyperslab(h5logfs_id dataset,
                           const uint64_t *start,
                           const uint64_t *stride,
                           const uint64_t *count,
                           const uint64_t *block,
                           const void *data,
                           size_t size);

/**
 * As `h5logfs_write_blocks`, without a copy: lends the data until the next flush. Local.
 */
int h5logfs_lend_blocks(h5logfs_id dataset,
                        size_t number,
                        const uint64_t *starts,
                        const uint64_t *counts,
                        const void *data,
                        size_t size);

/**
 * As `h5logfs_write_points`, without a copy: lends the data until the next flush. Local.
 */
int h5logfs_lend_points(h5logfs_id dataset,
                        size_t number,
                        const uint64_t *points,
                        const void *data,
                        size_t size);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* H5LOGFS_WRITER_H */
