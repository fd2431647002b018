//! The classic layout (`docs/formats/logvol-classic.md`): finds the log in a file, and tells which objects belong to
//! the layout.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};
use std::ffi::CString;

use super::chunks;
use super::layout_objects::{self, LayoutObjects, Owner, StubDataset};
use super::{Log, Sources};
use crate::hdf5_sys::{self as h5, Id, Kind, StorageClass, Target};
use h5logfs_common::fault::Fault;
use h5logfs_hdf5_format::MAX_RANK;
use h5logfs_log::arrangement::Arrangement;
use h5logfs_log::carries_mark;
use h5logfs_log::classic::{self, DATA_LOG, DIMS, FIRST, ID, METADATA_LOG, Tables, has_magics};
use h5logfs_log::hdf5_bytes::Hdf5;
use h5logfs_log::scan::ScanRequest;
use h5logfs_log::source_dir::SourcePath;
use h5logfs_log::source_file::SourceFile;

type Result<T> = std::result::Result<T, Fault>;

/// The objects of a file of this layout.
struct ClassicObjects {
    stub_datasets: BTreeMap<i64, Vec<classic::StubDataset>>,
}

impl LayoutObjects for ClassicObjects {
    fn copied_link<'n>(&self, name: &'n [u8], in_root: bool) -> Option<Cow<'n, [u8]>> {
        let logs = [METADATA_LOG, DATA_LOG].map(str::as_bytes);
        let is_log = in_root && logs.contains(&name);
        (!is_log).then_some(name.into())
    }

    fn copied_attribute<'n>(&self, name: &'n [u8], owner: Owner) -> Option<Cow<'n, [u8]>> {
        let of_stub_datasets = [ID, DIMS, FIRST].map(str::as_bytes);
        let is_internal = owner == Owner::StubDataset && of_stub_datasets.contains(&name);
        (!is_internal).then_some(name.into())
    }

    fn stub_dataset(&self, dataset: &Id, attributes: &[CString]) -> Result<Option<StubDataset>> {
        if !attributes
            .iter()
            .any(|name| name.as_bytes() == ID.as_bytes())
        {
            return Ok(None);
        }
        let integers = |wanted, most| layout_objects::integers(dataset, attributes, wanted, most);
        let one = |wanted| -> Result<i64> {
            match integers(wanted, 1)?.as_deref() {
                Some([value]) => Ok(*value),
                _ => Err(format!("a stub dataset without {wanted}").into()),
            }
        };
        let id = one(ID)?;
        let first = one(FIRST)?;
        if id < 0 || first < -1 {
            return Err(format!("a stub dataset with the id {id}, first entry {first}").into());
        }
        if self.stub_datasets.get(&id).is_some_and(|all| all.len() > 1) {
            return Err(format!("another stub dataset has the id {id}, too").into());
        }
        if h5::dataset_space(dataset)?.rank() != Some(0) {
            return Err("a stub dataset that is not a scalar".into());
        }
        let dims = integers(DIMS, MAX_RANK)?.unwrap_or_default();
        let dims = dims.into_iter().map(layout_objects::extent);
        let dims: Vec<u64> = dims.collect::<Result<_>>()?;
        Ok(Some(StubDataset {
            id,
            max_dims: dims.iter().copied().map(Some).collect(),
            dims,
            chunk: None,
            filters: None,
        }))
    }
}

/// Finds the log in an HDF5 file; `None` if it has none of this layout.
pub fn find_log(request: ScanRequest<'_>, file: &Id, source: SourceFile) -> Result<Option<Log>> {
    let root = h5::open_group(file, c"/")?;
    // A soft or external link of this name is an error, because links are not followed here.
    let exists = |name: &str| h5::hard_link_exists(&root, &h5::c_name(name.as_bytes())?);
    let both_exist = [METADATA_LOG, DATA_LOG].map(exists);
    if both_exist.contains(&Ok(false)) {
        return Ok(None);
    }
    let base = h5::user_block(&h5::file_creation(file)?)?;
    let open = |name: &str| {
        let file = Hdf5 {
            source: &source,
            base,
        };
        let opened = open_log(request, &root, name, file);
        opened.map_err(|e| e.at(format_args!("/{name}")))
    };
    let both_exist: Result<Vec<bool>> = both_exist.into_iter().collect();
    let logs = both_exist.and_then(|_| Ok([open(METADATA_LOG)?, open(DATA_LOG)?]));
    let has_magics = matches!(&logs, Ok([m, d]) if has_magics(m, d));
    let stub_datasets = match stub_datasets(file) {
        // A file that cannot be understood is passed through as plain HDF5, unless it has the marks of a log.
        Err(Fault::Damage(_)) if !has_magics && !carries_mark(&source, base)? => return Ok(None),
        stub_datasets => stub_datasets?,
    };
    if !has_magics && stub_datasets.is_empty() {
        // Another program's file has datasets with these names.
        return Ok(None);
    }
    let mut sources = Sources::default();
    for source in std::iter::once(source).chain(logs?) {
        sources.push(SourcePath::below(request.relative), source);
    }
    Ok(Some(Log {
        sealed: Vec::new(),
        seals: Vec::new(),
        sources,
        tables: h5logfs_log::Tables::Classic(Tables {
            metadata: 1,
            data: 2,
            stub_datasets: stub_datasets
                .values()
                .filter_map(|all| common(all))
                .collect(),
        }),
        layout: Box::new(ClassicObjects { stub_datasets }),
    }))
}

/// The properties that all stub datasets of one ID share; `None` if they differ in rank.
fn common(all: &[classic::StubDataset]) -> Option<classic::StubDataset> {
    let (first, others) = all.split_first()?;
    let same = others.iter().all(|other| other.rank == first.rank);
    same.then_some(*first)
}

/// Opens one of the two log datasets as a source.
fn open_log(request: ScanRequest<'_>, root: &Id, name: &str, file: Hdf5<'_>) -> Result<SourceFile> {
    let dataset = h5::open_dataset(root, &h5::c_name(name.as_bytes())?)?;
    let creation = h5::dataset_creation(&dataset)?;
    let is_chunked = h5::storage_class(&creation)? == StorageClass::Chunked;
    let is_bytes = h5::is_unsigned_byte(&h5::dataset_type(&dataset)?)?;
    let space = h5::dataset_space(&dataset)?;
    let is_list = space.rank() == Some(1);
    if !is_list || !is_chunked || !is_bytes || h5::has_filters(&creation)? {
        return Err("not unsigned bytes in one dimension, chunked and unfiltered".into());
    }
    // Offsets are signed.
    let len = space.elements().filter(|len| *len <= i64::MAX as u64);
    let len = len.ok_or("more bytes than can be counted")?;
    let found = chunks::of_bytes(file, file.base, h5::address(&dataset)?, len)?;
    let log = SourceFile::open(request.dir, request.relative)?;
    // The path may lead to another file by now.
    if log.identity() != file.source.identity() {
        return Err("the file was changed meanwhile".into());
    }
    let arranged = log.arranged(Arrangement::Blocks {
        block: found.chunk,
        at: found.at,
        len,
    });
    arranged.map_err(Fault::from)
}

/// All stub datasets, by ID. Damaged stub datasets are skipped, because the walk through the objects reports them.
fn stub_datasets(file: &Id) -> Result<BTreeMap<i64, Vec<classic::StubDataset>>> {
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
                    if let Some(stub_dataset) = read_stub_dataset(&object)? {
                        found.entry(stub_dataset.id).or_default().push(stub_dataset);
                    }
                }
                Kind::Datatype => {}
            }
        }
    }
    Ok(found)
}

/// Reads the properties of a stub dataset that the walk through the metadata log needs; `None` if they are missing or
/// the dataset is no stub dataset.
fn read_stub_dataset(dataset: &Id) -> Result<Option<classic::StubDataset>> {
    let names = h5::attribute_names(dataset)?;
    let integers = |wanted, most| layout_objects::integers(dataset, &names, wanted, most);
    let one = |wanted| Some(*integers(wanted, 1).ok()??.first()?);
    let dims = integers(DIMS, MAX_RANK);
    let (Some(id), Ok(dims)) = (one(ID), dims) else {
        return Ok(None);
    };
    let rank = dims.map_or(0, |dims| dims.len());
    Ok(Some(classic::StubDataset {
        id,
        // The rank is at most MAX_RANK.
        rank: rank as u8,
        first: one(FIRST),
    }))
}
