//! The front of a closed file: superblock, root group, and the log's own objects. libhdf5 makes them in memory, and
//! then the addresses of the log are patched in.

use crate::hdf5_sys::{self as h5, Id, Link, Name, Space};
use h5logfs_common::fault::Fault;
use h5logfs_hdf5_format::Image;
use h5logfs_log::file_id::FileId;
use h5logfs_log::front::FRONT;
use h5logfs_log::journal::Header;
use h5logfs_log::journal::closed::{Closed, SEAL_AT, set_seal, set_unfinished_seal};
use h5logfs_log::logvol::{MARK, SUBFILED, names};
use h5logfs_log::window::Piece;

type Result<T> = std::result::Result<T, Fault>;

/// The part of a file in its log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// A file with data and their table, behind the front and in this order.
    Log { data: Piece, table: Piece },
    /// A file with only the user's objects. The data lie in subfiles.
    Master,
}

impl Role {
    fn has_log(self) -> bool {
        matches!(self, Role::Log { table, .. } if table.len > 0)
    }

    /// The end of the file.
    pub fn end(self) -> u64 {
        match self {
            Role::Log { table, .. } => table.offset + table.len,
            Role::Master => FRONT,
        }
    }

    /// The end of the extents.
    fn end_of_data(self) -> u64 {
        match self {
            Role::Log { data, .. } => data.offset + data.len,
            Role::Master => FRONT,
        }
    }
}

/// The contents of a front.
#[derive(Clone, Copy)]
pub struct Front<'a> {
    /// The header of the journal.
    pub header: &'a Header,
    /// The identifier of the log.
    pub id: &'a FileId,
    /// Number of dataset IDs in use.
    pub datasets: usize,
    pub role: Role,
    /// The last flush of the log.
    pub flush: u64,
    /// Whether extents of the log have seals.
    pub has_seals: bool,
}

/// Makes the [`FRONT`] bytes of the front. `creation`: creation properties of the file and of its root group.
pub(super) fn closed_front(front: Front<'_>, creation: &Id) -> Result<Vec<u8>> {
    let Front {
        header,
        id,
        role,
        flush,
        has_seals,
        ..
    } = front;
    // Groups with large nodes may leave no room for the explanation.
    let explained = objects(&front, &names::about(&header.writer), creation)?;
    let mut front = if has_room(&explained, SEAL_AT) {
        explained
    } else {
        objects(&front, &header.writer, creation)?
    };
    // The file ID takes the last 32 bytes. Groups with large nodes may use the bytes of the seal. Only a log with seals needs these.
    let has_seal = has_room(&front, SEAL_AT);
    if !has_seal && (has_seals || !has_room(&front, FRONT as usize - 32)) {
        return Err("the metadata in front of the log take too much room: a bug in h5logfs".into());
    }
    front.resize(FRONT as usize, 0);
    id.mark(&mut front);
    let closed = Closed {
        flush,
        end: role.end_of_data(),
        has_seals,
    };
    match role {
        _ if !has_seal => {}
        Role::Log { .. } if header.subfiles > 0 => set_seal(&mut front, closed, role.end(), &[]),
        _ => set_unfinished_seal(&mut front, closed),
    }
    Ok(front)
}

/// Whether the objects end before byte `available`. The file in memory grows in large steps, so zeros past its end are unused.
fn has_room(objects: &[u8], available: usize) -> bool {
    objects.iter().skip(available).all(|b| *b == 0)
}

/// The superblock, the root group and the log's own objects. `writer`: the text of the attribute with the writer's name.
fn objects(front: &Front<'_>, writer: &str, creation: &Id) -> Result<Vec<u8>> {
    let role = front.role;
    let file = h5::create_in_memory(creation)?;
    let root = h5::open_group(&file, c"/")?;
    mark(&root, front, writer)?;
    // Object headers, and the addresses of their data.
    let mut addresses = Vec::new();
    if let Role::Log { data, table } = role {
        let creation = h5::new_group_creation()?;
        let group = h5::create_group(&root, &Link::ascii(names::LOG_GROUP), &creation)?;
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
    Ok(image.into_bytes())
}

/// The root attributes that make the file a log (`docs/formats/logvol.md`, section 1.1).
fn mark(root: &Id, front: &Front<'_>, writer: &str) -> Result<()> {
    let (header, role) = (front.header, front.role);
    let logs = i32::from(role.has_log());
    let config = match role {
        Role::Master => header.config | SUBFILED as i32,
        Role::Log { .. } => header.config,
    };
    let datasets = i32::try_from(front.datasets)?;
    let subfiles = i32::try_from(header.data_files())?;
    let numbers = [datasets, logs, logs, config, subfiles];
    let bytes: Vec<u8> = numbers.iter().flat_map(|n| n.to_le_bytes()).collect();
    let integers = h5::integer_type(4, true, false)?;
    let list = Space::fixed(&[5]).create()?;
    h5::write_plain_attribute(root, Name::ascii(MARK), &integers, &list, &bytes)?;
    let text = h5::text_type(writer.len() as u32, false)?;
    let scalar = Space::scalar().create()?;
    h5::write_plain_attribute(
        root,
        Name::ascii(names::WRITER),
        &text,
        &scalar,
        writer.as_bytes(),
    )
}

/// A contiguous dataset of bytes, whose address is set later (section 1.2).
fn extent_of_bytes(group: &Id, name: &str, len: u64) -> Result<Id> {
    let creation = h5::new_dataset_creation()?;
    h5::set_contiguous(&creation)?;
    let bits = h5::bitfield_type(1, false)?;
    let list = Space::fixed(&[len]).create()?;
    h5::create_dataset(group, &Link::ascii(name), &bits, &list, &creation)
}
