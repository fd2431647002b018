//! ADIOS2 BP4 and BP5 directories: the content of each step, and the HDF5 objects that a reader sees. Section numbers
//! in this crate refer to `docs/formats/adios-bp.md`. The crate opens no file and needs no ADIOS2: it turns bytes into
//! plain data.
//!
//! * `header`: the first bytes of `md.idx`, which tell the version.
//! * `bp4`, `bp5`: the metadata of one step, as a [`Step`]. `directory` chooses between them.
//! * `asked`: the parts of a step to read.
//! * `first_step`: a cheap look at the first step, to know whose directory it is.
//! * `operator`: decodes blocks that were written with an operator.
//! * `scorpio`: the netCDF file that SCORPIO wrote as a directory.
//! * `tree`: the groups, datasets and attributes of all steps.
//! * [`model`]: the data that these modules exchange.
//!
//! **Bytes may be hostile.** Every call ends, and its memory is bounded by the number of bytes.

#![deny(missing_docs)]

mod asked;
pub mod bp4;
pub mod bp5;
pub mod directory;
mod fields;
pub mod first_step;
pub mod header;
pub mod model;
mod numbers;
pub mod operator;
pub mod scorpio;
pub mod tree;

pub use model::{Block, Kind, Place, Step, Type, Variable};

/// The result of reading a file.
pub type Result<T> = std::result::Result<T, h5logfs_common::fault::Fault>;

/// The bytes of one file of a directory, which may grow while it is read.
pub trait Bytes {
    /// Length in bytes.
    fn len(&self) -> u64;

    /// Whether the length is zero.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Fills `buffer` from offset `at`. Fails where the file lacks some of the bytes.
    fn read_exact_at(&self, buffer: &mut [u8], at: u64) -> Result<()>;
}

impl<T: AsRef<[u8]>> Bytes for T {
    fn len(&self) -> u64 {
        <[u8]>::len(self.as_ref()) as u64
    }

    fn read_exact_at(&self, buffer: &mut [u8], at: u64) -> Result<()> {
        let bytes = usize::try_from(at).ok().and_then(|at| {
            let end = at.checked_add(<[u8]>::len(buffer))?;
            self.as_ref().get(at..end)
        });
        buffer.copy_from_slice(bytes.ok_or("ends before these bytes")?);
        Ok(())
    }
}

/// The metadata files of a directory.
#[derive(Clone, Copy)]
pub struct Files<'a> {
    /// `md.idx`.
    pub index: &'a dyn Bytes,
    /// `md.0`.
    pub metadata: &'a dyn Bytes,
    /// `mmd.0`; BP4 has none.
    pub formats: Option<&'a dyn Bytes>,
}
