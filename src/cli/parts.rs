//! Files that contain the bytes of a canonical file unchanged: their number, and their balance.

use std::fmt;

use serde::Serialize;

use h5logfs_log::flat::FlatMember;
use h5logfs_view::View;

/// The distribution of the canonical file over such files.
#[derive(Debug, Serialize)]
pub struct Parts {
    /// Contiguous bytes of the canonical file in one file.
    stripe: u64,
    members: Vec<Member>,
}

#[derive(Debug, Serialize)]
struct Member {
    name: String,
    /// Size of the part; `null` if it is missing.
    bytes: Option<u64>,
    /// Smallest expected size.
    promised: u64,
}

impl Parts {
    /// The parts of a view; `None` if its bytes are made.
    pub fn of(view: &View) -> Option<Self> {
        let snapshot = view.snapshot();
        let flat = snapshot.log.layout().flat()?;
        let members = flat.members.iter().enumerate();
        let member = |(number, member): (usize, &FlatMember)| {
            let source = member.source.map(usize::from);
            let source = source.and_then(|source| snapshot.sources.get(source));
            Member {
                name: member.name.clone(),
                bytes: source.map(|source| source.identity.size),
                promised: flat.promised_by(number),
            }
        };
        Some(Parts {
            stripe: flat.stripe,
            members: members.map(member).collect(),
        })
    }
}

impl Parts {
    /// Whether the file has more than one part. An ordinary HDF5 file is its only one.
    pub fn are_several(&self) -> bool {
        self.members.len() > 1
    }

    /// Share of the expected bytes that are there, from 0 to 1.
    pub fn share(&self) -> f64 {
        let members = self.members.iter();
        let promised: f64 = members.clone().map(|member| member.promised as f64).sum();
        let there = members.map(|member| member.bytes.unwrap_or(0).min(member.promised) as f64);
        if promised > 0.0 {
            there.sum::<f64>() / promised
        } else {
            1.0
        }
    }
}

impl fmt::Display for Parts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.members.len();
        write!(f, "in {count} parts, with stripes of {} bytes", self.stripe)?;
        let bytes = || self.members.iter().filter_map(|member| member.bytes);
        match bytes().min().zip(bytes().max()) {
            Some((least, most)) => write!(f, "; each part has {least} to {most} bytes"),
            None => Ok(()),
        }
    }
}
