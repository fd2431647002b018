//! The cost of scattered selections. The workload resembles a climate model: its ranks own thousands of small pieces of
//! each variable, in the same few patterns for all variables and all times.

use h5logfs_writer::{Dataset, DatasetSpec, Fsync, Options, Selection, Writer};

use super::report::{MetadataReport, MetadataRow, Spread};
use super::{Bench, Random, Result};

const STEPS: u64 = 3;
const LEVELS: u64 = 8;

/// The blocks of a variable that this rank owns.
struct Decomposition {
    variables: u32,
    /// Without the dimension of time.
    dims: Vec<u64>,
    starts: Vec<u64>,
    counts: Vec<u64>,
    elements: usize,
}

/// The decompositions of an atmosphere model: most variables are flat, some have levels, and a few have another
/// pattern.
fn decompositions(bench: &Bench) -> Vec<Decomposition> {
    vec![
        Decomposition::new(bench, 320, 1500, 1),
        Decomposition::new(bench, 64, 500, LEVELS),
        Decomposition::new(bench, 16, 3000, 1),
    ]
}

impl Decomposition {
    /// Columns in runs of one to eight. A random rank owns each run, and each rank owns `runs` on average.
    /// A run is one block on each level.
    fn new(bench: &Bench, variables: u32, runs: u64, levels: u64) -> Self {
        let mut random = Random(runs);
        let (mut own, mut column) = (Vec::new(), 0);
        for _ in 0..runs * bench.ranks() {
            let len = 1 + random.below(8);
            if random.below(bench.ranks()) == bench.rank() {
                own.push((column, len));
            }
            column += len;
        }
        let (mut starts, mut counts, mut elements) = (Vec::new(), Vec::new(), 0);
        for level in 0..levels {
            for (column, len) in &own {
                starts.push(0);
                counts.push(1);
                if levels > 1 {
                    starts.push(level);
                    counts.push(1);
                }
                starts.push(*column);
                counts.push(*len);
                elements += *len as usize;
            }
        }
        let dims = match levels {
            1 => vec![column],
            _ => vec![levels, column],
        };
        Decomposition {
            variables,
            dims,
            starts,
            counts,
            elements,
        }
    }

    fn rank(&self) -> usize {
        self.dims.len() + 1
    }

    fn blocks(&self) -> usize {
        self.starts.len() / self.rank()
    }

    fn set_time(&mut self, time: u64) {
        let rank = self.rank();
        self.starts.iter_mut().step_by(rank).for_each(|s| *s = time);
    }

    fn extent(&self, times: u64) -> Vec<u64> {
        std::iter::once(times)
            .chain(self.dims.iter().copied())
            .collect()
    }
}

/// The figures of one file: bytes of the entries of all ranks, and seconds.
#[derive(Clone, Copy, Default)]
struct Figures {
    entries: f64,
    write: f64,
    flush: f64,
    close: f64,
    file: f64,
}

/// Options of the writer for selections.
#[derive(Clone, Copy)]
struct Way {
    share: bool,
    encode: bool,
}

const fn way(share: bool, encode: bool) -> Way {
    Way { share, encode }
}

const WAYS: [Way; 4] = [
    way(false, false),
    way(false, true),
    way(true, false),
    way(true, true),
];
const BOTH: usize = 3;

pub fn measure(bench: &Bench) -> Result<MetadataReport> {
    let mut decompositions = decompositions(bench);
    let mut found = vec![vec![Figures::default(); bench.rounds as usize]; WAYS.len()];
    bench.in_rounds(WAYS.len(), |round, who| {
        let of_file = one_file(bench, &mut decompositions, WAYS[who])?;
        if let Some(round) = round {
            found[who][round] = of_file;
        }
        Ok(())
    })?;
    let total = |of: &dyn Fn(&Decomposition) -> u64| -> u64 {
        let of_rank = |d: &Decomposition| STEPS * u64::from(d.variables) * of(d);
        decompositions.iter().map(of_rank).sum()
    };
    let all = |value: u64| bench.mean(value as f64) * bench.ranks() as f64;
    let records = all(total(&|_| 1));
    let blocks = all(total(&|d| d.blocks() as u64));
    let data = all(total(&|d| 4 * d.elements as u64));
    let seconds = |f: &Figures| f.write + f.flush + f.close;
    let row = |who: usize| {
        let of = |value: fn(&Figures) -> f64| Spread::of(found[who].iter().map(value));
        let pairs = found[who].iter().zip(&found[BOTH]);
        let Figures { entries, file, .. } = found[who][0];
        MetadataRow {
            share_selections: WAYS[who].share,
            encode_selections: WAYS[who].encode,
            entry_bytes_per_record: entries / records,
            entry_bytes_per_block: entries / blocks,
            entry_bytes_per_data_byte: entries / data,
            file_bytes: file,
            write: of(|f| f.write),
            flush: of(|f| f.flush),
            close: of(|f| f.close),
            time_to_both: Spread::of(pairs.map(|(own, both)| seconds(own) / seconds(both))),
        }
    };
    Ok(MetadataReport {
        variables: decompositions.iter().map(|d| d.variables).sum(),
        steps: STEPS,
        records,
        blocks,
        data_bytes: data,
        rows: (0..WAYS.len()).map(row).collect(),
    })
}

fn one_file(bench: &Bench, decompositions: &mut [Decomposition], way: Way) -> Result<Figures> {
    let options = Options {
        share_selections: way.share,
        encode_selections: way.encode,
        fsync: Fsync::None,
        buffer_limit: 1 << 30,
        ..Options::default()
    };
    let path = bench.dir.join("metadata.h5");
    let mut writer = Writer::create(&path, &bench.world, options)?;
    let mut datasets: Vec<Vec<Dataset>> = Vec::new();
    for (d, decomposition) in decompositions.iter().enumerate() {
        let make = |variable| {
            let spec = DatasetSpec::new::<f32>(&decomposition.extent(STEPS)).unlimited(0);
            writer.dataset(&format!("/variable_{d}_{variable:03}"), spec)
        };
        datasets.push(
            (0..decomposition.variables)
                .map(make)
                .collect::<std::result::Result<_, _>>()?,
        );
    }
    let most = decompositions.iter().map(|d| d.elements).max();
    let values = vec![1.5f32; most.unwrap_or(0)];
    let mut found = Figures::default();
    for time in 0..STEPS {
        decompositions.iter_mut().for_each(|d| d.set_time(time));
        let mut data = 0;
        let (seconds, ()) = bench.timed(|| {
            for (decomposition, datasets) in decompositions.iter().zip(&datasets) {
                let selection = Selection::Blocks {
                    starts: &decomposition.starts,
                    counts: &decomposition.counts,
                };
                let values = &values[..decomposition.elements];
                for dataset in datasets {
                    writer.write(*dataset, selection, values)?;
                    data += 4 * values.len() as u64;
                }
            }
            Ok(())
        })?;
        found.write += seconds;
        let entries = (writer.buffered() - data) as f64;
        found.entries += bench.mean(entries) * bench.ranks() as f64;
        found.flush += bench.timed(|| Ok(writer.flush()?))?.0;
    }
    found.close = bench.timed(|| Ok(writer.close()?))?.0;
    found.file = std::fs::metadata(&path)?.len() as f64;
    bench.remove("metadata.h5")?;
    Ok(found)
}
