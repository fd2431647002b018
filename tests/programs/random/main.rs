//! Random programs of the writer, under `mpirun`:
//!
//! ```text
//! writer-random FOLDER FIRST-SEED NUMBER [--abort|--settle]
//! ```
//!
//! Each seed stands for a program, which every rank draws by itself. It writes `SEED.h5`, and its meaning to
//! `SEED.json`, from which `tests/tools/serial.py` makes the file that libhdf5 would have written. With `--abort` the
//! processes kill themselves as soon as a program with two flushes would leave its file open. With `--settle` the
//! last close settles the file, if it has no subfiles.

mod element;
mod program;
mod region;
mod rng;

use std::fs::File;
use std::io::BufWriter;
use std::path::Path;

use h5logfs_writer::{Dataset, DatasetSpec, Fsync, Options, Result, Subfiles, Writer};
use mpi::topology::{Color, SimpleCommunicator};
use mpi::traits::*;

use element::Element;
use program::{Appends, Content, NewDataset, Program, Round, Step, Writes};

fn main() {
    // Otherwise a failing rank would wait for the others in MPI_Finalize.
    std::panic::set_hook(Box::new(|why| {
        eprintln!("{why}");
        std::process::exit(1);
    }));
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [dir, first, number, rest @ ..] = &arguments[..] else {
        panic!("writer-random FOLDER FIRST-SEED NUMBER [--abort|--settle]");
    };
    let (first, number): (u64, u64) = (first.parse().unwrap(), number.parse().unwrap());
    let mode = match rest {
        [] => Mode::Usual,
        [mode] if mode == "--abort" => Mode::Abort,
        [mode] if mode == "--settle" => Mode::Settle,
        _ => panic!("{rest:?}"),
    };
    let universe = mpi::initialize().unwrap();
    let world = universe.world();
    for seed in first..first + number {
        let program = Program::draw(seed, world.size() as u32);
        let path = Path::new(dir).join(format!("{seed}.h5"));
        if world.rank() == 0 {
            let json = File::create(path.with_extension("json")).unwrap();
            serde_json::to_writer(BufWriter::new(json), &program).unwrap();
        }
        let written = write(&program, &path, &world, mode);
        written.unwrap_or_else(|e| panic!("seed {seed}: {e}"));
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Usual,
    Abort,
    Settle,
}

fn write(program: &Program, path: &Path, world: &SimpleCommunicator, mode: Mode) -> Result<()> {
    let is_reopened = |round: &Round| matches!(round.steps.first(), Some(Step::Reopen { .. }));
    let last_opened = program.rounds.iter().rposition(is_reopened);
    let settles = mode == Mode::Settle && program.closed && program.subfiles == 0;
    let options = |round: Option<usize>| Options {
        settle: settles && round == last_opened,
        ..options(program)
    };
    let file = Writer::create(path, world, options(None))?;
    let mut running = Some(Running::new(file, world));
    let mut datasets = Vec::new();
    for (number, round) in program.rounds.iter().enumerate() {
        if let Some(Step::Reopen { ranks, closed }) = round.steps.first() {
            let left = running.take().map(|r| r.leave(*closed)).transpose()?;
            // The lock of the journal is free once the first rank has left the file.
            world.barrier();
            let writes = world.rank() < *ranks as i32;
            let color = if writes {
                Color::with_value(0)
            } else {
                Color::undefined()
            };
            running = match world.split_by_color(color) {
                Some(writers) => {
                    let options = options(Some(number));
                    Some(reopen(options, path, &writers, &datasets, left)?)
                }
                None => None,
            };
        }
        let last = number + 1 == program.rounds.len();
        let end = match (last, program.closed) {
            (false, _) => End::Flush,
            (true, true) => End::Close,
            (true, false) => End::Open,
        };
        if let Some(running) = &mut running {
            running.round(&round.steps, end)?;
        }
        datasets.extend(round.steps.iter().filter_map(|step| match step {
            Step::Dataset(new) => Some(&**new),
            _ => None,
        }));
    }
    if program.closed {
        running.map(|r| r.leave(true)).transpose()?;
    } else if mode == Mode::Abort && program.rounds.len() > 2 {
        // All must get this far: mpirun ends the others with the first.
        world.barrier();
        let own = rustix::process::getpid();
        rustix::process::kill_process(own, rustix::process::Signal::KILL).unwrap();
    }
    Ok(())
}

fn options(program: &Program) -> Options {
    Options {
        subfiles: match program.subfiles {
            0 => Subfiles::None,
            // All ranks are on one node.
            1 if program.seed % 2 == 1 => Subfiles::PerNode,
            number => Subfiles::Number(number),
        },
        share_selections: program.share,
        encode_selections: program.encode,
        fsync: match program.seed % 8 {
            0 => Fsync::Flush,
            1 => Fsync::Close,
            _ => Fsync::None,
        },
        collective: program.seed.is_multiple_of(3),
        checksums: program.seed.is_multiple_of(2),
        hints: if program.seed.is_multiple_of(5) {
            vec![("cb_nodes".into(), "1".into())]
        } else {
            Vec::new()
        },
        ..Options::default()
    }
}

/// Reopens the file, with these datasets. `left` has the extents that this rank knows.
fn reopen(
    options: Options,
    path: &Path,
    writers: &SimpleCommunicator,
    datasets: &[&NewDataset],
    left: Option<Vec<Vec<u64>>>,
) -> Result<Running> {
    let options = Options {
        subfiles: Subfiles::None,
        ..options
    };
    let mut running = Running::new(Writer::open(path, writers, options)?, writers);
    for new in datasets {
        assert!(running.file.exists(&new.path));
        let dataset = new.element.open(&mut running.file, &new.path)?;
        running.datasets.push((dataset, new.element.clone()));
    }
    assert!(left.is_none_or(|left| left == running.extents()));
    Ok(running)
}

/// The end of a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Flush,
    /// The close flushes.
    Close,
    Open,
}

struct Running {
    file: Writer,
    rank: usize,
    datasets: Vec<(Dataset, Element)>,
}

impl Running {
    fn new(file: Writer, writers: &SimpleCommunicator) -> Self {
        Running {
            file,
            rank: writers.rank() as usize,
            datasets: Vec::new(),
        }
    }

    fn extents(&self) -> Vec<Vec<u64>> {
        let extent =
            |(dataset, _): &(Dataset, Element)| self.file.dims(*dataset).map(<[u64]>::to_vec);
        self.datasets.iter().map(|d| extent(d).unwrap()).collect()
    }

    /// Ends the work on the file. Returns its extents.
    fn leave(mut self, closed: bool) -> Result<Vec<Vec<u64>>> {
        let extents = self.extents();
        if closed {
            self.file.close()?;
        }
        Ok(extents)
    }

    fn round(&mut self, steps: &[Step], end: End) -> Result<()> {
        for (number, step) in steps.iter().enumerate() {
            if let Step::Writes(writes) = step
                && writes[self.rank].batch
            {
                let last = number + 1 == steps.len();
                let flush = last && end == End::Flush;
                self.batch(&writes[self.rank], flush)?;
                if flush {
                    return Ok(());
                }
            } else if let Step::Appends(appends) = step
                && appends[self.rank].batch
            {
                let last = number + 1 == steps.len();
                let flush = last && end == End::Flush;
                self.append_batch(&appends[self.rank], flush)?;
                if flush {
                    return Ok(());
                }
            } else {
                self.step(step)?;
            }
        }
        match end {
            End::Flush => self.file.flush(),
            End::Close | End::Open => Ok(()),
        }
    }

    fn step(&mut self, step: &Step) -> Result<()> {
        let file = &mut self.file;
        match step {
            // Done already.
            Step::Reopen { .. } => Ok(()),
            Step::Group { path } => file.group(path),
            Step::Dataset(new) => {
                // Paths may lack the leading slash.
                let path = match new.dims.len() % 2 {
                    0 => &new.path,
                    _ => &new.path[1..],
                };
                let dataset = file.dataset(path, spec(new))?;
                assert_eq!(file.dims(dataset)?, new.dims);
                self.datasets.push((dataset, new.element.clone()));
                Ok(())
            }
            Step::Attribute {
                object,
                name,
                value,
            } => match value {
                Content::Elements { value, .. } => file.attribute(object, name, value.clone()),
                Content::Text(text) => file.attribute(object, name, text.as_str()),
                Content::Texts(texts) => {
                    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
                    file.attribute(object, name, &texts[..])
                }
            },
            Step::Extend { dataset, dims } => file.extend(self.datasets[*dataset].0, dims),
            Step::Writes(writes) => {
                for write in &writes[self.rank].list {
                    let (dataset, element) = &self.datasets[write.dataset];
                    element.put(file, *dataset, write.region.selection(), &write.data)?;
                }
                Ok(())
            }
            Step::Appends(appends) => {
                for append in &appends[self.rank].list {
                    let (dataset, element) = &self.datasets[append.dataset];
                    element.append(file, *dataset, &append.data)?;
                }
                Ok(())
            }
        }
    }

    fn append_batch(&mut self, appends: &Appends, flush: bool) -> Result<()> {
        let mut batch = self.file.batch();
        for append in &appends.list {
            let (dataset, element) = &self.datasets[append.dataset];
            element.append(&mut batch, *dataset, &append.data)?;
        }
        if flush { batch.flush() } else { Ok(()) }
    }

    /// Lends the data of some writes; without a flush the writer gets copies.
    fn batch(&mut self, writes: &Writes, flush: bool) -> Result<()> {
        let mut batch = self.file.batch();
        for write in &writes.list {
            let (dataset, element) = &self.datasets[write.dataset];
            element.put(&mut batch, *dataset, write.region.selection(), &write.data)?;
        }
        if flush { batch.flush() } else { Ok(()) }
    }
}

fn spec(new: &NewDataset) -> DatasetSpec {
    let mut spec = new.element.spec(&new.dims);
    match new.max_dims.iter().filter(|m| m.is_none()).count() {
        1 if new
            .max_dims
            .iter()
            .zip(&new.dims)
            .all(|(m, d)| m.is_none_or(|m| m == *d)) =>
        {
            let unlimited = new.max_dims.iter().position(Option::is_none);
            spec = spec.unlimited(unlimited.unwrap());
        }
        _ => spec = spec.max_dims(&new.max_dims),
    }
    if let Some(chunk) = &new.chunk {
        spec = spec.chunk(chunk);
    }
    if new.shuffle {
        spec = spec.shuffle();
    }
    if let Some(level) = new.deflate {
        spec = spec.deflate(level);
    }
    if new.fletcher32 {
        spec = spec.fletcher32();
    }
    if let Some(fill) = &new.fill {
        spec = new.element.fill(spec, fill);
    }
    spec
}
