//! The links of groups (IV.A.2, IV.A.2.g and h; III.B). Old groups keep links in a symbol table, new groups in messages
//! or a fractal heap.

use std::ops::ControlFlow;

use crate::bounds::Allowance;
use crate::heap::FractalHeap;
use crate::link::{Link, LinkTarget};
use crate::messages::Header;
use crate::name_index::{Dense, NameIndex};
use crate::object_header::kind;
use crate::symbol_table::SymbolTable;
use crate::{Fields, HeaderBytes, Objects, Result, at};
use h5logfs_common::fault::Fault;

/// The most soft links on one path: the default of libhdf5.
const MOST_SOFT_LINKS: usize = 16;
/// The most names on one path, including those of its soft links.
const MOST_NAMES: usize = 4096;
/// The position of the heap ID in an index record, after a hash of four bytes.
const HEAP_ID_AT: usize = 4;

/// The message types that describe the links of a group.
const KINDS: [u16; 3] = [kind::SYMBOL_TABLE, kind::LINK_INFO, kind::LINK];

/// The place of a group's links.
enum Links<'a, B: ?Sized> {
    Table(SymbolTable<'a, B>),
    Header(Vec<Link>),
    Dense {
        heap: FractalHeap<'a, B>,
        index: Box<NameIndex<'a, B>>,
    },
}

impl<B: HeaderBytes> Objects<B> {
    /// The links of the group at an address, sorted by name. Each link has its [`Link::order`] if the group tracks creation
    /// order.
    pub fn links(&self, group: u64) -> Result<Vec<Link>> {
        let read = || {
            let mut links = match Links::read(&self.bytes, group)?.ok_or(NO_GROUP)? {
                Links::Table(table) => table.all()?,
                Links::Header(links) => links,
                Links::Dense { heap, index } => all_dense(&self.bytes, heap, &index)?,
            };
            links.sort_by(|a, b| a.name.cmp(&b.name));
            Ok(links)
        };
        read().map_err(at(group))
    }

    /// The link called `name` in the group at an address. Reads only a few blocks of a large group.
    pub fn link(&self, group: u64, name: impl AsRef<[u8]>) -> Result<Option<Link>> {
        let read = || {
            let links = Links::read(&self.bytes, group)?.ok_or(NO_GROUP)?;
            links.find(name.as_ref())
        };
        read().map_err(at(group))
    }

    /// The address of the object at a path from the root group. Follows soft links. `None` if a link is missing, or a soft link
    /// leads nowhere. Fails if the path leads through more than 16 soft links or 4096 names, to another file, or through a
    /// user-defined link.
    pub fn find(&self, path: impl AsRef<[u8]>) -> Result<Option<u64>> {
        let path = path.as_ref();
        let found = self.place(path)?;
        let outside = |reason: String| Fault::from(reason).at(String::from_utf8_lossy(path));
        match found {
            Place::Object(address) => Ok(Some(address)),
            Place::Nowhere => Ok(None),
            Place::Outside(reason) => Err(outside(reason)),
        }
    }

    /// Where a path from the root group leads, as [`Objects::find`] follows it. Fails if it leads through more than 16
    /// soft links or 4096 names.
    pub fn place(&self, path: impl AsRef<[u8]>) -> Result<Place> {
        let path = path.as_ref();
        self.follow(path)
            .map_err(|fault| fault.at(String::from_utf8_lossy(path)))
    }

    /// Whether there is a link at a path, wherever it leads. The root group counts as one.
    pub fn has_link(&self, path: impl AsRef<[u8]>) -> Result<bool> {
        let mut names = parts(path.as_ref());
        if names.is_empty() {
            return Ok(true);
        }
        let name = names.remove(0);
        names.reverse();
        let Place::Object(group) = self.place(names.join(&b'/'))? else {
            return Ok(false);
        };
        match Links::read(&self.bytes, group).map_err(at(group))? {
            Some(links) => Ok(links.find(&name).map_err(at(group))?.is_some()),
            None => Ok(false),
        }
    }

    fn follow(&self, path: &[u8]) -> Result<Place> {
        let mut group = self.root();
        // The last name in the list is the next one to follow.
        let mut names = parts(path);
        let (mut followed, mut seen) = (0, 0);
        while let Some(name) = names.pop() {
            seen += 1;
            if seen > MOST_NAMES {
                return Err("it has many names".into());
            }
            let Some(links) = Links::read(&self.bytes, group).map_err(at(group))? else {
                return Ok(Place::Nowhere);
            };
            let Some(link) = links.find(&name).map_err(at(group))? else {
                return Ok(Place::Nowhere);
            };
            match link.target {
                LinkTarget::Hard(address) => group = address,
                LinkTarget::Soft(target) => {
                    followed += 1;
                    if followed > MOST_SOFT_LINKS {
                        return Err("it leads through many soft links".into());
                    }
                    if target.starts_with(b"/") {
                        group = self.root();
                    }
                    names.extend(parts(&target));
                }
                LinkTarget::External { file, path } => {
                    let [file, path] = [&file, &path].map(|text| String::from_utf8_lossy(text));
                    let reason = format!("it leads to {path} of another file, {file}");
                    return Ok(Place::Outside(reason));
                }
                LinkTarget::Other(class) => {
                    let reason = format!("it leads through a link of type {class}");
                    return Ok(Place::Outside(reason));
                }
            }
        }
        Ok(Place::Object(group))
    }
}

/// Where a path leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// To the object with this address.
    Object(u64),
    /// To no object: a link is missing, or a soft link leads nowhere.
    Nowhere,
    /// Out of the file, as the text says: to another file, or through a user-defined link.
    Outside(String),
}

const NO_GROUP: &str = "no group";

/// The names of a path, last name first.
fn parts(path: &[u8]) -> Vec<Vec<u8>> {
    let names = path.split(|byte| *byte == b'/');
    let names = names.filter(|name| !name.is_empty() && *name != b".");
    names.rev().map(<[u8]>::to_vec).collect()
}

impl<'a, B: HeaderBytes> Links<'a, B> {
    /// Finds the links of a group. `None` if the object is not a group.
    fn read(bytes: &'a B, address: u64) -> Result<Option<Self>> {
        let header = Header::read(bytes, address, &KINDS)?;
        if let Some(message) = header.first(kind::SYMBOL_TABLE) {
            let table = SymbolTable::open(bytes, message.own_data()?)?;
            return Ok(Some(Links::Table(table)));
        }
        let Some(info) = header.first(kind::LINK_INFO) else {
            return Ok(None);
        };
        let dense = Dense::of_links(info.own_data()?).ok_or("an unknown link info message")?;
        if let Some(dense) = dense {
            return Ok(Some(Links::Dense {
                heap: FractalHeap::open(bytes, dense.heap)?,
                index: Box::new(NameIndex::of_links(bytes, dense.index)?),
            }));
        }
        let links = header
            .all(kind::LINK)
            .map(|message| Link::read(message.own_data()?));
        links
            .collect::<Result<_>>()
            .map(|links| Some(Links::Header(links)))
    }

    fn find(self, name: &[u8]) -> Result<Option<Link>> {
        match self {
            Links::Table(table) => table.find(name),
            Links::Header(links) => Ok(links.into_iter().find(|link| link.name == name)),
            Links::Dense { heap, index } => find_dense(heap, &index, name),
        }
    }
}

fn all_dense<B: HeaderBytes>(
    bytes: &B,
    mut heap: FractalHeap<'_, B>,
    index: &NameIndex<'_, B>,
) -> Result<Vec<Link>> {
    let mut links = Vec::new();
    each_dense(bytes, &mut heap, index, |message| {
        links.push(Link::read(&message)?);
        Ok(())
    })?;
    Ok(links)
}

/// Calls `see` with the message of each link in a heap.
fn each_dense<B: HeaderBytes>(
    bytes: &B,
    heap: &mut FractalHeap<'_, B>,
    index: &NameIndex<'_, B>,
    mut see: impl FnMut(Vec<u8>) -> Result<()>,
) -> Result<()> {
    let mut left = Allowance::of(bytes);
    index.each(None, |record| {
        let message = heap.object(record.get(HEAP_ID_AT..).unwrap_or_default())?;
        left.take(message.len() as u64)?;
        see(message)?;
        Ok(ControlFlow::Continue(()))
    })
}

/// The messages of a group's links in a heap; none if the group has no such heap.
pub fn dense_links<B: HeaderBytes>(bytes: &B, group: u64) -> Result<Vec<Vec<u8>>> {
    let mut messages = Vec::new();
    if let Some(Links::Dense { mut heap, index }) = Links::read(bytes, group)? {
        each_dense(bytes, &mut heap, &index, |message| {
            messages.push(message);
            Ok(())
        })?;
    }
    Ok(messages)
}

/// The next number in creation order, from a link info message (IV.A.2.c). `None` if the group does not track creation order.
pub fn order_of_links(message: &[u8]) -> Option<u64> {
    const TRACKS_ORDER: u8 = 1;
    let mut fields = Fields(message);
    fields.expect(&[0])?;
    (fields.u8()? & TRACKS_ORDER != 0).then(|| fields.u64())?
}

fn find_dense<B: HeaderBytes>(
    mut heap: FractalHeap<'_, B>,
    index: &NameIndex<'_, B>,
    name: &[u8],
) -> Result<Option<Link>> {
    let mut found = None;
    index.each(Some(name), |record| {
        // Another name may have the same hash.
        let link = Link::read(&heap.object(record.get(HEAP_ID_AT..).unwrap_or_default())?)?;
        if link.name != name {
            return Ok(ControlFlow::Continue(()));
        }
        found = Some(link);
        Ok(ControlFlow::Break(()))
    })?;
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_have_names() {
        let names = |path: &str| {
            let parts = parts(path.as_bytes()).into_iter().rev();
            parts
                .map(|name| String::from_utf8(name).unwrap())
                .collect::<Vec<_>>()
        };
        assert_eq!(names("/a//b/./c/"), ["a", "b", "c"]);
        assert_eq!(names("/"), [""; 0]);
        assert_eq!(names("..x"), ["..x"]);
    }
}
