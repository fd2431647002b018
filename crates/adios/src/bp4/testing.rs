//! Small directories in the form in which ADIOS2 writes them.

use super::Index;
use super::set::Dim;
use crate::Files;
use crate::Result;
use crate::asked::Asked;
use crate::header::Header;
use crate::model::Step;

/// A directory that has only its metadata.
#[derive(Debug, Clone)]
pub struct Directory {
    pub index: Vec<u8>,
    pub metadata: Vec<u8>,
}

/// Type numbers of the metadata, with the bytes of an element.
pub const TYPES: [(u8, usize); 4] = [(0, 1), (52, 4), (6, 8), (11, 16)];

/// The content of one set of characteristics.
#[derive(Debug, Clone, Default)]
pub struct Set {
    pub dims: Vec<Dim>,
    pub value: Option<Vec<u8>>,
    pub file: u32,
    pub payload: u64,
    /// Name of the operator, and the number of stored bytes.
    pub operator: Option<(&'static str, u64)>,
    /// Least and greatest value.
    pub statistics: Option<Vec<u8>>,
}

/// One entry of an index, with its sets.
#[derive(Debug, Clone)]
pub struct Entry {
    pub name: String,
    pub ty: u8,
    pub sets: Vec<Set>,
}

impl Directory {
    /// A directory without steps.
    pub fn new() -> Self {
        let mut header = vec![0; 64];
        header[..28].copy_from_slice(b"ADIOS-BP v2.<.1 Index Table ");
        header[32..35].copy_from_slice(b"2<1");
        header[37] = 4;
        Directory {
            index: header.clone(),
            metadata: header,
        }
    }

    /// Adds a step.
    pub fn step(&mut self, is_column_major: bool, variables: &[Entry], attributes: &[Entry]) {
        let number = self.index.len() as u64 / 64;
        let mut places = vec![number, 0, self.metadata.len() as u64];
        self.metadata.extend(groups(is_column_major, number));
        places.push(self.metadata.len() as u64);
        self.metadata
            .extend(entries(variables, |out| out.extend(b"K\0")));
        places.push(self.metadata.len() as u64);
        self.metadata
            .extend(entries(attributes, |out| text(out, b"")));
        places.extend([self.metadata.len() as u64, 0, 0]);
        self.index
            .extend(places.iter().flat_map(|n| n.to_le_bytes()));
    }

    /// The files of the directory.
    pub fn files(&self) -> Files<'_> {
        Files {
            index: &self.index,
            metadata: &self.metadata,
            formats: None,
        }
    }

    /// Opens the directory.
    pub fn open(&self) -> Result<Index> {
        Index::open(self.files(), Header::read(&self.index)?)
    }

    /// Reads a step.
    pub fn read(&self, number: usize) -> Result<Step> {
        let index = self.open()?;
        let mut section = Vec::new();
        super::section(&index, self.files(), number, &mut section)?;
        super::step(&index, number, &section, Asked::Some(&|_| true))
    }
}

fn groups(is_column_major: bool, step: u64) -> Vec<u8> {
    let mut group = Vec::new();
    text(&mut group, b"group");
    group.push(if is_column_major { b'y' } else { b'n' });
    group.extend(0_u32.to_le_bytes());
    text(&mut group, step.to_string().as_bytes());
    group.extend((step as u32).to_le_bytes());
    group.extend(64_u64.to_le_bytes());
    let mut out = 1_u64.to_le_bytes().to_vec();
    out.extend((group.len() as u64 + 2).to_le_bytes());
    text(&mut out, &group);
    out
}

/// An index. `middle` adds the fields between name and type.
fn entries(entries: &[Entry], middle: impl Fn(&mut Vec<u8>)) -> Vec<u8> {
    let mut all = Vec::new();
    for (id, entry) in entries.iter().enumerate() {
        let mut out = (id as u32).to_le_bytes().to_vec();
        text(&mut out, b"");
        text(&mut out, entry.name.as_bytes());
        middle(&mut out);
        out.push(entry.ty);
        out.extend((entry.sets.len() as u64).to_le_bytes());
        for set in &entry.sets {
            out.extend(set.bytes());
        }
        all.extend((out.len() as u32).to_le_bytes());
        all.extend(out);
    }
    let mut out = (entries.len() as u32).to_le_bytes().to_vec();
    out.extend((all.len() as u64).to_le_bytes());
    out.extend(all);
    out
}

/// Adds a text after its length.
pub fn text(out: &mut Vec<u8>, text: &[u8]) {
    out.extend((text.len() as u16).to_le_bytes());
    out.extend(text);
}

fn dims(dims: &[Dim]) -> Vec<u8> {
    let mut out = vec![dims.len() as u8];
    out.extend((24 * dims.len() as u16).to_le_bytes());
    for dim in dims {
        for number in [dim.count, dim.shape, dim.start] {
            out.extend(number.to_le_bytes());
        }
    }
    out
}

impl Set {
    fn bytes(&self) -> Vec<u8> {
        let mut items = vec![
            [&[8][..], &1_u32.to_le_bytes()].concat(),
            [&[7][..], &self.file.to_le_bytes()].concat(),
            [&[4][..], &dims(&self.dims)].concat(),
        ];
        let value = self.value.iter().map(|value| [&[0], &**value].concat());
        items.extend(value);
        let statistics = self.statistics.iter();
        items.extend(statistics.map(|both| [&[12, 1, 0], &**both].concat()));
        items.extend(self.operator.map(|(name, stored)| {
            let mut item = vec![11, name.len() as u8];
            item.extend(name.as_bytes());
            item.push(0);
            item.extend(dims(&self.dims));
            item.extend(16_u16.to_le_bytes());
            item.extend([0_u64, stored].iter().flat_map(|n| n.to_le_bytes()));
            item
        }));
        items.push([&[3][..], &64_u64.to_le_bytes()].concat());
        items.push([&[6][..], &self.payload.to_le_bytes()].concat());
        let all = items.concat();
        let mut out = vec![items.len() as u8];
        out.extend((all.len() as u32).to_le_bytes());
        out.extend(all);
        out
    }
}
