//! Parses the header sequentially, and reads the file piece by piece. No field is trusted: memory is allocated only for
//! bytes that exist.

use std::collections::HashSet;

use super::{Attribute, Dimension, Header, Type, Variable};
use crate::numbers::NumberType;
use crate::source_file::SourceFile;
use h5logfs_common::error::{Error, Result};
use h5logfs_hdf5_format::MAX_RANK;

/// The longest header that is accepted. It is held in memory, and libhdf5 makes objects of it. A variable with some
/// attributes takes some hundred bytes.
const LONGEST: u64 = 64 << 20;
/// Bytes of the first read, and of the largest one.
const FIRST_READ: u64 = 8 << 10;
const LARGEST_READ: u64 = 1 << 20;

const DIMENSIONS: u32 = 10;
const VARIABLES: u32 = 11;
const ATTRIBUTES: u32 = 12;

pub(super) fn header(file: &SourceFile) -> Result<Header> {
    let mut parser = Parser {
        file,
        version: 0,
        at: 0,
        window: Vec::new(),
        begin: 0,
        read_size: FIRST_READ,
    };
    parser.header()
}

struct Parser<'a> {
    file: &'a SourceFile,
    version: u8,
    /// Offset of the next byte.
    at: u64,
    /// Bytes of the file from `begin` on.
    window: Vec<u8>,
    begin: u64,
    read_size: u64,
}

impl Parser<'_> {
    fn header(&mut self) -> Result<Header> {
        self.version = match self.array()? {
            [b'C', b'D', b'F', version @ (1 | 2 | 5)] => version,
            other => {
                return self.fail(
                    0,
                    format!("{other:02x?} is not the magic of a netCDF classic file"),
                );
            }
        };
        let records = match (self.size()?, self.is_wide()) {
            (u64::MAX, true) => None,
            (number, false) if number == u64::from(u32::MAX) => None,
            (number, _) => Some(number),
        };
        self.not_negative(records.unwrap_or(0))?;
        let dimensions = self.dimensions()?;
        let attributes = self.attributes()?;
        let variables = self.variables(&dimensions)?;
        let header = Header {
            version: self.version,
            records,
            dimensions,
            attributes,
            variables,
        };
        if header.record_size() > i64::MAX as u64 {
            self.fail(self.at, "records of 2^63 bytes or more")
        } else {
            Ok(header)
        }
    }

    fn dimensions(&mut self) -> Result<Vec<Dimension>> {
        let mut record = None;
        self.list(DIMENSIONS, "dimension", |parser| {
            let name = parser.name()?;
            let at = parser.at;
            let len = parser.count()?;
            if len == 0 && record.replace(at).is_some() {
                return parser.fail(at, "a second record dimension");
            }
            Ok(Dimension { name, len })
        })
    }

    fn attributes(&mut self) -> Result<Vec<Attribute>> {
        self.list(ATTRIBUTES, "attribute", |parser| {
            let name = parser.name()?;
            let kind = parser.kind()?;
            let at = parser.at;
            let len = parser.count()?;
            let Some(bytes) = len.checked_mul(kind.size() as u64) else {
                return parser.fail(at, format!("an attribute of {len} values"));
            };
            let values = parser.padded(bytes)?;
            Ok(Attribute {
                name,
                kind,
                len,
                values,
            })
        })
    }

    fn variables(&mut self, dimensions: &[Dimension]) -> Result<Vec<Variable>> {
        self.list(VARIABLES, "variable", |parser| {
            let at = parser.at;
            let name = parser.name()?;
            let shape = parser.shape(dimensions)?;
            let attributes = parser.attributes()?;
            let kind = parser.kind()?;
            // The field is redundant, and its value may be clamped.
            let _vsize = parser.size()?;
            let begin = parser.begin()?;
            let variable = Variable {
                name,
                dimensions: shape,
                attributes,
                kind,
                begin,
            };
            parser.check_size(at, &variable, dimensions)?;
            Ok(variable)
        })
    }

    /// The numbers of a variable's dimensions.
    fn shape(&mut self, dimensions: &[Dimension]) -> Result<Vec<usize>> {
        let at = self.at;
        let rank = self.count()?;
        if rank > MAX_RANK as u64 {
            let text = format!("a variable of {rank} dimensions; HDF5 has at most {MAX_RANK}");
            return self.fail(at, text);
        }
        let mut shape = Vec::new();
        for position in 0..rank {
            let at = self.at;
            let number = self.count()?;
            let number = usize::try_from(number).unwrap_or(usize::MAX);
            match dimensions.get(number) {
                None => {
                    let text = format!("dimension {number} of {}", dimensions.len());
                    return self.fail(at, text);
                }
                Some(dimension) if dimension.len == 0 && position > 0 => {
                    return self.fail(at, "the record dimension is not the first one");
                }
                Some(_) => shape.push(number),
            }
        }
        Ok(shape)
    }

    fn check_size(&self, at: u64, variable: &Variable, dimensions: &[Dimension]) -> Result<()> {
        let lens = variable
            .dimensions
            .iter()
            .filter_map(|d| dimensions.get(*d));
        // The record dimension counts as one record.
        let mut lens = lens.map(|d| d.len.max(1));
        let bytes = lens.try_fold(variable.kind.size() as u64, u64::checked_mul);
        let end = bytes.and_then(|bytes| bytes.checked_add(variable.begin));
        if end.is_some_and(|end| end <= i64::MAX as u64) {
            Ok(())
        } else {
            self.fail(at, "a variable that ends past byte 2^63")
        }
    }

    /// A list of named items. Names are unique.
    fn list<T: Named>(
        &mut self,
        tag: u32,
        what: &str,
        mut item: impl FnMut(&mut Self) -> Result<T>,
    ) -> Result<Vec<T>> {
        let at = self.at;
        let found = self.word()?;
        let count = self.count()?;
        if found != tag && (found, count) != (0, 0) {
            let text = format!("tag {found} and count {count} where a list with tag {tag} belongs");
            return self.fail(at, text);
        }
        // An item is longer than the length field of its name.
        if count.saturating_mul(self.width()) > self.left() {
            let text = format!("{count} {what}s where {} bytes are left", self.left());
            return self.fail(at, text);
        }
        let mut items = Vec::new();
        for _ in 0..count {
            items.push((self.at, item(self)?));
        }
        let mut names = HashSet::new();
        if let Some((at, twice)) = items.iter().find(|(_, i)| !names.insert(i.name())) {
            let name = String::from_utf8_lossy(twice.name());
            return self.fail(*at, format!("a second {what} {name:?}"));
        }
        Ok(items.into_iter().map(|(_, item)| item).collect())
    }

    fn name(&mut self) -> Result<Vec<u8>> {
        let at = self.at;
        let len = self.count()?;
        let name = self.padded(len)?;
        if name.is_empty() || name.contains(&0) {
            self.fail(at, "a name that is empty or has a zero byte")
        } else {
            Ok(name)
        }
    }

    fn kind(&mut self) -> Result<Type> {
        let at = self.at;
        let code = self.word()?;
        if code > 6 && code <= 11 && !self.is_wide() {
            return self.fail(at, format!("type {code} is one of CDF-5 only"));
        }
        Ok(match code {
            1 => Type::Number(NumberType::I8),
            2 => Type::Char,
            3 => Type::Number(NumberType::I16),
            4 => Type::Number(NumberType::I32),
            5 => Type::Number(NumberType::F32),
            6 => Type::Number(NumberType::F64),
            7 => Type::Number(NumberType::U8),
            8 => Type::Number(NumberType::U16),
            9 => Type::Number(NumberType::U32),
            10 => Type::Number(NumberType::I64),
            11 => Type::Number(NumberType::U64),
            other => return self.fail(at, format!("unknown type {other}")),
        })
    }

    fn begin(&mut self) -> Result<u64> {
        let at = self.at;
        let begin = match self.version {
            1 => {
                let narrow = i32::from_be_bytes(self.array()?);
                u64::try_from(narrow).unwrap_or(u64::MAX)
            }
            _ => u64::from_be_bytes(self.array()?),
        };
        if begin > i64::MAX as u64 {
            self.fail(at, "a variable that begins at a negative offset")
        } else {
            Ok(begin)
        }
    }

    // --- numbers and bytes -----------------------------------------------------------------------

    fn is_wide(&self) -> bool {
        self.version == 5
    }

    /// Bytes of a count.
    fn width(&self) -> u64 {
        if self.is_wide() { 8 } else { 4 }
    }

    fn word(&mut self) -> Result<u32> {
        Ok(u32::from_be_bytes(self.array()?))
    }

    /// A number with the width of a count. Numbers of 4 bytes are unsigned, because CDF-2 has dimensions past 2^31.
    fn size(&mut self) -> Result<u64> {
        if self.is_wide() {
            Ok(u64::from_be_bytes(self.array()?))
        } else {
            self.word().map(u64::from)
        }
    }

    fn count(&mut self) -> Result<u64> {
        let count = self.size()?;
        self.not_negative(count)?;
        Ok(count)
    }

    /// Fails if the number just read is negative.
    fn not_negative(&self, count: u64) -> Result<()> {
        if count > i64::MAX as u64 {
            self.fail(self.at - self.width(), "a negative count")
        } else {
            Ok(())
        }
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N as u64)?);
        Ok(array)
    }

    /// `len` bytes, padded to a multiple of 4.
    fn padded(&mut self, len: u64) -> Result<Vec<u8>> {
        let bytes = self.take(len)?.to_vec();
        self.take(len.wrapping_neg() % 4)?;
        Ok(bytes)
    }

    /// Upper bound of the header's remaining bytes.
    fn left(&self) -> u64 {
        self.file.len().min(LONGEST).saturating_sub(self.at)
    }

    fn take(&mut self, len: u64) -> Result<&[u8]> {
        if len > self.left() {
            return self.fail(self.at, self.shortage(len));
        }
        let end = self.at + len;
        if end > self.begin + self.window.len() as u64 {
            self.fill(len)?;
        }
        let from = (self.at - self.begin) as usize;
        self.at = end;
        Ok(&self.window[from..from + len as usize])
    }

    fn shortage(&self, len: u64) -> String {
        match (self.at.saturating_add(len) > self.file.len(), self.at) {
            (true, 0) if self.file.is_empty() => "the file is empty: it has no header".to_owned(),
            (true, _) => format!(
                "{len} bytes more belong to the header, but the file ends at byte {}: it is not complete",
                self.file.len()
            ),
            (false, _) => format!("a header of more than {} MiB", LONGEST >> 20),
        }
    }

    /// Reads at least `len` more bytes. The caller ensures that they exist.
    fn fill(&mut self, len: u64) -> Result<()> {
        let len = len.max(self.read_size).min(self.left());
        self.read_size = (self.read_size * 2).min(LARGEST_READ);
        self.window = vec![0; len as usize];
        self.begin = self.at;
        self.file.read_exact_at(&mut self.window, self.at)
    }

    fn fail<T>(&self, at: u64, reason: impl AsRef<str>) -> Result<T> {
        let text = format!("netCDF header, byte {at}: {}", reason.as_ref());
        Err(Error::of(self.file.path(), text))
    }
}

trait Named {
    fn name(&self) -> &[u8];
}

impl Named for Dimension {
    fn name(&self) -> &[u8] {
        &self.name
    }
}

impl Named for Attribute {
    fn name(&self) -> &[u8] {
        &self.name
    }
}

impl Named for Variable {
    fn name(&self) -> &[u8] {
        &self.name
    }
}
