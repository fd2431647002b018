//! The bodies of the fuzz targets. A target takes bytes from the fuzzer. It panics if the library panics, or if the
//! library breaks a rule of the table below. Targets use only public items. [`memory::run`] runs a target and checks
//! that it reserved all memory that it took.
//!
//! | target | input | rule, besides the absence of panics |
//! |---|---|---|
//! | `logvol`, `classic`, `netcdf_log` | the tables of a log, and where its data lie | the index finds the same record for each element as a pass through all records; a saved index gives the same answers |
//! | `netcdf_header` | the front of a netCDF file | bytes after the header change nothing; the file can be presented, or is refused |
//! | `snapshot` | the outcome of a scan from another process | writing and reading it changes nothing; an accepted snapshot can be read everywhere |
//! | `saved_index` | an index from the disk | saving it again changes nothing |
//! | `stored_item` | damage to an item of the store | a read gives the stored item, or nothing |
//! | `journal` | the journal of a log that is not closed, with or without its checksums | its commits ascend; a read up to the last commit gives the same definitions, or the same image |
//! | `unflushed` | bytes after the last flush of a log | the extents that are found share no bytes, and their data match the checksums |
//! | `parts` | the configuration of an HDF5 file in subfiles, and the first subfile | a resulting snapshot passes its checks, and can be read |
//! | `bp4`, `bp5` | the metadata of a directory of ADIOS2 | a variable has the same content alone and among all others; numbers of blocks fit each other; no path is shown twice |
//! | `operator` | a block of ADIOS2 with an operator | the decoded block keeps no byte of the buffer's earlier content |
//! | `zfp` | a field of zfp in a block of ADIOS2 | the same |
//! | `scorpio` | a directory that SCORPIO wrote | the snapshot passes its checks; the index finds the same record for each element as a pass through all records |
//! | `pipeline` | a chunk that went through filters | the decoded chunk has the bytes of its elements, in any buffer |
//! | `plain` | an HDF5 file | a file that is certainly no log is none with more bytes after it, either |
//! | `objects` | an HDF5 file, as it is, and with right checksums | an object found by its name is in the list of all objects |
//! | `damaged` | a log, and changes to it | a read of a part gives the same bytes as a read of the whole; holes have no data; without changes everything can be read |
//!
//! The parts of a file that libhdf5 reads are not fuzzed: libhdf5 is not trusted and runs in a process of its own. Here
//! it only makes images, in `netcdf_header`, `journal` and `scorpio`.

mod adios;
mod damaged;
mod decoders;
mod header;
mod input;
mod journal;
pub mod memory;
mod objects;
mod parts;
mod pipeline;
mod plain;
mod reading;
mod samples;
mod saved;
mod scorpio;
mod snapshot;
mod tables;
mod test_dir;
mod unclosed;
mod unflushed;

/// One fuzz target.
#[derive(Clone, Copy)]
pub struct Target {
    pub name: &'static str,
    pub run: fn(&[u8]),
    /// Makes the first inputs.
    pub seeds: fn() -> Seeds,
}

/// Inputs and their names.
pub type Seeds = Vec<(String, Vec<u8>)>;

pub const ALL: [Target; 19] = [
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
        name: "saved_index",
        run: saved::index,
        seeds: saved::index_seeds,
    },
    Target {
        name: "stored_item",
        run: saved::item,
        seeds: saved::item_seeds,
    },
    Target {
        name: "journal",
        run: journal::run,
        seeds: journal::seeds,
    },
    Target {
        name: "unflushed",
        run: unflushed::run,
        seeds: unflushed::seeds,
    },
    Target {
        name: "parts",
        run: parts::run,
        seeds: parts::seeds,
    },
    Target {
        name: "bp4",
        run: adios::directory,
        seeds: adios::bp4_seeds,
    },
    Target {
        name: "bp5",
        run: adios::directory,
        seeds: adios::bp5_seeds,
    },
    Target {
        name: "operator",
        run: adios::operator,
        seeds: adios::operator_seeds,
    },
    Target {
        name: "zfp",
        run: adios::zfp,
        seeds: adios::zfp_seeds,
    },
    Target {
        name: "scorpio",
        run: scorpio::run,
        seeds: scorpio::seeds,
    },
    Target {
        name: "pipeline",
        run: pipeline::run,
        seeds: pipeline::seeds,
    },
    Target {
        name: "plain",
        run: plain::run,
        seeds: plain::seeds,
    },
    Target {
        name: "objects",
        run: objects::run,
        seeds: objects::seeds,
    },
    Target {
        name: "damaged",
        run: damaged::run,
        seeds: damaged::seeds,
    },
];
