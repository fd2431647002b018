//! Log files to begin with, small ones of each layout, and what the scan says of them.

use std::sync::LazyLock;

use h5logfs_core::log::Tables;
use h5logfs_core::log::arrangement::Arrangement;
use h5logfs_core::snapshot::Snapshot;

use super::site::Site;
use super::unclosed;

/// A log: its files, of which the first is the one that is opened.
pub struct Sample {
    pub name: &'static str,
    pub files: Vec<(&'static str, Vec<u8>)>,
}

/// The files of a sample, and beside them what the scan made of it.
pub struct Scanned {
    pub sample: Sample,
    pub snapshot: Snapshot,
    /// Which of its bytes libhdf5 does not look at: number of the file, offset, length. Empty where that is so of all.
    pub own: Vec<(usize, u64, u64)>,
}

macro_rules! hdf5 {
    ($name:literal $(, $subfile:literal)*) => {
        Sample {
            name: $name,
            files: vec![
                ("log.h5", include_bytes!(concat!("../../tests/corpus/", $name, ".log.h5")).to_vec()),
                $((
                    // The name of the master is part of that of its subfiles.
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

/// They are scanned once.
pub static SAMPLES: LazyLock<Vec<Scanned>> =
    LazyLock::new(|| all().into_iter().map(scanned).collect());

fn scanned(sample: Sample) -> Scanned {
    let site = Site::new();
    for (name, bytes) in &sample.files {
        site.write(name, bytes);
    }
    let scanned = site.scan(sample.files[0].0);
    let snapshot = scanned.unwrap_or_else(|e| panic!("{}: {e}", sample.name));
    let own = own(&sample, &snapshot);
    Scanned {
        sample,
        snapshot,
        own,
    }
}

fn own(sample: &Sample, snapshot: &Snapshot) -> Vec<(usize, u64, u64)> {
    let file_of = |source: u16| {
        let path = &snapshot.sources[usize::from(source)].place.path;
        let mut names = sample.files.iter().map(|(name, _)| name);
        names.position(|name| path.as_os_str() == *name)
    };
    let file_of = |source| file_of(source).expect("a file of the sample");
    match &snapshot.log {
        Tables::LogVol(tables) if snapshot.journal.is_none() => {
            let extents = tables.metadata.iter().chain(&tables.data);
            let range =
                |e: &h5logfs_core::log::logvol::Extent| (file_of(e.source), e.offset, e.len);
            extents.map(range).collect()
        }
        Tables::Classic(_) => {
            let blocks = |source: &h5logfs_core::snapshot::Source| match &source.arrangement {
                Arrangement::Blocks { block, at, .. } => {
                    at.iter().map(|(_, offset)| (0, *offset, *block)).collect()
                }
                _ => Vec::new(),
            };
            snapshot.sources.iter().flat_map(blocks).collect()
        }
        _ => Vec::new(),
    }
}
