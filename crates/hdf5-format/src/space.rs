//! Bytes of a file that are written in sequence.

/// Bytes of a file from an address on.
pub struct Space {
    start: u64,
    bytes: Vec<u8>,
}

impl Space {
    /// An empty space. Its first byte will be at `start`.
    pub fn new(start: u64) -> Self {
        Space {
            start,
            bytes: Vec::new(),
        }
    }

    /// An empty space with memory for `bytes` bytes.
    pub fn with_room(start: u64, bytes: usize) -> Self {
        let bytes = Vec::with_capacity(bytes);
        Space { start, bytes }
    }

    /// The address of the next bytes.
    pub fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }

    /// Adds bytes, and returns their address.
    pub fn put(&mut self, bytes: &[u8]) -> u64 {
        let address = self.end();
        self.bytes.extend(bytes);
        address
    }

    /// Replaces earlier bytes.
    pub fn set(&mut self, address: u64, bytes: &[u8]) {
        let at = (address - self.start) as usize;
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// Bytes that are there.
    pub fn get(&self, address: u64, len: usize) -> Option<&[u8]> {
        let at = usize::try_from(address.checked_sub(self.start)?).ok()?;
        self.bytes.get(at..)?.get(..len)
    }

    /// All of them.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}
