//! The files that a mount shows of its source, from end to end. The mount is read-only.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use rustix::fs::{AtFlags, CWD, Mode, Timestamps, XattrFlags};
use rustix::io::Errno;
use rustix::mount::MountFlags;

use crate::common::{
    Mounted, User, can_mount, errno, is_root, messages, mount, source, wait_until,
};

// Content.

fn same_metadata(source: &Path, shown: &Path) {
    let (a, b) = (
        fs::symlink_metadata(source).unwrap(),
        fs::symlink_metadata(shown).unwrap(),
    );
    let facts = |m: &fs::Metadata| {
        let modified = (m.mtime(), m.mtime_nsec());
        (m.mode(), m.uid(), m.gid(), m.nlink(), m.rdev(), modified)
    };
    assert_eq!(facts(&a), facts(&b), "{}", shown.display());
    if !a.is_dir() {
        assert_eq!(a.size(), b.size(), "{}", shown.display());
    }
}

#[test]
fn files_directories_and_links_are_mirrored() {
    if !can_mount(User::Caller) {
        return;
    }
    let source = source(User::Caller);
    let at = |name: &str| source.path().join(name);
    fs::create_dir_all(at("directory/deep/deeper")).unwrap();
    let big: Vec<u8> = (0..3_000_000u32).map(|i| (i % 251) as u8).collect();
    fs::write(at("directory/deep/deeper/big"), &big).unwrap();
    fs::set_permissions(at("file"), Permissions::from_mode(0o4751)).unwrap();
    fs::set_permissions(at("directory"), Permissions::from_mode(0o1770)).unwrap();
    symlink("../no/such//place", at("dangling")).unwrap();
    symlink("directory/inner", at("link")).unwrap();
    fs::hard_link(at("file"), at("hard")).unwrap();
    rustix::fs::mknodat(
        CWD,
        at("fifo"),
        rustix::fs::FileType::Fifo,
        Mode::from_raw_mode(0o640),
        0,
    )
    .unwrap();
    let old = UNIX_EPOCH - Duration::from_millis(1500);
    let file = File::open(at("directory/inner")).unwrap();
    file.set_modified(old).unwrap();
    let mut names = vec!["", "file", "hard", "directory", "directory/deep", "fifo"];
    names.extend([
        "dangling",
        "link",
        "directory/inner",
        "directory/deep/deeper/big",
    ]);
    if is_root() {
        std::os::unix::fs::lchown(at("link"), Some(12), Some(34)).unwrap();
        std::os::unix::fs::chown(at("directory/deep"), Some(56), Some(78)).unwrap();
    }

    let mounted = Mounted::new(source.path(), "");
    for name in names {
        same_metadata(&at(name), &mounted.join(name));
    }
    for link in ["dangling", "link"] {
        assert_eq!(
            fs::read_link(mounted.join(link)).unwrap(),
            fs::read_link(at(link)).unwrap()
        );
    }
    assert_eq!(fs::read(mounted.join("link")).unwrap(), vec![7; 300_000]);
    let shown = mounted.join("directory/deep/deeper/big");
    assert_eq!(fs::read(&shown).unwrap(), big);
    let mut file = File::open(&shown).unwrap();
    let mut some = [0; 1000];
    file.seek(SeekFrom::Start(1_234_567)).unwrap();
    file.read_exact(&mut some).unwrap();
    assert_eq!(some, big[1_234_567..1_235_567]);
    assert_eq!(
        errno(fs::metadata(mounted.join("none"))),
        Some(Errno::NOENT)
    );
}

#[test]
fn large_directories_are_listed_whole() {
    if !can_mount(User::Caller) {
        return;
    }
    let source = source(User::Caller);
    let names: Vec<String> = (0..3000)
        .map(|i| format!("some-longish-name-{i:06}"))
        .collect();
    for name in &names {
        File::create(source.path().join("directory").join(name)).unwrap();
    }
    let mounted = Mounted::new(source.path(), "");
    let mut listed: Vec<String> = fs::read_dir(mounted.join("directory"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name != "inner")
        .collect();
    listed.sort();
    assert_eq!(listed, names);
}

#[test]
fn listings_carry_the_attributes_of_each_entry() {
    if !can_mount(User::Caller) {
        return;
    }
    let source = source(User::Caller);
    let dir = source.path().join("directory");
    let name = |i: usize| format!("file-{i:04}");
    for i in 0..1500 {
        fs::write(dir.join(name(i)), vec![0; i]).unwrap();
    }
    symlink("no such place", dir.join("link")).unwrap();
    let mounted = Mounted::new(source.path(), "");
    let shown = mounted.join("directory");
    let compare = |expected: usize| {
        let entries: Vec<_> = fs::read_dir(&shown).unwrap().map(Result::unwrap).collect();
        assert_eq!(entries.len(), expected);
        for entry in entries {
            same_metadata(&dir.join(entry.file_name()), &entry.path());
        }
    };
    // The files include an existing one and a link.
    compare(1502);
    compare(1502);
    // Other files appear, disappear and grow. A listing shows this at once, or after a second.
    fs::remove_file(dir.join(name(7))).unwrap();
    fs::write(dir.join(name(8)), vec![0; 5000]).unwrap();
    wait_until("the growth shows", || {
        let listed = fs::read_dir(&shown).unwrap().map(Result::unwrap);
        let mut grown = listed.filter(|entry| entry.file_name() == *name(8));
        grown.next().unwrap().metadata().unwrap().len() == 5000
    });
    compare(1501);
}

#[test]
fn changes_of_the_source_show() {
    if !can_mount(User::Caller) {
        return;
    }
    let source = source(User::Caller);
    let mounted = Mounted::new(source.path(), "");
    let (file, shown) = (source.path().join("file"), mounted.join("file"));
    let mut open = File::open(&shown).unwrap();
    assert_eq!(fs::read(&shown).unwrap(), b"some text\n");

    // The file grows.
    fs::write(&file, "some text\nand more\n").unwrap();
    wait_until("the growth shows", || {
        fs::read(&shown).unwrap() == b"some text\nand more\n"
    });
    // Another file takes the name of this one. An open file stays open.
    fs::write(source.path().join("new"), "new").unwrap();
    fs::rename(source.path().join("new"), &file).unwrap();
    wait_until("the replacement shows", || {
        fs::read(&shown).unwrap() == b"new"
    });
    let mut bytes = Vec::new();
    open.read_to_end(&mut bytes).unwrap();
    assert_eq!(bytes, b"some text\nand more\n");
    // A directory replaces the file.
    fs::remove_file(&file).unwrap();
    wait_until("the removal shows", || !shown.exists());
    fs::create_dir(&file).unwrap();
    wait_until("the directory shows", || shown.is_dir());
}

#[test]
fn a_single_file_is_shown_alone() {
    if !can_mount(User::Caller) {
        return;
    }
    let source = source(User::Caller);
    let mounted = Mounted::new(&source.path().join("file"), "");
    let names: Vec<_> = fs::read_dir(mounted.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(names, ["file"]);
    assert_eq!(fs::read(mounted.join("file")).unwrap(), b"some text\n");
    assert_eq!(
        errno(fs::metadata(mounted.join("directory"))),
        Some(Errno::NOENT)
    );
}

#[test]
fn a_mount_point_inside_the_source_does_not_show_itself() {
    if !can_mount(User::Caller) {
        return;
    }
    let source = source(User::Caller);
    let dir = tempfile::tempdir_in(source.path()).unwrap();
    let name = dir.path().file_name().unwrap().to_owned();
    let output = mount(User::Caller, source.path(), dir.path(), "threads=1");
    assert!(output.status.success(), "{}", messages(&output));
    let mounted = Mounted::at(User::Caller, dir);
    let mut entries = fs::read_dir(mounted.path()).unwrap();
    assert!(entries.all(|entry| entry.unwrap().file_name() != name));
    assert!(!mounted.join(&name).exists());
    assert!(mounted.join("file").exists());
}

#[test]
fn a_dir_can_be_mounted_over_itself() {
    if !can_mount(User::Caller) {
        return;
    }
    let source = source(User::Caller);
    let path = source.path().to_owned();
    let output = mount(User::Caller, &path, &path, "");
    assert!(output.status.success(), "{}", messages(&output));
    let mounted = Mounted::at(User::Caller, source);
    assert_eq!(fs::read(mounted.join("file")).unwrap(), b"some text\n");
    assert_eq!(fs::read_dir(mounted.join("directory")).unwrap().count(), 1);
}

#[test]
fn space_is_that_of_the_source() {
    if !can_mount(User::Caller) {
        return;
    }
    let source = source(User::Caller);
    let mounted = Mounted::new(source.path(), "");
    let (a, b) = (
        rustix::fs::statvfs(source.path()).unwrap(),
        rustix::fs::statvfs(mounted.path()).unwrap(),
    );
    assert_eq!((a.f_blocks, a.f_frsize), (b.f_blocks, b.f_frsize));
    assert_eq!(a.f_namemax, b.f_namemax);
}

// Refused changes.

/// Tries every operation that changes something, and returns those that were not properly refused.
fn not_refused(mounted: &Mounted) -> Vec<(&'static str, Option<Errno>)> {
    let at = |name: &str| mounted.join(name);
    let touched = Timestamps {
        last_access: rustix::fs::Timespec::default(),
        last_modification: rustix::fs::Timespec::default(),
    };
    let os = |outcome: rustix::io::Result<()>| outcome.err();
    let outcomes = [
        ("create", errno(File::create(at("new")))),
        (
            "open for writing",
            errno(OpenOptions::new().write(true).open(at("file"))),
        ),
        (
            "open for appending",
            errno(OpenOptions::new().append(true).open(at("file"))),
        ),
        ("truncate", errno(File::create(at("file")))),
        ("mkdir", errno(fs::create_dir(at("new")))),
        ("rmdir", errno(fs::remove_dir(at("directory")))),
        ("unlink", errno(fs::remove_file(at("file")))),
        ("rename", errno(fs::rename(at("file"), at("new")))),
        ("symlink", errno(symlink("file", at("new")))),
        ("link", errno(fs::hard_link(at("file"), at("new")))),
        (
            "chmod",
            errno(fs::set_permissions(
                at("file"),
                Permissions::from_mode(0o600),
            )),
        ),
        (
            "chown",
            errno(std::os::unix::fs::chown(at("file"), Some(1), Some(1))),
        ),
        (
            "utimes",
            os(rustix::fs::utimensat(
                CWD,
                at("file"),
                &touched,
                AtFlags::empty(),
            )),
        ),
        (
            "setxattr",
            os(rustix::fs::setxattr(
                at("file"),
                "user.a",
                b"b",
                XattrFlags::empty(),
            )),
        ),
        (
            "removexattr",
            os(rustix::fs::removexattr(at("file"), "user.a")),
        ),
        (
            "mknod",
            os(rustix::fs::mknodat(
                CWD,
                at("new"),
                rustix::fs::FileType::Fifo,
                Mode::from_raw_mode(0o600),
                0,
            )),
        ),
    ];
    outcomes
        .into_iter()
        .filter(|(_, errno)| *errno != Some(Errno::ROFS))
        .collect()
}

#[test]
fn every_change_is_refused() {
    if !can_mount(User::Caller) {
        return;
    }
    let source = source(User::Caller);
    let mounted = Mounted::new(source.path(), "");
    assert_eq!(not_refused(&mounted), []);
}

#[test]
fn every_change_is_refused_after_a_writable_remount_too() {
    if !can_mount(User::Caller) || !is_root() {
        eprintln!("skipped: only root can remount");
        return;
    }
    let source = source(User::Caller);
    let mounted = Mounted::new(source.path(), "");
    let remounted = rustix::mount::mount_remount(mounted.path(), MountFlags::empty(), "");
    if let Err(e) = remounted {
        eprintln!("skipped: the kernel does not remount it writable: {e}");
        return;
    }
    assert_eq!(not_refused(&mounted), []);
    assert_eq!(
        fs::read(source.path().join("file")).unwrap(),
        b"some text\n"
    );
}
