//! Splits the bytes of the fuzzer into numbers and parts.

/// Reads from the front. Behind the end there are zeros.
pub struct Input<'a>(pub &'a [u8]);

impl<'a> Input<'a> {
    /// Takes at most `len` bytes.
    pub fn bytes(&mut self, len: usize) -> &'a [u8] {
        let (bytes, rest) = self.0.split_at(len.min(self.0.len()));
        self.0 = rest;
        bytes
    }

    pub fn u64(&mut self) -> u64 {
        self.number(8)
    }

    pub fn u32(&mut self) -> u32 {
        self.number(4) as u32
    }

    pub fn u8(&mut self) -> u8 {
        self.number(1) as u8
    }

    fn number(&mut self, len: usize) -> u64 {
        let bytes = self.bytes(len).iter().rev();
        bytes.fold(0, |number, byte| number << 8 | u64::from(*byte))
    }

    /// The rest in two parts. The input says the length of the first.
    pub fn two_parts(mut self) -> (&'a [u8], &'a [u8]) {
        let len = self.u32() as usize;
        (self.bytes(len), self.0)
    }
}

/// The inverse of [`Input`].
#[derive(Default)]
pub struct Output(pub Vec<u8>);

impl Output {
    pub fn put(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }

    pub fn u64(self, number: u64) -> Self {
        self.put(&number.to_le_bytes())
    }

    pub fn u32(self, number: u64) -> Self {
        self.put(&(number as u32).to_le_bytes())
    }

    pub fn u8(self, number: usize) -> Self {
        self.put(&[number as u8])
    }

    pub fn two_parts(self, first: &[u8], second: &[u8]) -> Vec<u8> {
        self.u32(first.len() as u64).put(first).put(second).0
    }
}
