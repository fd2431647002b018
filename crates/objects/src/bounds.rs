//! Limits for a walk through a file.

use h5logfs_log::image::HeaderBytes;

use crate::Result;

/// The bytes that a walk may still read. In a valid file, no two things share bytes, so all of them together are no
/// longer than the file. The limit ends walks in circles, and bounds the cost of many pointers to the same bytes.
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
