//! Programs that repeatedly read a growing log, through the daemon of a mount and with the file driver.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::driver::Driver;
use super::nodes::Nodes;
use super::readers::Python;
use super::{Mounted, wait_long_until};

/// The observations of a reader.
#[derive(Debug, Default)]
pub struct Seen {
    pub last: u64,
    pub reads: u64,
    /// Reads that showed an older flush than the last returned one.
    pub behind: u64,
    /// Opens that failed.
    pub refused: u64,
    /// Reads that failed because data verified only then was not visible yet.
    pub late: u64,
    pub mixed: u64,
}

impl Seen {
    pub fn add_all(&mut self, other: &Seen) {
        self.reads += other.reads;
        self.behind += other.behind;
        self.refused += other.refused;
        self.late += other.late;
        self.mixed += other.mixed;
    }
}

/// A process that runs `tests/tools/late.py`.
struct Reader {
    way: String,
    process: Child,
    said: PathBuf,
}

/// The command of a reader of this kind, for the log of a job with `ranks` ranks.
fn reading(python: &Python, kind: &str, log: &Path, notes: &Path, ranks: u32) -> Command {
    let mut command = python.tool("late.py");
    command.arg(kind).args([log, notes]).arg(ranks.to_string());
    command
}

impl Reader {
    fn start(way: String, mut command: Command, notes: &Path) -> Self {
        let said = notes.join(format!("said by {way}"));
        let output = File::create(&said).unwrap();
        command.stdin(Stdio::null());
        command.stdout(output.try_clone().unwrap()).stderr(output);
        Reader {
            process: command.spawn().unwrap(),
            way,
            said,
        }
    }

    fn lines(&self) -> Vec<String> {
        let said = fs::read_to_string(&self.said).unwrap();
        // The last line may be incomplete.
        let whole = said.rfind('\n').map_or("", |end| &said[..end]);
        whole.lines().map(str::to_owned).collect()
    }

    /// Waits for the end. Returns the observations if they are in order. Prints repeated messages once.
    fn wait(&mut self) -> Seen {
        let status = self.process.wait().unwrap();
        let (lines, mut seen) = (self.lines(), Seen::default());
        assert!(status.success(), "{}: {}", self.way, lines.join("\n"));
        let mut printed = "";
        let mut print = |line| {
            if line != printed {
                eprintln!("{}: {line}", self.way);
            }
            printed = line;
        };
        for line in &lines {
            seen.reads += 1;
            let numbers = line.strip_prefix("flush ").and_then(|rest| {
                let (flush, before) = rest.split_once(" of ")?;
                Some((flush.parse::<u64>().ok()?, before.parse::<u64>().ok()?))
            });
            match numbers {
                Some((flush, before)) => {
                    assert!(flush >= seen.last, "{}: {}", self.way, lines.join("\n"));
                    seen.behind += u64::from(flush < before);
                    seen.last = flush;
                }
                None if line.starts_with("error: ") => {
                    seen.refused += 1;
                    print(line);
                }
                None if line.starts_with("mixed: ") => {
                    seen.mixed += 1;
                    print(line);
                }
                None => panic!("{}: {}", self.way, lines.join("\n")),
            }
        }
        seen
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Readers of one log: through a mount of the directory, and with the file driver.
pub struct Readers {
    all: Vec<Reader>,
    notes: PathBuf,
    _mounted: Option<Mounted>,
    _driver: Driver,
}

impl Readers {
    /// Readers of a log in a directory of this machine.
    pub fn start(dir: &Path, notes: &Path, kind: &str, ranks: u32) -> Self {
        let mounted = Mounted::new(dir, "");
        let logs = [mounted.path(), dir].map(|dir| dir.join("log.h5"));
        let command = |python: &Python, log: &Path| reading(python, kind, log, notes, ranks);
        let readers = Self::of(logs, notes, command);
        Readers {
            _mounted: Some(mounted),
            ..readers
        }
    }

    /// Readers on a node, of a log of `tests/programs/pattern.rs`: in a mount, and in place.
    pub fn on(nodes: &Nodes, node: usize, logs: [PathBuf; 2], notes: &Path, ranks: u32) -> Self {
        Self::of(logs, notes, |python, log| {
            nodes.moved(node, &reading(python, "pattern", log, notes, ranks))
        })
    }

    fn of(logs: [PathBuf; 2], notes: &Path, command: impl Fn(&Python, &Path) -> Command) -> Self {
        let [mounted, log] = &logs;
        let driver = Driver::new();
        let reader = |python: Python, way: &str, log: &Path| {
            let way = format!("{} {way}", python.name);
            Reader::start(way, command(&python, log), notes)
        };
        let through = Python::all().into_iter();
        let through = through.map(|python| reader(python, "by a mount", mounted));
        let by_driver = driver.python();
        let by_driver = by_driver.map(|python| reader(python, "by the driver", log));
        Readers {
            all: through.chain(by_driver).collect(),
            notes: notes.to_owned(),
            _mounted: None,
            _driver: driver,
        }
    }

    /// Waits until each reader has completed `looks` further reads that began after this call.
    pub fn wait_for(&self, looks: usize) {
        let before: Vec<usize> = self.all.iter().map(|r| r.lines().len()).collect();
        wait_long_until("the readers have looked", || {
            let mut all = self.all.iter().zip(&before);
            all.all(|(reader, before)| reader.lines().len() >= before + looks)
        });
    }

    /// Ends the readers once they show this flush.
    pub fn end(mut self, last: u64) -> Seen {
        let new = self.notes.join("new");
        fs::write(&new, last.to_string()).unwrap();
        fs::rename(new, self.notes.join("stop")).unwrap();
        let mut sum = Seen {
            last,
            ..Seen::default()
        };
        for reader in &mut self.all {
            let seen = reader.wait();
            eprintln!("{}: {seen:?}", reader.way);
            assert_eq!(seen.last, last);
            sum.add_all(&seen);
        }
        sum
    }
}
