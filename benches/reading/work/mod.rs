//! The workloads, grouped by kind.

pub mod adios;
pub mod arrays;
pub mod climate;
pub mod filtered;
pub mod huge;
pub mod scorpio;
pub mod slabs;
pub mod small;
pub mod startup;
pub mod striped;
pub mod tiles;
pub mod window;

use anyhow::Result;

use crate::bench::{Bench, Size};
use crate::generate::Plan;
use crate::report::Outcome;

pub struct Workload {
    pub name: &'static str,
    pub about: &'static str,
    pub run: fn(&Bench, &mut Outcome) -> Result<()>,
}

const fn workload(
    name: &'static str,
    about: &'static str,
    run: fn(&Bench, &mut Outcome) -> Result<()>,
) -> Workload {
    Workload { name, about, run }
}

/// All workloads, in the order in which they run. Workloads that share the log of slabs follow each other.
pub const ALL: [Workload; 23] = [
    workload(
        "slabs",
        "1 GiB of 1 MiB slabs by 4 writers, read whole",
        slabs::whole,
    ),
    workload(
        "hyperslabs",
        "64 random boxes of 4 KiB to 4 MiB of it",
        slabs::hyperslabs,
    ),
    workload(
        "columns",
        "columns of it, across the log's grain",
        slabs::columns,
    ),
    workload("readers", "8 processes read it at once", slabs::readers),
    workload(
        "rewritten",
        "128 MiB in slabs, all written eight times",
        slabs::rewritten,
    ),
    workload(
        "striped",
        "1 GiB in an HDF5 file of 8 subfiles, read whole",
        striped::whole,
    ),
    workload(
        "gzip-chunks",
        "512 MiB deflated, records are chunks",
        filtered::whole_chunks,
    ),
    workload(
        "gzip-parts",
        "512 MiB deflated, records are quarters of chunks",
        filtered::parts_of_chunks,
    ),
    workload(
        "blocks-1d",
        "10^6 blocks of 1 to 100 elements, 1-D",
        small::one_dimension,
    ),
    workload(
        "blocks-3d",
        "10^6 blocks of 1 to 90 elements, 3-D",
        small::three_dimensions,
    ),
    workload(
        "ten-floats",
        "400,000 blocks of ten floats, whole and in slices",
        small::ten_floats,
    ),
    workload(
        "climate",
        "400 variables, 3 decompositions of 10^6 blocks",
        climate::generated,
    ),
    workload("corpus", "small files of real E3SM runs", climate::real),
    workload(
        "shared-patterns",
        "10^8 blocks in shared selections: index",
        huge::shared,
    ),
    workload(
        "distinct-blocks",
        "10^7 distinct blocks (huge: 10^8): index",
        huge::distinct,
    ),
    workload("listing", "ls -l of 1,000 logs", startup::listing),
    workload(
        "startup",
        "from mount to the first value of a 10 GiB file",
        startup::first_value,
    ),
    workload(
        "known",
        "opening that file again, without a mount",
        startup::known,
    ),
    workload(
        "window",
        "windows moved over a dataset: bytes asked ÷ bytes read",
        window::moved,
    ),
    workload(
        "arrays",
        "many of these, as arrays of numpy by one thread and by all cores",
        arrays::all,
    ),
    workload(
        "adios",
        "ADIOS2 directories, against ADIOS2's own reader",
        adios::all,
    ),
    workload(
        "scorpio",
        "500 MB of 300 variables in a directory of SCORPIO",
        scorpio::all,
    ),
    workload(
        "tiles",
        "500 MB in 64 netCDF files, one for each process, and 10,000 small ones",
        tiles::all,
    ),
];

/// The first log that a workload writes. `None` if it uses the log of another workload.
pub fn plan(workload: &str, size: Size) -> Option<Box<dyn Plan>> {
    Some(match workload {
        "slabs" => Box::new(slabs::once(size)),
        "rewritten" => Box::new(slabs::eight_times(size)),
        "gzip-chunks" => Box::new(filtered::plan(size, 1)),
        "gzip-parts" => Box::new(filtered::plan(size, 4)),
        "blocks-1d" => Box::new(small::in_one_dimension(size)),
        "blocks-3d" => Box::new(small::in_three_dimensions(size)),
        "ten-floats" => Box::new(small::of_ten_floats(size)),
        "climate" => Box::new(climate::plan(size)),
        "shared-patterns" => Box::new(huge::in_patterns(size)),
        "distinct-blocks" => Box::new(huge::all_distinct(size)),
        "listing" => Box::new(startup::ordinary(size)),
        "startup" | "known" => Box::new(startup::large(size)),
        "window" => Box::new(window::in_chunks()),
        _ => return None,
    })
}
