//! A file server that no longer knows the open files of its clients. It has restarted, or was away for a while.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Instant;

use h5logfs_log::log_files::LogFiles;
use h5logfs_log::source_dir::SourcePath;
use h5logfs_log::source_file::SourceFile;
use rustix::process::Signal;

use super::*;
use crate::common::bound::Bound;
use crate::common::is_root;
use crate::common::jobs::faults::Run;

const DIR: &str = "logs";

/// A log in a directory of the file system, written by ranks on nodes of their own, and seen everywhere.
struct Site {
    place: Place,
    job: Job,
}

impl Site {
    fn new(ranks: usize, options: &Options, flushes: u64) -> Self {
        let place = Place::new(ranks + 1, Mode::CloseToOpen, 1);
        fs::create_dir(place.nodes[0].path().join(DIR)).unwrap();
        place.settle();
        let mut site = Site {
            job: Job::create(&paths(&place, ranks), options),
            place,
        };
        (0..flushes).for_each(|_| site.job.flush(Course::default()));
        site.place.settle();
        site
    }

    fn dir(&self) -> PathBuf {
        self.place.reader().join(DIR)
    }

    fn path(&self) -> PathBuf {
        self.dir().join(NAME)
    }
}

impl Place {
    /// All requests of a node fail, or no longer.
    fn set_away(&self, node: usize, is_away: bool) {
        self.cluster.lock().unwrap().set_away(node, is_away);
    }
}

/// The canonical file.
fn whole(view: &Arc<View>) -> Vec<u8> {
    let mut bytes = vec![0; view.len() as usize];
    view.read_at(0, &mut bytes).unwrap();
    bytes
}

fn paths(place: &Place, ranks: usize) -> Vec<PathBuf> {
    let writers = place.nodes.iter().take(ranks);
    writers
        .map(|node| node.path().join(DIR).join(NAME))
        .collect()
}

/// Descriptors of this process that lead below a directory.
fn open_below(dir: &Path) -> usize {
    let open = fs::read_dir("/proc/self/fd").unwrap().flatten();
    let paths = open.filter_map(|fd| fs::read_link(fd.path()).ok());
    paths.filter(|path| path.starts_with(dir)).count()
}

fn in_subfiles() -> Options {
    Options {
        subfiles: Subfiles::PerNode,
        ..options(0)
    }
}

#[test]
fn open_logs_are_read_on() {
    if !can_mount(User::Caller) {
        return;
    }
    let mut site = Site::new(2, &in_subfiles(), 3);
    let ranks = 2;
    let dir = SourceDir::open(&site.dir()).unwrap();
    let catalog = Catalog::new(dir, MemoryLimits::each(64 << 20), InProcess::default());
    let views = [(); 3].map(|()| open(&site.path()).unwrap());
    let kept = catalog.open(Path::new(NAME)).unwrap();
    let before = open_below(&site.dir());
    for view in views.iter().chain([&kept]) {
        site.place.lose();
        assert_eq!(shown(view, ranks).unwrap(), Some(3));
    }
    assert_eq!(open_below(&site.dir()), before);
    // The directory of the catalog is opened again, too.
    site.place.lose();
    site.job.flush(Course::default());
    site.place.settle();
    assert_eq!(
        shown(&catalog.open(Path::new(NAME)).unwrap(), ranks).unwrap(),
        Some(4)
    );
    // A closed log, which does not grow.
    drop(site.job);
    let recover = Command::new(PROGRAM)
        .arg("recover")
        .arg(&paths(&site.place, 1)[0])
        .output()
        .unwrap();
    assert!(recover.status.success(), "{}", messages(&recover));
    site.place.settle();
    let path = site.place.reader().join(DIR).join(NAME);
    let [before, closed] = [(); 2].map(|()| open(&path).unwrap());
    let before = whole(&before);
    site.place.lose();
    assert!(whole(&closed) == before);
}

/// The number of a file says little once the server has used it again.
#[test]
fn another_log_of_the_same_number_is_not_read() {
    if !can_mount(User::Caller) {
        return;
    }
    let mut site = Site::new(1, &options(0), 2);
    let old = open(&site.path()).unwrap();
    let number = |site: &Site| fs::metadata(site.path()).unwrap().ino();
    let before = number(&site);
    site.job.die();
    for name in common::names_in(&site.place.nodes[0].path().join(DIR)) {
        fs::remove_file(site.place.nodes[0].path().join(DIR).join(name)).unwrap();
    }
    site.place.cluster.lock().unwrap().free_removed();
    site.job = Job::create(&paths(&site.place, 1), &options(0));
    (0..4).for_each(|_| site.job.flush(Course::default()));
    site.place.settle();
    assert_eq!(number(&site), before);
    site.place.lose();
    let refused = shown(&old, 1).unwrap_err();
    assert!(refused.to_string().contains("changed since"), "{refused}");
    assert_eq!(shown(&open(&site.path()).unwrap(), 1).unwrap(), Some(4));
}

/// A name that is gone is an error, and so is one that leads elsewhere.
#[test]
fn what_is_not_there_any_more_is_not_read() {
    if !can_mount(User::Caller) {
        return;
    }
    let site = Site::new(1, &options(0), 2);
    let [moved, replaced] = [(); 2].map(|()| open(&site.path()).unwrap());
    let own = paths(&site.place, 1).remove(0);
    fs::rename(&own, own.with_extension("old")).unwrap();
    site.place.settle();
    site.place.lose();
    let stale = shown(&moved, 1).unwrap_err();
    assert!(stale.to_string().contains("Stale file handle"), "{stale}");
    fs::copy(own.with_extension("old"), &own).unwrap();
    site.place.settle();
    site.place.lose();
    let changed = shown(&replaced, 1).unwrap_err();
    assert!(changed.to_string().contains("changed since"), "{changed}");
}

#[test]
fn mounts_read_on() {
    if !can_mount(User::Caller) {
        return;
    }
    let site = Site::new(2, &in_subfiles(), 3);
    let mounted = Mounted::new(&site.dir(), "");
    let file = hdf5::File::open(mounted.join(NAME)).unwrap();
    let now = file.dataset("now").unwrap();
    site.place.lose();
    let read = now.read_raw::<f64>().unwrap();
    assert!(is_row(3, read.into_iter()));
    drop((now, file));
    site.place.lose();
    let file = hdf5::File::open(mounted.join(NAME)).unwrap();
    let rows = file.dataset("rows").unwrap().read_raw::<f64>().unwrap();
    let mut rows = rows.chunks(2 * WIDTH as usize).zip(1..);
    assert!(rows.all(|(row, flush)| is_row(flush, row.iter().copied())));
}

/// A flush during which the server knows nothing of one rank, or of the first one, fails on all ranks, and can be repeated.
#[test]
fn flushes_fail_and_can_be_repeated() {
    if !can_mount(User::Caller) {
        return;
    }
    for fsync in [Fsync::Close, Fsync::Flush] {
        for away in [1, 2] {
            let options = Options {
                fsync,
                ..in_subfiles()
            };
            let mut site = Site::new(2, &options, 2);
            site.job.write(Course::default());
            site.place.set_away(away, true);
            assert!(!site.job.commit());
            assert!(!site.job.commit());
            site.place.settle();
            assert_eq!(shown(&open(&site.path()).unwrap(), 2).unwrap(), Some(2));
            site.place.set_away(away, false);
            assert!(site.job.commit());
            site.job.flush(Course::default());
            site.place.settle();
            assert_eq!(shown(&open(&site.path()).unwrap(), 2).unwrap(), Some(4));
        }
    }
}

/// The path of the source leads through the mount itself: a daemon that went there would wait for itself.
#[test]
fn a_source_below_its_mount_is_not_looked_for() {
    if !can_mount(User::Caller) || !is_root() {
        return;
    }
    let site = Site::new(1, &options(0), 2);
    let dir = tempfile::tempdir().unwrap();
    let inner = dir.path().join("inner");
    fs::create_dir(&inner).unwrap();
    let bound = Bound::new(site.place.reader(), &inner);
    let output = common::mount(User::Caller, &inner.join(DIR), dir.path(), "threads=1");
    assert!(output.status.success(), "{}", messages(&output));
    let mounted = Mounted::at(User::Caller, dir);
    let read = || {
        let mut read = Command::new("cat");
        read.arg(mounted.join(NAME)).stdout(Stdio::null());
        let mut read = read.stderr(Stdio::piped()).spawn().unwrap();
        let start = Instant::now();
        while read.try_wait().unwrap().is_none() {
            if start.elapsed() > Duration::from_secs(10) {
                // No other signal ends a process that waits for it.
                mounted.send(Signal::KILL);
                panic!("the daemon waits for itself");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        messages(&read.wait_with_output().unwrap())
    };
    assert_eq!(read(), "");
    site.place.lose();
    wait_until("the name is stale", || read().contains("Stale file handle"));
    drop((mounted, bound));
}

#[test]
fn flushes_of_a_job_on_two_nodes_fail_and_can_be_repeated() {
    if !can_mount(User::Caller) || !is_root() {
        return;
    }
    for away in [1, 2] {
        let place = Place::new(3, Mode::CloseToOpen, 1);
        let dir = tempfile::tempdir().unwrap();
        let Some(nodes) = readers::two_nodes(&place, dir.path()) else {
            return;
        };
        // The readers' view of the directory.
        let bound = Bound::new(place.reader(), dir.path());
        let mut run = Run::start(&nodes, "server-of-a-node", dir.path());
        run.at("fill");
        place.settle();
        run.shows("own.h5", 1);
        place.set_away(away, true);
        run.go("fill");
        run.at("free");
        place.settle();
        run.shows("own.h5", 1);
        place.set_away(away, false);
        run.go("free");
        run.at("flushed");
        place.settle();
        run.shows("own.h5", 3);
        run.go("flushed");
        run.at("closed");
        place.settle();
        run.shows_closed("own.h5", 4);
        run.go("closed");
        run.job.succeed();
        drop(bound);
    }
}

/// The directory in which the last file was is remembered.
#[test]
fn files_of_a_log_are_found_again() {
    if !can_mount(User::Caller) {
        return;
    }
    let site = Site::new(2, &in_subfiles(), 1);
    let (dir, name) = SourceDir::of_file(&site.path()).unwrap();
    let log = SourceFile::open(&dir, &name).unwrap();
    let files = LogFiles::of(&dir, &name, &log);
    for number in 0..2 {
        let place = SourcePath::below(format!("{NAME}.subfiles/{NAME}.{number}"));
        files.open(&place).unwrap();
        site.place.lose();
        files.check(&place).unwrap();
    }
}
