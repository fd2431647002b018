/*
 * Functions that the HDF5 Log VOL connector adds to HDF5, for programs that call them: with the VOL connector of h5logfs
 * such a program runs unchanged. Compile with the flags that `pkg-config --cflags --libs h5logfs_vol_api` prints. With
 * them, `#include <H5VL_log.h>` includes this header.
 *
 * Needs HDF5 1.14 or later. All functions return a negative number on failure, with the reason on the error stack of HDF5.
 *
 * A file that is no log, or that HDF5's own connector has opened, is written and read by HDF5: H5Dwrite_n and H5Dread_n
 * are then one H5Dwrite or H5Dread of the union of their blocks.
 */
#ifndef H5LOGFS_VOL_API_H
#define H5LOGFS_VOL_API_H

#include <stddef.h>
#include <sys/types.h>

#include <hdf5.h>

/* Old names of the Log VOL. */
#ifndef H5S_CONTIG
#define H5S_CONTIG H5S_BLOCK
#endif
#define LOG_VOL_BSIZE_UNLIMITED (-1)

/* For H5Pset_subfiling: no subfiles, or one for each node. */
#define H5VL_LOG_SUBFILING_OFF 0
#define H5VL_LOG_SUBFILING_FILE_PER_NODE (-1)

/* The connector, for H5Pset_vol, and its class, for H5VLregister_connector. */
#define H5VL_log (H5VL_log_register())
#define H5VL_log_g (*h5logfs_vol_class())

#ifdef __cplusplus
extern "C" {
#endif

typedef enum H5VL_log_req_type_t {
    H5VL_LOG_REQ_BLOCKING = 0,
    H5VL_LOG_REQ_NONBLOCKING = 1
} H5VL_log_req_type_t;

typedef enum H5VL_log_sel_encoding_t {
    H5VL_LOG_ENCODING_OFFSET = 0,
    H5VL_LOG_ENCODING_CANONICAL = 1
} H5VL_log_sel_encoding_t;

typedef enum H5VL_log_data_layout_t {
    H5VL_LOG_DATA_LAYOUT_CONTIG = 0,
    H5VL_LOG_DATA_LAYOUT_CHUNK_ALIGNED = 1
} H5VL_log_data_layout_t;

/* Registers the connector. HDF5 looks for it in HDF5_PLUGIN_PATH, and then in the directory installed with this library.
 * Returns an identifier, which the caller closes with H5VLclose. */
hid_t H5VL_log_register(void);

/* For H5VL_log_g, which programs use. NULL if the connector cannot be loaded. */
const H5VL_class_t *h5logfs_vol_class(void);

/*
 * Writes n blocks of a dataset, like n calls of H5Dwrite in order: where blocks overlap, the last one wins. Block i begins
 * at starts[i], and has the extent counts[i], with a number for each dimension of the dataset. The elements of block i
 * follow those of block i - 1 in buf. With n = 0 both arrays may be NULL. The elements are copied.
 */
herr_t H5Dwrite_n(hid_t dset_id, hid_t mem_type_id, int n, hsize_t **starts, hsize_t **counts, hid_t dxpl_id,
                  const void *buf);

/* Reads n blocks, like n calls of H5Dread. When it returns, buf has their elements. */
herr_t H5Dread_n(hid_t dset_id, hid_t mem_type_id, int n, hsize_t **starts, hsize_t **counts, hid_t dxpl_id, void *buf);

/*
 * Properties. A set function refuses a list of another class. A get function returns the default of a property that was
 * not set. Unless stated otherwise, a property is stored, but has no effect: see "Programs that were ported to the Log
 * VOL" in the user guide.
 */

/* In data transfer property lists. Whether a write copies the elements; it always does. Default: true. */
herr_t H5Pset_buffered(hid_t plist, hbool_t buffered);
herr_t H5Pget_buffered(hid_t plist, hbool_t *buffered);

/* In file creation property lists. Subfiles of a new log: none, one for each node, or a number of them. The connector's
 * option subfiles takes precedence. Default: none. */
herr_t H5Pset_subfiling(hid_t plist, int nsubfiles);
herr_t H5Pget_subfiling(hid_t plist, int *nsubfiles);

/* In file creation property lists. Default: H5VL_LOG_DATA_LAYOUT_CONTIG. */
herr_t H5Pset_data_layout(hid_t plist, H5VL_log_data_layout_t layout);
herr_t H5Pget_data_layout(hid_t plist, H5VL_log_data_layout_t *layout);

/* In file access property lists. Whether equal selections of a new log are stored once. The connector's option
 * share_selections takes precedence. Default: true. */
herr_t H5Pset_meta_share(hid_t plist, hbool_t share);
herr_t H5Pget_meta_share(hid_t plist, hbool_t *share);

/* In file access property lists. Encoding of selections of many blocks in a new log. The connector's option
 * encode_selections takes precedence. Default: H5VL_LOG_ENCODING_OFFSET. */
herr_t H5Pset_sel_encoding(hid_t plist, H5VL_log_sel_encoding_t encoding);
herr_t H5Pget_sel_encoding(hid_t plist, H5VL_log_sel_encoding_t *encoding);

/* In file access property lists. Defaults: no limit, no limit, false, false, false, false. */
herr_t H5Pset_nb_buffer_size(hid_t plist, size_t size);
herr_t H5Pget_nb_buffer_size(hid_t plist, ssize_t *size);
herr_t H5Pset_idx_buffer_size(hid_t plist, size_t size);
herr_t H5Pget_idx_buffer_size(hid_t plist, ssize_t *size);
herr_t H5Pset_meta_merge(hid_t plist, hbool_t merge);
herr_t H5Pget_meta_merge(hid_t plist, hbool_t *merge);
herr_t H5Pset_meta_zip(hid_t plist, hbool_t zip);
herr_t H5Pget_meta_zip(hid_t plist, hbool_t *zip);
herr_t H5Pset_single_subfile_read(hid_t plist, hbool_t single_subfile_read);
herr_t H5Pget_single_subfile_read(hid_t plist, hbool_t *single_subfile_read);
herr_t H5Pset_passthru(hid_t plist, hbool_t enable);
herr_t H5Pget_passthru(hid_t plist, hbool_t *enable);
herr_t H5Pset_passthru_read_write(hid_t plist, hbool_t enable);
herr_t H5Pget_passthru_read_write(hid_t plist, hbool_t *enable);

/* The old name of H5Pset_buffered. */
static inline herr_t H5Pset_nonblocking(hid_t plist, H5VL_log_req_type_t nonblocking)
{
    return H5Pset_buffered(plist, nonblocking == H5VL_LOG_REQ_BLOCKING);
}

static inline herr_t H5Pget_nonblocking(hid_t plist, H5VL_log_req_type_t *nonblocking)
{
    hbool_t buffered = 1;
    const herr_t status = H5Pget_buffered(plist, &buffered);
    *nonblocking = buffered ? H5VL_LOG_REQ_BLOCKING : H5VL_LOG_REQ_NONBLOCKING;
    return status;
}

#ifdef __cplusplus
}
#endif

#endif
