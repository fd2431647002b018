//! Random programs, compared with a model that keeps whole arrays.

use std::borrow::Cow;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use h5logfs_hdf5_format::filters::{DEFLATE, FLETCHER32, Filter, SHUFFLE};
use h5logfs_log::front::unclosed_front;
use h5logfs_log::journal::Recorded;
use h5logfs_log::logvol::extent::{ExtentHeader, crc32};
use h5logfs_log::logvol::names::subfile;
use proptest::prelude::*;

use super::*;
use crate::automatic::Cause;
use crate::base::Base;
use crate::entries::DatasetInfo;
use crate::joining::JoinedSection;
use crate::options::{Fsync, Options, Subfiles};
use crate::ranks::{Communicator, Node, Ranks};
use crate::selection::{Blocks, Selection};
use crate::stored::{Form, records};

/// Number of ranks of the job. The first one reads.
const RANKS: u32 = 3;

/// The first of several ranks. The test does the work of the others.
struct FirstRank {
    /// End of the data that the others have spilled into the data file.
    others_end: Arc<AtomicU64>,
    nodes: u32,
}

impl Communicator for FirstRank {
    fn rank(&self) -> u32 {
        0
    }
    fn size(&self) -> u32 {
        RANKS
    }
    fn split(&self, _: u32) -> Box<dyn Communicator> {
        Box::new(FirstRank {
            others_end: Arc::clone(&self.others_end),
            nodes: self.nodes,
        })
    }
    fn node(&self) -> Node {
        Node {
            number: 0,
            of: self.nodes,
        }
    }
    fn sums_before(&self, values: &[u64]) -> Vec<u64> {
        vec![0; values.len()]
    }
    fn minima(&self, values: &[u64]) -> Vec<u64> {
        // The reduction finds the largest value as the smallest complement.
        let end = !self.others_end.load(Ordering::Relaxed);
        values.iter().map(|value| end.min(*value)).collect()
    }
    fn gather_bytes(&self, bytes: &[u8]) -> Vec<Vec<u8>> {
        vec![bytes.to_vec()]
    }
    fn broadcast(&self, _: u32, _: &mut [u8]) {}
}

/// Pseudo-random numbers from a seed.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }

    fn is(&mut self) -> bool {
        self.below(2) == 1
    }
}

#[derive(Debug)]
struct Dataset {
    /// Larger than any extent.
    most: Vec<u64>,
    dims: Vec<u64>,
    records: bool,
    chunk: Option<Vec<u64>>,
    element: usize,
    fill: Vec<u8>,
    filters: Vec<Filter>,
}

impl Dataset {
    fn new(seed: u64) -> Self {
        let random = &mut Random(seed);
        let rank = random.below(5) as usize;
        let side = [1, 40, 12, 7, 5][rank];
        let most: Vec<u64> = (0..rank).map(|_| 1 + random.below(side)).collect();
        let element = [1, 2, 4, 8][random.below(4) as usize];
        let filter = |id, values| Filter {
            id,
            flags: 0,
            values,
        };
        let mut filters = Vec::new();
        if rank > 0 && random.is() {
            if random.is() {
                filters.push(filter(SHUFFLE, vec![element as u32]));
            }
            filters.push(filter(DEFLATE, vec![1]));
            if random.is() {
                filters.push(filter(FLETCHER32, vec![]));
            }
        }
        let is_chunked = rank > 0 && (random.is() || !filters.is_empty());
        let chunk = is_chunked.then(|| most.iter().map(|m| 1 + random.below(*m)).collect());
        Dataset {
            dims: most.clone(),
            records: rank > 0 && random.is(),
            chunk,
            element,
            fill: if random.is() {
                vec![7; element]
            } else {
                Vec::new()
            },
            filters,
            most,
        }
    }

    fn info(&self, id: u32) -> DatasetInfo<'_> {
        DatasetInfo {
            id,
            dims: &self.dims,
            records: self.records,
            filtered: !self.filters.is_empty(),
        }
    }

    fn readable(&self, id: u32) -> Readable<'_> {
        Readable {
            id,
            dims: &self.dims,
            chunk: self.chunk.as_deref(),
            element: self.element as u64,
            fill: &self.fill,
            filters: &self.filters,
        }
    }

    /// Indices, in the model, of the elements of a box in order.
    fn places(&self, start: &[u64], count: &[u64]) -> Vec<usize> {
        let mut places = vec![0];
        for d in 0..self.most.len() {
            let along = start[d]..start[d] + count[d];
            let further = |at: &usize| {
                let at = *at as u64 * self.most[d];
                along.clone().map(move |i| (at + i) as usize)
            };
            places = places.iter().flat_map(further).collect();
        }
        places
    }

    /// A random box within the extent; `None` if the extent is empty.
    fn some_box(&self, random: &mut Random) -> Option<(Vec<u64>, Vec<u64>)> {
        if self.dims.contains(&0) {
            return None;
        }
        let start: Vec<u64> = self.dims.iter().map(|dim| random.below(*dim)).collect();
        let count = start
            .iter()
            .zip(&self.dims)
            .map(|(s, dim)| 1 + random.below(dim - s));
        let count = count.collect();
        Some((start, count))
    }
}

/// The effect of one write on the model: places and values of its elements. A later element replaces an earlier one at
/// its place.
#[derive(Clone)]
struct Change {
    dataset: usize,
    elements: Vec<(usize, u8)>,
}

/// The elements of all datasets. One value stands for all bytes of an element.
type Arrays = Vec<Vec<Option<u8>>>;

fn apply(arrays: &mut Arrays, changes: &[Change]) {
    for Change { dataset, elements } in changes {
        for (place, value) in elements {
            arrays[*dataset][*place] = Some(*value);
        }
    }
}

/// A rank.
struct Process {
    section: JoinedSection,
    data: Vec<u8>,
    pending: Vec<Change>,
    file: usize,
}

fn ranks(others_end: &Arc<AtomicU64>, nodes: u32) -> Ranks {
    Ranks::new(FirstRank {
        others_end: Arc::clone(others_end),
        nodes,
    })
}

/// A program of several ranks, and the expected content of its log.
struct Program {
    path: PathBuf,
    options: Options,
    datasets: Vec<Dataset>,
    files: Option<Files>,
    /// End of the others' spilled data in the first rank's data file.
    others_end: Arc<AtomicU64>,
    nodes: u32,
    reader: Reader,
    processes: Vec<Process>,
    /// Committed values, by data file.
    committed: Vec<Arrays>,
    /// Spilled changes, in the order of each data file.
    spilled: Vec<Vec<(usize, Vec<Change>)>>,
}

impl Program {
    fn new(path: PathBuf, datasets: Vec<Dataset>, options: Options, nodes: u32) -> Self {
        let others_end = Arc::new(AtomicU64::new(0));
        let ranks = ranks(&others_end, nodes);
        let files = Files::create(&path, &ranks, &options).unwrap();
        let data_files = files.ends().len();
        if data_files == 2 {
            std::fs::write(subfile(&path, 1), unclosed_front(files.id())).unwrap();
        }
        let arrays: Arrays = datasets
            .iter()
            .map(|dataset| vec![None; dataset.most.iter().product::<u64>() as usize])
            .collect();
        let mut program = Program {
            path,
            options,
            datasets,
            files: Some(files),
            others_end,
            nodes,
            reader: Reader::default(),
            processes: Vec::new(),
            committed: vec![arrays; data_files],
            spilled: vec![Vec::new(); data_files],
        };
        program.begin();
        program
    }

    /// Sets up the state of the ranks after the log is opened.
    fn begin(&mut self) {
        self.files.as_mut().unwrap().share_spills();
        let data_files = self.committed.len();
        let section = || {
            let Options {
                share_selections,
                encode_selections,
                deflate_selections,
                ..
            } = self.options;
            let mut section = JoinedSection::new(share_selections, encode_selections);
            if deflate_selections {
                section.deflate_regular();
            }
            section
        };
        let process = |rank| Process {
            section: section(),
            data: Vec::new(),
            pending: Vec::new(),
            file: rank * data_files / RANKS as usize,
        };
        self.processes = (0..RANKS as usize).map(process).collect();
        self.spilled.iter_mut().for_each(Vec::clear);
        self.others_end.store(0, Ordering::Relaxed);
        self.reader = Reader::default();
    }

    /// Writes some blocks to a random dataset.
    fn write(&mut self, rank: usize, random: &mut Random) {
        let id = random.below(self.datasets.len() as u64) as usize;
        let dataset = &self.datasets[id];
        let mut blocks = Blocks::default();
        let (mut starts, mut counts) = (Vec::new(), Vec::new());
        for _ in 0..1 + random.below(2) * random.below(4) {
            let Some((start, count)) = dataset.some_box(random) else {
                return;
            };
            starts.extend(start);
            counts.extend(count);
        }
        let selection = if dataset.dims.is_empty() {
            Selection::All
        } else {
            Selection::Blocks {
                starts: &starts,
                counts: &counts,
            }
        };
        blocks.set(&selection, &dataset.dims).unwrap();
        let value = random.below(250) as u8;
        let most = if random.is() { 5 } else { 1 };
        let before = (random.below(8) == 0).then(|| self.place(rank));
        self.put(rank, id, &blocks, || value + random.below(most) as u8);
        if let Some(before) = before {
            self.take_back(rank, before);
        }
    }

    /// Writes small boxes, each next to the previous one, over it, or away from it.
    fn write_series(&mut self, rank: usize, random: &mut Random) {
        let id = random.below(self.datasets.len() as u64) as usize;
        let dims = self.datasets[id].dims.clone();
        if dims.is_empty() || dims.contains(&0) {
            return;
        }
        let first: Vec<u64> = dims.iter().map(|dim| random.below(*dim)).collect();
        let (mut start, mut value) = (first.clone(), 0);
        let mut count = vec![1; dims.len()];
        let along = random.below(dims.len() as u64) as usize;
        let gap = [0, 0, 1, u64::MAX][random.below(4) as usize];
        let is_down = random.below(4) == 0;
        for _ in 0..2 + random.below(20) {
            for (d, count) in count.iter_mut().enumerate() {
                *count = (*count).min(dims[d] - start[d]);
            }
            value = (value + 1) % 250;
            self.put(rank, id, &Blocks::one(&start, &count), || value);
            let step = count[along].wrapping_add(gap);
            let next = if is_down {
                start[along].checked_sub(step)
            } else {
                Some(start[along] + step)
            };
            match next.filter(|next| *next < dims[along]) {
                Some(next) => start[along] = next,
                None => {
                    let other = random.below(dims.len() as u64) as usize;
                    start[along] = first[along];
                    start[other] = (start[other] + count[other]) % dims[other];
                }
            }
            if random.below(5) == 0 {
                let d = random.below(dims.len() as u64) as usize;
                count[d] = 1 + random.below(dims[d]);
            }
        }
    }

    /// Writes blocks of a dataset.
    fn put(&mut self, rank: usize, id: usize, blocks: &Blocks, mut value: impl FnMut() -> u8) {
        let dataset = &self.datasets[id];
        let mut elements = Vec::new();
        for block in 0..blocks.number {
            let places = dataset.places(blocks.start(block), blocks.count(block));
            elements.extend(places.into_iter().map(|place| (place, value())));
        }
        let bytes: Vec<u8> = elements
            .iter()
            .flat_map(|(_, value)| vec![*value; dataset.element])
            .collect();
        let form = Form {
            element: dataset.element as u64,
            chunk: dataset.chunk.as_deref(),
            filters: &dataset.filters,
        };
        let Process {
            section,
            data,
            pending,
            ..
        } = &mut self.processes[rank];
        records(form, 1, blocks, Cow::Owned(bytes), &mut |blocks, stored| {
            let offset = data.len() as u64;
            section.push(dataset.info(id as u32), blocks, offset, stored.len() as u64);
            data.extend_from_slice(&stored);
        });
        pending.push(Change {
            dataset: id,
            elements,
        });
    }

    /// Bytes of entries and data so far.
    fn place(&mut self, rank: usize) -> (usize, usize) {
        let Process { section, data, .. } = &mut self.processes[rank];
        (section.section().len(), data.len())
    }

    /// Drops the last write, as after an error.
    fn take_back(&mut self, rank: usize, (entries, data): (usize, usize)) {
        let process = &mut self.processes[rank];
        process.section.section().truncate(entries);
        process.data.truncate(data);
        process.pending.pop();
    }

    fn resize(&mut self, random: &mut Random) {
        let id = random.below(self.datasets.len() as u64) as usize;
        let Dataset { dims, most, .. } = &mut self.datasets[id];
        for (dim, most) in dims.iter_mut().zip(most) {
            *dim = random.below(*most + 1);
        }
    }

    fn spill(&mut self, rank: usize) {
        let files = self.files.as_mut().unwrap();
        let process = &mut self.processes[rank];
        if process.section.section().pending().is_empty() {
            return;
        }
        if rank == 0 {
            let data = [&process.data[..]];
            files.spill(0, process.section.section(), &data).unwrap();
        } else if self.nodes > 1 {
            // Each rank has its own file, which no other rank sees.
            return;
        } else {
            let end = data_file(&self.path, process.file, files)
                .metadata()
                .unwrap()
                .len();
            let end = write_extent(&self.path, files, rank, process, end);
            if process.file == 0 {
                self.others_end.store(end, Ordering::Relaxed);
            }
            process.section.section().set_flushed();
        }
        process.data.clear();
        let changes = std::mem::take(&mut process.pending);
        self.spilled[process.file].push((rank, changes));
    }

    fn flush(&mut self) {
        let files = self.files.as_mut().unwrap();
        let first = &mut self.processes[0];
        let data = [&first.data[..]];
        let written = files.write_extent(0, first.section.section(), Some(&data), Fsync::None);
        written.written.unwrap();
        let mut ends = files.ends_with(written.end);
        if let Some(end) = ends.get_mut(1) {
            *end = data_file(&self.path, 1, files).metadata().unwrap().len();
        }
        for (rank, process) in self.processes.iter_mut().enumerate().skip(1) {
            if !process.section.section().pending().is_empty() {
                let end = &mut ends[process.file];
                *end = write_extent(&self.path, files, rank, process, *end);
            }
        }
        let cause = Cause::Asked;
        files.commit(&ends, Vec::new(), cause, Fsync::None).unwrap();
        files.set_committed(ends, cause);
        self.others_end.store(0, Ordering::Relaxed);
        for (file, spilled) in self.spilled.iter_mut().enumerate() {
            for (_, changes) in spilled.drain(..) {
                apply(&mut self.committed[file], &changes);
            }
        }
        for process in &mut self.processes {
            process.section.section().set_flushed();
            process.data.clear();
            let changes = std::mem::take(&mut process.pending);
            apply(&mut self.committed[process.file], &changes);
        }
    }

    /// The job is killed, and another one goes on.
    fn append(&mut self) {
        drop(self.files.take());
        let ranks = ranks(&self.others_end, self.nodes);
        self.others_end.store(0, Ordering::Relaxed);
        let base = |recorded: Option<&Recorded>| Base::of_journal(recorded.unwrap(), Vec::new());
        let files = Files::append(&self.path, &ranks, &self.options, base).unwrap();
        self.files = Some(files);
        self.begin();
    }

    /// The values of a dataset that the first rank must see.
    fn visible(&self, dataset: usize) -> Vec<Option<u8>> {
        let mut seen: Vec<Option<u8>> = vec![None; self.committed[0][dataset].len()];
        let mut pending = Vec::new();
        for (committed, spilled) in self.committed.iter().zip(&self.spilled) {
            let mut arrays = committed.clone();
            for (_, changes) in spilled.iter().filter(|(rank, _)| *rank == 0) {
                if self.nodes > 1 {
                    pending.extend_from_slice(changes);
                } else {
                    apply(&mut arrays, changes);
                }
            }
            for (seen, value) in seen.iter_mut().zip(&arrays[dataset]) {
                *seen = value.or(*seen);
            }
        }
        let mut arrays = vec![Vec::new(); self.datasets.len()];
        arrays[dataset] = seen;
        pending.extend_from_slice(&self.processes[0].pending);
        pending.retain(|change| change.dataset == dataset);
        apply(&mut arrays, &pending);
        arrays.swap_remove(dataset)
    }

    fn read_some(&mut self, random: &mut Random) -> Result<(), TestCaseError> {
        let id = random.below(self.datasets.len() as u64) as usize;
        match self.datasets[id].some_box(random) {
            Some((start, count)) => self.read(id, &start, &count),
            None => Ok(()),
        }
    }

    /// Reads a box, and compares it with the model.
    fn read(&mut self, id: usize, start: &[u64], count: &[u64]) -> Result<(), TestCaseError> {
        let seen = self.visible(id);
        let dataset = &self.datasets[id];
        let fill = dataset.fill.first().copied().unwrap_or(0);
        let places = dataset.places(start, count);
        let wanted: Vec<u8> = places
            .iter()
            .flat_map(|place| vec![seen[*place].unwrap_or(fill); dataset.element])
            .collect();
        let mut out = vec![0xee; wanted.len()];
        let Process { section, data, .. } = &mut self.processes[0];
        let written = Written {
            neighbours: None,
            files: self.files.as_ref().unwrap(),
            section: section.section(),
            data,
        };
        let read = self.reader.read(
            &written,
            &dataset.readable(id as u32),
            start,
            count,
            &mut out,
        );
        prop_assert_eq!(read, Ok(()));
        prop_assert_eq!(out, wanted, "{:?} from {:?}, {:?}", dataset, start, count);
        Ok(())
    }

    fn step(&mut self, kind: u8, seed: u64) -> Result<(), TestCaseError> {
        let random = &mut Random(seed);
        let rank = random.below(u64::from(RANKS)) as usize;
        match kind {
            0..4 => self.write(0, random),
            4..9 => self.write(rank, random),
            9..11 => self.write_series(rank, random),
            11..15 => self.spill(rank),
            15..17 => self.flush(),
            17 => self.resize(random),
            18 => self.processes[0].section.section().forget_flushed(),
            19 => self.append(),
            // This leaves the state after a failed spill.
            20 => self.processes[0]
                .section
                .section()
                .set_base(random.below(1 << 40)),
            _ => self.read_some(random)?,
        }
        Ok(())
    }
}

fn data_file(path: &Path, number: usize, files: &Files) -> File {
    let path = match files.header().subfiles {
        0 => path.to_owned(),
        _ => subfile(path, number as u32),
    };
    OpenOptions::new().write(true).open(path).unwrap()
}

/// Writes the pending entries of another rank at byte `at` of its data file. Returns the end of the extent.
fn write_extent(path: &Path, files: &Files, rank: usize, process: &mut Process, at: u64) -> u64 {
    let Process {
        section,
        data,
        file,
        ..
    } = process;
    let section = section.section();
    let entries = section.pending().len() as u64;
    section.set_base(at + ExtentHeader::SIZE + entries);
    let header = ExtentHeader {
        rank: rank as u32,
        flush: files.flushes() + 1,
        entries,
        data: data.len() as u64,
        entries_crc: crc32(section.pending()),
        seal: None,
        proof: None,
    };
    let extent = [&header.to_bytes()[..], section.pending(), data].concat();
    let file = data_file(path, *file, files);
    file.write_all_at(&extent, at).unwrap();
    at + extent.len() as u64
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn a_rank_reads_what_was_flushed_and_what_it_wrote(
        seed in any::<u64>(),
        datasets in prop::collection::vec(any::<u64>(), 1..4),
        steps in prop::collection::vec((0u8..30, any::<u64>()), 1..80),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let datasets = datasets.into_iter().map(Dataset::new).collect();
        let random = &mut Random(seed);
        let options = Options {
            subfiles: if random.is() { Subfiles::Number(2) } else { Subfiles::None },
            share_selections: random.is(),
            encode_selections: random.is(),
            deflate_selections: random.is(),
            ..Options::default()
        };
        let nodes = 1 + random.below(2) as u32;
        let mut program = Program::new(dir.path().join("a.h5"), datasets, options, nodes);
        for (kind, seed) in steps {
            program.step(kind, seed)?;
        }
    }
}

#[test]
fn readers_go_from_thread_to_thread() {
    fn is_send<T: Send>() {}
    is_send::<Reader>();
}

/// A program with one dataset of 64 bytes.
fn small(dir: &Path, filters: Vec<Filter>) -> Program {
    let dataset = Dataset {
        most: vec![64],
        dims: vec![64],
        records: false,
        chunk: Some(vec![64]),
        element: 1,
        fill: Vec::new(),
        filters,
    };
    Program::new(dir.join("a.h5"), vec![dataset], Options::default(), 1)
}

#[test]
fn later_spills_of_one_flush_apply_later() {
    let dir = tempfile::tempdir().unwrap();
    let mut program = small(dir.path(), Vec::new());
    for (rank, value) in [(1, 1), (0, 2), (2, 3)] {
        program.put(rank, 0, &Blocks::one(&[0], &[64]), || value);
        program.spill(rank);
        // Before the flush, only the spill of rank 0 is visible.
        program.read(0, &[0], &[64]).unwrap();
    }
    program.put(1, 0, &Blocks::one(&[0], &[32]), || 4);
    program.flush();
    program.read(0, &[0], &[64]).unwrap();
    // No entry was read twice.
    assert_eq!(program.reader.flushed.table.entries_of(0), 4);
    program.put(1, 0, &Blocks::one(&[0], &[64]), || 5);
    program.spill(1);
    for start in [8, 24, 40] {
        program.put(0, 0, &Blocks::one(&[start], &[8]), || 6);
    }
    program.spill(0);
    program.read(0, &[0], &[64]).unwrap();
    program.flush();
    program.read(0, &[0], &[64]).unwrap();
}

/// Two records of equal length use the same place of the buffer, one after the other.
#[test]
fn decoded_records_are_those_of_the_buffer() {
    let deflate = Filter {
        id: DEFLATE,
        flags: 0,
        values: vec![1],
    };
    let dir = tempfile::tempdir().unwrap();
    let mut program = small(dir.path(), vec![deflate]);
    for value in 0..4 {
        let before = program.place(0);
        program.put(0, 0, &Blocks::one(&[0], &[64]), || value);
        program.read(0, &[0], &[64]).unwrap();
        match value {
            0 => program.spill(0),
            1 => program.flush(),
            _ => program.take_back(0, before),
        }
        program.read(0, &[0], &[64]).unwrap();
    }
}

/// A box may have more elements than are assembled at once.
#[test]
fn large_boxes_are_read() {
    let deflate = Filter {
        id: DEFLATE,
        flags: 0,
        values: vec![1],
    };
    let dims = [2100, 1500];
    let value = |at: &[u64]| (at[0] * 31 + at[1] * 7) as u8;
    for (chunk, filters) in [
        (None, vec![]),
        (Some(&[64, 100][..]), vec![deflate.clone()]),
        (Some(&dims[..]), vec![deflate]),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let options = Options::default();
        let files = Files::create(&dir.path().join("a.h5"), &Ranks::one(), &options).unwrap();
        let mut section = Section::new(true, true);
        let mut data = Vec::new();
        let form = Form {
            element: 1,
            chunk,
            filters: &filters,
        };
        let info = DatasetInfo::new(0, &dims, &[Some(2100), Some(1500)]);
        let listed = |start: &[u64], count: &[u64]| -> Vec<u8> {
            let rows = start[0]..start[0] + count[0];
            let row = |i| (start[1]..start[1] + count[1]).map(move |j| value(&[i, j]));
            rows.flat_map(row).collect()
        };
        for columns in 0..3 {
            let (start, count) = ([0, columns * 500], [2100, 500]);
            let bytes = Cow::Owned(listed(&start, &count));
            records(
                form,
                1,
                &Blocks::one(&start, &count),
                bytes,
                &mut |blocks, stored| {
                    section.push(info, blocks, data.len() as u64, stored.len() as u64);
                    data.extend_from_slice(&stored);
                },
            );
        }
        let written = Written {
            neighbours: None,
            files: &files,
            section: &section,
            data: &data,
        };
        let readable = Readable {
            id: 0,
            dims: &dims,
            chunk,
            element: 1,
            fill: &[],
            filters: &filters,
        };
        let mut reader = Reader::default();
        for (start, count) in [
            ([0, 0], dims),
            ([3, 77], [2000, 1401]),
            ([2099, 0], [1, 1500]),
        ] {
            let mut out = vec![0; (count[0] * count[1]) as usize];
            reader
                .read(&written, &readable, &start, &count, &mut out)
                .unwrap();
            assert!(
                out == listed(&start, &count),
                "{start:?} {count:?} {filters:?}"
            );
        }
        let mut out = vec![0; 1501];
        let outside = reader.read(&written, &readable, &[0, 0], &[1, 1501], &mut out);
        let reason = outside.unwrap_err().to_string();
        assert!(reason.contains("a.h5") && reason.contains("out of the extent"));
    }
}
