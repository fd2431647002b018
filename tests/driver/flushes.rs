//! A growing log that a program has open: each open shows one flush, and continues to show it.

use std::fs;
use std::path::Path;
use std::time::Duration;

use crate::common::answering::Answering;
use crate::common::driver::Driver;
use crate::common::pnetcdf::h5logfs;
use crate::common::readers::{project, said};
use crate::common::settled::settle;
use crate::common::unclosed::Log;

const PATIENCE: Duration = Duration::from_secs(60);

/// Answers each line. `hold NAME` opens the log, `open NAME` also reads it, `read NAME` reads what was opened under
/// that name, and `flush N` reads the log as of that flush.
const READER: &str = "
import sys
import h5py
sys.path.insert(0, sys.argv[2])
import libhdf5
path, files = sys.argv[1], {}
def text(file):
    return bytes(file['d'][...]).decode()
for line in sys.stdin:
    word, name = line.split()
    if word in ('hold', 'open'):
        files[name] = h5py.File(path, 'r')
    if word == 'hold':
        print('held', flush=True)
        continue
    elif word == 'flush':
        fapl = libhdf5.access_list()
        assert libhdf5.lib.H5Pset_driver_by_name(fapl, b'h5logfs', b'at_flush=' + name.encode()) >= 0
        file = libhdf5.lib.H5Fopen(path.encode(), 0, fapl)
        if file < 0:
            print(' '.join(libhdf5.errors()).replace('\\n', ' '), flush=True)
            continue
        files[name] = h5py.File(h5py.h5f.FileID(file))
    try:
        print(text(files[name]), flush=True)
    except (OSError, KeyError) as error:
        print(str(error).replace('\\n', ' '), flush=True)
";

/// Writes a flush of two more bytes.
fn grow(log: &mut Log, flush: u64) {
    log.extend(2 * flush);
    let value = b'a' + (flush % 26) as u8;
    log.extent(0, &[(2 * (flush - 1), &[value, value])]);
    log.flush();
}

fn export(log: &Path, options: &[&str], out: &Path) -> Result<Vec<u8>, String> {
    let output = h5logfs(&[&["export"], options].concat(), &[log, out]);
    if !output.status.success() {
        return Err(said(&output));
    }
    Ok(fs::read(out).unwrap())
}

/// A program that reads `path` by the driver, and answers [`READER`]'s questions.
fn reader(driver: &Driver, path: &Path) -> Option<Answering> {
    let mut command = driver.python()?.command();
    let tools = project().join("tests/tools");
    command.args(["-c", READER]).arg(path).arg(tools);
    Some(Answering::new(command))
}

/// Flush 3 is readable after flush 300, after the close, and after another file has taken the name of the log. If
/// other bytes have replaced its own, the reader is told.
#[test]
fn an_open_file_stays_what_it_is_or_says_why_not() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run.h5");
    let mut log = Log::begin(&path);
    (1..=3).for_each(|flush| grow(&mut log, flush));
    let driver = Driver::new();
    let Some(mut reader) = reader(&driver, &path) else {
        return;
    };
    let mut ask = |question: &str| reader.ask(question, PATIENCE).unwrap();
    assert_eq!(ask("hold it"), "held");
    // HDF5 caches what it has read.
    let mut late = self::reader(&driver, &path).unwrap();
    let mut ask_late = |question: &str| late.ask(question, PATIENCE).unwrap();
    assert_eq!(ask_late("hold it"), "held");
    (4..=300).for_each(|flush| grow(&mut log, flush));
    assert_eq!(ask("read it"), "bbccdd");
    let copy = dir.path().join("copy.h5");
    let recovered = h5logfs(&["recover"], &[&path]);
    assert!(recovered.status.success(), "{}", said(&recovered));
    assert_eq!(ask("read it"), "bbccdd");
    // A closed log has only its last flush.
    for none in ["flush 3", "flush 301"] {
        let said = ask(none);
        assert!(
            said.contains("only its last flush (300) is available"),
            "{said}"
        );
    }
    assert_eq!(ask("flush 300").len(), 600);
    for options in [["--at-flush", "3"], ["--at-time", "2026-03-01T12:00:00Z"]] {
        let said = export(&path, &options, &dir.path().join("none")).unwrap_err();
        assert!(
            said.contains("only its last flush (300) is available"),
            "{said}"
        );
    }
    // The open file has lost its name.
    let compacted = h5logfs(&["compact"], &[&path, &copy]);
    assert!(compacted.status.success(), "{}", said(&compacted));
    let aside = dir.path().join("aside.h5");
    fs::rename(&path, &aside).unwrap();
    fs::rename(&copy, &path).unwrap();
    assert_eq!(ask("read it"), "bbccdd");
    settle(&aside).unwrap();
    let said = ask_late("read it");
    assert!(
        said.contains("it was settled since it was opened"),
        "{said}"
    );
    fs::rename(&aside, &path).unwrap();
    let said = ask("flush 3");
    assert!(said.contains("it is settled"), "{said}");
    let longer = vec![b'x'; fs::metadata(&path).unwrap().len() as usize + 1];
    // Into the same file.
    fs::write(&path, longer).unwrap();
    let said = ask_late("read it");
    assert!(said.contains("changed since it was opened"), "{said}");
}

#[test]
fn every_open_sees_the_newest_flush_and_any_flush_can_be_opened() {
    let driver = Driver::new();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run.h5");
    let mut log = Log::begin(&path);
    grow(&mut log, 1);
    let Some(mut reader) = reader(&driver, &path) else {
        return;
    };
    let mut ask = |question: &str| reader.ask(question, PATIENCE).unwrap();
    let mut copies = Vec::new();
    let texts = ["bb", "bbcc", "bbccdd", "bbccddee"];
    for (number, text) in (1..).zip(texts) {
        if number > 1 {
            grow(&mut log, number);
        }
        // The files of earlier flushes stay open and unchanged.
        assert_eq!(ask(&format!("open newest-{number}")), text);
        assert_eq!(ask("read newest-1"), texts[0]);
        let copy = dir.path().join(format!("copy-{number}.h5"));
        copies.push(export(&path, &[], &copy).unwrap());
    }
    for (number, text) in (1..).zip(texts) {
        assert_eq!(ask(&format!("read newest-{number}")), text);
        assert_eq!(ask(&format!("flush {number}")), text);
        let copy = dir.path().join(format!("again-{number}.h5"));
        let again = export(&path, &["--at-flush", &number.to_string()], &copy).unwrap();
        assert!(again == copies[number as usize - 1], "flush {number}");
    }
    let said = ask("flush 5");
    assert!(
        said.contains("it has no flush 5: it has flushes 1 to 4"),
        "{said}"
    );
    let said = export(
        &path,
        &["--at-time", "2026-03-01T12:00:00Z"],
        &dir.path().join("none"),
    );
    let said = said.unwrap_err();
    assert!(said.contains("have no recorded times"), "{said}");
}
