//! Scans of sets of netCDF files, one for each process.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use h5logfs_common::diagnostic::Severity;
use h5logfs_common::error::Error;
use h5logfs_log::Tables;
use h5logfs_log::numbers::NumberType;
use h5logfs_log::scan::{ScanRequest, Settings};
use h5logfs_log::snapshot::Snapshot;
use h5logfs_log::source_dir::{SourceDir, SourcePath};
use h5logfs_log::source_file::SourceFile;
use h5logfs_log::tiles::format::header;
use h5logfs_log::tiles::member::{MemberHeader, Value, Variable};
use h5logfs_log::tiles::names::{Candidate, Candidates};
use h5logfs_log::tiles::{Axis, Holders, Span};

use crate::common::readers::{Python, project};

fn corpus() -> PathBuf {
    project().join("tests/corpus-tiles")
}

/// The sets in a directory, with their joined names.
fn sets(directory: &Path) -> Vec<(OsString, Candidate)> {
    let mut candidates = Candidates::default();
    for entry in fs::read_dir(directory).unwrap() {
        candidates.add(&entry.unwrap().file_name());
    }
    let sets = candidates.into_sets().into_iter();
    let mut sets: Vec<_> = sets
        .filter_map(|(joined, set)| Some((joined, set?)))
        .collect();
    sets.sort_by(|one, other| one.0.cmp(&other.0));
    sets
}

fn scan_set(directory: &Path, joined: &OsString, set: &Candidate) -> Result<Snapshot, Error> {
    let dir = SourceDir::open(directory).unwrap();
    let members = set.names().map(SourcePath::below);
    let members: Vec<SourcePath> = members.collect();
    let settings = Settings::default();
    let request = ScanRequest {
        companions: Some(&members),
        ..ScanRequest::alone(&dir, Path::new(joined), &settings)
    };
    h5logfs_scan::scan(request)
}

/// The only set of a directory of the corpus.
fn scan(name: &str) -> Result<Snapshot, Error> {
    let directory = corpus().join(name);
    let sets = sets(&directory);
    assert_eq!(sets.len(), 1);
    scan_set(&directory, &sets[0].0, &sets[0].1)
}

fn tables(snapshot: &Snapshot) -> &h5logfs_log::tiles::Tables {
    match &snapshot.log {
        Tables::Tiles(tables) => tables,
        other => panic!("{other:?}"),
    }
}

fn told(snapshot: &Snapshot, severity: Severity) -> Vec<String> {
    let found = snapshot.diagnostics.iter();
    let found = found.filter(|diagnostic| diagnostic.severity == severity);
    found.map(ToString::to_string).collect()
}

fn header_of(path: &Path) -> MemberHeader {
    let (dir, name) = SourceDir::of_file(path).unwrap();
    header(&SourceFile::open(&dir, &name).unwrap()).unwrap()
}

#[test]
fn each_set_has_the_header_of_its_expected_file() {
    let work = tempfile::tempdir().unwrap();
    let mut count = 0;
    for entry in fs::read_dir(corpus()).unwrap() {
        let directory = entry.unwrap().path();
        let name = directory.file_name().unwrap().to_str().unwrap().to_owned();
        if !directory.is_dir() || name.starts_with("bad_") || name.starts_with("refused_") {
            continue;
        }
        for (joined, set) in sets(&directory) {
            let snapshot = scan_set(&directory, &joined, &set).unwrap();
            snapshot.check().unwrap();
            assert_eq!(snapshot.joined.as_deref(), Some(Path::new(&joined)));
            assert_eq!(snapshot.sources.len(), set.len());
            assert_eq!(told(&snapshot, Severity::Lost), [""; 0], "{name}");
            let image = work.path().join("image.nc");
            fs::write(&image, &snapshot.image).unwrap();
            let of_set = corpus().join(format!("{name}.expected.nc"));
            let expected = if of_set.is_file() {
                of_set
            } else {
                corpus().join(format!("{name}.expected.{}", joined.display()))
            };
            let (got, expected) = (header_of(&image), header_of(&expected));
            assert_same(&got, &expected, &name);
            count += 1;
        }
    }
    assert_eq!(count, 19);
}

#[track_caller]
fn assert_same(got: &MemberHeader, expected: &MemberHeader, name: &str) {
    assert_eq!(got.dimensions, expected.dimensions, "{name}");
    assert_eq!(got.attributes, expected.attributes, "{name}");
    let plain = |variable: &Variable| Variable {
        place: 0,
        is_big_endian: false,
        ..variable.clone()
    };
    let [got, expected] =
        [got, expected].map(|header| header.variables.iter().map(plain).collect::<Vec<_>>());
    assert_eq!(got, expected, "{name}");
}

#[test]
fn tables_have_the_places_of_the_members() {
    // Section 13: the regional set, the second of whose members has 4 points at 9 of 13.
    let snapshot = scan("fms_region").unwrap();
    let region = tables(&snapshot);
    let span = |at, len| Span {
        at,
        len,
        before: 0,
        all: len,
    };
    assert_eq!(region.members[1].spans, [span(9, 4), span(0, 5)]);
    assert_eq!(region.members[1].records, [3]);
    let temp = region
        .variables
        .iter()
        .position(|v| &*v.name == "temp")
        .unwrap();
    let form = &region.forms[region.members[1].form as usize];
    assert_eq!(form.places[temp], Some(2164));
    let dims = [Axis::Records(0), Axis::Whole, Axis::Cut(1), Axis::Cut(0)];
    assert_eq!(region.variables[temp].dims, dims);
    assert_eq!(region.variables[temp].holders, Holders::All);
    let bounds = region
        .variables
        .iter()
        .find(|v| &*v.name == "time_bounds")
        .unwrap();
    assert_eq!(bounds.holders, Holders::First);
    // Members of equal sizes share a form.
    let scattered = scan("fms_scatter").unwrap();
    assert_eq!(
        (
            tables(&scattered).members.len(),
            tables(&scattered).forms.len()
        ),
        (6, 1)
    );
    // A halo, and the lengths of a live set.
    let halo = scan("nemo_halo").unwrap();
    let x = Span {
        at: 10,
        len: 10,
        before: 1,
        all: 11,
    };
    assert_eq!(tables(&halo).members[3].spans[0], x);
    let live = scan("fms_live").unwrap();
    assert_eq!(
        tables(&live)
            .members
            .iter()
            .map(|m| m.records[0])
            .collect::<Vec<_>>(),
        [3, 4, 3, 4]
    );
    let notes = told(&live, Severity::Note);
    assert!(
        notes[0].ends_with(": 4, but 3 in ocean.nc.0000, 3 in ocean.nc.0002"),
        "{notes:?}"
    );
}

#[test]
fn masked_tiles_are_a_note() {
    let snapshot = scan("fms_masked").unwrap();
    let notes = told(&snapshot, Severity::Note);
    assert_eq!(
        notes,
        ["16 of 20 members are there; masked tiles have none"]
    );
    assert!(tables(&snapshot).absent.is_empty() && !snapshot.has_unreadable);
    // The gap value is the fill value of the dataset, and no attribute is made of it.
    let fills = snapshot
        .datasets
        .iter()
        .filter(|dataset| !dataset.fill.is_empty());
    assert!(fills.count() > 0);
}

#[test]
fn members_that_are_missing_or_unreadable_are_told() {
    let lost = scan("bad_nemo_member_lost").unwrap();
    let expected = "3 of 4 members are there, r_restart_0002.nc is missing: elements that no member has cannot be read";
    assert_eq!(told(&lost, Severity::Lost), [expected]);
    assert!(lost.has_unreadable);
    let absent = &tables(&lost).absent[0];
    assert_eq!(
        (absent.name.as_str(), absent.reason.as_str()),
        ("r_restart_0002.nc", "is missing")
    );

    let header_cut = scan("bad_header_cut").unwrap();
    assert_eq!(
        told(&header_cut, Severity::Lost),
        ["x.nc.0001: the file is empty: it has no header"]
    );
    // The member is watched, too. Its number gives its box.
    assert_eq!(
        (header_cut.sources.len(), tables(&header_cut).members.len()),
        (4, 3)
    );
    let boxes = tables(&header_cut).absent[0].spans.clone().unwrap();
    let spans = |number: usize| tables(&header_cut).members[number].spans.clone();
    let (row, column) = (spans(0), spans(2));
    for (number, part) in boxes.into_iter().enumerate() {
        let of = [row[number], column[number]].map(|span| (span.at, span.len));
        assert!(of.contains(&part), "{part:?} {of:?}");
    }

    // The end of this file lies in its header.
    let cut = scan("bad_member_cut").unwrap();
    let told_of_cut = told(&cut, Severity::Lost);
    assert!(
        told_of_cut[0].starts_with("x.nc.0003: netCDF header"),
        "{told_of_cut:?}"
    );
    assert!(
        told_of_cut[0].contains("the file ends at byte 1821"),
        "{told_of_cut:?}"
    );
    let attribute = b"_h5logfs_incomplete";
    assert!(
        cut.image
            .windows(attribute.len())
            .any(|bytes| bytes == attribute)
    );
}

/// A copy of a set, changed by `change`, which gets its directory.
fn changed(name: &str, change: impl FnOnce(&Path)) -> Result<Snapshot, Error> {
    let copy = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(corpus().join(name)).unwrap() {
        let from = entry.unwrap();
        fs::copy(from.path(), copy.path().join(from.file_name())).unwrap();
    }
    change(copy.path());
    let sets = sets(copy.path());
    scan_set(copy.path(), &sets[0].0, &sets[0].1)
}

/// Replaces the only place with the bytes `from` behind `after`.
fn patch(file: &Path, after: &str, from: &[u8], to: &[u8]) {
    let mut bytes = fs::read(file).unwrap();
    let find =
        |bytes: &[u8], what: &[u8]| bytes.windows(what.len()).position(|at| at == what).unwrap();
    let behind = find(&bytes, after.as_bytes()) + after.len();
    let at = behind + find(&bytes[behind..], from);
    bytes[at..at + to.len()].copy_from_slice(to);
    fs::write(file, bytes).unwrap();
}

fn ints(numbers: &[i32]) -> Vec<u8> {
    numbers
        .iter()
        .flat_map(|number| number.to_be_bytes())
        .collect()
}

#[test]
fn a_member_without_its_last_bytes_is_told_with_the_bytes() {
    let cut = |dir: &Path| {
        let file = fs::OpenOptions::new()
            .write(true)
            .open(dir.join("ocean.nc.0001"))
            .unwrap();
        file.set_len(5000).unwrap();
        // A file that was written a moment ago may lack its last record.
        let old = std::time::SystemTime::now() - std::time::Duration::from_secs(3600);
        file.set_modified(old).unwrap();
    };
    let snapshot = changed("fms_scatter", cut).unwrap();
    let lost = told(&snapshot, Severity::Lost);
    assert_eq!(
        lost,
        [
            "ocean.nc.0001: ends at byte 5000, its data reach to byte 6056: the elements behind cannot be read"
        ]
    );
    assert!(snapshot.has_unreadable && tables(&snapshot).absent.is_empty());
}

#[test]
fn a_set_without_readable_members_is_in_writing() {
    let empty = |dir: &Path| {
        for entry in fs::read_dir(dir).unwrap() {
            fs::write(entry.unwrap().path(), "").unwrap();
        }
    };
    let error = changed("fms_live", empty).unwrap_err().to_string();
    assert!(
        error.contains("no member can be read yet (ocean.nc.0000: the file is empty"),
        "{error}"
    );
}

#[test]
fn members_that_overlap_are_refused() {
    let before = ints(&[1, 8, 5, 8]);
    let over = |dir: &Path| {
        let file = dir.join("x.nc.0001");
        patch(&file, "domain_decomposition", &before, &ints(&[1, 8, 1, 4]));
    };
    let error = changed("bad_type_differs", |dir| {
        fs::copy(dir.join("x.nc.0003"), dir.join("x.nc.0002")).unwrap();
        over(dir);
    });
    let error = error.unwrap_err().to_string();
    assert!(error.contains("members overlap: x.nc.000"), "{error}");
}

#[test]
fn lengths_that_differ_are_refused() {
    let longer = |dir: &Path| {
        patch(
            &dir.join("x.nc.0003"),
            "domain_decomposition",
            &ints(&[1, 8, 5, 8]),
            &ints(&[1, 8, 5, 7]),
        )
    };
    let error = changed("bad_header_cut", longer).unwrap_err().to_string();
    let expected = "x.nc.0003: its part of xt_ocean is 3 points at 4 of 8, and it has 4";
    assert!(error.contains(expected), "{error}");
    let levels = |dir: &Path| {
        // The length follows the name, which has 8 bytes.
        patch(
            &dir.join("ocean.nc.0004"),
            "st_ocean",
            &ints(&[3]),
            &ints(&[2]),
        );
    };
    let error = changed("fms_scatter", levels).unwrap_err().to_string();
    assert!(
        error.contains("ocean.nc.0004: st_ocean has 2 points, and 3 in ocean.nc.0000"),
        "{error}"
    );
}

#[test]
fn a_nemo_set_keeps_to_its_numbers() {
    let rename = |dir: &Path| {
        fs::rename(
            dir.join("ORCA_00000480_restart_0005.nc"),
            dir.join("ORCA_00000480_restart_0004.nc"),
        )
        .unwrap();
    };
    let error = changed("nemo_restart", rename).unwrap_err().to_string();
    assert!(
        error.contains("restart_0004.nc: its attribute DOMAIN_number is 5: it was renamed"),
        "{error}"
    );
    let copy = |dir: &Path| {
        fs::copy(
            dir.join("ORCA_00000480_restart_0005.nc"),
            dir.join("ORCA_00000480_restart_0006.nc"),
        )
        .unwrap();
    };
    let snapshot = changed("nemo_restart", copy).unwrap();
    let notes = told(&snapshot, Severity::Note);
    assert_eq!(
        notes,
        ["ORCA_00000480_restart_0006.nc is left over from a larger run, and ignored"]
    );
    assert_eq!(tables(&snapshot).members.len(), 6);
    // Without its first member the set has the next one as its first.
    let without = |dir: &Path| fs::remove_file(dir.join("ORCA_00000480_restart_0000.nc")).unwrap();
    let snapshot = changed("nemo_restart", without).unwrap();
    assert_eq!(
        tables(&snapshot).absent[0].name,
        "ORCA_00000480_restart_0000.nc"
    );
    assert!(tables(&snapshot).absent[0].spans.is_some());
}

#[test]
fn sets_that_cannot_be_joined_are_refused() {
    let expected = [
        (
            "bad_two_sets",
            "x.nc.0004: xt_ocean has 10 points in all, and 8 in x.nc.0000: two sets are mixed",
        ),
        (
            "bad_type_differs",
            "x.nc.0002: variable eta_t is double, and float in x.nc.0000",
        ),
        (
            "refused_compressed",
            "vegn.res.nc.0000: dimension tile_index is compressed by gathering",
        ),
        (
            "refused_icebergs",
            "icebergs.res.nc.0000: no dimension is decomposed",
        ),
    ];
    for (name, text) in expected {
        let error = scan(name).unwrap_err().to_string();
        assert!(error.contains(text), "{name}: {error}");
    }
}

/// Makes a set of two netCDF-4 members. `more` adds to each member `f`. `None` without Python.
fn set_of_netcdf4(more: &str) -> Option<Result<Snapshot, Error>> {
    let dir = tempfile::tempdir().unwrap();
    let code = format!(
        "import sys, netCDF4, numpy as np
for n in range(2):
    f = netCDF4.Dataset(f'{{sys.argv[1]}}/x.nc.000{{n}}', 'w')
    f.NumFilesInSet = np.int32(2)
    for name, length in [('t', None), ('x', 3), ('s', 4)]:
        f.createDimension(name, length)
    b = f.createVariable('b', '>i2', ('t', 'x'), endian='big')
    b[:2 + n] = 1
    f.createVariable('s', 'S1', ('x', 's'))
    x = f.createVariable('x', 'f4', ('x',))
    x.domain_decomposition = np.int32([1, 6, 3 * n + 1, 3 * n + 3])
    {more}
    f.close()"
    );
    Python::new()?.run(&code, &[dir.path()]);
    let sets = sets(dir.path());
    Some(scan_set(dir.path(), &sets[0].0, &sets[0].1))
}

#[test]
fn netcdf_4_members_keep_byte_orders_texts_and_odd_names() {
    let more = "b.note = 'é'; b.one = 'a'; b.setncattr_string('many', ['b', 'cc']); f.empty = ''; f.n = np.int16([1, 2])";
    let Some(snapshot) = set_of_netcdf4(more) else {
        return;
    };
    let snapshot = snapshot.unwrap();
    let work = tempfile::tempdir().unwrap();
    let image = work.path().join("image.nc");
    fs::write(&image, &snapshot.image).unwrap();
    let header = header_of(&image);
    let lens = header
        .dimensions
        .iter()
        .map(|d| (d.name.as_slice(), d.len, d.is_unlimited));
    let expected: [(&[u8], u64, bool); 3] = [(b"t", 3, true), (b"x", 6, false), (b"s", 4, false)];
    assert_eq!(lens.collect::<Vec<_>>(), expected);
    let variables = header
        .variables
        .iter()
        .map(|v| (v.name.as_slice(), v.dimensions.as_slice(), v.is_big_endian));
    let expected: [(&[u8], &[usize], bool); 3] = [
        (b"b", &[0, 1], true),
        (b"s", &[1, 2], false),
        (b"x", &[1], false),
    ];
    assert_eq!(variables.collect::<Vec<_>>(), expected);
    let values = header.variables[0]
        .attributes
        .iter()
        .map(|a| a.value.clone());
    let texts = Value::Texts(vec![b"b".to_vec(), b"cc".to_vec()]);
    let note = Value::Texts(vec!["é".into()]);
    let expected = [note, Value::Text(b"a".to_vec()), texts];
    assert_eq!(values.collect::<Vec<_>>(), expected);
    // The writer stores an empty text as a zero byte.
    assert_eq!(header.attributes[0].value, Value::Text(vec![0]));
    let numbers = Value::Numbers(NumberType::I16, vec![1, 0, 2, 0]);
    assert_eq!(header.attributes[1].value, numbers);
    assert_eq!(header.attributes.len(), 2);
    let orders = tables(&snapshot).variables.iter().map(|v| v.is_big_endian);
    assert_eq!(orders.collect::<Vec<_>>(), [true, false, false]);
}

#[test]
fn what_netcdf_4_has_beyond_the_classic_types_is_refused_by_name() {
    let cases = [
        ("f.createGroup('g')", "x.nc.0000: it has the group g"),
        (
            "f.createVariable('names', str, ('x',))",
            "variable names: its type is not one of netCDF's numbers or char: string",
        ),
        ("f.createVLType('i4', 'list')", "it has the type list"),
    ];
    for (more, expected) in cases {
        let Some(refused) = set_of_netcdf4(more) else {
            return;
        };
        let error = refused.unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}
