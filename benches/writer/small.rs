//! The cost of a small buffered write.

use h5logfs_writer::{Dataset, DatasetSpec, Fsync, Options, Selection, Writer};
use rustix::time::ClockId;

use super::report::{SmallRow, Spread};
use super::{Bench, Result, seconds};

/// Writes between flushes.
const WRITES: u64 = 500_000;
/// Elements of one write: 64 bytes.
const ELEMENTS: u64 = 8;

/// A shape of dataset, and the selection of write `i`.
struct Kind {
    name: &'static str,
    spec: fn(u64) -> DatasetSpec,
    write: fn(&mut Writer, Dataset, u64, &[f64]) -> h5logfs_writer::Result<()>,
}

const KINDS: [Kind; 3] = [
    Kind {
        name: "1-D, a block",
        spec: |writes| DatasetSpec::new::<f64>(&[writes * ELEMENTS]),
        write: |file, dataset, i, data| {
            let (start, count) = ([i * ELEMENTS], [ELEMENTS]);
            file.write(dataset, Selection::block(&start, &count), data)
        },
    },
    Kind {
        name: "2-D, a record",
        spec: |writes| DatasetSpec::new::<f64>(&[writes, ELEMENTS]).unlimited(0),
        write: |file, dataset, i, data| {
            let (start, count) = ([i, 0], [1, ELEMENTS]);
            file.write(dataset, Selection::block(&start, &count), data)
        },
    },
    Kind {
        name: "3-D, a block",
        spec: |writes| DatasetSpec::new::<f64>(&[writes, 8, 4]),
        write: |file, dataset, i, data| {
            let (start, count) = ([i, 1, 2], [1, 4, 2]);
            file.write(dataset, Selection::block(&start, &count), data)
        },
    },
];

/// Seconds.
#[derive(Clone, Copy, Default)]
struct Times {
    /// Mean processor time of the ranks.
    busy: f64,
    /// Until all ranks were done.
    passed: f64,
    /// The flush after the writes.
    flush: f64,
}

pub fn measure(bench: &Bench) -> Result<Vec<SmallRow>> {
    // Times of the limit, and then of each kind: with a fresh buffer, and with a used one.
    let mut times = vec![vec![[Times::default(); 2]; bench.rounds as usize]; KINDS.len() + 1];
    bench.in_rounds(KINDS.len() + 1, |round, who| {
        let found = match who.checked_sub(1) {
            None => limit(bench)?,
            Some(kind) => writes(bench, &KINDS[kind])?,
        };
        if let Some(round) = round {
            times[who][round] = found;
        }
        Ok(())
    })?;
    let rates = |who: usize, part: usize, of: fn(&Times) -> f64| {
        Spread::of(times[who].iter().map(|t| WRITES as f64 / of(&t[part])))
    };
    let names = std::iter::once("two copies into vectors, the limit").chain(KINDS.map(|k| k.name));
    let row = |(who, name)| SmallRow {
        name,
        per_busy_second: rates(who, 1, |t| t.busy),
        per_busy_second_first: rates(who, 0, |t| t.busy),
        per_second: rates(who, 1, |t| t.passed),
        per_second_with_flush: rates(who, 1, |t| t.passed + t.flush),
    };
    Ok(names.enumerate().map(row).collect())
}

/// A new file, writes, a flush, and the same number of writes again. These find a buffer with memory.
fn writes(bench: &Bench, kind: &Kind) -> Result<[Times; 2]> {
    let options = Options {
        fsync: Fsync::None,
        ..Options::default()
    };
    let mut writer = Writer::create(bench.dir.join("small.h5"), &bench.world, options)?;
    let spec = (kind.spec)(2 * WRITES * bench.ranks());
    let dataset = writer.dataset("/values", spec)?;
    let mut times = [Times::default(); 2];
    for (part, times) in times.iter_mut().enumerate() {
        let first = (part as u64 * bench.ranks() + bench.rank()) * WRITES;
        *times = busy(bench, || {
            for i in first..first + WRITES {
                (kind.write)(&mut writer, dataset, i, &[i as f64; ELEMENTS as usize])?;
            }
            Ok(())
        })?;
        times.flush = bench.timed(|| Ok(writer.flush()?))?.0;
    }
    writer.close()?;
    bench.remove("small.h5")?;
    Ok(times)
}

/// The least work of a writer that copies: append the data to one vector, and an entry to another.
fn limit(bench: &Bench) -> Result<[Times; 2]> {
    const ENTRY: usize = 44;
    let (mut data, mut entries) = (Vec::<u8>::new(), Vec::<u8>::new());
    let mut times = [Times::default(); 2];
    for times in &mut times {
        *times = busy(bench, || {
            for i in 0..WRITES {
                let values = std::hint::black_box([i as f64; ELEMENTS as usize]);
                values
                    .iter()
                    .for_each(|v| data.extend_from_slice(&v.to_le_bytes()));
                entries.extend_from_slice(std::hint::black_box(&[i as u8; ENTRY]));
            }
            Ok(())
        })?;
        std::hint::black_box((&data, &entries));
        data.clear();
    }
    Ok(times)
}

fn busy(bench: &Bench, work: impl FnOnce() -> Result<()>) -> Result<Times> {
    let now = || seconds(ClockId::ThreadCPUTime);
    let before = now();
    let mut after = before;
    let (passed, ()) = bench.timed(|| {
        work()?;
        after = now();
        Ok(())
    })?;
    let busy = bench.mean(after - before);
    Ok(Times {
        busy,
        passed,
        flush: 0.0,
    })
}
