//! The front of a closed file: superblock, root group, and the log's own objects, made by libhdf5 in
//! memory, with the addresses patched in that lead to the log behind them.

use crate::hdf5_sys::{self as h5, Id, Link, Space, Target};
use h5logfs_core::image::Image;
use h5logfs_core::journal::extent::{FRONT, set_mark};
use h5logfs_core::journal::{FileId, Header};
use h5logfs_core::log::logvol::{MARK, SUBFILED, names};
use h5logfs_core::log::window::Piece;

type Result<T> = std::result::Result<T, String>;

/// What a file to be closed is in its log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Data and table of the log, which lie in this file behind the front, the table last.
    Log { data: Piece, table: Piece },
    /// The user's objects of a log whose data lie in subfiles.
    Master,
}

impl Role {
    fn has_log(self) -> bool {
        matches!(self, Role::Log { table, .. } if table.len > 0)
    }

    /// Where the file ends.
    pub fn end(self) -> u64 {
        match self {
            Role::Log { table, .. } => table.offset + table.len,
            Role::Master => FRONT,
        }
    }
}

/// The bytes of the front, [`FRONT`] of them. `datasets`: IDs ever handed out.
pub fn closed_front(header: &Header, id: &FileId, datasets: usize, role: Role) -> Result<Vec<u8>> {
    let file = h5::create_in_memory(&h5::new_file_creation()?)?;
    let root = h5::open_group(&file, c"/")?;
    mark(&root, header, datasets, role)?;
    let mut addresses = Vec::new();
    if let Role::Log { data, table } = role {
        let group = h5::create_group(&root, &named(names::LOG_GROUP), &h5::group_creation(&root)?)?;
        if role.has_log() {
            for (name, piece) in [("_ld_0", data), ("_md_0", table)] {
                let dataset = extent_of_bytes(&group, name, piece.len)?;
                addresses.push((h5::address(&dataset)?, piece.offset));
            }
        }
    }
    drop(root);
    let mut image = Image::new(h5::file_image(&file)?);
    for (header, address) in addresses {
        image.set_layout_address(header, address, false)?;
        image.set_early_allocation(header)?;
    }
    image.set_superblock(0, role.end())?;
    let mut front = image.into_bytes();
    // The file in memory grows by large steps; what lies past its end is not part of it.
    const ROOM: usize = FRONT as usize - 32;
    if front.iter().skip(ROOM).any(|b| *b != 0) {
        return Err(format!(
            "{} bytes of metadata in front of a log",
            front.len()
        ));
    }
    front.resize(FRONT as usize, 0);
    set_mark(&mut front, id);
    Ok(front)
}

/// The root attributes that make the file a log (`docs/formats/logvol.md`, section 1.1).
fn mark(root: &Id, header: &Header, datasets: usize, role: Role) -> Result<()> {
    let logs = i32::from(role.has_log());
    let config = match role {
        Role::Master => header.config | SUBFILED as i32,
        Role::Log { .. } => header.config,
    };
    let datasets = i32::try_from(datasets).map_err(|e| e.to_string())?;
    let subfiles = i32::try_from(header.data_files()).map_err(|e| e.to_string())?;
    let numbers = [datasets, logs, logs, config, subfiles];
    let bytes: Vec<u8> = numbers.iter().flat_map(|n| n.to_le_bytes()).collect();
    let integers = h5::integer_type(4, true, false)?;
    let name = (MARK.as_bytes(), false);
    h5::write_plain_attribute(root, name, &integers, &list(5).create()?, &bytes)?;
    let writer = header.writer.as_bytes();
    let text = h5::text_type(writer.len() as u32, false)?;
    let scalar = Space::Simple {
        dims: Vec::new(),
        max: Vec::new(),
    };
    let name = (names::WRITER.as_bytes(), false);
    h5::write_plain_attribute(root, name, &text, &scalar.create()?, writer)
}

/// A dataset that is one stretch of bytes, whose place is yet unknown (section 1.2).
fn extent_of_bytes(group: &Id, name: &str, len: u64) -> Result<Id> {
    let creation = h5::new_dataset_creation()?;
    h5::set_contiguous(&creation)?;
    let bits = h5::bitfield_type(1, false)?;
    h5::create_dataset(group, &named(name), &bits, &list(len).create()?, &creation)
}

fn list(len: u64) -> Space {
    Space::Simple {
        dims: vec![len],
        max: vec![len],
    }
}

fn named(name: &str) -> Link {
    Link {
        name: name.as_bytes().to_vec(),
        utf8: false,
        target: Target::Hard(0),
    }
}
