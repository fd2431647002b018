//! A file server whose clock differs from that of the readers.

use super::*;

const HOUR: i64 = 3600;

/// A log grows and is replaced on a server whose clock is ahead by `ahead` seconds. Readers see it at once.
fn grows(ahead: i64) {
    if !can_mount(User::Caller) {
        return;
    }
    let place = Place::new(2, Mode::CloseToOpen, 5);
    place.cluster.lock().unwrap().set_ahead(ahead);
    let mut job = Job::create(&place.paths(1), &options(1));
    let dir = SourceDir::open(place.reader()).unwrap();
    let catalog = Catalog::new(dir, MemoryLimits::each(64 << 20), InProcess::default());
    let mounted = Mounted::new(place.reader(), "");
    let by_catalog = || {
        catalog
            .open(Path::new(NAME))
            .and_then(|view| shown(&view, 1))
    };
    let by_mount = || {
        let file = hdf5::File::open(mounted.join(NAME)).ok()?;
        let rows = file.dataset("rows").ok()?.shape();
        Some(rows[0] as u64)
    };
    let mut driver = direct::Options::parse(OsStr::new("")).unwrap();
    driver.scans.program = PROGRAM.into();
    let by_driver = || match direct::open(&place.path(), &driver) {
        Ok(Opened::Log(log)) => shown(log.view(), 1).ok().flatten(),
        _ => None,
    };
    for flush in 1..6 {
        job.flush(Course::default());
        place.settle();
        wait_until("all readers show the flush", || {
            let by_catalog = by_catalog().ok().flatten();
            [by_catalog, by_mount(), by_driver()] == [Some(flush); 3]
        });
    }
    // Times come from the server.
    let modified = place.path().metadata().unwrap().modified().unwrap();
    let now = SystemTime::now();
    let difference = match modified.duration_since(now) {
        Ok(later) => later.as_secs() as i64,
        Err(earlier) => -(earlier.duration().as_secs() as i64),
    };
    assert!((difference - ahead).abs() < 120, "{difference} of {ahead}");
    for command in ["ls", "inspect", "check"] {
        let mut program = Command::new(PROGRAM);
        let output = program.arg(command).arg(place.path()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{command}: {output:?}");
        assert!(!said.contains("damaged"), "{command}: {said}");
    }
    job.replace(&place.paths(1)).flush(Course::default());
    place.settle();
    wait_until("all readers show the new log", || {
        let by_catalog = by_catalog().ok().flatten();
        [by_catalog, by_mount(), by_driver()] == [Some(1); 3]
    });
}

#[test]
fn a_log_grows_where_the_clock_of_the_server_is_ahead() {
    grows(HOUR);
}

#[test]
fn a_log_grows_where_the_clock_of_the_server_is_behind() {
    grows(-HOUR);
}
