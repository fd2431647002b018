//! What a job of many ranks and variables costs, by parts:
//!
//! ```text
//! writer-scaling FILE VARIABLES BLOCKS FLUSHES shared|own [leave]
//! ```
//!
//! Each flush adds a record of so many variables, of which each rank writes so many blocks of [`WIDTH`] elements, between
//! those of the others. Ranks find selections again that they have written before (`shared`), or store each (`own`). Each
//! part ends with a call of `MPI_Pcontrol`, by its number, for `tests/c/counting.c`: 1 creation and definitions, 2 writes, 3
//! flush, 4 close. The first rank prints figures, a line each: seconds of the last flush and of the close, KiB that it and
//! the largest other rank grew by in the close, and bytes of the journal, of the data file before the close and behind it. With
//! `leave` the log is not closed.

use std::time::Instant;

use h5logfs_writer::{DatasetSpec, Fsync, Options, Selection, Writer};
use mpi::collective::SystemOperation;
use mpi::ffi;
use mpi::traits::*;

/// Elements of a block.
const WIDTH: u64 = 4;

fn main() {
    std::panic::set_hook(Box::new(|why| {
        eprintln!("{why}");
        std::process::exit(1);
    }));
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let leaves = arguments.pop_if(|last| last == "leave").is_some();
    let [path, variables, blocks, flushes, kind] = &arguments[..] else {
        panic!("writer-scaling FILE VARIABLES BLOCKS FLUSHES shared|own [leave]");
    };
    let number = |text: &String| -> u64 { text.parse().unwrap() };
    let (variables, blocks, flushes) = (number(variables), number(blocks), number(flushes));
    let universe = mpi::initialize().unwrap();
    let world = universe.world();
    let (rank, ranks) = (world.rank() as u64, world.size() as u64);
    let options = Options {
        share_selections: kind == "shared",
        fsync: Fsync::None,
        ..Options::default()
    };
    end_of_part(0);
    let mut file = Writer::create(path, &world, options).unwrap();
    let dims = [flushes, blocks * ranks * WIDTH];
    let datasets: Vec<_> = (0..variables)
        .map(|i| {
            let spec = DatasetSpec::new::<f64>(&dims);
            file.dataset(&format!("/variable{i}"), spec).unwrap()
        })
        .collect();
    end_of_part(1);
    let values = vec![1.0; (blocks * WIDTH) as usize];
    let mut flushed = 0.;
    for record in 0..flushes {
        for dataset in &datasets {
            let starts = (0..blocks).flat_map(|i| [record, (i * ranks + rank) * WIDTH]);
            let starts: Vec<u64> = starts.collect();
            let counts: Vec<u64> = [1, WIDTH].repeat(blocks as usize);
            let selection = Selection::Blocks {
                starts: &starts,
                counts: &counts,
            };
            file.write(*dataset, selection, &values).unwrap();
        }
        end_of_part(2);
        let begun = Instant::now();
        file.flush().unwrap();
        flushed = begun.elapsed().as_secs_f64();
        end_of_part(3);
    }
    world.barrier();
    if leaves {
        return;
    }
    let size_of = |path: &str| std::fs::metadata(path).map_or(0, |file| file.len());
    let journal = size_of(&format!("{path}.h5logfs-journal"));
    let before = size_of(path);
    let memory = peak();
    world.barrier();
    end_of_part(0);
    let begun = Instant::now();
    file.close().unwrap();
    let closed = begun.elapsed().as_secs_f64();
    end_of_part(4);
    let grew = peak() - memory;
    let others = if rank == 0 { 0 } else { grew };
    let mut largest = 0;
    world.all_reduce_into(&others, &mut largest, SystemOperation::max());
    if rank == 0 {
        println!("flush_seconds {flushed:.6}\nclose_seconds {closed:.6}");
        println!("first_grew {grew}\nothers_grew {largest}");
        println!(
            "journal {journal}\nbefore {before}\nafter {}",
            size_of(path)
        );
    }
}

fn end_of_part(number: i32) {
    // SAFETY: MPI runs. The call does what a library for profiles does with the number, or nothing.
    unsafe { ffi::MPI_Pcontrol(number) };
}

/// The most memory that this process has had, in KiB.
fn peak() -> i64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM"));
    let figure = line.and_then(|line| line.split_whitespace().nth(1));
    figure.unwrap().parse().unwrap()
}
