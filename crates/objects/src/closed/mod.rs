//! The metadata of a closed log (`docs/formats/logvol.md`), made of its metadata image without libhdf5: superblock, root group, the
//! log's own objects, and those of the user with stub datasets in place of logged datasets.
//!
//! libhdf5 makes each object by several searches through its caches, so that thousands take a second. Nearly all programs make
//! objects of few kinds, whose bytes are known. So `plain` walks through an image with nothing else once, and its closed form is
//! written in one piece. For any other image [`ClosedObjects::of`] has nothing, and libhdf5 copies it.

mod plain;

use std::collections::HashMap;

use h5logfs_log::front::FRONT;
use h5logfs_log::image::links::{Named, Table, To};
use h5logfs_log::image::object_header::kind;
use h5logfs_log::image::{Added, Space};
use h5logfs_log::journal::closed::{Closed, ClosedLog, SEAL_AT, set_seal};
use h5logfs_log::journal::metadata_image::MetadataImage;
use h5logfs_log::logvol::{MARK, names};
use h5logfs_log::window::Piece;

use crate::Result;
use crate::written::header::{self, HEAD, Messages, PREFIX};
use crate::written::{self, NewObject, Root, SIZES, SUPERBLOCK, link, superblock};

/// The objects of a log, but for addresses.
#[derive(Debug)]
pub struct ClosedObjects(Vec<NewObject>);

impl ClosedObjects {
    /// The objects of a log with this metadata image. `None` where only libhdf5 can copy them, or tell what is wrong with them.
    pub fn of_image(image: &MetadataImage) -> Option<Self> {
        let logged = image.logged.iter();
        let logged = logged.filter_map(|(id, header)| Some(((*header)?, *id)));
        ClosedObjects::of(&image.image, logged)
    }

    /// The objects of a metadata image with these bytes, of which those at the addresses of `logged` are logged datasets with these
    /// IDs. `None` where only libhdf5 can copy them, or tell what is wrong with them.
    pub fn of(image: &Vec<u8>, logged: impl IntoIterator<Item = (u64, u32)>) -> Option<Self> {
        let logged = logged.into_iter();
        let mut ids = HashMap::with_capacity(logged.size_hint().1.unwrap_or(0));
        for (header, id) in logged {
            if ids.insert(header, id).is_some() {
                return None;
            }
        }
        let objects = plain::objects(image, &ids);
        objects.ok().flatten().map(ClosedObjects)
    }

    /// The metadata of the closed log, with its seal. `datasets` is the number of dataset IDs in use.
    pub fn metadata(&self, log: ClosedLog<'_>, datasets: usize) -> Result<Added> {
        let start = log.table.offset + log.table.len;
        let mut front = vec![0; FRONT as usize];
        let mut own = Space::new(SUPERBLOCK as u64);
        let mut rest = Space::with_room(start, written::size(&self.0));
        let group = own_objects(&mut own, log).ok_or(TOO_MUCH)?;
        let (root, table) = self
            .objects(&mut own, &mut rest, (log, datasets), group)
            .ok_or(TOO_MUCH)?;
        let (own, rest) = (own.into_bytes(), rest.into_bytes());
        if SUPERBLOCK + own.len() > SEAL_AT {
            return Err(TOO_MUCH.into());
        }
        front[SUPERBLOCK..][..own.len()].copy_from_slice(&own);
        front[..SUPERBLOCK].copy_from_slice(&superblock(root, table, start + rest.len() as u64));
        log.id.mark(&mut front);
        let closed = Closed {
            flush: log.flush,
            end: log.end(),
            has_seals: log.has_seals,
        };
        set_seal(&mut front, closed, start, &rest);
        Ok(Added::of(front, start, rest))
    }

    /// Writes the root group, and all that is in it, with the log's own `group`. Returns its address, and where its links are.
    fn objects(
        &self,
        own: &mut Space,
        rest: &mut Space,
        log: (ClosedLog<'_>, usize),
        group: u64,
    ) -> Option<(u64, Option<Table>)> {
        let (address, messages) = put_root(own, rest, log, self.0.first()?, group)?;
        let more = Named {
            name: names::LOG_GROUP.as_bytes().into(),
            target: To::Object(group),
        };
        let root = Root {
            address,
            messages,
            more: Some(more),
        };
        let table = written::put(rest, &self.0, root)?.of_root;
        if let Some(table) = table {
            own.set(address + (PREFIX + HEAD) as u64, &table.to_bytes());
        }
        Some((address, table))
    }
}

const TOO_MUCH: &str = "the metadata of the closed log take too much room";

/// Writes the header of the root group, which has the log's own `group`. What it has of the user lies behind the table, since the room
/// in the front is little. Returns its address, and the one from which the messages of the user count.
fn put_root(
    own: &mut Space,
    rest: &mut Space,
    log: (ClosedLog<'_>, usize),
    root: &NewObject,
    group: u64,
) -> Option<(u64, u64)> {
    let mut messages = Messages::default();
    // The first message is the symbol table, if there is one, which is in the front.
    let (taken, more) = if root.table.is_some() {
        messages.push(kind::SYMBOL_TABLE, 0, &[0; 16])?;
        (HEAD + 16, root.messages.count() - 1)
    } else {
        messages.push(
            kind::LINK,
            0,
            &link::hard(names::LOG_GROUP.as_bytes(), false, None, group)?,
        )?;
        (0, root.messages.count())
    };
    push_mark(&mut messages, log)?;
    let theirs = root.messages.bytes().get(taken..)?;
    let at = rest.put(theirs);
    if more > 0 {
        let place = [at, theirs.len() as u64].map(u64::to_le_bytes);
        messages.push(kind::CONTINUATION, 0, place.as_flattened())?;
    }
    let address = messages.put(own, root.links, more)?;
    Some((address, at.wrapping_sub(taken as u64)))
}

/// The root attributes that make the file a log (section 1.1).
fn push_mark(messages: &mut Messages, (log, datasets): (ClosedLog<'_>, usize)) -> Option<()> {
    let logs = i32::from(log.table.len > 0);
    let datasets = i32::try_from(datasets).ok()?;
    let numbers = [datasets, logs, logs, log.header.config, 1];
    messages.push_list(MARK, header::integer(4, true), &numbers, i32::to_le_bytes)?;
    let writer = log.header.writer.as_bytes();
    let text = header::text(u32::try_from(writer.len()).ok()?);
    let data = header::attribute(names::WRITER, &text, &header::SCALAR, writer)?;
    messages.push(kind::ATTRIBUTE, 0, &data).map(|_| ())
}

/// Writes the group of the log (section 1.2). Returns its address.
fn own_objects(own: &mut Space, log: ClosedLog<'_>) -> Option<u64> {
    let mut links = Vec::new();
    if log.table.len > 0 {
        for (name, piece) in [("_ld_0", log.data), ("_md_0", log.table)] {
            let address = bytes_of_log(piece)?.put(own, 1, 0)?;
            links.push(Named {
                name: name.as_bytes().into(),
                target: To::Object(address),
            });
        }
    }
    let table = Table::put(own, links, SIZES);
    let mut messages = Messages::default();
    messages.push(kind::SYMBOL_TABLE, 0, &table.to_bytes())?;
    messages.put(own, 1, 0)
}

/// A dataset of bytes of the file.
fn bytes_of_log(piece: Piece) -> Option<Messages> {
    /// Bit fields of one byte.
    const BITS: [u8; 12] = [0x14, 0, 0, 0, 1, 0, 0, 0, 0, 0, 8, 0];
    const CONSTANT: u8 = 1;
    let mut messages = Messages::default();
    messages.push(kind::DATASPACE, 0, &header::list(piece.len))?;
    messages.push(kind::DATATYPE, CONSTANT, &BITS)?;
    // The place is there from the begin.
    let fill = header::fill_value(header::allocation::EARLY, &[])?;
    messages.push(kind::FILL_VALUE, CONSTANT, &fill)?;
    let place = header::contiguous(piece.offset, piece.len);
    messages.push(kind::LAYOUT, 0, &place)?;
    Some(messages)
}
