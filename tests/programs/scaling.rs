//! The cost of a job of many ranks and variables, by parts:
//!
//! ```text
//! writer-scaling FILE VARIABLES BLOCKS FLUSHES shared|own [leave] [again] [subfiles=N] [appends=A]
//! ```
//!
//! Each flush adds a record of VARIABLES variables. Each rank writes BLOCKS blocks of [`WIDTH`] elements of each,
//! between those of the others. Ranks reuse earlier selections (`shared`), or store each (`own`). Each rank also
//! appends a row to each of A datasets. With `again` the closed log is reopened, and gets as many more records.
//!
//! Each part ends with a call of `MPI_Pcontrol`, with its number, for `tests/c/counting.c`: 1 creation and
//! definitions, 2 writes, 3 flush, 4 close, 5 reopening, 6 second close. The first rank prints figures, one per line:
//! seconds of the last flush and of the close; KiB by which it and the largest other rank grew in the close; bytes of
//! the journal, and of the data file before and after the close; seconds and KiB of the second close. With `leave`
//! the log is not closed the first time.

use std::time::Instant;

use h5logfs_writer::{Dataset, DatasetSpec, Fsync, Options, Selection, Subfiles, Writer};
use mpi::collective::SystemOperation;
use mpi::ffi;
use mpi::traits::*;

/// Elements of a block.
const WIDTH: u64 = 4;

/// The task of the program.
struct Task {
    path: String,
    variables: u64,
    blocks: u64,
    flushes: u64,
    appends: u64,
    again: bool,
    options: Options,
}

impl Task {
    fn of_arguments() -> (Self, bool) {
        let arguments: Vec<String> = std::env::args().skip(1).collect();
        let [path, variables, blocks, flushes, kind, further @ ..] = &arguments[..] else {
            panic!("writer-scaling FILE VARIABLES BLOCKS FLUSHES shared|own …");
        };
        let number = |text: &str| -> u64 { text.parse().unwrap() };
        let of = |name: &str| {
            let found = further.iter().find_map(|word| word.strip_prefix(name));
            found.map_or(0, number)
        };
        let has = |name: &str| further.iter().any(|word| word == name);
        let task = Task {
            path: path.clone(),
            variables: number(variables),
            blocks: number(blocks),
            flushes: number(flushes),
            appends: of("appends="),
            again: has("again"),
            options: Options {
                share_selections: kind == "shared",
                fsync: Fsync::None,
                subfiles: match of("subfiles=") {
                    0 => Subfiles::None,
                    number => Subfiles::Number(number as u32),
                },
                ..Options::default()
            },
        };
        (task, has("leave"))
    }

    fn define(&self, file: &mut Writer, ranks: u64) {
        let sessions = 1 + u64::from(self.again);
        let dims = [sessions * self.flushes, self.blocks * ranks * WIDTH];
        for name in self.names() {
            file.dataset(&name, DatasetSpec::new::<f64>(&dims)).unwrap();
        }
        for name in self.appended() {
            let spec = DatasetSpec::new::<f64>(&[0]).unlimited(0);
            file.dataset(&name, spec).unwrap();
        }
    }

    fn names(&self) -> impl Iterator<Item = String> {
        (0..self.variables).map(|i| format!("/variable{i}"))
    }

    fn appended(&self) -> impl Iterator<Item = String> {
        (0..self.appends).map(|i| format!("/rows{i}"))
    }

    /// Writes records from `first` on. Returns the seconds of the last flush.
    fn write(&self, file: &mut Writer, first: u64, world: &impl Communicator) -> f64 {
        let (rank, ranks) = (world.rank() as u64, world.size() as u64);
        let mut open = |name: String| file.open_dataset::<f64>(&name).unwrap();
        let datasets: Vec<Dataset> = self.names().map(&mut open).collect();
        let appended: Vec<Dataset> = self.appended().map(&mut open).collect();
        let values = vec![1.0; (self.blocks * WIDTH) as usize];
        let mut flushed = 0.;
        for record in first..first + self.flushes {
            for dataset in &datasets {
                let starts = (0..self.blocks).flat_map(|i| [record, (i * ranks + rank) * WIDTH]);
                let starts: Vec<u64> = starts.collect();
                let counts: Vec<u64> = [1, WIDTH].repeat(self.blocks as usize);
                let selection = Selection::Blocks {
                    starts: &starts,
                    counts: &counts,
                };
                file.write(*dataset, selection, &values).unwrap();
            }
            for dataset in &appended {
                file.append(*dataset, &[1.0]).unwrap();
            }
            end_of_part(2);
            let begun = Instant::now();
            file.flush().unwrap();
            flushed = begun.elapsed().as_secs_f64();
            end_of_part(3);
        }
        world.barrier();
        flushed
    }
}

fn main() {
    std::panic::set_hook(Box::new(|why| {
        eprintln!("{why}");
        std::process::exit(1);
    }));
    let (task, leaves) = Task::of_arguments();
    let universe = mpi::initialize().unwrap();
    let world = universe.world();
    end_of_part(0);
    let mut file = Writer::create(&task.path, &world, task.options.clone()).unwrap();
    task.define(&mut file, world.size() as u64);
    end_of_part(1);
    let flushed = task.write(&mut file, 0, &world);
    let size_of = |path: &str| std::fs::metadata(path).map_or(0, |file| file.len());
    if leaves {
        drop(file);
    } else {
        let journal = size_of(&format!("{}.h5logfs-journal", task.path));
        let before = size_of(&task.path);
        let closed = Closed::by(&mut file, 4, &world);
        if world.rank() == 0 {
            println!("flush_seconds {flushed:.6}");
            closed.print("");
            let after = size_of(&task.path);
            println!("journal {journal}\nbefore {before}\nafter {after}");
        }
    }
    if task.again {
        world.barrier();
        end_of_part(0);
        let options = Options {
            subfiles: Subfiles::None,
            ..task.options.clone()
        };
        let mut file = Writer::open(&task.path, &world, options).unwrap();
        end_of_part(5);
        task.write(&mut file, task.flushes, &world);
        let closed = Closed::by(&mut file, 6, &world);
        if world.rank() == 0 {
            closed.print("again_");
        }
    }
}

/// The cost of a close.
struct Closed {
    seconds: f64,
    /// KiB by which the first rank and the largest other one grew.
    first: i64,
    others: i64,
}

impl Closed {
    fn by(file: &mut Writer, part: i32, world: &impl Communicator) -> Self {
        let memory = peak();
        world.barrier();
        end_of_part(0);
        let begun = Instant::now();
        file.close().unwrap();
        let seconds = begun.elapsed().as_secs_f64();
        end_of_part(part);
        let grew = peak() - memory;
        let other = if world.rank() == 0 { 0 } else { grew };
        let mut others = 0;
        world.all_reduce_into(&other, &mut others, SystemOperation::max());
        Closed {
            seconds,
            first: grew,
            others,
        }
    }

    fn print(&self, what: &str) {
        println!("{what}close_seconds {:.6}", self.seconds);
        println!(
            "{what}first_grew {}\n{what}others_grew {}",
            self.first, self.others
        );
    }
}

fn end_of_part(number: i32) {
    // SAFETY: MPI runs. A profiling library uses the number; otherwise nothing happens.
    unsafe { ffi::MPI_Pcontrol(number) };
}

/// Peak memory of this process in KiB.
fn peak() -> i64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM"));
    let figure = line.and_then(|line| line.split_whitespace().nth(1));
    figure.unwrap().parse().unwrap()
}
