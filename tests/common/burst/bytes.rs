//! The bytes of a metadata log: its header (2.1) and its entries (2.3). The unit tests of the log crate include this
//! file, too, so that one encoder serves whole logs and logs with one wrong field.

pub const MAGIC: &[u8] = b"PnetCDF0";
pub const HOST: &str = "vm";

/// The byte order of a log.
#[derive(Debug, Clone, Copy)]
pub struct Order {
    pub big_endian: bool,
}

impl Order {
    pub fn int(self, number: i32) -> [u8; 4] {
        if self.big_endian {
            number.to_be_bytes()
        } else {
            number.to_le_bytes()
        }
    }

    pub fn word(self, number: i64) -> [u8; 8] {
        if self.big_endian {
            number.to_be_bytes()
        } else {
            number.to_le_bytes()
        }
    }
}

/// Length of the header (2.1: H).
pub fn header_len(path: &str) -> usize {
    (86 + path.len() + HOST.len()).next_multiple_of(16)
}

/// The fields of a header that differ between logs.
#[derive(Debug, Clone, Copy)]
pub struct Header<'a> {
    pub path: &'a str,
    pub ranks: i64,
    pub rank: i64,
    pub num_entries: i64,
    pub entry_begin: i64,
}

impl Header<'_> {
    pub fn bytes(&self, order: Order) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend(b"CDF0\0\0\0\0");
        bytes.extend(order.int(order.big_endian.into()));
        bytes.extend(order.int(0));
        let path_len = self.path.len() as i64;
        for word in [
            self.ranks,
            self.rank,
            0,
            self.num_entries,
            self.entry_begin,
            path_len,
        ] {
            bytes.extend(order.word(word));
        }
        bytes.extend(self.path.as_bytes());
        bytes.push(0);
        bytes.extend(order.int(HOST.len() as i32));
        bytes.extend(HOST.as_bytes());
        bytes.resize(header_len(self.path), 0);
        bytes
    }
}

/// The fields of an entry before its index arrays.
#[derive(Debug, Clone, Copy)]
pub struct Head {
    /// The kind of call: -3, -4, or a number of pieces.
    pub call: i32,
    /// Code of the type in the program's memory.
    pub memory: i32,
    pub variable: i32,
    pub rank: i32,
    /// Place of the values in the data log, in bytes.
    pub offset: i64,
    pub len: i64,
}

/// An entry with its index arrays.
pub fn entry(order: Order, head: Head, words: &[i64]) -> Vec<u8> {
    let mut bytes = order.word(40 + 8 * words.len() as i64).to_vec();
    for number in [head.call, head.memory, head.variable, head.rank] {
        bytes.extend(order.int(number));
    }
    for word in [head.offset, head.len].iter().chain(words) {
        bytes.extend(order.word(*word));
    }
    bytes
}
