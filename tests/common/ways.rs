//! One log, read in all ways, with the same bytes.

use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use h5logfs_common::task::Task;
use h5logfs_log::scan::{Chunking, ScanRequest, Settings};
use h5logfs_log::snapshot::Snapshot;
use h5logfs_log::source_dir::SourceDir;
use h5logfs_log::source_file::SourceFile;
use h5logfs_scan::scan;
use h5logfs_view::ChunkId;
use h5logfs_view::cache::{Budget, MemoryLimits};
use h5logfs_view::index::saved::IndexInputs;
use h5logfs_view::index::store::{FileState, Store, StoreEntry, StoreKey};
use h5logfs_view::{StoredBlock, View};

use super::encoder::BUDGET;

type Result<T> = std::result::Result<T, String>;

/// Time limit for using some parts of a view.
const LONGEST: Duration = Duration::from_secs(20);

/// A log and its scan settings, except chunks.
pub struct Ways {
    pub path: PathBuf,
    pub settings: Settings,
}

impl Ways {
    pub fn of(path: impl Into<PathBuf>) -> Self {
        Ways {
            path: path.into(),
            settings: Settings::default(),
        }
    }

    fn dir(&self) -> Result<(SourceDir, PathBuf)> {
        let (dir, name) = SourceDir::of_file(&self.path).map_err(|e| e.to_string())?;
        let dir = dir.with_further(&self.settings.log_dirs);
        Ok((dir.map_err(|e| e.to_string())?, name))
    }

    /// Opens the log in one way.
    pub fn open(
        &self,
        chunking: Chunking,
        cache_size: u64,
        kept: Option<StoreEntry>,
    ) -> Result<Arc<View>> {
        let (dir, name) = self.dir()?;
        let limits = MemoryLimits {
            cache_size,
            index_memory: BUDGET,
        };
        let settings = Settings {
            chunking,
            ..self.settings.clone()
        };
        scan(ScanRequest::alone(&dir, &name, &settings))
            .and_then(|snapshot| View::open(&dir, snapshot, Arc::new(Budget::new(limits)), kept))
            .map_err(|e| e.to_string())
    }

    /// Keeps the indexes of all datasets in `store`.
    fn keep(&self, view: &View, store: &Arc<Store>) -> Result<StoreEntry> {
        let (dir, name) = self.dir()?;
        let key = StoreKey {
            main: FileState::from(&self.path.metadata().map_err(|e| e.to_string())?),
            name: name.into_os_string().into_encoded_bytes(),
            settings: String::new(),
        };
        let log = store.entry(&key);
        let snapshot = view.snapshot();
        let sources = snapshot.sources.iter();
        let sources = sources.map(|s| SourceFile::open_at(&dir, &s.place));
        let sources: Vec<SourceFile> = sources
            .collect::<std::result::Result<_, _>>()
            .map_err(|e| e.to_string())?;
        for (number, dataset) in snapshot.datasets.iter().enumerate() {
            let Some(dataset) = &dataset.logged() else {
                continue;
            };
            let about = IndexInputs {
                number,
                strip: None,
                dataset,
                sources: &sources,
            };
            let index = view.indexes().of(number).map_err(|e| e.to_string())?;
            let task = &Task::unlimited();
            index.save(task, &log, about);
            let again =
                h5logfs_view::index::DatasetIndex::load(task, &log, about, &Default::default());
            if again.is_none() {
                return Err(format!("the index of dataset {number} is not taken back"));
            }
        }
        Ok(log)
    }

    /// Presents the log's snapshot with each byte in turn damaged, except those of the image. A read must succeed or
    /// fail, and soon.
    pub fn damage_snapshot(&self) -> Result<()> {
        let (dir, name) = self.dir()?;
        let snapshot =
            scan(ScanRequest::alone(&dir, &name, &self.settings)).map_err(|e| e.to_string())?;
        let sound = snapshot.to_bytes().map_err(|e| e.to_string())?;
        let mut windows = sound.windows(snapshot.image.len());
        let image = windows.position(|w| w == snapshot.image).unwrap_or(0);
        let image = image..image + snapshot.image.len();
        let mut opened = 0;
        for at in (0..sound.len()).filter(|at| !image.contains(at)) {
            for bytes in damaged(&sound, at) {
                let begin = Instant::now();
                let Ok(snapshot) = Snapshot::from_bytes(&Task::unlimited(), &bytes) else {
                    continue;
                };
                let budget = Arc::new(Budget::new(MemoryLimits::each(16 << 20)));
                if let Ok(view) = View::open(&dir, snapshot.into_parts().0, budget, None) {
                    opened += 1;
                    read_somewhat(&view);
                }
                if begin.elapsed() > LONGEST {
                    return Err(format!("{:?} with byte {at} damaged", begin.elapsed()));
                }
            }
        }
        match opened {
            0 => Err("all were refused: nothing was tried".into()),
            _ => Ok(()),
        }
    }

    /// Opens the log in all ways. `check` compares a view's chunks with the log; the bytes of the whole file are
    /// compared with those of the first view.
    pub fn check(&self, seed: u64, check: impl Fn(&View, &str) -> Result<()>) -> Result<()> {
        let view = self.open(Chunking::Auto, BUDGET, None)?;
        check(&view, "by chunks")?;
        let whole = known_bytes(&view);
        check_holes(&view, &whole)?;
        check_sources(&view)?;
        let pieces = |view: &View, how: &str, seed: u64| {
            let checked = check_pieces(&whole, view, seed);
            checked.map_err(|e| format!("{how}: {e}"))
        };

        // Nothing is cached yet.
        let small = self.open(Chunking::Auto, least_cache(&view)?, None)?;
        pieces(&small, "in a small cache", seed)?;
        check(&small, "in a small cache")?;
        let chunks = self.open(Chunking::Size(4096), BUDGET, None)?;
        check(&chunks, "in chunks of 4096 bytes")?;

        let dir = tempfile::tempdir().map_err(|e| e.to_string())?;
        let store = Store::open(&dir.path().join("kept"), BUDGET);
        let store = Arc::new(store.map_err(|e| e.to_string())?);
        let log = self.keep(&view, &store)?;
        let kept = self.open(Chunking::Auto, BUDGET, Some(log))?;
        pieces(&kept, "with a kept index", seed + 1)?;
        check(&kept, "with a kept index")
    }
}

/// Reported holes read as zeros, and the extents cover the file.
fn check_holes(view: &View, whole: &[Option<u8>]) -> Result<()> {
    let mut at = 0;
    while at < view.len() {
        let segment = view.holes().segment_at(at).map_err(|e| e.to_string())?;
        let range = segment.range;
        if range.start != at || range.end <= at {
            return Err(format!("at {at} there is an extent {range:?}"));
        }
        let bytes = &whole[range.start as usize..range.end as usize];
        if segment.is_hole && bytes.iter().any(|byte| *byte != Some(0)) {
            return Err(format!("the hole {range:?} is none"));
        }
        at = range.end;
    }
    Ok(())
}

/// The sources of a readable chunk can be reported, and lie in the chunk.
fn check_sources(view: &View) -> Result<()> {
    for (number, dataset) in view.snapshot().datasets.iter().enumerate() {
        if dataset.logged().is_none() {
            continue;
        }
        let grid = view.grid(number);
        for chunk in 0..grid.len() {
            let sources = match (
                view.chunks().stored(ChunkId::new(number, chunk)),
                view.inspection().chunk_blocks(ChunkId::new(number, chunk)),
            ) {
                (_, Ok(sources)) => sources,
                (Err(_), Err(_)) => continue,
                (Ok(_), Err(e)) => return Err(e.to_string()),
            };
            let bounds = grid.bounds(chunk);
            let is_inside = |source: &StoredBlock| {
                let sides = source.start.iter().zip(&source.count);
                let mut sides = sides.zip(bounds.start.iter().zip(&bounds.end));
                sides.all(|((start, count), (from, to))| {
                    *count > 0 && from <= start && start + count <= *to
                })
            };
            if !sources.iter().all(is_inside) {
                return Err(format!("chunk {chunk} is made of {sources:?}"));
            }
        }
    }
    Ok(())
}

/// Copies with another byte at one place, and with the largest numbers there.
fn damaged(sound: &[u8], at: usize) -> impl Iterator<Item = Vec<u8>> {
    let byte = sound[at];
    let other = [!byte, byte.wrapping_add(1), 0, byte ^ 0x80][at % 4];
    // 2^63-1 and 2^64-1 in postcard's encoding.
    let most = |last: &[u8]| [&[0xff; 8][..], last].concat();
    let instead = [vec![other], most(&[0x7f]), most(&[0xff, 1])];
    instead
        .into_iter()
        .map(move |new| [&sound[..at], &new, &sound[at + 1..]].concat())
}

/// Reads some of everything. All of it could take forever.
fn read_somewhat(view: &View) {
    const SOME: u64 = 50;
    let _ = view.indexes().diagnostics();
    let _ = view.read_at(0, &mut vec![0; 1 << 16]);
    for number in 0..view.snapshot().datasets.len() {
        let all = view.grid(number).len();
        let last = all.saturating_sub(SOME / 10).max(SOME)..all;
        for chunk in (0..all.min(SOME)).chain(last) {
            let _ = view.chunks().stored(ChunkId::new(number, chunk));
        }
        if all == 0 || view.snapshot().datasets[number].logged().is_none() {
            continue;
        }
        let _ = view.indexes().records(number);
        for chunk in [0, all / 2, all - 1] {
            let _ = view.inspection().chunk_blocks(ChunkId::new(number, chunk));
            let place = view.inspection().chunk_place(ChunkId::new(number, chunk));
            let _ = place.map(|(at, _)| view.read_at(at, &mut [0; 100]));
        }
        let _ = view.holes().touched(number, 0).map(|t| t.take(10).count());
    }
}

/// The smallest cache that suffices: it holds any single chunk and any single record.
fn least_cache(view: &View) -> Result<u64> {
    let mut least = 0;
    for (number, dataset) in view.snapshot().datasets.iter().enumerate() {
        least = least.max(2 * view.grid(number).elements() * dataset.element_size + 1000);
        if dataset.logged().is_none() {
            continue;
        }
        let found = view.indexes().records(number).map_err(|e| e.to_string())?;
        let mut cells = Vec::new();
        for number in 0..found.records.len() {
            let record = found.records.get(number, &mut cells);
            let raw = record.elements().saturating_mul(dataset.element_size);
            // A chunk larger than any cache is unreadable.
            least = least.max(raw.max(record.stored.len).min(BUDGET / 2));
        }
    }
    Ok(least + 4096)
}

/// Random numbers.
pub fn numbers(seed: u64) -> impl FnMut() -> u64 {
    let mut state = seed | 1;
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state >> 24
    }
}

/// Compares pieces of the file, in random order and in sequence, by several concurrent readers.
fn check_pieces(whole: &[Option<u8>], view: &View, seed: u64) -> Result<()> {
    let len = whole.len() as u64;
    let check = |task: &Task, at: u64, count: u64| -> Result<()> {
        let mut bytes = vec![0x5a; count as usize];
        let part = &whole[at as usize..(at + count).min(len) as usize];
        match view.read_for(task, at, &mut bytes) {
            Ok(read) if read != part.len() => Err(format!("{read} bytes at {at}")),
            Ok(read) => {
                let same = bytes[..read].iter().zip(part).all(|(b, p)| *p == Some(*b));
                same.then_some(()).ok_or(format!("other bytes at {at}"))
            }
            Err(_) if part.iter().any(Option::is_none) => Ok(()),
            Err(e) => Err(format!("at {at}: {e}")),
        }
    };
    let reader = |reader: u64| -> Result<()> {
        let mut random = numbers(seed ^ (reader << 40));
        let piece = 1 + random() % (len / 40 + 5);
        let check = |at, count| {
            let task = view.task(None);
            let task = if at % 2 == 0 { task } else { task.for_keeper() };
            check(&task, at, count)
        };
        match reader % 3 {
            0 => (0..60).try_for_each(|_| check(random() % len, random() % (len / 16 + 2))),
            1 => (0..len)
                .step_by(piece as usize)
                .try_for_each(|at| check(at, piece)),
            _ => {
                let mut starts = (0..len / piece).rev();
                starts.try_for_each(|n| check(n * piece, piece))
            }
        }
    };
    thread::scope(|scope| {
        let readers: Vec<_> = (0..4).map(|n| scope.spawn(move || reader(n))).collect();
        for reader in readers {
            reader.join().unwrap()?;
        }
        Ok(())
    })
}

/// All readable bytes of the file.
fn known_bytes(view: &View) -> Vec<Option<u8>> {
    let mut lost = Vec::new();
    for (number, dataset) in view.snapshot().datasets.iter().enumerate() {
        for chunk in 0..view.grid(number).len() {
            if dataset.logged().is_some()
                && view.chunks().stored(ChunkId::new(number, chunk)).is_err()
            {
                let (start, stored) = view
                    .inspection()
                    .chunk_place(ChunkId::new(number, chunk))
                    .unwrap();
                // Bytes after a chunk in its slot may be unreadable without it.
                let align = if stored < 1 << 16 { 8 } else { 4096 };
                let (end, next) = (start + stored, start + stored.next_multiple_of(align));
                let rest = view.read_at(end, &mut vec![0; (next - end) as usize]);
                lost.push(start..if rest.is_ok() { end } else { next });
            }
        }
    }
    lost.sort_by_key(|range| range.start);
    lost.push(view.len()..view.len());
    let mut whole = Vec::with_capacity(view.len() as usize);
    for range in lost {
        let mut bytes = vec![0; range.start as usize - whole.len()];
        view.read_at(whole.len() as u64, &mut bytes).unwrap();
        whole.extend(bytes.into_iter().map(Some));
        whole.resize(range.end as usize, None);
    }
    whole
}
