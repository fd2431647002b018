//! The first step, looked at with few reads. A mount asks this about each directory that it lists, and reads the bytes
//! in its own process: the work is bounded, whatever they say.

use crate::header::{Header, Version};
use crate::{Bytes, Files, Result, bp4, bp5};

/// Whether the first step has a variable of this name. `None` if there is no complete step yet.
///
/// Looks at the first 1,024 writers of BP5, and at the first 16,384 variables of BP4.
pub fn has_variable(files: Files<'_>, name: &str) -> Result<Option<bool>> {
    let header = Header::read(files.index)?;
    match header.version {
        Version::Bp4 => bp4::first_step::has_variable(files, header, name),
        Version::Bp5 => bp5::first_step::has_variable(files, &header, name),
    }
}

/// The first bytes of a file.
pub(crate) struct Front<'a> {
    file: &'a dyn Bytes,
    len: u64,
}

impl<'a> Front<'a> {
    /// The first `most` bytes, or all of a shorter file.
    pub fn new(file: &'a dyn Bytes, most: u64) -> Self {
        let len = file.len().min(most);
        Front { file, len }
    }
}

impl Bytes for Front<'_> {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_exact_at(&self, buffer: &mut [u8], at: u64) -> Result<()> {
        let end = at.checked_add(buffer.len() as u64);
        if end.is_none_or(|end| end > self.len) {
            return Err("ends before these bytes".into());
        }
        self.file.read_exact_at(buffer, at)
    }
}
