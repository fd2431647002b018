//! Small directories in the form in which a BP5 writer makes them.

use crate::Files;
use crate::model::Kind;

/// The metadata files of a directory.
#[derive(Debug, Clone)]
pub struct Directory {
    pub index: Vec<u8>,
    pub metadata: Vec<u8>,
    pub formats: Vec<u8>,
    pub is_big_endian: bool,
}

/// The data of one writer in one step.
#[derive(Debug, Clone, Default)]
pub struct Writer {
    pub puts: Vec<Put>,
    /// Variables of the writer's format that this step lacks.
    pub absent: Vec<Put>,
    pub attributes: Vec<Attribute>,
    /// Position and size of each flush.
    pub flushes: Vec<(u64, u64)>,
    /// Position of the bytes after all flushes.
    pub last: u64,
}

/// A variable of one writer.
#[derive(Debug, Clone, PartialEq)]
pub struct Put {
    pub name: String,
    pub kind: Kind,
    pub content: Content,
}

/// The content of one writer's variable. Types are numbers of section 3.7.
#[derive(Debug, Clone, PartialEq)]
pub enum Content {
    Value { ty: u32, bytes: Vec<u8> },
    Text(String),
    Array(Array),
}

/// An array of one writer, in the writer's order of dimensions.
#[derive(Debug, Clone, PartialEq)]
pub struct Array {
    pub ty: u32,
    pub size: u64,
    pub has_operator: bool,
    pub shape: Vec<u64>,
    pub blocks: Vec<Block>,
}

/// A block: its start, its extents, its location in the writer's data, and the number of stored bytes.
#[derive(Debug, Clone, PartialEq)]
pub struct Block {
    pub start: Vec<u64>,
    pub count: Vec<u64>,
    pub location: u64,
    pub stored: u64,
}

/// An attribute: type, whether it is single, values.
#[derive(Debug, Clone, PartialEq)]
pub enum Attribute {
    Numbers(String, u32, bool, Vec<u8>),
    Texts(String, bool, Vec<String>),
}

/// A struct of FFS. A field is a name, a type, bytes of an element and an offset.
#[derive(Clone)]
pub struct Struct {
    pub name: String,
    pub fields: Vec<(String, String, u32, u32)>,
    pub len: u32,
}

impl Directory {
    /// A directory without steps.
    pub fn new(is_big_endian: bool, is_column_major: bool) -> Self {
        let mut index = vec![0; 64];
        index[..28].copy_from_slice(b"ADIOS-BP v2.<.1 Index Table ");
        index[36] = u8::from(is_big_endian);
        index[37] = 5;
        index[38] = 2;
        index[40] = if is_column_major { b'y' } else { b'n' };
        Directory {
            index,
            metadata: Vec::new(),
            formats: Vec::new(),
            is_big_endian,
        }
    }

    /// The files.
    pub fn files(&self) -> Files<'_> {
        Files {
            index: &self.index,
            metadata: &self.metadata,
            formats: Some(&self.formats),
        }
    }

    /// The file with this number, of the three.
    pub fn file(&mut self, number: usize) -> &mut Vec<u8> {
        match number {
            0 => &mut self.index,
            1 => &mut self.metadata,
            _ => &mut self.formats,
        }
    }

    /// Adds a writer map: the file of each writer.
    pub fn map(&mut self, files: &[u64]) {
        let mut words = vec![files.len() as u64, 1, files.len() as u64];
        words.extend(files);
        self.record(b'w', &words);
    }

    /// Adds a record to `md.idx`.
    pub fn record(&mut self, ty: u8, words: &[u64]) {
        self.index.push(ty);
        put_words(
            &mut self.index,
            self.is_big_endian,
            &[8 * words.len() as u64],
        );
        put_words(&mut self.index, self.is_big_endian, words);
    }

    /// Adds a step.
    pub fn step(&mut self, writers: &[Writer]) {
        let variables: Vec<_> = writers
            .iter()
            .map(|writer| self.variables(writer))
            .collect();
        let attributes: Vec<_> = writers
            .iter()
            .map(|writer| self.attributes(writer))
            .collect();
        let blocks: Vec<_> = variables.into_iter().chain(attributes).collect();
        let mut section: Vec<u64> = blocks.iter().map(|block| block.len() as u64).collect();
        section.insert(0, section.iter().sum::<u64>() + 8 * section.len() as u64);
        let begin = self.metadata.len() as u64;
        put_words(&mut self.metadata, self.is_big_endian, &section);
        self.metadata.extend(blocks.concat());
        let flushes = writers
            .first()
            .map_or(0, |writer| writer.flushes.len() as u64);
        let mut words = vec![begin, self.metadata.len() as u64 - begin, flushes];
        for writer in writers {
            words.extend(writer.flushes.iter().flat_map(|(at, size)| [*at, *size]));
            words.push(writer.last);
        }
        self.record(b's', &words);
    }

    /// Adds a format and returns its id.
    fn format(&mut self, structs: &[Struct]) -> [u8; 12] {
        let mut id = [2; 12];
        id[4..].copy_from_slice(&(self.formats.len() as u64).to_be_bytes());
        self.format_as(id, structs);
        id
    }

    /// Adds a format with this id.
    pub fn format_as(&mut self, id: [u8; 12], structs: &[Struct]) {
        let mut body = vec![
            0,
            0,
            u8::from(self.is_big_endian),
            2,
            structs.len() as u8 - 1,
            0,
            0,
            0,
        ];
        for one in structs {
            body.extend(self.description(one));
        }
        let len = body.len() as u32;
        body[..2].copy_from_slice(&(len as u16).to_be_bytes());
        body[6..8].copy_from_slice(&((len >> 16) as u16).to_be_bytes());
        put_words(&mut self.formats, self.is_big_endian, &[12, u64::from(len)]);
        self.formats.extend(id);
        self.formats.extend(body);
    }

    fn description(&self, of: &Struct) -> Vec<u8> {
        let number = |n: u32| {
            if self.is_big_endian {
                n.to_be_bytes()
            } else {
                n.to_le_bytes()
            }
        };
        let strings = 28 + 16 * of.fields.len();
        let mut text = [of.name.as_bytes(), &[0]].concat();
        let mut all = vec![0, 0, 2, u8::from(self.is_big_endian)];
        for n in [strings as u32, of.fields.len() as u32, of.len] {
            all.extend(number(n));
        }
        all.extend([8, 28, 0, 0, 0, 0, 0, 8, 0, 0, 0, 0]);
        for (name, ty, size, offset) in &of.fields {
            for string in [name, ty] {
                all.extend(number((strings + text.len()) as u32));
                text.extend(string.as_bytes());
                text.push(0);
            }
            all.extend(number(*size));
            all.extend(number(*offset));
        }
        all.extend(text);
        all.resize(all.len().next_multiple_of(4) + 12, 0);
        let len = all.len() as u32;
        all[..2].copy_from_slice(&(len as u16).to_be_bytes());
        all[24..26].copy_from_slice(&((len >> 16) as u16).to_be_bytes());
        all
    }

    fn variables(&mut self, writer: &Writer) -> Vec<u8> {
        let mut top = Struct::new("MetaData");
        top.add("BitFieldCount", "integer", 8, 8);
        top.add("BitField", "integer[BitFieldCount]", 8, 8);
        top.add("DataBlockSize", "integer", 8, 8);
        let all: Vec<&Put> = writer.puts.iter().chain(&writer.absent).collect();
        if all.is_empty() {
            return Vec::new();
        }
        let offsets: Vec<u32> = all.iter().map(|put| top.add_put(put)).collect();
        let id = self.format(&[top.clone(), meta_array(false), meta_array(true)]);
        let mut record = Record::new(self.is_big_endian, top.len);
        let mut bits = vec![0u64; writer.puts.len().div_ceil(64)];
        for bit in 0..writer.puts.len() {
            bits[bit / 64] |= 1 << (bit % 64);
        }
        record.word(0, bits.len() as u64);
        record.array(8, &bits);
        for (put, offset) in writer.puts.iter().zip(offsets) {
            record.put(put, offset as usize);
        }
        record.finish(id)
    }

    fn attributes(&mut self, writer: &Writer) -> Vec<u8> {
        if writer.attributes.is_empty() {
            return Vec::new();
        }
        let id = self.format(&attribute_structs());
        let mut record = Record::new(self.is_big_endian, 32);
        for (at, is_text) in [(0, false), (16, true)] {
            let mine = |a: &&Attribute| matches!(a, Attribute::Texts(..)) == is_text;
            let mine: Vec<_> = writer.attributes.iter().filter(mine).collect();
            record.word(at, mine.len() as u64);
            let items = record.array(at + 8, &vec![0; 3 * mine.len()]);
            for (number, attribute) in mine.into_iter().enumerate() {
                record.attribute(items + 24 * number, attribute);
            }
        }
        record.finish(id)
    }
}

impl Struct {
    fn new(name: &str) -> Self {
        Struct {
            name: name.into(),
            fields: Vec::new(),
            len: 0,
        }
    }

    /// Adds a field that takes `len` bytes in the struct.
    fn add(&mut self, name: &str, ty: &str, size: u32, len: u32) -> u32 {
        let offset = self.len.next_multiple_of(len);
        self.fields.push((name.into(), ty.into(), size, offset));
        self.len = offset + len;
        offset
    }

    fn add_put(&mut self, put: &Put) -> u32 {
        let name = &put.name;
        let kind = match put.kind {
            Kind::GlobalValue => 'g',
            Kind::LocalValue => 'l',
            Kind::GlobalArray => 'G',
            Kind::LocalArray => 'L',
            Kind::JoinedArray => 'J',
        };
        match &put.content {
            Content::Text(_) => self.add(&format!("BP{kind}_{name}"), "string", 8, 8),
            Content::Value { ty, bytes } => {
                let ffs = match ty {
                    1..5 => "integer",
                    5..9 => "unsigned integer",
                    9..12 => "float",
                    12 => "complex4",
                    _ => "complex8",
                };
                let len = bytes.len() as u32;
                self.add(&format!("BP{kind}_{name}"), ffs, len, len)
            }
            Content::Array(array) => {
                let name = format!("BP{kind}_{}_{}_{name}", array.size, array.ty);
                let of = meta_array(array.has_operator);
                self.add(&name, &of.name, of.len, 8);
                self.len += of.len - 8;
                self.len - of.len
            }
        }
    }
}

/// The structs of records of attributes.
pub fn attribute_structs() -> [Struct; 3] {
    let mut top = Struct::new("GenericAttributes");
    let mut items = [Struct::new("PrimAttr"), Struct::new("StrAttr")];
    for (item, size, values, unit) in [
        (0, "TotalElementSize", "char[TotalElementSize]", 1),
        (1, "ElementCount", "string[ElementCount]", 8),
    ] {
        items[item].add("name", "string", 8, 8);
        items[item].add(size, "integer", 8, 8);
        items[item].add("Values", values, unit, 8);
    }
    top.add("PrimAttrCount", "integer", 8, 8);
    top.add("PrimAttrs", "PrimAttr[PrimAttrCount]", 24, 8);
    top.add("StrAttrCount", "integer", 8, 8);
    top.add("StrAttrs", "StrAttr[StrAttrCount]", 24, 8);
    let [numbers, texts] = items;
    [top, texts, numbers]
}

fn meta_array(has_operator: bool) -> Struct {
    let mut of = Struct::new(if has_operator {
        "MetaArrayOp"
    } else {
        "MetaArray"
    });
    for name in ["Dims", "BlockCount", "DBCount"] {
        of.add(name, "integer", 8, 8);
    }
    let pointers = [
        "Shape",
        "Count",
        "Offset",
        "DataBlockLocation",
        "DataBlockSize",
    ];
    for name in &pointers[..if has_operator { 5 } else { 4 }] {
        of.add(name, "integer[any]", 8, 8);
    }
    of
}

/// An encoded record.
struct Record {
    is_big_endian: bool,
    bytes: Vec<u8>,
}

impl Record {
    fn new(is_big_endian: bool, len: u32) -> Self {
        Record {
            is_big_endian,
            bytes: vec![0; (len as usize).next_multiple_of(8)],
        }
    }

    fn word(&mut self, at: usize, word: u64) {
        let mut bytes = Vec::new();
        put_words(&mut bytes, self.is_big_endian, &[word]);
        self.bytes[at..at + 8].copy_from_slice(&bytes);
    }

    /// Adds bytes, and at `at` the pointer to them.
    fn target(&mut self, at: usize, bytes: &[u8]) -> usize {
        let begin = self.bytes.len();
        if !bytes.is_empty() {
            self.word(at, begin as u64);
        }
        self.bytes.extend(bytes);
        begin
    }

    fn array(&mut self, at: usize, words: &[u64]) -> usize {
        self.bytes.resize(self.bytes.len().next_multiple_of(8), 0);
        let mut bytes = Vec::new();
        put_words(&mut bytes, self.is_big_endian, words);
        self.target(at, &bytes)
    }

    fn text(&mut self, at: usize, text: &str) {
        self.target(at, &[text.as_bytes(), &[0]].concat());
    }

    fn put(&mut self, put: &Put, at: usize) {
        match &put.content {
            Content::Value { bytes, .. } => self.bytes[at..at + bytes.len()].copy_from_slice(bytes),
            Content::Text(text) => self.text(at, text),
            Content::Array(array) => {
                let rank = array.shape.len() as u64;
                let blocks = array.blocks.len() as u64;
                for (number, word) in [rank, blocks, rank * blocks].into_iter().enumerate() {
                    self.word(at + 8 * number, word);
                }
                let all = |of: fn(&Block) -> Vec<u64>| -> Vec<u64> {
                    array.blocks.iter().flat_map(of).collect()
                };
                if put.kind != Kind::LocalArray {
                    self.array(at + 24, &array.shape);
                }
                self.array(at + 32, &all(|block| block.count.clone()));
                if put.kind == Kind::GlobalArray {
                    self.array(at + 40, &all(|block| block.start.clone()));
                }
                self.array(at + 48, &all(|block| vec![block.location]));
                if array.has_operator {
                    self.array(at + 56, &all(|block| vec![block.stored]));
                }
            }
        }
    }

    fn attribute(&mut self, at: usize, attribute: &Attribute) {
        let (name, ty, is_single) = match attribute {
            Attribute::Numbers(name, ty, is_single, _) => (name, *ty as u8, is_single),
            Attribute::Texts(name, is_single, _) => (name, 14, is_single),
        };
        let mark = b'0' + ty + if *is_single { 0 } else { 18 };
        self.text(at, &format!("{}{name}", char::from(mark)));
        match attribute {
            Attribute::Numbers(_, _, _, bytes) => {
                self.word(at + 8, bytes.len() as u64);
                self.target(at + 16, bytes);
            }
            Attribute::Texts(_, _, texts) => {
                self.word(at + 8, texts.len() as u64);
                let pointers = self.array(at + 16, &vec![0; texts.len()]);
                for (number, text) in texts.iter().enumerate() {
                    self.text(pointers + 8 * number, text);
                }
            }
        }
    }

    fn finish(mut self, id: [u8; 12]) -> Vec<u8> {
        let mut all = id.to_vec();
        put_words(&mut all, self.is_big_endian, &[self.bytes.len() as u64]);
        all.resize(24, 0);
        self.bytes.resize(self.bytes.len().next_multiple_of(8), 0);
        all.extend(self.bytes);
        all
    }
}

fn put_words(to: &mut Vec<u8>, is_big_endian: bool, words: &[u64]) {
    for word in words {
        to.extend(if is_big_endian {
            word.to_be_bytes()
        } else {
            word.to_le_bytes()
        });
    }
}
