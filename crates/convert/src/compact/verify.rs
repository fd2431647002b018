//! Reads a file back and compares it with the log.
//!
//! The check uses nothing from the writing part except the metadata, and finds chunks as libhdf5 does.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use parking_lot::Mutex;

use h5logfs_common::fault::Fault;
use h5logfs_hdf5_format::filters::{Filter, decode};
use h5logfs_hdf5_format::{ChunkIndex, HeaderBytes, Image};
use h5logfs_view::ChunkId;

use super::left_out::LeftOut;
use super::parts::{Part, Parts, What};
use super::placing::Complete;
use super::sequence::Compacted;
use super::{Layout, Source};
use crate::error::{Error, Result};
use h5logfs_hdf5_format::btree::{StoredChunk, read_stored};

/// The bytes of a file after its user block.
struct Written<'a> {
    file: &'a File,
    user_block: u64,
    len: u64,
}

impl<'a> Written<'a> {
    fn new(source: &Source, file: &'a File, len: u64) -> Self {
        Written {
            file,
            user_block: source.view.snapshot().user_block,
            len,
        }
    }
}

impl HeaderBytes for Written<'_> {
    fn size(&self) -> u64 {
        self.len - self.user_block
    }

    fn read(&self, at: u64, buf: &mut [u8]) -> Result<(), Fault> {
        let end = at.checked_add(buf.len() as u64);
        if end.is_none_or(|end| end > self.size()) {
            return Err(format!("{} bytes at {at} are not in the file", buf.len()).into());
        }
        let read = self.file.read_exact_at(buf, at + self.user_block);
        Ok(read?)
    }
}

/// Fails where the elements of the file differ from those of the log, except those left out.
pub fn verify(
    source: &Source,
    file: &File,
    compacted: &Compacted,
    jobs: usize,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<()> {
    check_metadata(source, file, &compacted.file)?;
    let compared = compare(source, file, compacted.file.len, Share::ALL, jobs, progress)?;
    compared.check(&compacted.left_out)
}

/// A share of the parts: every `step`-th part from `first` on.
#[derive(Debug, Clone, Copy)]
pub struct Share {
    /// The first part.
    pub first: u64,
    /// The distance to the next part.
    pub step: u64,
}

impl Share {
    /// All parts.
    pub const ALL: Share = Share { first: 0, step: 1 };

    fn has(&self, part: u64) -> bool {
        part % self.step == self.first
    }
}

/// Counts of compared chunks that are equal.
#[derive(Debug, Clone, Copy)]
pub struct Compared {
    /// Chunks in the file.
    pub stored: u64,
    /// Chunks of the share in both file and log.
    pub found: u64,
    /// Chunks of the share that the log cannot supply.
    pub left_out: u64,
}

impl Compared {
    /// Fails where the file has chunks that the log lacks, or where the left-out chunks differ from `left_out`. `self`
    /// is the sum over all shares.
    pub fn check(&self, left_out: &[LeftOut]) -> Result<()> {
        if self.left_out == count(left_out) && self.found >= self.stored {
            return Ok(());
        }
        Err(Error::Other(
            "the new file has other chunks than the log".into(),
        ))
    }
}

fn count(list: &[LeftOut]) -> u64 {
    list.iter().map(|left_out| left_out.count).sum()
}

/// Compares a share of the parts of a file of `len` bytes with the log.
pub fn compare(
    source: &Source,
    file: &File,
    len: u64,
    share: Share,
    jobs: usize,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<Compared> {
    let written = Written::new(source, file, len);
    let image = Image::new(&written);
    let places = (0..source.metadata.datasets.len())
        .map(|number| place(source, &image, &written, number).map_err(|e| source.about(number, e)));
    let check = Check {
        source,
        written: &written,
        places: places.collect::<Result<_>>()?,
        found: AtomicU64::new(0),
        done: AtomicU64::new(0),
        progress,
        parts: Mutex::new(Some(Shared {
            parts: Parts::new(source),
            next: 0,
            share,
        })),
        failed: Mutex::new(None),
        left_out: Mutex::new(Vec::new()),
    };
    thread::scope(|scope| {
        for _ in 1..jobs {
            if thread::Builder::new()
                .spawn_scoped(scope, || check.run())
                .is_err()
            {
                break;
            }
        }
        check.run();
    });
    check.finish()
}

/// Fails where the metadata differs from what was written.
pub fn check_metadata(source: &Source, file: &File, complete: &Complete) -> Result<()> {
    let written = Written::new(source, file, complete.len);
    let mut found = vec![0; complete.image.len()];
    written.read(0, &mut found)?;
    let size = file.metadata()?.len();
    if found != complete.image || size < complete.len {
        return Err(Error::Other(
            "the metadata differs from what was written".into(),
        ));
    }
    Ok(())
}

/// The storage of a dataset according to the file.
enum Place {
    Chunks(Vec<StoredChunk>),
    /// The address of contiguous data.
    Piece(Option<u64>),
}

fn place(
    source: &Source,
    image: &Image<&Written<'_>>,
    written: &Written<'_>,
    number: usize,
) -> Result<Place, Fault> {
    use h5logfs_hdf5_format::Layout as Found;
    let message = image.layout(source.dataset(number).header)?;
    let is_chunked = source.layout(number) == Layout::Chunks;
    Ok(match (Found::of_message(&message, None)?, is_chunked) {
        (Found::Contiguous { address, .. }, false) => Place::Piece(address),
        (
            Found::Chunked {
                index: ChunkIndex::BTree(None),
                ..
            },
            true,
        ) => Place::Chunks(Vec::new()),
        (
            Found::Chunked {
                index: ChunkIndex::BTree(Some(root)),
                ..
            },
            true,
        ) => {
            let grid = source.view.grid(number);
            let number_at = |origin: &[u64]| grid.number_at(origin);
            Place::Chunks(read_stored(written, root, grid.dims.len(), number_at)?)
        }
        _ => return Err("the layout message is not that of its storage".into()),
    })
}

/// The parts of a share.
struct Shared<'a> {
    parts: Parts<'a>,
    /// Number of the next part, counted over all parts.
    next: u64,
    share: Share,
}

impl Shared<'_> {
    fn next_part(&mut self) -> Result<Option<Part>> {
        loop {
            let part = self.parts.next_part()?;
            let number = self.next;
            self.next += 1;
            if part.is_none() || self.share.has(number) {
                return Ok(part);
            }
        }
    }
}

struct Check<'a> {
    source: &'a Source,
    written: &'a Written<'a>,
    /// The storage of each dataset.
    places: Vec<Place>,
    /// Number of chunks compared.
    found: AtomicU64,
    /// Number of bytes compared.
    done: AtomicU64,
    progress: &'a (dyn Fn(u64) + Sync),
    /// `None` once all parts are taken.
    parts: Mutex<Option<Shared<'a>>>,
    failed: Mutex<Option<Error>>,
    left_out: Mutex<Vec<LeftOut>>,
}

impl Check<'_> {
    fn run(&self) {
        loop {
            let compared = match self.take() {
                Ok(Some(part)) => self.compare(&part),
                Ok(None) => return,
                Err(e) => Err(e),
            };
            if let Err(e) = compared {
                self.failed.lock().get_or_insert(e);
                *self.parts.lock() = None;
            }
        }
    }

    fn take(&self) -> Result<Option<Part>> {
        let mut parts = self.parts.lock();
        let Some(all) = parts.as_mut() else {
            return Ok(None);
        };
        let part = all.next_part()?;
        if part.is_none() {
            // Datasets without any readable element count in one share only.
            if all.share.first == 0 {
                self.left_out.lock().append(&mut all.parts.left_out);
            }
            *parts = None;
        }
        Ok(part)
    }

    fn compare(&self, part: &Part) -> Result<()> {
        let number = part.number;
        let differs = |what: String| {
            let reason = format!("{what} of the new file differs from the log");
            self.source.about(number, reason)
        };
        match (&part.what, &self.places[number]) {
            (What::Chunks(chunks), Place::Chunks(stored)) => {
                for chunk in chunks {
                    let place = stored.binary_search_by_key(chunk, |stored| stored.number);
                    let place = place.ok().map(|at| stored[at]);
                    self.compare_chunk(number, *chunk, place)?;
                }
            }
            (What::Chunks(_), Place::Piece(address)) => {
                let chunk = address.map(|address| StoredChunk {
                    number: 0,
                    address,
                    // Contiguous data has no filters: its stored length is the raw one.
                    size: u32::try_from(self.source.raw_len(number)).unwrap_or(u32::MAX),
                    filter_mask: 0,
                });
                self.compare_chunk(number, 0, chunk)?;
            }
            (What::Piece { offset, len }, Place::Piece(Some(address))) => {
                let mut expected = vec![0; *len as usize];
                match self
                    .source
                    .view
                    .regions()
                    .read_extent(number, *offset, &mut expected)
                {
                    Ok(()) => {
                        let mut found = vec![0; *len as usize];
                        self.written.read(address + offset, &mut found)?;
                        if found != expected {
                            return Err(differs(format!("the piece at {offset}")));
                        }
                    }
                    Err(e) if self.source.skips_damaged => {
                        LeftOut::of(number, e)?.add_to(&mut self.left_out.lock());
                    }
                    Err(e) => return Err(e.into()),
                }
                self.passed(*len);
            }
            (What::Piece { .. }, _) => return Err(differs("the place".into())),
        }
        Ok(())
    }

    fn compare_chunk(&self, number: usize, chunk: u64, stored: Option<StoredChunk>) -> Result<()> {
        let position = || self.source.view.grid(number).position(chunk);
        let raw_len = self.source.raw_len(number);
        let task = self.source.view.task(None);
        let expected = match self
            .source
            .view
            .chunks()
            .raw(&task, ChunkId::new(number, chunk))
        {
            Ok(expected) => expected,
            Err(e) if self.source.skips_damaged && stored.is_none() => {
                LeftOut::of(number, e)?.add_to(&mut self.left_out.lock());
                return Ok(());
            }
            Err(e) => return Err(e.into()),
        };
        let found = stored.ok_or(Fault::from("it is not there"));
        let found = found.and_then(|stored| self.read_chunk(number, &stored, raw_len));
        let reason = match found {
            Ok(found) if self.is_same_chunk(number, chunk, &found, &expected) => {
                self.found.fetch_add(1, Ordering::Relaxed);
                self.passed(raw_len);
                return Ok(());
            }
            Ok(_) => "its elements differ from the log's".to_owned(),
            Err(fault) => fault.to_string(),
        };
        let reason = format!("chunk {:?} of the new file: {reason}", position());
        Err(self.source.about(number, reason))
    }

    /// Whether two chunks have equal elements. Bytes past the edge of the dataset do not count, because a copied chunk
    /// has there whatever the program wrote.
    fn is_same_chunk(&self, number: usize, chunk: u64, one: &[u8], other: &[u8]) -> bool {
        let grid = self.source.view.grid(number);
        let bounds = grid.bounds(chunk);
        if grid.is_whole(&bounds) {
            return one == other;
        }
        let count: Vec<u64> = bounds.count().collect();
        let element = self.source.dataset(number).element_size;
        is_same_within(&grid.chunk, &count, element, one, other)
    }

    fn read_chunk(&self, number: usize, stored: &StoredChunk, raw: u64) -> Result<Vec<u8>, Fault> {
        let mut bytes = vec![0; stored.size as usize];
        self.written.read(stored.address, &mut bytes)?;
        let pipeline = &self.source.dataset(number).filters;
        let was_applied = |place: &usize| stored.filter_mask & (1 << place) == 0;
        let applied: Vec<Filter> = (0..pipeline.len())
            .filter(was_applied)
            .map(|place| pipeline[place].clone())
            .collect();
        decode(&bytes, raw, &applied)
    }

    fn passed(&self, bytes: u64) {
        let before = self.done.fetch_add(bytes, Ordering::Relaxed);
        (self.progress)(before + bytes);
    }

    /// Fails where something differs.
    fn finish(self) -> Result<Compared> {
        if let Some(error) = self.failed.into_inner() {
            return Err(error);
        }
        self.source.view.references().check_sources()?;
        let stored = self.places.iter().map(|place| match place {
            Place::Chunks(chunks) => chunks.len() as u64,
            Place::Piece(_) => 0,
        });
        Ok(Compared {
            stored: stored.sum(),
            found: self.found.into_inner(),
            left_out: count(&self.left_out.into_inner()),
        })
    }
}

/// Whether two boxes of these sides have equal elements in the first `count` along each dimension.
fn is_same_within(sides: &[u64], count: &[u64], element: u64, one: &[u8], other: &[u8]) -> bool {
    let (Some((side, _)), Some((len, inner))) = (sides.split_first(), count.split_first()) else {
        return one == other;
    };
    let step = one.len() / (*side).max(1) as usize;
    if step == 0 || one.len() != other.len() {
        return one == other;
    }
    if inner.is_empty() {
        let len = (len * element) as usize;
        return one[..len] == other[..len];
    }
    let pairs = one.chunks(step).zip(other.chunks(step));
    let mut wanted = pairs.take(*len as usize);
    wanted.all(|(one, other)| is_same_within(&sides[1..], inner, element, one, other))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_past_the_edge_is_not_compared() {
        let one: Vec<u8> = (0..24).collect();
        let sides = [2, 3, 2];
        for at in 0..24u8 {
            let mut other = one.clone();
            other[usize::from(at)] ^= 1;
            // Elements of two bytes.
            let (i, j, k) = (at / 12, at / 4 % 3, at / 2 % 2);
            let is_inside = i < 1 && j < 2 && k < 1;
            let is_same = is_same_within(&sides, &[1, 2, 1], 2, &one, &other);
            assert_eq!(is_same, !is_inside, "byte {at}");
            assert!(!is_same_within(&sides, &sides, 2, &one, &other));
        }
        assert!(is_same_within(&[], &[], 8, &[1, 2], &[1, 2]));
        assert!(!is_same_within(&[3], &[2], 1, &[1, 2, 3], &[1, 2]));
    }
}
