//! Flush bandwidth: the writer against raw collective MPI-IO and against pwrite, of the same bytes by
//! the same ranks.

use std::ffi::{CString, c_int};
use std::fs::{File, OpenOptions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;

use h5logfs_writer::{Dataset, DatasetSpec, Fsync, Options, Selection, Subfiles, Writer};
use mpi::ffi;
use mpi::traits::*;

use super::report::{FlushReport, FlushRow, Spread};
use super::{Bench, Random, Result};

/// One way to bring the same elements to a file. Calls are collective, but for `take`.
trait Contestant {
    /// A new file for `total` elements of all ranks.
    fn open(&mut self, bench: &Bench, name: &str, total: u64) -> Result<()>;
    /// Takes elements over, so that the program may change them.
    fn take(&mut self, start: u64, source: &[f64]) -> Result<()>;
    /// Brings what was taken to the file. `source` is what it was, for those that do not copy.
    fn flush(&mut self, start: u64, source: &[f64]) -> Result<()>;
    fn close(&mut self) -> Result<()>;
}

/// Names and makers, the yardsticks first.
fn contestants(size: usize) -> Vec<(&'static str, Box<dyn Contestant>)> {
    let writer = |change: fn(&mut Options), lent| -> Box<dyn Contestant> {
        let mut options = Options {
            fsync: Fsync::None,
            buffer_limit: 2 * size as u64 + (1 << 20),
            ..Options::default()
        };
        change(&mut options);
        Box::new(Logged {
            options,
            lent,
            open: None,
        })
    };
    let raw = |together| -> Box<dyn Contestant> {
        Box::new(Raw {
            together,
            buffer: vec![0.0; size / 8],
            open: None,
        })
    };
    let posix = Box::new(Posix {
        buffer: vec![0.0; size / 8],
        open: None,
    });
    vec![
        ("MPI_File_write_at_all", raw(true)),
        ("pwrite", posix),
        // How far a yardstick is from itself is how far the other figures can be trusted.
        ("MPI_File_write_at_all again", raw(true)),
        ("MPI_File_write_at", raw(false)),
        ("writer", writer(|_| (), false)),
        ("writer, lent data", writer(|_| (), true)),
        ("writer, collective", writer(|o| o.collective = true, false)),
        (
            "writer, a subfile a rank",
            writer(|o| o.subfiles = Subfiles::Number(u32::MAX), false),
        ),
    ]
}

const YARDSTICK: usize = 0;
const POSIX: usize = 1;

/// Flushes of so much are timed file by file, so that only one file at a time fills the page cache.
const LARGE: usize = 4 << 20;

/// Seconds of the flushes of one contestant in one round.
#[derive(Clone, Default)]
struct Times {
    take: Vec<f64>,
    flush: Vec<f64>,
}

impl Times {
    /// What a flush took that nothing came in the way of: the median. Sums would mostly tell of the
    /// few that waited for a processor.
    fn flush(&self) -> f64 {
        Spread::of(self.flush.iter().copied()).median
    }

    fn take_and_flush(&self) -> f64 {
        let pairs = self.take.iter().zip(&self.flush);
        Spread::of(pairs.map(|(take, flush)| take + flush)).median
    }
}

pub fn measure(bench: &Bench, size: usize) -> Result<FlushReport> {
    let elements = size / 8;
    let steps = ((64 << 20) / size).clamp(3, 64) as u64;
    let source: Vec<f64> = (0..elements).map(|i| i as f64).collect();
    let mut contestants = contestants(size);
    let number = contestants.len();
    let side_by_side = if size < LARGE { number } else { 1 };
    let mut random = Random(size as u64);
    let mut rounds = Vec::new();
    for _ in 0..=bench.rounds {
        let mut times = vec![Times::default(); number];
        for group in random.order(number).chunks(side_by_side) {
            in_turn(bench, &mut contestants, (group, steps), &source, &mut times)?;
        }
        rounds.push(times);
    }
    let rounds = &rounds[1..];
    let ratio = |who: usize, to: usize, seconds: fn(&Times) -> f64| {
        Spread::of(rounds.iter().map(|r| seconds(&r[to]) / seconds(&r[who])))
    };
    let moved = (size as u64 * bench.ranks()) as f64;
    let rows = (0..number).map(|who| FlushRow {
        name: contestants[who].0,
        flush_bytes_per_second: Spread::of(rounds.iter().map(|r| moved / r[who].flush())),
        flush_to_mpi: ratio(who, YARDSTICK, Times::flush),
        flush_to_pwrite: ratio(who, POSIX, Times::flush),
        write_and_flush_to_mpi: ratio(who, YARDSTICK, Times::take_and_flush),
    });
    Ok(FlushReport {
        bytes_per_rank: size,
        flushes_a_round: steps,
        rows: rows.collect(),
    })
}

/// Some contestants, flush by flush, each time in another order: what disturbs the machine for a
/// moment disturbs neighbours alike. A first flush is not timed: it finds buffers without memory.
fn in_turn(
    bench: &Bench,
    contestants: &mut [(&'static str, Box<dyn Contestant>)],
    (group, steps): (&[usize], u64),
    source: &[f64],
    times: &mut [Times],
) -> Result<()> {
    let elements = source.len() as u64;
    let name = |who: usize| format!("flush-{who}.h5");
    for &who in group {
        let total = (steps + 1) * bench.ranks() * elements;
        contestants[who].1.open(bench, &name(who), total)?;
    }
    let mut random = Random(steps);
    for step in 0..=steps {
        let start = (step * bench.ranks() + bench.rank()) * elements;
        for place in random.order(group.len()) {
            let who = group[place];
            let contestant = &mut contestants[who].1;
            let (take, ()) = bench.timed(|| contestant.take(start, source))?;
            let (flush, ()) = bench.timed(|| contestant.flush(start, source))?;
            if step > 0 {
                times[who].take.push(take);
                times[who].flush.push(flush);
            }
        }
    }
    for &who in group {
        contestants[who].1.close()?;
        bench.remove(&name(who))?;
    }
    Ok(())
}

struct Logged {
    options: Options,
    /// The data are not copied.
    lent: bool,
    open: Option<(Writer, Dataset)>,
}

impl Contestant for Logged {
    fn open(&mut self, bench: &Bench, name: &str, total: u64) -> Result<()> {
        let path = bench.dir.join(name);
        let mut writer = Writer::create(path, &bench.world, self.options.clone())?;
        let dataset = writer.dataset("/values", DatasetSpec::new::<f64>(&[total]))?;
        self.open = Some((writer, dataset));
        Ok(())
    }

    fn take(&mut self, start: u64, source: &[f64]) -> Result<()> {
        let (writer, dataset) = self.open.as_mut().ok_or("not open")?;
        let count = source.len() as u64;
        if !self.lent {
            writer.write(*dataset, Selection::block(&[start], &[count]), source)?;
        }
        Ok(())
    }

    fn flush(&mut self, start: u64, source: &[f64]) -> Result<()> {
        let (writer, dataset) = self.open.as_mut().ok_or("not open")?;
        if !self.lent {
            return Ok(writer.flush()?);
        }
        let mut batch = writer.batch();
        let count = source.len() as u64;
        batch.write(*dataset, Selection::block(&[start], &[count]), source)?;
        Ok(batch.flush()?)
    }

    fn close(&mut self) -> Result<()> {
        match self.open.take() {
            Some((mut writer, _)) => Ok(writer.close()?),
            None => Ok(()),
        }
    }
}

/// MPI-IO from one contiguous buffer a rank.
struct Raw {
    /// In a collective call.
    together: bool,
    buffer: Vec<f64>,
    open: Option<ffi::MPI_File>,
}

impl Contestant for Raw {
    fn open(&mut self, bench: &Bench, name: &str, _: u64) -> Result<()> {
        let path = bench.dir.join(name);
        let path = CString::new(path.as_os_str().as_bytes())?;
        let mode = (ffi::MPI_MODE_WRONLY | ffi::MPI_MODE_CREATE) as c_int;
        // SAFETY: MPI is initialised, the name ends with a zero byte, `file` is ours.
        self.open = Some(unsafe {
            let mut file = ffi::RSMPI_FILE_NULL;
            let (comm, info) = (bench.world.as_raw(), ffi::RSMPI_INFO_NULL);
            good(ffi::MPI_File_open(
                comm,
                path.as_ptr().cast_mut(),
                mode,
                info,
                &mut file,
            ))?;
            file
        });
        Ok(())
    }

    fn take(&mut self, _: u64, source: &[f64]) -> Result<()> {
        self.buffer.copy_from_slice(source);
        Ok(())
    }

    fn flush(&mut self, start: u64, _: &[f64]) -> Result<()> {
        let file = self.open.ok_or("not open")?;
        let (offset, count) = (8 * start as i64, 8 * self.buffer.len() as c_int);
        // SAFETY: the file is open; the buffer has so many bytes, and is not written to.
        unsafe {
            let mut status: ffi::MPI_Status = std::mem::zeroed();
            let buffer = self.buffer.as_ptr().cast();
            let bytes = ffi::RSMPI_UINT8_T;
            let write = if self.together {
                ffi::MPI_File_write_at_all
            } else {
                ffi::MPI_File_write_at
            };
            good(write(file, offset, buffer, count, bytes, &mut status))?;
            let mut written = 0;
            ffi::MPI_Get_count(&status, bytes, &mut written);
            if written == count {
                Ok(())
            } else {
                Err("a short write".into())
            }
        }
    }

    fn close(&mut self) -> Result<()> {
        let mut file = self.open.take().ok_or("not open")?;
        // SAFETY: the file is open.
        good(unsafe { ffi::MPI_File_close(&mut file) })
    }
}

fn good(code: c_int) -> Result<()> {
    if code == ffi::MPI_SUCCESS as c_int {
        Ok(())
    } else {
        Err(format!("MPI error {code}").into())
    }
}

/// Each rank by itself, into the same file.
struct Posix {
    buffer: Vec<f64>,
    open: Option<File>,
}

impl Contestant for Posix {
    fn open(&mut self, bench: &Bench, name: &str, _: u64) -> Result<()> {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false);
        self.open = Some(options.open(bench.dir.join(name))?);
        Ok(())
    }

    fn take(&mut self, _: u64, source: &[f64]) -> Result<()> {
        self.buffer.copy_from_slice(source);
        Ok(())
    }

    fn flush(&mut self, start: u64, _: &[f64]) -> Result<()> {
        let file = self.open.as_ref().ok_or("not open")?;
        // SAFETY: numbers are bytes, eight each.
        let bytes = unsafe {
            std::slice::from_raw_parts(self.buffer.as_ptr().cast::<u8>(), 8 * self.buffer.len())
        };
        Ok(file.write_all_at(bytes, 8 * start)?)
    }

    fn close(&mut self) -> Result<()> {
        self.open = None;
        Ok(())
    }
}
