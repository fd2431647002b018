//! Options of a file.

use std::time::Duration;

use crate::error::FaultResult;
use h5logfs_common::fault::Fault;
use h5logfs_log::logvol::{ENCODED, SHARED};

/// The files that hold the data of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Subfiles {
    /// The file itself.
    #[default]
    None,
    /// This many files in the directory `NAME.subfiles`, at most one for each rank.
    Number(u32),
    /// One file for each node of the job.
    PerNode,
}

/// The times at which data are forced to the disk, as a protection against power failures. If only the job dies, no
/// flush is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Fsync {
    /// The system decides.
    None,
    /// Before a close returns. The journal stays until the file is on the disk.
    #[default]
    Close,
    /// Before a flush or a close returns.
    Flush,
}

/// Options of a file that is created or reopened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Replace an existing file. It stays until the new one is made on all ranks. Programs that have the old file open can go
    /// on reading it. A file that a job still writes is never replaced. A file with flushes of a job that did not close it is
    /// replaced only with `discard_unclosed`.
    pub overwrite: bool,
    /// With `overwrite`: also replace an unclosed log. Its flushes are lost; `h5logfs recover` would keep them.
    pub discard_unclosed: bool,
    /// With `overwrite`: an unclosed log gets another name, `NAME.killed-1` or the first free number, together with its
    /// journal and subfiles. It can be read and recovered there. `discard_unclosed` takes precedence.
    pub keep_unclosed: bool,
    /// Limit of a rank's buffer in bytes, for data and entries. A full buffer goes to the disk before the flush, and so does
    /// a large write, or one larger than the buffer.
    pub buffer_limit: u64,
    pub subfiles: Subfiles,
    /// Store a selection that is equal to an earlier one of the same rank as a reference.
    pub share_selections: bool,
    /// Store the coordinates of many blocks as offsets, in at most half the bytes.
    pub encode_selections: bool,
    /// Deflate the coordinates of many consecutive small writes with regular steps to one or two bytes each. Writes
    /// interleaved with those of other ranks have such steps. Connectors that read logs need zlib for them.
    pub deflate_selections: bool,
    pub fsync: Fsync,
    /// Write a flush with one collective call, `MPI_File_write_at_all`, in which MPI may gather the data of several ranks. By
    /// default each rank writes independently.
    ///
    /// Use this only with an MPI that reports errors of collective writes. Open MPI 4.1 on three or more ranks does not: with
    /// a full disk the write seems to succeed, or never returns. No flush is safe then.
    pub collective: bool,
    /// At the close, make the file an ordinary HDF5 file, as `h5logfs settle` does. The first rank does this while the
    /// others wait. The close returns when the file is on the disk, whatever `fsync` says. Not with subfiles.
    pub settle: bool,
    /// With `settle`: memory in bytes that the first rank may use for its knowledge of the log. It may use as much
    /// again for unfinished chunks. A log that needs more is not settled.
    pub settle_memory: u64,
    /// Give each extent a checksum of its data. Readers of an unclosed log on other nodes then show a flush only when they
    /// see all of it, and the previous one until then. For file systems that show the writes of other nodes late, such as
    /// NFS.
    pub checksums: bool,
    /// Flush automatically when this time has passed since the last flush, in a call that all ranks make. `None`: flush
    /// only when the program asks. A rank that makes no such call writes its buffer to the disk by itself while it
    /// waits for the flush.
    pub flush_every: Option<Duration>,
    /// Flush automatically when the first rank has logged this many bytes since the last flush.
    pub flush_bytes: Option<u64>,
    /// Number of threads that compress the chunks of one write, including the calling one. By default a rank has one core.
    pub threads: u32,
    /// Hints for MPI-IO: the keys and values of an `MPI_Info`.
    pub hints: Vec<(String, String)>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            overwrite: false,
            discard_unclosed: false,
            keep_unclosed: false,
            buffer_limit: 32 << 20,
            subfiles: Subfiles::None,
            share_selections: true,
            encode_selections: true,
            deflate_selections: true,
            fsync: Fsync::Close,
            collective: false,
            settle: false,
            settle_memory: 256 << 20,
            checksums: false,
            flush_every: None,
            flush_bytes: None,
            threads: 1,
            hints: Vec::new(),
        }
    }
}

impl Options {
    /// Name and value of each option, to compare them between ranks.
    pub fn texts(&self) -> [(&'static str, String); 17] {
        let Options {
            overwrite,
            discard_unclosed,
            keep_unclosed,
            buffer_limit,
            subfiles,
            share_selections,
            encode_selections,
            deflate_selections,
            fsync,
            collective,
            settle,
            settle_memory,
            checksums,
            flush_every,
            flush_bytes,
            threads,
            hints,
        } = self;
        [
            ("overwrite", overwrite.to_string()),
            ("discard_unclosed", discard_unclosed.to_string()),
            ("keep_unclosed", keep_unclosed.to_string()),
            ("buffer_limit", buffer_limit.to_string()),
            ("subfiles", format!("{subfiles:?}")),
            ("share_selections", share_selections.to_string()),
            ("encode_selections", encode_selections.to_string()),
            ("deflate_selections", deflate_selections.to_string()),
            ("fsync", format!("{fsync:?}")),
            ("collective", collective.to_string()),
            ("settle", settle.to_string()),
            ("settle_memory", settle_memory.to_string()),
            ("checksums", checksums.to_string()),
            ("flush_every", format!("{flush_every:?}")),
            ("flush_bytes", format!("{flush_bytes:?}")),
            ("threads", threads.to_string()),
            ("hints", format!("{hints:?}")),
        ]
    }

    /// The config bits of the layout.
    pub(crate) fn config(&self) -> i32 {
        let mut config = 0;
        if self.encode_selections {
            config |= ENCODED;
        }
        if self.share_selections {
            config |= SHARED;
        }
        config
    }

    /// Fails if a log cannot be settled at its close, because it has subfiles.
    pub(crate) fn check_settle(&self, has_subfiles: bool) -> FaultResult {
        if self.settle && has_subfiles {
            return Err(Fault::Refused(
                "the option `settle` is for a log in one file. This log has subfiles, so its data lie in other files: leave the \
                 option out, and `h5logfs compact` or `h5logfs export` makes one file of them"
                    .into(),
            ));
        }
        Ok(())
    }
}
