//! Logs with a metadata image, as an HDF5 program defines them. The tests compare their views before and after the
//! close.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use h5logfs_catalog::direct::{self, Close, Opened, Options};
use h5logfs_common::error::Error;
use h5logfs_log::Tables;
use h5logfs_log::journal::metadata_image::{LoggedDataset, image_lines};
use h5logfs_log::journal::{Line, path_of};
use h5logfs_log::logvol::extent;
use h5logfs_log::logvol::names::subfile;
use h5logfs_log::source_dir::SourceDir;
use h5logfs_log::source_file::SourceFile;
use hdf5_metno_sys::h5p::*;
use hdf5_metno_sys::h5t::H5T_STD_U8LE;

use crate::common::PROGRAM;
use crate::common::amount::part;
use crate::common::encoder::{raw, read_whole};
use crate::common::metadata_image::{ImageLog, Made, Write};
use crate::common::numbers::Numbers;
use crate::common::readers::{Python, said as said_by};

fn run(arguments: &[&str], path: &Path) -> Output {
    let mut command = Command::new(PROGRAM);
    let (name, further) = arguments.split_first().unwrap();
    command.arg(name).arg(path).args(further).output().unwrap()
}

#[track_caller]
fn succeeds(arguments: &[&str], path: &Path) -> String {
    let output = run(arguments, path);
    let said = said_by(&output);
    assert!(output.status.success(), "{arguments:?}: {said}");
    said
}

fn options() -> Options {
    let mut options = Options::parse("index_dir=none".as_ref()).unwrap();
    options.scans.program = PROGRAM.into();
    options
}

fn source(path: &Path) -> SourceFile {
    let (dir, name) = SourceDir::of_file(path).unwrap();
    SourceFile::open(&dir, &name).unwrap()
}

/// Exports the canonical file.
#[track_caller]
fn export(log: &Path, name: &str) -> PathBuf {
    let out = log.with_file_name(name);
    succeeds(&["export", out.to_str().unwrap()], log);
    out
}

#[test]
fn what_a_program_defines_is_shown_and_closed() {
    for python in Python::all() {
        for format in part(vec!["earliest", "v110", "large"], 3) {
            let dir = tempfile::tempdir().unwrap();
            let made = Made::by(&python, dir.path(), format);
            let log = dir.path().join("log.h5");
            drop(made.log(&log));
            let unclosed = export(&log, "unclosed.h5");
            let same = |got: &Path| {
                python.same_with(&[], got, &made.native)?;
                // The program makes its file in another second.
                let metadata_image = dir.path().join("image.h5");
                python.same_with(&["--whole", "--no-data"], got, &metadata_image)
            };
            same(&unclosed).unwrap();
            // A close that was interrupted before its last step is repeated.
            let journal = fs::read(path_of(&log)).unwrap();
            succeeds(&["recover"], &log);
            fs::write(path_of(&log), journal).unwrap();
            let file = fs::File::options().write(true).open(&log).unwrap();
            file.set_len(file.metadata().unwrap().len() - 1).unwrap();
            same(&export(&log, "interrupted.h5")).unwrap();
            let said = succeeds(&["recover"], &log);
            assert!(
                said.contains("recovered 2 flushes of 22 datasets"),
                "{said}"
            );
            let closed = export(&log, "closed.h5");
            same(&closed).unwrap();
            // Other formats differ in versions of messages, and in the place of a large dataset.
            let bytes = |path: &Path| fs::read(path).unwrap();
            let is_same = format != "earliest" || bytes(&unclosed) == bytes(&closed);
            assert!(is_same, "{}, {format}", python.name);
        }
    }
}

#[test]
fn with_subfiles_only_the_master_has_the_objects() {
    let Some(python) = Python::old() else { return };
    let dir = tempfile::tempdir().unwrap();
    let made = Made::by(&python, dir.path(), "v110");
    let log = dir.path().join("log.h5");
    drop(made.fill(ImageLog::with_subfiles(&log, 2)));
    let same = |name| python.same_with(&[], &export(&log, name), &made.native);
    same("unclosed.h5").unwrap();
    succeeds(&["recover"], &log);
    same("closed.h5").unwrap();
    let master = hdf5::File::open(&log).unwrap();
    assert!(!master.link_exists("_LOG") && master.link_exists("__LOG"));
    let first = hdf5::File::open(subfile(&log, 0)).unwrap();
    assert_eq!(first.member_names().unwrap(), ["_LOG"]);
}

/// A file of one dataset of bytes, `/d`, with `elements` elements, and a group for each of them but the first.
/// Returns its bytes, and the address of the dataset.
fn image(dir: &Path, elements: u64) -> (Vec<u8>, u64) {
    let path = dir.join("image.h5");
    let file = raw::create_file(&path, 0, false);
    let (space, datatype) = (raw::space(&[elements]), raw::standard(H5T_STD_U8LE));
    let dataset = raw::create_dataset(&file, "d", &datatype, &space, &raw::dataset_properties());
    for number in 1..elements {
        raw::create_group(&file, &format!("group {number}"));
    }
    let header = raw::address(&dataset);
    drop((dataset, file));
    (fs::read(path).unwrap(), header)
}

/// Writes one more element of `/d`, after a gap.
fn flush(log: &mut ImageLog, dir: &Path, number: u64) {
    let (image, header) = image(dir, number);
    log.set_image(&image);
    log.set_logged(0, Some(header));
    log.extent(0, &[]);
    let write = Write {
        id: 0,
        start: vec![number - 1],
        count: vec![1],
        bytes: vec![number as u8],
    };
    log.extent(1, &[write]);
    log.flush();
}

/// The elements of `/d`, and the number of groups.
#[track_caller]
fn shown(log: &Path) -> (Vec<u8>, usize) {
    let out = export(log, "out.h5");
    let file = hdf5::File::open(&out).unwrap();
    let shown = file.dataset("d").unwrap().read_raw().unwrap();
    let groups = file.member_names().unwrap().len() - 1;
    fs::remove_file(out).unwrap();
    (shown, groups)
}

/// The expected result of [`shown`] after `flushes` flushes.
fn after(flushes: u8) -> (Vec<u8>, usize) {
    ((1..=flushes).collect(), usize::from(flushes) - 1)
}

#[test]
fn each_flush_shows_its_objects_and_an_append_begins_with_the_last_ones() {
    let temp = tempfile::tempdir().unwrap();
    let (dir, path) = (temp.path(), temp.path().join("log.h5"));
    let mut log = ImageLog::begin(&path);
    for number in 1..=3 {
        flush(&mut log, dir, number);
        assert_eq!(shown(&path), after(number as u8));
    }
    let said = succeeds(&["inspect"], &path);
    for words in [
        "note: not closed: shown as flush 3 left it. An HDF5 program writes it: ",
        "note: 3000 bytes of its files are gaps",
        "its job is running",
    ] {
        assert!(said.contains(words), "{said}");
    }
    let running = run(&["recover"], &path);
    assert!(said_by(&running).contains("is still running"));
    drop(log);
    succeeds(&["recover", "--last-flush", "2"], &path);
    assert_eq!(shown(&path), after(2));

    // The append knows the end of the log, and the last flush.
    let snapshot = direct::snapshot(&path, &options()).unwrap().unwrap();
    let Tables::LogVol(tables) = &snapshot.log else {
        panic!("another layout");
    };
    let end = tables.data[0].offset + tables.data[0].len;
    let source = source(&path);
    assert_eq!(extent::last_flush(&source, end).unwrap(), 2);
    let (begin, header) = image(dir, 2);
    let mut lines = image_lines(&[], &begin).unwrap();
    let id = 0;
    let header = Some(header);
    lines.push(Line::Logged(LoggedDataset { id, header }));
    let mut log = ImageLog::append(&path, 2, end, lines);
    assert_eq!(shown(&path), after(2));
    let said = succeeds(&["check"], &path);
    assert!(
        said.contains("in an append that began after flush 2"),
        "{said}"
    );
    assert!(said.contains("log.h5: good"), "{said}");
    log.continue_with(&begin);
    flush(&mut log, dir, 3);
    assert_eq!(shown(&path), after(3));
    drop(log);
    let refused = said_by(&run(&["recover", "--last-flush", "1"], &path));
    let words =
        "its last append began after flush 2, and what it had after flush 1 is no longer known";
    assert!(refused.contains(words), "{refused}");
    assert_eq!(shown(&path), after(3));
    let said = succeeds(&["recover"], &path);
    assert!(said.contains("recovered 3 flushes of 1 dataset"), "{said}");
    assert_eq!(shown(&path), after(3));
}

#[test]
fn the_program_closes_logs_for_hosts() {
    let temp = tempfile::tempdir().unwrap();
    let (dir, path) = (temp.path(), temp.path().join("log.h5"));
    let mut log = ImageLog::begin(&path);
    flush(&mut log, dir, 1);
    let close = |options: &Options| direct::close_log(&path, Close::default(), options);
    let running = close(&options()).unwrap_err().to_string();
    assert!(
        running.contains("the job that writes it is still running"),
        "{running}"
    );
    let mut missing = options();
    missing.scans.program = dir.join("nothing");
    let failed = close(&missing).unwrap_err().to_string();
    assert!(
        failed.contains("nothing cannot be started: No such file"),
        "{failed}"
    );
    // A process that was forked while the log was open shares the lock, but does not keep it.
    let _same = log.lock();
    log.unlock();
    close(&options()).unwrap();
    assert_eq!(shown(&path), after(1));
    assert!(!path_of(&path).exists());
    // Again, with a wait for the disk.
    let how = Close {
        sync: true,
        ..Close::default()
    };
    direct::close_log(&path, how, &options()).unwrap();
}

/// Thresholds of zero put all links and attributes of the root group into heaps.
#[test]
fn a_root_group_with_all_its_names_in_heaps_is_closed() {
    let temp = tempfile::tempdir().unwrap();
    let (dir, path) = (temp.path(), temp.path().join("log.h5"));
    let native = dir.join("native.h5");
    let creation = raw::file_properties();
    let order = H5P_CRT_ORDER_TRACKED | H5P_CRT_ORDER_INDEXED;
    // SAFETY: the property list is open, and the calls take numbers.
    unsafe {
        assert!(H5Pset_link_creation_order(creation.get(), order) >= 0);
        assert!(H5Pset_attr_creation_order(creation.get(), order) >= 0);
        assert!(H5Pset_link_phase_change(creation.get(), 0, 0) >= 0);
        assert!(H5Pset_attr_phase_change(creation.get(), 0, 0) >= 0);
    }
    let file = raw::create_file_with(&native, &creation, true);
    for number in 0..50 {
        raw::create_group(&file, &format!("group {}", 100 - number));
    }
    drop(file);
    let mut log = ImageLog::begin(&path);
    log.set_image(&fs::read(&native).unwrap());
    log.flush();
    drop(log);
    let unclosed = fs::read(export(&path, "unclosed.h5")).unwrap();
    succeeds(&["recover"], &path);
    let closed = export(&path, "closed.h5");
    assert!(fs::read(&closed).unwrap() == unclosed);
    for python in Python::all() {
        python.same_with(&["--whole"], &closed, &native).unwrap();
    }
}

/// Flips bits of the image and of the rest of the journal, with correct checksums. The program reports the fault or
/// shows something. Neither the program nor the test crashes; the test scans in another process.
#[test]
fn damaged_metadata_images_harm_nothing() {
    let Some(python) = Python::old() else { return };
    let temp = tempfile::tempdir().unwrap();
    let made = Made::by(&python, temp.path(), "v110");
    let path = temp.path().join("log.h5");
    let mut numbers = Numbers(17);
    let mut opened = 0;
    const CASES: usize = 60;
    for _ in 0..CASES {
        let mut image = made.image.clone();
        for _ in 0..1 + numbers.below(4) {
            let at = numbers.below(image.len() as u64) as usize;
            image[at] ^= 1 << numbers.below(8);
        }
        let _ = fs::remove_file(path_of(&path));
        let mut log = ImageLog::begin(&path);
        log.set_image(&image);
        made.set_logged(&mut log);
        log.extent(0, &made.writes);
        log.flush();
        drop(log);
        match direct::open(&path, &options()) {
            Ok(Opened::Log(log)) => {
                opened += 1;
                // Elements may be unreadable.
                let _ = read_whole(log.view());
            }
            Ok(Opened::Plain) => panic!("a log that is not closed is none"),
            Err(error) => assert!(!matches!(error, Error::NotALog { .. }), "{error}"),
        }
    }
    assert!((1..CASES).contains(&opened), "{opened}");
    // Impossible lines.
    let header = made.headers[0];
    for (headers, words) in [
        (
            vec![header, header],
            "the datasets 0 and 1 are the same object",
        ),
        (vec![Some(u64::MAX), Some(1)], ""),
    ] {
        let _ = fs::remove_file(path_of(&path));
        let mut log = ImageLog::begin(&path);
        log.set_image(&made.image);
        for (id, header) in (0..).zip(headers) {
            log.set_logged(id, header);
        }
        log.flush();
        drop(log);
        let said = said_by(&run(&["inspect"], &path));
        assert!(said.contains(words), "{said}");
        let recovered = run(&["recover"], &path);
        assert_eq!(
            recovered.status.success(),
            words.is_empty(),
            "{}",
            said_by(&recovered)
        );
    }
}
