//! The formats of `mmd.0` (section 3.3). Each is decoded on first use and kept.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use super::attributes::{NamedFields, OwnFields};
use super::ffs::{Format, Id};
use super::fields::{Fields, Presence};
use super::types;
use crate::model::StructType;
use crate::numbers::{self, Numbers};
use crate::{Bytes, Result};

/// The largest number of formats kept, and the largest size of one in bytes: some hundred thousand variables. A
/// decoded format takes several times its size in memory.
const MOST: usize = 1 << 20;
const MOST_BYTES: u64 = 32 << 20;

/// Bytes of memory per byte of a format: a field of 60 bytes takes about 150.
const DECODED: usize = 3;

/// The struct of records of variables.
const VARIABLES: &str = "MetaData";

/// Bytes of an entry before its body: two lengths and the id.
const HEAD: u64 = 28;

/// All formats of a directory.
#[derive(Debug, Default)]
pub(super) struct Formats {
    is_big_endian: bool,
    entries: HashMap<Id, Entry>,
}

#[derive(Debug)]
struct Entry {
    at: u64,
    len: u64,
    meaning: Kept<Meaning>,
    members: Kept<Arc<StructType>>,
}

impl Entry {
    /// The stored format.
    fn body(&self, file: &dyn Bytes) -> Result<Vec<u8>> {
        if self.len > MOST_BYTES {
            return Err(format!("mmd.0: a format of {} bytes", self.len).into());
        }
        numbers::read(file, self.at, self.len, "mmd.0")
    }
}

/// A decoded format, or the reason why it cannot be decoded.
type Kept<T> = OnceLock<std::result::Result<T, String>>;

/// The meaning of the records of a format.
#[derive(Debug)]
pub(super) enum Meaning {
    /// Variables of one writer in one step.
    Variables(Fields),
    /// Attributes whose names are values of the record.
    Attributes(NamedFields),
    /// Attributes as fields of the format.
    OwnAttributes(OwnFields),
}

impl Formats {
    /// Finds all formats, up to the first incomplete one.
    pub fn read(file: &dyn Bytes, is_big_endian: bool) -> Result<Self> {
        let mut entries = HashMap::new();
        let (mut at, end) = (0, file.len());
        while end - at >= HEAD && entries.len() < MOST {
            let mut head = [0; HEAD as usize];
            file.read_exact_at(&mut head, at)?;
            let numbers = Numbers {
                bytes: &head,
                is_big_endian,
            };
            let (id, len) = (numbers.u64(0)?, numbers.u64(8)?);
            if id != size_of::<Id>() as u64 || len > end - at - HEAD {
                break;
            }
            let entry = || Entry {
                at: at + HEAD,
                len,
                meaning: OnceLock::new(),
                members: OnceLock::new(),
            };
            let (_, id) = head.split_last_chunk().ok_or("mmd.0: no id")?;
            entries.entry(*id).or_insert_with(entry);
            at += HEAD + len;
        }
        Ok(Formats {
            is_big_endian,
            entries,
        })
    }

    /// Memory in bytes once all formats are decoded.
    pub fn bytes(&self) -> usize {
        let bodies = self.entries.values().map(|entry| entry.len as usize);
        let bodies = bodies.fold(0, usize::saturating_add);
        self.entries.capacity() * size_of::<(Id, Entry)>() + bodies.saturating_mul(DECODED)
    }

    /// Where the records of a format tell whether they have the variables of one name. The format is decoded, and not
    /// kept.
    pub fn presence(&self, file: &dyn Bytes, id: &Id, name: &str) -> Result<Presence> {
        let body = self.entry(id)?.body(file)?;
        let format = Format::decode(&body, self.is_big_endian)?;
        match format.top().name {
            VARIABLES => Presence::of(&format, name),
            other => Err(format!("records of struct {other:?} are not those of variables").into()),
        }
    }

    /// The meaning of the records of a format.
    pub fn meaning(&self, file: &dyn Bytes, id: &Id) -> Result<&Meaning> {
        let entry = self.entry(id)?;
        self.kept(file, entry, &entry.meaning, |format| {
            match format.top().name {
                VARIABLES => Ok(Meaning::Variables(Fields::of(format, |id| {
                    self.members(file, id)
                })?)),
                "GenericAttributes" => Ok(Meaning::Attributes(NamedFields::of(format)?)),
                "Attributes" => Ok(Meaning::OwnAttributes(OwnFields::of(format)?)),
                other => Err(format!("records of struct {other:?} are unknown").into()),
            }
        })
    }

    /// The struct that a format describes, as the type of a variable.
    fn members(&self, file: &dyn Bytes, id: &Id) -> Result<Arc<StructType>> {
        let entry = self.entry(id)?;
        let members = self.kept(file, entry, &entry.members, |format| {
            types::members(format.top()).map(Arc::new)
        })?;
        Ok(members.clone())
    }

    fn entry(&self, id: &Id) -> Result<&Entry> {
        let entry = self.entries.get(id);
        entry.ok_or_else(|| format!("mmd.0 has no format {}", hex(id)).into())
    }

    /// Decodes a format on first use. A failure caused by its bytes is kept as well.
    fn kept<'a, T>(
        &self,
        file: &dyn Bytes,
        entry: &Entry,
        kept: &'a Kept<T>,
        make: impl FnOnce(&Format) -> Result<T>,
    ) -> Result<&'a T> {
        let made = match kept.get() {
            Some(made) => made,
            None => {
                let body = entry.body(file)?;
                let format = Format::decode(&body, self.is_big_endian);
                let made = match format.and_then(|format| make(&format)) {
                    Ok(made) => Ok(made),
                    Err(fault) => Err(fault.into_damage()?),
                };
                kept.get_or_init(|| made)
            }
        };
        made.as_ref()
            .map_err(|reason| format!("mmd.0: {reason}").into())
    }
}

fn hex(id: &Id) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}
