//! Bytes that are written behind each other.

/// Bytes of a file from an address on.
pub struct Space {
    start: u64,
    bytes: Vec<u8>,
}

impl Space {
    /// No bytes yet, of which the first will be at `start`.
    pub fn new(start: u64) -> Self {
        Space {
            start,
            bytes: Vec::new(),
        }
    }

    /// The same, with room for so many bytes.
    pub fn with_room(start: u64, bytes: usize) -> Self {
        let bytes = Vec::with_capacity(bytes);
        Space { start, bytes }
    }

    /// The address of what comes next.
    pub fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }

    /// Adds bytes. Returns their address.
    pub fn put(&mut self, bytes: &[u8]) -> u64 {
        let address = self.end();
        self.bytes.extend(bytes);
        address
    }

    /// Replaces bytes that are there.
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
