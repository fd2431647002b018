/*
 * The writer of h5logfs. Each process of an MPI program writes elements of datasets to a buffer by
 * itself. All processes flush their buffers together. The resulting files are HDF5 files in the layout
 * of the Log VOL connector, which h5logfs mounts as ordinary, chunked HDF5 files. Once a flush has
 * returned on all ranks, its data survive whatever happens to the job. h5logfs also reads a file that
 * was not closed, and `h5logfs recover` closes it. h5logfs_open opens a file again, to add to it.
 *
 * Compile with mpicc and the flags that `pkg-config --cflags --libs h5logfs_writer` prints. The caller
 * initialises MPI before the first call, and finalises it after the last close.
 *
 * Results. Functions return H5LOGFS_OK, which is 0, or an error code of h5logfs_status.
 * h5logfs_last_error() returns the message of the error. Other results go to pointers, which must not
 * be NULL. Unless a function says otherwise, it writes them only on success.
 *
 * Collective and local. All ranks of the file's communicator must make the calls that are documented
 * as collective, with the same arguments and in the same order. Definitions (groups, datasets,
 * attributes, extents) are collective, but need no communication. Creating, opening, flushing and
 * closing a file wait for all ranks. Writes are local: they only fill a buffer.
 *
 * Errors of one rank. If one rank refuses a write, the next flush lacks this write but is complete
 * otherwise. It returns H5LOGFS_ERR_REFUSED on all ranks. If a collective call fails on one rank, it
 * fails on all ranks. If one rank passes wrong arguments, the other ranks learn of it in
 * h5logfs_create or h5logfs_open, or at the next flush if it was a definition. Some errors leave the
 * other ranks waiting forever, as in MPI: one rank passes a wrong handle to h5logfs_flush or
 * h5logfs_close, does not call the function at all, or passes a wrong communicator.
 *
 * Handles. An h5logfs_id stands for a file, a dataset or a datatype of this process. 0 is not a valid
 * handle. It is an error to use a wrong or closed handle. No handle is used twice.
 *
 * Memory. Strings are in UTF-8 and end with a zero byte. The library copies all arguments before a
 * call returns, except lent data (see below). Arrays of coordinates have one uint64_t for each
 * dimension, slowest dimension first, and count elements. If the rank is 0, they may be NULL. Sizes of
 * data are in bytes. The library checks them against the selection.
 *
 * Lent data. The h5logfs_lend functions do not copy data. The buffer must stay allocated and unchanged
 * until the next h5logfs_flush or h5logfs_close of the file has returned on this rank, with whatever
 * code, or until the file was abandoned. Errors in the arguments are still reported at once. If a lent
 * write and a copied write since the last flush cover the same element, the lent value wins, whichever
 * call came first. Filtered data, and structs with padding, are copied in any case. Lent data do not
 * count towards the buffer limit.
 *
 * Threads. Several threads may call all functions at the same time. Calls for the same file wait for
 * each other. Collective calls also call MPI, so the thread must be one that may call MPI at the
 * thread level with which MPI was initialised. Otherwise the call is an error. At
 * MPI_THREAD_SERIALIZED the library makes its own calls of MPI one at a time. The program must keep
 * its calls of MPI apart from them. The first rank calls libhdf5 while it opens a file again and while
 * it closes one. libhdf5 is not reentrant, so the program must not call it in another thread then.
 *
 * If a process ends or finalises MPI with open files, the data since the last flush are lost, and
 * nothing else.
 */


#ifndef H5LOGFS_WRITER_H
#define H5LOGFS_WRITER_H

/* Made by cbindgen from src/capi of h5logfs: changes belong there. */

#include <stddef.h>
#include <stdint.h>
#include <mpi.h>

/** The name of a dimension scale, or its prefix, by which netCDF recognizes a dimension without a variable. */
#define H5LOGFS_NETCDF_DIMENSION "This is a netCDF dimension but not a netCDF variable."

/**
 * A value of `subfiles`: one subfile for each node of the job.
 */
#define H5LOGFS_SUBFILES_PER_NODE -1

/**
 * A value of `fsync`: the system decides when data go to the disk.
 */
#define H5LOGFS_FSYNC_NONE 0

/**
 * A value of `fsync`: data are on the disk when a close returns.
 */
#define H5LOGFS_FSYNC_CLOSE 1

/**
 * A value of `fsync`: data are on the disk when a flush or a close returns.
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
 * A string of ASCII characters.
 */
#define H5LOGFS_ASCII 0

/**
 * A string in UTF-8.
 */
#define H5LOGFS_UTF8 1

/**
 * A value of `max_dims`: the dimension may grow without limit.
 */
#define H5LOGFS_UNLIMITED UINT64_MAX

/**
 * The codes that the functions return.
 */
typedef enum h5logfs_status {
    /**
     * Success.
     */
    H5LOGFS_OK = 0,
    /**
     * An argument is invalid: an unknown handle or one of the wrong kind, a NULL pointer, a negative
     * rank, a string that is not UTF-8, an unknown value of an option. The call had no effect. If it
     * was a write to a valid dataset, the write counts as refused, as with H5LOGFS_ERR_WRITE.
     */
    H5LOGFS_ERR_INVALID_ARGUMENT = 1,
    /**
     * A definition (group, dataset, attribute, extent, datatype) is not possible. The call had no
     * effect. All ranks make the same definitions, so all get this error.
     */
    H5LOGFS_ERR_DEFINITION = 2,
    /**
     * A write does not match its dataset: wrong shape, extent or element size. None of its elements is
     * written, and the next flush returns H5LOGFS_ERR_REFUSED on all ranks.
     */
    H5LOGFS_ERR_WRITE = 3,
    /**
     * The buffer has no room for a write, and its data cannot go to the file now. Earlier writes are
     * kept. The call had no effect, but a part of a write larger than the whole buffer may be stored.
     * The write can be repeated after a flush. The program must tell the other ranks to flush.
     */
    H5LOGFS_ERR_BUFFER_FULL = 4,
    /**
     * A collective call failed on some rank. All ranks get this error. Flushed data are unchanged,
     * other data are still buffered, and the call can be repeated.
     */
    H5LOGFS_ERR_FAILED = 5,
    /**
     * A flush or close is complete except for a write that was refused on some rank, or for attributes
     * that differ between ranks. The message names them. Reported once.
     */
    H5LOGFS_ERR_REFUSED = 6,
    /**
     * The file or datatype of this handle was closed.
     */
    H5LOGFS_ERR_CLOSED = 7,
    /**
     * MPI is not initialised, is already finalised, or must not be called by this thread; or the program runs
     * another MPI than the one that the library was built for.
     */
    H5LOGFS_ERR_MPI = 8,
    /**
     * An internal error of the library. The file of this call can only be abandoned. Flushed data are
     * safe.
     */
    H5LOGFS_ERR_PANIC = 9,
    /**
     * A close is complete, but the option `settle` failed. The file is a complete log, nothing is lost,
     * and `h5logfs settle` can be run later. The message says why.
     */
    H5LOGFS_ERR_NOT_SETTLED = 10,
    /**
     * The process was forked from the one that opened the file, which alone writes it. The call had no
     * effect.
     */
    H5LOGFS_ERR_FORKED = 11,
} h5logfs_status;

/**
 * Options of a file that is created or opened. `h5logfs_options_init` fills in the defaults. `overwrite`,
 * `discard_unclosed`, `keep_unclosed` and `subfiles` are for new files only. All ranks must pass the same
 * options.
 */
typedef struct h5logfs_options {
    /**
     * Size of this struct in the caller's header. Set by `h5logfs_options_init`.
     */
    size_t size;
    /**
     * 1: replace an existing file. It stays until the new one is made on all ranks. Programs that have
     * the old file open can go on reading it. A file that a job still writes is never replaced. A file
     * with flushes of a job that did not close it is replaced only with `discard_unclosed`. 0 (default):
     * an existing file is an error.
     */
    int overwrite;
    /**
     * When data are forced to the disk, as a protection against power failures: H5LOGFS_FSYNC_CLOSE
     * (default), H5LOGFS_FSYNC_NONE or H5LOGFS_FSYNC_FLUSH. If only the job dies, no flush is lost.
     */
    int fsync;
    /**
     * Limit of a rank's buffer in bytes, for data and selections. Default: 32 MiB.
     */
    uint64_t buffer_limit;
    /**
     * 0 (default): the log is in the file itself. n > 0: the log is in n files in the directory
     * NAME.subfiles, at most one for each rank. Or H5LOGFS_SUBFILES_PER_NODE.
     */
    int64_t subfiles;
    /**
     * 1 (default): a selection equal to an earlier one of the same rank is stored as a reference.
     */
    int share_selections;
    /**
     * 1 (default): the coordinates of many blocks are stored as offsets, in at most half the bytes.
     */
    int encode_selections;
    /**
     * 1: the ranks write a flush with one collective call of MPI-IO. 0 (default): each rank writes
     * independently. Use 1 only with an MPI that reports errors of collective writes. Open MPI 4.1 on
     * three or more ranks does not: with a full disk the write seems to succeed, or never returns. No
     * flush is safe then.
     */
    int collective;
    /**
     * Hints for MPI-IO, as in an MPI_Info: their number (default 0), and the arrays of their keys and
     * values. They are copied.
     */
    size_t hints;
    const char *const *hint_keys;
    const char *const *hint_values;
    /**
     * 1, together with `overwrite`: also replace an unclosed log. Its flushes are lost; `h5logfs
     * recover` would keep them. 0 (default): a log with such flushes is an error.
     */
    int discard_unclosed;
    /**
     * 1: at the close, make the file an ordinary HDF5 file, as `h5logfs settle` does. The first rank
     * does it while the others wait, until the file is on the disk, whatever `fsync` says. Not with
     * subfiles. 0 (default): the file is a log.
     */
    int settle;
    /**
     * 1: each extent has a checksum of its data. Readers of an unclosed log on other nodes then show a
     * flush only when they see all of it, and the previous one until then. For file systems that show
     * the writes of other nodes late, such as NFS. 0 (default): no checksums.
     */
    int64_t checksums;
    /**
     * With `settle`: memory that the first rank may use for its knowledge of the log, in bytes, and as
     * much again for chunks in the making. A log that needs more is not settled. Default: 256 MiB.
     */
    uint64_t settle_memory;
    /**
     * Seconds after which a flush is automatic: in a call that defines a group, a dataset, an extent or
     * a scale, when this time has passed since the last flush. Such calls then send a word to all ranks.
     * A rank whose buffer is older spills it to the disk in its next write; it counts with the next
     * flush. Appended rows and lent data wait for a flush of the program. 0 (default): only the program
     * flushes.
     */
    double flush_every;
    /**
     * Bytes logged by the first rank since the last flush after which a flush is automatic. 0 (default):
     * no limit.
     */
    uint64_t flush_bytes;
    /**
     * 1, together with `overwrite`: an unclosed log gets another name, `NAME.killed-1` or the first free
     * number, together with its journal and subfiles. It can be read and recovered there.
     * `discard_unclosed` takes precedence. 0 (default): such a log is an error.
     */
    int64_t keep_unclosed;
    /**
     * 1 (default): the coordinates of many blocks with regular steps are deflated. Log VOL connectors
     * need zlib to read them. 0: they are not.
     */
    int64_t deflate_selections;
    /**
     * Number of threads that compress the chunks of one write, including the calling one. 0 or 1
     * (default): only this one.
     */
    uint64_t threads;
} h5logfs_options;

/**
 * A handle of a file, a dataset or a datatype. 0 is not a valid handle.
 */
typedef int64_t h5logfs_id;

/**
 * The properties of a new dataset. `h5logfs_dataset_spec_init` fills in a scalar without datatype,
 * chunk shape, filters and fill value.
 */
typedef struct h5logfs_dataset_spec {
    /**
     * Size of this struct in the caller's header. Set by `h5logfs_dataset_spec_init`.
     */
    size_t size;
    /**
     * Datatype of the elements in memory: one of the constants, or a handle. It is copied.
     */
    h5logfs_id datatype;
    /**
     * Number of dimensions, 0 to 32. Each array below has this many values.
     */
    int rank;
    /**
     * Level of the deflate filter, 0 to 9. -1 (default): no deflate.
     */
    int deflate;
    /**
     * 1: the shuffle filter, which makes deflate more effective. 0 (default): no shuffle.
     */
    int shuffle;
    /**
     * 1: the fletcher32 filter, which adds a checksum to stored data. 0 (default): no checksum.
     */
    int fletcher32;
    /**
     * Extent, in elements. May be NULL if the rank is 0.
     */
    const uint64_t *dims;
    /**
     * Largest extent, in elements, or H5LOGFS_UNLIMITED. NULL (default): no dimension can grow.
     */
    const uint64_t *max_dims;
    /**
     * The chunk shape that readers see, in elements. NULL (default): chosen automatically.
     */
    const uint64_t *chunk;
    /**
     * The value of elements that are never written: one element as in memory. NULL (default): zero.
     */
    const void *fill;
} h5logfs_dataset_spec;

/**
 * A selected part of an array in memory, for example the inner cells of a grid with ghost cells: a
 * hyperslab as in H5Sselect_hyperslab. The first selected element of the array goes to the first
 * selected element of the dataset, and so on, both in row-major order. Both selections must have the
 * same number of elements. `h5logfs_memory_space_init` fills in a single element, strides and blocks of
 * 1.
 */
typedef struct h5logfs_memory_space {
    /**
     * Size of this struct in the caller's header. Set by `h5logfs_memory_space_init`.
     */
    size_t size;
    /**
     * Number of dimensions of the array, 0 to 32. Each array below has this many values.
     */
    int rank;
    /**
     * Extent of the array, in elements.
     */
    const uint64_t *dims;
    /**
     * Start of the selected part.
     */
    const uint64_t *start;
    /**
     * Distance from block to block. NULL (default): 1 in each dimension.
     */
    const uint64_t *stride;
    /**
     * Number of blocks. If `block` is NULL, the number of elements.
     */
    const uint64_t *count;
    /**
     * Elements of a block. NULL (default): 1 in each dimension.
     */
    const uint64_t *block;
} h5logfs_memory_space;

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
 * bool: a byte that is 0 or 1. Readers see an enumeration of FALSE and TRUE, as h5py writes it.
 */
#define H5LOGFS_BOOL 11

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Returns the message of this thread's last error, or an empty string if there was none. Never NULL.
 * The string belongs to the library. It is valid until the next error of this thread. Local.
 */
const char *h5logfs_last_error(void);

/**
 * Fills in the defaults. `size` is sizeof(h5logfs_options), which identifies the version of the header
 * that the program was compiled with. Local.
 */
int h5logfs_options_init(struct h5logfs_options *options,
                         size_t size);

/**
 * Creates a file that all ranks of `comm` write together. `file` receives its handle, or 0 on error.
 * The library duplicates the communicator. `options` may be NULL for the defaults. All ranks pass the
 * same path and options. Fails on all ranks or on none, and then leaves everything as it was.
 * Collective over `comm`.
 */
int h5logfs_create(MPI_Comm comm,
                   const char *path,
                   const struct h5logfs_options *options,
                   h5logfs_id *file);

/**
 * As `h5logfs_create`, with a communicator of Fortran. `path` ends with a zero byte. Collective over
 * `comm`.
 */
int h5logfs_create_f(MPI_Fint comm,
                     const char *path,
                     const struct h5logfs_options *options,
                     h5logfs_id *file);

/**
 * Opens a log again, to append to it: a closed one, or one whose job ended before the close. This
 * library has made it, or an HDF5 program through the VOL connector. `h5logfs_open_dataset` finds its
 * datasets. From now on the log is unclosed; its content is safe whatever happens, and the close makes one log of all. The number of ranks may
 * differ from before. `options` may be NULL for the defaults; `overwrite`, `discard_unclosed`,
 * `keep_unclosed` and `subfiles` are for new files, and refused. All ranks pass the same path and
 * options. Collective over `comm`.
 */
int h5logfs_open(MPI_Comm comm,
                 const char *path,
                 const struct h5logfs_options *options,
                 h5logfs_id *file);

/**
 * As `h5logfs_open`, with a communicator of Fortran. `path` ends with a zero byte. Collective over
 * `comm`.
 */
int h5logfs_open_f(MPI_Fint comm,
                   const char *path,
                   const struct h5logfs_options *options,
                   h5logfs_id *file);

/**
 * Returns whether the file has a group or a dataset at `path`: 1 or 0 in `exists`. Local.
 */
int h5logfs_exists(h5logfs_id file, const char *path, int *exists);

/**
 * Creates a group, and missing parent groups. An existing group stays as it is. Collective, without
 * communication.
 */
int h5logfs_group(h5logfs_id file, const char *path);

/**
 * Creates an attribute of the group or dataset at the path `object`; "/" is the root group. The value is
 * an array of `rank` dimensions `dims`, row-major, or a single element if `rank` is 0. `size` is the
 * number of bytes in `value`. An attribute that differs between ranks is left out, and the next flush
 * returns H5LOGFS_ERR_REFUSED. Its name can be defined again. Collective, without communication.
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
 * Creates an attribute of an object from a string: a scalar of variable length, in UTF-8. Collective,
 * without communication.
 */
int h5logfs_attribute_text(h5logfs_id file,
                           const char *object,
                           const char *name,
                           const char *text);

/**
 * Creates an attribute of an object from a list of `number` strings. Collective, without communication.
 */
int h5logfs_attribute_texts(h5logfs_id file,
                            const char *object,
                            const char *name,
                            size_t number,
                            const char *const *texts);

/**
 * Writes the buffered data of all ranks to the file. Once this has returned on all ranks, the data
 * survive any failure of the job. Lent buffers are free again, whatever this returns. Collective.
 */
int h5logfs_flush(h5logfs_id file);

/**
 * Flushes, and turns the file into an HDF5 file in the Log VOL layout. With the option `settle` the file
 * then becomes an ordinary HDF5 file. After H5LOGFS_OK, H5LOGFS_ERR_REFUSED and H5LOGFS_ERR_NOT_SETTLED
 * the handles of the file and its datasets are closed. After any other error the file is still open:
 * repeat the call, or abandon the file. Lent buffers are free again, whatever this returns. Collective.
 */
int h5logfs_close(h5logfs_id file);

/**
 * Gives up a file without closing it, for example after a close has failed. The other ranks should do
 * the same. The file stays as the last flush left it: h5logfs can read it, and `h5logfs recover`
 * closes it. Local.
 */
int h5logfs_abandon(h5logfs_id file);

/**
 * Returns the number of bytes in this rank's buffer: copied data and their selections. Lent data do
 * not count. Local.
 */
int h5logfs_buffered(h5logfs_id file, uint64_t *bytes);

/**
 * Creates the type of a struct. `size` is its sizeof. `h5logfs_type_insert` adds members. The file
 * holds the struct without the padding between members. Local.
 */
int h5logfs_type_compound(size_t size, h5logfs_id *datatype);

/**
 * Adds a member to a compound. `offset` is its offsetof. Members must not overlap. The call copies
 * the datatype `member`. Local.
 */
int h5logfs_type_insert(h5logfs_id compound, const char *name, size_t offset, h5logfs_id member);

/**
 * Creates an enumeration based on an integer type. `h5logfs_type_enum_insert` adds values. Local.
 */
int h5logfs_type_enum(h5logfs_id base, h5logfs_id *datatype);

/**
 * Adds a value and its name to an enumeration. For a value of H5LOGFS_UINT64 of 2^63 or more, pass the
 * same bits as an int64_t. Local.
 */
int h5logfs_type_enum_insert(h5logfs_id enumeration,
                             const char *name,
                             int64_t value);

/**
 * Creates the type of an array of `rank` dimensions `dims` (1 to 32), row-major, with elements of type
 * `base`. Local.
 */
int h5logfs_type_array(h5logfs_id base,
                       int rank,
                       const uint64_t *dims,
                       h5logfs_id *datatype);

/**
 * Creates the type of a string of `size` bytes, padded with zero bytes. `charset` is H5LOGFS_ASCII or
 * H5LOGFS_UTF8. Local.
 */
int h5logfs_type_text(size_t size,
                      int charset,
                      h5logfs_id *datatype);

/**
 * Creates an opaque type: `size` bytes that HDF5 does not interpret. `tag` describes them. Local.
 */
int h5logfs_type_opaque(size_t size, const char *tag, h5logfs_id *datatype);

/**
 * Creates a bitfield type of 1, 2, 4 or 8 bytes. Local.
 */
int h5logfs_type_bitfield(size_t size, h5logfs_id *datatype);

/**
 * Creates a copy of an integer, floating-point, bitfield or enumeration type with the given byte
 * order: H5LOGFS_LITTLE_ENDIAN or H5LOGFS_BIG_ENDIAN. All other functions create types in the byte
 * order of this machine. The library does not convert data: elements in memory must have this order.
 * Local.
 */
int h5logfs_type_with_order(h5logfs_id base,
                            int order,
                            h5logfs_id *datatype);

/**
 * Returns the size of an element of this type in memory, in bytes. Local.
 */
int h5logfs_type_size(h5logfs_id datatype, size_t *size);

/**
 * Closes a datatype. Datasets, attributes and types that were created with it do not change. Local.
 */
int h5logfs_type_close(h5logfs_id datatype);

/**
 * Fills in the defaults. `size` is sizeof(h5logfs_dataset_spec). Local.
 */
int h5logfs_dataset_spec_init(struct h5logfs_dataset_spec *spec, size_t size);

/**
 * Creates a dataset, and missing parent groups. `dataset` receives its handle, or 0 on error. The handle
 * is valid until the file is closed. The call copies `spec` and the arrays in it. Collective, without
 * communication.
 */
int h5logfs_dataset(h5logfs_id file,
                    const char *path,
                    const struct h5logfs_dataset_spec *spec,
                    h5logfs_id *dataset);

/**
 * Finds a dataset of a file that `h5logfs_open` has opened, or one that this program has created.
 * `datatype` is the type of its elements in memory, which must match that of the dataset. For a struct,
 * the first call fixes the offsets of its members in memory. `dataset` receives a handle, or 0 on error.
 * Local.
 */
int h5logfs_open_dataset(h5logfs_id file,
                         const char *path,
                         h5logfs_id datatype,
                         h5logfs_id *dataset);

/**
 * Sets the extent of a dataset. `dims` has one number for each dimension. Dimensions can only grow.
 * Collective, without communication.
 */
int h5logfs_set_extent(h5logfs_id dataset, const uint64_t *dims);

/**
 * Makes a dataset of one dimension a dimension scale. `name` may be NULL or empty for none. netCDF uses
 * the name of the dataset as that of the dimension; a scale whose name begins with
 * H5LOGFS_NETCDF_DIMENSION is a dimension without a variable. Collective, without communication.
 */
int h5logfs_make_scale(h5logfs_id dataset,
                       const char *name);

/**
 * Attaches a dimension scale to a dimension of a dataset of the same file. The first dimension is 0. A
 * dimension may have several scales. Collective, without communication.
 */
int h5logfs_attach_scale(h5logfs_id dataset,
                         int dimension,
                         h5logfs_id scale);

/**
 * Labels a dimension of a dataset, once. The first dimension is 0. Collective, without communication.
 */
int h5logfs_set_label(h5logfs_id dataset,
                      int dimension,
                      const char *label);

/**
 * Returns the number of dimensions in `rank` and the extent in `dims`, which has room for `capacity`
 * numbers. If `capacity` is 0, `dims` may be NULL, and only the rank is returned. Local.
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
 * Writes a block: in each dimension `count` elements from `start` on. Copies the data. Local.
 */
int h5logfs_write_block(h5logfs_id dataset,
                        const uint64_t *start,
                        const uint64_t *count,
                        const void *data,
                        size_t size);

/**
 * Writes a hyperslab as H5Sselect_hyperslab selects it: in each dimension `count` blocks of `block`
 * elements, whose starts are `stride` apart. `stride` and `block` may be NULL, which means 1 in each
 * dimension. Copies the data. Local.
 */
int h5logfs_write_hyperslab(h5logfs_id dataset,
                            const uint64_t *start,
                            const uint64_t *stride,
                            const uint64_t *count,
                            const uint64_t *block,
                            const void *data,
                            size_t size);

/**
 * Writes `number` blocks. `starts` has the start of each block, one after the other, and `counts` has
 * their counts. The data hold one block after the other. Where blocks overlap, the last one wins.
 * Copies the data. Local.
 */
int h5logfs_write_blocks(h5logfs_id dataset,
                         size_t number,
                         const uint64_t *starts,
                         const uint64_t *counts,
                         const void *data,
                         size_t size);

/**
 * Writes `number` blocks as `h5logfs_write_blocks`, given as lists like those of `H5Dwrite_n`: block `i`
 * begins at `starts[i]` and has the extent `counts[i]`. Copies the data. Local.
 */
int h5logfs_write_n(h5logfs_id dataset,
                    size_t number,
                    const uint64_t *const *starts,
                    const uint64_t *const *counts,
                    const void *data,
                    size_t size);

/**
 * Writes `number` single elements. `points` has the coordinates of each, one after the other. Copies
 * the data. Local.
 */
int h5logfs_write_points(h5logfs_id dataset,
                         size_t number,
                         const uint64_t *points,
                         const void *data,
                         size_t size);

/**
 * Writes as `h5logfs_write`, but lends the data until the next flush. Local.
 */
int h5logfs_lend(h5logfs_id dataset, const void *data, size_t size);

/**
 * Writes as `h5logfs_write_block`, but lends the data until the next flush. Local.
 */
int h5logfs_lend_block(h5logfs_id dataset,
                       const uint64_t *start,
                       const uint64_t *count,
                       const void *data,
                       size_t size);

/**
 * Writes as `h5logfs_write_hyperslab`, but lends the data until the next flush. Local.
 */
int h5logfs_lend_hyperslab(h5logfs_id dataset,
                           const uint64_t *start,
                           const uint64_t *stride,
                           const uint64_t *count,
                           const uint64_t *block,
                           const void *data,
                           size_t size);

/**
 * Writes as `h5logfs_write_blocks`, but lends the data until the next flush. Local.
 */
int h5logfs_lend_blocks(h5logfs_id dataset,
                        size_t number,
                        const uint64_t *starts,
                        const uint64_t *counts,
                        const void *data,
                        size_t size);

/**
 * Writes as `h5logfs_write_n`, but lends the data until the next flush. Local.
 */
int h5logfs_lend_n(h5logfs_id dataset,
                   size_t number,
                   const uint64_t *const *starts,
                   const uint64_t *const *counts,
                   const void *data,
                   size_t size);

/**
 * Writes as `h5logfs_write_points`, but lends the data until the next flush. Local.
 */
int h5logfs_lend_points(h5logfs_id dataset,
                        size_t number,
                        const uint64_t *points,
                        const void *data,
                        size_t size);

/**
 * Fills in the defaults. `size` is sizeof(h5logfs_memory_space). Local.
 */
int h5logfs_memory_space_init(struct h5logfs_memory_space *space, size_t size);

/**
 * Writes a block as `h5logfs_write_block` does, from a selected part of an array in memory. `data` and
 * `size` are those of the whole array. Copies the selected elements. Local.
 */
int h5logfs_write_block_from(h5logfs_id dataset,
                             const uint64_t *start,
                             const uint64_t *count,
                             const struct h5logfs_memory_space *space,
                             const void *data,
                             size_t size);

/**
 * Writes a hyperslab as `h5logfs_write_hyperslab` does, from a selected part of an array in memory. `data`
 * and `size` are those of the whole array. Copies the selected elements. Local.
 */
int h5logfs_write_hyperslab_from(h5logfs_id dataset,
                                 const uint64_t *start,
                                 const uint64_t *stride,
                                 const uint64_t *count,
                                 const uint64_t *block,
                                 const struct h5logfs_memory_space *space,
                                 const void *data,
                                 size_t size);

/**
 * Writes as `h5logfs_write_block_from`, but lends the data until the next flush. Elements that are not
 * contiguous are copied all the same. Local.
 */
int h5logfs_lend_block_from(h5logfs_id dataset,
                            const uint64_t *start,
                            const uint64_t *count,
                            const struct h5logfs_memory_space *space,
                            const void *data,
                            size_t size);

/**
 * Writes as `h5logfs_write_hyperslab_from`, but lends the data until the next flush. Elements that are
 * not contiguous are copied all the same. Local.
 */
int h5logfs_lend_hyperslab_from(h5logfs_id dataset,
                                const uint64_t *start,
                                const uint64_t *stride,
                                const uint64_t *count,
                                const uint64_t *block,
                                const struct h5logfs_memory_space *space,
                                const void *data,
                                size_t size);

/**
 * Appends rows to a dataset whose first dimension is unlimited. The next flush counts the rows of all
 * ranks, extends the dataset, and puts the rows after its previous extent: those of a lower rank first,
 * those of a rank in the order of the calls. `data` holds any number of whole rows, one after the other.
 * Copies the data. Local.
 */
int h5logfs_append(h5logfs_id dataset,
                   const void *data,
                   size_t size);

/**
 * Appends as `h5logfs_append`, but lends the data until the next flush. These rows follow the copied
 * ones. Local.
 */
int h5logfs_lend_append(h5logfs_id dataset,
                        const void *data,
                        size_t size);

/**
 * Returns the place that the last complete flush gave to this rank's appended rows: the index of the
 * first row in `start`, and the number of rows in `count`. Local.
 */
int h5logfs_appended(h5logfs_id dataset,
                     uint64_t *start,
                     uint64_t *count);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* H5LOGFS_WRITER_H */
