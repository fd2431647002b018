//! Ranks, as threads, write and read a log between barriers. A model keeps whole arrays.

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Barrier, Mutex};
use std::thread;

use proptest::prelude::*;

use super::*;
use crate::automatic::Cause;
use crate::files::Files;
use crate::lists::Lists;
use crate::log_writer::{LogWriter, Part};
use crate::options::Options;
use crate::ranks::{Communicator, LocalOutcome};
use crate::reading::{Readable, Reader};
use crate::selection::Selection;
use crate::stored::Form;
use h5logfs_hdf5_format::filters::{DEFLATE, Filter};

/// State shared by the ranks of a test.
struct Team {
    size: u32,
    barrier: Barrier,
    given: Mutex<Vec<Vec<u8>>>,
}

/// A rank of the team.
struct Member {
    team: Arc<Team>,
    rank: u32,
}

fn team(size: u32) -> Vec<Member> {
    let team = Arc::new(Team {
        size,
        barrier: Barrier::new(size as usize),
        given: Mutex::new(vec![Vec::new(); size as usize]),
    });
    let member = |rank| Member {
        team: Arc::clone(&team),
        rank,
    };
    (0..size).map(member).collect()
}

impl Member {
    /// Exchanges bytes between all ranks.
    fn exchange(&self, bytes: &[u8]) -> Vec<Vec<u8>> {
        let Team { barrier, given, .. } = &*self.team;
        given.lock().unwrap()[self.rank as usize] = bytes.to_vec();
        barrier.wait();
        let all = given.lock().unwrap().clone();
        barrier.wait();
        all
    }

    fn exchange_numbers(&self, values: &[u64]) -> Vec<Vec<u64>> {
        let bytes: Vec<u8> = values
            .iter()
            .flat_map(|value| value.to_le_bytes())
            .collect();
        let numbers = |bytes: Vec<u8>| {
            let words = bytes.as_chunks().0.iter();
            words.map(|word| u64::from_le_bytes(*word)).collect()
        };
        self.exchange(&bytes).into_iter().map(numbers).collect()
    }
}

impl Communicator for Member {
    fn rank(&self) -> u32 {
        self.rank
    }
    fn size(&self) -> u32 {
        self.team.size
    }
    fn split(&self, _: u32) -> Box<dyn Communicator> {
        Box::new(Member {
            team: Arc::clone(&self.team),
            rank: self.rank,
        })
    }
    fn sums_before(&self, values: &[u64]) -> Vec<u64> {
        let all = self.exchange_numbers(values);
        let lower = &all[..self.rank as usize];
        let sum = |at: usize| lower.iter().map(|given| given[at]).sum();
        (0..values.len()).map(sum).collect()
    }
    fn minima(&self, values: &[u64]) -> Vec<u64> {
        let all = self.exchange_numbers(values);
        let least = |at: usize| all.iter().map(|given| given[at]).min().unwrap();
        (0..values.len()).map(least).collect()
    }
    fn gather_bytes(&self, bytes: &[u8]) -> Vec<Vec<u8>> {
        let all = self.exchange(bytes);
        if self.rank == 0 { all } else { Vec::new() }
    }
    fn broadcast(&self, from: u32, value: &mut [u8]) {
        let all = self.exchange(value);
        value.copy_from_slice(&all[from as usize]);
    }
}

/// Shapes of the datasets: one of bytes without filters, one of two dimensions with deflated chunks.
const SIDES: [&[u64]; 2] = [&[60], &[8, 10]];

/// An action of one rank between two barriers.
#[derive(Debug, Clone)]
enum Step {
    /// Writes a box of a dataset. An even value writes it as a list of rows.
    Write {
        dataset: usize,
        start: u64,
        count: u64,
        value: u8,
    },
    Spill,
    Nothing,
}

/// An action of all ranks afterwards.
#[derive(Debug, Clone, Copy)]
enum After {
    Read,
    Flush,
    /// A flush that fails after all ranks have written their parts.
    FailedFlush,
}

struct Rank {
    writer: LogWriter,
    lists: Lists,
    reader: Reader,
    deflate: [Filter; 1],
}

impl Rank {
    fn new(member: Member, path: &Path, options: &Options) -> Self {
        let ranks = Ranks::new(member);
        let files = Files::create(path, &ranks, options).unwrap();
        let writer = LogWriter::with_reads(ranks, files, options.clone());
        assert!(writer.sees_all());
        Rank {
            writer,
            lists: Lists::default(),
            reader: Reader::default(),
            deflate: [Filter {
                id: DEFLATE,
                flags: 0,
                values: vec![1],
            }],
        }
    }

    /// The box of a step. Rows of the second dataset are whole.
    fn region(dataset: usize, start: u64, count: u64) -> (Vec<u64>, Vec<u64>) {
        let sides = SIDES[dataset];
        let start = start % sides[0];
        let count = 1 + count % (sides[0] - start);
        match dataset {
            0 => (vec![start], vec![count]),
            _ => (vec![start, 0], vec![count, sides[1]]),
        }
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Write {
                dataset,
                start,
                count,
                value,
            } => {
                let (start, count) = Self::region(dataset, start, count);
                let elements = vec![value; count.iter().product::<u64>() as usize];
                let filters = if dataset == 1 { &self.deflate[..] } else { &[] };
                let info = DatasetInfo::new(dataset as u32, SIDES[dataset], &[]);
                let form = Form {
                    element: 1,
                    chunk: (dataset == 1).then_some(&[3, 10][..]),
                    filters,
                };
                let (starts, counts) = rows(&start, &count);
                let selection = match value % 2 {
                    0 => Selection::Blocks {
                        starts: &starts,
                        counts: &counts,
                    },
                    _ => Selection::block(&start, &count),
                };
                let blocks = self.lists.set(&selection, SIDES[dataset]).unwrap();
                let pushed = self.writer.push(
                    info.with_filters(filters),
                    form,
                    blocks,
                    Cow::Owned(elements),
                );
                pushed.unwrap();
            }
            Step::Spill if self.writer.data_len() > 0 => self.writer.spill(&[]).unwrap(),
            Step::Spill | Step::Nothing => {}
        }
    }

    fn flush(&mut self, fails: bool) {
        let outcome = if fails && self.writer.ranks().is_root() {
            LocalOutcome::Failed("the test wants it".into())
        } else {
            LocalOutcome::Good
        };
        let part = Part {
            data: Some(&[]),
            outcome,
            cause: Cause::Asked,
            same: 0,
            numbers: Vec::new(),
        };
        let flushed = self.writer.flush(part, |_| Ok(Some(Vec::new())));
        assert_eq!(flushed.is_err(), fails);
    }

    fn read(&mut self) -> Vec<Vec<u8>> {
        let Rank {
            writer,
            reader,
            deflate,
            ..
        } = self;
        let mut read = |id: usize| {
            let dims = SIDES[id];
            let mut out = vec![0; dims.iter().product::<u64>() as usize];
            let readable = Readable {
                id: id as u32,
                dims,
                chunk: (id == 1).then_some(&[3, 10][..]),
                element: 1,
                fill: &[],
                filters: if id == 1 { &deflate[..] } else { &[] },
            };
            let start = vec![0; dims.len()];
            let written = writer.written();
            reader
                .read(&written, &readable, &start, dims, &mut out)
                .unwrap();
            out
        };
        (0..SIDES.len()).map(&mut read).collect()
    }
}

/// The rows of a box as blocks: their starts and counts.
fn rows(start: &[u64], count: &[u64]) -> (Vec<u64>, Vec<u64>) {
    let inner = |numbers: &[u64], first: u64| [&[first], &numbers[1..]].concat();
    let starts = (0..count[0]).flat_map(|row| inner(start, start[0] + row));
    let counts = (0..count[0]).flat_map(|_| inner(count, 1));
    (starts.collect(), counts.collect())
}

/// Steps of all ranks, and the action after them.
type Round = (Vec<Step>, After);

fn step() -> impl Strategy<Value = Step> {
    let write = (0usize..2, 0u64..60, 0u64..30, 1u8..255);
    let write = write.prop_map(|(dataset, start, count, value)| Step::Write {
        dataset,
        start,
        count,
        value,
    });
    prop_oneof![6 => write, 1 => Just(Step::Spill), 1 => Just(Step::Nothing)]
}

fn round(ranks: usize) -> impl Strategy<Value = Round> {
    let after = prop_oneof![
        6 => Just(After::Read),
        1 => Just(After::Flush),
        1 => Just(After::FailedFlush),
    ];
    (prop::collection::vec(step(), ranks), after)
}

/// Leaves at most one rank that writes an element between two flushes.
fn without_clashes(rounds: &mut [Round]) {
    let mut writers: Vec<Vec<Option<usize>>> = SIDES
        .iter()
        .map(|sides| vec![None; sides.iter().product::<u64>() as usize])
        .collect();
    for (steps, after) in rounds {
        for (rank, step) in steps.iter_mut().enumerate() {
            let Step::Write {
                dataset,
                start,
                count,
                ..
            } = *step
            else {
                continue;
            };
            let places = places(dataset, start, count);
            let writers = &mut writers[dataset][places];
            if writers.iter().flatten().any(|other| *other != rank) {
                *step = Step::Nothing;
            } else {
                writers.fill(Some(rank));
            }
        }
        if let After::Flush = after {
            writers.iter_mut().for_each(|writers| writers.fill(None));
        }
    }
}

fn places(dataset: usize, start: u64, count: u64) -> Range<usize> {
    let (start, count) = Rank::region(dataset, start, count);
    let row: u64 = SIDES[dataset][1..].iter().product();
    (start[0] * row) as usize..((start[0] + count[0]) * row) as usize
}

fn run(ranks: usize, rounds: &[Round], buffer_limit: u64) {
    let dir = tempfile::tempdir().unwrap();
    let path: PathBuf = dir.path().join("log.h5");
    let options = Options {
        buffer_limit,
        ..Options::default()
    };
    let mut model: Vec<Vec<u8>> = SIDES
        .iter()
        .map(|sides| vec![0; sides.iter().product::<u64>() as usize])
        .collect();
    let mut expected = Vec::new();
    for (steps, _) in rounds {
        for step in steps {
            if let Step::Write {
                dataset,
                start,
                count,
                value,
            } = *step
            {
                model[dataset][places(dataset, start, count)].fill(value);
            }
        }
        expected.push(model.clone());
    }
    let barrier = Barrier::new(ranks);
    thread::scope(|scope| {
        for (number, member) in team(ranks as u32).into_iter().enumerate() {
            let (path, options, expected, barrier) = (&path, &options, &expected, &barrier);
            scope.spawn(move || {
                let mut rank = Rank::new(member, path, options);
                for ((steps, after), expected) in rounds.iter().zip(expected) {
                    rank.step(&steps[number]);
                    match after {
                        After::Read => {}
                        After::Flush => rank.flush(false),
                        After::FailedFlush => rank.flush(true),
                    }
                    barrier.wait();
                    assert_eq!(&rank.read(), expected);
                    barrier.wait();
                }
            });
        }
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// After a barrier each rank reads the writes of all.
    #[test]
    fn ranks_see_what_others_have_written(
        mut rounds in prop::collection::vec(round(3), 1..20),
        limit in prop_oneof![Just(1u64 << 20), Just(400)],
    ) {
        without_clashes(&mut rounds);
        run(3, &rounds, limit);
    }
}

/// A rank reads while another one writes, and empties its buffer many times. Earlier writes remain visible.
#[test]
fn a_buffer_that_is_emptied_is_no_loss() {
    let dir = tempfile::tempdir().unwrap();
    let path: PathBuf = dir.path().join("log.h5");
    let options = Options {
        buffer_limit: 500,
        ..Options::default()
    };
    let write = |start, count, value| Step::Write {
        dataset: 0,
        start,
        count,
        value,
    };
    let barrier = Barrier::new(2);
    thread::scope(|scope| {
        let mut members = team(2).into_iter();
        let (first, second) = (members.next().unwrap(), members.next().unwrap());
        let (path, options, barrier) = (&path, &options, &barrier);
        let writer = scope.spawn(move || {
            let mut rank = Rank::new(first, path, options);
            rank.step(&write(0, 29, 7));
            barrier.wait();
            for value in 1..=200 {
                rank.step(&write(30 + u64::from(value % 3), 9, value));
            }
            // Ranks close a log together, so the buffer exists as long as another rank reads.
            rank
        });
        let mut rank = Rank::new(second, path, options);
        barrier.wait();
        loop {
            let is_last = writer.is_finished();
            let elements = rank.read().swap_remove(0);
            assert_eq!(elements[..30], [7; 30]);
            if is_last {
                break;
            }
        }
        writer.join().unwrap();
    });
}

/// Ranks that cannot see each other's processes do not share memory.
#[test]
fn a_place_that_leads_elsewhere_is_refused() {
    let shared = Shared::new(0).unwrap();
    let place = Place::of(&shared.file).unwrap();
    assert_eq!(Place::from_words(place.to_words()), place);
    assert!(place.open().is_ok());
    let other = Place {
        inode: place.inode + 1,
        ..place.clone()
    };
    assert!(other.open().is_err());
    drop(shared);
    assert!(place.open().is_err());
}
