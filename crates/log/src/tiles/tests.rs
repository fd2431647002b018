//! Members of the corpus.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::format::header;
use super::names::{Candidates, MemberName};
use super::recognition::{Recognized, recognize};
use crate::source_dir::SourceDir;
use crate::source_file::SourceFile;

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/corpus-tiles")
}

fn open(set: &str, name: &str) -> SourceFile {
    let dir = SourceDir::open(&corpus().join(set)).unwrap();
    SourceFile::open(&dir, Path::new(name)).unwrap()
}

fn recognized(set: &str, name: &str) -> Recognized {
    let name = OsString::from(name);
    recognize(
        &open(set, name.to_str().unwrap()),
        &MemberName::parse(&name).unwrap(),
    )
    .unwrap()
}

#[test]
fn first_members_of_the_corpus_are_recognized() {
    let mut count = 0;
    for entry in std::fs::read_dir(corpus()).unwrap() {
        let entry = entry.unwrap();
        if !entry.path().is_dir() {
            continue;
        }
        let set = entry.file_name().into_string().unwrap();
        let mut candidates = Candidates::default();
        for member in std::fs::read_dir(entry.path()).unwrap() {
            candidates.add(&member.unwrap().file_name());
        }
        for (joined, candidate) in candidates.into_sets() {
            let first = candidate.unwrap().first().into_string().unwrap();
            let found = recognized(&set, &first);
            let is_expected = match &found {
                Recognized::Refused(_) => set.starts_with("refused_"),
                found => *found == Recognized::Set,
            };
            assert!(is_expected, "{set}, {joined:?}: {found:?}");
            count += 1;
        }
    }
    assert_eq!(count, 26);
}

#[test]
fn kinds_that_are_not_joined_are_told() {
    let refused = |set: &str, name: &str| match recognized(set, name) {
        Recognized::Refused(reason) => reason,
        other => panic!("{set}: {other:?}"),
    };
    let text = refused("refused_compressed", "vegn.res.nc.0000");
    assert!(
        text.contains("tile_index is compressed by gathering") && text.contains("decompress-ncc"),
        "{text}"
    );
    let text = refused("refused_icebergs", "icebergs.res.nc.0000");
    assert!(
        text.contains("no dimension is decomposed") && text.contains("iceberg_comb"),
        "{text}"
    );
}

#[test]
fn a_header_of_netcdf_4_has_what_netcdf_shows() {
    let found = header(&open("nemo_xios_ids", "OUT_1m_grid_T_0003.nc")).unwrap();
    let names: Vec<_> = found
        .dimensions
        .iter()
        .map(|d| std::str::from_utf8(&d.name).unwrap())
        .collect();
    assert_eq!(
        names,
        [
            "axis_nbounds",
            "x_grid_T",
            "y_grid_T",
            "deptht",
            "time_counter"
        ]
    );
    let lens: Vec<_> = found
        .dimensions
        .iter()
        .map(|d| (d.len, d.is_unlimited))
        .collect();
    assert_eq!(
        lens,
        [(2, false), (5, false), (5, false), (2, false), (2, true)]
    );
    let shapes = found.variables.iter().map(|v| v.dimensions.clone());
    let expected: [&[usize]; 7] = [
        &[2, 1],
        &[2, 1],
        &[3],
        &[4],
        &[4, 0],
        &[4, 3, 2, 1],
        &[4, 2, 1],
    ];
    assert_eq!(shapes.collect::<Vec<_>>(), expected);
    let thetao = &found.variables[5];
    let names: Vec<_> = thetao
        .attributes
        .iter()
        .map(|a| std::str::from_utf8(&a.name).unwrap())
        .collect();
    let expected = [
        "_FillValue",
        "standard_name",
        "units",
        "online_operation",
        "missing_value",
        "coordinates",
    ];
    assert_eq!(names, expected);
    assert_eq!(thetao.attributes[2].text(), Some(&b"degC"[..]));
    assert!(found.is_classic && !thetao.is_big_endian);
    assert_eq!(found.attributes[7].integers(), Some(vec![3]));
    // Without the attribute of the classic model.
    let other = header(&open("roms_ucla_land", "his_land.0.nc")).unwrap();
    assert!(!other.is_classic);
}
