//! A look at the first step: see [`crate::first_step`].

use std::collections::HashMap;

use super::ffs::{Id, Slot};
use super::fields::Presence;
use super::formats::Formats;
use super::index::{Records, StepRecord};
use super::record;
use crate::first_step::Front;
use crate::header::Header;
use crate::numbers::{self, Numbers};
use crate::{Bytes, Files, Result};

/// Bytes of `md.idx` that have the first step, and those that have it where there are very many writers.
const NEAR: u64 = 64 << 10;
const FAR: u64 = 16 << 20;

/// Bytes of `mmd.0` that have the formats of the first step: some ten thousand variables.
const FORMATS: u64 = 4 << 20;

/// Number of writers that are looked at.
const WRITERS: u64 = 1024;

/// [`crate::first_step::has_variable`] for BP5.
pub(crate) fn has_variable(files: Files<'_>, header: &Header, name: &str) -> Result<Option<bool>> {
    let Some((step, writers)) = find(files.index, header)? else {
        return Ok(None);
    };
    if !step.is_below(files.metadata.len()) {
        return Ok(None);
    }
    let formats = files.formats.ok_or("mmd.0 is not there")?;
    let formats = numbers::read(formats, 0, formats.len().min(FORMATS), "mmd.0")?;
    // Most directories lack the name, and need not be decoded.
    if !has_text_that_ends_with(&formats, name) {
        return Ok(Some(false));
    }
    let mut search = Search {
        presences: HashMap::new(),
        formats: Formats::read(&formats, header.is_big_endian)?,
        bytes: &formats,
        metadata: files.metadata,
        is_big_endian: header.is_big_endian,
        name,
    };
    search.run(&step, writers).map(Some)
}

/// The record of the first step, and its number of writers.
fn find(index: &dyn Bytes, header: &Header) -> Result<Option<(StepRecord, u64)>> {
    for most in [NEAR, FAR] {
        let front = Front::new(index, most);
        let first = Records::read(&front, header)?.first();
        if first.is_some() || front.len() == index.len() {
            return Ok(first);
        }
    }
    Err("md.idx does not begin with a step".into())
}

/// Whether one of the texts in `formats`, which end with zeros, ends with `name`.
fn has_text_that_ends_with(formats: &[u8], name: &str) -> bool {
    let mut texts = formats.split(|byte| *byte == 0);
    texts.any(|text| text.ends_with(name.as_bytes()))
}

/// A search for a variable in the records of the writers.
struct Search<'a> {
    formats: Formats,
    /// By format; `None` for a format that is not understood.
    presences: HashMap<Id, Option<Presence>>,
    /// `mmd.0`.
    bytes: &'a [u8],
    metadata: &'a dyn Bytes,
    is_big_endian: bool,
    name: &'a str,
}

impl Search<'_> {
    fn run(&mut self, step: &StepRecord, writers: u64) -> Result<bool> {
        let outside = "md.0: the sizes of the records lie outside";
        let sizes_at = step.metadata.checked_add(8).ok_or(outside)?;
        let sizes = self.read(sizes_at, 8 * writers.min(WRITERS))?;
        let sizes = Numbers {
            bytes: &sizes,
            is_big_endian: self.is_big_endian,
        };
        let records_at = writers
            .checked_mul(16)
            .and_then(|len| sizes_at.checked_add(len));
        let mut at = records_at.ok_or(outside)?;
        for size in sizes.u64s() {
            if size > 0 && self.is_in_record(at)? {
                return Ok(true);
            }
            at = at.checked_add(size).ok_or(outside)?;
        }
        Ok(false)
    }

    /// Whether the record at this offset has the variable. A damaged record has none.
    fn is_in_record(&mut self, at: u64) -> Result<bool> {
        self.has(at)
            .or_else(|fault| fault.into_damage().map(|_| false))
    }

    fn has(&mut self, at: u64) -> Result<bool> {
        let id = self.read(at, size_of::<Id>() as u64)?;
        let id = *id.first_chunk().ok_or("is too short for an id")?;
        if !self.presences.contains_key(&id) {
            let presence = self.formats.presence(&self.bytes, &id, self.name);
            self.presences.insert(id, presence.ok());
        }
        let Some(Some(presence)) = self.presences.get(&id) else {
            return Ok(false);
        };
        let base = at.checked_add(record::HEADER).ok_or("lies outside")?;
        for number in &presence.numbers {
            if self.is_set(base, presence, *number as u64)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether the bit of a variable is set in the record with this base.
    fn is_set(&self, base: u64, presence: &Presence, number: u64) -> Result<bool> {
        let slot = |slot: Slot| self.number(base, u64::from(slot.offset), slot.size);
        let (words, bits) = (slot(presence.bit_words)?, slot(presence.bits)?);
        let word = number / 64;
        if word >= words || bits == 0 {
            return Ok(false);
        }
        let word = self.number(base, bits.saturating_add(8 * word), 8)?;
        Ok(word >> (number % 64) & 1 != 0)
    }

    /// A number at `offset` from a base.
    fn number(&self, base: u64, offset: u64, size: u8) -> Result<u64> {
        let at = base.checked_add(offset).ok_or("lies outside")?;
        let bytes = self.read(at, size.into())?;
        let numbers = Numbers {
            bytes: &bytes,
            is_big_endian: self.is_big_endian,
        };
        numbers.unsigned(0, size)
    }

    fn read(&self, at: u64, len: u64) -> Result<Vec<u8>> {
        numbers::read(self.metadata, at, len, "md.0")
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Content, Directory, Put, Writer};
    use crate::first_step::has_variable;
    use crate::model::Kind;

    fn put(name: &str) -> Put {
        Put {
            name: name.into(),
            kind: Kind::GlobalValue,
            content: Content::Value {
                ty: 3,
                bytes: vec![0; 4],
            },
        }
    }

    fn writer(puts: &[&str], absent: &[&str]) -> Writer {
        let all = |names: &[&str]| names.iter().map(|name| put(name)).collect();
        Writer {
            puts: all(puts),
            absent: all(absent),
            ..Writer::default()
        }
    }

    #[test]
    fn only_the_first_step_counts() {
        for is_big_endian in [false, true] {
            let mut of = Directory::new(is_big_endian, false);
            let told = |of: &Directory, name| has_variable(of.files(), name).unwrap();
            assert_eq!(told(&of, "/a/x"), None);
            of.map(&[0, 0]);
            assert_eq!(told(&of, "/a/x"), None);
            of.step(&[writer(&["/b"], &[]), writer(&["/b", "/a/x"], &["/later"])]);
            of.step(&[writer(&["/later"], &[]), writer(&["/other"], &[])]);
            assert_eq!(told(&of, "/a/x"), Some(true));
            for none in ["/later", "/other", "/x", "x", "/a", ""] {
                assert_eq!(told(&of, none), Some(false), "{none}");
            }
        }
    }

    #[test]
    fn a_step_that_is_not_complete_does_not_count() {
        let mut of = Directory::new(false, false);
        of.map(&[0]);
        of.step(&[writer(&["x"], &[])]);
        let with = |edit: fn(&mut Directory)| {
            let mut of = of.clone();
            edit(&mut of);
            has_variable(of.files(), "x")
        };
        assert_eq!(with(|_| ()), Ok(Some(true)));
        assert_eq!(with(|of| _ = of.metadata.pop()), Ok(None));
        assert_eq!(with(|of| _ = of.index.pop()), Ok(None));
        assert!(with(|of| of.index.truncate(63)).is_err());
        // A record without its format.
        assert_eq!(with(|of| of.formats.clear()), Ok(Some(false)));
        let mut files = of.files();
        files.formats = None;
        assert!(has_variable(files, "x").is_err());
    }

    #[test]
    fn every_cut_and_every_changed_byte_has_an_answer() {
        let mut of = Directory::new(false, false);
        of.map(&[0]);
        of.step(&[writer(&["x", "y"], &["z"])]);
        let parts: [fn(&mut Directory) -> &mut Vec<u8>; 3] = [
            |of| &mut of.index,
            |of| &mut of.metadata,
            |of| &mut of.formats,
        ];
        for part in parts {
            for at in 0..part(&mut of.clone()).len() {
                let mut cut = of.clone();
                part(&mut cut).truncate(at);
                let _any = has_variable(cut.files(), "x");
                for value in [0, 1, 0x7f, 0xff] {
                    let mut changed = of.clone();
                    part(&mut changed)[at] = value;
                    let _any = has_variable(changed.files(), "x");
                }
            }
        }
    }
}
