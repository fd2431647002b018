//! Flush bandwidth: the writer, raw collective MPI-IO and pwrite write the same bytes on the same ranks.

use std::ffi::{CString, c_int};
use std::fs::{File, OpenOptions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;

use h5logfs_writer::{Dataset, DatasetSpec, Fsync, Options, Selection, Subfiles, Writer};
use mpi::ffi;
use mpi::traits::*;

use super::report::{FlushReport, FlushRow, Spread};
use super::{Bench, Random, Result};

/// A way to write elements to a file. All calls but `take` are collective.
trait Contestant {
    /// Creates a file for `total` elements of all ranks.
    fn open(&mut self, bench: &Bench, name: &str, total: u64) -> Result<()>;
    /// Copies the elements, so that the program may change them. Does nothing if the data are lent.
    fn take(&mut self, start: u64, source: &[f64]) -> Result<()>;
    /// Writes the elements to the file. Contestants that do not copy them use `source`.
    fn flush(&mut self, start: u64, source: &[f64]) -> Result<()>;
    fn close(&mut self) -> Result<()>;
}

/// Names and makers of the contestants, the yardsticks first.
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
    let raw = |collective| -> Box<dyn Contestant> {
        Box::new(Raw {
            collective,
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
        // The difference between two runs of the yardstick shows how reliable the figures are.
        ("MPI_File_write_at_all again", raw(true)),
        ("MPI_File_write_at", raw(false)),
        ("writer", writer(|_| (), false)),
        ("writer, lent data", writer(|_| (), true)),
        ("writer, checksums", writer(|o| o.checksums = true, false)),
        (
            "writer, lent data, checksums",
            writer(|o| o.checksums = true, true),
        ),
        ("writer, collective", writer(|o| o.collective = true, false)),
        (
            "writer, a subfile a rank",
            writer(|o| o.subfiles = Subfiles::Number(u32::MAX), false),
        ),
    ]
}

const YARDSTICK: usize = 0;
const POSIX: usize = 1;

/// From this size on, contestants run one after the other, so that only one file fills the page cache.
const LARGE: usize = 4 << 20;

/// Seconds of each flush of one contestant in one round.
#[derive(Clone, Default)]
struct Times {
    take: Vec<f64>,
    flush: Vec<f64>,
}

impl Times {
    /// The time of an undisturbed flush: the median. In a sum, the few flushes that waited for a processor would
    /// dominate.
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
            in_turn(bench, &mut contestants, group, steps, &source, &mut times)?;
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

/// Runs contestants flush by flush, in a new order each time, so that a short disturbance hits all of them. The first
/// flush is not timed, because its buffers have no memory yet.
fn in_turn(
    bench: &Bench,
    contestants: &mut [(&'static str, Box<dyn Contestant>)],
    group: &[usize],
    steps: u64,
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
    /// Whether the data are lent to the writer, not copied.
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

/// MPI-IO from one contiguous buffer on each rank.
struct Raw {
    /// Whether to write with collective calls.
    collective: bool,
    buffer: Vec<f64>,
    open: Option<ffi::MPI_File>,
}

impl Contestant for Raw {
    fn open(&mut self, bench: &Bench, name: &str, _: u64) -> Result<()> {
        let path = bench.dir.join(name);
        let path = CString::new(path.as_os_str().as_bytes())?;
        let mode = (ffi::MPI_MODE_WRONLY | ffi::MPI_MODE_CREATE) as c_int;
        // SAFETY: MPI is initialised, and the name ends with a zero byte.
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
        // SAFETY: the file is open. The buffer has `count` bytes, and MPI only reads it.
        unsafe {
            let mut status: ffi::MPI_Status = std::mem::zeroed();
            let buffer = self.buffer.as_ptr().cast();
            let bytes = ffi::RSMPI_UINT8_T;
            let write = if self.collective {
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

/// Independent writes of each rank to the same file.
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
        // SAFETY: an f64 consists of eight initialised bytes.
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
