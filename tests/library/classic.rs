//! Logs of the classic layout from `tests/tools/classic.py`: random ones, compared with their canonical files, and
//! damaged ones. `H5LOGFS_TEST_CASES` sets the number of random logs, `H5LOGFS_TEST_SEED` the first seed.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;

use crate::common::amount::{cases, first_seed};
use crate::common::numbers::Numbers;
use crate::common::readers::{Python, said};
use crate::common::ways::Ways;
use crate::common::{Mounted, PROGRAM, User, can_mount};
use h5logfs_common::error::Error;
use h5logfs_log::arrangement::Arrangement;
use h5logfs_log::scan::{Chunking, ScanRequest, Settings};
use h5logfs_log::snapshot::Dataset;
use h5logfs_log::source_dir::SourceDir;
use h5logfs_scan::scan;
use h5logfs_view::ChunkId;
use h5logfs_view::View;
use h5logfs_view::cache::{Budget, MemoryLimits};
use serde_json::{Value, json};
use tempfile::TempDir;

/// Default number of random logs.
const CASES: usize = 60;

/// A log and its canonical file.
#[derive(Debug)]
struct Case {
    log: PathBuf,
    expected: PathBuf,
}

/// Makes the logs of some seeds in one run of the generator. Returns its output, too.
fn make(
    python: &Python,
    dir: &Path,
    options: &[&str],
    seeds: impl Iterator<Item = u64>,
) -> (Vec<Case>, String) {
    let mut command = python.tool("classic.py");
    command.args(options);
    let mut made = Vec::new();
    for seed in seeds {
        let name = |kind| dir.join(format!("{seed}.{kind}.h5"));
        let case = Case {
            log: name("log"),
            expected: name("expected"),
        };
        command.arg(seed.to_string());
        command.args([&case.log, &case.expected]);
        made.push(case);
    }
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    (made, String::from_utf8_lossy(&output.stdout).into_owned())
}

fn open(path: &Path, chunking: Chunking) -> Result<Arc<View>, Error> {
    let (dir, name) = SourceDir::of_file(path)?;
    let snapshot = scan(ScanRequest::alone(&dir, &name, &Settings::from(chunking)))?;
    let budget = Budget::new(MemoryLimits::each(64 << 20));
    View::open(&dir, snapshot, Arc::new(budget), None)
}

fn run(arguments: &[&str], path: &Path) -> Output {
    let mut command = Command::new(PROGRAM);
    command.args(arguments).arg(path).output().unwrap()
}

#[test]
fn random_logs_are_what_they_stand_for() {
    let dir = tempfile::tempdir().unwrap();
    let pythons = Python::all();
    let number = cases(CASES) as u64;
    for (which, python) in pythons.iter().enumerate() {
        let step = pythons.len();
        let seeds = (first_seed()..first_seed() + number).skip(which);
        let (made, _) = make(python, dir.path(), &[], seeds.step_by(step));
        let mut pairs = Vec::new();
        for Case { log, expected } in made {
            for (size, chunking) in [("auto", Chunking::Auto), ("small", Chunking::Size(100))] {
                let view = open(&log, chunking).unwrap();
                assert_eq!(view.snapshot().log.layout().name(), "Log VOL classic");
                assert_eq!(
                    view.indexes().diagnostics().unwrap(),
                    [],
                    "{}",
                    log.display()
                );
                let got = log.with_extension(size);
                crate::common::encoder::export(&view, &got);
                pairs.push((got, expected.clone()));
            }
        }
        python.assert_same(&pairs);
    }
}

#[test]
fn logs_of_very_many_chunks() {
    let Some(python) = Python::all().pop() else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let (made, _) = make(&python, dir.path(), &["--long"], 1..3);
    let mut pairs = Vec::new();
    for Case { log, expected } in made {
        let view = open(&log, Chunking::Auto).unwrap();
        let got = log.with_extension("got");
        crate::common::encoder::export(&view, &got);
        pairs.push((got, expected));
    }
    python.assert_same(&pairs);
}

/// Reads the sound parts of a damaged log.
const READ: &str = "
import json, sys, h5py
for bad, got, expected, who in json.load(open(sys.argv[1])):
    with h5py.File(got, 'r') as g, h5py.File(expected, 'r') as e:
        assert dict(g.attrs) == dict(e.attrs), bad
        assert (g['plain'][()] == e['plain'][()]).all(), bad
        logged = [n for n in ('victim', 'other') if n in e]
        for name in logged:
            spoilt = {'all': logged, 'victim': ['victim'], 'elements': ['victim'], 'complaint': []}[who]
            try:
                data = g[name][()]
            except OSError:
                assert name in spoilt, bad + ': ' + name + ' cannot be read'
            else:
                assert name not in spoilt, bad + ': ' + name + ' can be read'
                assert (data == e[name][()]).all(), bad + ': ' + name
";

/// The kind of damage, the log, and the generator's description.
type Bad = (String, Case, Value);

/// Makes a log with each kind of damage.
fn make_all_bad(python: &Python, dir: &Path) -> Vec<Bad> {
    let output = python.tool("classic.py").arg("--list-bad").output();
    let text = String::from_utf8(output.unwrap().stdout).unwrap();
    let names: Vec<_> = text.lines().collect();
    assert!(names.len() > 30, "{names:?}");
    let options: Vec<_> = names.iter().flat_map(|name| ["--bad", name]).collect();
    let seed = first_seed();
    let (made, said) = make(python, dir, &options, seed..seed + names.len() as u64);
    let said = said.lines().map(|line| serde_json::from_str(line).unwrap());
    let names = names.iter().map(|&name| name.to_owned());
    let made = names.zip(made).zip(said);
    made.map(|((name, case), about)| (name, case, about))
        .collect()
}

/// Makes a log with one kind of damage; returns the generator's description.
fn make_bad(python: &Python, dir: &Path, bad: &str, seed: u64) -> (Case, Value) {
    let (mut made, said) = make(python, dir, &["--bad", bad], std::iter::once(seed));
    (made.remove(0), serde_json::from_str(&said).unwrap())
}

/// Each kind of damage is reported with file and position, and affects as little as possible.
#[test]
fn bad_logs_are_told_and_the_rest_of_them_is_readable() {
    let Some(python) = Python::old().or_else(Python::new) else {
        return;
    };
    if !can_mount(User::Caller) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let made = make_all_bad(&python, dir.path());
    let mounted = Mounted::new(dir.path(), "");
    let mut reads = Vec::new();
    for (bad, Case { log, expected }, about) in made {
        let output = run(&["check"], &log);
        let text = said(&output);
        let (who, position) = (&about["who"], about["position"].as_str().unwrap());
        assert!(!output.status.success(), "{bad}: {text}");
        let name = log.display().to_string();
        let told = text.lines().find(|line| line.contains(position));
        assert!(told.is_some_and(|t| t.contains(&name)), "{bad}: {text}");
        let inspected = run(&["inspect"], &log);
        assert!(inspected.status.success(), "{bad}: {}", said(&inspected));
        if who != "elements" {
            let place = position.trim_start_matches("dataset ");
            assert!(said(&inspected).contains(place), "{}", said(&inspected));
        }
        let got = mounted.join(log.strip_prefix(dir.path()).unwrap());
        reads.push(json!([bad, got, expected, who]));
    }
    let list = tempfile::NamedTempFile::new().unwrap();
    serde_json::to_writer(list.as_file(), &reads).unwrap();
    python.run(READ, &[list.path()]);
}

/// An inconsistent chain is a fault of the file, and hides nothing.
#[test]
fn chains_that_disagree_are_complaints() {
    let Some(python) = Python::old().or_else(Python::new) else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    for bad in ["other-chain", "short-chain"] {
        let (Case { log, expected }, about) = make_bad(&python, dir.path(), bad, 3);
        let view = open(&log, Chunking::Auto).unwrap();
        let told = view.indexes().diagnostics().unwrap();
        let complaints: Vec<String> = told.iter().map(|d| d.to_string()).collect();
        let position = about["position"].as_str().unwrap();
        assert!(complaints.iter().any(|c| c.contains(position)), "{bad}");
        let json = run(&["inspect", "--json"], &log);
        let json: Value = serde_json::from_slice(&json.stdout).unwrap();
        assert_eq!(json["layout"], "Log VOL classic");
        assert_eq!(json["complaints"][0], complaints[0]);
        let got = log.with_extension("got");
        crate::common::encoder::export(&view, &got);
        python.assert_same(&[(got, expected)]);
    }
}

fn end_to_end() -> Option<(TempDir, Vec<Case>)> {
    let python = Python::all().pop()?;
    let dir = tempfile::tempdir().unwrap();
    let seeds = first_seed() + 1000..first_seed() + 1008;
    let (made, _) = make(&python, dir.path(), &[], seeds);
    Some((dir, made))
}

#[test]
fn h5dump_reads_mounted_logs() {
    let Some((dir, made)) = end_to_end() else {
        return;
    };
    if !can_mount(User::Caller) {
        return;
    }
    let mounted = Mounted::new(dir.path(), "");
    for case in made {
        let got = mounted.join(case.log.file_name().unwrap());
        let dump = Command::new("h5dump").arg(got).output().unwrap();
        assert!(dump.status.success(), "{}", said(&dump));
        assert!(dump.stderr.is_empty(), "{}", said(&dump));
        let text = String::from_utf8_lossy(&dump.stdout);
        assert!(!text.contains("_classic_") && !text.contains("_log\""));
    }
}

#[test]
fn commands_know_the_layout() {
    let Some((dir, made)) = end_to_end() else {
        return;
    };
    let mut pairs = Vec::new();
    let mut streams = 0;
    for Case { log, expected } in made {
        let good = run(&["check"], &log);
        assert!(good.status.success(), "{}", said(&good));
        let inspected = run(&["inspect", "--records"], &log);
        assert!(said(&inspected).contains("Log VOL classic log"));
        assert!(!said(&inspected).contains("subfiles"));
        streams += said(&inspected).matches("(deflate stream").count();
        let exported = dir.path().join(log.with_extension("exported"));
        let mut export = Command::new(PROGRAM);
        let output = export.arg("export").args([&log, &exported]).output();
        let output = output.unwrap();
        assert!(output.status.success(), "{}", said(&output));
        pairs.push((exported, expected));
    }
    assert!(streams > 0);
    for python in Python::all() {
        python.assert_same(&pairs);
    }
}

/// Offsets of everything that libhdf5 does not read: the bytes of the two logs, and the indexes of their chunks.
fn own_bytes(view: &View, bytes: &[u8]) -> (Vec<usize>, Vec<usize>) {
    let mut logs = Vec::new();
    for source in &view.snapshot().sources[1..] {
        let Arrangement::Blocks { block, at, .. } = &source.arrangement else {
            panic!("{source:?}");
        };
        let blocks = at.iter().map(|(_, at)| *at as usize);
        logs.extend(blocks.flat_map(|at| at..bytes.len().min(at + *block as usize)));
    }
    // Marks with the least number of bytes: what follows is for libhdf5, which searches without end after some damage
    // of global heaps.
    let marks = [
        (&b"TREE\x01"[..], 120),
        (b"EAHD", 72),
        (b"EAIB", 120),
        (b"EADB", 120),
        (b"EASB", 50),
    ];
    let mut indexes = Vec::new();
    for (mark, len) in marks {
        let found = bytes.windows(mark.len()).enumerate();
        let found = found.filter(|(_, bytes)| *bytes == mark);
        indexes.extend(found.flat_map(|(at, _)| at..bytes.len().min(at + len)));
    }
    (logs, indexes)
}

/// Whatever the logs and their indexes contain, a read just succeeds or fails.
#[test]
fn damage_is_never_more_than_an_error() {
    let Some(python) = Python::all().pop() else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let seeds = first_seed()..first_seed() + 10;
    let (made, _) = make(&python, dir.path(), &[], seeds);
    let mut numbers = Numbers(first_seed());
    let mut failed = 0;
    for Case { log, .. } in made {
        let bytes = std::fs::read(&log).unwrap();
        let (logs, indexes) = own_bytes(&open(&log, Chunking::Auto).unwrap(), &bytes);
        for round in 0..cases(CASES) {
            let mut damaged = bytes.clone();
            let places = if round % 2 == 0 { &logs } else { &indexes };
            for _ in 0..1 + numbers.index(3) {
                let at = places[numbers.index(places.len())];
                damaged[at] = [0, 1, 0x7f, 0x80, 0xff, numbers.index(256) as u8][numbers.index(6)];
            }
            // A new file, because the times of a rewritten one may not change.
            let path = log.with_extension(format!("damaged{round}"));
            std::fs::write(&path, &damaged).unwrap();
            let read = open(&path, Chunking::Auto).and_then(|view| {
                let _ = view.indexes().diagnostics();
                let mut all = vec![0; view.len() as usize];
                view.read_at(0, &mut all)
            });
            failed += usize::from(read.is_err());
            std::fs::remove_file(&path).unwrap();
        }
    }
    assert!(failed > 0);
}

/// A snapshot may come from a file or from another process.
#[test]
fn snapshots_with_no_sense_make_no_panic() {
    let Some(python) = Python::all().pop() else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let seeds = first_seed()..first_seed() + cases(4) as u64;
    let (made, _) = make(&python, dir.path(), &[], seeds);
    for Case { log, .. } in made {
        Ways::of(log).damage_snapshot().unwrap();
    }
}

/// Makes an HDF5 file with a Python program, which finds the file's name in `made`.
fn by_python(dir: &TempDir, code: &str) -> Option<PathBuf> {
    let python = Python::old().or_else(Python::new)?;
    let path = dir.path().join("file.h5");
    let code =
        format!("import sys, h5py, numpy as np\nwith h5py.File(sys.argv[1], 'w') as f:\n{code}");
    python.run(&code, &[&path]);
    Some(path)
}

#[test]
fn files_of_others_with_these_names_are_plain() {
    let kinds = [
        "f.create_dataset(name, data=np.zeros(100, 'u1'), chunks=(10,), maxshape=(None,))",
        "f.create_group(name)",
        "f[name] = h5py.SoftLink('/nothing')",
        "f[name] = h5py.ExternalLink('other.h5', '/')",
    ];
    for kind in kinds {
        let dir = tempfile::tempdir().unwrap();
        let code = format!("  for name in ('_metadata_log', '_data_log'):\n    {kind}\n");
        let Some(path) = by_python(&dir, &code) else {
            return;
        };
        let opened = open(&path, Chunking::Auto);
        assert!(matches!(opened, Err(Error::NotALog { .. })), "{opened:?}");
    }
}

#[test]
fn logs_that_are_not_chunked_bytes_are_refused() {
    let kinds = [
        "data=np.zeros(100, 'u1')",
        "data=np.zeros(100, 'u2'), chunks=(10,)",
        "data=np.zeros(100, 'i1'), chunks=(10,)",
        "data=np.zeros((10, 10), 'u1'), chunks=(10, 10)",
        "data=np.zeros(100, 'u1'), chunks=(10,), compression=1",
    ];
    for kind in kinds {
        let dir = tempfile::tempdir().unwrap();
        let code = format!(
            "  for name in ('_metadata_log', '_data_log'):
    f.create_dataset(name, {kind})
  f.create_dataset('a', (), 'i4').attrs['_classic_id'] = 1
"
        );
        let Some(path) = by_python(&dir, &code) else {
            return;
        };
        let failed = open(&path, Chunking::Auto).unwrap_err().to_string();
        assert!(failed.contains("file.h5: /_metadata_log:"), "{failed}");
    }
}

/// The elements of each dataset; `None` where they are unreadable.
fn elements(view: &View) -> Vec<Vec<Option<Vec<u8>>>> {
    let datasets = view.snapshot().datasets.iter().enumerate();
    let of = |(number, dataset): (usize, &Dataset)| {
        let (grid, size) = (view.grid(number), dataset.element_size as usize);
        let mut found = vec![None; dataset.elements().unwrap() as usize];
        for chunk in 0..grid.len() {
            let Ok(bytes) = view.chunks().stored(ChunkId::new(number, chunk)) else {
                continue;
            };
            let (bounds, sides) = (grid.bounds(chunk), &grid.chunk);
            for (n, element) in bytes.chunks_exact(size).enumerate() {
                let mut rest = n as u64;
                let mut at = bounds.start.clone();
                for d in (0..at.len()).rev() {
                    at[d] += rest % sides[d];
                    rest /= sides[d];
                }
                if at.iter().zip(&bounds.end).all(|(at, end)| at < end) {
                    let place = at.iter().zip(&dataset.dims);
                    let place = place.fold(0, |n, (at, dim)| n * dim + at);
                    found[place as usize] = Some(element.to_vec());
                }
            }
        }
        found
    };
    datasets.map(of).collect()
}

/// Large and small caches, several readers, a kept index: sound logs, whose content other tests check, and those that
/// have lost data.
#[test]
fn classic_however_it_is_read() {
    let Some(python) = Python::all().pop() else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    // Few logs have streams. Some of the first ones lose something.
    let seeds = (first_seed()..first_seed() + cases(CASES) as u64).chain(1..9);
    let (made, _) = make(&python, dir.path(), &[], seeds);
    let mut numbers = Numbers(first_seed());
    let mut lost = 0;
    for (number, Case { log, .. }) in made.into_iter().enumerate() {
        if number % 2 == 1 {
            lose_data(&log, &mut numbers);
        }
        let wanted = elements(&open(&log, Chunking::Auto).unwrap());
        lost += wanted.iter().flatten().filter(|e| e.is_none()).count();
        let check = |view: &View, how: &str| {
            let pairs = elements(view).into_iter().flatten();
            let mut pairs = pairs.zip(wanted.iter().flatten());
            // The extent of a loss depends on the chunks.
            if pairs.all(|(a, b)| a == *b || a.is_none() || b.is_none()) {
                Ok(())
            } else {
                Err(format!("{how}: other elements"))
            }
        };
        let checked = Ways::of(&log).check(first_seed() + number as u64, check);
        checked.unwrap_or_else(|e| panic!("{}: {e}", log.display()));
    }
    assert!(lost > 0);
}

/// Damages bytes of the data log after its header: streams break, other data changes.
fn lose_data(log: &Path, numbers: &mut Numbers) {
    let view = open(log, Chunking::Auto).unwrap();
    let Arrangement::Blocks { block, at, len } = &view.snapshot().sources[2].arrangement else {
        panic!("no blocks");
    };
    let mut bytes = std::fs::read(log).unwrap();
    for _ in 0..60 {
        let place = 16 + numbers.index(*len as usize - 15) as u64;
        let found = at.iter().find(|(number, _)| *number == place / block);
        if let Some((_, found)) = found {
            bytes[(found + place % block) as usize] ^= 1 << numbers.index(8);
        }
    }
    std::fs::remove_file(log).unwrap();
    std::fs::write(log, bytes).unwrap();
}

/// Makes a log of one dataset of bytes, `row`, from its extent and the bytes of the data log. Entries of a
/// one-dimensional dataset are given by filter, start, count and data position.
fn of_row(
    dir: &TempDir,
    dims: &[u64],
    entries: &[(i32, u64, u64, i64)],
    data: &[u8],
) -> Option<PathBuf> {
    let entries: Vec<String> = entries.iter().map(|e| format!("{e:?}")).collect();
    by_python(
        dir,
        &format!(
            "  import struct
  entries = [{entries}]
  ends = [28 + 52 * (n + 1) for n in range(len(entries))]
  metadata = b'logvol_metadata0' + struct.pack('<iq', 1, len(entries))
  for end, (filter, start, count, data) in zip(ends, entries):
    metadata += struct.pack('<iqiqqiqq', 0, 0, 0, start, count, filter, data, -1 if end == ends[-1] else end)
  data = b'logvol_data0' + struct.pack('<i', 1) + bytes({data:?})
  for name, log in (('_metadata_log', metadata), ('_data_log', data)):
    f.create_dataset(name, data=np.frombuffer(log, 'u1'), chunks=(64,), maxshape=(None,))
  stub_dataset = f.create_dataset('row', (), 'u1')
  for name, value in (('id', 0), ('dims', {dims:?}), ('first', 28 if entries else -1)):
    stub_dataset.attrs.create('_classic_' + name, value, dtype='<i8')
",
            entries = entries.join(", "),
        ),
    )
}

/// Records hidden by later writes do not belong to a chunk, broken or not.
#[test]
fn a_chunk_is_made_of_what_decides_it() {
    let dir = tempfile::tempdir().unwrap();
    let entries = [
        (0, 0, 6, 1 << 40),
        (0, 1, 2, 16),
        (0, 0, 4, 16),
        (0, 3, 3, 20),
        (0, 2, 2, 23),
    ];
    let data = [1, 1, 1, 1, 2, 2, 2, 3, 3];
    let Some(path) = of_row(&dir, &[6], &entries, &data) else {
        return;
    };
    let view = open(&path, Chunking::Auto).unwrap();
    assert_eq!(
        **view.chunks().stored(ChunkId::new(0, 0)).unwrap(),
        [1, 1, 3, 3, 2, 2]
    );
    let sources = view.inspection().chunk_blocks(ChunkId::new(0, 0)).unwrap();
    let places: Vec<_> = sources.iter().map(|s| (s.start[0], s.count[0])).collect();
    assert_eq!(places, [(0, 4), (3, 3), (2, 2)]);
    let output = run(&["inspect", "--map", "row"], &path);
    assert!(!said(&output).contains("fault"), "{}", said(&output));
}

/// If an entry's data lies partly in an unwritten chunk, none of its elements is readable in any way.
#[test]
fn data_in_a_chunk_that_is_not_there_are_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let entries = [(0, 0, 200, 16), (0, 150, 20, 16)];
    let Some(path) = of_row(&dir, &[200], &entries, &[7; 300]) else {
        return;
    };
    Python::all()[0].run(
        "import sys, h5py
with h5py.File(sys.argv[1], 'r+') as f:
    log = f['_data_log']
    # Chunks behind the first three come anew, without storage.
    log.resize((192,))
    log.resize((316,))
",
        &[&path],
    );
    let view = open(&path, Chunking::Size(50)).unwrap();
    for chunk in [0, 1, 2] {
        let failed = view
            .chunks()
            .stored(ChunkId::new(0, chunk))
            .unwrap_err()
            .to_string();
        assert!(failed.contains("entry at byte 28"), "{failed}");
    }
    let (at, _) = view.inspection().chunk_place(ChunkId::new(0, 0)).unwrap();
    assert!(view.read_at(at, &mut [0; 1]).is_err());
    let records = view.indexes().records(0).unwrap().records;
    let faults: Vec<bool> = records.map(|r| r.fault.is_some()).collect();
    assert_eq!(faults, [true, false]);
}

/// A dataset without elements may have sides of any length.
#[test]
fn nothing_is_covered_as_a_whole() {
    let dir = tempfile::tempdir().unwrap();
    let Some(path) = of_row(&dir, &[1 << 40, 1 << 40, 0], &[], &[]) else {
        return;
    };
    let output = run(&["inspect"], &path);
    assert!(said(&output).contains("100.0 %"), "{}", said(&output));
}

/// An entry without elements must be valid, too: its faults are reported, and do not affect other entries.
#[test]
fn entries_of_nothing_are_looked_at() {
    for (entry, bad) in [
        ((7, 0, 0, 16), "unknown filter 7"),
        ((1, 3, 0, 15), "its data at 15"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let entries = [(0, 0, 6, 16), entry];
        let Some(path) = of_row(&dir, &[6], &entries, &[1; 6]) else {
            return;
        };
        let view = open(&path, Chunking::Auto).unwrap();
        assert_eq!(**view.chunks().stored(ChunkId::new(0, 0)).unwrap(), [1; 6]);
        let told = view.indexes().diagnostics().unwrap();
        let complaints: Vec<String> = told.iter().map(|d| d.to_string()).collect();
        let told = complaints
            .iter()
            .any(|c| c.contains("entry at byte 80") && c.contains(bad));
        assert!(told, "{complaints:?}");
    }
}

/// A file that libhdf5 cannot open is refused if it has the layout's marks, and is a plain file otherwise.
#[test]
fn damaged_files_are_known_by_their_marks() {
    let Some(python) = Python::old().or_else(Python::new) else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let (made, _) = make(&python, dir.path(), &[], 5..6);
    let log = &made[0].log;
    let mut bytes = std::fs::read(log).unwrap();
    let signature = bytes.windows(4).position(|w| w == b"\x89HDF").unwrap();
    // The superblock gets an unknown version.
    bytes[signature + 8] = 99;
    std::fs::write(log, &bytes).unwrap();
    let failed = open(log, Chunking::Auto).unwrap_err();
    assert!(matches!(failed, Error::BadFile { .. }), "{failed}");
    for name in [&b"_data_log"[..], b"_metadata_log"] {
        while let Some(at) = bytes.windows(name.len()).position(|w| w == name) {
            bytes[at] = b'x';
        }
    }
    std::fs::write(log, &bytes).unwrap();
    let failed = open(log, Chunking::Auto).unwrap_err();
    assert!(matches!(failed, Error::NotALog { .. }), "{failed}");
}
