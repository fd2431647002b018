//! A writer to be killed. Each flush writes a function of its number, the rank and the place, sometimes defines
//! something, and is acknowledged when it has returned on all ranks.
//!
//! ```text
//! writer-pattern FILE FOLDER FLUSHES [SUBFILES [SESSIONS [settle|pause=MS|checksums|fsync|append]…]]
//! ```
//!
//! SUBFILES is their number, 0 for none, or `node` for one per node.
//!
//! `settle` settles the file at the close; `pause` is the time between flushes in milliseconds; `checksums` is the
//! writer's option, and `fsync` stands for `fsync=flush`. With `append` the job continues an existing file.
//!
//! The job ends early if `FOLDER/end` exists.
//!
//! With several sessions it leaves the file now and then, closed or not, and reopens it, without subfiles on another
//! number of ranks. Another rank then writes the part of a rank that has not opened the file.
//!
//! Rank N writes its process number to `FOLDER/pid.N`. `FOLDER/acknowledged` gets a line for each flush that nothing
//! may undo, and for the stages around it. `tests/tools/pattern.py` knows what the file must hold.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use h5logfs_writer::{Dataset, DatasetSpec, Fsync, Options, Result, Selection, Subfiles, Writer};
use hdf5::H5Type;
use mpi::topology::{Color, SimpleCommunicator};
use mpi::traits::*;

const COLUMNS: u64 = 16;
const STATE: u64 = 300;
const SCATTERED: u64 = 64;
const BULK: u64 = 1 << 16;

#[derive(H5Type, Clone, Copy)]
#[repr(C)]
struct Event {
    flush: u32,
    rank: u32,
    number: u64,
}

fn main() {
    std::panic::set_hook(Box::new(|why| {
        eprintln!("{why}");
        std::process::exit(1);
    }));
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [path, dir, flushes, rest @ ..] = &arguments[..] else {
        panic!(
            "writer-pattern FILE FOLDER FLUSHES [SUBFILES [SESSIONS [settle|pause=MS|checksums|fsync|append]…]]"
        );
    };
    let subfiles = match rest.first().map(String::as_str) {
        None | Some("0") => Subfiles::None,
        Some("node") => Subfiles::PerNode,
        Some(number) => Subfiles::Number(number.parse().unwrap()),
    };
    let sessions = rest.get(1).map_or(1, |n| n.parse().unwrap());
    let words = rest.get(2..).unwrap_or_default();
    let has = |wanted: &str| words.iter().any(|word| word == wanted);
    let pause = words.iter().find_map(|word| word.strip_prefix("pause="));
    let pause = pause.map_or(Duration::ZERO, |ms| {
        Duration::from_millis(ms.parse().unwrap())
    });
    let flushes = flushes.parse().unwrap();
    let universe = mpi::initialize().unwrap();
    let world = universe.world();
    let dir = Path::new(dir);
    let pid = dir.join(format!("pid.{}", world.rank()));
    fs::write(pid, std::process::id().to_string()).unwrap();
    let mut acknowledge = acknowledger(&world, dir.join("acknowledged"));
    acknowledge("ready");
    let options = Options {
        subfiles,
        settle: has("settle"),
        checksums: has("checksums"),
        fsync: if has("fsync") {
            Fsync::Flush
        } else {
            Fsync::Close
        },
        ..Options::default()
    };
    let plan = Plan {
        path: Path::new(path),
        world: &world,
        subfiles,
        flushes,
        each: flushes.div_ceil(sessions).max(1),
        pause,
        end: dir.join("end"),
    };
    let file = if has("append") {
        Writer::open(path, &world, options)
    } else {
        Writer::create(path, &world, options)
    };
    plan.run(file.unwrap(), &mut acknowledge).unwrap();
}

struct Plan<'a> {
    path: &'a Path,
    world: &'a SimpleCommunicator,
    subfiles: Subfiles,
    flushes: u64,
    /// Number of flushes in a session.
    each: u64,
    /// Pause between flushes.
    pause: Duration,
    /// The job ends if this file exists.
    end: PathBuf,
}

/// Reports for all ranks that they have reached a point.
fn acknowledger(world: &impl Communicator, path: PathBuf) -> impl FnMut(&str) {
    let mut file: Option<File> = None;
    let root = world.rank() == 0;
    move |line: &str| {
        world.barrier();
        if root {
            let opened = file.get_or_insert_with(|| {
                let mut options = OpenOptions::new();
                options.create(true).append(true).open(&path).unwrap()
            });
            opened.write_all(format!("{line}\n").as_bytes()).unwrap();
        }
    }
}

/// The file on a rank that has it open.
struct Open {
    file: Writer,
    pattern: Pattern,
}

impl Plan<'_> {
    fn run(&self, mut file: Writer, acknowledge: &mut impl FnMut(&str)) -> Result<()> {
        acknowledge("created");
        let ranks = self.world.size() as u64;
        let (pattern, mut flushes) = if file.exists("/steps") {
            let pattern = Pattern::find(&mut file, self.world, ranks)?;
            let flushes = file.dims(pattern.steps)?[0];
            (pattern, flushes)
        } else {
            (Pattern::define(&mut file, self.world, ranks)?, 0)
        };
        let mut open = Some(Open { file, pattern });
        for flush in flushes + 1..=self.flushes {
            let session = (flush - 1) / self.each;
            if flush > 1 && (flush - 1).is_multiple_of(self.each) {
                open = self.reopen(open, session, acknowledge)?;
            }
            if let Some(Open { file, pattern }) = &mut open {
                pattern.fill(file, flush)?;
                match flush % 8 {
                    0 => pattern.bulk(file, flush, false)?,
                    _ => file.flush()?,
                }
            }
            acknowledge(&flush.to_string());
            flushes = flush;
            std::thread::sleep(self.pause);
            if self.is_told_to_end() {
                break;
            }
        }
        // The close makes one more flush.
        let last = flushes + 1;
        if let Some(Open { file, pattern }) = &mut open {
            pattern.fill(file, last)?;
        }
        acknowledge("closing");
        if let Some(Open { file, pattern }) = &mut open {
            match last % 8 {
                0 => pattern.bulk(file, last, true)?,
                _ => file.close()?,
            }
        }
        acknowledge("closed");
        Ok(())
    }

    fn is_told_to_end(&self) -> bool {
        let mut is_told = self.end.exists();
        let root = self.world.process_at_rank(0);
        root.broadcast_into(&mut is_told);
        is_told
    }

    /// Leaves the file, and reopens it.
    fn reopen(
        &self,
        open: Option<Open>,
        session: u64,
        acknowledge: &mut impl FnMut(&str),
    ) -> Result<Option<Open>> {
        acknowledge(&format!("leaving {session}"));
        if let Some(Open { mut file, .. }) = open
            && !session.is_multiple_of(3)
        {
            file.close()?;
        }
        acknowledge(&format!("opening {session}"));
        let (rank, all) = (self.world.rank() as u64, self.world.size() as u64);
        let number = match self.subfiles {
            Subfiles::None => 1 + (session * 2 + 1) % all,
            _ => all,
        };
        let color = if rank < number {
            Color::with_value(0)
        } else {
            Color::undefined()
        };
        let Some(writers) = self.world.split_by_color(color) else {
            return Ok(None);
        };
        let mut file = Writer::open(self.path, &writers, Options::default())?;
        let pattern = Pattern::find(&mut file, &writers, all)?;
        Ok(Some(Open { file, pattern }))
    }
}

/// The value of an element, which tells flush, rank and place.
fn value(flush: u64, rank: u64, place: u64) -> u64 {
    flush * 1_000_003 + rank * 10_007 + place * 31
}

struct Pattern {
    /// The ranks whose part this process writes.
    own: Vec<u64>,
    ranks: u64,
    steps: Dataset,
    field: Dataset,
    state: Dataset,
    scattered: Dataset,
    events: Dataset,
    /// Number of event rows so far.
    rows: u64,
    bulk: Dataset,
}

/// The parts that a process writes if there may be fewer processes than ranks.
fn parts(writers: &impl Communicator, ranks: u64) -> Vec<u64> {
    let (rank, number) = (writers.rank() as u64, writers.size() as u64);
    (rank..ranks).step_by(number as usize).collect()
}

impl Pattern {
    fn define(file: &mut Writer, writers: &impl Communicator, ranks: u64) -> Result<Self> {
        let steps = DatasetSpec::new::<i64>(&[0]).unlimited(0);
        let field = DatasetSpec::new::<f64>(&[0, ranks * COLUMNS]).unlimited(0);
        let events = DatasetSpec::new::<Event>(&[0]).unlimited(0);
        let bulk = DatasetSpec::new::<u8>(&[0, ranks * BULK]).unlimited(0);
        Ok(Pattern {
            own: parts(writers, ranks),
            ranks,
            steps: file.dataset("/steps", steps)?,
            field: file.dataset("/air/field", field.chunk(&[1, COLUMNS]))?,
            state: file.dataset("/state", DatasetSpec::new::<u32>(&[ranks, STATE]))?,
            scattered: file.dataset("/_scattered", DatasetSpec::new::<u16>(&[ranks, SCATTERED]))?,
            events: file.dataset("/run/events", events.chunk(&[64]).shuffle().deflate(4))?,
            rows: 0,
            bulk: file.dataset("/bulk", bulk)?,
        })
    }

    /// The datasets of a reopened file.
    fn find(file: &mut Writer, writers: &impl Communicator, ranks: u64) -> Result<Self> {
        let events = file.open_dataset::<Event>("/run/events")?;
        Ok(Pattern {
            own: parts(writers, ranks),
            ranks,
            steps: file.open_dataset::<i64>("/steps")?,
            field: file.open_dataset::<f64>("/air/field")?,
            state: file.open_dataset::<u32>("/state")?,
            scattered: file.open_dataset::<u16>("/_scattered")?,
            events,
            rows: file.dims(events)?[0],
            bulk: file.open_dataset::<u8>("/bulk")?,
        })
    }

    fn fill(&mut self, file: &mut Writer, flush: u64) -> Result<()> {
        file.extend(self.steps, &[flush])?;
        file.extend(self.field, &[flush, self.ranks * COLUMNS])?;
        if flush.is_multiple_of(13) {
            // A flush of only definitions.
            return file.attribute("/", &format!("empty{flush}"), flush);
        }
        for rank in self.own.clone() {
            self.fill_part(file, flush, rank)?;
        }
        self.fill_events(file, flush)?;
        if flush.is_multiple_of(5) {
            self.define_late(file, flush)?;
        }
        Ok(())
    }

    fn fill_part(&self, file: &mut Writer, flush: u64, rank: u64) -> Result<()> {
        let row = flush - 1;
        if flush % self.ranks == rank {
            let square = (flush * flush) as i64;
            file.write(self.steps, Selection::block(&[row], &[1]), &[square])?;
        }
        let of = |place: u64| value(flush, rank, place);
        let line: Vec<f64> = (0..COLUMNS).map(|i| of(i) as f64).collect();
        let at = [row, rank * COLUMNS];
        file.write(self.field, Selection::block(&at, &[1, COLUMNS]), &line)?;
        let state: Vec<u32> = (0..STATE).map(|i| of(i) as u32).collect();
        file.write(
            self.state,
            Selection::block(&[rank, 0], &[1, STATE]),
            &state,
        )?;
        let every_other = Selection::Hyperslab {
            start: &[rank, flush % 2],
            stride: &[1, 2],
            count: &[1, SCATTERED / 2],
            block: &[1, 1],
        };
        let places = (flush % 2..SCATTERED).step_by(2);
        let scattered: Vec<u16> = places.map(|i| of(i) as u16).collect();
        file.write(self.scattered, every_other, &scattered)
    }

    fn fill_events(&mut self, file: &mut Writer, flush: u64) -> Result<()> {
        let number = |rank: u64| (flush * 7 + rank * 3) % 11;
        let all: u64 = (0..self.ranks).map(number).sum();
        file.extend(self.events, &[self.rows + all])?;
        for rank in &self.own {
            let before: u64 = (0..*rank).map(number).sum();
            let (first, own) = (self.rows + before, number(*rank));
            let event = |i| Event {
                flush: flush as u32,
                rank: *rank as u32,
                number: value(flush, *rank, i),
            };
            let events: Vec<Event> = (0..own).map(event).collect();
            file.write(self.events, Selection::block(&[first], &[own]), &events)?;
        }
        self.rows += all;
        Ok(())
    }

    /// A dataset that only even ranks write.
    fn define_late(&self, file: &mut Writer, flush: u64) -> Result<()> {
        let path = format!("/late/{flush}");
        let spec = DatasetSpec::new::<i32>(&[self.ranks, 8]).fill(-1);
        let late = file.dataset(&path, spec)?;
        file.attribute(&path, "made", flush)?;
        file.attribute(&path, "note", format!("made by flush {flush}"))?;
        for rank in self.own.iter().filter(|rank| rank.is_multiple_of(2)) {
            let line: Vec<i32> = (0..8).map(|i| value(flush, *rank, i) as i32).collect();
            file.write(late, Selection::block(&[*rank, 0], &[1, 8]), &line)?;
        }
        Ok(())
    }

    /// Flushes or closes with more bytes, which are lent.
    fn bulk(&self, file: &mut Writer, flush: u64, close: bool) -> Result<()> {
        let row = flush / 8 - 1;
        file.extend(self.bulk, &[row + 1, self.ranks * BULK])?;
        let bytes = |rank: &u64| -> Vec<u8> {
            let places = 0..BULK;
            places.map(|i| value(flush, *rank, i) as u8).collect()
        };
        let parts: Vec<(u64, Vec<u8>)> = self.own.iter().map(|r| (*r, bytes(r))).collect();
        let mut batch = file.batch();
        for (rank, bytes) in &parts {
            let at = [row, rank * BULK];
            batch.write(self.bulk, Selection::block(&at, &[1, BULK]), bytes)?;
        }
        if close { batch.close() } else { batch.flush() }
    }
}
