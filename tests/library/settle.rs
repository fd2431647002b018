//! Logs that become ordinary HDF5 files in place. `logvol/properties.rs` settles random logs.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

use h5logfs_convert::settle::{Held, Intent};
use h5logfs_log::find_signature;
use h5logfs_log::settled::state::SettledState;
use h5logfs_log::source_dir::SourceDir;
use h5logfs_log::source_file::SourceFile;
use rustix::fs::{FlockOperation, flock};

use crate::common::amount::{cases, first_seed};
use crate::common::encoder::filter::{self, Filter};
use crate::common::encoder::*;
use crate::common::readers::{Python, check_all, corpus, said, sound_cases, whole_corpus};
use crate::common::settled::{is_silent, settle, unsettle};
use crate::common::unclosed;
use crate::common::ways::numbers;
use crate::common::{Mounted, PROGRAM, User, can_mount, wait_until};

// --- the corpus ----------------------------------------------------------------------------------

/// Whether the data of a case lie in other files.
fn is_subfiled(name: &str) -> bool {
    name.starts_with("subfile") || name.ends_with("_sub")
}

/// The cases of a corpus, each settled in its own directory.
fn check_corpus(corpus: &Path, check: impl Fn(&Path, &Path) -> Result<(), String> + Sync) {
    check_all(sound_cases(corpus), |name| {
        if is_subfiled(&name) {
            return Ok(());
        }
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(format!("{name}.h5"));
        let expected = corpus.join(format!("{name}.expected.h5"));
        fs::copy(corpus.join(format!("{name}.log.h5")), &path).unwrap();
        check(&path, &expected).map_err(|e| format!("{name}: {e}"))
    });
}

/// The whole corpus if it is there, else its small cases.
fn best_corpus() -> PathBuf {
    whole_corpus().unwrap_or_else(corpus)
}

#[test]
fn settled_logs_are_what_was_expected_and_come_back() {
    let pythons = Python::all();
    check_corpus(&best_corpus(), |path, expected| {
        let log = fs::read(path).unwrap();
        let own = state(path);
        settle(path).map_err(|e| e.to_string())?;
        let (file, settled) = (File::open(path).unwrap(), state(path));
        for python in &pythons {
            python.same(path, expected)?;
        }
        is_silent(path)?;
        let is_known = |settled: &SettledState| settled.is_that_of(&file).unwrap();
        if own.is_some() || !settled.as_ref().is_some_and(is_known) {
            return Err("its settled state is not known".into());
        }
        unsettle(path).map_err(|e| e.to_string())?;
        if settled.as_ref().is_some_and(is_known) {
            return Err("a log is taken for the settled file".into());
        }
        let back = fs::read(path).unwrap() == log;
        back.then_some(()).ok_or("not the log that it was".into())
    });
}

/// The settled state of a file, as a mount looks it up.
fn state(path: &Path) -> Option<SettledState> {
    let (dir, name) = SourceDir::of_file(path).unwrap();
    let file = SourceFile::open(&dir, &name).unwrap();
    let signature = find_signature(&file).unwrap().unwrap();
    file.settled_state(signature).unwrap()
}

/// Reads a file without libhdf5.
const WITH_PYFIVE: &str = "
import sys, h5py, numpy, pyfive
with h5py.File(sys.argv[1]) as wanted, pyfive.File(sys.argv[1]) as got:
    def check(name, dataset):
        if not isinstance(dataset, h5py.Dataset) or dataset.dtype.kind not in 'iuf' or not dataset.shape:
            return
        assert numpy.array_equal(got[name][...], dataset[...], equal_nan=dataset.dtype.kind == 'f'), name
        read.append(name)
    read = []
    wanted.visititems(check)
    print(len(read))
";

/// pyfive 1.3 cannot read a dataset with missing chunks. Other cases have such datasets.
#[test]
fn another_reader_reads_settled_logs() {
    let Some(python) = Python::new() else { return };
    let dir = tempfile::tempdir().unwrap();
    for name in ["nd_1rank", "many", "deflate"] {
        let Some(corpus) = whole_corpus() else { return };
        let path = dir.path().join(name);
        fs::copy(corpus.join(format!("{name}.log.h5")), &path).unwrap();
        settle(&path).unwrap();
        let read: usize = python.run(WITH_PYFIVE, &[&path]).trim().parse().unwrap();
        assert!(read > 0, "{name}");
    }
}

/// Changes a file in all ways that need space, and compares all of it with its former content and the changes.
const CHANGED: &str = "
import sys, h5py, numpy
path = sys.argv[1]
held, room = {}, numpy.random.default_rng(1)
def plain(dataset):
    return isinstance(dataset, h5py.Dataset) and dataset.dtype.kind in 'iuf' and dataset.shape is not None
def made(dataset, shape):
    return room.integers(0, 100, shape).astype(dataset.dtype)
def compare():
    with h5py.File(path) as f:
        for name, values in held.items():
            got = f[name][...]
            assert numpy.array_equal(got, values, equal_nan=got.dtype.kind == 'f'), name
with h5py.File(path) as f:
    f.visititems(lambda name, dataset: held.update({name: dataset[...]}) if plain(dataset) else None)
names = list(held)
for turn in range(2):
    with h5py.File(path, 'r+') as f:
        for name in names[turn::2][:20]:
            dataset = f[name]
            for d in (d for d, most in enumerate(dataset.maxshape) if most is None):
                dataset.resize(dataset.shape[d] + 5, axis=d)
            held[name] = made(dataset, dataset.shape)
            dataset[...] = held[name]
    compare()
    with h5py.File(path, 'r+') as f:
        new, group = f'new {turn}', f.create_group(f'group {turn}')
        held[new] = room.random((300, 500))
        f.create_dataset(new, data=held[new], chunks=(10, 100), compression='gzip')
        for n in range(100):
            group.attrs[f'a{n}'] = numpy.arange(n)
        if names:
            del f[names[-1]]
            held.pop(names.pop())
    compare()
print('same')
";

/// New data in a settled file takes no space that is in use.
#[test]
fn programs_write_to_settled_logs() {
    for (python, corpus) in [(Python::new(), best_corpus()), (Python::old(), corpus())] {
        let Some(python) = python else { continue };
        check_corpus(&corpus, |path, _| {
            settle(path).map_err(|e| e.to_string())?;
            let said = python.run(CHANGED, &[path]);
            assert_eq!(said.trim(), "same");
            let refused = unsettle(path).expect_err("it became a log").to_string();
            assert!(refused.contains("has written to it"), "{refused}");
            assert!(state(path).is_none());
            Ok(())
        });
    }
}

// --- what stays where it lies --------------------------------------------------------------------

fn words(count: usize, first: usize) -> Vec<u8> {
    let numbers = (first..first + count).map(|n| n as u16);
    numbers.flat_map(u16::to_le_bytes).collect()
}

fn filters() -> [Filter; 2] {
    [Filter::shuffle(2), Filter::deflate(6)]
}

/// A log with datasets of all kinds, with `rows` rows of 12 numbers.
fn sample(rows: u64) -> LogFile {
    let dataset = |name: &str, id| Dataset::new(name, id, Type::U16, &[rows, 12]).chunked(&[4, 6]);
    let mut grows = dataset("grows", 3);
    grows.max = vec![None, Some(12)];
    let mut entries = Vec::new();
    for row in (0..rows).step_by(4) {
        let part = |column, id| words(24, (row * 12 + column + u64::from(id as u8)) as usize);
        for column in [0, 6] {
            let whole = part(column, 0);
            let packed = filter::apply(&filters(), &part(column, 2));
            entries.push(Entry::one(0, &[row, column], &[4, 6], whole));
            entries.push(Entry::one(2, &[row, column], &[4, 6], packed));
        }
        entries.push(Entry::one(1, &[row, 0], &[2, 12], part(0, 1)));
        entries.push(Entry::one(3, &[row, 0], &[4, 6], part(0, 3)));
    }
    let datasets = vec![
        dataset("whole", 0),
        dataset("rows", 1),
        dataset("packed", 2).filtered(&filters()),
        grows,
    ];
    LogFile::with(datasets, entries)
}

fn holds_sample(log: &LogFile, path: &Path) -> Result<(), String> {
    let file = raw::open_file(path);
    for dataset in &log.datasets {
        let shown = raw::open(&file, &dataset.name);
        if raw::read(&shown) != log.contents(dataset) {
            return Err(format!("{} is another", dataset.name));
        }
    }
    Ok(())
}

#[test]
fn whole_chunks_stay_where_they_lie() {
    let dir = tempfile::tempdir().unwrap();
    for user_block in [0, 512, 2048] {
        let mut log = sample(40);
        log.user_block = vec![0x55; user_block];
        let path = dir.path().join(format!("{user_block}.h5"));
        log.write(&path);
        let before = fs::read(&path).unwrap();
        let (in_place, appended, settled) = settle(&path).unwrap();
        // 20 chunks of "whole" and "packed" each, and 10 of "grows", stay in place. The 20 chunks of "rows" are
        // appended.
        assert_eq!((in_place, appended), (50, 20));
        holds_sample(&log, &path).unwrap();
        let after = fs::read(&path).unwrap();
        assert_eq!(settled.before, before.len() as u64);
        assert_eq!(settled.after, after.len() as u64);
        // Nothing but the superblock has changed.
        let rest = user_block + 96..before.len();
        assert!(after[rest.clone()] == before[rest] && after[..user_block] == before[..user_block]);
    }
}

/// Two datasets with the same records. Each has its own chunks, and the chunks of one stay in place.
#[test]
fn no_two_chunks_share_their_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log.h5");
    let dataset = |name: &str| Dataset::new(name, 0, Type::U16, &[8, 6]).chunked(&[4, 6]);
    let entries = vec![Entry::one(0, &[0, 0], &[8, 6], words(48, 0))];
    LogFile::with(vec![dataset("a"), dataset("b")], entries).write(&path);
    let (in_place, appended, _) = settle(&path).unwrap();
    assert_eq!((in_place, appended), (2, 2));
    let file = raw::open_file_to_change(&path);
    raw::write(&raw::open(&file, "a"), &words(48, 100));
    assert!(raw::read(&raw::open(&file, "b")) == words(48, 0));
    raw::write(&raw::open(&file, "b"), &words(48, 200));
    assert!(raw::read(&raw::open(&file, "a")) == words(48, 100));
}

/// The edge of the dataset cuts some chunks. In the log, other elements follow their last element.
#[test]
fn chunks_at_the_edge_are_appended() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log.h5");
    let mut dataset = Dataset::new("d", 0, Type::U16, &[6, 6]).chunked(&[4, 6]);
    dataset.max = vec![None, Some(6)];
    let entries = vec![
        Entry::one(0, &[0, 0], &[6, 6], words(36, 0)),
        Entry::one(9, &[0, 0], &[6, 6], words(36, 500)),
    ];
    LogFile::with(vec![dataset], entries).write(&path);
    let (in_place, appended, _) = settle(&path).unwrap();
    assert_eq!((in_place, appended), (1, 1));
    let python = Python::new();
    let code = "
import sys, h5py
with h5py.File(sys.argv[1], 'r+') as f:
    f['d'].resize(8, axis=0)
    print(f['d'][6:].sum())
";
    if let Some(python) = python {
        assert_eq!(python.run(code, &[&path]).trim(), "0");
    }
}

/// A dataset that was never logged and is contiguous in the file.
#[test]
fn large_datasets_that_were_never_logged_stay_where_they_lie() {
    let dir = tempfile::tempdir().unwrap();
    for user_block in [0, 1024] {
        let path = dir.path().join(format!("{user_block}.h5"));
        let mut log = sample(8);
        log.user_block = vec![0x55; user_block];
        let bytes: Vec<u8> = (0..1u32 << 18).map(|n| (n % 251) as u8).collect();
        log.write_with(&path, |file| {
            let space = raw::space(&[bytes.len() as u64]);
            let properties = raw::dataset_properties();
            let plain = raw::create_dataset(file, "plain", &Type::U8.create(), &space, &properties);
            raw::write(&plain, &bytes);
        });
        let (_, _, settled) = settle(&path).unwrap();
        assert!(settled.after - settled.before < bytes.len() as u64);
        let file = raw::open_file(&path);
        assert!(raw::read(&raw::open(&file, "plain")) == bytes);
        drop(file);
        holds_sample(&log, &path).unwrap();
    }
}

/// libhdf5 keeps the image open while anything holds the type.
#[test]
fn datasets_of_a_committed_type_are_settled() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log.h5");
    let dataset = Dataset::new("typed", 4, Type::U16, &[3]);
    let mut log = sample(4);
    log.logs[0].tables[0][0].push(Entry::one(4, &[0], &[3], words(3, 0)));
    log.write_with(&path, |file| {
        let datatype = Type::U16.create();
        raw::commit(file, "type", &datatype);
        let (space, creation) = (raw::null_space(), raw::dataset_properties());
        dataset.mark(&raw::create_dataset(
            file, "typed", &datatype, &space, &creation,
        ));
    });
    settle(&path).unwrap();
    let file = raw::open_file(&path);
    let typed = raw::open(&file, "typed");
    assert_eq!(raw::read(&typed), words(3, 0));
    let datatype = raw::dataset_type(&typed);
    assert_eq!(
        raw::address(&datatype),
        raw::address(&raw::open(&file, "type"))
    );
}

// --- interruptions -------------------------------------------------------------------------------

/// States after a crash: the data written before the superblock follow the end of the log, in any order, and as far as
/// they reached the disk.
#[test]
fn a_crash_leaves_the_log_or_the_settled_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log.h5");
    let log = sample(100);
    log.write(&path);
    let before = fs::read(&path).unwrap();
    let view = read_whole(&open_view(&path).unwrap()).unwrap();
    settle(&path).unwrap();
    let after = fs::read(&path).unwrap();
    let appended = &after[before.len()..];
    let mut random = numbers(first_seed());
    let mut below = |most: usize| random() as usize % most;
    for turn in 0..200 {
        // Sectors that did not reach the disk are zeros.
        let mut rest = appended[..below(appended.len() + 1)].to_vec();
        if turn % 2 == 1 {
            let lost = 1 + below(8);
            for sector in rest.chunks_mut(512) {
                if below(8) < lost {
                    sector.fill(0);
                }
            }
        }
        fs::write(&path, [before.as_slice(), &rest].concat()).unwrap();
        let left = open_view(&path).unwrap();
        assert!(read_whole(&left).unwrap() == view, "turn {turn}");
        drop(left);
        // These cases wait for the disk.
        if turn % 12 > 1 {
            continue;
        }
        settle(&path).unwrap();
        holds_sample(&log, &path).unwrap();
        unsettle(&path).unwrap();
        let back = fs::read(&path).unwrap();
        assert!(back.starts_with(&before));
        // The mark lies in the first sectors.
        if turn % 2 == 0 && rest.len() >= 512 {
            assert_eq!(back.len(), before.len(), "what was left is gone");
        }
    }
    // The last write has 96 bytes in one sector. An interrupted undo leaves the log with everything appended.
    let undone = [before.as_slice(), appended].concat();
    fs::write(&path, &undone).unwrap();
    assert!(read_whole(&open_view(&path).unwrap()).unwrap() == view);
    settle(&path).unwrap();
    assert!(fs::read(&path).unwrap() == after, "settled as before");
}

fn h5logfs(arguments: &[&str], path: &Path) -> (bool, String) {
    let mut command = Command::new(PROGRAM);
    let output = command.arg("settle").args(arguments).arg(path).output();
    let output = output.unwrap();
    let said = said(&output);
    assert!(!said.contains("panicked"), "{said}");
    (output.status.success(), said)
}

#[test]
fn a_killed_settle_leaves_the_log_or_the_settled_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log.h5");
    let log = sample(3000);
    log.write(&path);
    let before = fs::read(&path).unwrap();
    let view = read_whole(&open_view(&path).unwrap()).unwrap();
    let start = std::time::Instant::now();
    assert!(h5logfs(&[], &path).0);
    let usual = start.elapsed();
    assert!(h5logfs(&["--undo"], &path).0);
    let mut random = numbers(first_seed());
    let (mut logs, mut files) = (0, 0);
    for _ in 0..cases(15) {
        let mut command = Command::new(PROGRAM);
        command.arg("settle").arg(&path);
        let mut child = command.stdout(Stdio::null()).spawn().unwrap();
        thread::sleep(usual.mul_f64((random() % 1000) as f64 / 900.0));
        let _ = child.kill();
        child.wait().unwrap();
        let changed = fs::read(&path).unwrap()[..96] != before[..96];
        if changed {
            files += 1;
            holds_sample(&log, &path).unwrap();
            let said = unsettle(&path);
            said.unwrap();
            assert!(fs::read(&path).unwrap() == before);
        } else {
            logs += 1;
            assert!(read_whole(&open_view(&path).unwrap()).unwrap() == view);
        }
    }
    eprintln!("{logs} times the log, {files} times the settled file");
    settle(&path).unwrap();
    holds_sample(&log, &path).unwrap();
}

#[test]
fn of_several_at_once_one_settles_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log.h5");
    let log = sample(2000);
    log.write(&path);
    for _ in 0..3 {
        let outcomes = thread::scope(|scope| {
            let path = &path;
            let settles: Vec<_> = (0..4)
                .map(|_| scope.spawn(move || h5logfs(&[], path)))
                .collect();
            settles
                .into_iter()
                .map(|s| s.join().unwrap())
                .collect::<Vec<_>>()
        });
        let settled = outcomes
            .iter()
            .filter(|(_, said)| said.contains("settled:"));
        assert_eq!(settled.count(), 1, "{outcomes:?}");
        let others = outcomes.iter().filter(|(_, said)| {
            said.contains("settled already") || said.contains("another program has it open")
        });
        assert_eq!(others.count(), 3, "{outcomes:?}");
        holds_sample(&log, &path).unwrap();
        unsettle(&path).unwrap();
    }
}

/// A shell limit on file sizes stands for a full disk.
#[test]
fn without_space_the_log_stays_as_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log.h5");
    sample(2000).write(&path);
    let before = fs::read(&path).unwrap();
    let blocks = before.len() / 512;
    for more in [0, 1, 8, 100] {
        let script = format!(
            "trap '' XFSZ; ulimit -f {}; exec \"$0\" settle \"$1\"",
            blocks + more
        );
        let mut command = Command::new("sh");
        let output = command.args(["-c", &script, PROGRAM]).arg(&path).output();
        let output = output.unwrap();
        assert!(!output.status.success(), "{}", said(&output));
        assert!(
            said(&output).contains("File too large"),
            "{}",
            said(&output)
        );
        assert!(fs::read(&path).unwrap() == before, "{more}");
    }
}

// --- refusals ------------------------------------------------------------------------------------

#[track_caller]
fn refuses(path: &Path, words: &str) {
    let before = fs::read(path).ok();
    for arguments in [&[][..], &["--dry-run"]] {
        let (done, said) = h5logfs(arguments, path);
        assert!(!done && said.contains(words), "no \"{words}\" in: {said}");
    }
    assert!(fs::read(path).ok() == before);
}

#[test]
fn what_cannot_be_settled_is_left_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    refuses(&at("none"), "No such file");
    refuses(dir.path(), "is a directory");
    raw::create_file(&at("plain.h5"), 0, false);
    refuses(&at("plain.h5"), "is an ordinary HDF5 file already");
    fs::write(at("text"), "text").unwrap();
    refuses(&at("text"), "neither HDF5 nor");
    fs::write(at("a.nc"), b"CDF\x01\0\0\0\0").unwrap();
    refuses(&at("a.nc"), "it is not HDF5");
    let unclosed = at("unclosed.h5");
    unclosed::Log::usual(&unclosed);
    refuses(&unclosed, "let `h5logfs recover` close it");
    let mut journal = unclosed.clone().into_os_string();
    journal.push(".h5logfs-journal");
    let running = File::open(&journal).unwrap();
    flock(&running, FlockOperation::LockExclusive).unwrap();
    refuses(&unclosed, "the job that writes it is still running");
    refuses(Path::new(&journal), "is a part of the log");
    let damaged = at("damaged.h5");
    for name in ["bad_foff", "bad_nproc", "bad_step0", "damaged_vlen"] {
        let Some(corpus) = whole_corpus() else { return };
        fs::copy(corpus.join(format!("{name}.log.h5")), &damaged).unwrap();
        let before = fs::read(&damaged).unwrap();
        let (done, said) = h5logfs(&[], &damaged);
        assert!(!done && said.contains("dataset /"), "{said}");
        assert!(fs::read(&damaged).unwrap() == before);
    }
    let corpus = corpus().join("tiny.log.h5");
    let log = at("log.h5");
    fs::copy(corpus, &log).unwrap();
    let (done, said) = h5logfs(&["--undo"], &log);
    assert!(!done && said.contains("it has no record"), "{said}");
}

/// The log has lost a part of its data. Another dataset is readable.
#[test]
fn one_lost_chunk_is_enough_to_refuse() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log.h5");
    let mut log = sample(40);
    log.logs[0].tables[0][0][8].claims = Some((1 << 40, 48));
    log.write(&path);
    let before = fs::read(&path).unwrap();
    let (done, said) = h5logfs(&[], &path);
    assert!(!done && said.contains("lie in no _ld"), "{said}");
    assert!(fs::read(&path).unwrap() == before);
}

#[test]
fn a_file_that_a_program_has_open_is_left_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log.h5");
    sample(8).write(&path);
    for how in [FlockOperation::LockShared, FlockOperation::LockExclusive] {
        let open = OpenOptions::new()
            .read(true)
            .write(true)
            .open(&path)
            .unwrap();
        flock(&open, how).unwrap();
        let (done, said) = h5logfs(&[], &path);
        assert!(
            !done && said.contains("another program has it open"),
            "{said}"
        );
        // A dry run changes nothing.
        assert!(h5logfs(&["--dry-run"], &path).0);
    }
    let held = Held::open(&path, Intent::Change).unwrap();
    let (done, said) = h5logfs(&[], &path);
    assert!(
        !done && said.contains("another program has it open"),
        "{said}"
    );
    drop(held);
    assert!(h5logfs(&[], &path).0);
}

/// The test changes each kind of appended byte, and bytes of the superblock.
#[test]
fn what_was_written_to_is_no_log_any_more() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log.h5");
    sample(40).write(&path);
    let before = fs::metadata(&path).unwrap().len();
    settle(&path).unwrap();
    let settled = fs::read(&path).unwrap();
    let mut random = numbers(first_seed());
    let end = settled.len() as u64;
    let mut places: Vec<u64> = (0..40)
        .map(|_| before + random() % (end - before))
        .collect();
    places.extend([9, 40, 95, before, end - 1]);
    for at in places {
        // Padding before the first appended byte belongs to nothing.
        let at = at.max(before.next_multiple_of(8)).min(end - 1);
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        file.write_all_at(&[!settled[at as usize]], at).unwrap();
        let refused = unsettle(&path).expect_err("undone").to_string();
        assert!(refused.contains("has written to it"), "{at}: {refused}");
        file.write_all_at(&settled[at as usize..=at as usize], at)
            .unwrap();
    }
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    file.write_all_at(&[1], 20).unwrap();
    unsettle(&path).unwrap_err();
    file.write_all_at(&settled[20..21], 20).unwrap();
    file.set_len(end + 1).unwrap();
    unsettle(&path).unwrap_err();
    file.set_len(end).unwrap();
    // A write into a chunk of the log belongs to the log, too.
    unsettle(&path).unwrap();
}

// --- the command ---------------------------------------------------------------------------------

#[test]
fn the_command_says_what_it_does() {
    let dir = tempfile::tempdir().unwrap();
    let (path, link) = (dir.path().join("log.h5"), dir.path().join("link"));
    let log = sample(40);
    log.write(&path);
    symlink(&path, &link).unwrap();
    let before = fs::read(&path).unwrap();
    let (done, said) = h5logfs(&["--dry-run"], &link);
    assert!(done && said.contains("50 chunks would stay"), "{said}");
    assert!(said.contains("/rows: 20 of 20 chunks"), "{said}");
    let (done, json) = h5logfs(&["--dry-run", "--json"], &link);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert!(done);
    assert_eq!(json[0]["in_place"], 50);
    let datasets = json[0]["datasets"].as_array().unwrap();
    let rows = datasets.iter().find(|d| d["name"] == "/rows").unwrap();
    assert_eq!(rows["appended"], 20);
    assert!(fs::read(&path).unwrap() == before);
    let (done, said) = h5logfs(&[], &link);
    assert!(
        done && said.contains("50 chunks stay where they lie, 20 were appended"),
        "{said}"
    );
    let grown = fs::metadata(&path).unwrap().len() - before.len() as u64;
    assert!(grown <= json[0]["bytes"].as_u64().unwrap());
    assert!(h5logfs(&[], &link).1.contains("settled already"));
    assert!(h5logfs(&["--dry-run"], &link).1.contains("settled already"));
    holds_sample(&log, &path).unwrap();
    assert!(h5logfs(&["--undo"], &link).0);
    assert!(fs::read(&path).unwrap() == before);
}

/// A mount shows a settled file as the ordinary file that it is.
#[test]
fn a_mount_passes_a_settled_file_through() {
    if !can_mount(User::Caller) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log.h5");
    sample(40).write(&path);
    let view = read_whole(&open_view(&path).unwrap()).unwrap();
    let mounted = Mounted::new(dir.path(), "index_dir=none");
    let shown = mounted.join("log.h5");
    assert!(fs::read(&shown).unwrap() == view);
    let (done, said) = h5logfs(&[], &shown);
    assert!(!done && said.contains("is a view"), "{said}");
    assert!(h5logfs(&[], &path).0);
    let settled = fs::read(&path).unwrap();
    wait_until("the mount shows the ordinary file", || {
        fs::read(&shown).is_ok_and(|bytes| bytes == settled)
    });
    assert!(h5logfs(&["--undo"], &path).0);
    wait_until("the mount shows the log", || {
        fs::read(&shown).is_ok_and(|bytes| bytes == view)
    });
}
