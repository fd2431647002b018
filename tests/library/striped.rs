//! HDF5 files in several parts: subfiling and families.

use std::ffi::OsStr;
use std::fs::{self, OpenOptions, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

use crate::common::encoder::read_whole;
use crate::common::is_root;
use crate::common::striped::{CASES, copy, corpus};
use h5logfs_catalog::direct::{self, OpenLog, Opened, Options};
use h5logfs_common::diagnostic::Severity;
use h5logfs_common::error::Error;
use h5logfs_log::scan::{ScanRequest, Settings};
use h5logfs_log::walk;
use tempfile::TempDir;

/// The name of the stub in all copied sets, and the inode number in the names of their subfiles.
const STUB: &str = "data.h5";

/// A program that must not run: no scan is needed.
fn try_open(path: &Path, options: &str) -> Result<Opened, Error> {
    let mut options = Options::parse(OsStr::new(options)).unwrap();
    options.scans.program = "/no/program".into();
    direct::open(path, &options)
}

fn open(path: &Path, options: &str) -> OpenLog {
    match try_open(path, options) {
        Ok(Opened::Log(log)) => log,
        Ok(Opened::Plain) => panic!("{}: plain", path.display()),
        Err(e) => panic!("{e}"),
    }
}

#[track_caller]
fn refused(path: &Path, words: &[&str]) {
    match try_open(path, "") {
        Err(e) => {
            let text = e.to_string();
            assert!(words.iter().all(|word| text.contains(word)), "{text}");
        }
        Ok(opened) => panic!("{}: {opened:?}", path.display()),
    }
}

#[track_caller]
fn is_plain(path: &Path) {
    assert!(
        matches!(try_open(path, ""), Ok(Opened::Plain)),
        "{}",
        path.display()
    );
}

fn diagnostics(log: &OpenLog, severity: Severity) -> Vec<String> {
    let found = log.view().snapshot().diagnostics.iter();
    let found = found.filter(|d| d.severity == severity);
    found.map(ToString::to_string).collect()
}

#[test]
fn each_file_is_the_one_that_it_should_be() {
    for case in CASES {
        let log = open(&case.path(), &case.options());
        let expected = fs::read(case.expected()).unwrap();
        assert!(read_whole(log.view()).unwrap() == expected, "{}", case.name);
        // Pieces that end and begin within stripes.
        for step in [1, 7, 1000, 4096, 5001] {
            for at in (0..expected.len()).step_by(step * 37 + 1) {
                let mut buf = vec![0; step];
                let read = log.read_at(at as u64, &mut buf).unwrap();
                let end = expected.len().min(at + step);
                assert!(buf[..read] == expected[at..end], "{} at {at}", case.name);
            }
        }
        let lost = diagnostics(&log, Severity::Lost);
        assert!(lost.is_empty(), "{}: {lost:?}", case.name);
    }
}

/// A file merged by h5fuse or `export` has all its bytes, and the driver information of a stub.
#[test]
fn a_file_that_was_put_together_is_a_plain_one() {
    for case in CASES {
        is_plain(&case.expected());
    }
}

/// A copy of a set. Its stub has another inode number than the names of the subfiles say.
fn set(name: &str) -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    copy(name, dir.path());
    let stub = dir.path().join(STUB);
    (dir, stub)
}

/// The paths of the subfiles and of the configuration beside a stub.
fn parts(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let is_part = |path: &PathBuf| {
        path.file_name()
            .is_some_and(|name| name.as_bytes().len() > 10)
    };
    let mut parts: Vec<PathBuf> = paths.filter(is_part).collect();
    parts.sort();
    parts
}

/// Renames the parts as if the stub had the inode number `inode`.
fn rename(dir: &Path, inode: u64) {
    for part in parts(dir) {
        let name = part.file_name().unwrap().to_str().unwrap();
        let (front, back) = name.split_once(".subfile_").unwrap();
        let digits = back.find(|c: char| !c.is_ascii_digit()).unwrap();
        let name = format!("{front}.subfile_{inode}{}", &back[digits..]);
        fs::rename(&part, dir.join(name)).unwrap();
    }
}

/// The parts of a set, its configuration first.
fn subfile(dir: &Path, number: usize) -> PathBuf {
    let suffix = format!("_{number}_of_");
    let mut parts = parts(dir).into_iter();
    parts
        .find(|path| path.to_str().unwrap().contains(&suffix))
        .unwrap()
}

fn config(dir: &Path) -> PathBuf {
    let mut parts = parts(dir).into_iter();
    parts
        .find(|path| path.extension() == Some(OsStr::new("config")))
        .unwrap()
}

#[test]
fn a_stub_alone_is_never_shown() {
    for name in ["contig_2", "v220_zero_stub"] {
        let (dir, stub) = set(name);
        parts(dir.path())
            .iter()
            .for_each(|part| fs::remove_file(part).unwrap());
        refused(
            &stub,
            &["2 subfiles", "data.h5.subfile_*_1_of_2", "subfile_dir="],
        );
    }
    // A stub has zeros in place of all else, however it was copied.
    let (dir, stub) = set("v220_zero_stub");
    let bytes = fs::read(&stub).unwrap();
    parts(dir.path())
        .iter()
        .for_each(|part| fs::remove_file(part).unwrap());
    fs::write(dir.path().join("copy.h5"), bytes).unwrap();
    refused(&dir.path().join("copy.h5"), &["2 subfiles"]);
}

#[test]
fn a_program_that_never_flushed_has_left_nothing_to_show() {
    let (_dir, stub) = set("killed_unflushed");
    refused(&stub, &[STUB, "no HDF5 superblock", "never flushed"]);
}

#[test]
fn a_file_that_was_not_closed_is_shown_and_says_so() {
    let (_dir, stub) = set("killed_flushed");
    let log = open(&stub, "");
    assert_eq!(log.len(), 118_264);
    let notes = diagnostics(&log, Severity::Note).join("\n");
    assert!(
        notes.contains("ends at 53248, and its subfiles at 118264"),
        "{notes}"
    );
}

#[test]
fn a_copy_is_found_by_its_superblock_and_says_so() {
    let (dir, stub) = set("contig_2");
    let log = open(&stub, "");
    let notes = diagnostics(&log, Severity::Note).join("\n");
    assert!(
        notes.contains("it is a copy") && notes.contains("6456011"),
        "{notes}"
    );
    drop(log);
    rename(dir.path(), fs::metadata(&stub).unwrap().ino());
    assert!(diagnostics(&open(&stub, ""), Severity::Note).is_empty());
    // The subfiles of an earlier file of this name then do no harm.
    copy("v220_zero_stub", &dir.path().join("other"));
    for part in parts(&dir.path().join("other")) {
        fs::copy(&part, dir.path().join(part.file_name().unwrap())).unwrap();
    }
    let expected = fs::read(corpus().join("contig_2.expected.h5")).unwrap();
    assert!(read_whole(open(&stub, "").view()).unwrap() == expected);
}

/// `H5FD_SUBFILING_SUBFILE_PREFIX` may name the directory of the stub.
#[test]
fn the_directory_of_the_stub_may_be_named_as_another_one() {
    for (name, stub) in [("contig_2", STUB), ("family", "fam_00000.h5")] {
        let dir = tempfile::tempdir().unwrap();
        copy(name, dir.path());
        let options = format!("subfile_dir={}", dir.path().display());
        let stub = dir.path().join(stub);
        assert_eq!(open(&stub, &options).len(), open(&stub, "").len());
    }
}

#[test]
fn no_set_is_guessed() {
    let (dir, stub) = set("contig_2");
    let own = parts(dir.path());
    for part in &own {
        let name = part
            .file_name()
            .unwrap()
            .to_str()
            .unwrap()
            .replace("6456011", "77");
        fs::copy(part, dir.path().join(name)).unwrap();
    }
    refused(&stub, &["subfile_77_1_of_2", "subfile_6456011_1_of_2"]);
    // A subfile of another file is recognised.
    let (dir, stub) = set("contig_2");
    let (other, _) = set("chunk_3_ioc1");
    for part in parts(other.path()) {
        fs::copy(&part, dir.path().join(part.file_name().unwrap())).unwrap();
    }
    assert_eq!(open(&stub, "").len(), 123_680);
    for part in own.iter().filter_map(|part| part.file_name()) {
        fs::remove_file(dir.path().join(part)).unwrap();
    }
    refused(&stub, &["contradict", "3 subfiles", "and 2 with"]);
}

/// No lock would reveal that a job writes it.
#[test]
fn a_file_in_several_parts_is_not_deleted() {
    let (dir, stub) = set("contig_2");
    let before = parts(dir.path());
    let error = direct::delete(&stub, &Options::default()).unwrap_err();
    assert!(error.to_string().contains("delete both by hand"), "{error}");
    assert!(stub.exists() && parts(dir.path()) == before);
}

/// Any scan, without a look at the file before.
#[test]
fn a_scan_takes_no_stub_for_a_plain_file() {
    let (_dir, stub) = set("v220_zero_stub");
    let (dir, relative) = walk::directory_of(&stub).unwrap();
    let settings = Settings::default();
    let request = ScanRequest::alone(&dir, &relative, &settings);
    let scanned = h5logfs_scan::scan(request);
    match scanned {
        Err(Error::NotALog { .. }) | Ok(_) => panic!("{scanned:?}"),
        Err(e) => assert!(e.to_string().contains("in subfiles"), "{e}"),
    }
}

/// Unreadable bytes, in pieces of 512.
fn unreadable(log: &OpenLog, expected: &[u8]) -> Vec<(usize, String)> {
    let mut failed = Vec::new();
    for (number, piece) in expected.chunks(512).enumerate() {
        let at = number * 512;
        let mut buf = vec![0; piece.len()];
        match log.read_at(at as u64, &mut buf) {
            Ok(_) => assert!(buf == piece, "at {at}"),
            Err(e) => failed.push((at, e.to_string())),
        }
    }
    failed
}

#[test]
fn what_a_missing_subfile_holds_is_an_error_and_all_else_is_read() {
    let (_dir, stub) = set("missing_2of3");
    let log = open(&stub, "");
    let lost = diagnostics(&log, Severity::Lost).join("\n");
    assert!(
        lost.contains("subfile_6456253_2_of_3: it is missing: its 40960 bytes"),
        "{lost}"
    );
    let len = log.len() as usize;
    let mut failed = 0;
    for at in (0..len).step_by(512) {
        let mut buf = [0; 512];
        let is_missing = at / 4096 % 3 == 1;
        match log.read_at(at as u64, &mut buf) {
            Ok(_) => assert!(!is_missing, "{at}"),
            Err(e) => {
                let text = e.to_string();
                assert!(
                    is_missing && text.contains("_2_of_3, which is missing"),
                    "{text}"
                );
                failed += 1;
            }
        }
    }
    assert_eq!(failed, 40960 / 512);
}

#[test]
fn what_a_short_subfile_lacks_is_an_error_and_no_zeros() {
    let (_dir, stub) = set("truncated_1of3");
    let log = open(&stub, "");
    let lost = diagnostics(&log, Severity::Lost).join("\n");
    assert!(
        lost.contains("it has 37960 bytes, where it should have 40960"),
        "{lost}"
    );
    let mut buf = vec![0; 1];
    // Byte 37960 of the second subfile.
    let first = (37960 / 4096 * 3 + 1) * 4096 + 37960 % 4096;
    assert!(log.read_at(first - 1, &mut buf).is_ok());
    let error = log.read_at(first, &mut buf).unwrap_err().to_string();
    assert!(
        error.contains("2_of_3, which has 37960 bytes, where it should have 40960"),
        "{error}"
    );
    let whole = read_whole(log.view());
    assert!(whole.is_err());
    // The last subfile is too short in the same way.
    let (dir, stub) = set("contig_2");
    let last = OpenOptions::new()
        .write(true)
        .open(subfile(dir.path(), 1))
        .unwrap();
    last.set_len(62_000).unwrap();
    let log = open(&stub, "");
    assert_eq!(log.len(), 123_680);
    let expected = fs::read(corpus().join("contig_2.expected.h5")).unwrap();
    let failed = unreadable(&log, &expected);
    assert_eq!(failed.len(), 1, "{failed:?}");
}

#[test]
fn a_configuration_may_be_missing() {
    let (dir, stub) = set("one_subfile");
    let first = subfile(dir.path(), 1);
    fs::remove_file(config(dir.path())).unwrap();
    assert_eq!(open(&stub, "").len(), fs::metadata(first).unwrap().len());
    let notes = diagnostics(&open(&stub, ""), Severity::Note).join("\n");
    assert!(notes.contains("its configuration is missing"), "{notes}");
}

#[test]
fn hostile_configurations_are_refused_by_name() {
    let (dir, stub) = set("contig_2");
    let config = config(dir.path());
    let with = |text: &str, words: &[&str]| {
        fs::write(&config, text).unwrap();
        refused(&stub, words);
    };
    with(
        "stripe_size=0\nsubfile_count=2\n",
        &["config", "stripes of 0 bytes"],
    );
    with(
        "stripe_size=4096\nsubfile_count=1000000000\n",
        &["1000000000 subfiles"],
    );
    with(
        "stripe_size=4096\nsubfile_count=3\n",
        &["contradict", "3 subfiles", "and 2 with"],
    );
    with(
        "stripe_size=8192\nsubfile_count=2\n",
        &["contradict", "8192", "4096"],
    );
    with("", &["no stripe_size"]);
    // Paths in it are not followed.
    let text = "stripe_size=4096\nsubfile_count=2\nhdf5_file=/etc/passwd\nsubfile_dir=/etc\n../../etc/passwd\n";
    fs::write(&config, text).unwrap();
    assert_eq!(open(&stub, "").len(), 123_680);
    // A line of any length.
    let file = OpenOptions::new().write(true).open(&config).unwrap();
    file.set_len(1 << 32).unwrap();
    file.write_all_at(&[b'x'; 100], 0).unwrap();
    refused(&stub, &["no stripe_size"]);
}

#[test]
fn subfiles_whose_names_were_swapped_are_refused() {
    let (dir, stub) = set("contig_2");
    let (first, second) = (subfile(dir.path(), 1), subfile(dir.path(), 2));
    let between = dir.path().join("x");
    fs::rename(&first, &between).unwrap();
    fs::rename(&second, &first).unwrap();
    fs::rename(&between, &second).unwrap();
    refused(&stub, &["_1_of_2 begins with another superblock"]);
    rename(dir.path(), fs::metadata(&stub).unwrap().ino());
    refused(&stub, &["_1_of_2 does not begin with its superblock"]);
}

/// Another user may have put the subfiles there.
#[test]
fn subfiles_of_other_users_do_not_count() {
    if !is_root() {
        eprintln!("skipped: only root can make files of several users");
        return;
    }
    let (dir, stub) = set("contig_2");
    let own = |path: &Path, owner| chown(path, Some(owner), None).unwrap();
    fs::set_permissions(dir.path(), Permissions::from_mode(0o1777)).unwrap();
    own(&stub, 61_001);
    parts(dir.path()).iter().for_each(|part| own(part, 61_001));
    assert!(diagnostics(&open(&stub, ""), Severity::Lost).is_empty());
    own(&subfile(dir.path(), 2), 61_002);
    let log = open(&stub, "");
    let lost = diagnostics(&log, Severity::Lost).join("\n");
    assert!(lost.contains("_2_of_2: it is missing"), "{lost}");
    let notes = diagnostics(&log, Severity::Note).join("\n");
    assert!(notes.contains("61002"), "{notes}");
    assert!(log.read_at(4096, &mut [0]).is_err() && log.read_at(0, &mut [0]).is_ok());
    parts(dir.path()).iter().for_each(|part| own(part, 61_002));
    refused(&stub, &["none of them is there"]);
}

#[test]
fn a_subfile_leads_to_the_file_where_the_stub_is_gone() {
    let (dir, stub) = set("contig_2");
    fs::remove_file(stub).unwrap();
    let expected = fs::read(corpus().join("contig_2.expected.h5")).unwrap();
    let log = open(&subfile(dir.path(), 1), "");
    assert!(read_whole(log.view()).unwrap() == expected);
    is_plain(&subfile(dir.path(), 2));
}

#[test]
fn members_of_families_must_all_be_there() {
    let dir = tempfile::tempdir().unwrap();
    copy("family", dir.path());
    let first = dir.path().join("fam_00000.h5");
    let second = dir.path().join("fam_00001.h5");
    let bytes = fs::read(&second).unwrap();
    fs::write(&second, &bytes[..15_000]).unwrap();
    let log = open(&first, "");
    let expected = fs::read(corpus().join("fam.expected.h5")).unwrap();
    let failed = unreadable(&log, &expected);
    assert!(
        failed.iter().all(|(at, _)| (34_816..40_000).contains(at)),
        "{failed:?}"
    );
    assert!(failed.len() >= 10 && failed[0].1.contains("fam_00001.h5, which has 15000 bytes"));
    fs::remove_file(&second).unwrap();
    refused(&first, &["fam_00001.h5 is missing", "3 members"]);
    // The name must determine the members.
    let renamed = dir.path().join("fam.h5");
    fs::rename(&first, &renamed).unwrap();
    refused(&renamed, &["first of 3 members"]);
}

/// HDF5 reports that they need another driver, and the commands say why they are not shown.
#[test]
fn split_and_multi_files_are_left_to_their_drivers() {
    for name in [
        "split/sp-m.h5",
        "split/spL-m.h5",
        "multi/mu-s.h5",
        "multi/muL-s.h5",
    ] {
        let path = corpus().join(name);
        is_plain(&path);
        let output = std::process::Command::new(crate::common::PROGRAM)
            .arg("inspect")
            .arg(&path)
            .output();
        let said = crate::common::messages(&output.unwrap());
        assert!(said.contains("split or multi file"), "{name}: {said}");
    }
}
