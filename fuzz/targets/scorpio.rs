//! A directory of ADIOS2 that SCORPIO wrote: definitions, lists of frames, maps and puts.

use h5logfs_log::snapshot::Snapshot;

use super::Seeds;
use super::input::{Input, Output};
use super::reading::read;
use super::tables::check_tables;
use super::test_dir::TestDir;

/// The files of the directory, in the order of the input.
const FILES: [&str; 4] = ["md.idx", "md.0", "mmd.0", "data.0"];

/// Scans a directory, and reads what it shows. `bytes` holds its files.
pub fn run(bytes: &[u8]) {
    let test_dir = TestDir::new();
    let mut rest = bytes;
    for (number, name) in FILES.into_iter().enumerate() {
        let (file, behind) = match number + 1 {
            last if last == FILES.len() => (rest, &[][..]),
            _ => Input(rest).two_parts(),
        };
        test_dir.write(&format!("x.nc.bp/{name}"), file);
        rest = behind;
    }
    let Ok(snapshot) = test_dir.scan("x.nc.bp/md.idx") else {
        return;
    };
    assert_eq!(snapshot.check(), Ok(()), "a snapshot that was just made");
    check_records(&test_dir, &snapshot);
    if let Ok(view) = test_dir.view(snapshot) {
        read(&view);
    }
}

fn check_records(test_dir: &TestDir, snapshot: &Snapshot) {
    let sources = snapshot.sources.iter();
    let sources = sources.filter_map(|source| Some(test_dir.open(source.place.path.to_str()?)));
    let sources: Vec<_> = sources.collect();
    let datasets = snapshot
        .datasets
        .iter()
        .filter_map(|dataset| dataset.logged());
    let datasets: Vec<_> = datasets.collect();
    check_tables(&snapshot.log, &sources, &datasets);
}

macro_rules! directories {
    ($($name:literal),*) => {
        [$((
            $name,
            [
                &include_bytes!(concat!("../../tests/corpus-scorpio/", $name, ".nc.bp/md.idx"))[..],
                &include_bytes!(concat!("../../tests/corpus-scorpio/", $name, ".nc.bp/md.0"))[..],
                &include_bytes!(concat!("../../tests/corpus-scorpio/", $name, ".nc.bp/mmd.0"))[..],
                &include_bytes!(concat!("../../tests/corpus-scorpio/", $name, ".nc.bp/data.0"))[..],
            ],
        )),*]
    };
}

pub fn seeds() -> Seeds {
    let files = directories!(
        "contig_r4io2",
        "dims_r2",
        "fillframes_r2",
        "gaps_r2",
        "putvar_r2"
    );
    let seed = |(name, [index, metadata, formats, data]): (&str, [&[u8]; 4])| {
        let rest = Output::default().two_parts(formats, data);
        let rest = Output::default().two_parts(metadata, &rest);
        (name.to_owned(), Output::default().two_parts(index, &rest))
    };
    files.into_iter().map(seed).collect()
}
