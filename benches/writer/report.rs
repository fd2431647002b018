//! The results, as JSON and as tables.

use std::fmt::{self, Display, Formatter};

use serde::Serialize;

use super::{Bench, Result};

/// A value over all rounds.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Spread {
    pub median: f64,
    pub first_quartile: f64,
    pub third_quartile: f64,
    pub least: f64,
    pub most: f64,
}

impl Spread {
    pub fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let last = values.len().saturating_sub(1);
        let quantile = |fraction: f64| {
            let position = fraction * last as f64;
            let (low, high) = (position.floor() as usize, position.ceil() as usize);
            let value = |i: usize| values.get(i).copied().unwrap_or(f64::NAN);
            value(low) + (value(high) - value(low)) * position.fract()
        };
        Spread {
            median: quantile(0.5),
            first_quartile: quantile(0.25),
            third_quartile: quantile(0.75),
            least: quantile(0.0),
            most: quantile(1.0),
        }
    }

    /// Median and quartiles in `unit`, with `digits` decimals.
    fn text(&self, unit: f64, digits: usize) -> String {
        let [median, low, high] = [self.median, self.first_quartile, self.third_quartile];
        let [median, low, high] = [median / unit, low / unit, high / unit];
        format!("{median:.digits$} ({low:.digits$}-{high:.digits$})")
    }
}

#[derive(Serialize)]
pub struct FlushReport {
    pub bytes_per_rank: usize,
    pub flushes_a_round: u64,
    pub rows: Vec<FlushRow>,
}

/// Ratios of bandwidths. Above 1 the contestant is faster than the yardstick.
#[derive(Serialize)]
pub struct FlushRow {
    pub name: &'static str,
    pub flush_bytes_per_second: Spread,
    pub flush_to_mpi: Spread,
    pub flush_to_pwrite: Spread,
    /// Both sides include the copy after which the program may use its memory again.
    pub write_and_flush_to_mpi: Spread,
}

/// Writes of one rank per second.
#[derive(Serialize)]
pub struct SmallRow {
    pub name: &'static str,
    /// Rate in processor time.
    pub per_busy_second: Spread,
    /// Rate in processor time, with a buffer that has no memory yet.
    pub per_busy_second_first: Spread,
    /// Rate in elapsed time. Ranks may share processors.
    pub per_second: Spread,
    pub per_second_with_flush: Spread,
}

/// Seconds.
#[derive(Serialize)]
pub struct DatasetsRow {
    pub name: &'static str,
    pub datasets: u32,
    pub create_file: Spread,
    pub define: Spread,
    pub first_flush: Spread,
    pub close: Spread,
    pub total: Spread,
}

/// Numbers of all ranks, in one file.
#[derive(Serialize)]
pub struct MetadataReport {
    pub variables: u32,
    pub steps: u64,
    pub records: f64,
    pub blocks: f64,
    pub data_bytes: f64,
    pub rows: Vec<MetadataRow>,
}

#[derive(Serialize)]
pub struct MetadataRow {
    pub share_selections: bool,
    pub encode_selections: bool,
    pub entry_bytes_per_record: f64,
    pub entry_bytes_per_block: f64,
    pub entry_bytes_per_data_byte: f64,
    pub file_bytes: f64,
    /// Seconds of the slowest rank.
    pub write: Spread,
    pub flush: Spread,
    pub close: Spread,
    /// The sum of the three, relative to that with shared and encoded selections.
    pub time_to_both: Spread,
}

#[derive(Serialize)]
pub struct FollowersRow {
    pub followers: usize,
    /// Seconds of a flush, over all flushes of all rounds.
    pub flush: Spread,
    /// The median relative to that without followers.
    pub time_to_none: f64,
}

#[derive(Serialize)]
pub struct Report {
    ranks: u64,
    processors: usize,
    processor: String,
    kernel: String,
    mpi: String,
    directory: String,
    rounds: u32,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub flush: Vec<FlushReport>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub small: Vec<SmallRow>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub datasets: Vec<DatasetsRow>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<MetadataReport>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub followers: Vec<FollowersRow>,
}

impl Report {
    pub fn new(bench: &Bench) -> Result<Self> {
        let processors = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let number = processors
            .lines()
            .filter(|line| line.starts_with("processor"));
        let number = number.count();
        let model = processors
            .lines()
            .find(|line| line.starts_with("model name"));
        let model = model.and_then(|line| line.split_once(": "));
        let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let library = mpi::environment::library_version()?;
        let library = library.split(',').next().unwrap_or_default();
        let dir = bench.dir.parent().unwrap_or(&bench.dir);
        Ok(Report {
            ranks: bench.ranks(),
            processors: number,
            processor: model.map_or("unknown", |(_, name)| name).to_owned(),
            kernel: kernel.trim().to_owned(),
            mpi: library.to_owned(),
            directory: dir.display().to_string(),
            rounds: bench.rounds,
            flush: Vec::new(),
            small: Vec::new(),
            datasets: Vec::new(),
            metadata: None,
            followers: Vec::new(),
        })
    }
}

impl Display for Report {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} ranks on {} processors ({}), Linux {}, {}, files in {}",
            self.ranks, self.processors, self.processor, self.kernel, self.mpi, self.directory
        )?;
        writeln!(
            f,
            "medians of {} rounds, with their quartiles; ratios are taken round by round",
            self.rounds
        )?;
        self.flush.iter().try_for_each(|flush| flush.fmt(f))?;
        if !self.small.is_empty() {
            small(&self.small, f)?;
        }
        if !self.datasets.is_empty() {
            datasets(&self.datasets, f)?;
        }
        self.metadata
            .iter()
            .try_for_each(|metadata| metadata.fmt(f))?;
        if !self.followers.is_empty() {
            followers(&self.followers, f)?;
        }
        Ok(())
    }
}

const MB: f64 = 1e6;
const MS: f64 = 1e-3;

impl Display for FlushReport {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "\nflush of {} KiB a rank, {} a round (bandwidth; above 1 is faster)",
            self.bytes_per_rank >> 10,
            self.flushes_a_round
        )?;
        let heads = ["MB/s", "to MPI", "to pwrite", "with copy, to MPI"];
        line(f, "", &heads.map(str::to_owned))?;
        for row in &self.rows {
            let cells = [
                row.flush_bytes_per_second.text(MB, 0),
                row.flush_to_mpi.text(1.0, 2),
                row.flush_to_pwrite.text(1.0, 2),
                row.write_and_flush_to_mpi.text(1.0, 2),
            ];
            line(f, row.name, &cells)?;
        }
        Ok(())
    }
}

fn small(rows: &[SmallRow], f: &mut Formatter<'_>) -> fmt::Result {
    writeln!(
        f,
        "\nbuffered writes of 64 bytes: millions a second and rank"
    )?;
    let heads = [
        "of processor time",
        "first, fresh memory",
        "by the clock",
        "with the flush",
    ];
    line(f, "", &heads.map(str::to_owned))?;
    for row in rows {
        let cells = [
            row.per_busy_second,
            row.per_busy_second_first,
            row.per_second,
            row.per_second_with_flush,
        ];
        line(f, row.name, &cells.map(|c| c.text(1e6, 2)))?;
    }
    Ok(())
}

fn datasets(rows: &[DatasetsRow], f: &mut Formatter<'_>) -> fmt::Result {
    let number = rows.first().map_or(0, |row| row.datasets);
    writeln!(f, "\ncreation of {number} datasets (milliseconds)")?;
    let heads = ["file", "definitions", "first flush", "close", "total"];
    line(f, "", &heads.map(str::to_owned))?;
    for row in rows {
        let cells = [
            row.create_file,
            row.define,
            row.first_flush,
            row.close,
            row.total,
        ];
        line(f, row.name, &cells.map(|c| c.text(MS, 0)))?;
    }
    Ok(())
}

impl Display for MetadataReport {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "\nscattered selections: {} variables of 3 decompositions, {} times, {} records of {:.0} blocks, {:.0} MB of data",
            self.variables,
            self.steps,
            self.records,
            self.blocks / self.records,
            self.data_bytes / MB
        )?;
        let heads = ["bytes/record", "bytes/block", "bytes/data byte", "file MB"];
        let times = ["write ms", "flush ms", "close ms", "time, to both"];
        let heads: Vec<String> = heads
            .iter()
            .chain(&times)
            .map(|h| (*h).to_owned())
            .collect();
        line(f, "entries", &heads)?;
        for row in &self.rows {
            let name = match (row.share_selections, row.encode_selections) {
                (false, false) => "plain",
                (false, true) => "encoded",
                (true, false) => "shared",
                (true, true) => "shared and encoded",
            };
            let cells = [
                format!("{:.1}", row.entry_bytes_per_record),
                format!("{:.3}", row.entry_bytes_per_block),
                format!("{:.4}", row.entry_bytes_per_data_byte),
                format!("{:.1}", row.file_bytes / MB),
                row.write.text(MS, 0),
                row.flush.text(MS, 0),
                row.close.text(MS, 0),
                row.time_to_both.text(1.0, 2),
            ];
            line(f, name, &cells)?;
        }
        Ok(())
    }
}

fn followers(rows: &[FollowersRow], f: &mut Formatter<'_>) -> fmt::Result {
    writeln!(
        f,
        "\nflush of 1 MiB a rank each 50 ms, while others follow the log (milliseconds)"
    )?;
    let heads = ["flush", "time, to none"];
    line(f, "followers", &heads.map(str::to_owned))?;
    for row in rows {
        let cells = [row.flush.text(MS, 2), format!("{:.2}", row.time_to_none)];
        line(f, &row.followers.to_string(), &cells)?;
    }
    Ok(())
}

fn line(f: &mut Formatter<'_>, name: &str, cells: &[String]) -> fmt::Result {
    write!(f, "  {name:<34}")?;
    cells.iter().try_for_each(|cell| write!(f, " {cell:>20}"))?;
    writeln!(f)
}
