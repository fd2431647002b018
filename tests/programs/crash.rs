//! Writes a log in steps, and reports the promises of the library in the order of file operations:
//!
//! ```text
//! writer-crash FILE SAID FLUSH OPTIONS STEP...
//! ```
//!
//! FLUSH is the number of the flush before the first one written. OPTIONS are names of options, or NAME=VALUE,
//! separated by commas. With `again`, a failed flush is tried once more. STEPs are:
//!
//! * `create`, `open`, `flush`, `close`, and `leave`, which ends without a close;
//! * `automatic`, with the option of that name: the log is flushed automatically;
//! * `fork`: a child tries to write, to flush and to close;
//! * `recover` and `append`: another process does this meanwhile;
//! * `refused`: later writes cannot be flushed;
//! * `spill`: writes without a flush; with the option `small` a part goes to the file;
//! * `writeback`: the file system writes everything to disk.
//!
//! Reports go to the file SAID: `tests/crash/promise.rs` explains them.

#[path = "../common/element.rs"]
#[allow(dead_code)]
mod element;

use std::fs::File;
use std::io::Write;
use std::process::Command;

use element::{ANOTHER, WIDTH, attribute, element};
use h5logfs_writer::{Dataset, DatasetSpec, Error, Fsync, Options, Selection, Subfiles, Writer};
use mpi::topology::SimpleCommunicator;
use mpi::traits::*;

fn main() {
    // Otherwise a failing rank would wait for the others in MPI_Finalize.
    std::panic::set_hook(Box::new(|why| {
        eprintln!("{why}");
        std::process::exit(1);
    }));
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [path, said, flush, options, steps @ ..] = &arguments[..] else {
        panic!("writer-crash FILE SAID FLUSH OPTIONS STEP...");
    };
    let universe = mpi::initialize().unwrap();
    let world = universe.world();
    let mut program = Program {
        path,
        said: (world.rank() == 0).then(|| File::options().append(true).open(said).unwrap()),
        options: parse(options),
        is_patient: options.split(',').any(|option| option == "again"),
        flush: flush.parse().unwrap(),
        log: None,
        world: &world,
    };
    steps.iter().for_each(|step| program.step(step));
}

fn parse(text: &str) -> Options {
    let mut options = Options::default();
    for option in text.split(',').filter(|option| !option.is_empty()) {
        match option {
            "fsync=none" => options.fsync = Fsync::None,
            "fsync=close" => options.fsync = Fsync::Close,
            "fsync=flush" => options.fsync = Fsync::Flush,
            "checksums" => options.checksums = true,
            "subfiles" => options.subfiles = Subfiles::Number(2),
            "settle" => options.settle = true,
            // One of the two writes of a flush, so that the other one is spilled.
            "small" => options.buffer_limit = WIDTH * 8 + 500,
            // An automatic flush is due in the next definition after a write.
            "automatic" => options.flush_bytes = Some(1),
            "overwrite" => options.overwrite = true,
            // An option of this program: see `is_patient`.
            "again" => {}
            "discard" => (options.overwrite, options.discard_unclosed) = (true, true),
            other => panic!("the option {other}"),
        }
    }
    options
}

struct Program<'a> {
    path: &'a str,
    /// Only on the first rank.
    said: Option<File>,
    options: Options,
    /// A flush that fails is tried once more.
    is_patient: bool,
    /// The last acknowledged flush.
    flush: u64,
    log: Option<Log>,
    world: &'a SimpleCommunicator,
}

struct Log {
    writer: Writer,
    rows: Option<Dataset>,
    now: Option<Dataset>,
}

impl Program<'_> {
    fn say(&mut self, what: &str, flush: u64) {
        if let Some(said) = &mut self.said {
            said.write_all(format!("{what} {flush}\n").as_bytes())
                .unwrap();
        }
    }

    fn step(&mut self, step: &str) {
        match step {
            "create" => {
                self.say("make", self.flush);
                let options = self.options.clone();
                let writer = Writer::create(self.path, self.world, options).unwrap();
                self.say("made", self.flush);
                self.log = Some(Log {
                    writer,
                    rows: None,
                    now: None,
                });
            }
            "open" => {
                let options = self.options.clone();
                if options.fsync == Fsync::None {
                    self.say("risk", self.flush);
                }
                let mut writer = Writer::open(self.path, self.world, options).unwrap();
                let [rows, now] = ["/rows", "/now"].map(|path| {
                    let there = writer.exists(path);
                    there.then(|| writer.open_dataset::<f64>(path).unwrap())
                });
                self.log = Some(Log { writer, rows, now });
            }
            "spill" => self.write(),
            "flush" | "automatic" => {
                self.say("may", self.flush + 1);
                self.write();
                if step == "flush" {
                    self.flush_log();
                } else {
                    self.let_flush();
                }
                self.flush += 1;
                let synced = self.options.fsync == Fsync::Flush;
                self.say(if synced { "synced" } else { "kept" }, self.flush);
            }
            "close" => {
                self.log.take().unwrap().writer.close().unwrap();
                if self.options.fsync != Fsync::None {
                    self.say("synced", self.flush);
                }
            }
            "writeback" => {
                let file = File::open(self.path).unwrap();
                rustix::fs::syncfs(file).unwrap();
            }
            "leave" => drop(self.log.take()),
            "fork" => self.fork(),
            "recover" => {
                let program = std::env::var("H5LOGFS_PROGRAM").unwrap();
                self.let_another(Command::new(program).args(["recover", self.path]));
                self.say("synced", self.flush);
            }
            "append" => {
                let said = std::env::args().nth(2).unwrap();
                let flush = self.flush.to_string();
                let mut command = Command::new(std::env::current_exe().unwrap());
                command.args([self.path, &said, &flush, "fsync=flush"]);
                self.let_another(command.args(["open", "flush", "leave"]));
            }
            "refused" => {
                let flush = self.flush + 1;
                let log = self.log.as_mut().unwrap();
                let writer = &mut log.writer;
                let (now, values) = (log.now.unwrap(), [element(flush, 0); WIDTH as usize]);
                for _ in 0..3 {
                    // A full buffer cannot be written anywhere.
                    let _ = writer.write(now, Selection::block(&[0], &[WIDTH]), &values);
                }
                let refused = writer.flush().unwrap_err().to_string();
                assert!(refused.contains("Nothing was written"), "{refused}");
                writer.close().unwrap_err();
            }
            other => panic!("the step {other}"),
        }
    }

    fn flush_log(&mut self) {
        let writer = &mut self.log.as_mut().unwrap().writer;
        let mut flushed = writer.flush();
        if flushed.is_err() && self.is_patient {
            flushed = writer.flush();
        }
        flushed.unwrap();
    }

    /// Runs another process on the log, on the first rank.
    fn let_another(&self, command: &mut Command) {
        if self.said.is_some() {
            // The process is alone, whatever started this one.
            let inherited = std::env::vars().map(|(name, _)| name);
            for name in
                inherited.filter(|name| name.starts_with("OMPI_") || name.starts_with("PMI"))
            {
                command.env_remove(name);
            }
            let output = command.output().unwrap();
            assert!(output.status.success(), "{output:?}");
        }
        self.world.barrier();
    }

    /// A child tries what a rank does, and is refused. Its close changes nothing.
    fn fork(&mut self) {
        // SAFETY: the child uses only the memory of this thread, and ends.
        let child = unsafe { libc::fork() };
        if child > 0 {
            let mut status = -1;
            // SAFETY: there is room for the status.
            unsafe { libc::waitpid(child, &raw mut status, 0) };
            assert_eq!(status, 0);
            return;
        }
        let forked = |result: Result<(), Error>| matches!(result, Err(Error::Forked { .. }));
        let log = self.log.as_mut().unwrap();
        let (writer, now) = (&mut log.writer, log.now.unwrap());
        let written = writer.write(now, Selection::block(&[0], &[1]), &[0.0]);
        let is_refused = forked(written)
            && forked(writer.group("/group"))
            && forked(writer.extend(now, &[9 * WIDTH]))
            && forked(writer.flush())
            && forked(writer.batch().flush());
        let is_closed = writer.close().is_ok();
        // SAFETY: it takes a number.
        unsafe { libc::_exit(i32::from(!is_refused || !is_closed)) }
    }

    /// Makes calls that change nothing: in the first one the first rank requests a flush, which happens in the second
    /// one.
    fn let_flush(&mut self) {
        let Log { writer, rows, .. } = self.log.as_mut().unwrap();
        let rows = rows.unwrap();
        let dims = writer.dims(rows).unwrap().to_vec();
        (0..2).for_each(|_| writer.extend(rows, &dims).unwrap());
    }

    /// Writes the data of the next flush.
    fn write(&mut self) {
        let flush = self.flush + 1;
        let row = self.flush % ANOTHER;
        let (rank, ranks) = (self.world.rank() as u64, self.world.size() as u64);
        let columns = ranks * WIDTH;
        let log = self.log.as_mut().unwrap();
        let writer = &mut log.writer;
        let name = attribute(row + 1);
        writer.attribute("/", &name, flush).unwrap();
        let rows = *log.rows.get_or_insert_with(|| {
            let spec = DatasetSpec::new::<f64>(&[0, columns]).unlimited(0);
            let spec = spec.unlimited(1).chunk(&[1, columns]);
            writer.dataset("/rows", spec).unwrap()
        });
        let now = *log.now.get_or_insert_with(|| {
            let spec = DatasetSpec::new::<f64>(&[columns]).unlimited(0);
            writer.dataset("/now", spec.chunk(&[columns])).unwrap()
        });
        writer.extend(rows, &[row + 1, columns]).unwrap();
        let begin = rank * WIDTH;
        let values: Vec<f64> = (begin..begin + WIDTH)
            .map(|column| element(flush, column))
            .collect();
        writer
            .write(rows, Selection::block(&[row, begin], &[1, WIDTH]), &values)
            .unwrap();
        writer
            .write(now, Selection::block(&[begin], &[WIDTH]), &values)
            .unwrap();
    }
}
