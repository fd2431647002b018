//! How a file is written.

/// How a log is spread over files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Subfiles {
    /// In the file itself.
    #[default]
    None,
    /// In so many files in the directory `NAME.subfiles`; at most one a rank.
    Number(u32),
    /// In as many files as the job has nodes.
    PerNode,
}

/// When the bytes are forced to the disk. The death of the job, however sudden, loses no flush in any
/// case: this is about the loss of power.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Fsync {
    /// When the system likes.
    None,
    /// Before a close returns: the journal is kept until the file is safe.
    #[default]
    Close,
    /// Before a flush returns, too.
    Flush,
}

/// Options of a new file.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Options {
    /// Replace a file of that name. Who has the old one open keeps it.
    pub overwrite: bool,
    /// Bytes that a rank may hold between flushes, data and entries.
    pub buffer_limit: u64,
    pub subfiles: Subfiles,
    /// A selection that an earlier write of the rank had is not spelled out again.
    pub share_selections: bool,
    /// The coordinates of many blocks are written as offsets, which takes half the bytes or less.
    pub encode_selections: bool,
    pub fsync: Fsync,
    /// Ranks write a flush in one collective call, `MPI_File_write_at_all`, where MPI may gather their
    /// data on few of them, instead of each for itself.
    ///
    /// Only for an MPI that tells of failures: Open MPI 4.1 on three or more ranks calls a collective
    /// write to a full disk a success, or never returns from it, and no flush is safe then.
    pub collective: bool,
    /// Hints for MPI-IO: keys and values of an `MPI_Info`.
    pub hints: Vec<(String, String)>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            overwrite: false,
            buffer_limit: 256 << 20,
            subfiles: Subfiles::None,
            share_selections: true,
            encode_selections: true,
            fsync: Fsync::Close,
            collective: false,
            hints: Vec::new(),
        }
    }
}
