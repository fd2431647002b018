//! Opens a log again: its objects become a metadata image, and new records are appended.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::Path;
use std::sync::Arc;

use h5logfs_catalog::direct;
use h5logfs_log::journal::kept::path_of_kept;
use h5logfs_log::journal::known_table::KnownTable;
use h5logfs_log::journal::metadata_image::MetadataImage as RecordedImage;
use h5logfs_log::journal::{self, Recorded};
use h5logfs_log::snapshot::to_append;
use h5logfs_log::source_dir::SourceDir;
use h5logfs_output::files::Appendable;
use h5logfs_output::found::FoundLog;
use h5logfs_output::remembered::Memory;
use h5logfs_output::{Base, LogWriter, Ranks};

use super::closed::KeptImage;
use super::metadata_image::{MetadataImage, refused};
use super::{Constants, State, WrittenLog};
use crate::below::info::Info;
use crate::below::request::Request;
use crate::options::Options;
use h5logfs_common::fault::Fault;

/// Logs that this process has closed.
pub(super) static CLOSED: Memory<Objects> = Memory::new();

/// The objects of a log, in the form of a metadata image.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Objects {
    /// The opening that left them so, if this process remembers it.
    pub opening: Option<u64>,
    pub metadata: RecordedImage,
    /// Where the records of datasets end, as far as it is known.
    pub reached: HashMap<u32, Vec<u64>>,
}

impl State {
    /// The objects as the journal holds them. Moves the image out of the state.
    pub(super) fn objects(&mut self, opening: Option<u64>) -> Objects {
        let mut logged: BTreeMap<u32, Option<u64>> = (0..self.datasets.len() as u32)
            .map(|id| (id, None))
            .collect();
        logged.extend(self.headers.iter().map(|(header, id)| (*id, Some(*header))));
        let mut reached = std::mem::take(&mut self.reached);
        for dataset in self.datasets.iter().flatten() {
            let extent = dataset.extent();
            if extent.is_known {
                reached.insert(dataset.id, extent.reached.clone());
            }
        }
        Objects {
            opening,
            metadata: RecordedImage {
                image: std::mem::take(&mut self.image),
                logged,
            },
            reached,
        }
    }
}

/// Opens the log at `path` again. If libhdf5 refuses its objects, the reason is on its error stack. `kept`: a metadata image of
/// the log that all ranks have, or none. Collective.
pub fn append(
    info: &Arc<Info>,
    request: &Request<'_>,
    path: &Path,
    ranks: Ranks,
    options: Options,
    kept: Option<KeptImage>,
) -> Result<WrittenLog, Fault> {
    let left = if options.takes_in {
        take_in_unflushed(path, &ranks)?
    } else {
        None
    };
    let options = options.output;
    let mut table = None;
    // The metadata image, on the first rank, if the other ranks need no copy.
    let mut image = None;
    let kept_opening = kept.as_ref().map(|kept| kept.opening);
    let found = Appendable::find(path, &ranks, &options, Ok(()), |log, recorded| {
        let (mut objects, base, known) = base_of(path, log, recorded)?;
        table = known;
        let is_kept = objects.opening.is_some() && objects.opening == kept_opening;
        if is_kept {
            image = Some(std::mem::take(&mut objects.metadata.image));
        }
        objects.opening = Some(new_opening());
        Ok((base, objects.to_bytes(is_kept)))
    })?;
    let made = Objects::from_bytes(found.told())
        .ok_or_else(|| Fault::from("the first rank has sent no objects"))
        .and_then(|(objects, is_kept)| {
            let kept = kept.filter(|_| is_kept);
            let (metadata_image, constants, memory) = match kept {
                Some(kept) => (kept.metadata_image.open(), kept.constants, kept.memory),
                None => (
                    MetadataImage::open(info, request, path, &objects.metadata.image)?,
                    Arc::new(Constants::of(&info.library)),
                    None,
                ),
            };
            let metadata_image = metadata_image.ok_or_else(|| refused(path))?;
            Ok((objects, metadata_image, constants, memory))
        });
    // A rank that has failed still takes part, so that no other rank waits for it.
    let (ready, made) = match made {
        Ok(made) => (Ok(()), Some(made)),
        Err(reason) => (Err(reason), None),
    };
    let files = found.append(&ranks, &options, ready)?;
    let (objects, metadata_image, constants, memory) = made.ok_or_else(|| refused(path))?;
    let is_root = ranks.is_root();
    let writer = LogWriter::with_memory(ranks, files, options, memory);
    let mut log = WrittenLog::new(info.library, metadata_image, constants, path, writer);
    log.opening = objects.opening;
    let mut state = log.state.lock();
    for (id, header) in &objects.metadata.logged {
        if let Some(header) = header {
            state.headers.insert(*header, *id);
        }
    }
    let ids = objects.metadata.ids();
    state.base = ids;
    state.datasets.resize_with(ids, || None);
    state.reached = objects.reached;
    state.table = table;
    if is_root {
        state.image = image.unwrap_or(objects.metadata.image);
    }
    drop(state);
    if let Some(left) = left {
        log.warn(&left);
    }
    Ok(log)
}

/// A number for an opening, unique within a log.
fn new_opening() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// Covers unflushed data of an earlier job by one more flush. The first rank leaves this to the program `h5logfs`, because
/// libhdf5 must extend datasets for it. All ranks then go on, or none. Returns, on the first rank, a description of data that
/// could not be taken in. Collective.
fn take_in_unflushed(path: &Path, ranks: &Ranks) -> Result<Option<String>, Fault> {
    let taken = if ranks.is_root() && may_have_unflushed(path) {
        direct::take_in(path, &direct::Options::default())
    } else {
        Ok(None)
    };
    Ok(ranks.led(taken)?)
}

/// Whether the log may have unflushed data. A program that opens and closes its log for each step leaves neither file, and so
/// needs no other process.
fn may_have_unflushed(path: &Path) -> bool {
    let is_there = |file: &Path| file.symlink_metadata().is_ok();
    is_there(&journal::path_of(path)) || is_there(&path_of_kept(path, 1))
}

/// The contents of a log, from its journal if it is not closed, and knowledge of its table. The latter is `None` if it takes more
/// work than this process should do.
fn base_of(path: &Path, log: &FoundLog, recorded: Option<&Recorded>) -> Result<Found, Fault> {
    // libhdf5 takes the image of a program of HDF5 as it is. Where definitions add to one, datasets may lack the chunks without which
    // libhdf5 extends none: a scan chooses them.
    let of_hdf5 = recorded.filter(|recorded| !recorded.takes_definitions());
    if let Some(recorded) = of_hdf5
        && let Some(metadata) = recorded.metadata_image.clone()
    {
        let base = Base::of_journal(recorded, metadata.lines()?)?;
        let table = short_history(&base);
        return Ok((Objects::from(metadata), base, table));
    }
    if recorded.is_none()
        && let Some((objects, base, table)) = CLOSED.recall(path, log)
    {
        let lines = objects.metadata.lines()?;
        let table = Some(table).filter(|table| !table.is_empty());
        return Ok((objects, Base { lines, ..base }, table));
    }
    let mut options = direct::Options::default();
    options.allow_metadata(MOST_METADATA);
    let snapshot = direct::snapshot(path, &options)?;
    let snapshot = snapshot.ok_or_else(|| format!("{}: not a log", path.display()))?;
    let image = snapshot.image.clone();
    let metadata = to_append(image, &snapshot.datasets, &snapshot.log);
    let metadata = metadata.map_err(|fault| fault.of_file(path))?;
    let base = match recorded {
        Some(recorded) => Base::of_journal(recorded, metadata.lines()?)?,
        None => {
            let (dir, _) = SourceDir::of_file(path)?;
            Base::of_snapshot(&dir, &snapshot, metadata.lines()?).map_err(|e| e.of_file(path))?
        }
    };
    let table = short_history(&base);
    Ok((Objects::from(metadata), base, table))
}

type Found = (Objects, Base, Option<KnownTable>);

/// The limit for the metadata of a log that is appended to, in bytes. It is higher than for readers: an object that a reader
/// leaves out as unreadable would be lost here. The program that made the object had memory for it, too.
const MOST_METADATA: u64 = 1 << 30;

/// An empty table for a log with so few flushes that its close may read all extents' headers. `None` for a longer history.
fn short_history(base: &Base) -> Option<KnownTable> {
    const MOST_FLUSHES: u64 = 1000;
    (base.flush <= MOST_FLUSHES).then(KnownTable::default)
}

impl From<RecordedImage> for Objects {
    fn from(metadata: RecordedImage) -> Self {
        Objects {
            metadata,
            ..Objects::default()
        }
    }
}

impl Objects {
    /// `is_kept`: all ranks have the metadata image.
    fn to_bytes(&self, is_kept: bool) -> Vec<u8> {
        let opening = self.opening.unwrap_or_default();
        let mut numbers = vec![opening, u64::from(is_kept), self.reached.len() as u64];
        for (id, reached) in &self.reached {
            numbers.extend([u64::from(*id), reached.len() as u64]);
            numbers.extend(reached);
        }
        let numbers = numbers.into_iter().flat_map(u64::to_le_bytes);
        numbers.chain(self.metadata.to_bytes()).collect()
    }

    /// Decodes the objects, and whether all ranks have the metadata image.
    fn from_bytes(bytes: &[u8]) -> Option<(Self, bool)> {
        let mut rest = bytes;
        let opening = take(&mut rest)?;
        let is_kept = take(&mut rest)? != 0;
        let mut reached = HashMap::new();
        for _ in 0..take(&mut rest)? {
            reached.insert(u32::try_from(take(&mut rest)?).ok()?, take_list(&mut rest)?);
        }
        let objects = Objects {
            opening: Some(opening),
            reached,
            metadata: RecordedImage::from_bytes(rest)?,
        };
        Some((objects, is_kept))
    }
}

/// Takes a number from the front of `bytes`.
fn take(bytes: &mut &[u8]) -> Option<u64> {
    let (number, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(u64::from_le_bytes(*number))
}

/// Takes a length and as many numbers from the front of `bytes`.
fn take_list(bytes: &mut &[u8]) -> Option<Vec<u64>> {
    let number = usize::try_from(take(bytes)?).ok()?;
    let (list, rest) = bytes.split_at_checked(number.checked_mul(8)?)?;
    *bytes = rest;
    let numbers = list.as_chunks().0.iter();
    Some(numbers.map(|number| u64::from_le_bytes(*number)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_told_to_other_ranks() {
        let objects = Objects {
            opening: Some(4),
            metadata: RecordedImage {
                image: vec![1, 2, 3],
                logged: BTreeMap::from([(0, Some(7)), (1, None)]),
            },
            reached: HashMap::from([(0, vec![5, 6]), (2, vec![])]),
        };
        let told = Objects::from_bytes(&objects.to_bytes(true));
        assert_eq!(told, Some((objects, true)));
        assert_eq!(Objects::from_bytes(&[9; 9]), None);
    }
}
