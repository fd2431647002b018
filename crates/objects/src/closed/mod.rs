//! Makes the metadata of a closed log (`docs/formats/logvol.md`) from its metadata image, without libhdf5: superblock,
//! root group, the log's own objects, and the user's objects with stub datasets in place of logged datasets.
//!
//! libhdf5 searches its caches several times for each object, so thousands of objects take a second. Nearly all
//! programs make objects of a few kinds with a known byte form. `plain` reads an image of such objects once, and the
//! closed form is written in one piece. For any other image, [`ClosedObjects::of`] returns `None`, and libhdf5 copies
//! the objects.

mod plain;

use std::collections::HashMap;

use h5logfs_hdf5_format::object_header::{HEAD, PREFIX, kind};
use h5logfs_hdf5_format::superblock::{SIZES, new_superblock};
use h5logfs_hdf5_format::symbol_table::{Named, Table, To};
use h5logfs_hdf5_format::written::header::{self, Messages};
use h5logfs_hdf5_format::written::{self, NewObject, Root, datatype};
use h5logfs_hdf5_format::{Added, SUPERBLOCK, Space, link};
use h5logfs_log::front::FRONT;
use h5logfs_log::journal::closed::{Closed, ClosedLog, SEAL_AT, set_seal};
use h5logfs_log::journal::metadata_image::MetadataImage;
use h5logfs_log::logvol::{MARK, names};
use h5logfs_log::window::Piece;

use crate::Result;

/// The objects of a log, without addresses.
#[derive(Debug)]
pub struct ClosedObjects(Vec<NewObject>);

impl ClosedObjects {
    /// The objects of a log with this metadata image. `None` if only libhdf5 can copy them, or can report what is wrong
    /// with them.
    pub fn of_image(image: &MetadataImage) -> Option<Self> {
        let logged = image.logged.iter();
        let logged = logged.filter_map(|(id, header)| Some(((*header)?, *id)));
        ClosedObjects::of(&image.image, logged)
    }

    /// The objects of a metadata image. `logged` lists the logged datasets: addresses and IDs. `None` if only libhdf5
    /// can copy the objects, or can report what is wrong with them.
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
        front[..SUPERBLOCK].copy_from_slice(&new_superblock(
            root,
            table,
            start + rest.len() as u64,
        ));
        log.id.mark(&mut front);
        let closed = Closed {
            flush: log.flush,
            end: log.end(),
            has_seals: log.has_seals,
        };
        set_seal(&mut front, closed, start, &rest);
        Ok(Added::of(front, start, rest))
    }

    /// Writes the root group with everything in it, and the log's own `group`. Returns its address, and the place of
    /// its links.
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

/// Writes the header of the root group, with a link to the log's own `group`. Messages of the user lie behind the
/// table, because the front has little room. Returns the address of the header, and the address from which messages of
/// the user count.
fn put_root(
    own: &mut Space,
    rest: &mut Space,
    log: (ClosedLog<'_>, usize),
    root: &NewObject,
    group: u64,
) -> Option<(u64, u64)> {
    let mut messages = Messages::default();
    // The first message is the symbol table, if there is one. It lies in the front.
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
    messages.push_list(MARK, datatype::integer(4, true), &numbers, i32::to_le_bytes)?;
    let writer = names::about(&log.header.writer);
    let text = datatype::text(
        u32::try_from(writer.len()).ok()?,
        datatype::ZERO_PADDED,
        false,
    );
    let data = header::attribute(names::WRITER, &text, &header::SCALAR, writer.as_bytes())?;
    messages.push(kind::ATTRIBUTE, 0, &data).map(|_| ())
}

/// Writes the log's group (section 1.2). Returns its address.
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

/// A dataset of bytes of the log.
fn bytes_of_log(piece: Piece) -> Option<Messages> {
    const CONSTANT: u8 = 1;
    let mut messages = Messages::default();
    messages.push(kind::DATASPACE, 0, &header::list(piece.len))?;
    messages.push(kind::DATATYPE, CONSTANT, &datatype::bitfield(1))?;
    // The storage is allocated from the beginning.
    let fill = header::fill_value(header::allocation::EARLY, &[])?;
    messages.push(kind::FILL_VALUE, CONSTANT, &fill)?;
    let place = header::contiguous(piece.offset, piece.len);
    messages.push(kind::LAYOUT, 0, &place)?;
    Some(messages)
}
