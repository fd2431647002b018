//! Followers of all kinds at once, on a job that flushes every 50 ms: each flush is seen at most once, in order, and
//! completely, while a follower and the job are killed. The delays are printed.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, UNIX_EPOCH};

use serde_json::Value;

use crate::common::driver::Driver;
use crate::common::guard::Running;
use crate::common::jobs::kill::Pattern;
use crate::common::killed::{Places, RANKS};
use crate::common::nodes::Place;
use crate::common::package::Package;
use crate::common::readers::{Python, said};
use crate::common::{Mounted, PROGRAM, User, can_mount, wait_long_until};

/// Flushes that each follower must see before a kill.
const FEW: usize = 3;

/// Flushes, and the times at which they were seen, in seconds since 1970.
type Seen = Vec<(u64, f64)>;

fn now() -> f64 {
    UNIX_EPOCH.elapsed().unwrap().as_secs_f64()
}

/// A program that prints a line for each flush.
struct Follower {
    way: &'static str,
    program: Running,
    seen: Arc<Mutex<Seen>>,
    reading: JoinHandle<()>,
}

impl Follower {
    fn start(
        way: &'static str,
        mut command: Command,
        flush_in: impl Fn(String) -> Option<(u64, f64)> + Send + 'static,
    ) -> Self {
        let mut program = command.stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(program.stdout.take().unwrap()).lines();
        let seen = Arc::new(Mutex::new(Seen::new()));
        let told = Arc::clone(&seen);
        let reading = thread::spawn(move || {
            for line in lines {
                told.lock().unwrap().extend(flush_in(line.unwrap()));
            }
        });
        Follower {
            way,
            program: Running(program),
            seen,
            reading,
        }
    }

    /// `tests/tools/watch.py`.
    fn by_python(
        way: &'static str,
        python: &Python,
        kind: &str,
        log: &Path,
        closed: &Path,
    ) -> Self {
        let mut command = python.tool("watch.py");
        command.arg(kind).arg(log);
        command.arg(RANKS.to_string()).arg(closed);
        Follower::start(way, command, |line| {
            let (flush, seen) = line.split_once(' ').unwrap();
            Some((flush.parse().unwrap(), seen.parse().unwrap()))
        })
    }

    /// Number of flushes seen.
    fn seen(&self) -> usize {
        self.seen.lock().unwrap().len()
    }

    /// Waits for its end. Returns the flushes seen, and the exit status.
    fn end(mut self) -> (Seen, Option<i32>) {
        let status = self.program.0.wait().unwrap();
        self.reading.join().unwrap();
        let seen = std::mem::take(&mut *self.seen.lock().unwrap());
        (seen, status.code())
    }
}

/// Follows with `h5logfs follow`. Its extents must be those of the flush.
fn by_command(log: &Path) -> Follower {
    let mut command = Command::new(PROGRAM);
    command.arg("follow").arg(log);
    command.args(["--json", "--until", "closed", "--timeout", "1"]);
    Follower::start("h5logfs follow", command, |line| {
        let event: Value = serde_json::from_str(&line).unwrap();
        let flush = event["flush"].as_u64()?;
        let steps = serde_json::json!({"name": "/steps", "dims": [flush]});
        assert!(
            event["datasets"].as_array().unwrap().contains(&steps),
            "{line}"
        );
        Some((flush, now()))
    })
}

/// `h5logfs report --watch`, and a reader that looks at its page all the time.
struct Page {
    program: Running,
    has_ended: Arc<AtomicBool>,
    looks: Arc<AtomicUsize>,
    looking: JoinHandle<Seen>,
}

impl Page {
    fn start(log: &Path, page: &Path) -> Self {
        let mut command = Command::new(PROGRAM);
        command.args(["report", "--watch", "-o"]).args([page, log]);
        let program = Running(command.spawn().unwrap());
        let (has_ended, looks) = (Arc::default(), Arc::default());
        let (end, count) = (Arc::clone(&has_ended), Arc::clone(&looks));
        let page = page.to_owned();
        let looking = thread::spawn(move || {
            let mut seen = Seen::new();
            loop {
                // The last page may appear at the very end, so the end is checked before the page.
                let is_over = AtomicBool::load(&end, Ordering::Relaxed);
                let flush = fs::read_to_string(&page).ok().and_then(flush_of_page);
                if let Some(flush) = flush
                    && seen.last().is_none_or(|(last, _)| *last != flush)
                {
                    seen.push((flush, now()));
                    AtomicUsize::store(&count, seen.len(), Ordering::Relaxed);
                }
                if is_over {
                    break;
                }
                thread::sleep(Duration::from_millis(10));
            }
            seen
        });
        Page {
            program,
            has_ended,
            looks,
            looking,
        }
    }

    fn end(mut self) -> Seen {
        assert!(self.program.0.wait().unwrap().success());
        self.has_ended.store(true, Ordering::Relaxed);
        self.looking.join().unwrap()
    }
}

/// The last flush on a page. The page must show its extents.
fn flush_of_page(page: String) -> Option<u64> {
    let (_, rest) = page.split_once("<dt>Last complete flush</dt><dd>")?;
    let flush = rest.split_once('<')?.0;
    let (_, steps) = page.split_once(">/steps</a></td>")?;
    let shape = format!("<td data-key=\"{flush}\">{flush}</td>");
    assert!(steps.split_once("</tr>")?.0.contains(&shape), "{steps}");
    flush.parse().ok()
}

/// The followers of one log.
struct Followers {
    command: Follower,
    page: Page,
    python: Vec<Follower>,
    _mounted: Mounted,
    _used: (Driver, Package),
}

impl Followers {
    /// Starts followers. `closed` is a file that exists once the log is closed.
    fn start(python: &Python, places: &Places, closed: &Path) -> Self {
        let (driver, package) = (Driver::new(), Package::new());
        let by_driver = driver.python().unwrap();
        let by_package = package.used_by(python);
        let mounted = Mounted::new(places.logs.path(), "");
        let (log, shown) = (places.log(), mounted.join("log.h5"));
        let kinds = [
            ("mount and h5py", python, "open", &shown),
            ("driver and h5py", &by_driver, "open", &log),
            ("h5logfs.follow", &by_package, "h5logfs.follow", &log),
            (
                "h5logfs.xarray.follow",
                &by_package,
                "h5logfs.xarray.follow",
                &log,
            ),
        ];
        let start = |(way, python, kind, log): (_, _, _, &PathBuf)| {
            Follower::by_python(way, python, kind, log, closed)
        };
        Followers {
            command: by_command(&log),
            page: Page::start(&log, &places.notes.path().join("page.html")),
            python: kinds.map(start).into(),
            _mounted: mounted,
            _used: (driver, package),
        }
    }

    /// Waits until each program has seen this many more flushes, and there is a page.
    fn wait_for(&self, flushes: usize) {
        let programs = || self.python.iter().chain([&self.command]);
        let before: Vec<usize> = programs().map(Follower::seen).collect();
        wait_long_until("the followers have seen flushes", || {
            let mut all = programs().zip(&before);
            all.all(|(follower, before)| follower.seen() >= before + flushes)
                && self.page.looks.load(Ordering::Relaxed) > 0
        });
    }

    /// The flushes that each has seen until the log was closed. `closes` closes it, given the exit status of `h5logfs
    /// follow`.
    fn end(self, closes: impl FnOnce(Option<i32>)) -> Vec<(&'static str, Seen)> {
        let (seen, status) = self.command.end();
        closes(status);
        let mut all = vec![
            ("h5logfs follow", seen),
            ("report --watch", self.page.end()),
        ];
        for follower in self.python {
            let way = follower.way;
            let (seen, status) = follower.end();
            assert_eq!(status, Some(0), "{way}");
            all.push((way, seen));
        }
        all
    }
}

/// Completion time of each flush according to its journal, in seconds since 1970.
fn times_in(mut journal: File) -> BTreeMap<u64, f64> {
    let mut text = String::new();
    journal.read_to_string(&mut text).unwrap();
    let commits = text.lines().filter_map(|line| {
        let line: Value = serde_json::from_str(line.split_once(' ')?.1).ok()?;
        let commit = &line["commit"];
        Some((commit["flush"].as_u64()?, commit["time"].as_f64()? / 1e3))
    });
    commits.collect()
}

/// Delay until each flush was seen, in milliseconds, sorted. Flushes older than the follower do not count.
fn latencies(seen: &Seen, times: &BTreeMap<u64, f64>) -> Vec<f64> {
    let late = |(flush, at): &(u64, f64)| Some((at - times.get(flush)?) * 1e3);
    let mut late: Vec<f64> = seen.iter().skip(1).filter_map(late).collect();
    late.sort_by(f64::total_cmp);
    late
}

/// The job runs for this time. Then it closes its log, or is killed.
fn follow(time: Duration, closes: bool) {
    let (Some(python), true) = (Python::new(), can_mount(User::Caller)) else {
        return;
    };
    let places = Places::new(&Place::Here);
    let mut job = Pattern::start_in(places, &Place::Here, 1_000_000, 0, &["pause=50"]);
    assert!(job.victim.wait_for("1"), "{}", job.victim.job.said());
    let (log, notes) = (job.places().log(), job.places().notes.path().to_owned());
    // A close removes the journal's name.
    let journal = File::open(job.journal()).unwrap();
    let closed = notes.join("stop");
    let mut killed = by_command(&log);
    let followers = Followers::start(&python, job.places(), &closed);
    followers.wait_for(FEW);
    wait_long_until("one follows that is to be killed", || killed.seen() >= FEW);
    killed.program.0.kill().unwrap();
    followers.wait_for(FEW);
    thread::sleep(time);
    if closes {
        fs::write(notes.join("end"), "").unwrap();
        assert!(job.victim.wait_for("closed"), "{}", job.victim.job.said());
    } else {
        job.victim.job.kill();
    }
    let acknowledged = job.acknowledged();
    let all = followers.end(|status| {
        assert_eq!(status, Some(if closes { 0 } else { 3 }));
        if !closes {
            let recovered = Command::new(PROGRAM).arg("recover").arg(&log).output();
            let recovered = recovered.unwrap();
            assert!(recovered.status.success(), "{}", said(&recovered));
        }
        fs::write(&closed, "").unwrap();
    });
    let times = times_in(journal);
    for (way, seen) in all {
        let flushes: Vec<u64> = seen.iter().map(|(flush, _)| *flush).collect();
        let in_order = flushes.windows(2).all(|two| two[0] < two[1]);
        assert!(in_order, "{way}: {flushes:?}");
        // The last page of a job that closes its log need not show its last flush. A killed job may have been about
        // to return from one more.
        let last = *flushes.last().unwrap();
        let is_last = last == acknowledged || (!closes && last == acknowledged + 1);
        assert!(
            is_last || closes && last < acknowledged,
            "{way}: {last} of {acknowledged}"
        );
        let late = latencies(&seen, &times);
        let ms = |at: usize| late.get(at).copied().unwrap_or(f64::NAN);
        eprintln!(
            "{way}: {} flushes of {acknowledged}, seen after {:.0} ms (median) to {:.0} ms (most)",
            flushes.len(),
            ms(late.len() / 2),
            ms(late.len().saturating_sub(1)),
        );
    }
}

#[test]
fn followers_of_each_kind_see_whole_flushes_until_the_job_is_killed() {
    follow(Duration::ZERO, false);
}

#[test]
#[ignore = "takes a minute: make test-long"]
fn followers_of_each_kind_see_whole_flushes_for_20_seconds() {
    for closes in [true, false] {
        follow(Duration::from_secs(20), closes);
    }
}
