//! Slow reads: chunks that very many blocks touch.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, Signal};

use crate::arena::Arena;
use crate::common::people::{ALICE, Person};
use crate::common::readers::Python;
use crate::common::slow::SlowLog;
use crate::common::wait_until;

/// The chunks of an attack.
const SLOW: SlowLog = SlowLog {
    chunks: 16,
    rows: 64,
    columns: 1024,
    repeated: 1000,
};
const PAGE: u64 = 4096;
/// A file of 1 MiB of data. The offset of the first chunk does not matter.
const PAGES: u64 = SLOW.chunks * SLOW.rows * SLOW.columns / PAGE;

/// An arena where ALICE has a slow log; `None` where this is impossible.
fn arena() -> Option<Arena> {
    arena_with("", SLOW)
}

fn arena_with(options: &str, slow: SlowLog) -> Option<Arena> {
    let arena = Arena::with(options)?;
    slow.write(&arena.source(ALICE).join(NAME));
    arena.give(ALICE);
    Some(arena)
}

const NAME: &str = "slow.h5";

/// Programs that are killed at the end.
#[derive(Default)]
struct Programs(Vec<Child>);

impl Programs {
    fn start(&mut self, mut command: Command) {
        let quiet = command.stdin(Stdio::null()).stdout(Stdio::null());
        self.0.push(quiet.stderr(Stdio::piped()).spawn().unwrap());
    }

    /// Kills them all and waits until they are gone, after the daemon has answered.
    fn kill(&mut self) {
        for program in &mut self.0 {
            program.kill().unwrap();
        }
        for mut program in self.0.drain(..) {
            program.wait().unwrap();
        }
    }
}

impl Drop for Programs {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Reads one page. The kernel then asks for little at a time, and many readers have many pending requests.
fn reader_of_page(mut dd: Command, path: &Path, page: u64) -> Command {
    let from = format!("if={}", path.display());
    dd.arg(from)
        .args(["bs=4096".into(), "count=1".into(), format!("skip={page}")]);
    dd
}

/// Processor time of the daemon in ticks.
fn ticks(daemon: Pid) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{}/stat", daemon.as_raw_pid())).unwrap();
    let (_, fields) = stat.rsplit_once(')').unwrap();
    let fields = fields.split_ascii_whitespace().skip(11).take(2);
    fields.map(|ticks| ticks.parse::<u64>().unwrap()).sum()
}

/// Whether the daemon is busy for more than a tenth of a while.
fn is_busy(daemon: Pid) -> bool {
    let before = ticks(daemon);
    thread::sleep(Duration::from_millis(500));
    ticks(daemon) - before > 5
}

#[test]
fn a_hundred_readers_of_slow_chunks() {
    let Some(arena) = arena() else { return };
    let log = arena.shown(ALICE).join(NAME);
    arena.attack_on_time("100 readers of slow chunks", |attack| {
        let mut readers = Programs::default();
        for number in 0..100 {
            readers.start(reader_of_page(
                Command::new("dd"),
                &log,
                number * 41 % PAGES,
            ));
        }
        while !attack.is_over() {
            thread::sleep(Duration::from_millis(20));
        }
    });
}

#[test]
fn users_who_read_slow_chunks_together() {
    read_together(8);
}

#[test]
fn two_users_who_read_slow_chunks() {
    read_together(2);
}

/// This many users attack at once.
fn read_together(users: u32) {
    let Some(arena) = arena() else { return };
    let log = arena.shown(ALICE).join(NAME);
    let (begin, begun) = mpsc::channel::<()>();
    let log = &log;
    thread::scope(|scope| {
        // Only root can start programs of several users.
        let starting = scope.spawn(move || {
            let mut readers = Programs::default();
            // The channel closes without a message if the attack has failed before.
            if begun.recv().is_ok() {
                for number in 0..96 {
                    let person = Person {
                        name: "one of many",
                        uid: 61_200 + number as u32 % users,
                        ..ALICE
                    };
                    let dd = person.command("dd");
                    readers.start(reader_of_page(dd, log, number * 41 % PAGES));
                }
            }
            readers
        });
        let name = format!("96 readers of {users} users");
        arena.attack_on_time(&name, |attack| {
            begin.send(()).unwrap();
            while !attack.is_over() {
                thread::sleep(Duration::from_millis(20));
            }
        });
        drop(begin);
        starting.join().unwrap().kill();
    });
}

#[test]
fn work_ends_with_those_who_wait_for_it() {
    let Some(arena) = arena() else { return };
    let log = arena.shown(ALICE).join(NAME);
    let daemon = arena.mounted.daemon;
    ALICE.act(|| {
        let mut readers = Programs::default();
        for number in 0..8 {
            readers.start(reader_of_page(Command::new("dd"), &log, number * PAGES / 8));
        }
        wait_until("the daemon reads", || is_busy(daemon));
        readers.kill();
        wait_until("the daemon has stopped reading", || !is_busy(daemon));
        let Some(python) = Python::all().pop() else {
            return;
        };
        let mut asking = python.command();
        asking.args([
            "-c",
            "import os, sys; os.getxattr(sys.argv[1], 'user.h5logfs.covered')",
        ]);
        asking.arg(&log);
        readers.start(asking);
        wait_until("the daemon counts", || is_busy(daemon));
        let killed = Instant::now();
        readers.kill();
        wait_until("the daemon has stopped counting", || !is_busy(daemon));
        let time = killed.elapsed();
        println!("busy for {time:?} after the kill");
        assert!(time < Duration::from_secs(10), "{time:?}");
    });
    assert!(!arena.messages().contains("ERROR"), "{}", arena.messages());
}

#[test]
fn a_read_has_a_limit_of_processor_time() {
    // One chunk takes longer than that, and the index does not.
    let slow = SlowLog {
        chunks: 1,
        rows: 4096,
        repeated: 200,
        ..SLOW
    };
    let Some(arena) = arena_with("read_cpu=1", slow) else {
        return;
    };
    let log = arena.shown(ALICE).join(NAME);
    let read = || {
        ALICE.act(|| {
            let file = File::open(&log).unwrap();
            file.read_exact_at(&mut [0; 16], file.metadata()?.len() - PAGE)
        })
    };
    let outcome = read();
    // A failed read is not repeated at once.
    let before = ticks(arena.mounted.daemon);
    assert!(read().is_err());
    let again = ticks(arena.mounted.daemon) - before;
    assert!(again < 50, "{again} ticks");
    let error = outcome.unwrap_err();
    assert_eq!(Errno::from_io_error(&error), Some(Errno::IO), "{error}");
    let messages = arena.messages();
    let line = messages.lines().find(|line| line.contains("read_cpu"));
    let line = line.unwrap_or_else(|| panic!("{messages}"));
    for word in ["alice/slow.h5", "/slow", "chunk ["] {
        assert!(line.contains(word), "{line}");
    }
}

#[test]
fn slow_reads_end_with_the_mount() {
    let Some(arena) = arena() else { return };
    let log = arena.shown(ALICE).join(NAME);
    let daemon = arena.mounted.daemon;
    let mut readers = Programs::default();
    ALICE.act(|| {
        for number in 0..20 {
            readers.start(reader_of_page(
                Command::new("dd"),
                &log,
                number * 41 % PAGES,
            ));
        }
    });
    wait_until("the daemon reads", || is_busy(daemon));
    let signal = Instant::now();
    arena.mounted.send(Signal::TERM);
    let mut ended = 0;
    for reader in readers.0.drain(..) {
        let output = reader.wait_with_output().unwrap();
        if output.status.success() {
            // Its chunk was made before the signal.
            continue;
        }
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(
            told.contains("Transport endpoint is not connected"),
            "{told}"
        );
        ended += 1;
    }
    assert!(ended > 0, "all reads were done before the signal");
    arena.mounted.expect_gone();
    let time = signal.elapsed();
    println!("the mount was gone {time:?} after the signal");
    // Files remain readable for 5 seconds.
    assert!(time < Duration::from_secs(4), "{time:?}");
}
