//! The layout of the Log VOL connector (`docs/formats/logvol.md`, sections 1, 2 and 10, and
//! `docs/formats/logvol-extensions.md`): finds the log in a file, and tells which objects belong to the layout.

use std::borrow::Cow;
use std::ffi::CString;

use super::layout_objects::{self, LayoutObjects, Owner, StubDataset};
use super::{Log, Sources};
use crate::hdf5_sys::{self as h5, Id};
use h5logfs_common::fault::Fault;
use h5logfs_hdf5_format::filters::Filter;
use h5logfs_hdf5_format::{DatasetHeader, MAX_RANK};
use h5logfs_log::front::FRONT;
use h5logfs_log::journal::closed::{CloseSeal, check_seal};
use h5logfs_log::journal::sealed::SealedFile;
use h5logfs_log::log_files::LogFiles;
use h5logfs_log::logvol::names::{
    ANCHOR, CHUNK, DIMS, FILTERS, ID, LOG_GROUP, MAX_DIMS, WRITER, find_subfiles,
};
use h5logfs_log::logvol::{LogDataset, MARK, SUBFILED, Tables};
use h5logfs_log::scan::{ScanRequest, Settings};
use h5logfs_log::source_dir::SourcePath;
use h5logfs_log::source_file::SourceFile;
use h5logfs_log::window::Piece;

type Result<T> = std::result::Result<T, Fault>;

/// The largest number of values in a recorded filter pipeline.
const MOST_PIPELINE_VALUES: usize = 4096;

/// The root attribute `_int_att`.
#[derive(Debug, Clone, Copy)]
pub struct Header {
    datasets: i64,
    data_logs: i64,
    metadata_logs: i64,
    config: i64,
    subfiles: i64,
}

/// The root attribute that marks a file as a log; `None` if the file has none.
pub fn find_mark(file: &Id) -> Result<Option<Id>> {
    let root = h5::open_group(file, c"/")?;
    h5::find_attribute(&root, &h5::c_name(MARK.as_bytes())?)
}

impl Header {
    /// Reads the header from the [mark](find_mark) of a file.
    pub fn read(mark: &Id) -> Result<Self> {
        match h5::read_integers(mark, 5).map_err(|e| e.at(format_args!("{MARK}")))?[..] {
            [datasets, data_logs, metadata_logs, config, subfiles] => Ok(Header {
                datasets,
                data_logs,
                metadata_logs,
                config,
                subfiles,
            }),
            ref other => Err(format!("{MARK} has {} values, not 5", other.len()).into()),
        }
    }

    /// How many IDs were ever given to datasets.
    #[cfg(test)]
    pub fn datasets(&self) -> i64 {
        self.datasets
    }

    fn is_subfiled(&self) -> bool {
        self.config & SUBFILED != 0
    }
}

/// The objects of a file of this layout.
pub struct LogVolObjects;

impl LayoutObjects for LogVolObjects {
    /// See section 1.3.
    fn copied_link<'n>(&self, name: &'n [u8], in_root: bool) -> Option<Cow<'n, [u8]>> {
        let is_log = in_root && name == LOG_GROUP.as_bytes();
        (!is_log).then(|| unescape(name).into())
    }

    fn copied_attribute<'n>(&self, name: &'n [u8], owner: Owner) -> Option<Cow<'n, [u8]>> {
        let is = |names: &[&str]| names.iter().any(|n| n.as_bytes() == name);
        match owner {
            Owner::Root if is(&[MARK, WRITER]) => None,
            Owner::StubDataset if is(&ANCHOR) => None,
            _ => Some(unescape(name).into()),
        }
    }

    /// See section 2.
    fn stub_dataset(&self, dataset: &Id, attributes: &[CString]) -> Result<Option<StubDataset>> {
        if !h5::dataset_space(dataset)?.is_empty() {
            return Ok(None);
        }
        stub_dataset(|wanted, most| layout_objects::integers(dataset, attributes, wanted, most))
    }

    fn stub_dataset_in(&self, dataset: &DatasetHeader) -> Option<StubDataset> {
        if !dataset.space.is_empty() {
            return None;
        }
        let found = stub_dataset(|wanted, most| {
            let mut all = dataset.attributes.iter();
            let Some(found) = all.find(|a| a.name == wanted.as_bytes()) else {
                return Ok(None);
            };
            let values = found.integers.clone().ok_or("not plain integers")?;
            if values.len() > most {
                return Err("too many values".into());
            }
            Ok(Some(values))
        });
        // A damaged stub dataset is left to libhdf5, whose walk reports the damage.
        found.ok().flatten().filter(StubDataset::is_sound)
    }
}

/// Reads a stub dataset from the attributes of a dataset without elements. `integers` returns at most the given number
/// of values of an attribute, or `None` if there is no such attribute.
fn stub_dataset(
    integers: impl Fn(&str, usize) -> Result<Option<Vec<i64>>>,
) -> Result<Option<StubDataset>> {
    let dims = integers(DIMS, MAX_RANK)?;
    let max = integers(MAX_DIMS, MAX_RANK)?;
    let id = integers(ID, 1)?;
    let (Some(dims), Some(max), Some(id)) = (dims, max, id) else {
        return Ok(None);
    };
    let chunk = integers(CHUNK, MAX_RANK).transpose();
    let filters = integers(FILTERS, MOST_PIPELINE_VALUES).transpose();
    let rank = dims.len();
    if max.len() != rank || id.len() != 1 {
        return Err(format!(
            "a stub dataset with {rank} extents and {} limits",
            max.len()
        )
        .into());
    }
    let mut stub_dataset = StubDataset {
        id: id[0],
        dims: Vec::new(),
        max_dims: Vec::new(),
        chunk: chunk.map(|c| chunk_shape(&c?, rank)),
        filters: filters.map(|f| pipeline(&f?)),
    };
    for (dim, max) in dims.into_iter().zip(max) {
        let dim = layout_objects::extent(dim)?;
        stub_dataset.dims.push(dim);
        // The connector writes -1 for unlimited. HDF5 allows no limit below the extent.
        let max = u64::try_from(max).ok();
        stub_dataset.max_dims.push(max.map(|m| m.max(dim)));
    }
    Ok(Some(stub_dataset))
}

fn unescape(stored: &[u8]) -> &[u8] {
    match stored {
        [b'_', b'_', ..] => &stored[1..],
        _ => stored,
    }
}

fn chunk_shape(values: &[i64], rank: usize) -> Result<Vec<u64>> {
    let sides = values
        .iter()
        .map(|v| u64::try_from(*v).ok().filter(|v| *v > 0));
    let is_countable = |shape: &[u64]| {
        let elements = shape.iter().try_fold(1_u64, |n, side| n.checked_mul(*side));
        elements.is_some()
    };
    match sides.collect::<Option<Vec<u64>>>() {
        Some(shape) if shape.len() == rank && is_countable(&shape) => Ok(shape),
        _ => Err(format!("{CHUNK} is {values:?} for rank {rank}").into()),
    }
}

/// Reads a filter pipeline: `id, flags, n, value[0..n]` for each filter.
fn pipeline(values: &[i64]) -> Result<Vec<Filter>> {
    let broken = || Fault::from(format!("{FILTERS} is {values:?}"));
    let numbers: Vec<u32> = values
        .iter()
        .map(|v| u32::try_from(*v).map_err(|_| broken()))
        .collect::<Result<_>>()?;
    let mut filters = Vec::new();
    let mut rest = numbers.as_slice();
    while let [id, flags, count, tail @ ..] = rest {
        let count = *count as usize;
        let values = tail.get(..count).ok_or_else(broken)?;
        if count > h5::MOST_FILTER_VALUES {
            return Err(format!("{FILTERS} has a filter of {count} values").into());
        }
        filters.push(
            Filter {
                id: i32::try_from(*id).map_err(|_| broken())?,
                flags: *flags,
                values: values.to_vec(),
            }
            .skippable(),
        );
        rest = &tail[count..];
    }
    if rest.is_empty() {
        Ok(filters)
    } else {
        Err(broken())
    }
}

/// Finds the files of the log, the master first, and where the tables and the data lie in them.
pub fn find_log(
    request: ScanRequest<'_>,
    file: &Id,
    master: SourceFile,
    header: Header,
    seal_of_master: Option<CloseSeal>,
) -> Result<Log> {
    let mut tables = Tables {
        config: header.config as i32,
        ids: u32::try_from(header.datasets).unwrap_or_default(),
        ..Tables::default()
    };
    let files = LogFiles::of(request.dir, request.relative, &master);
    let id = master.file_id()?;
    let mut sources = Sources::default();
    let mut seals = vec![seal_of_master];
    sources.push(SourcePath::below(request.relative), master);
    if header.is_subfiled() {
        let places = find_subfiles(&files, header.subfiles)?;
        for (place, number) in places.into_iter().zip(1..) {
            let subfile = files.open(&place);
            let subfile = subfile.map_err(|e| format!("subfile {e}"))?;
            // After a crash, a subfile of the log that was to replace this one may be there.
            if subfile.file_id()? != id {
                let reason = "it belongs to another log";
                return Err(format!("subfile {}: {reason}", subfile.path().display()).into());
            }
            seals.push(seal(&subfile, request.settings)?);
            find_subfile_tables(&subfile, number, &mut tables)
                .map_err(|e| format!("subfile {}: {e}", subfile.path().display()))?;
            sources.push(place, subfile);
        }
    } else {
        find_tables(file, header, 0, &mut tables)?;
    }
    tables.data.sort_by_key(|e| (e.source, e.offset));
    let sealed = sealed_files(&tables, &seals);
    Ok(Log {
        sources,
        sealed,
        seals,
        tables: h5logfs_log::Tables::LogVol(tables),
        layout: Box::new(LogVolObjects),
    })
}

/// The seal of a closed file, if it has one. Fails if part of what the seal covers cannot be seen.
pub fn seal(file: &SourceFile, settings: &Settings) -> Result<Option<CloseSeal>> {
    let checked = check_seal(file, settings.compared);
    checked.map_err(|fault| fault.at(file.path().display()))
}

/// The data files that have a seal. The log of such a file is one piece of extents, followed by one table.
fn sealed_files(tables: &Tables, seals: &[Option<CloseSeal>]) -> Vec<SealedFile> {
    let only = |logs: &[LogDataset], source: u16| {
        let mut own = logs.iter().filter(|log| log.source == source);
        own.next().filter(|_| own.next().is_none()).copied()
    };
    let file = |(source, _): (u16, &CloseSeal)| {
        let data = only(&tables.data, source).filter(|data| data.offset == FRONT)?;
        let table = only(&tables.metadata, source)?;
        let end = data.offset.checked_add(data.len)?;
        Some(SealedFile {
            table: Some(Piece {
                offset: table.offset,
                len: table.len,
            }),
            ..SealedFile::new(source, [end].into_iter(), end)
        })
    };
    let sealed = (0u16..).zip(seals);
    let sealed = sealed.filter_map(|(source, seal)| Some((source, seal.as_ref()?)));
    sealed.filter_map(file).collect()
}

fn find_subfile_tables(subfile: &SourceFile, number: u16, tables: &mut Tables) -> Result<()> {
    let file = super::open(subfile)?;
    let mark = find_mark(&file)?.ok_or_else(|| format!("no attribute {MARK}"))?;
    let header = Header::read(&mark)?;
    find_tables(&file, header, number, tables)
}

/// Finds the datasets `_md_N` and `_ld_N` of one file. There may be more than the header promises, because a crash
/// during the close leaves old numbers in the header (section 12). Fewer are an error.
fn find_tables(file: &Id, header: Header, source: u16, tables: &mut Tables) -> Result<()> {
    let root = h5::open_group(file, c"/")?;
    let group = if h5::hard_link_exists(&root, c"_LOG")? {
        Some(h5::open_group(file, c"/_LOG")?)
    } else {
        None
    };
    let kinds = [
        ("_md", header.metadata_logs, &mut tables.metadata),
        ("_ld", header.data_logs, &mut tables.data),
    ];
    for (kind, promised, logs) in kinds {
        let mut found = 0;
        if let Some(group) = &group {
            while let Some(log) = log_dataset(group, kind, found, source)? {
                logs.extend((log.len > 0).then_some(log));
                found += 1;
            }
        }
        if i64::from(found) < promised {
            return Err(format!("/_LOG has {found} datasets {kind}_N of {promised}").into());
        }
    }
    Ok(())
}

/// The place of the dataset `kind_number`; `None` if there is none.
fn log_dataset(group: &Id, kind: &str, number: u32, source: u16) -> Result<Option<LogDataset>> {
    let name = format!("{kind}_{number}");
    let path = h5::c_name(name.as_bytes())?;
    if !h5::hard_link_exists(group, &path)? {
        return Ok(None);
    }
    let dataset = h5::open_dataset(group, &path)?;
    let len = h5::storage_size(&dataset)?;
    let class = h5::storage_class(&h5::dataset_creation(&dataset)?)?;
    if class != h5::StorageClass::Contiguous {
        return Err(format!("/_LOG/{name} is not contiguous").into());
    }
    let offset = match h5::dataset_offset(&dataset)? {
        Some(offset) => offset,
        None if len == 0 => 0,
        None => return Err(format!("/_LOG/{name} has no place in the file").into()),
    };
    let end = offset.checked_add(len);
    if end.is_none_or(|end| end > i64::MAX as u64) {
        return Err(format!("/_LOG/{name}: {len} bytes at {offset}").into());
    }
    Ok(Some(LogDataset {
        source,
        number,
        offset,
        len,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unescaped_and_internal_ones_hidden() {
        let link = |name, in_root| LogVolObjects.copied_link(name, in_root);
        let name = |name: &'static [u8]| Some(Cow::Borrowed(name));
        assert_eq!(link(b"_LOG", true), None);
        assert_eq!(link(b"_LOG", false), name(b"_LOG"));
        assert_eq!(link(b"__LOG", true), name(b"_LOG"));
        assert_eq!(link(b"_b", true), name(b"_b"));
        let attribute = |name, owner| LogVolObjects.copied_attribute(name, owner);
        assert_eq!(attribute(b"_int_att", Owner::Root), None);
        assert_eq!(
            attribute(b"_int_att", Owner::StubDataset),
            name(b"_int_att")
        );
        assert_eq!(attribute(b"_h5logfs_chunk", Owner::StubDataset), None);
        let fill = attribute(b"__FillValue", Owner::StubDataset);
        assert_eq!(fill, name(b"_FillValue"));
    }

    #[test]
    fn pipelines_are_read_word_by_word() {
        let both = pipeline(&[2, 0, 1, 8, 1, 0, 1, 6]).unwrap();
        assert_eq!(both.len(), 2);
        assert_eq!((both[1].id, both[1].values.clone()), (1, vec![6]));
        assert!(pipeline(&[2, 0]).is_err());
        assert!(pipeline(&[2, 0, 5, 1]).is_err());
        assert!(pipeline(&[-2, 0, 0]).is_err());
        assert_eq!(
            pipeline(&[32015, 0, 0]).unwrap()[0].flags,
            h5logfs_hdf5_format::filters::OPTIONAL
        );
    }

    #[test]
    fn chunk_shapes_have_the_datasets_rank() {
        assert_eq!(chunk_shape(&[2, 3], 2), Ok(vec![2, 3]));
        assert!(chunk_shape(&[2], 2).is_err());
        assert!(chunk_shape(&[2, 0], 2).is_err());
        assert!(chunk_shape(&[i64::MAX, 3], 2).is_err());
    }
}
