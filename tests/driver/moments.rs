//! A log that grows, while a program has it open: each open shows one flush, and goes on to show it.

use std::fs;
use std::path::Path;
use std::time::Duration;

use crate::common::answering::Answering;
use crate::common::driver::Driver;
use crate::common::pnetcdf::h5logfs;
use crate::common::readers::{project, said};
use crate::common::unclosed::Log;

const PATIENCE: Duration = Duration::from_secs(60);

/// Answers each line. `open NAME` opens the log anew, `read NAME` reads what was opened under that name, and `flush N` reads the
/// log as that flush left it.
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
    if word == 'open':
        files[name] = h5py.File(path, 'r')
    elif word == 'flush':
        fapl = libhdf5.access_list()
        assert libhdf5.lib.H5Pset_driver_by_name(fapl, b'h5logfs', b'at_flush=' + name.encode()) >= 0
        file = libhdf5.lib.H5Fopen(path.encode(), 0, fapl)
        if file < 0:
            print(' '.join(libhdf5.errors()).replace('\\n', ' '), flush=True)
            continue
        files[name] = h5py.File(h5py.h5f.FileID(file))
    print(text(files[name]), flush=True)
";

/// Writes a flush of two bytes more.
fn grow(log: &mut Log, flush: u64) {
    log.extend(2 * flush);
    let value = b'a' + flush as u8;
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

#[test]
fn every_open_sees_the_newest_flush_and_any_flush_can_be_opened() {
    let driver = Driver::new();
    let Some(python) = driver.python() else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run.h5");
    let mut log = Log::begin(&path);
    grow(&mut log, 1);
    let mut command = python.command();
    command
        .args(["-c", READER])
        .arg(&path)
        .arg(project().join("tests/tools"));
    let mut reader = Answering::new(command);
    let mut ask = |question: &str| reader.ask(question, PATIENCE).unwrap();
    let mut copies = Vec::new();
    let texts = ["bb", "bbcc", "bbccdd", "bbccddee"];
    for (number, text) in (1..).zip(texts) {
        if number > 1 {
            grow(&mut log, number);
        }
        // The files of earlier flushes stay open, and stay what they are.
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
    assert!(said.contains("do not tell their times"), "{said}");
}
