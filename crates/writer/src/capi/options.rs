//! Options of a file.

use std::ffi::{c_char, c_int};
use std::time::Duration;

use super::input;
use super::status::{ApiError, Result, to_status};
use crate::{Fsync, Options, Subfiles};

/// A value of `subfiles`: one subfile for each node of the job.
pub const H5LOGFS_SUBFILES_PER_NODE: i64 = -1;

/// A value of `fsync`: the system decides when data go to the disk.
pub const H5LOGFS_FSYNC_NONE: c_int = 0;
/// A value of `fsync`: data are on the disk when a close returns.
pub const H5LOGFS_FSYNC_CLOSE: c_int = 1;
/// A value of `fsync`: data are on the disk when a flush or a close returns.
pub const H5LOGFS_FSYNC_FLUSH: c_int = 2;

/// Options of a file that is created or opened. `h5logfs_options_init` fills in the defaults. `overwrite`,
/// `discard_unclosed`, `keep_unclosed` and `subfiles` are for new files only. All ranks must pass the same
/// options.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct h5logfs_options {
    /// Size of this struct in the caller's header. Set by `h5logfs_options_init`.
    pub size: usize,
    /// 1: replace an existing file. It stays until the new one is made on all ranks. Programs that have
    /// the old file open can go on reading it. A file that a job still writes is never replaced. A file
    /// with flushes of a job that did not close it is replaced only with `discard_unclosed`. 0 (default):
    /// an existing file is an error.
    pub overwrite: c_int,
    /// When data are forced to the disk, as a protection against power failures: H5LOGFS_FSYNC_CLOSE
    /// (default), H5LOGFS_FSYNC_NONE or H5LOGFS_FSYNC_FLUSH. If only the job dies, no flush is lost.
    pub fsync: c_int,
    /// Limit of a rank's buffer in bytes, for data and selections. Default: 32 MiB.
    pub buffer_limit: u64,
    /// 0 (default): the log is in the file itself. n > 0: the log is in n files in the directory
    /// NAME.subfiles, at most one for each rank. Or H5LOGFS_SUBFILES_PER_NODE.
    pub subfiles: i64,
    /// 1 (default): a selection equal to an earlier one of the same rank is stored as a reference.
    pub share_selections: c_int,
    /// 1 (default): the coordinates of many blocks are stored as offsets, in at most half the bytes.
    pub encode_selections: c_int,
    /// 1: the ranks write a flush with one collective call of MPI-IO. 0 (default): each rank writes
    /// independently. Use 1 only with an MPI that reports errors of collective writes. Open MPI 4.1 on
    /// three or more ranks does not: with a full disk the write seems to succeed, or never returns. No
    /// flush is safe then.
    pub collective: c_int,
    /// Hints for MPI-IO, as in an MPI_Info: their number (default 0), and the arrays of their keys and
    /// values. They are copied.
    pub hints: usize,
    pub hint_keys: *const *const c_char,
    pub hint_values: *const *const c_char,
    /// 1, together with `overwrite`: also replace an unclosed log. Its flushes are lost; `h5logfs
    /// recover` would keep them. 0 (default): a log with such flushes is an error.
    pub discard_unclosed: c_int,
    /// 1: at the close, make the file an ordinary HDF5 file, as `h5logfs settle` does. The first rank
    /// does it while the others wait, until the file is on the disk, whatever `fsync` says. Not with
    /// subfiles. 0 (default): the file is a log.
    pub settle: c_int,
    /// 1: each extent has a checksum of its data. Readers of an unclosed log on other nodes then show a
    /// flush only when they see all of it, and the previous one until then. For file systems that show
    /// the writes of other nodes late, such as NFS. 0 (default): no checksums.
    pub checksums: i64,
    /// With `settle`: memory that the first rank may use for its knowledge of the log, in bytes, and as
    /// much again for chunks in the making. A log that needs more is not settled. Default: 256 MiB.
    pub settle_memory: u64,
    /// Seconds after which a flush is automatic: in a call that defines a group, a dataset, an extent or
    /// a scale, when this time has passed since the last flush. Such calls then send a word to all ranks.
    /// A rank whose buffer is older spills it to the disk in its next write; it counts with the next
    /// flush. Appended rows and lent data wait for a flush of the program. 0 (default): only the program
    /// flushes.
    pub flush_every: f64,
    /// Bytes logged by the first rank since the last flush after which a flush is automatic. 0 (default):
    /// no limit.
    pub flush_bytes: u64,
    /// 1, together with `overwrite`: an unclosed log gets another name, `NAME.killed-1` or the first free
    /// number, together with its journal and subfiles. It can be read and recovered there.
    /// `discard_unclosed` takes precedence. 0 (default): such a log is an error.
    pub keep_unclosed: i64,
    /// 1 (default): the coordinates of many blocks with regular steps are deflated. Log VOL connectors
    /// need zlib to read them. 0: they are not.
    pub deflate_selections: i64,
    /// Number of threads that compress the chunks of one write, including the calling one. 0 or 1
    /// (default): only this one.
    pub threads: u64,
}

// SAFETY: numbers and pointers, the size in front.
unsafe impl input::VersionedStruct for h5logfs_options {
    const FIRST_SIZE: usize = std::mem::offset_of!(h5logfs_options, discard_unclosed);
}

/// Fills in the defaults. `size` is sizeof(h5logfs_options), which identifies the version of the header
/// that the program was compiled with. Local.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn h5logfs_options_init(options: *mut h5logfs_options, size: usize) -> c_int {
    // SAFETY: promised by the caller.
    to_status(|| unsafe { input::write_defaults(options, size, defaults) })
}

fn defaults(size: usize) -> h5logfs_options {
    let default = Options::default();
    h5logfs_options {
        size,
        overwrite: default.overwrite.into(),
        fsync: match default.fsync {
            Fsync::None => H5LOGFS_FSYNC_NONE,
            Fsync::Close => H5LOGFS_FSYNC_CLOSE,
            Fsync::Flush => H5LOGFS_FSYNC_FLUSH,
        },
        buffer_limit: default.buffer_limit,
        subfiles: match default.subfiles {
            Subfiles::None => 0,
            Subfiles::Number(n) => n.into(),
            Subfiles::PerNode => H5LOGFS_SUBFILES_PER_NODE,
        },
        share_selections: default.share_selections.into(),
        encode_selections: default.encode_selections.into(),
        collective: default.collective.into(),
        hints: 0,
        hint_keys: std::ptr::null(),
        hint_values: std::ptr::null(),
        discard_unclosed: default.discard_unclosed.into(),
        settle: default.settle.into(),
        checksums: default.checksums.into(),
        settle_memory: default.settle_memory,
        flush_every: default.flush_every.map_or(0.0, |time| time.as_secs_f64()),
        flush_bytes: default.flush_bytes.unwrap_or(0),
        keep_unclosed: default.keep_unclosed.into(),
        deflate_selections: default.deflate_selections.into(),
        threads: default.threads.into(),
    }
}

/// Reads a caller's options. NULL stands for the defaults.
///
/// # Safety
/// The struct and its pointers are valid as documented.
pub(super) unsafe fn read(options: *const h5logfs_options) -> Result<Options> {
    if options.is_null() {
        return Ok(Options::default());
    }
    // SAFETY: promised by the caller.
    let given = unsafe { input::read_struct(options) }?;
    Ok(Options {
        overwrite: input::flag(given.overwrite, "overwrite")?,
        discard_unclosed: input::flag(given.discard_unclosed, "discard_unclosed")?,
        keep_unclosed: wide_flag(given.keep_unclosed, "keep_unclosed")?,
        buffer_limit: given.buffer_limit,
        subfiles: subfiles(given.subfiles)?,
        share_selections: input::flag(given.share_selections, "share_selections")?,
        encode_selections: input::flag(given.encode_selections, "encode_selections")?,
        deflate_selections: wide_flag(given.deflate_selections, "deflate_selections")?,
        collective: input::flag(given.collective, "collective")?,
        settle: input::flag(given.settle, "settle")?,
        settle_memory: given.settle_memory,
        checksums: wide_flag(given.checksums, "checksums")?,
        fsync: match given.fsync {
            H5LOGFS_FSYNC_NONE => Fsync::None,
            H5LOGFS_FSYNC_CLOSE => Fsync::Close,
            H5LOGFS_FSYNC_FLUSH => Fsync::Flush,
            other => return Err(input::unknown_value("fsync", other.into())),
        },
        flush_every: flush_every(given.flush_every)?,
        flush_bytes: Some(given.flush_bytes).filter(|bytes| *bytes > 0),
        threads: u32::try_from(given.threads).unwrap_or(u32::MAX),
        // SAFETY: promised by the caller.
        hints: unsafe { hints(&given) }?,
    })
}

fn flush_every(seconds: f64) -> Result<Option<Duration>> {
    let time = Duration::try_from_secs_f64(seconds);
    let time = time.map_err(|_| {
        ApiError::invalid(format!(
            "flush_every has no value {seconds}: it is a number of seconds"
        ))
    })?;
    Ok(Some(time).filter(|time| !time.is_zero()))
}

/// Reads a flag of 64 bits. A narrower one could lie in the final padding of an earlier struct, which has arbitrary bytes.
fn wide_flag(value: i64, name: &'static str) -> Result<bool> {
    input::flag(c_int::try_from(value).unwrap_or(-1), name)
}

fn subfiles(number: i64) -> Result<Subfiles> {
    match number {
        0 => Ok(Subfiles::None),
        H5LOGFS_SUBFILES_PER_NODE => Ok(Subfiles::PerNode),
        n => match u32::try_from(n) {
            Ok(n) => Ok(Subfiles::Number(n)),
            Err(_) => Err(input::unknown_value("subfiles", n)),
        },
    }
}

/// # Safety
/// See [`read`].
unsafe fn hints(given: &h5logfs_options) -> Result<Vec<(String, String)>> {
    // SAFETY: promised by the caller.
    let (keys, values) = unsafe {
        (
            input::texts(given.hint_keys, given.hints, "a key of the hints")?,
            input::texts(given.hint_values, given.hints, "a value of the hints")?,
        )
    };
    if keys.iter().any(|key| key.is_empty()) {
        return Err(ApiError::invalid("a key of the hints is empty"));
    }
    let pairs = keys.iter().zip(values);
    Ok(pairs
        .map(|(k, v)| ((*k).to_owned(), v.to_owned()))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn initialised() -> h5logfs_options {
        defaults(size_of::<h5logfs_options>())
    }

    fn read_back(options: &h5logfs_options) -> Result<Options> {
        // SAFETY: the struct is complete, and its pointers are valid.
        unsafe { read(options) }
    }

    #[test]
    fn defaults_are_those_of_the_writer() {
        assert_eq!(read_back(&initialised()).unwrap(), Options::default());
    }

    #[test]
    fn all_options_arrive() {
        let (keys, values) = ([c"cb_nodes".as_ptr()], [c"2".as_ptr()]);
        let options = h5logfs_options {
            overwrite: 1,
            discard_unclosed: 1,
            fsync: H5LOGFS_FSYNC_FLUSH,
            buffer_limit: 77,
            subfiles: 3,
            share_selections: 0,
            encode_selections: 0,
            collective: 1,
            settle: 1,
            settle_memory: 99,
            checksums: 1,
            flush_every: 0.25,
            flush_bytes: 55,
            keep_unclosed: 1,
            deflate_selections: 0,
            threads: 3,
            hints: 1,
            hint_keys: keys.as_ptr(),
            hint_values: values.as_ptr(),
            ..initialised()
        };
        let wanted = Options {
            overwrite: true,
            discard_unclosed: true,
            keep_unclosed: true,
            buffer_limit: 77,
            subfiles: Subfiles::Number(3),
            share_selections: false,
            encode_selections: false,
            deflate_selections: false,
            threads: 3,
            collective: true,
            settle: true,
            settle_memory: 99,
            checksums: true,
            flush_every: Some(Duration::from_millis(250)),
            flush_bytes: Some(55),
            fsync: Fsync::Flush,
            hints: vec![("cb_nodes".into(), "2".into())],
        };
        assert_eq!(read_back(&options).unwrap(), wanted);
    }

    #[test]
    fn a_program_of_the_first_header_discards_nothing() {
        let options = h5logfs_options {
            size: 72,
            overwrite: 1,
            discard_unclosed: 7,
            ..initialised()
        };
        let read = read_back(&options).unwrap();
        assert!(read.overwrite && !read.discard_unclosed && !read.checksums);
        let second = h5logfs_options {
            size: 80,
            checksums: 7,
            ..options
        };
        assert!(
            !read_back(&h5logfs_options {
                discard_unclosed: 1,
                ..second
            })
            .unwrap()
            .checksums
        );
    }

    #[test]
    fn unknown_values_are_refused() {
        let good = initialised();
        let bad = [
            h5logfs_options { fsync: 3, ..good },
            h5logfs_options { fsync: -1, ..good },
            h5logfs_options {
                overwrite: 2,
                ..good
            },
            h5logfs_options {
                discard_unclosed: 2,
                ..good
            },
            h5logfs_options {
                subfiles: -2,
                ..good
            },
            h5logfs_options {
                subfiles: 1 << 32,
                ..good
            },
            h5logfs_options {
                share_selections: -1,
                ..good
            },
            h5logfs_options {
                encode_selections: 7,
                ..good
            },
            h5logfs_options {
                deflate_selections: 2,
                ..good
            },
            h5logfs_options {
                collective: 2,
                ..good
            },
            h5logfs_options { settle: 2, ..good },
            h5logfs_options {
                checksums: 1 << 32,
                ..good
            },
            h5logfs_options { hints: 1, ..good },
            h5logfs_options {
                flush_every: -1.0,
                ..good
            },
            h5logfs_options {
                flush_every: f64::NAN,
                ..good
            },
            h5logfs_options { size: 0, ..good },
        ];
        for options in bad {
            assert!(read_back(&options).is_err(), "{options:?}");
        }
    }
}
