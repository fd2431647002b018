//! The result of the scan of one log file: all data that the view needs besides the bytes of the log. A snapshot holds
//! no handle of libhdf5 and no descriptor, so it can be sent to another process.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use postcard::ser_flavors::Flavor;
use serde::{Deserialize, Serialize};
use serde_bytes::Bytes;

use crate::arrangement::Arrangement;
use crate::flat::Flat;
use crate::journal::Header;
use crate::journal::metadata_image::MetadataImage;
use crate::journal::sealed::Sealed;
use crate::journal::unflushed::{Flushed, data_files};
use crate::log_files::LogFiles;
use crate::model::Logged;
use crate::source_dir::{SourceDir, SourcePath};
use crate::source_file::Identity;
use crate::tables::Tables;
use h5logfs_common::diagnostic::{Diagnostic, Severity};
use h5logfs_common::error::Error;
use h5logfs_common::fault::Fault;
use h5logfs_common::memory::Reserved;
use h5logfs_common::task::Task;
use h5logfs_hdf5_format::MAX_RANK;
use h5logfs_hdf5_format::filters::Filter;

/// One state of one log file. The default value has no source; layouts set the fields that differ from it.
#[derive(Debug, Default, Clone, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// Bytes of the user block of the canonical file. The view reads them from the log file.
    pub user_block: u64,
    /// The metadata of the canonical file, as libhdf5 made it. Addresses count from its first byte, unless
    /// [`Snapshot::image_at`] says otherwise.
    #[serde(with = "serde_bytes")]
    pub image: Vec<u8>,
    /// The address of the image without its first [`SUPERBLOCK`](h5logfs_hdf5_format::SUPERBLOCK) bytes; `None` if the image is
    /// contiguous. An image with an address is added to the log file itself
    /// ([`Added::from_bytes`](h5logfs_hdf5_format::Added::from_bytes)), and the file grows by it while a view reads it.
    pub image_at: Option<u64>,
    /// The files that hold log bytes, below the directory of the scan. The first is the log file itself.
    pub sources: Vec<Source>,
    /// The path of the log where no file has it, below the directory of the scan: the joined name of a set of netCDF files.
    pub joined: Option<PathBuf>,
    /// The journal of an unclosed log, or the file that plays its role in another layout. A change of this file means that the
    /// log has changed.
    pub journal: Option<Source>,
    /// The number of complete flushes of an unclosed log.
    pub flushes: u64,
    /// The number of the last flush that the program asked for; 0 if there is none. Later flushes are automatic.
    pub asked: u64,
    /// The number of the newest complete flush, which may be later than the shown one. For a closed log it is the number of the
    /// last flush, or 0 if the close has not recorded it.
    pub newest: u64,
    /// The time when the shown flush was written, in milliseconds since 1970; `None` if the journal does not record it.
    pub flushed_at: Option<i64>,
    /// Whether more data of the log may show up without a change of its sources: the journal lists more data than the files hold,
    /// which a file system may show late, or a file of the log could not be opened.
    pub is_late: bool,
    /// The verified parts of a log whose extents have checksums of their data.
    pub sealed: Option<Sealed>,
    /// Datasets whose bytes are not in the image, in the order in which the scan met them.
    pub datasets: Vec<Dataset>,
    /// The places of the record tables and the data of the log.
    pub log: Tables,
    /// Pairs of addresses of one object: in the log file, and in the image. They are sorted by the address in the log file. The
    /// view uses them to translate object references in logged data.
    pub addresses: Vec<(u64, u64)>,
    /// Problems that the scan found: missing parts of the log, and parts that the view cannot show as they were. None has
    /// [`Severity::Unreadable`], because unreadable elements are found only when they are read.
    pub diagnostics: Vec<Diagnostic>,
    /// Lost elements for which no dataset of the view has a place.
    pub left_out: Vec<LeftOut>,
    /// Whether some elements are known to be unreadable. The scan sets this only if it can tell at little cost:
    /// [`damage::is_known`](crate::scan::damage::is_known).
    pub has_unreadable: bool,
    /// Whether the record tables are large, so that indexing them takes a while:
    /// [`Chooser::has_large_tables`](crate::scan::shape::Chooser::has_large_tables).
    pub has_large_tables: bool,
}

/// Elements that were written and are lost, and for which no dataset of the view has a place: a time step without any byte of a
/// variable is left out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOut {
    /// A path in the view: of the dataset that lacks them, or of the one that would have them.
    pub name: String,
    /// The number of elements.
    pub elements: u64,
    /// What is lost in words, such as `2 steps from 2 to 3`.
    pub what: String,
}

impl LeftOut {
    fn bytes(&self) -> usize {
        size_of::<Self>() + self.name.len() + self.what.len()
    }
}

/// A file that holds log bytes, in the state in which the scan saw it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    /// The place of the file.
    pub place: SourcePath,
    /// The state of the file.
    pub identity: Identity,
    /// Whether a job may still append to the file. The first `identity.size` bytes do not change.
    pub grows: bool,
    /// The bytes of the file that belong to the log.
    pub arrangement: Arrangement,
}

impl Source {
    /// A source of all bytes of a file that does not grow.
    pub fn whole(place: SourcePath, identity: Identity) -> Self {
        Source {
            place,
            identity,
            grows: false,
            arrangement: Arrangement::Whole,
        }
    }

    /// Whether the file of identity `now` still has the bytes that the scan saw.
    pub fn is_still(&self, now: Identity) -> bool {
        self.identity.is_still(now, self.grows)
    }

    /// The source without the arrangement of its bytes, which may be a long list.
    pub fn file(&self) -> Self {
        Source {
            place: self.place.clone(),
            arrangement: Arrangement::Whole,
            ..*self
        }
    }
}

/// One dataset of the canonical file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Dataset {
    /// A path of the dataset in the view.
    pub name: String,
    /// The address of its object header in the image.
    pub header: u64,
    /// The datatype in a form for people.
    pub datatype: String,
    /// The size of one element in the file, in bytes.
    pub element_size: u64,
    /// The current extent; empty for a scalar.
    pub dims: Vec<u64>,
    /// The maximum extent; `None` for an unlimited dimension.
    pub max_dims: Vec<Option<u64>>,
    /// The storage layout in the canonical file.
    pub storage: Storage,
    /// The fill value, one element in the file's datatype; empty for zeros.
    pub fill: Vec<u8>,
    /// The filter pipeline of its chunks.
    pub filters: Vec<Filter>,
    /// The byte offsets of the object references in an element, 8 bytes each.
    pub references: Vec<u64>,
    /// The source of the elements.
    pub content: Content,
}

/// The storage layout of a dataset in the canonical file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Storage {
    /// Contiguous storage.
    Contiguous,
    /// Chunked storage, with the chunk shape in the dataset's rank.
    Chunked(Vec<u64>),
}

/// The largest number of filters of an HDF5 dataset: a chunk's filter mask has 32 bits.
const MOST_FILTERS: usize = 32;
/// The size of one object reference, in bytes.
const REFERENCE: u64 = 8;

/// The source of the elements of a dataset.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Content {
    /// The records of the log.
    Logged {
        /// The ID of the dataset in its layout.
        id: i64,
        /// Whether the log records the dataset's filters, so that entries may be filtered.
        filtered: bool,
    },
    /// Bytes of a source file as they are, for a contiguous dataset that was never logged.
    Extent {
        /// The number of the source file.
        source: u16,
        /// The offset in the source file.
        offset: u64,
        /// The size of all elements, in bytes.
        len: u64,
    },
    /// Elements that cannot be read. The text is the reason.
    Unreadable(String),
}

impl Dataset {
    /// The number of elements; `None` if it overflows.
    pub fn elements(&self) -> Option<u64> {
        self.dims.iter().try_fold(1u64, |n, d| n.checked_mul(*d))
    }

    /// The dataset in the form of its log layout; `None` if it is not logged.
    pub fn logged(&self) -> Option<Logged<'_>> {
        match self.content {
            Content::Logged { id, filtered } => Some(Logged {
                id,
                dims: &self.dims,
                element_size: self.element_size,
                filtered,
            }),
            _ => None,
        }
    }

    /// Fails with the reason if the fields contradict each other, in a log of `sources` source files.
    fn check(&self, sources: usize) -> Result<(), Fault> {
        let rank = self.dims.len();
        if rank > MAX_RANK || self.max_dims.len() != rank {
            return Err(format!("{rank} dimensions, {} limits", self.max_dims.len()).into());
        }
        if self.element_size == 0 {
            return Err("elements of no bytes".into());
        }
        if !self.fill.is_empty() && self.fill.len() as u64 != self.element_size {
            return Err(format!("a fill value of {} bytes", self.fill.len()).into());
        }
        let fits = |at: &u64| {
            at.checked_add(REFERENCE)
                .is_some_and(|e| e <= self.element_size)
        };
        if !self.references.iter().all(fits) {
            return Err("references outside the element".into());
        }
        self.check_storage()?;
        match self.content {
            Content::Extent {
                source,
                offset,
                len,
            } => self.check_extent(source, offset, len, sources),
            _ => Ok(()),
        }
    }

    fn check_storage(&self) -> Result<(), Fault> {
        if self.filters.len() > MOST_FILTERS {
            return Err(format!("{} filters", self.filters.len()).into());
        }
        for filter in &self.filters {
            filter.check(self.element_size)?;
        }
        let rank = self.dims.len();
        match &self.storage {
            Storage::Contiguous if !self.filters.is_empty() => Err("filters without chunks".into()),
            Storage::Chunked(chunk) if rank == 0 || chunk.len() != rank => Err(format!(
                "chunks of {} dimensions in a dataset of {rank}",
                chunk.len()
            )
            .into()),
            _ => Ok(()),
        }
    }

    fn check_extent(
        &self,
        source: u16,
        offset: u64,
        len: u64,
        sources: usize,
    ) -> Result<(), Fault> {
        if usize::from(source) >= sources {
            return Err(format!("source file {source} of {sources}").into());
        }
        let end = offset.checked_add(len);
        if end.is_none_or(|end| end > i64::MAX as u64) {
            return Err(format!("{len} bytes at {offset} are in no file").into());
        }
        let raw = self
            .elements()
            .and_then(|n| n.checked_mul(self.element_size));
        let whole = raw.is_some_and(|raw| len >= raw) && self.storage == Storage::Contiguous;
        if whole && self.references.is_empty() {
            return Ok(());
        }
        Err(format!("{len} bytes that are not its elements").into())
    }
}

/// The largest size of an encoded snapshot after its image, in bytes.
const LONGEST_LISTS: usize = 32 << 20;
/// The largest ratio of the decoded size to the encoded size of the lists after the image. The worst case is an empty text, which
/// takes one encoded byte. The image has the same size in both forms.
const LISTS_IN_MEMORY: u64 = 24;

/// An upper bound of the memory of a decoded snapshot, in bytes. Fails if more than [`LONGEST_LISTS`] bytes follow its image.
fn decoded_at_most(bytes: &[u8]) -> Result<u64, Fault> {
    let parts = postcard::take_from_bytes::<(u64, &Bytes)>(bytes);
    let (_user_block_and_image, lists) = parts.map_err(|e| e.to_string())?;
    if lists.len() <= LONGEST_LISTS {
        let image = (bytes.len() - lists.len()) as u64;
        return Ok(image + LISTS_IN_MEMORY * lists.len() as u64);
    }
    Err(format!(
        "{} bytes about its objects, of which there may be {LONGEST_LISTS}",
        lists.len()
    )
    .into())
}

/// A buffer that appends to its present bytes.
struct Appended(Vec<u8>);

impl Flavor for Appended {
    type Output = Vec<u8>;

    fn try_push(&mut self, byte: u8) -> postcard::Result<()> {
        self.0.push(byte);
        Ok(())
    }

    fn try_extend(&mut self, bytes: &[u8]) -> postcard::Result<()> {
        self.0.extend_from_slice(bytes);
        Ok(())
    }

    fn finalize(self) -> postcard::Result<Vec<u8>> {
        Ok(self.0)
    }
}

impl Snapshot {
    /// The facts about the flushes of an unclosed log that this snapshot shows. `header` is the first line of its journal. `None`
    /// for logs of other layouts.
    pub fn flushed(&self, files: &LogFiles<'_>, header: &Header) -> Result<Option<Flushed>, Error> {
        let Tables::LogVol(tables) = &self.log else {
            return Ok(None);
        };
        // With subfiles, the first file is the master.
        let sources = self.sources.iter().skip(usize::from(header.subfiles > 0));
        let ends = sources.map(|source| source.identity.size);
        Ok(Some(Flushed {
            flush: self.flushes,
            ranks: header.ranks,
            datasets: tables.ids.into(),
            ends: data_files(files, header)?.into_iter().zip(ends).collect(),
        }))
    }

    /// Whether the log lies in files beside the file of its datasets. Such files are removed after their data have moved into
    /// that file.
    pub fn lies_beside(&self) -> bool {
        matches!(self.log, Tables::Netcdf(_))
    }

    /// Whether the log is closed, as its files show. A log in files beside its datasets counts as open while these files exist.
    pub fn is_closed(&self) -> bool {
        match &self.log {
            Tables::Netcdf(tables) => tables.logs.is_empty(),
            _ => self.journal.is_none(),
        }
    }

    /// Whether the log is at this path below the directory of the scan.
    pub fn is_at(&self, relative: &Path) -> bool {
        match (&self.joined, self.sources.first()) {
            (Some(joined), _) => joined == relative,
            (None, main) => main.is_some_and(|main| main.place == SourcePath::below(relative)),
        }
    }

    /// Whether an unclosed log of this layout has a journal of this project. Such a journal describes its job.
    pub fn tells_job(&self) -> bool {
        matches!(self.log, Tables::LogVol(_))
    }

    /// Fails with the reason if the fields contradict each other, without a look at the log. A snapshot comes from another
    /// process, or from a file that may be damaged. The image and the addresses of chunks are checked when they are used.
    pub fn check(&self) -> Result<(), Fault> {
        let sources = self.sources.len();
        let first = self.sources.first().map_or(0, |s| s.identity.size);
        let flat = self.log.layout().flat();
        let is_alone = self.datasets.is_empty() && self.image.is_empty();
        if let Some(flat) = flat
            && !(is_alone && flat.user_block == self.user_block)
        {
            return Err("a flat file with an image of its own".into());
        }
        // The user block of a flat file may lie in a member.
        if self.user_block > first && flat.is_none() {
            let user_block = self.user_block;
            return Err(format!("a user block of {user_block} bytes in a file of {first}").into());
        }
        // Sources have 16-bit numbers.
        if sources == 0 || sources > 1 << 16 {
            return Err(format!("a log of {sources} files").into());
        }
        let may_grow = self.journal.is_some() || self.image_at.is_some();
        if !may_grow && self.sources.iter().any(|s| s.grows) {
            return Err("files that grow in a log that is closed".into());
        }
        for dataset in &self.datasets {
            let checked = dataset.check(sources);
            checked.map_err(|e| e.at(format_args!("dataset {}", dataset.name)))?;
        }
        for source in &self.sources {
            source.arrangement.check()?;
        }
        if let Some(sealed) = &self.sealed {
            let lens: Vec<u64> = self.sources.iter().map(|s| s.identity.size).collect();
            sealed.check(&lens)?;
        }
        self.log.check(sources)?;
        // The view searches the addresses by bisection.
        if self.addresses.is_sorted_by(|a, b| a.0 < b.0) {
            return Ok(());
        }
        Err("addresses of objects out of order".into())
    }

    /// Replaces the device numbers in the snapshot by the numbers on this node. A snapshot from another node has that node's
    /// numbers.
    pub fn take_devices(&mut self, dir: &SourceDir) -> Result<(), Error> {
        for source in self.sources.iter_mut().chain(&mut self.journal) {
            let place = &source.place;
            let found = dir.of(place).and_then(|dir| dir.stat(&place.path));
            let found = found.map_err(|e| Error::io(dir.full_path(&place.path), e))?;
            source.identity.device = Identity::from(&found).device;
        }
        Ok(())
    }

    /// Whether data of the log are known to be missing. If so, the view shows the rest.
    pub fn has_losses(&self) -> bool {
        self.diagnostics
            .iter()
            .any(|d| d.severity == Severity::Lost)
    }

    /// Whether the number of lost elements is known: by the records that cannot be read, and by [`Snapshot::left_out`].
    pub fn are_losses_counted(&self) -> bool {
        let lost = |d: &&Diagnostic| d.severity == Severity::Lost;
        self.diagnostics.iter().filter(lost).all(|d| d.is_counted)
    }

    /// The number of elements that the dataset `name` has lost and has no place for.
    pub fn left_out_of(&self, name: &str) -> u64 {
        let own = self.left_out.iter().filter(|lost| lost.name == name);
        own.fold(0, |all, lost| all.saturating_add(lost.elements))
    }

    /// Encodes the snapshot for another process, or for a file. Fails if [`Snapshot::from_bytes`] would refuse it.
    pub fn to_bytes(&self) -> Result<Vec<u8>, Fault> {
        self.append_to(Vec::new())
    }

    /// Appends the encoded snapshot to `bytes`. Fails like [`Snapshot::to_bytes`].
    pub fn append_to(&self, mut bytes: Vec<u8>) -> Result<Vec<u8>, Fault> {
        let start = bytes.len();
        // The estimate may be too large. Unused capacity is never written, so it costs less than moving a growing
        // buffer.
        bytes.reserve(self.bytes());
        let bytes = postcard::serialize_with_flavor(self, Appended(bytes));
        let bytes = bytes.map_err(|e: postcard::Error| e.to_string())?;
        decoded_at_most(&bytes[start..])?;
        Ok(bytes)
    }

    /// Decodes a snapshot. The caller must check it with [`Snapshot::check`]. Also fails if there is not enough memory.
    pub fn from_bytes(task: &Task, bytes: &[u8]) -> Result<Reserved<Self>, Fault> {
        let mut reservation = task.reserve(decoded_at_most(bytes)?)?;
        match postcard::take_from_bytes::<Snapshot>(bytes) {
            Ok((snapshot, [])) => {
                reservation.shrink_to(snapshot.bytes() as u64);
                Ok(Reserved::new(snapshot, reservation))
            }
            Ok(_) => Err("bytes behind a snapshot".into()),
            Err(e) => Err(e.to_string().into()),
        }
    }

    /// The approximate memory of the snapshot, in bytes.
    pub fn bytes(&self) -> usize {
        let dataset = |d: &Dataset| {
            size_of::<Dataset>()
                + d.name.len()
                + match &d.content {
                    Content::Unreadable(reason) => reason.len(),
                    _ => 0,
                }
                + d.datatype.len()
                + d.dims.len() * 40
                + d.fill.len()
                + d.filters.len() * 48
                + d.references.len() * 8
        };
        // Each arrangement counts twice, because the open file holds a copy.
        let arrangements = self.sources.iter().map(|s| 2 * s.arrangement.bytes());
        self.image.len()
            + arrangements.sum::<usize>()
            + self.datasets.iter().map(dataset).sum::<usize>()
            + self.addresses.len() * 16
            + self.log.layout().flat().map_or(0, Flat::bytes)
            + self.sealed.as_ref().map_or(0, Sealed::bytes)
            + self
                .diagnostics
                .iter()
                .map(Diagnostic::bytes)
                .sum::<usize>()
            + self.left_out.iter().map(LeftOut::bytes).sum::<usize>()
    }
}

/// The objects of a scanned log as a metadata image, for an append. `image` is the canonical image with these datasets. Fails if
/// some elements are neither in the log nor in the image, because an append would lose them.
pub fn to_append(
    image: Vec<u8>,
    datasets: &[Dataset],
    tables: &Tables,
) -> Result<MetadataImage, Fault> {
    /// A limit for IDs from a damaged file. No program uses so many.
    const MOST_IDS: u32 = 1 << 24;
    let mut logged = BTreeMap::new();
    for dataset in datasets {
        let reason = match &dataset.content {
            Content::Logged { id, .. } => {
                logged.insert(u32::try_from(*id)?, Some(dataset.header));
                continue;
            }
            Content::Extent { .. } => {
                "its elements lie in the HDF5 file itself, and not in the log"
            }
            Content::Unreadable(reason) => reason,
        };
        let name = &dataset.name;
        return Err(format!("nothing can be appended: dataset {name}: {reason}").into());
    }
    // Deleted datasets keep their IDs, because their entries are still in the log.
    if let Tables::LogVol(tables) = tables {
        for id in 0..tables.ids.min(MOST_IDS) {
            logged.entry(id).or_insert(None);
        }
    }
    Ok(MetadataImage { image, logged })
}

#[cfg(test)]
mod tests {
    use super::*;
    use h5logfs_hdf5_format::filters::SHUFFLE;

    fn from_bytes(bytes: &[u8]) -> Result<Reserved<Snapshot>, Fault> {
        Snapshot::from_bytes(&Task::unlimited(), bytes)
    }

    fn dataset() -> Dataset {
        Dataset {
            name: "/d".into(),
            header: 96,
            datatype: "f64".into(),
            element_size: 8,
            dims: vec![4, 6],
            max_dims: vec![None, Some(6)],
            storage: Storage::Chunked(vec![2, 3]),
            fill: vec![1; 8],
            filters: vec![Filter {
                id: SHUFFLE,
                flags: 0,
                values: vec![8],
            }],
            references: vec![0],
            content: Content::Logged {
                id: 0,
                filtered: true,
            },
        }
    }

    #[test]
    fn a_file_by_itself_is_small_and_the_same_for_all_its_sources() {
        let mut sources = snapshot(Vec::new()).sources;
        sources[1].arrangement = Arrangement::Blocks {
            block: 1,
            at: vec![(0, 0); 1000],
            len: 1000,
        };
        let mut files: Vec<Source> = sources.iter().map(Source::file).collect();
        files.dedup();
        assert_eq!(files, [sources[0].clone()]);
    }

    fn extent(source: u16, offset: u64, len: u64) -> Dataset {
        Dataset {
            storage: Storage::Contiguous,
            filters: Vec::new(),
            references: Vec::new(),
            content: Content::Extent {
                source,
                offset,
                len,
            },
            ..dataset()
        }
    }

    fn snapshot(datasets: Vec<Dataset>) -> Snapshot {
        let identity = Identity {
            device: 1,
            inode: 2,
            size: 3,
            modified: (4, 5),
            owner: 6,
        };
        let source = Source::whole(SourcePath::below("log.h5"), identity);
        Snapshot {
            sources: vec![source.clone(), source],
            user_block: 3,
            image: vec![8; 1000],
            datasets,
            addresses: vec![(1, 10), (2, 5)],
            diagnostics: vec![Diagnostic::note("odd")],
            has_unreadable: true,
            ..Snapshot::default()
        }
    }

    #[test]
    fn bytes_come_back_as_the_snapshot_that_they_were_or_not_at_all() {
        let whole = snapshot(vec![dataset(), extent(1, 0, 192)]);
        let bytes = whole.to_bytes().unwrap();
        assert_eq!(*from_bytes(&bytes).unwrap(), whole);
        for len in 0..bytes.len() {
            assert!(from_bytes(&bytes[..len]).is_err(), "{len}");
        }
        assert!(from_bytes(&[bytes, vec![0]].concat()).is_err());
    }

    #[test]
    fn lists_have_a_bound_and_bytes_of_the_image_do_not_count_for_it() {
        let mut large = snapshot(Vec::new());
        large.image = vec![0; LONGEST_LISTS + 1];
        assert!(from_bytes(&large.to_bytes().unwrap()).is_ok());
        let mut long = snapshot(Vec::new());
        long.diagnostics = vec![Diagnostic::note(" ".repeat(LONGEST_LISTS))];
        assert!(long.bytes() > LONGEST_LISTS);
        assert!(long.to_bytes().unwrap_err().to_string().contains("may be"));
        let bytes = postcard::to_stdvec(&long).unwrap();
        assert!(from_bytes(&bytes).is_err());
    }

    #[test]
    fn datasets_whose_parts_do_not_fit_are_refused() {
        let check = |dataset| snapshot(vec![dataset]).check();
        let damaged = |damage: &dyn Fn(&mut Dataset)| {
            let mut dataset = dataset();
            damage(&mut dataset);
            check(dataset)
        };
        assert_eq!(check(dataset()), Ok(()));
        assert!(damaged(&|d| d.element_size = 0).is_err());
        assert!(damaged(&|d| d.fill = vec![0; 9]).is_err());
        assert!(damaged(&|d| d.references = vec![1]).is_err());
        assert!(damaged(&|d| d.references = vec![u64::MAX]).is_err());
        assert!(damaged(&|d| d.dims = vec![4]).is_err());
        assert!(damaged(&|d| d.max_dims.push(None)).is_err());
        assert!(damaged(&|d| d.storage = Storage::Chunked(vec![4])).is_err());
        assert!(damaged(&|d| d.storage = Storage::Contiguous).is_err());
        assert!(damaged(&|d| d.filters[0].values = vec![9]).is_err());
        assert!(damaged(&|d| d.filters = vec![d.filters[0].clone(); 33]).is_err());
        assert!(
            damaged(&|d| {
                d.dims = vec![1; 33];
                d.max_dims = vec![None; 33];
                d.storage = Storage::Chunked(vec![1; 33]);
            })
            .is_err()
        );
        assert_eq!(check(extent(1, 100, 192)), Ok(()));
        assert!(check(extent(2, 100, 192)).is_err());
        assert!(check(extent(1, 100, 191)).is_err());
        assert!(check(extent(1, u64::MAX, 192)).is_err());
        let chunked = Dataset {
            storage: dataset().storage,
            ..extent(1, 0, 192)
        };
        assert!(check(chunked).is_err());
    }

    #[test]
    fn logs_whose_parts_do_not_fit_are_refused() {
        let damaged = |damage: &dyn Fn(&mut Snapshot)| {
            let mut snapshot = snapshot(Vec::new());
            damage(&mut snapshot);
            snapshot.check()
        };
        assert_eq!(damaged(&|_| ()), Ok(()));
        assert!(damaged(&|s| s.sources.clear()).is_err());
        assert!(damaged(&|s| s.user_block = 4).is_err());
        assert!(damaged(&|s| s.sources[0].grows = true).is_err());
        assert!(damaged(&|s| s.addresses.reverse()).is_err());
        assert!(damaged(&|s| s.addresses[0].0 = 2).is_err());
    }
}
