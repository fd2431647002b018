//! The bodies of the fuzz targets: each takes bytes that a fuzzer chose, and panics where the library
//! does, or where something is not so that always has to be. They use nothing that is not public.
//!
//! | target | what is fed | what has to hold, beside no panic |
//! |---|---|---|
//! | `logvol`, `classic`, `netcdf_log` | the tables of a log, and where its data are said to lie | the index decides each element as going through all records does; what is kept of it answers alike |
//! | `netcdf_header` | the front of a netCDF file | what follows a header changes nothing; the file can be presented, or is refused |
//! | `snapshot` | a scan's outcome from another process | the same after being written again; one that is accepted can be read anywhere |
//! | `kept_index` | an index from the disk | the same after being kept again |
//! | `kept_item` | damage to a kept file | it is what was put there, or nothing |
//! | `journal` | the journal of a log that is not closed, with its checksums or without | its commits ascend; reading it up to the last one says the same |
//! | `damaged` | a log and what to change in it | reads of pieces are pieces of the whole read; holes are no data; without changes all can be read |
//!
//! What libhdf5 reads of a file is left as it is: it cannot be trusted with anything else, and is the
//! business of a process of its own. It does make what we ask for, in `netcdf_header` and `journal`.

mod asking;
mod damaged;
mod decoders;
mod header;
mod input;
mod journal;
mod kept;
mod reading;
mod samples;
mod site;
mod snapshot;
mod unclosed;

/// What may be fuzzed.
#[derive(Clone, Copy)]
pub struct Target {
    pub name: &'static str,
    pub run: fn(&[u8]),
    /// Inputs to begin with, and their names.
    pub seeds: fn() -> Seeds,
}

pub type Seeds = Vec<(String, Vec<u8>)>;

pub const ALL: [Target; 9] = [
    Target {
        name: "logvol",
        run: decoders::logvol,
        seeds: decoders::logvol_seeds,
    },
    Target {
        name: "classic",
        run: decoders::classic,
        seeds: decoders::classic_seeds,
    },
    Target {
        name: "netcdf_log",
        run: decoders::netcdf_log,
        seeds: decoders::netcdf_log_seeds,
    },
    Target {
        name: "netcdf_header",
        run: header::run,
        seeds: header::seeds,
    },
    Target {
        name: "snapshot",
        run: snapshot::run,
        seeds: snapshot::seeds,
    },
    Target {
        name: "kept_index",
        run: kept::index,
        seeds: kept::index_seeds,
    },
    Target {
        name: "kept_item",
        run: kept::item,
        seeds: kept::item_seeds,
    },
    Target {
        name: "journal",
        run: journal::run,
        seeds: journal::seeds,
    },
    Target {
        name: "damaged",
        run: damaged::run,
        seeds: damaged::seeds,
    },
];
