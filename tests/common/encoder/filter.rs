//! HDF5's filters, done slowly and obviously (HDF5 File Format Specification, IV.A.2.l).

use std::io::{Read, Write};

pub const DEFLATE: i32 = 1;
pub const SHUFFLE: i32 = 2;
pub const FLETCHER32: i32 = 3;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filter {
    pub id: i32,
    pub flags: u32,
    pub values: Vec<u32>,
}

impl Filter {
    pub fn deflate(level: u32) -> Self {
        Filter {
            id: DEFLATE,
            flags: 1,
            values: vec![level],
        }
    }

    pub fn shuffle(width: usize) -> Self {
        Filter {
            id: SHUFFLE,
            flags: 1,
            values: vec![width as u32],
        }
    }

    pub fn fletcher32() -> Self {
        Filter {
            id: FLETCHER32,
            flags: 0,
            values: Vec::new(),
        }
    }

    /// The filter in the form of `_h5logfs_filters`.
    pub fn words(&self) -> Vec<u32> {
        let head = [self.id as u32, self.flags, self.values.len() as u32];
        [&head, self.values.as_slice()].concat()
    }

    fn width(&self) -> usize {
        self.values.first().map_or(1, |w| *w as usize)
    }
}

pub fn apply(filters: &[Filter], raw: &[u8]) -> Vec<u8> {
    filters
        .iter()
        .fold(raw.to_vec(), |bytes, filter| match filter.id {
            DEFLATE => deflate(&bytes),
            SHUFFLE => transpose(&bytes, filter.width(), true),
            FLETCHER32 => [&bytes[..], &fletcher32(&bytes).to_le_bytes()].concat(),
            other => panic!("filter {other}"),
        })
}

pub fn undo(filters: &[Filter], stored: &[u8]) -> Vec<u8> {
    try_undo(filters, stored).expect("bytes that went through these filters")
}

/// Undoes filters. `None` where the bytes are damaged and the filters notice.
pub fn try_undo(filters: &[Filter], stored: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = stored.to_vec();
    for filter in filters.iter().rev() {
        bytes = match filter.id {
            DEFLATE => try_inflate(&bytes)?,
            SHUFFLE => transpose(&bytes, filter.width(), false),
            FLETCHER32 => {
                let (data, sum) = bytes.split_at_checked(bytes.len().checked_sub(4)?)?;
                (sum == fletcher32(data).to_le_bytes()).then(|| data.to_vec())?
            }
            other => panic!("filter {other}"),
        };
    }
    Some(bytes)
}

pub fn deflate(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

pub fn inflate(stored: &[u8]) -> Vec<u8> {
    try_inflate(stored).expect("a zlib stream")
}

fn try_inflate(stored: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut decoder = flate2::read::ZlibDecoder::new(stored);
    decoder.read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// Moves byte j of element i to j * elements + i; the remainder stays at the end.
fn transpose(bytes: &[u8], width: usize, forward: bool) -> Vec<u8> {
    let elements = bytes.len() / width;
    let mut out = bytes.to_vec();
    for i in 0..elements {
        for j in 0..width {
            let (apart, together) = (j * elements + i, i * width + j);
            if forward {
                out[apart] = bytes[together];
            } else {
                out[together] = bytes[apart];
            }
        }
    }
    out
}

/// Two sums modulo 65535 over big-endian 16-bit words; an odd byte is the high one of its word. A sum of zero over
/// data is 65535, as in libhdf5.
fn fletcher32(bytes: &[u8]) -> u32 {
    let fold = |sum: u64| match sum {
        0 => 0,
        _ => (sum - 1) % 65_535 + 1,
    };
    let (mut a, mut b) = (0u64, 0u64);
    for word in bytes.chunks(2) {
        let low = word.get(1).copied().unwrap_or(0);
        a = fold(a + (u64::from(word[0]) << 8) + u64::from(low));
        b = fold(b + a);
    }
    (b << 16 | a) as u32
}
