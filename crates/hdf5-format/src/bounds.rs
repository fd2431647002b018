//! Limits for a walk through a file.

use crate::{HeaderBytes, Result};

/// The bytes that a walk may still read. In a sound file each byte is part of one structure, so all structures together are not
/// longer than the file. The allowance ends walks in circles, and bounds what many pointers to the same bytes cost.
#[derive(Debug)]
pub struct Allowance(u64);

impl Allowance {
    /// The allowance for a walk through all of these bytes.
    pub fn of<B: HeaderBytes + ?Sized>(bytes: &B) -> Self {
        Allowance(bytes.size())
    }

    /// Takes `len` bytes. Fails if fewer are left.
    pub fn take(&mut self, len: u64) -> Result<()> {
        let left = self.0.checked_sub(len);
        self.0 = left.ok_or("more than the bytes of the file can hold")?;
        Ok(())
    }
}
