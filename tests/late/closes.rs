//! A log that is closed while readers on another node open it. Readers see a whole flush, or all of the closed log.

use std::io::Read;

use h5logfs_scan::closing::{Asked, How, Outcome, recover};
use h5logfs_view::ChunkId;

use super::*;

/// The view of readers while the first node closes the log.
fn read_while_closed(number: u64, mode: Mode, options: &Options) -> Seen {
    let ranks = match mode {
        Mode::AnyTime => 1 + (number % 2) as usize,
        // The node that closes the log may see the writes of another node late.
        Mode::CloseToOpen => 1,
    };
    let place = Place::new(ranks + 1, mode, number);
    let paths = place.paths(ranks);
    let mut job = Job::create(&paths, options);
    let settings = settings(number);
    let read = || open_with(&place.path(), &settings).and_then(|view| shown(&view, ranks));
    let mut seen = Seen::default();
    for step in 0..4 {
        job.flush(course(number + step));
        seen.add(read(), job.flushes);
    }
    let flushes = job.flushes;
    job.die();
    let how = How {
        asked: match options.fsync {
            Fsync::None => Asked::CloseUnsynced,
            _ => Asked::Close,
        },
        ..How::default()
    };
    let outcome = recover(&paths[0], how).unwrap();
    assert!(matches!(outcome, Outcome::Recovered(_)));
    for _ in 0..60 {
        match read() {
            Err(_) => seen.late += 1,
            found => seen.add(found, flushes),
        }
    }
    place.settle();
    assert_eq!(read().unwrap(), Some(flushes));
    seen
}

fn whole_closes(mode: Mode) {
    if !can_mount(User::Caller) {
        return;
    }
    let mut all = Seen::default();
    // In job 34 the front of a close arrives while a reader opens the file.
    for number in rounds(6).chain([34]) {
        let one = read_while_closed(number, mode, &options(number));
        assert_eq!(one.mixed, 0, "job {number}: {one:?}");
        all.add_all(&one);
    }
    eprintln!("{mode:?}: {all:?}");
}

#[test]
fn a_close_is_seen_wholly_where_an_open_shows_what_was_closed() {
    whole_closes(Mode::CloseToOpen);
}

#[test]
fn a_close_is_seen_wholly_where_anything_may_be_late() {
    whole_closes(Mode::AnyTime);
}

/// Opens a log repeatedly on another node than the one that has just closed it, until this succeeds. Returns the number
/// of failures.
fn append_while_closed(number: u64, mode: Mode) -> u64 {
    let place = Place::new(2, mode, number);
    let options = options(number);
    let mut job = Job::create(&place.paths(1), &options);
    (0..4).for_each(|step| job.flush(course(number + step)));
    job.die();
    recover(&place.paths(1)[0], How::default()).unwrap();
    let mut refused = 0;
    let mut job = loop {
        match Job::append_to_closed(&[place.path()], &options) {
            Ok(job) => break job,
            Err(e) if refused == 1000 => panic!("job {number}: {e}"),
            Err(_) => refused += 1,
        }
    };
    assert_eq!(job.flushes, 4, "job {number}");
    job.flush(course(number));
    place.settle();
    let shown = open(&place.path()).and_then(|view| shown(&view, 1));
    assert_eq!(shown.unwrap(), Some(5), "job {number}");
    refused
}

#[test]
fn a_log_that_another_node_closed_is_opened_again_with_all_it_has() {
    if !can_mount(User::Caller) {
        return;
    }
    for mode in [Mode::CloseToOpen, Mode::AnyTime] {
        let refused: u64 = rounds(6)
            .map(|number| append_while_closed(number, mode))
            .sum();
        eprintln!("{mode:?}: refused {refused} times");
        assert!(refused > 0 || mode == Mode::CloseToOpen);
    }
}

/// The test shows that the seals protect readers.
#[test]
fn without_checksums_a_closed_log_may_show_what_was_never_written() {
    if !can_mount(User::Caller) {
        return;
    }
    let mut mixed = 0;
    for number in 0..6 {
        let place = Place::new(2, Mode::AnyTime, number);
        let paths = place.paths(1);
        let mut job = Job::create(&paths, &Options::default());
        (0..4).for_each(|step| job.flush(course(step)));
        job.die();
        recover(&paths[0], How::default()).unwrap();
        for _ in 0..8 {
            let found = open(&place.path()).and_then(|view| shown(&view, 1));
            mixed += u32::from(matches!(found, Ok(None)));
        }
    }
    eprintln!("{mixed} of 48 reads showed elements of no flush");
    assert!(mixed > 0);
}

/// Offset of row `flush` in the log file.
fn place_of(path: &Path, flush: u64) -> u64 {
    let bytes = std::fs::read(path).unwrap();
    let wanted: Vec<u8> = (0..WIDTH)
        .flat_map(|column| element(flush, column).to_le_bytes())
        .collect();
    let mut found = bytes.windows(wanted.len());
    found.position(|window| window == wanted).unwrap() as u64
}

fn turn(path: &Path, at: u64) {
    let file = std::fs::File::options().read(true).write(true).open(path);
    let file = file.unwrap();
    let modified = file.metadata().unwrap().modified().unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 0x55], at).unwrap();
    // Late data arrive without a change of the file's time.
    file.set_modified(modified).unwrap();
}

/// All ways to the elements of a closed log compare them with their checksums.
#[test]
fn mounts_the_driver_and_commands_refuse_data_that_do_not_match() {
    if !can_mount(User::Caller) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(NAME);
    let mut job = Job::create(std::slice::from_ref(&path), &options(0));
    (0..3).for_each(|_| job.flush(Course::default()));
    drop(job);
    recover(&path, How::default()).unwrap();
    let at = place_of(&path, 2) + 1000;
    turn(&path, at);
    let mounted = Mounted::new(dir.path(), "");
    let row = |flush: usize| {
        let file = hdf5::File::open(mounted.join(NAME)).unwrap();
        let rows = file.dataset("rows").unwrap();
        rows.read_slice_1d::<f64, _>((flush - 1, ..))
            .map(|row| is_row(flush as u64, row.into_iter()))
            .map_err(|e| e.to_string())
    };
    row(2).unwrap_err();
    let mut bytes = Vec::new();
    let mut file = std::fs::File::open(mounted.join(NAME)).unwrap();
    let error = file.read_to_end(&mut bytes).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(5), "{error}");
    let mut options = direct::Options::parse(OsStr::new("")).unwrap();
    options.scans.program = PROGRAM.into();
    let Opened::Log(log) = direct::open(&path, &options).unwrap() else {
        panic!("a plain file");
    };
    let said = shown(log.view(), 1).unwrap_err().to_string();
    assert!(
        said.contains("rank 0 in flush 2") && said.contains(NO_MATCH),
        "{said}"
    );
    // In the mount, chunks this small share pages with their neighbours.
    let datasets = &log.view().snapshot().datasets;
    let rows = datasets.iter().position(|dataset| dataset.name == "/rows");
    let chunk = |number| {
        log.view()
            .chunks()
            .stored(ChunkId::new(rows.unwrap(), number))
    };
    assert!(chunk(0).is_ok() && chunk(1).is_err() && chunk(2).is_ok());
    let output = Command::new(tested_program())
        .arg("compact")
        .args([&path, &dir.path().join("compact.h5")])
        .output()
        .unwrap();
    let said = messages(&output);
    assert!(
        !output.status.success() && said.contains(NO_MATCH),
        "{said}"
    );
    // This restores the bytes, as if they had arrived.
    turn(&path, at);
    assert_eq!(row(2), Ok(true));
    assert_eq!(shown(log.view(), 1).unwrap(), Some(3));
}

/// An incomplete table would hide entries, or give entries other selections.
#[test]
fn a_table_that_does_not_match_is_not_read() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(NAME);
    let mut job = Job::create(&[path.clone(), path.clone()], &options(0));
    (0..5).for_each(|step| job.flush(course(step)));
    job.die();
    recover(&path, How::default()).unwrap();
    let view = open(&path).unwrap();
    assert_eq!(shown(&view, 2).unwrap(), Some(5));
    let sealed = view.snapshot().sealed.as_ref().unwrap();
    let table = sealed.files[0].table.unwrap();
    for at in (table.offset..table.offset + table.len).step_by(37) {
        turn(&path, at);
        let view = open(&path).unwrap();
        let said = shown(&view, 2).unwrap_err().to_string();
        assert!(said.contains("the table at byte"), "byte {at}: {said}");
        turn(&path, at);
        assert_eq!(shown(&view, 2).unwrap(), Some(5));
    }
}
