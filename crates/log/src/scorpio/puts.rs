//! The records of a variable that one process wrote (section 5).

use super::VariableSource;
use super::lists::Reader;
use crate::boxes::packed::Rows;
use crate::conversion::{Constant, Conversion};
use crate::layout::DatasetRecords;
use crate::model::{Encoding, Logged, Selection, StoredBytes};
use h5logfs_adios::Type;
use h5logfs_adios::model::{Block, Kind, Variable};
use h5logfs_adios::scorpio::{NcType, Put, PutError, Side, data_of, memory_type};
use h5logfs_common::fault::Fault;
use std::sync::Arc;

/// The records of a variable while they are made.
pub(super) struct Puts<'a> {
    pub reader: Reader<'a>,
    pub of: &'a VariableSource,
    pub dataset: &'a Logged<'a>,
    /// Number of the type in memory.
    pub memory: Option<i64>,
    /// The fill value of the dataset.
    pub fill: Constant,
    /// Number of puts so far.
    pub puts: u64,
}

impl Puts<'_> {
    /// Adds the records of a step.
    pub fn add(&mut self, step: u64, found: &mut DatasetRecords) -> Result<(), Fault> {
        let read = self.reader.variable(step, &data_of(&self.of.name))?;
        let data = read.the_variable()?;
        if self.dataset.dims.is_empty() {
            return self.add_value(data, found);
        }
        if data.kind != Kind::LocalArray || data.rank != 1 || data.ty != Type::U8 {
            return Err("its puts are not lists of bytes".into());
        }
        let memory = self.memory.and_then(memory_type);
        let memory = memory.ok_or("its type in memory is not known")?;
        for (number, block) in data.blocks.iter().enumerate() {
            self.reader.task.check()?;
            let len = data.count(number).first().copied().unwrap_or(0);
            self.add_put(block, len, &memory, found)?;
            self.puts += 1;
        }
        Ok(())
    }

    /// Adds the value of a variable without dimensions.
    fn add_value(&self, data: &Variable, found: &mut DatasetRecords) -> Result<(), Fault> {
        if data.kind != Kind::GlobalValue {
            return Err("it has no dimensions, and is not a single value".into());
        }
        let block = data.blocks.last().ok_or("a value without bytes")?;
        let order = found.records.len() as u64;
        let (stored, lost) = self.reader.tables.parts.stored(block, self.reader.sources);
        found.records.push_block(stored, order, &[], &[])?;
        self.finish(&data.ty, lost, found)
    }

    /// Converts the last record from its type in memory, or marks it as lost.
    fn finish(
        &self,
        memory: &Type,
        lost: Option<String>,
        found: &mut DatasetRecords,
    ) -> Result<(), Fault> {
        if let Some(reason) = lost {
            return found.records.spoil_last(reason);
        }
        match self.conversion(memory) {
            Ok(Some(conversion)) => found.records.convert_last(&conversion),
            Ok(None) => Ok(()),
            Err(reason) => found.records.spoil_last(reason),
        }
    }

    /// The conversion from a type in memory. Characters are bytes of either sign.
    fn conversion(&self, memory: &Type) -> Result<Option<Conversion>, String> {
        let ty = self.of.ty;
        if ty.is_stored_as(memory) || ty == NcType::Char && *memory == Type::U8 {
            return Ok(None);
        }
        let big_endian = self.reader.directory.is_big_endian();
        let conversion = self.of.conversion(memory, big_endian)?;
        Ok(Some(conversion.into()))
    }

    fn add_put(
        &self,
        block: &Block,
        len: u64,
        memory: &Type,
        found: &mut DatasetRecords,
    ) -> Result<(), Fault> {
        let rank = self.dataset.dims.len();
        let (mut stored, lost) = self.reader.tables.parts.stored(block, self.reader.sources);
        let put = match lost {
            Some(reason) => Err(PutError {
                reason,
                place: None,
            }),
            None => self.read(block, len, memory)?,
        };
        let order = found.records.len() as u64;
        let put = match put {
            Ok(Some(put)) => put,
            Ok(None) => return Ok(()),
            Err(error) => {
                let whole = || (vec![0; rank], self.dataset.dims.to_vec());
                let (start, count) = error.place.unwrap_or_else(whole);
                if self.is_inside(&start, &count) {
                    found
                        .records
                        .push_constant(self.fill, order, &start, &count)?;
                    let reason = format!("put {}: {}", self.puts, error.reason);
                    found.records.spoil_last(reason)?;
                }
                return Ok(());
            }
        };
        if stored.encoding == Encoding::Operator {
            let selection = self.behind_head(&put, len, memory)?;
            found
                .records
                .push_selection(stored, order, selection, None)?;
        } else {
            let head = Put::head(rank);
            let elements = put
                .count
                .iter()
                .fold(memory.size(), |all, side| all.saturating_mul(*side));
            stored = StoredBytes {
                offset: stored.offset.saturating_add(head),
                len: elements,
                ..stored
            };
            found
                .records
                .push_block(stored, order, &put.start, &put.count)?;
        }
        self.finish(memory, None, found)
    }

    /// The put of a block with `len` bytes, once they are decoded.
    fn read(
        &self,
        block: &Block,
        len: u64,
        memory: &Type,
    ) -> Result<Result<Option<Put>, PutError>, Fault> {
        let reader = self.reader;
        let (dims, has_records) = (self.dataset.dims, self.of.has_records);
        let side = |(d, len): (usize, &u64)| Side {
            len: *len,
            is_unlimited: has_records && d == 0,
        };
        let sides: Vec<Side> = dims.iter().enumerate().map(side).collect();
        let needed = if block.has_operator {
            len.saturating_mul(3)
        } else {
            0
        };
        let _reserved = reader.task.reserve(needed)?;
        reader.with_values(|values| values.put(block, len, &sides, memory.size()))
    }

    /// A selection of the elements behind the head of a put, for bytes that are decoded together with it.
    fn behind_head(
        &self,
        put: &Put,
        len: u64,
        memory: &Type,
    ) -> Result<crate::records::Numbered, Fault> {
        let size = memory.size().max(1);
        let behind = BehindHead {
            put,
            before: Put::head(put.start.len()) / size,
        };
        let selection = Selection::placed(self.reader.task, &behind, len / size)?;
        // No other put has this selection.
        Ok((1 << 62 | self.puts, Arc::new(selection)))
    }

    /// Whether some of a box lies in the dataset.
    fn is_inside(&self, start: &[u64], count: &[u64]) -> bool {
        let mut sides = start.iter().zip(count).zip(self.dataset.dims);
        sides.all(|((start, count), side)| start < side && *count > 0)
    }
}

/// The only box of a put.
struct BehindHead<'a> {
    put: &'a Put,
    before: u64,
}

impl Rows for BehindHead<'_> {
    fn rank(&self) -> usize {
        self.put.start.len()
    }
    fn rows(&self) -> usize {
        1
    }
    fn values(&self) -> usize {
        1
    }
    fn start(&self, _: usize, dim: usize) -> u64 {
        self.put.start[dim]
    }
    fn count(&self, _: usize, dim: usize) -> u64 {
        self.put.count[dim]
    }
    fn value(&self, _: usize, _: usize) -> u64 {
        self.before
    }
}
