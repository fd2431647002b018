//! How much a walk through a file may take.

use crate::{HeaderBytes, Result};

/// The bytes that a walk may still take. In a sound file each is a part of one thing, so all things together are not longer
/// than the file. This ends walks in circles, and bounds what many pointers to the same bytes take.
#[derive(Debug)]
pub struct Allowance(u64);

impl Allowance {
    /// Of a walk through all of these bytes.
    pub fn of<B: HeaderBytes + ?Sized>(bytes: &B) -> Self {
        Allowance(bytes.size())
    }

    /// Takes `len` bytes. Fails where so many are not left.
    pub fn take(&mut self, len: u64) -> Result<()> {
        let left = self.0.checked_sub(len);
        self.0 = left.ok_or("more than the bytes of the file can hold")?;
        Ok(())
    }
}
