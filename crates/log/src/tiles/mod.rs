//! Sets of netCDF files that one file for each process make up: tiles (`docs/formats/netcdf-tiles.md`, whose section numbers
//! this directory cites).
//!
//! * [`names`] parses the names of members, and finds candidates in a listing.
//! * [`named`] finds the set that a path of a user names.
//! * [`recognition`] tells whether a file is a member, by its header.
//! * [`member`] is the header of a member, whatever its format. [`mod@format`] reads it, with `classic` and `hdf5`.
//! * `families` says where the tile of a member lies, by the attributes of each kind of model.
//! * [`set`] reads the headers of all members, and finds what they make up.
//! * `facts` describes a set for users.
//! * `table` is the layout. `parts` makes the records of a member, `chunks` those of netCDF-4 members, and `tiling` finds the
//!   shape of chunks that follow the members.

mod chunks;
mod classic;
mod facts;
mod families;
pub mod format;
mod hdf5;
pub mod member;
pub mod named;
pub mod names;
mod parts;
pub mod recognition;
pub mod set;
mod table;
#[cfg(test)]
mod tests;
mod tiling;

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::numbers::NumberType;
use h5logfs_common::fault::Fault;

/// A kind of model, by the attributes of its files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Family {
    /// FMS: MOM, SIS, FV3 and others (section 2).
    Fms,
    /// NEMO and XIOS (section 4).
    Nemo,
    /// ROMS and CROCO (section 5).
    Roms,
    /// MITgcm's package mnc (section 6).
    Mitgcm,
}

impl Family {
    /// The name of the models.
    pub fn name(self) -> &'static str {
        match self {
            Family::Fms => "FMS",
            Family::Nemo => "NEMO or XIOS",
            Family::Roms => "ROMS or CROCO",
            Family::Mitgcm => "MITgcm",
        }
    }
}

/// A set as the scan found it. A dataset of the snapshot has the number of its variable here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tables {
    /// The family.
    pub family: Family,
    /// The members that can be read, by ascending number in their names. Member `n` is source `n` of the snapshot.
    pub members: Vec<Member>,
    /// The members that are missing or cannot be read. While there is one, elements that no member has are unreadable.
    pub absent: Vec<Absent>,
    /// The forms of members. Members with the same sizes share one.
    pub forms: Vec<Form>,
    /// Variables by number.
    pub variables: Vec<Variable>,
}

/// A member that can be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Number of its form.
    pub form: u32,
    /// Its part of each decomposed dimension, by the number of that dimension in this set.
    pub spans: Vec<Span>,
    /// Its length along each unlimited dimension, by the number of that dimension in this set.
    pub records: Vec<u64>,
}

/// The part of a decomposed dimension that one member has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Span {
    /// The first point in the whole, after the halo.
    pub at: u64,
    /// Number of points that count.
    pub len: u64,
    /// Points of the halo before them.
    pub before: u64,
    /// Points in the member, halo included.
    pub all: u64,
}

/// A member that is missing or cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Absent {
    /// The name of its file.
    pub name: String,
    /// What is wrong, in words that go on after the name.
    pub reason: String,
    /// The first point and the number of points of its part of each decomposed dimension, where they are known.
    pub spans: Option<Vec<(u64, u64)>>,
}

/// The places of the variables in a member.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Form {
    /// The kind of file.
    pub kind: FileKind,
    /// The place of each variable; `None` where the member lacks it. In a classic file this is the offset of its first byte;
    /// in an HDF5 file the address of its object header, counted from the superblock.
    pub places: Vec<Option<u64>>,
}

/// A kind of netCDF file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum FileKind {
    /// netCDF classic, with this many bytes from one record of all record variables to the next.
    Classic {
        /// The bytes of a record.
        record_size: u64,
    },
    /// netCDF-4.
    Hdf5,
}

/// A variable.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Variable {
    /// Its name.
    pub name: Arc<str>,
    /// The type of its elements; text is unsigned bytes.
    pub kind: NumberType,
    /// The byte order in which it is shown.
    pub is_big_endian: bool,
    /// Its dimensions, slowest first.
    pub dims: Vec<Axis>,
    /// The members that have its elements.
    pub holders: Holders,
}

/// One dimension of a variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Axis {
    /// All members have all of it.
    Whole,
    /// A decomposed dimension, by its number in [`Member::spans`].
    Cut(u16),
    /// An unlimited dimension, by its number in [`Member::records`].
    Records(u16),
}

/// The members that have the elements of a variable. Where several have an element, the last one counts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Holders {
    /// All that have the variable.
    All,
    /// The first that has the variable, for a variable that is not decomposed; record `r` is that of the first member with more
    /// than `r` records.
    First,
    /// Those with these numbers, ascending.
    Some(Vec<u16>),
}

impl Tables {
    /// Fails with the reason where the parts contradict each other. `sources` is the number of source files.
    pub fn check(&self, sources: usize) -> Result<(), Fault> {
        let decomposed = self.members.first().map_or(0, |member| member.spans.len());
        let unlimited = self
            .members
            .first()
            .map_or(0, |member| member.records.len());
        let is_sound = |member: &Member| {
            let spans = member.spans.iter().all(Span::is_sound);
            let form = self.forms.get(member.form as usize);
            let has_all = form.is_some_and(|form| form.places.len() == self.variables.len());
            let lens = (member.spans.len(), member.records.len());
            spans && has_all && lens == (decomposed, unlimited)
        };
        if self.members.len() > sources || !self.members.iter().all(is_sound) {
            return Err("members that contradict each other".into());
        }
        let is_known = |axis: &Axis| match *axis {
            Axis::Whole => true,
            Axis::Cut(number) => usize::from(number) < decomposed,
            Axis::Records(number) => usize::from(number) < unlimited,
        };
        let holds = |holders: &Holders| match holders {
            Holders::Some(members) => members
                .iter()
                .all(|member| usize::from(*member) < self.members.len()),
            Holders::All | Holders::First => true,
        };
        let mut variables = self.variables.iter();
        if !variables.all(|of| of.dims.iter().all(is_known) && holds(&of.holders)) {
            return Err("a variable of unknown dimensions".into());
        }
        Ok(())
    }
}

impl Span {
    /// Whether its points lie in the member, and end below 2^63.
    fn is_sound(&self) -> bool {
        let own = self.before.checked_add(self.len);
        let end = self.at.checked_add(self.len);
        own.is_some_and(|own| own <= self.all) && end.is_some_and(|end| end < 1 << 63)
    }
}
