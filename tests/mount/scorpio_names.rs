//! Directories of SCORPIO: the names by which mounts and commands know them.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;
use std::process::Command;

use rustix::io::Errno;
use tempfile::TempDir;

use crate::common::people::*;
use crate::common::readers::{Python, said};
use crate::common::{Mounted, PROGRAM, User, can_mount, errno, names_in, wait_until};
use crate::log_dirs::{contents, output, refused, tree, view};

/// A directory of SCORPIO with few variables.
fn make(directory: &Path) {
    copy(&corpus("corpus-scorpio/basic_r1.nc.bp"), directory);
}

/// A source in which `tiny.nc` is a link into its directory, `moved.nc` a link that leads nowhere, `old.nc` a link to the
/// directory itself, and `b4.nc` nothing. `own.nc` is a file.
fn source() -> TempDir {
    let source = open_source();
    let at = |name: &str| source.path().join(name);
    for (name, of) in [
        ("tiny.nc.bp", "tiny_r4io4"),
        ("moved.nc.bp", "basic_r1"),
        ("old.nc.bp", "basic_r1"),
        ("b4.nc.bp", "b4_tiny_r2"),
        ("own.nc.bp", "basic_r1"),
        ("plain", "basic_r1"),
    ] {
        copy(&corpus(&format!("corpus-scorpio/{of}.nc.bp")), &at(name));
    }
    symlink("tiny.nc.bp/md.0", at("tiny.nc")).unwrap();
    symlink("run/moved.nc.bp/md.0", at("moved.nc")).unwrap();
    symlink("old.nc.bp", at("old.nc")).unwrap();
    fs::write(at("own.nc"), "a file").unwrap();
    copy(&corpus("corpus-adios/b5_steps.bp"), &at("other.bp"));
    source
}

const MEANT: [&str; 4] = ["b4.nc", "moved.nc", "old.nc", "tiny.nc"];

#[test]
fn a_directory_of_scorpio_is_the_file_that_the_program_meant() {
    if !can_mount(User::Caller) {
        return;
    }
    let source = source();
    let mounted = Mounted::new(source.path(), "index_dir=none");
    let listed = [
        "f b4.nc",
        "f moved.nc",
        "f old.nc",
        "f other.bp",
        "f own.nc",
        "f own.nc.bp",
        "f plain",
        "f tiny.nc",
    ];
    assert_eq!(tree(mounted.path()), listed);
    for name in MEANT {
        let bytes = view(&mounted.join(name));
        for ending in [".bp", ".bp.h5"] {
            let other = format!("{name}{ending}");
            assert!(view(&mounted.join(&other)) == bytes, "{other}");
        }
        let found = mounted.join(name).symlink_metadata().unwrap();
        let index = source.path().join(format!("{name}.bp/md.idx"));
        let index = index.metadata().unwrap();
        assert!(found.is_file() && found.len() == bytes.len() as u64);
        assert_eq!(
            (found.mode(), found.mtime(), found.uid()),
            (index.mode(), index.mtime(), index.uid())
        );
        for below in ["", ".bp"] {
            let below = mounted.join(format!("{name}{below}/md.0"));
            assert_eq!(errno(fs::read(below)), Some(Errno::NOTDIR));
        }
    }
    assert_eq!(fs::read(mounted.join("own.nc")).unwrap(), b"a file");
    view(&mounted.join("own.nc.bp"));
    for none in ["other", "tiny", "tiny.nc.h5", "tiny.nc.bp.bp", ".nc"] {
        assert_eq!(errno(fs::read(mounted.join(none))), Some(Errno::NOENT));
    }
    for python in Python::all() {
        let code = "
import sys, h5py
for name in sys.argv[2:]:
    with h5py.File(f'{sys.argv[1]}/{name}', 'r') as f:
        assert len(f) > 0, name
";
        python.run(
            code,
            &[&[mounted.path()][..], &MEANT.map(Path::new)].concat(),
        );
    }
    output("ls", &[OsStr::new("-lR"), mounted.path().as_os_str()]);
}

#[test]
fn a_directory_of_scorpio_is_shown_as_it_is_beside_the_file_that_was_meant() {
    if !can_mount(User::Caller) {
        return;
    }
    let source = source();
    let mounted = Mounted::new(source.path(), "index_dir=none,bp=directory");
    let mut expected = tree(source.path());
    expected.retain(|path| !path.starts_with("l "));
    expected.extend(MEANT.map(|name| format!("f {name}")));
    expected.extend(["other.bp", "own.nc.bp", "plain"].map(|name| format!("f {name}.h5")));
    expected.sort();
    assert_eq!(tree(mounted.path()), expected);
    for name in MEANT {
        let unlisted = mounted.join(format!("{name}.bp.h5"));
        assert!(view(&mounted.join(name)) == view(&unlisted), "{name}");
    }
    let part = Path::new("tiny.nc.bp/data.0");
    let raw = fs::read(source.path().join(part)).unwrap();
    assert!(fs::read(mounted.join("tiny.nc.bp/data.0")).unwrap() == raw);
}

/// More names than fit into one page.
#[test]
fn long_listings_have_each_file_that_was_meant_once() {
    if !can_mount(User::Caller) {
        return;
    }
    let source = open_source();
    let (mut meant, mut all) = (Vec::new(), Vec::new());
    for number in 0..150 {
        let name = format!("{number:0width$}.nc", width = 5 + number % 61);
        let directory = format!("{name}.bp");
        make(&source.path().join(&directory));
        if number % 2 == 0 {
            symlink(format!("{directory}/md.0"), source.path().join(&name)).unwrap();
        }
        meant.push(name.clone());
        all.extend([name, directory]);
    }
    meant.sort();
    all.sort();
    let mounted = Mounted::new(source.path(), "index_dir=none");
    assert_eq!(names_in(mounted.path()), meant);
    let is_file = |name: &String| mounted.join(name).symlink_metadata().unwrap().is_file();
    assert!(meant.iter().all(is_file));
    let mounted = Mounted::new(source.path(), "index_dir=none,bp=directory");
    assert_eq!(names_in(mounted.path()), all);
}

#[test]
fn names_of_scorpio_change_with_what_is_there() {
    if !can_mount(User::Caller) {
        return;
    }
    let source = open_source();
    let at = |name: &str| source.path().join(name);
    make(&at("run.nc.bp"));
    let index = fs::read(at("run.nc.bp/md.idx")).unwrap();
    // The first step is not complete.
    fs::write(at("run.nc.bp/md.idx"), &index[..64]).unwrap();
    let mounted = Mounted::new(source.path(), "index_dir=none");
    let is_file = |name: &str| {
        mounted
            .join(name)
            .symlink_metadata()
            .is_ok_and(|f| f.is_file())
    };
    assert_eq!(names_in(mounted.path()), ["run.nc.bp"]);
    assert!(!mounted.join("run.nc").exists());
    symlink("run.nc.bp/md.0", at("run.nc")).unwrap();
    wait_until("the link stands for a log without steps", || {
        is_file("run.nc")
    });
    assert_eq!(names_in(mounted.path()), ["run.nc"]);
    fs::remove_file(at("run.nc")).unwrap();
    wait_until("nothing stands for it", || !mounted.join("run.nc").exists());
    fs::write(at("run.nc.bp/md.idx"), &index).unwrap();
    wait_until("the first step", || is_file("run.nc"));
    assert_eq!(names_in(mounted.path()), ["run.nc"]);
    let bytes = view(&mounted.join("run.nc"));
    // The converter has run.
    fs::write(at("run.nc"), "a file").unwrap();
    wait_until("the file counts", || {
        fs::read(mounted.join("run.nc")).is_ok_and(|found| found == b"a file")
    });
    assert_eq!(names_in(mounted.path()), ["run.nc", "run.nc.bp"]);
    assert!(view(&mounted.join("run.nc.bp")) == bytes);
    fs::remove_file(at("run.nc")).unwrap();
    symlink("elsewhere", at("run.nc")).unwrap();
    wait_until("any other link stays", || {
        mounted
            .join("run.nc")
            .read_link()
            .is_ok_and(|to| to == Path::new("elsewhere"))
    });
    fs::remove_file(at("run.nc")).unwrap();
    fs::remove_dir_all(at("run.nc.bp")).unwrap();
    wait_until("nothing is left", || names_in(mounted.path()).is_empty());
    assert!(!mounted.join("run.nc").exists());
}

#[test]
fn one_directory_of_scorpio_can_be_mounted_by_each_of_its_names() {
    if !can_mount(User::Caller) {
        return;
    }
    let source = source();
    for name in ["tiny.nc", "tiny.nc.bp", "moved.nc", "b4.nc"] {
        let meant = name.trim_end_matches(".bp");
        let named = source.path().join(name);
        let mounted = Mounted::new(&named, "index_dir=none");
        assert_eq!(names_in(mounted.path()), [meant]);
        let directory = format!("{meant}.bp");
        assert!(view(&mounted.join(meant)) == view(&mounted.join(&directory)));
        assert_eq!(errno(fs::read(mounted.join("own.nc"))), Some(Errno::NOENT));
        let said = refused(&["inspect", mounted.join(meant).to_str().unwrap()]);
        let real = source.path().join(&directory);
        assert!(said.contains(real.to_str().unwrap()), "{said}");
        let mounted = Mounted::new(&named, "index_dir=none,bp=directory");
        assert_eq!(names_in(mounted.path()), [meant, &directory]);
    }
    // The file beside the directory is another one.
    let mounted = Mounted::new(&source.path().join("own.nc.bp"), "index_dir=none");
    assert_eq!(names_in(mounted.path()), ["own.nc.bp"]);
    assert_eq!(errno(fs::read(mounted.join("own.nc"))), Some(Errno::NOENT));
}

/// The names of one directory.
const ENDINGS: [&str; 5] = ["", ".bp", ".bp/", ".bp/md.idx", ".bp.h5"];

#[test]
fn commands_take_a_directory_of_scorpio_by_each_of_its_names() {
    let source = source();
    let at = |name: &str| source.path().join(name).to_str().unwrap().to_owned();
    let run = |arguments: &[&str]| {
        let arguments: Vec<_> = arguments.iter().map(OsStr::new).collect();
        String::from_utf8(output(PROGRAM, &arguments).stdout).unwrap()
    };
    for name in MEANT {
        let mut exported = None;
        for ending in ENDINGS {
            let (named, out) = (at(&format!("{name}{ending}")), at("out.h5"));
            run(&["inspect", &named]);
            run(&["check", &named]);
            run(&["follow", "--until", "closed", "--json", &named]);
            run(&["report", "--output", &at("out.html"), "--force", &named]);
            let listed = run(&["ls", &named]);
            assert!(
                listed.lines().count() == 2 && listed.contains(&named),
                "{listed}"
            );
            run(&["compact", "--force", &named, &out]);
            run(&["export", "--force", &named, &out]);
            let bytes = view(Path::new(&out));
            assert!(
                *exported.get_or_insert_with(|| bytes.clone()) == bytes,
                "{named}"
            );
        }
    }
    fs::remove_file(at("out.h5")).unwrap();
    fs::remove_file(at("out.html")).unwrap();
    let rows: serde_json::Value = serde_json::from_str(&run(&["ls", "--json", &at("")])).unwrap();
    let paths = rows.as_array().unwrap().iter();
    let names = paths.map(|row| {
        Path::new(row["path"].as_str().unwrap())
            .file_name()
            .unwrap()
    });
    let expected = [
        "b4.nc",
        "moved.nc",
        "old.nc",
        "other.bp",
        "own.nc.bp",
        "plain",
        "tiny.nc",
    ];
    assert_eq!(names.collect::<Vec<_>>(), expected);
    // The names are those of commands that take all logs in a directory, too.
    assert!(run(&["check", &at("")]).contains("/moved.nc"));
}

#[test]
fn messages_about_a_directory_of_scorpio_name_it_as_the_user_does() {
    let source = source();
    fs::remove_file(source.path().join("tiny.nc.bp/data.0")).unwrap();
    for name in ["tiny.nc", "tiny.nc.bp"] {
        let mut command = Command::new(PROGRAM);
        let command = command.current_dir(source.path());
        let command = command.args(["export", "--force", name, "out.h5"]);
        let said = said(&command.output().unwrap());
        let is_named = |line: &str| line.contains(&format!("{name}: ")) && line.contains("data.0");
        assert!(said.lines().any(is_named), "{said}");
        assert!(!said.contains(source.path().to_str().unwrap()), "{said}");
    }
    fs::remove_file(source.path().join("tiny.nc.bp/md.idx")).unwrap();
    let said = refused(&["inspect", source.path().join("tiny.nc").to_str().unwrap()]);
    let words = "tiny.nc.bp: is a directory of ADIOS2 without its index";
    assert!(said.contains(words), "{said}");
}

#[test]
fn an_export_replaces_the_link_alone() {
    let source = source();
    let at = |name: &str| source.path().join(name);
    let text = |name: &str| at(name).to_str().unwrap().to_owned();
    for command in ["export", "compact"] {
        for name in ["tiny.nc", "moved.nc", "old.nc"] {
            let (file, directory) = (at(name), at(&format!("{name}.bp")));
            let (link, before) = (fs::read_link(&file).unwrap(), contents(&directory));
            let said = refused(&[command, &text(name), &text(name)]);
            assert!(said.contains("is the link of SCORPIO"), "{said}");
            assert_eq!(fs::read_link(&file).unwrap(), link);
            let log = text(name);
            output(PROGRAM, &[command, "--force", &log, &log].map(OsStr::new));
            assert!(file.symlink_metadata().unwrap().is_file());
            view(&file);
            assert!(contents(&directory) == before, "{name}");
            // The file counts now, and is no log.
            let said = refused(&["inspect", &text(name)]);
            assert!(said.contains(name) && !said.contains(".bp"), "{said}");
            fs::remove_file(&file).unwrap();
            symlink(link, &file).unwrap();
        }
        // A name that is free needs no force.
        let before = contents(&at("b4.nc.bp"));
        output(
            PROGRAM,
            &[command, &text("b4.nc.bp"), &text("b4.nc")].map(OsStr::new),
        );
        view(&at("b4.nc"));
        assert!(contents(&at("b4.nc.bp")) == before);
        fs::remove_file(at("b4.nc")).unwrap();
        // Any other link is refused, as everywhere.
        symlink("tiny.nc.bp/md.0", at("other.nc")).unwrap();
        let said = refused(&[command, "--force", &text("b4.nc"), &text("other.nc")]);
        assert!(said.contains("is a symbolic link"), "{said}");
        fs::remove_file(at("other.nc")).unwrap();
    }
}

#[test]
fn nothing_changes_a_directory_of_scorpio() {
    let source = source();
    let before = contents(&source.path().join("tiny.nc.bp"));
    for ending in ENDINGS {
        let log = source.path().join(format!("tiny.nc{ending}"));
        for change in ["settle", "recover"] {
            let said = refused(&[change, log.to_str().unwrap()]);
            let words = "/tiny.nc.bp: is a directory of ADIOS2";
            assert!(said.contains(words), "{said}");
        }
    }
    assert!(contents(&source.path().join("tiny.nc.bp")) == before);
}
