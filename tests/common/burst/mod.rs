//! Writes netCDF classic files with logs of PnetCDF's burst-buffering driver, as
//! `docs/formats/pnetcdf-burst-buffer.md` describes them (section numbers are those of that page), and gives their
//! meaning. It is written from that page alone, and shares no code with the tested crate.
//!
//! * this file: the netCDF classic format.
//! * [`bytes`]: the bytes of a metadata log.
//! * [`log`]: separate and shared logs.
//! * [`model`]: the content of a file and its logs, element by element.
//! * [`random`]: random files and logs.

pub mod bytes;
pub mod log;
pub mod model;
pub mod random;

/// External types (section 7), by code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Type {
    Byte = 1,
    Char,
    Short,
    Int,
    Float,
    Double,
    UByte,
    UShort,
    UInt,
    Int64,
    UInt64,
}

impl Type {
    const ALL: [Type; 11] = [
        Type::Byte,
        Type::Char,
        Type::Short,
        Type::Int,
        Type::Float,
        Type::Double,
        Type::UByte,
        Type::UShort,
        Type::UInt,
        Type::Int64,
        Type::UInt64,
    ];

    pub fn of_version(version: u8) -> &'static [Type] {
        &Type::ALL[..if version == 5 { 11 } else { 6 }]
    }

    pub fn size(self) -> usize {
        match self {
            Type::Byte | Type::Char | Type::UByte => 1,
            Type::Short | Type::UShort => 2,
            Type::Int | Type::UInt | Type::Float => 4,
            Type::Double | Type::Int64 | Type::UInt64 => 8,
        }
    }

    /// The least and the greatest integer.
    pub fn range(self) -> Option<(i128, i128)> {
        let (bits, is_signed) = (8 * self.size() as u32, self.is_signed()?);
        Some(if is_signed {
            (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)
        } else {
            (0, (1 << bits) - 1)
        })
    }

    fn is_signed(self) -> Option<bool> {
        match self {
            Type::Byte | Type::Short | Type::Int | Type::Int64 => Some(true),
            Type::UByte | Type::UShort | Type::UInt | Type::UInt64 => Some(false),
            Type::Char | Type::Float | Type::Double => None,
        }
    }

    /// An integer in big-endian.
    pub fn integer(self, value: i128) -> Vec<u8> {
        value.to_be_bytes()[16 - self.size()..].to_vec()
    }

    /// The default fill value in big-endian.
    pub fn default_fill(self) -> Vec<u8> {
        match self {
            Type::Byte => self.integer(-127),
            Type::Char => vec![0],
            Type::Short => self.integer(-32767),
            Type::Int => self.integer(-2_147_483_647),
            Type::Float => 0x7cf0_0000_u32.to_be_bytes().to_vec(),
            Type::Double => 9.969_209_968_386_869e36_f64.to_be_bytes().to_vec(),
            Type::UByte => self.integer(255),
            Type::UShort => self.integer(65535),
            Type::UInt => self.integer(4_294_967_295),
            Type::Int64 => self.integer(-9_223_372_036_854_775_806),
            Type::UInt64 => self.integer(18_446_744_073_709_551_614),
        }
    }
}

#[derive(Debug, Clone)]
pub struct Attribute {
    pub name: String,
    pub kind: Type,
    /// Values in big-endian.
    pub values: Vec<u8>,
}

#[derive(Debug, Clone)]
pub struct Variable {
    pub name: String,
    /// Numbers of its dimensions.
    pub dimensions: Vec<usize>,
    pub attributes: Vec<Attribute>,
    pub kind: Type,
    pub begin: u64,
}

/// The header of a netCDF classic file.
#[derive(Debug, Clone)]
pub struct Classic {
    pub version: u8,
    /// Names and lengths; 0 for the record dimension.
    pub dimensions: Vec<(String, u64)>,
    pub attributes: Vec<Attribute>,
    pub variables: Vec<Variable>,
    /// `None` for a file written as a stream.
    pub records: Option<u64>,
}

impl Classic {
    pub fn is_record(&self, variable: &Variable) -> bool {
        let first = variable.dimensions.first();
        first.is_some_and(|dimension| self.dimensions[*dimension].1 == 0)
    }

    /// The extent of a variable, given the number of records.
    pub fn extent(&self, variable: &Variable, records: u64) -> Vec<u64> {
        let dimensions = variable.dimensions.iter();
        let lengths = dimensions.map(|dimension| self.dimensions[*dimension].1);
        lengths.map(|n| if n == 0 { records } else { n }).collect()
    }

    /// Bytes of a variable, or of one record of a record variable without padding.
    fn bytes(&self, variable: &Variable) -> u64 {
        let elements: u64 = self.extent(variable, 1).iter().product();
        elements * variable.kind.size() as u64
    }

    /// Bytes of a variable within a record, and of a whole record.
    fn in_record(&self, variable: &Variable) -> u64 {
        let variables = self.variables.iter().filter(|v| self.is_record(v));
        match variables.count() {
            1 => self.bytes(variable),
            _ => self.bytes(variable).next_multiple_of(4),
        }
    }

    pub fn record_size(&self) -> u64 {
        let variables = self.variables.iter().filter(|v| self.is_record(v));
        variables.map(|v| self.in_record(v)).sum()
    }

    /// Start of the first record's data.
    pub fn first_record(&self) -> Option<u64> {
        let variables = self.variables.iter().filter(|v| self.is_record(v));
        variables.map(|v| v.begin).min()
    }

    /// Places each variable. `gap` is the space left before some of them.
    pub fn place(&mut self, mut gap: impl FnMut() -> u64) {
        let mut end = self.header(self.records).len() as u64 + gap();
        for for_records in [false, true] {
            for number in 0..self.variables.len() {
                let variable = &self.variables[number];
                if self.is_record(variable) != for_records {
                    continue;
                }
                let len = if for_records {
                    self.in_record(variable)
                } else {
                    self.bytes(variable).next_multiple_of(4) + gap()
                };
                self.variables[number].begin = end;
                end += len;
            }
        }
    }

    /// Offset of an element.
    pub fn offset(&self, variable: &Variable, at: &[u64]) -> u64 {
        let extent = self.extent(variable, 1);
        let (record, within) = if self.is_record(variable) {
            (at[0], (&at[1..], &extent[1..]))
        } else {
            (0, (at, &extent[..]))
        };
        let (at, extent) = within;
        let linear = at.iter().zip(extent).fold(0, |n, (a, e)| n * e + a);
        variable.begin + record * self.record_size() + linear * variable.kind.size() as u64
    }

    /// End of the data, given the number of records.
    pub fn end(&self, records: u64) -> u64 {
        let fixed = self.variables.iter().filter(|v| !self.is_record(v));
        let fixed = fixed.map(|v| v.begin + self.bytes(v).next_multiple_of(4));
        let first = self
            .first_record()
            .map(|at| at + records * self.record_size());
        let header = self.header(None).len() as u64;
        fixed.chain(first).max().unwrap_or(0).max(header)
    }

    // --- the header's bytes ----------------------------------------------------------------------

    pub fn header(&self, records: Option<u64>) -> Vec<u8> {
        let mut bytes = b"CDF".to_vec();
        bytes.push(self.version);
        match records {
            Some(number) => self.number(&mut bytes, number),
            None => bytes.resize(bytes.len() + self.width(), 0xff),
        }
        self.list(&mut bytes, 10, &self.dimensions, |bytes, (name, len)| {
            self.name(bytes, name);
            self.number(bytes, *len);
        });
        self.attributes(&mut bytes, &self.attributes);
        self.list(&mut bytes, 11, &self.variables, |bytes, variable| {
            self.name(bytes, &variable.name);
            self.number(bytes, variable.dimensions.len() as u64);
            for dimension in &variable.dimensions {
                self.number(bytes, *dimension as u64);
            }
            self.attributes(bytes, &variable.attributes);
            bytes.extend((variable.kind as u32).to_be_bytes());
            self.number(bytes, self.bytes(variable).next_multiple_of(4));
            match self.version {
                1 => bytes.extend((variable.begin as u32).to_be_bytes()),
                _ => bytes.extend(variable.begin.to_be_bytes()),
            }
        });
        bytes
    }

    fn width(&self) -> usize {
        if self.version == 5 { 8 } else { 4 }
    }

    fn number(&self, bytes: &mut Vec<u8>, number: u64) {
        bytes.extend(&number.to_be_bytes()[8 - self.width()..]);
    }

    fn name(&self, bytes: &mut Vec<u8>, name: &str) {
        self.number(bytes, name.len() as u64);
        bytes.extend(name.as_bytes());
        bytes.resize(bytes.len().next_multiple_of(4), 0);
    }

    fn list<T>(&self, bytes: &mut Vec<u8>, tag: u32, items: &[T], each: impl Fn(&mut Vec<u8>, &T)) {
        let tag = if items.is_empty() { 0 } else { tag };
        bytes.extend(tag.to_be_bytes());
        self.number(bytes, items.len() as u64);
        items.iter().for_each(|item| each(bytes, item));
    }

    fn attributes(&self, bytes: &mut Vec<u8>, attributes: &[Attribute]) {
        self.list(bytes, 12, attributes, |bytes, attribute| {
            self.name(bytes, &attribute.name);
            bytes.extend((attribute.kind as u32).to_be_bytes());
            self.number(
                bytes,
                (attribute.values.len() / attribute.kind.size()) as u64,
            );
            bytes.extend(&attribute.values);
            bytes.resize(bytes.len().next_multiple_of(4), 0);
        });
    }
}
