//! A flush of more than 2 GiB per rank, whose bytes MPI cannot count:
//!
//! ```text
//! writer-large FILE BYTES lent|copied
//! ```

use h5logfs_writer::{DatasetSpec, Options, Selection, Writer};
use mpi::traits::*;

const MIB: u64 = 1 << 20;

fn main() {
    std::panic::set_hook(Box::new(|why| {
        eprintln!("{why}");
        std::process::exit(1);
    }));
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [path, bytes, manner] = &arguments[..] else {
        panic!("writer-large FILE BYTES lent|copied");
    };
    let bytes: u64 = bytes.parse().unwrap();
    let universe = mpi::initialize().unwrap();
    let world = universe.world();
    let (rank, ranks) = (world.rank() as u64, world.size() as u64);
    let options = Options {
        buffer_limit: u64::MAX,
        ..Options::default()
    };
    let mut file = Writer::create(path, &world, options).unwrap();
    let spec = DatasetSpec::new::<u8>(&[ranks * bytes]).chunk(&[1 << 20]);
    let data = file.dataset("/data", spec).unwrap();
    let tail = file
        .dataset("/tail", DatasetSpec::new::<u64>(&[ranks]))
        .unwrap();
    // Each MiB begins with its number.
    let pattern: Vec<u8> = (0..MIB).map(|i| (i % 251) as u8).collect();
    let mut own = Vec::with_capacity(bytes as usize);
    for number in 0..bytes.div_ceil(MIB) {
        let room = (bytes - number * MIB).min(MIB) as usize;
        own.extend_from_slice(&(rank << 32 | number).to_le_bytes());
        own.extend_from_slice(&pattern[8..room]);
    }
    let (at, count, last) = ([rank * bytes], [bytes], [rank * bytes]);
    let whole = Selection::block(&at, &count);
    match &manner[..] {
        "lent" => {
            let mut batch = file.batch();
            batch.write(data, whole, &own).unwrap();
            batch
                .write(tail, Selection::block(&[rank], &[1]), &last)
                .unwrap();
            batch.flush().unwrap();
        }
        _ => {
            file.write(data, whole, &own).unwrap();
            file.write(tail, Selection::block(&[rank], &[1]), &last)
                .unwrap();
            drop(own);
            file.flush().unwrap();
        }
    }
    file.close().unwrap();
}
