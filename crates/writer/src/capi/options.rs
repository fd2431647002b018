//! Options of a new file.

use std::ffi::{c_char, c_int};

use super::input;
use super::status::{Fault, Result, answer};
use crate::{Fsync, Options, Subfiles};

/// As many subfiles as the job has nodes: a value of `subfiles`.
pub const H5LOGFS_SUBFILES_PER_NODE: i64 = -1;

/// Bytes are forced to the disk when the system likes: a value of `fsync`.
pub const H5LOGFS_FSYNC_NONE: c_int = 0;
/// Before a close returns: a value of `fsync`.
pub const H5LOGFS_FSYNC_CLOSE: c_int = 1;
/// Before a flush returns, too: a value of `fsync`.
pub const H5LOGFS_FSYNC_FLUSH: c_int = 2;

/// Options of a new file. `h5logfs_options_init` fills them in; change what shall be otherwise. All
/// ranks give the same ones.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct h5logfs_options {
    /// Bytes of this struct as the caller knows it. Set by `h5logfs_options_init`.
    pub size: usize,
    /// 1: replace a file of that name, whose readers keep the old one. 0 (default): that is an error.
    pub overwrite: c_int,
    /// When bytes are forced to the disk, against a loss of power: H5LOGFS_FSYNC_CLOSE (default),
    /// _NONE or _FLUSH. The death of the job, however sudden, loses no flush in any case.
    pub fsync: c_int,
    /// Bytes that a rank may hold between flushes, data and what describes them. Default: 256 MiB.
    pub buffer_limit: u64,
    /// How the log is spread: 0 (default) in the file itself; n > 0 in so many files in the directory
    /// NAME.subfiles, at most one a rank; H5LOGFS_SUBFILES_PER_NODE.
    pub subfiles: i64,
    /// 1 (default): a selection that an earlier write of the rank had is not spelled out again.
    pub share_selections: c_int,
    /// 1 (default): the coordinates of many blocks are written as offsets, which takes half the bytes
    /// or less.
    pub encode_selections: c_int,
    /// 1: the ranks write a flush in one collective call of MPI-IO. 0 (default): each for itself. Only
    /// for an MPI that tells of failures: Open MPI 4.1 on three or more ranks calls a collective write
    /// to a full disk a success, or never returns from it, and no flush is safe then.
    pub collective: c_int,
    /// Hints for MPI-IO, as an MPI_Info would have them: how many (default 0), and the arrays of their
    /// keys and values. They are copied.
    pub hints: usize,
    pub hint_keys: *const *const c_char,
    pub hint_values: *const *const c_char,
}

// SAFETY: numbers and pointers, the size in front.
unsafe impl input::Growing for h5logfs_options {}

/// Fills in the defaults. `size`: sizeof(h5logfs_options), so that programs and libraries of different
/// age understand each other. Local.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn h5logfs_options_init(options: *mut h5logfs_options, size: usize) -> c_int {
    // SAFETY: as the caller says.
    answer(|| unsafe { input::set_defaults(options, size, defaults) })
}

fn defaults(size: usize) -> h5logfs_options {
    let of = Options::default();
    h5logfs_options {
        size,
        overwrite: of.overwrite.into(),
        fsync: match of.fsync {
            Fsync::None => H5LOGFS_FSYNC_NONE,
            Fsync::Close => H5LOGFS_FSYNC_CLOSE,
            Fsync::Flush => H5LOGFS_FSYNC_FLUSH,
        },
        buffer_limit: of.buffer_limit,
        subfiles: match of.subfiles {
            Subfiles::None => 0,
            Subfiles::Number(n) => n.into(),
            Subfiles::PerNode => H5LOGFS_SUBFILES_PER_NODE,
        },
        share_selections: of.share_selections.into(),
        encode_selections: of.encode_selections.into(),
        collective: of.collective.into(),
        hints: 0,
        hint_keys: std::ptr::null(),
        hint_values: std::ptr::null(),
    }
}

/// A caller's options; NULL are the defaults.
///
/// # Safety
/// The struct and its pointers are what they are documented to be.
pub(super) unsafe fn read(options: *const h5logfs_options) -> Result<Options> {
    if options.is_null() {
        return Ok(Options::default());
    }
    // SAFETY: as the caller says.
    let given = unsafe { input::given(options) }?;
    Ok(Options {
        overwrite: input::flag(given.overwrite, "overwrite")?,
        buffer_limit: given.buffer_limit,
        subfiles: subfiles(given.subfiles)?,
        share_selections: input::flag(given.share_selections, "share_selections")?,
        encode_selections: input::flag(given.encode_selections, "encode_selections")?,
        collective: input::flag(given.collective, "collective")?,
        fsync: match given.fsync {
            H5LOGFS_FSYNC_NONE => Fsync::None,
            H5LOGFS_FSYNC_CLOSE => Fsync::Close,
            H5LOGFS_FSYNC_FLUSH => Fsync::Flush,
            other => return Err(input::unknown("fsync", other.into())),
        },
        // SAFETY: as the caller says.
        hints: unsafe { hints(&given) }?,
    })
}

fn subfiles(number: i64) -> Result<Subfiles> {
    match number {
        0 => Ok(Subfiles::None),
        H5LOGFS_SUBFILES_PER_NODE => Ok(Subfiles::PerNode),
        n => match u32::try_from(n) {
            Ok(n) => Ok(Subfiles::Number(n)),
            Err(_) => Err(input::unknown("subfiles", n)),
        },
    }
}

/// # Safety
/// As of [`read`].
unsafe fn hints(given: &h5logfs_options) -> Result<Vec<(String, String)>> {
    // SAFETY: as the caller says.
    let (keys, values) = unsafe {
        (
            input::texts(given.hint_keys, given.hints, "a key of the hints")?,
            input::texts(given.hint_values, given.hints, "a value of the hints")?,
        )
    };
    if keys.iter().any(|key| key.is_empty()) {
        return Err(Fault::invalid("a key of the hints is empty"));
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
        // SAFETY: the struct is whole, and its pointers lead to what they say.
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
            fsync: H5LOGFS_FSYNC_FLUSH,
            buffer_limit: 77,
            subfiles: 3,
            share_selections: 0,
            encode_selections: 0,
            collective: 1,
            hints: 1,
            hint_keys: keys.as_ptr(),
            hint_values: values.as_ptr(),
            ..initialised()
        };
        let wanted = Options {
            overwrite: true,
            buffer_limit: 77,
            subfiles: Subfiles::Number(3),
            share_selections: false,
            encode_selections: false,
            collective: true,
            fsync: Fsync::Flush,
            hints: vec![("cb_nodes".into(), "2".into())],
        };
        assert_eq!(read_back(&options).unwrap(), wanted);
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
                collective: 2,
                ..good
            },
            h5logfs_options { hints: 1, ..good },
            h5logfs_options { size: 0, ..good },
        ];
        for options in bad {
            assert!(read_back(&options).is_err(), "{options:?}");
        }
    }
}
