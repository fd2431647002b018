//! Very many small writes, with a flush whenever the buffer is full, and the growth of a rank's memory:
//!
//! ```text
//! writer-small FILE WRITES MIB series|turns|records|scattered
//! ```
//!
//! Each rank writes blocks of one element of eight bytes. `series`: every second element of its own row. `turns`:
//! elements of one row, in turns with the other ranks. `records`: the same 16 elements of each record. `scattered`:
//! elements of a cube in no order. MIB is the limit of the buffer. The ranks print the KiB by which they grew until
//! everything was flushed, and until the close.

use h5logfs_writer::{DatasetSpec, Error, Options, Selection, Writer};
use mpi::traits::*;

fn main() {
    std::panic::set_hook(Box::new(|why| {
        eprintln!("{why}");
        std::process::exit(1);
    }));
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [path, writes, limit, kind] = &arguments[..] else {
        panic!("writer-small FILE WRITES MIB series|turns|records|scattered");
    };
    let (writes, limit): (u64, u64) = (writes.parse().unwrap(), limit.parse().unwrap());
    let universe = mpi::initialize().unwrap();
    let world = universe.world();
    let (rank, ranks) = (world.rank() as u64, world.size() as u64);
    let options = Options {
        buffer_limit: limit << 20,
        ..Options::default()
    };
    let mut file = Writer::create(path, &world, options).unwrap();
    let side = (writes as f64).cbrt().ceil() as u64;
    let dims = match &kind[..] {
        "series" => vec![ranks, 2 * writes],
        "turns" => vec![ranks * writes],
        "records" => vec![writes.div_ceil(16), 32 * ranks],
        _ => vec![ranks * side, side, side],
    };
    let spec = DatasetSpec::new::<u64>(&dims);
    let spec = match &kind[..] {
        "records" => spec.unlimited(0),
        _ => spec,
    };
    let data = file.dataset("/data", spec).unwrap();
    let cube = side * side * side;
    // The step has no common divisor with the number of elements, and consecutive elements are far apart.
    let step = (cube / 1000 * 618..).find(|step| gcd(*step, cube) == 1);
    let step = step.unwrap();
    let mut at = 0;
    let before = memory("VmRSS");
    for i in 0..writes {
        at = (at + step) % cube;
        let start = match &kind[..] {
            "series" => vec![rank, 2 * i],
            "turns" => vec![i * ranks + rank],
            "records" => vec![i / 16, 32 * rank + 2 * (i % 16)],
            _ => vec![
                rank * side + at / (side * side),
                at / side % side,
                at % side,
            ],
        };
        let count = vec![1; start.len()];
        let selection = Selection::block(&start, &count);
        match file.write(data, selection, &[i]) {
            Err(Error::BufferFull { .. }) => {
                file.flush().unwrap();
                file.write(data, selection, &[i]).unwrap();
            }
            written => written.unwrap(),
        }
    }
    file.flush().unwrap();
    let flushed = memory("VmHWM") - before;
    file.close().unwrap();
    println!("grew {flushed} {}", memory("VmHWM") - before);
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// A value of `/proc/self/status` in KiB.
fn memory(name: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with(name)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}
