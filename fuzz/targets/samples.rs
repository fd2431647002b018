//! Small log files of each layout, and their scans.

use std::sync::LazyLock;

use h5logfs_log::Tables;
use h5logfs_log::arrangement::Arrangement;
use h5logfs_log::logvol::LogDataset;
use h5logfs_log::snapshot::Snapshot;

use super::test_dir::TestDir;
use super::unclosed;

/// A log. A user opens the first of its files.
pub struct Sample {
    pub name: &'static str,
    pub files: Vec<(&'static str, Vec<u8>)>,
}

/// A sample and its scan.
pub struct Scanned {
    pub sample: Sample,
    pub snapshot: Snapshot,
    /// The ranges that libhdf5 does not read. Empty if it reads nothing.
    pub own: Vec<OwnRange>,
}

/// A range of a file of the sample.
#[derive(Clone, Copy)]
pub struct OwnRange {
    pub file: usize,
    pub offset: u64,
    pub len: u64,
}

macro_rules! hdf5 {
    ($name:literal $(, $subfile:literal)*) => {
        Sample {
            name: $name,
            files: vec![
                ("log.h5", include_bytes!(concat!("../../tests/corpus/", $name, ".log.h5")).to_vec()),
                $((
                    // The names of subfiles contain the name of the master.
                    concat!("log.h5.subfiles/log.h5.", $subfile),
                    include_bytes!(concat!(
                        "../../tests/corpus/", $name, ".log.h5.subfiles/", $name, ".log.h5.", $subfile
                    )).to_vec(),
                ),)*
            ],
        }
    };
}

macro_rules! classic {
    ($name:literal) => {
        Sample {
            name: $name,
            files: vec![(
                "log.h5",
                include_bytes!(concat!("../samples/", $name, ".log.h5")).to_vec(),
            )],
        }
    };
}

macro_rules! netcdf {
    ($name:literal $(, $log:literal)*) => {
        Sample {
            name: $name,
            files: vec![
                ("file.nc", include_bytes!(concat!("../../tests/corpus-pnetcdf/", $name, "/file.nc")).to_vec()),
                $(
                    (concat!("file.nc_", $log, ".meta"), include_bytes!(concat!(
                        "../../tests/corpus-pnetcdf/", $name, "/file.nc_", $log, ".meta"
                    )).to_vec()),
                    (concat!("file.nc_", $log, ".data"), include_bytes!(concat!(
                        "../../tests/corpus-pnetcdf/", $name, "/file.nc_", $log, ".data"
                    )).to_vec()),
                )*
            ],
        }
    };
}

fn all() -> Vec<Sample> {
    vec![
        hdf5!("tiny"),
        hdf5!("nd"),
        hdf5!("deflate"),
        hdf5!("points"),
        hdf5!("merge"),
        hdf5!("strided"),
        hdf5!("strided_canonical"),
        hdf5!("objref_dset"),
        hdf5!("records"),
        hdf5!("convert"),
        hdf5!("overlap"),
        hdf5!("zero_scalar"),
        hdf5!("userblock"),
        hdf5!("subfile", "0", "1"),
        hdf5!("subfile_records", "0", "1"),
        classic!("classic-3"),
        classic!("classic-6"),
        netcdf!("types-cdf5-np1", "0_0"),
        netcdf!("varn-cdf2-np1", "0_0"),
        netcdf!("conv-cdf1-np1", "0_0"),
        netcdf!("uncounted-cdf1-np1", "0_0"),
        netcdf!("ragged-cdf2-np4", "0_0", "0_1", "0_2", "0_3"),
        netcdf!("overlap-cdf1-np1", "0_0"),
        Sample {
            name: "unclosed",
            files: unclosed::files(),
        },
    ]
}

/// All samples, scanned once.
pub static SAMPLES: LazyLock<Vec<Scanned>> =
    LazyLock::new(|| all().into_iter().map(scanned).collect());

fn scanned(sample: Sample) -> Scanned {
    let test_dir = TestDir::new();
    for (name, bytes) in &sample.files {
        test_dir.write(name, bytes);
    }
    let scanned = test_dir.scan(sample.files[0].0);
    let snapshot = scanned.unwrap_or_else(|e| panic!("{}: {e}", sample.name));
    let own = own(&sample, &snapshot);
    Scanned {
        sample,
        snapshot,
        own,
    }
}

fn own(sample: &Sample, snapshot: &Snapshot) -> Vec<OwnRange> {
    let file_of = |source: u16| {
        let path = &snapshot.sources[usize::from(source)].place.path;
        let mut names = sample.files.iter().map(|(name, _)| name);
        let found = names.position(|name| path.as_os_str() == *name);
        found.expect("a file of the sample")
    };
    match &snapshot.log {
        Tables::LogVol(tables) if snapshot.journal.is_none() => {
            let logs = tables.metadata.iter().chain(&tables.data);
            let range = |log: &LogDataset| OwnRange {
                file: file_of(log.source),
                offset: log.offset,
                len: log.len,
            };
            logs.map(range).collect()
        }
        Tables::Classic(_) => {
            let mut ranges = Vec::new();
            for source in &snapshot.sources {
                if let Arrangement::Blocks { block, at, .. } = &source.arrangement {
                    ranges.extend(at.iter().map(|(_, offset)| OwnRange {
                        file: 0,
                        offset: *offset,
                        len: *block,
                    }));
                }
            }
            ranges
        }
        _ => Vec::new(),
    }
}
