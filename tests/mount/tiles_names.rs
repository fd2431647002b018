//! Sets of netCDF files, one for each process of a model: the names by which mounts and commands know them.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use rustix::io::Errno;
use tempfile::TempDir;

use crate::common::people::*;
use crate::common::{Mounted, PROGRAM, User, can_mount, errno, names_in};
use crate::log_dirs::{contents, output, refused, view};

/// The set of 12 files that make up `ocean.nc`.
const MEMBERS: usize = 12;

fn member(number: usize) -> String {
    format!("ocean.nc.{number:04}")
}

/// A source with a set, with a set that is refused, with a set whose name a file has, with names of two families, and with
/// numbered files that are no set.
fn source() -> TempDir {
    let source = open_source();
    let at = |name: &str| source.path().join(name);
    copy(&corpus("corpus-tiles/fms_iolayout/."), source.path());
    copy(&corpus("corpus-tiles/refused_icebergs/."), source.path());
    for number in [0, 1] {
        let own = format!("corpus-tiles/fms_iolayout/{}", member(number));
        for name in ["taken.nc.000", "both.nc.000", "both_000"] {
            let ending = if name.ends_with(".nc.000") { "" } else { ".nc" };
            fs::copy(corpus(&own), at(&format!("{name}{number}{ending}"))).unwrap();
        }
        fs::write(at(&format!("run_{number}.nc")), "text").unwrap();
    }
    fs::write(at("taken.nc"), "a file").unwrap();
    source
}

fn ordinary() -> Vec<String> {
    let names = [
        "both.nc.0000",
        "both.nc.0001",
        "both_0000.nc",
        "both_0001.nc",
        "icebergs.res.nc.0000",
        "icebergs.res.nc.0001",
        "run_0.nc",
        "run_1.nc",
        "taken.nc",
        "taken.nc.0000",
        "taken.nc.0001",
    ];
    names.map(str::to_owned).to_vec()
}

#[test]
fn the_file_that_a_set_makes_up_is_listed_as_the_option_says() {
    if !can_mount(User::Caller) {
        return;
    }
    let source = source();
    let members: Vec<String> = (0..MEMBERS).map(member).collect();
    let joined = vec!["ocean.nc".to_owned()];
    let mut bytes = None;
    for (option, shown) in [
        ("both", [joined.clone(), members.clone()].concat()),
        ("joined", joined),
        ("members", members),
    ] {
        let mounted = Mounted::new(source.path(), &format!("index_dir=none,tiles={option}"));
        let mut expected = [ordinary(), shown.clone()].concat();
        expected.sort();
        assert_eq!(names_in(mounted.path()), expected, "{option}");
        // A listing opens one member only.
        assert_eq!(mounted.scans(), 0, "{option}");
        output("ls", &[OsStr::new("-l"), mounted.path().as_os_str()]);
        let has = |name: &str| shown.contains(&name.to_owned());
        for name in ["ocean.nc", "ocean.nc.0000", "ocean.nc.0007"] {
            let found = fs::read(mounted.join(name));
            match has(name) {
                false => assert_eq!(errno(found), Some(Errno::NOENT), "{option}: {name}"),
                true if name == "ocean.nc" => {
                    let found = view(&mounted.join(name));
                    assert!(*bytes.get_or_insert(found.clone()) == found, "{option}");
                }
                true => {
                    let own = fs::read(source.path().join(name)).unwrap();
                    assert!(found.unwrap() == own, "{option}: {name}");
                }
            }
        }
        assert_eq!(fs::read(mounted.join("taken.nc")).unwrap(), b"a file");
        for none in ["both.nc", "icebergs.res.nc", "run.nc", "other.nc", ".nc"] {
            assert_eq!(errno(fs::metadata(mounted.join(none))), Some(Errno::NOENT));
        }
    }
}

#[test]
fn the_attributes_are_those_of_the_first_member_and_of_the_newest() {
    if !can_mount(User::Caller) {
        return;
    }
    let source = source();
    let at = |number| source.path().join(member(number));
    let mode = |number, mode| {
        fs::set_permissions(at(number), fs::Permissions::from_mode(mode)).unwrap();
    };
    mode(0, 0o644);
    mode(3, 0o640);
    mode(5, 0o604);
    let times = fs::FileTimes::new().set_modified(std::time::SystemTime::UNIX_EPOCH);
    for number in (0..MEMBERS).filter(|number| *number != 7) {
        let file = fs::File::options().write(true).open(at(number)).unwrap();
        file.set_times(times).unwrap();
    }
    let mounted = Mounted::new(source.path(), "index_dir=none");
    let found = mounted.join("ocean.nc").metadata().unwrap();
    let newest = at(7).metadata().unwrap();
    assert_eq!(found.len(), view(&mounted.join("ocean.nc")).len() as u64);
    assert_eq!(found.mode() & 0o777, 0o600);
    let time = |found: &fs::Metadata| (found.mtime(), found.mtime_nsec());
    assert_eq!(time(&found), time(&newest));
    assert_eq!(found.uid(), newest.uid());
}

#[test]
fn a_set_that_changes_is_another_file_for_the_next_open() {
    if !can_mount(User::Caller) {
        return;
    }
    let source = source();
    let mounted = Mounted::new(source.path(), "index_dir=none");
    let joined = mounted.join("ocean.nc");
    let before = view(&joined);
    // Another member than the first changes, and no name does.
    let last = source.path().join(member(MEMBERS - 1));
    let mut bytes = fs::read(&last).unwrap();
    let end = bytes.len() - 64;
    bytes[end..].fill(0x11);
    fs::write(&last, &bytes).unwrap();
    let changed = view(&joined);
    assert!(changed != before, "the change of a member is not seen");
    // A member vanishes, and comes back.
    fs::rename(&last, source.path().join("away")).unwrap();
    let without = view(&joined);
    assert!(without != changed, "the loss of a member is not seen");
    fs::rename(source.path().join("away"), &last).unwrap();
    assert!(
        view(&joined) == changed,
        "the return of a member is not seen"
    );
    // A file takes the joined name, and goes again.
    let real = source.path().join("ocean.nc");
    fs::write(&real, "a file").unwrap();
    crate::common::wait_until("the file counts", || {
        fs::read(&joined).is_ok_and(|bytes| bytes == b"a file")
    });
    fs::remove_file(real).unwrap();
    crate::common::wait_until("the set counts", || {
        fs::read(&joined).is_ok_and(|bytes| bytes == changed)
    });
    // The first member goes: the set has another first member.
    fs::remove_file(source.path().join(member(0))).unwrap();
    crate::common::wait_until("the set is another one", || {
        fs::read(&joined).is_ok_and(|bytes| bytes != changed)
    });
}

#[test]
fn a_set_is_mounted_alone_by_each_of_its_names() {
    if !can_mount(User::Caller) {
        return;
    }
    let source = source();
    for name in ["ocean.nc", "ocean.nc.0005"] {
        let mounted = Mounted::new(&source.path().join(name), "index_dir=none");
        assert_eq!(names_in(mounted.path()), ["ocean.nc"], "{name}");
        view(&mounted.join("ocean.nc"));
    }
    let member = source.path().join("ocean.nc.0005");
    let mounted = Mounted::new(&member, "index_dir=none,tiles=members");
    assert_eq!(names_in(mounted.path()), ["ocean.nc.0005"]);
    let point = tempfile::tempdir().unwrap();
    let text = refused(&[
        "mount",
        source.path().join("icebergs.res.nc").to_str().unwrap(),
        point.path().to_str().unwrap(),
    ]);
    assert!(text.contains("iceberg_comb.sh"), "{text}");
}

#[test]
fn commands_take_the_joined_name_and_those_of_members() {
    let source = source();
    let before = contents(source.path());
    let path = |name: &str| source.path().join(name).to_str().unwrap().to_owned();
    let said = |arguments: &[&str]| {
        let arguments: Vec<&OsStr> = arguments.iter().map(OsStr::new).collect();
        String::from_utf8(output(PROGRAM, &arguments).stdout).unwrap()
    };
    let (joined, some) = (path("ocean.nc"), path("ocean.nc.0004"));
    let link = source.path().join("link");
    symlink("ocean.nc.0004", &link).unwrap();
    for command in ["inspect", "check"] {
        let expected = said(&[command, &joined]);
        assert_eq!(said(&[command, &some]), expected, "{command}");
        assert_eq!(said(&[command, &joined, &some]), expected, "{command}");
    }
    assert!(said(&["inspect", link.to_str().unwrap()]).contains("12 members"));
    fs::remove_file(link).unwrap();
    for arguments in [&[source.path().to_str().unwrap()][..], &[&*joined, &*some]] {
        let listed = said(&[&["ls"], arguments].concat());
        let lines: Vec<&str> = listed
            .lines()
            .filter(|line| line.contains("ocean"))
            .collect();
        assert_eq!(lines.len(), 1, "{listed}");
        assert!(
            lines[0].contains("12 files") && lines[0].ends_with("/ocean.nc"),
            "{listed}"
        );
    }
    let made = tempfile::tempdir().unwrap();
    for (number, name) in [&joined, &some].into_iter().enumerate() {
        let out = made.path().join(format!("{number}.nc"));
        said(&["export", name, out.to_str().unwrap()]);
    }
    let made = |name: &str| fs::read(made.path().join(name)).unwrap();
    assert!(made("0.nc") == made("1.nc"));
    // Nothing changes the files.
    for (arguments, words) in [
        (&["settle", &*joined][..], "h5logfs never changes"),
        (&["settle", &*some], "h5logfs never changes"),
        (&["recover", &*joined], "nothing to recover"),
        (&["recover", &*some], "nothing to recover"),
        (
            &["export", "--force", &*joined, &*path("ocean.nc.0003")],
            "is the input",
        ),
        (&["inspect", &*path("icebergs.res.nc")], "iceberg_comb.sh"),
        (
            &["inspect", &*path("icebergs.res.nc.0001")],
            "iceberg_comb.sh",
        ),
        (&["inspect", &*path("both.nc")], "two kinds of models"),
        (&["inspect", &*path("other.nc")], "No such file"),
        (&["inspect", &*path("taken.nc.0000")], "not a log"),
    ] {
        let text = refused(arguments);
        assert!(text.contains(words), "{arguments:?}: {text}");
    }
    assert!(contents(source.path()) == before);
}

#[test]
fn members_of_other_users_do_not_count_and_are_not_hidden() {
    if !can_mount(User::Caller) || !rustix::process::geteuid().is_root() {
        return;
    }
    let source = source();
    for number in 0..MEMBERS {
        let owner = if number == 4 { BOB } else { ALICE };
        owner.owns(&source.path().join(member(number)), 0o644);
    }
    let mounted = Mounted::new(source.path(), "index_dir=none,tiles=joined");
    let names = names_in(mounted.path());
    assert!(
        names.contains(&"ocean.nc".to_owned()) && names.contains(&member(4)),
        "{names:?}"
    );
    assert!(!names.contains(&member(3)));
    let note = refused_or_said(&mounted.join("ocean.nc"), source.path());
    assert!(note.contains("ocean.nc.0004"), "{note}");
}

/// What `inspect` says of the set, after the view at `shown` was read.
fn refused_or_said(shown: &Path, source: &Path) -> String {
    view(shown);
    let joined = source.join("ocean.nc");
    let said = output(PROGRAM, &[OsStr::new("inspect"), joined.as_os_str()]);
    String::from_utf8(said.stdout).unwrap()
}
