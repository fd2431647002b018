//! Verifies the checksums of a file's data when it is first read.
//!
//! A file system may show late what another node has written. When a log is opened, only the newest data is compared
//! with the [seals](crate::logvol::extent::Seal) of its extents. All other data is verified here, before the first
//! read that needs it is answered. So a reader gets the written data, or an error. A later read tries again.
//!
//! A file may have any number of extents. The guard remembers groups of neighbours: where some of them begin, and
//! which ranges of the file are verified.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};

use super::fresh::or_afresh;
use super::sealed::SealedFile;
use crate::front::FRONT;
use crate::logvol::extent::{Extents, Located};
use crate::source_file::{Guard, SourceFile};
use crate::window::Piece;
use h5logfs_common::fault::Fault;
use h5logfs_common::single_flight::SingleFlight;
use h5logfs_common::task;

/// The smallest group in bytes, unless it is one extent. It is verified in a fraction of a millisecond.
const LEAST_STEP: u64 = 1 << 20;
/// Binary logarithm of the most groups in a file. A larger file has larger groups.
const MOST_GROUPS: u32 = 18;
/// Memory of a group: its start, and a range.
const GROUP_MEMORY: u64 = 64;

/// Verifies the data of one file.
#[derive(Debug)]
pub struct SealGuard {
    end: u64,
    step: u64,
    /// Everything from this offset on is verified.
    seen_from: AtomicU64,
    state: RwLock<State>,
    /// Groups that are being verified, by their starts. Of several threads that need a group, one verifies it.
    comparing: SingleFlight<u64>,
    /// The table of a closed log, until it is verified.
    table: Mutex<Option<Piece>>,
}

#[derive(Debug, Default)]
struct State {
    /// Known starts of groups. An extent begins at each.
    begins: BTreeSet<u64>,
    /// Verified ranges, neither overlapping nor adjacent.
    seen: BTreeMap<u64, u64>,
}

impl SealGuard {
    /// A guard for a file, given the result of the scan.
    pub fn new(file: &SealedFile) -> Self {
        let end = file.end();
        let begins = file.ends.iter().copied().filter(|at| *at < end);
        let guard = SealGuard {
            end,
            step: step(end),
            seen_from: AtomicU64::new(end),
            state: RwLock::new(State {
                begins: begins.chain([FRONT]).collect(),
                seen: BTreeMap::new(),
            }),
            comparing: SingleFlight::default(),
            table: Mutex::new(file.table),
        };
        guard.add(file.seen_from..end);
        guard
    }

    /// Upper bound of a guard's memory for a file of this length.
    pub fn most_memory(len: u64) -> u64 {
        (len / step(len) + 1) * GROUP_MEMORY
    }

    /// Approximate present memory in bytes.
    pub fn bytes(&self) -> usize {
        let state = self.state.read();
        state.begins.len() * 16 + state.seen.len() * 32 + size_of::<Self>()
    }

    /// Adds the ranges that another guard of the same file has verified.
    pub fn take_over(&self, other: &SealGuard) {
        let seen: Vec<_> = other
            .state
            .read()
            .seen
            .iter()
            .map(|(from, to)| *from..*to)
            .collect();
        seen.into_iter().for_each(|range| self.add(range));
    }

    /// Fails where the table of a closed log differs from the entries of the extents. A verified table is not read
    /// again.
    pub fn check_table(&self, file: &SourceFile) -> Result<(), Fault> {
        task::check_running()?;
        // The lock is held while the whole table is read, because other threads need the same comparison.
        let mut table = self.table.lock();
        if let Some(found) = *table {
            self.compare_table(file, found)?;
            *table = None;
        }
        Ok(())
    }

    /// Verifies the table, and records the groups found on the way.
    fn compare_table(&self, file: &SourceFile, table: Piece) -> Result<(), Fault> {
        let begins = compare_table(file, self.end, table, self.step)?;
        self.state.write().begins.extend(begins);
        Ok(())
    }

    /// End of the verified range that contains the byte at `at`.
    fn seen_after(&self, at: u64) -> Option<u64> {
        let state = self.state.read();
        let (_, end) = state.seen.range(..=at).next_back()?;
        (*end > at).then_some(*end)
    }

    /// Verifies the group with the byte at `at`, for a read of `wanted`. Returns the end of the group.
    fn compare(&self, file: &SourceFile, at: u64, wanted: Range<u64>) -> Result<u64, Fault> {
        let group = self.group(file, at)?;
        let is_wanted = || task::check_running().is_ok();
        let Some(_flight) = self.comparing.take_while(group.start, is_wanted) else {
            task::check_running()?;
            return Ok(at);
        };
        // Another thread may have verified the group meanwhile.
        if let Some(seen) = self.seen_after(at) {
            return Ok(seen);
        }
        let mut is_good = true;
        for extent in Extents::any(file, group.clone()) {
            let extent = extent?;
            let seen = self.seen_after(extent.at);
            if seen.is_some_and(|seen| seen >= extent.bytes().end) {
                continue;
            }
            match or_afresh(file, || {
                extent.check_data(file, || Ok(task::check_running()?))
            }) {
                Ok(()) => self.add(extent.bytes()),
                Err(reason) if overlap(&extent.data(), &wanted) => return Err(reason),
                Err(_) => is_good = false,
            }
        }
        if is_good {
            self.add(group.clone());
        }
        Ok(group.end)
    }

    /// The group with the byte at `at`.
    fn group(&self, file: &SourceFile, at: u64) -> Result<Range<u64>, Fault> {
        let (begin, known_end) = {
            let state = self.state.read();
            let begin = state.begins.range(..=at).next_back();
            let end = state.begins.range(at.saturating_add(1)..).next();
            (
                begin.copied().unwrap_or(FRONT),
                end.copied().unwrap_or(self.end),
            )
        };
        let mut start = begin;
        let mut found = Vec::new();
        for extent in Extents::any(file, begin..known_end) {
            let Located { at: next, .. } = extent?;
            if next - start < self.step {
                continue;
            }
            found.push(next);
            if next > at {
                break;
            }
            start = next;
        }
        let end = found.last().copied().filter(|last| *last > at);
        self.state.write().begins.extend(found);
        Ok(start..end.unwrap_or(known_end))
    }

    /// Records a verified range.
    fn add(&self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let mut state = self.state.write();
        let (mut from, mut to) = (range.start, range.end);
        while let Some((begin, end)) = state.seen.range(..=to).next_back()
            && *end >= from
        {
            let begin = *begin;
            (from, to) = (from.min(begin), to.max(*end));
            state.seen.remove(&begin);
        }
        state.seen.insert(from, to);
        if to >= self.end {
            self.seen_from.store(from, Ordering::Release);
        }
    }
}

impl Guard for SealGuard {
    /// Skips data that was verified before.
    fn check(&self, file: &SourceFile, offset: u64, len: u64) -> Result<(), Fault> {
        let end = offset.saturating_add(len).min(self.end);
        let mut at = offset.max(FRONT);
        if at >= self.seen_from.load(Ordering::Acquire) {
            return Ok(());
        }
        while at < end {
            at = match self.seen_after(at) {
                Some(seen) => seen,
                None => self.compare(file, at, at..end)?,
            };
        }
        Ok(())
    }
}

/// Fails where the table differs from the entries of the extents, which end at `end`.
pub(super) fn check_table(file: &SourceFile, end: u64, table: Piece) -> Result<(), Fault> {
    compare_table(file, end, table, u64::MAX).map(drop)
}

/// Compares a table with the checksums of the entries in the extents, which end at `end`. Its sections are those of
/// the ranks with entries, in order. Without entries there is no table. Returns the starts of groups of extents of at
/// least `step` bytes.
fn compare_table(file: &SourceFile, end: u64, table: Piece, step: u64) -> Result<Vec<u64>, Fault> {
    let about = |reason| format!("the table at byte {}: {reason}", table.offset);
    let (mut lens, mut begins, mut last) = (BTreeMap::<u32, u64>::new(), Vec::new(), FRONT);
    for extent in Extents::any(file, FRONT..end) {
        let extent = extent?;
        task::check_running()?;
        if extent.header.entries > 0 {
            *lens.entry(extent.header.rank).or_default() += extent.header.entries;
        }
        if extent.at - last >= step {
            last = extent.at;
            begins.push(last);
        }
    }
    if lens.is_empty() && table.len == 0 {
        return Ok(begins);
    }
    let mut places = places(file, table, &lens).map_err(about)?;
    for extent in Extents::any(file, FRONT..end) {
        let extent = extent?;
        task::check_running()?;
        if let Some(place) = places.get_mut(&extent.header.rank) {
            extent.check_copy(file, *place).map_err(about)?;
            *place += extent.header.entries;
        }
    }
    Ok(begins)
}

/// Start of each rank's section in the table, given the lengths of the sections.
fn places(
    file: &SourceFile,
    table: Piece,
    lens: &BTreeMap<u32, u64>,
) -> Result<BTreeMap<u32, u64>, Fault> {
    let differs = || Fault::from("its sections do not match the ranks with entries");
    let word = |number: u64| -> Result<u64, Fault> {
        let at = number.checked_mul(8).filter(|at| at + 8 <= table.len);
        let at = at.and_then(|at| table.offset.checked_add(at));
        let mut bytes = [0; 8];
        file.read_unguarded(&mut bytes, at.ok_or_else(differs)?)?;
        Ok(u64::from_le_bytes(bytes))
    };
    let (sections, mut wanted, mut places) = (word(0)?, lens.iter(), BTreeMap::new());
    let head = sections
        .checked_add(1)
        .and_then(|words| words.checked_mul(8));
    let mut begin = head.filter(|head| *head <= table.len).ok_or_else(differs)?;
    for section in 1..=sections {
        let end = word(section)?;
        if end > begin {
            let (rank, len) = wanted.next().ok_or_else(differs)?;
            if end - begin != *len {
                return Err(differs());
            }
            places.insert(*rank, table.offset.saturating_add(begin));
        }
        begin = end;
    }
    if begin != table.len || wanted.next().is_some() {
        return Err(differs());
    }
    Ok(places)
}

/// Bytes of a group in a file of `len` bytes.
fn step(len: u64) -> u64 {
    (len >> MOST_GROUPS).max(LEAST_STEP)
}

/// Whether two ranges overlap.
fn overlap(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start.max(b.start) < a.end.min(b.end)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::FileExt;
    use std::path::PathBuf;
    use std::sync::Arc;
    use std::thread;

    use proptest::prelude::*;

    use super::*;
    use crate::file_id::FileId;
    use crate::front::unclosed_front;
    use crate::logvol::extent::{ExtentHeader, Seal, crc32, data_sum};
    use crate::source_dir::SourceDir;
    use h5logfs_common::fault::Stop;
    use h5logfs_common::task::{StopFlag, Task};

    /// Bytes of entries, bytes of data, and whether the extent has a seal. An extent without entries is a gap.
    type Shape = (usize, usize, bool);

    /// A data file, and the places of its extents' data.
    struct Log {
        file: SourceFile,
        path: PathBuf,
        data: Vec<Range<u64>>,
        ends: Vec<u64>,
        _dir: tempfile::TempDir,
    }

    impl Log {
        fn new(shapes: &[Shape]) -> Self {
            let mut bytes = unclosed_front(&FileId([7; 16]));
            let (mut data, mut ends) = (Vec::new(), Vec::new());
            for (number, (entries, len, is_sealed)) in shapes.iter().enumerate() {
                let (entries, content) = (vec![1; *entries], vec![number as u8 + 1; *len]);
                let header = ExtentHeader {
                    rank: number as u32,
                    flush: 1 + number as u64 / 2,
                    entries: entries.len() as u64,
                    data: *len as u64,
                    entries_crc: crc32(&entries),
                    seal: is_sealed.then(|| Seal {
                        data: data_sum(&[&content]),
                        tag: 9,
                    }),
                    proof: None,
                };
                bytes.extend(header.to_bytes());
                bytes.extend(entries);
                data.push(bytes.len() as u64..(bytes.len() + len) as u64);
                bytes.extend(content);
                ends.push(bytes.len() as u64);
            }
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("log");
            std::fs::write(&path, bytes).unwrap();
            let held = SourceDir::open(dir.path()).unwrap();
            Log {
                file: SourceFile::open(&held, "log".as_ref()).unwrap(),
                path,
                data,
                ends,
                _dir: dir,
            }
        }

        fn len(&self) -> u64 {
            self.file.len()
        }

        fn guard(&self, step: u64, seen_from: u64) -> SealGuard {
            let ends = self.ends.iter().copied();
            let guard = SealGuard::new(&SealedFile::new(0, ends, seen_from));
            SealGuard { step, ..guard }
        }

        fn guarded(self, step: u64) -> Self {
            let guard = self.guard(step, self.len());
            self.guarded_by(Arc::new(guard))
        }

        fn guarded_by(self, guard: Arc<SealGuard>) -> Self {
            Log {
                file: self.file.guarded_by(guard),
                ..self
            }
        }

        fn turn(&self, at: u64) {
            let file = File::options()
                .read(true)
                .write(true)
                .open(&self.path)
                .unwrap();
            let mut byte = [0];
            file.read_exact_at(&mut byte, at).unwrap();
            file.write_all_at(&[byte[0] ^ 0x55], at).unwrap();
        }
    }

    #[test]
    fn data_are_compared_once_and_only_when_they_are_read() {
        let log = Log::new(&[(10, 3000, true); 20]);
        let guard = Arc::new(log.guard(5000, log.len()));
        let log = log.guarded_by(Arc::clone(&guard));
        let read = |at: u64| {
            let before = log.file.bytes_read();
            log.file.read_exact_at(&mut [0; 100], at).unwrap();
            log.file.bytes_read() - before
        };
        // The headers up to it, and a group of two.
        let first = read(log.data[10].start);
        assert!((6000..10_000).contains(&first), "{first}");
        assert_eq!(read(log.data[10].start + 50), 100);
        assert_eq!(read(log.data[10].end - 100), 100);
        let other = read(log.data[2].start);
        assert!((6000..10_000).contains(&other), "{other}");
        for data in &log.data {
            read(data.start);
        }
        assert_eq!(guard.seen_from.load(Ordering::Relaxed), FRONT);
        assert_eq!(guard.state.read().seen.len(), 1);
    }

    #[test]
    fn what_does_not_match_is_an_error_until_it_does() {
        let log = Log::new(&[(10, 3000, true); 6]).guarded(1 << 20);
        let (read, damaged) = (|at| log.file.read_exact_at(&mut [0; 10], at), &log.data[3]);
        log.turn(damaged.start + 1000);
        for _ in 0..2 {
            let said = read(damaged.start).unwrap_err().to_string();
            assert!(said.contains("rank 3 in flush 2"), "{said}");
            // The neighbours are readable, although they are verified together with it.
            read(log.data[2].start).unwrap();
            read(log.data[4].end - 10).unwrap();
        }
        log.turn(damaged.start + 1000);
        read(damaged.start).unwrap();
        // Verified data stays trusted.
        log.turn(damaged.start + 1000);
        read(damaged.start).unwrap();
    }

    #[test]
    fn extents_that_cannot_be_followed_are_an_error() {
        let log = Log::new(&[(10, 3000, true); 6]);
        log.turn(log.data[2].start - 30);
        let ends = [log.ends[5]].into_iter();
        let guard = SealGuard::new(&SealedFile::new(0, ends, log.len()));
        let said = guard.check(&log.file, log.data[4].start, 10).unwrap_err();
        assert!(said.to_string().contains("no extent"), "{said}");
    }

    #[test]
    fn what_another_guard_has_compared_is_taken_over() {
        let log = Log::new(&[(10, 3000, true); 9]);
        let (old, new) = (log.guard(1, log.len()), log.guard(1, log.data[7].start));
        old.check(&log.file, log.data[1].start, 3000).unwrap();
        old.check(&log.file, log.data[5].start, 3000).unwrap();
        new.take_over(&old);
        let before = log.file.bytes_read();
        for known in [1, 5, 8] {
            new.check(&log.file, log.data[known].start, 3000).unwrap();
        }
        assert_eq!(log.file.bytes_read(), before);
        new.check(&log.file, log.data[2].start, 1).unwrap();
        assert!(log.file.bytes_read() > before + 3000);
    }

    #[test]
    fn of_several_threads_one_compares() {
        let log = Log::new(&[(10, 3 << 20, true); 2]).guarded(1 << 20);
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let mut bytes = [0; 8];
                    log.file
                        .read_exact_at(&mut bytes, log.data[0].start)
                        .unwrap();
                });
            }
        });
        let read = log.file.bytes_read();
        assert!(read < 4 << 20, "{read}");
    }

    #[test]
    fn a_comparison_stops_with_its_work() {
        let log = Log::new(&[(10, 3 << 20, true); 2]).guarded(1 << 20);
        let stop = StopFlag::default();
        stop.stop(Stop::Deadline);
        let task = Task::unlimited().stopped_by(stop);
        let read = || log.file.read_exact_at(&mut [0; 8], log.data[0].start);
        {
            let _running = task.running();
            assert!(read().unwrap_err().to_string().contains("read_cpu"));
        }
        assert!(log.file.bytes_read() < 2 << 20);
        read().unwrap();
    }

    #[test]
    fn a_range_without_bytes_overlaps_nothing() {
        assert!(overlap(&(3..9), &(8..12)) && overlap(&(3..9), &(5..6)));
        assert!(!overlap(&(3..9), &(9..12)) && !overlap(&(3..9), &(5..5)));
    }

    #[test]
    fn large_files_have_larger_groups() {
        assert_eq!(step(1 << 30), 1 << 20);
        assert_eq!(step(1 << 40), 4 << 20);
        assert!(SealGuard::most_memory(1 << 44) <= 17 << 20);
        assert!(step(u64::MAX) < u64::MAX);
    }

    proptest! {
        /// A read fails where it touches data that does not match its seal, and nowhere else. In the end everything
        /// is verified.
        #[test]
        fn reads_are_right_or_fail(
            shapes in prop::collection::vec((0usize..40, 0usize..3000, any::<bool>()), 1..30),
            step in 1u64..8000,
            seen in 0u64..100_000,
            damage in prop::collection::vec(any::<prop::sample::Index>(), 0..3),
            reads in prop::collection::vec((any::<prop::sample::Index>(), 0u64..9000), 1..30),
        ) {
            let log = Log::new(&shapes);
            let end = log.len();
            let guard = log.guard(step, end);
            let has_seal = |number: usize| shapes[number].0 > 0 && shapes[number].2;
            let mut damaged: Vec<usize> = damage
                .iter()
                .map(|index| index.index(shapes.len()))
                .filter(|number| !log.data[*number].is_empty())
                .collect();
            damaged.sort_unstable();
            damaged.dedup();
            damaged.iter().for_each(|number| log.turn(log.data[*number].start));
            for (at, len) in &reads {
                let range = at.index(end as usize) as u64;
                let range = range..(range + len).min(end);
                let is_good = !damaged
                    .iter()
                    .any(|number| has_seal(*number) && overlap(&log.data[*number], &range));
                let read = guard.check(&log.file, range.start, range.end - range.start);
                prop_assert_eq!(read.is_ok(), is_good, "{:?}: {:?}", range, read);
            }
            damaged.iter().for_each(|number| log.turn(log.data[*number].start));
            prop_assert!(guard.check(&log.file, 0, end).is_ok());
            prop_assert!(guard.seen_from.load(Ordering::Relaxed) <= FRONT);
            // A guard skips data that the scan has verified.
            let seen = seen.min(end);
            let before = log.file.bytes_read();
            log.guard(step, seen).check(&log.file, seen, end - seen).unwrap();
            prop_assert_eq!(log.file.bytes_read(), before);
        }
    }
}
