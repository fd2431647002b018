//! Members of a TAR archive (POSIX.1 pax and ustar, GNU).

use h5logfs_common::error::Result;

use crate::source_file::SourceFile;

/// The bytes of a header, and those that members are filled up to.
const BLOCK: u64 = 512;
/// The most headers that are looked at. A long name has one of its own.
const MOST_HEADERS: usize = 300;
/// The longest list of names in front of a member that is read. A path has 4096 bytes, and other facts may stand beside it.
const LONGEST: u64 = 64 << 10;

/// A member with bytes of its own.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Member {
    pub name: String,
    /// Offset of its bytes in the archive.
    pub at: u64,
    /// The number of bytes.
    pub len: u64,
}

/// The members of an archive, as far as it begins with them. The archive may be cut off.
pub(super) struct Members<'a> {
    file: &'a SourceFile,
    at: u64,
    headers: usize,
}

impl<'a> Members<'a> {
    /// The members of `file`, none if it is no archive.
    pub fn of(file: &'a SourceFile) -> Self {
        Members {
            file,
            at: 0,
            headers: 0,
        }
    }

    /// The next member. `None` at the end, after the most headers, and where the bytes are no header.
    pub fn next(&mut self) -> Result<Option<Member>> {
        let mut before = Before::default();
        while let Some((header, at)) = self.header()? {
            let len = match before.len {
                _ if !header.has_bytes() => 0,
                Some(len) if !header.is_before_member() => len,
                _ => header.len,
            };
            let Some(next) = len
                .checked_next_multiple_of(BLOCK)
                .and_then(|len| len.checked_add(at))
            else {
                break;
            };
            self.at = next;
            match header.kind {
                b'L' => before.name = self.text(at, len)?.map(|text| first_text(&text)),
                b'x' => {
                    if let Some(records) = self.text(at, len)? {
                        before.read(&records);
                    }
                }
                // The target of a link, and what holds for all members.
                b'K' | b'g' => {}
                _ => {
                    let name = before.name.unwrap_or(header.name);
                    return Ok(Some(Member { name, at, len }));
                }
            }
        }
        Ok(None)
    }

    /// The header at the present place, and the offset behind it.
    fn header(&mut self) -> Result<Option<(Header, u64)>> {
        let end = self.at.checked_add(BLOCK);
        let end = end.filter(|end| *end <= self.file.len() && self.headers < MOST_HEADERS);
        let Some(end) = end else {
            return Ok(None);
        };
        self.headers += 1;
        let mut block = [0; BLOCK as usize];
        self.file.read_exact_at(&mut block, self.at)?;
        Ok(Header::of(&block).map(|header| (header, end)))
    }

    /// Bytes in front of a member; `None` if they are too many, or not there.
    fn text(&self, at: u64, len: u64) -> Result<Option<Vec<u8>>> {
        if len > LONGEST || !self.file.has(at, len) {
            return Ok(None);
        }
        let mut text = vec![0; len as usize];
        self.file.read_exact_at(&mut text, at)?;
        Ok(Some(text))
    }
}

/// What headers in front of a member say of it.
#[derive(Default)]
struct Before {
    name: Option<String>,
    len: Option<u64>,
}

impl Before {
    /// Reads records of pax: `LENGTH KEY=VALUE` and a line feed each. The length is that of the whole record.
    fn read(&mut self, mut records: &[u8]) {
        while let Some((record, rest)) = pax_record(records) {
            records = rest;
            let mut parts = record.splitn(2, |byte| *byte == b'=');
            let (key, value) = (parts.next(), parts.next().unwrap_or_default());
            let value = String::from_utf8_lossy(value).into_owned();
            match key {
                Some(b"path") => self.name = Some(value),
                Some(b"size") => self.len = value.parse().ok(),
                _ => {}
            }
        }
    }
}

/// The first record without its length, and the bytes behind it.
fn pax_record(records: &[u8]) -> Option<(&[u8], &[u8])> {
    let space = records.iter().position(|byte| *byte == b' ')?;
    let len = str::from_utf8(&records[..space]).ok()?.parse().ok()?;
    let (record, rest) = records.split_at_checked(len)?;
    Some((record.get(space + 1..)?.strip_suffix(b"\n")?, rest))
}

/// The text up to the first zero byte.
fn first_text(bytes: &[u8]) -> String {
    let text = bytes.split(|byte| *byte == 0).next();
    String::from_utf8_lossy(text.unwrap_or_default()).into_owned()
}

struct Header {
    name: String,
    len: u64,
    kind: u8,
}

impl Header {
    /// Reads a header. `None` if these bytes are none.
    fn of(block: &[u8; BLOCK as usize]) -> Option<Self> {
        let text = |from: usize, len: usize| Some(first_text(block.get(from..from + len)?));
        if text(257, 5)? != "ustar" {
            return None;
        }
        let (name, prefix) = (text(0, 100)?, text(345, 155)?);
        // GNU's archives have times where POSIX has a prefix; the byte behind the magic tells them apart.
        let name = match (block[262], prefix.is_empty()) {
            (0, false) => format!("{prefix}/{name}"),
            _ => name,
        };
        let len = match block[124] {
            // A large number is big-endian, with the first bit set.
            first if first & 0x80 != 0 => u64::from_be_bytes(*block[124..136].last_chunk()?),
            _ => u64::from_str_radix(text(124, 12)?.trim(), 8).ok()?,
        };
        let kind = block[156];
        Some(Header { name, len, kind })
    }

    /// Whether it says something of the member behind it, or of all.
    fn is_before_member(&self) -> bool {
        matches!(self.kind, b'L' | b'K' | b'x' | b'g')
    }

    /// Whether bytes follow. Behind links, devices, directories and FIFOs there are none, whatever length they have.
    fn has_bytes(&self) -> bool {
        !matches!(self.kind, b'1'..=b'6')
    }
}
