//! What the classic layout has in a file besides the user's objects (`docs/formats/logvol-classic.md`).

use std::collections::{BTreeMap, HashSet};
use std::ffi::CString;
use std::path::Path;

use super::chunks::{self, Hdf5};
use super::layout_objects::{self, Anchor, LayoutObjects, MOST_DIMS, Owner};
use crate::hdf5_sys::{self as h5, Id, Kind, StorageClass, Target};
use h5logfs_core::log::arrangement::Arrangement;
use h5logfs_core::log::classic::{
    self, DATA_LOG, DIMS, FIRST, ID, METADATA_LOG, Tables, has_magics,
};
use h5logfs_core::log::source_dir::SourceDir;
use h5logfs_core::log::source_file::SourceFile;

type Result<T> = std::result::Result<T, String>;

/// What a file of this layout has.
#[derive(Debug)]
pub struct Log {
    /// The metadata log, and the data log.
    pub sources: [SourceFile; 2],
    pub tables: Tables,
    pub own: Proposal,
}

/// What of a file is the layout's own.
#[derive(Debug)]
pub struct Proposal {
    anchors: BTreeMap<i64, Vec<classic::Anchor>>,
}

impl LayoutObjects for Proposal {
    fn present_link<'n>(&self, stored: &'n [u8], in_root: bool) -> Option<&'n [u8]> {
        let is_log = [METADATA_LOG, DATA_LOG]
            .map(str::as_bytes)
            .contains(&stored);
        (!in_root || !is_log).then_some(stored)
    }

    fn present_attribute<'n>(&self, stored: &'n [u8], owner: Owner) -> Option<&'n [u8]> {
        let is_ours = [ID, DIMS, FIRST].map(str::as_bytes).contains(&stored);
        (owner != Owner::Anchor || !is_ours).then_some(stored)
    }

    fn anchor(&self, dataset: &Id, names: &[CString]) -> Result<Option<Anchor>> {
        if !names.iter().any(|name| name.as_bytes() == ID.as_bytes()) {
            return Ok(None);
        }
        let integers = |wanted, most| layout_objects::integers(dataset, names, wanted, most);
        let one = |wanted| match integers(wanted, 1)?.as_deref() {
            Some([value]) => Ok(*value),
            _ => Err(format!("an anchor without {wanted}")),
        };
        let (id, first) = (one(ID)?, one(FIRST)?);
        if id < 0 || first < -1 {
            return Err(format!("an anchor with the id {id}, first entry {first}"));
        }
        if self.anchors.get(&id).is_some_and(|all| all.len() > 1) {
            return Err(format!("another anchor has the id {id}, too"));
        }
        if h5::dataset_space(dataset)?.rank() != Some(0) {
            return Err("an anchor that is no scalar".into());
        }
        let dims = integers(DIMS, MOST_DIMS)?.unwrap_or_default();
        let dims: Vec<u64> = dims
            .into_iter()
            .map(layout_objects::extent)
            .collect::<Result<_>>()?;
        Ok(Some(Anchor {
            id,
            max_dims: dims.iter().copied().map(Some).collect(),
            dims,
            chunk: None,
            filters: None,
        }))
    }
}

/// The log of a file; `None` where it has none.
pub fn find(
    dir: &SourceDir,
    relative: &Path,
    file: &Id,
    source: &SourceFile,
) -> Result<Option<Log>> {
    let root = h5::open_group(file, c"/")?;
    // Fails where the link is a soft or an external one, which is not followed.
    let is_there = |name: &str| h5::hard_link_exists(&root, &h5::c_name(name.as_bytes())?);
    let are_there = [METADATA_LOG, DATA_LOG].map(is_there);
    if are_there.contains(&Ok(false)) {
        return Ok(None);
    }
    let base = h5::user_block(&h5::file_creation(file)?)?;
    let open = |name: &str| {
        let opened = open_log((dir, relative), &root, name, Hdf5 { source, base });
        opened.map_err(|e| format!("/{name}: {e}"))
    };
    let are_there: Result<Vec<bool>> = are_there.into_iter().collect();
    let sources = are_there.and_then(|_| Ok([open(METADATA_LOG)?, open(DATA_LOG)?]));
    let is_certain = matches!(&sources, Ok([m, d]) if has_magics(m, d));
    let anchors = anchors(file)?;
    if !is_certain && anchors.is_empty() {
        // Datasets of these names, of somebody who has never heard of us.
        return Ok(None);
    }
    Ok(Some(Log {
        sources: sources?,
        tables: Tables {
            metadata: 1,
            data: 2,
            anchors: anchors.values().filter_map(|all| known(all)).collect(),
        },
        own: Proposal { anchors },
    }))
}

/// What is known of all anchors with one id: nothing, where they differ in their rank.
fn known(all: &[classic::Anchor]) -> Option<classic::Anchor> {
    let (first, others) = all.split_first()?;
    let same = others.iter().all(|other| other.rank == first.rank);
    same.then_some(*first)
}

/// One of the two log datasets, as a source of its own.
fn open_log(
    (dir, relative): (&SourceDir, &Path),
    root: &Id,
    name: &str,
    file: Hdf5<'_>,
) -> Result<SourceFile> {
    let dataset = h5::open_dataset(root, &h5::c_name(name.as_bytes())?)?;
    let creation = h5::dataset_creation(&dataset)?;
    let is_chunked = h5::storage_class(&creation)? == StorageClass::Chunked;
    let is_bytes = h5::is_unsigned_byte(&h5::dataset_type(&dataset)?)?;
    let space = h5::dataset_space(&dataset)?;
    let is_list = space.rank() == Some(1);
    if !is_list || !is_chunked || !is_bytes || h5::has_filters(&creation)? {
        return Err("not unsigned bytes in one dimension, chunked and unfiltered".into());
    }
    // Positions are signed.
    let len = space.elements().filter(|len| *len <= i64::MAX as u64);
    let len = len.ok_or("more bytes than can be counted")?;
    let found = chunks::of_bytes(file, h5::address(&dataset)?, len)?;
    let log = SourceFile::open(dir, relative).map_err(|e| e.to_string())?;
    if log.identity() != file.source.identity() {
        return Err("the file was changed meanwhile".into());
    }
    let arranged = log.arranged(Arrangement::Blocks {
        block: found.chunk,
        at: found.at,
        len,
    });
    arranged.map_err(|e| e.to_string())
}

/// All anchors, by their ids. What cannot be read of one is no concern here, nor are links that lead nowhere:
/// who walks the objects says what is wrong with them.
fn anchors(file: &Id) -> Result<BTreeMap<i64, Vec<classic::Anchor>>> {
    let mut found: BTreeMap<i64, Vec<_>> = BTreeMap::new();
    let root = h5::open_group(file, c"/")?;
    let mut met = HashSet::from([h5::address(&root)?]);
    let mut groups = vec![root];
    while let Some(group) = groups.pop() {
        for link in h5::links(&group)? {
            let Target::Hard(address) = link.target else {
                continue;
            };
            if !met.insert(address) {
                continue;
            }
            let object = h5::open_object(file, address)?;
            match h5::object_info(&object)?.kind {
                Kind::Group => groups.push(object),
                Kind::Dataset => {
                    if let Some(anchor) = known_of(&object)? {
                        found.entry(anchor.id).or_default().push(anchor);
                    }
                }
                Kind::Datatype => {}
            }
        }
    }
    Ok(found)
}

/// What of an anchor has to be known to walk the metadata log, if a dataset is one and says it.
fn known_of(dataset: &Id) -> Result<Option<classic::Anchor>> {
    let names = h5::attribute_names(dataset)?;
    let integers = |wanted, most| layout_objects::integers(dataset, &names, wanted, most);
    let one = |wanted| Some(*integers(wanted, 1).ok()??.first()?);
    let dims = integers(DIMS, MOST_DIMS);
    let (Some(id), Ok(dims)) = (one(ID), dims) else {
        return Ok(None);
    };
    let rank = dims.map_or(0, |dims| dims.len());
    Ok(Some(classic::Anchor {
        id,
        // Not more than the most dimensions.
        rank: rank as u8,
        first: one(FIRST),
    }))
}
