//! The rights of users in a shared mount. A user may read no more than the source permits. A change of rights in the
//! source applies from the next open on.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{chown, symlink};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{CWD, RenameFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};
use tempfile::TempDir;

use crate::common::clock::settle;
use crate::common::people::*;
use crate::common::{Mounted, PROGRAM, User, can_mount, errno, messages, wait_until};

const SECRET: &[u8] = b"nobody else is to see this\n";

// --- the kernel's rules ---------------------------------------------------------------------------

/// Each file is readable in the mount for exactly those who can read it in the source.
#[test]
fn modes_groups_and_lists_decide_as_in_the_source() {
    let source = open_source();
    if !ready() || !has_lists(source.path()) {
        return;
    }
    let at = |name: &str| source.path().join(name);
    let file = |name: &str, mode: u32| {
        fs::write(at(name), SECRET).unwrap();
        ALICE.owns(&at(name), mode);
    };
    let to_team = |name: &str| chown(at(name), None, Some(TEAM)).unwrap();
    file("private", 0o600);
    file("public", 0o644);
    file("team", 0o640);
    to_team("team");
    file("all but the team", 0o604);
    to_team("all but the team");
    file("not even the owner", 0o044);
    file("bob too", 0o600);
    set_list(&at("bob too"), [6, 0, 4, 0], &[Entry::User(BOB.uid, 4)]);
    file("all but bob", 0o644);
    set_list(&at("all but bob"), [6, 4, 4, 4], &[Entry::User(BOB.uid, 0)]);
    file("masked", 0o600);
    set_list(&at("masked"), [6, 0, 1, 0], &[Entry::User(BOB.uid, 4)]);
    file("mask of nothing", 0o604);
    set_list(
        &at("mask of nothing"),
        [6, 4, 0, 4],
        &[Entry::User(BOB.uid, 4)],
    );
    file("team by list", 0o600);
    set_list(&at("team by list"), [6, 0, 4, 0], &[Entry::Group(TEAM, 4)]);
    let readers = [
        ("private", "alice"),
        ("public", "alice bob carol"),
        ("team", "alice carol"),
        ("all but the team", "alice bob"),
        ("not even the owner", "bob carol"),
        ("bob too", "alice bob"),
        ("all but bob", "alice carol"),
        ("masked", "alice"),
        ("mask of nothing", "alice bob carol"),
        ("team by list", "alice carol"),
    ];
    let mounted = mount_for_all(source.path());
    for (name, readers) in readers {
        for person in ALL {
            let expected = readers.contains(person.name);
            let who = format!("{name}: {}", person.name);
            assert_eq!(person.read(&at(name)).is_some(), expected, "{who}, source");
            let shown = mounted.join(name);
            assert_eq!(person.has_access(&shown), expected, "{who}, asked");
            let read = person.read(&shown);
            assert_eq!(read, expected.then(|| SECRET.to_vec()), "{who}");
        }
        assert_eq!(fs::read(mounted.join(name)).unwrap(), SECRET);
    }
    // The kernel asks for lists even of files in no real directory.
    assert!(BOB.read(&mounted.join(".h5logfs/stats")).is_some());
}

/// The kernel refuses everything if it cannot get the list that it requests.
#[test]
fn a_source_without_lists_is_read_by_its_modes() {
    if !ready() {
        return;
    }
    let source = RamDisk::new();
    set_mode(source.path(), 0o755);
    fs::write(source.path().join("file"), SECRET).unwrap();
    fs::write(source.path().join("private"), SECRET).unwrap();
    set_mode(&source.path().join("private"), 0o600);
    let mounted = mount_for_all(source.path());
    assert_eq!(BOB.read(&mounted.join("file")).unwrap(), SECRET);
    assert_eq!(BOB.read(&mounted.join("private")), None);
    let list = rustix::fs::getxattr(mounted.join("file"), ACCESS_LIST, &mut [0; 64][..]);
    assert_eq!(list, Err(Errno::NODATA));
}

/// A file system without extended attributes.
struct RamDisk(TempDir);

impl RamDisk {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        rustix::mount::mount("none", dir.path(), "ramfs", MountFlags::empty(), None).unwrap();
        RamDisk(dir)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for RamDisk {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(self.0.path(), UnmountFlags::DETACH);
    }
}

#[test]
fn private_directories_are_closed_at_once() {
    if !ready() {
        return;
    }
    let source = open_source();
    let dir = source.path().join("folder");
    fs::create_dir_all(dir.join("below")).unwrap();
    fs::write(dir.join("below/file"), SECRET).unwrap();
    copy(&corpus("corpus/fill.log.h5"), &dir.join("log.h5"));
    ALICE.owns(&dir, 0o755);
    let mounted = mount_for_all(source.path());
    let shown = mounted.join("folder");
    let names = ["below/file", "log.h5"];
    for name in names {
        assert!(BOB.read(&shown.join(name)).is_some(), "{name}");
    }
    assert!(BOB.can_list(&shown));
    // The kernel caches the answer for a second.
    set_mode(&dir, 0o700);
    for name in names {
        assert_eq!(BOB.read(&shown.join(name)), None, "{name}");
    }
    assert!(!BOB.can_list(&shown) && !BOB.can_list(&shown.join("below")));
    for name in names {
        assert!(ALICE.read(&shown.join(name)).is_some(), "{name}");
    }
    assert!(ALICE.can_list(&shown.join("below")));
    set_mode(&dir, 0o711);
    wait_until("the kernel asks again", || {
        BOB.read(&shown.join("log.h5")).is_some()
    });
    assert!(!BOB.can_list(&shown));
}

// --- changes while a file is open -----------------------------------------------------------------

/// A process with an open file of which it has read nothing.
struct Reader(std::process::Child);

impl Reader {
    fn open(person: Person, path: &Path) -> Self {
        let mut child = person
            .command("sh")
            .args(["-c", "exec 3<\"$0\"; echo open; read go; cat <&3"])
            .arg(path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = String::new();
        let mut byte = BufReader::with_capacity(1, child.stdout.as_mut().unwrap());
        byte.read_line(&mut said).unwrap();
        assert_eq!(said, "open\n");
        Reader(child)
    }

    /// The rest of the file.
    fn read(mut self) -> Vec<u8> {
        self.0.stdin.take().unwrap().write_all(b"go\n").unwrap();
        let output = self.0.wait_with_output().unwrap();
        assert!(output.status.success());
        output.stdout
    }
}

/// Revokes bob's rights in each way, each time after he has read everything.
#[test]
fn rights_that_are_taken_away_are_gone_at_the_next_open() {
    let source = open_source();
    if !ready() || !has_lists(source.path()) {
        return;
    }
    let mounted = mount_for_all(source.path());
    type TakeAway = fn(&Path);
    let take_away: [(&str, TakeAway); 4] = [
        ("chmod", |file| set_mode(file, 0o600)),
        ("chmod for others", |file| set_mode(file, 0o640)),
        ("chown", |file| BOB.owns(file, 0o044)),
        ("a list", |file| {
            set_list(file, [6, 4, 4, 4], &[Entry::User(BOB.uid, 0)]);
        }),
    ];
    // Each round uses another file, because the kernel caches a denial for a second.
    for (how, take_away) in take_away {
        let plain = source.path().join(format!("plain, {how}"));
        fs::write(&plain, vec![7; 300_000]).unwrap();
        let log = source.path().join(format!("log, {how}.h5"));
        copy(&corpus("corpus/fill.log.h5"), &log);
        for file in [plain, log] {
            ALICE.owns(&file, 0o644);
            let shown = mounted.join(file.file_name().unwrap());
            let all = BOB.read(&shown).expect(how);
            let open = Reader::open(BOB, &shown);
            assert_eq!(BOB.read(&shown).as_ref(), Some(&all), "{how}");
            take_away(&file);
            assert_eq!(BOB.read(&shown), None, "{how}");
            assert!(open.read() == all, "{how}");
            assert!(fs::read(&shown).unwrap() == all, "{how}");
        }
    }
}

// --- logs of several files ------------------------------------------------------------------------

/// Gives a log file and all its companions to ALICE.
fn give_to_alice(dir: &Path) {
    let owner = format!("{}:{}", ALICE.uid, ALICE.gid);
    let given = Command::new("chown").args(["-R", &owner]).arg(dir).status();
    assert!(given.unwrap().success());
}

/// Checks that all can read `shown`, a log of ALICE, but only ALICE and root while `part` is private.
fn follows(mounted: &Mounted, shown: &str, part: &Path) {
    let shown = mounted.join(shown);
    let all = BOB.read(&shown).expect("it was not private yet");
    let was = fs::metadata(part).unwrap();
    ALICE.owns(part, if was.is_dir() { 0o700 } else { 0o600 });
    let what = part.display();
    // The log file itself is unchanged, and the kernel would let bob read it.
    assert!(BOB.has_access(&shown), "{what}");
    assert_eq!(BOB.read(&shown), None, "{what}");
    assert_eq!(CAROL.read(&shown), None, "{what}");
    assert_eq!(ALICE.read(&shown).as_ref(), Some(&all), "{what}");
    assert!(fs::read(&shown).unwrap() == all, "{what}");
    chown(part, None, Some(TEAM)).unwrap();
    set_mode(part, if was.is_dir() { 0o750 } else { 0o640 });
    assert_eq!(BOB.read(&shown), None, "{what}");
    assert_eq!(CAROL.read(&shown).as_ref(), Some(&all), "{what}");
    set_mode(part, if was.is_dir() { 0o755 } else { 0o644 });
    assert_eq!(BOB.read(&shown), Some(all), "{what}");
}

#[test]
fn a_log_is_as_private_as_the_most_private_of_its_files() {
    if !ready() {
        return;
    }
    let source = open_source();
    let subfiles = source.path().join("subfile.log.h5.subfiles");
    for name in ["subfile.log.h5", "subfile.log.h5.subfiles"] {
        copy(&corpus("corpus").join(name), &source.path().join(name));
    }
    let burst = source.path().join("burst");
    copy(&corpus("corpus-pnetcdf/records-cdf1-np1"), &burst);
    give_to_alice(source.path());
    let mounted = mount_for_all(source.path());
    follows(
        &mounted,
        "subfile.log.h5",
        &subfiles.join("subfile.log.h5.1"),
    );
    follows(&mounted, "subfile.log.h5", &subfiles);
    let shown = BOB.read(&mounted.join("burst/file.nc")).unwrap();
    assert!(shown.starts_with(b"\x89HDF"));
    follows(&mounted, "burst/file.nc", &burst.join("file.nc_0_0.data"));
    follows(&mounted, "burst/file.nc", &burst.join("file.nc_0_0.meta"));
}

#[test]
fn logs_in_another_directory_are_as_private_as_that() {
    if !ready() {
        return;
    }
    let (source, further) = (open_source(), open_source());
    copy(
        &corpus("corpus-pnetcdf/records-cdf1-np1"),
        &source.path().join("run"),
    );
    for log in ["file.nc_0_0.data", "file.nc_0_0.meta"] {
        let own = source.path().join("run").join(log);
        copy(&own, &further.path().join(log));
        fs::remove_file(own).unwrap();
    }
    give_to_alice(source.path());
    give_to_alice(further.path());
    let options = format!(
        "allow_other,index_dir=none,burst_dir={}",
        further.path().display()
    );
    let mounted = Mounted::new(source.path(), &options);
    let shown = BOB.read(&mounted.join("run/file.nc")).unwrap();
    assert!(shown.starts_with(b"\x89HDF"));
    follows(
        &mounted,
        "run/file.nc",
        &further.path().join("file.nc_0_0.data"),
    );
    follows(&mounted, "run/file.nc", further.path());
}

// --- ways out of the source -----------------------------------------------------------------------

#[test]
fn links_lead_nobody_where_he_may_not_go() {
    if !ready() {
        return;
    }
    let (source, outside) = (open_source(), tempfile::tempdir().unwrap());
    let secret = outside.path().join("secret");
    fs::write(&secret, SECRET).unwrap();
    set_mode(&secret, 0o600);
    symlink("/etc/shadow", source.path().join("shadow")).unwrap();
    symlink(&secret, source.path().join("secret")).unwrap();
    symlink(outside.path(), source.path().join("folder")).unwrap();
    let mounted = mount_for_all(source.path());
    for name in ["shadow", "secret", "folder/secret"] {
        assert_eq!(BOB.read(&mounted.join(name)), None, "{name}");
    }
    let target = fs::read_link(mounted.join("shadow")).unwrap();
    assert_eq!(target, Path::new("/etc/shadow"));
    let above = mounted.path().parent().unwrap();
    let climbed = fs::canonicalize(mounted.join("..")).unwrap();
    assert_eq!(climbed, fs::canonicalize(above).unwrap());
}

/// While a directory and a link to an outside directory swap places all the time, root's daemon never follows the
/// link.
#[test]
fn a_directory_that_becomes_a_link_leads_nowhere() {
    const FOR: Duration = Duration::from_secs(3);
    if !ready() {
        return;
    }
    let (source, outside) = (open_source(), tempfile::tempdir().unwrap());
    let (dir, link) = (source.path().join("folder"), source.path().join("link"));
    fs::create_dir(&dir).unwrap();
    for (place, bytes) in [(dir.as_path(), &b"fine\n"[..]), (outside.path(), SECRET)] {
        fs::write(place.join("file"), bytes).unwrap();
    }
    // Bob's own kernel follows links, too.
    set_mode(outside.path(), 0o700);
    symlink(outside.path(), &link).unwrap();
    let mounted = mount_for_all(source.path());
    let over = AtomicBool::new(false);
    let seen = thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                let flags = RenameFlags::EXCHANGE;
                rustix::fs::renameat_with(CWD, &dir, CWD, &link, flags).unwrap();
            }
        });
        let reader = BOB
            .command("sh")
            .args([
                "-c",
                "while :; do cat folder/file link/file 2>/dev/null; done",
            ])
            .current_dir(mounted.path())
            .stdout(Stdio::piped())
            .spawn();
        let mut reader = reader.unwrap();
        let (mut fine, start) = (0, Instant::now());
        let lines = BufReader::new(reader.stdout.take().unwrap()).lines();
        let mut leaked = None;
        for line in lines.map(Result::unwrap) {
            match line.as_str() {
                "fine" => fine += 1,
                _ => leaked = Some(line),
            }
            if leaked.is_some() || start.elapsed() > FOR {
                break;
            }
        }
        over.store(true, Ordering::Relaxed);
        reader.kill().unwrap();
        reader.wait().unwrap();
        assert_eq!(leaked, None);
        fine
    });
    assert!(seen > 10, "read {seen} times only");
}

// --- whose mount it is ----------------------------------------------------------------------------

#[test]
fn a_users_own_mount_is_his_alone() {
    if !ready() || !can_mount(User::Nobody) {
        return;
    }
    let source = open_source();
    fs::write(source.path().join("file"), SECRET).unwrap();
    let mounted = Mounted::by(User::Nobody, source.path(), "index_dir=none");
    let shown = mounted.join("file");
    let own = User::Nobody.command("cat").arg(&shown).output().unwrap();
    assert_eq!(own.stdout, SECRET, "{}", messages(&own));
    assert_eq!(errno(fs::read(&shown)), Some(Errno::ACCESS));
    assert_eq!(errno(fs::read_dir(mounted.path())), Some(Errno::ACCESS));
    for person in ALL {
        assert_eq!(person.read(&shown), None, "{}", person.name);
    }
}

/// The daemon of an ordinary user has files open whose owner then revokes its access.
#[test]
fn a_users_own_mount_shows_no_more_than_he_may_read_now() {
    if !ready() || !can_mount(User::Nobody) {
        return;
    }
    let source = open_source();
    fs::write(source.path().join("plain"), SECRET).unwrap();
    for name in ["subfile.log.h5", "subfile.log.h5.subfiles"] {
        copy(&corpus("corpus").join(name), &source.path().join(name));
    }
    let mounted = Mounted::by(User::Nobody, source.path(), "index_dir=none");
    let read = |name: &str| {
        let output = User::Nobody
            .command("cat")
            .env("LC_ALL", "C")
            .arg(mounted.join(name))
            .output();
        let output = output.unwrap();
        let said = messages(&output);
        // A daemon that cannot see all files of a log reports a broken log.
        let is_refused = ["Permission denied", "Input/output error"].map(|e| said.contains(e));
        assert!(
            output.status.success() || is_refused.contains(&true),
            "{said}"
        );
        output.status.success()
    };
    let parts = [
        ("plain", "plain"),
        ("subfile.log.h5", "subfile.log.h5"),
        ("subfile.log.h5", "subfile.log.h5.subfiles/subfile.log.h5.0"),
        ("subfile.log.h5", "subfile.log.h5.subfiles"),
    ];
    for (shown, part) in parts {
        let path = source.path().join(part);
        assert!(read(shown), "{part}");
        set_mode(&path, 0o700);
        assert!(!read(shown), "{part}");
        set_mode(&path, 0o755);
    }
}

/// An ordinary user's daemon may serve others, if the administrator permits it. It serves only files that both it and
/// they may read.
#[test]
fn an_ordinary_users_daemon_lets_nobody_read_more() {
    // In its own mount namespace, with another fuse.conf.
    const SCRIPT: &str = r#"
        mount --bind "$FOLDER/fuse.conf" /etc/fuse.conf
        trap 'umount -l "$FOLDER/mnt"' EXIT
        setpriv --reuid=65534 --regid=65534 --clear-groups -- \
            "$PROGRAM" mount "$FOLDER/src" "$FOLDER/mnt" -o allow_other,index_dir=none
        readers() {
            chmod "$1" "$FOLDER/src/log.h5"
            sleep "$2"
            for who in $ALICE:$ALICE $BOB:$BOB $CAROL:$TEAM; do
                cat="setpriv --reuid=${who%:*} --regid=${who%:*} --groups=${who#*:} cat"
                $cat "$FOLDER/mnt/log.h5" >/dev/null 2>&1 && echo "$1: ${who%:*}"
            done
            :
        }
        readers 644 0
        readers 604 0
        readers 640 0
        readers 640 1.1
        readers 644 1.1
    "#;
    if !ready() || !can_mount(User::Nobody) {
        return;
    }
    if !Path::new("/etc/fuse.conf").exists() {
        eprintln!("skipped: there is no /etc/fuse.conf");
        return;
    }
    let dir = open_source();
    let at = |name: &str| dir.path().join(name);
    for name in ["src", "mnt"] {
        fs::create_dir(at(name)).unwrap();
    }
    chown(at("mnt"), Some(65534), Some(65534)).unwrap();
    fs::write(at("fuse.conf"), "user_allow_other\n").unwrap();
    copy(&corpus("corpus/fill.log.h5"), &at("src/log.h5"));
    ALICE.owns(&at("src/log.h5"), 0o644);
    chown(at("src/log.h5"), None, Some(TEAM)).unwrap();
    let mut script = Command::new("unshare");
    script.args(["--mount", "sh", "-euc", SCRIPT]);
    script
        .env("FOLDER", dir.path())
        .env("PROGRAM", PROGRAM)
        .env("TEAM", TEAM.to_string());
    for person in ALL {
        script.env(person.name.to_uppercase(), person.uid.to_string());
    }
    let output = script.output().unwrap();
    assert!(output.status.success(), "{}", messages(&output));
    // Files that either the daemon or others may not read are unreadable through it for the owner and her team, too.
    let expected = [
        ("644", &ALL[..]),
        ("604", &[ALICE, BOB]),
        ("640", &[]),
        ("644", &ALL),
    ];
    let lines = expected.iter().flat_map(|(mode, readers)| {
        let line = move |reader: &Person| format!("{mode}: {}\n", reader.uid);
        readers.iter().map(line)
    });
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!(said, lines.collect::<String>());
}

#[test]
fn every_mount_is_without_devices_and_set_uid() {
    if !can_mount(User::Caller) {
        return;
    }
    let source = open_source();
    let flags = |mounted: &Mounted| {
        let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let mut lines = table
            .lines()
            .map(|line| line.split(' ').collect::<Vec<_>>());
        let line = lines.find(|fields| Some(fields[4]) == mounted.path().to_str());
        let line = line.unwrap();
        (line[5].to_owned(), line.last().unwrap().to_string())
    };
    let check = |mounted: &Mounted, others: bool| {
        let (mount, connection) = flags(mounted);
        for flag in ["ro", "nosuid", "nodev"] {
            assert!(mount.split(',').any(|f| f == flag), "{mount}");
        }
        for option in ["allow_other", "default_permissions"] {
            assert_eq!(
                connection.split(',').any(|o| o == option),
                others,
                "{connection}"
            );
        }
    };
    // Options that mount(8) passes on from fstab change nothing.
    let asked = "suid,dev,rw,index_dir=none";
    check(&Mounted::new(source.path(), asked), false);
    if crate::common::is_root() {
        check(
            &Mounted::new(source.path(), &format!("{asked},allow_other")),
            true,
        );
    }
    if can_mount(User::Nobody) {
        check(&Mounted::by(User::Nobody, source.path(), asked), false);
    }
}

// --- the index directory --------------------------------------------------------------------------

/// Another user has created the directory first, in a place where all users may create files.
#[test]
fn an_index_directory_that_others_have_made_is_refused() {
    if !ready() {
        return;
    }
    let (source, shared) = (open_source(), tempfile::tempdir().unwrap());
    set_mode(shared.path(), 0o1777);
    let place = shared.path().join("h5logfs");
    let elsewhere = shared.path().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    set_mode(&elsewhere, 0o700);
    let plant: [(&str, &dyn Fn()); 4] = [
        ("belongs to user", &|| {
            fs::create_dir(&place).unwrap();
            BOB.owns(&place, 0o700);
        }),
        ("symbolic link", &|| symlink(&elsewhere, &place).unwrap()),
        ("0770", &|| {
            fs::create_dir(&place).unwrap();
            set_mode(&place, 0o770);
        }),
        ("", &|| fs::write(&place, "").unwrap()),
    ];
    for (words, plant) in plant {
        plant();
        let mount_point = tempfile::tempdir().unwrap();
        let options = format!("index_dir={}", place.display());
        let refused =
            crate::common::mount(User::Caller, source.path(), mount_point.path(), &options);
        let said = messages(&refused);
        assert!(
            !refused.status.success() && said.contains(words),
            "{words}: {said}"
        );
        if fs::symlink_metadata(&place).unwrap().is_dir() {
            fs::remove_dir(&place).unwrap()
        } else {
            fs::remove_file(&place).unwrap()
        }
    }
    assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0);
    // If it is missing, the daemon creates it, and no other user can enter.
    let options = format!("index_dir={}", place.display());
    let _mounted = Mounted::new(source.path(), &options);
    assert!(!BOB.can_list(&place));
}

/// The daemon does not trust a file of another user, however the file got there.
#[test]
fn files_that_others_have_planted_are_not_believed() {
    if !ready() {
        return;
    }
    let (source, kept) = (open_source(), tempfile::tempdir().unwrap());
    copy(&corpus("corpus/fill.log.h5"), &source.path().join("log.h5"));
    settle(source.path());
    let log = kept.path().join("messages");
    let place = kept.path().join("kept");
    let options = format!("index_dir={},log_file={}", place.display(), log.display());
    let scans = || {
        let _ = fs::remove_file(&log);
        let mounted = Mounted::new(source.path(), &options);
        assert!(
            fs::read(mounted.join("log.h5"))
                .unwrap()
                .starts_with(b"\x89HDF")
        );
        let said = fs::read_to_string(&log).unwrap();
        said.matches(": scanned in").count()
    };
    assert_eq!((scans(), scans()), (1, 0));
    let dirs = fs::read_dir(&place).unwrap();
    let mut items = dirs.flat_map(|dir| fs::read_dir(dir.unwrap().path()).unwrap());
    let item = items.next().unwrap().unwrap().path();
    chown(&item, Some(BOB.uid), None).unwrap();
    assert_eq!(scans(), 1);
}
