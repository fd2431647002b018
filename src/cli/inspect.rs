//! `h5logfs inspect`: shows what a log file holds.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::ops::ControlFlow;
use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::Args;
use serde::Serialize;

use super::ViewArgs;
use super::output::Output;
use super::unclosed::Unclosed;
use h5logfs_core::diagnostic::{Diagnostic, Severity};
use h5logfs_core::log::base::Base;
use h5logfs_core::log::model::{Encoding, Record};
use h5logfs_core::snapshot::{Content, Dataset, Storage};
use h5logfs_core::view::{StoredBlock, View};

/// Show what a log file holds: its datasets, and the records that make them up
#[derive(Debug, Clone, Args)]
pub struct InspectArgs {
    /// The log file
    #[arg(value_name = "FILE")]
    pub file: PathBuf,

    /// List every record
    #[arg(long)]
    pub records: bool,

    /// Show which bytes of the log make up each chunk of this dataset that has any
    #[arg(long, value_name = "DATASET")]
    pub map: Option<String>,

    /// Print JSON
    #[arg(long)]
    pub json: bool,

    #[command(flatten)]
    pub view: ViewArgs,
}

pub fn run(args: InspectArgs) -> Result<()> {
    let view = args.view.open(&args.file)?;
    let out = &mut Output::stdout();
    if let Some(name) = &args.map {
        return print_map(&view, name, args.json, out);
    }
    let unclosed = Unclosed::of(&args.file, &view);
    let report = Report::of(&view, unclosed, args.records)?;
    if args.json {
        Ok(out.json(&report)?)
    } else {
        Ok(report.print(out)?)
    }
}

#[derive(Debug, Serialize)]
struct Report {
    file: String,
    layout: &'static str,
    sources: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    unclosed: Option<Unclosed>,
    /// Length of the canonical file.
    canonical_bytes: u64,
    metadata_bytes: u64,
    datasets: Vec<DatasetReport>,
    /// Parts of the log that are missing.
    losses: Vec<String>,
    warnings: Vec<String>,
    /// Faults of the log that make no dataset unreadable.
    complaints: Vec<String>,
}

#[derive(Debug, Serialize)]
struct DatasetReport {
    name: String,
    datatype: String,
    shape: Vec<u64>,
    /// `null` is unlimited.
    max_shape: Vec<Option<u64>>,
    /// `null` for contiguous storage.
    chunk: Option<Vec<u64>>,
    filters: Vec<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    logged: Option<LoggedReport>,
    faults: Vec<String>,
}

#[derive(Debug, Serialize)]
struct LoggedReport {
    records: usize,
    blocks: usize,
    /// Stored bytes of all records.
    bytes: u64,
    /// Bytes of the plain array in the file, if there is one. Records override it.
    #[serde(skip_serializing_if = "Option::is_none")]
    base: Option<u64>,
    /// Fraction of the elements that some record wrote. Left out if it was not counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    covered: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    list: Option<Vec<RecordReport>>,
}

#[derive(Debug, Serialize)]
struct RecordReport {
    source: u16,
    offset: u64,
    stored: u64,
    encoding: &'static str,
    /// Start and count of each block.
    blocks: Vec<(Vec<u64>, Vec<u64>)>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fault: Option<String>,
}

fn texts<'a>(diagnostics: impl IntoIterator<Item = &'a Diagnostic>) -> Vec<String> {
    diagnostics.into_iter().map(Diagnostic::to_string).collect()
}

impl Report {
    fn of(view: &View, unclosed: Option<Unclosed>, with_records: bool) -> Result<Self> {
        let snapshot = view.snapshot();
        let (notes, losses): (Vec<_>, Vec<_>) = snapshot
            .diagnostics
            .iter()
            .partition(|d| d.severity == Severity::Note);
        let datasets = (0..snapshot.datasets.len())
            .map(|number| DatasetReport::of(view, number, with_records))
            .collect::<Result<_>>()?;
        Ok(Report {
            file: view.path().to_string_lossy().into_owned(),
            layout: snapshot.log.layout().name(),
            sources: snapshot
                .sources
                .iter()
                .map(|s| s.place.path.to_string_lossy().into_owned())
                .collect(),
            unclosed,
            canonical_bytes: view.len(),
            metadata_bytes: view.preamble_len(),
            datasets,
            losses: texts(losses),
            warnings: texts(notes),
            complaints: texts(&view.diagnostics()?),
        })
    }

    fn print(&self, out: &mut Output<impl Write>) -> io::Result<()> {
        writeln!(out, "{}: {} log", self.file, self.layout)?;
        // One file may hold several sources.
        let files: BTreeSet<&String> = self.sources.iter().collect();
        if files.len() > 1 {
            writeln!(out, "  and {} more files", files.len() - 1)?;
        }
        writeln!(
            out,
            "  as HDF5: {} bytes, {} of them metadata",
            self.canonical_bytes, self.metadata_bytes
        )?;
        for loss in &self.losses {
            writeln!(out, "  missing: {loss}")?;
        }
        for warning in &self.warnings {
            writeln!(out, "  note: {warning}")?;
        }
        if let Some(unclosed) = &self.unclosed {
            writeln!(out, "  note: {unclosed}")?;
        }
        for complaint in &self.complaints {
            writeln!(out, "  fault: {complaint}")?;
        }
        for dataset in &self.datasets {
            dataset.print(out)?;
        }
        Ok(())
    }
}

impl DatasetReport {
    fn of(view: &View, number: usize, with_records: bool) -> Result<Self> {
        let dataset = &view.snapshot().datasets[number];
        let (logged, faults) = match &dataset.content {
            Content::Logged { .. } => {
                let (logged, faults) = LoggedReport::of(view, number, with_records)?;
                (Some(logged), faults)
            }
            Content::Unreadable(reason) => (None, vec![reason.clone()]),
            Content::Extent { .. } => (None, Vec::new()),
        };
        Ok(DatasetReport {
            name: dataset.name.clone(),
            datatype: dataset.datatype.clone(),
            shape: dataset.dims.clone(),
            max_shape: dataset.max_dims.clone(),
            chunk: match &dataset.storage {
                Storage::Chunked(chunk) => Some(chunk.clone()),
                Storage::Contiguous => None,
            },
            filters: dataset.filters.iter().map(|f| f.id).collect(),
            logged,
            faults,
        })
    }

    fn print(&self, out: &mut Output<impl Write>) -> io::Result<()> {
        let mut line = format!("{}: {} {:?}", self.name, self.datatype, self.shape);
        if self.max_shape.contains(&None) {
            let limits = self.max_shape.iter();
            let limits = limits.map(|m| m.map_or("unlimited".to_owned(), |m| m.to_string()));
            line += &format!(" of at most [{}]", limits.collect::<Vec<_>>().join(", "));
        }
        if let Some(chunk) = &self.chunk {
            line += &format!(", chunks {chunk:?}");
        }
        if !self.filters.is_empty() {
            let names: Vec<String> = self.filters.iter().map(|id| filter_name(*id)).collect();
            line += &format!(", filters {}", names.join(" "));
        }
        writeln!(out, "{line}")?;
        match &self.logged {
            Some(logged) => logged.print(out)?,
            None => writeln!(out, "  not logged")?,
        }
        for fault in &self.faults {
            writeln!(out, "  fault: {fault}")?;
        }
        Ok(())
    }
}

fn filter_name(id: i32) -> String {
    match id {
        1 => "deflate".into(),
        2 => "shuffle".into(),
        3 => "fletcher32".into(),
        4 => "szip".into(),
        5 => "nbit".into(),
        6 => "scaleoffset".into(),
        other => other.to_string(),
    }
}

impl LoggedReport {
    /// The report, and the faults of the dataset.
    fn of(view: &View, number: usize, with_records: bool) -> Result<(Self, Vec<String>)> {
        let mut faults = texts(view.index(number)?.diagnostics());
        let records = view.records(number)?.records;
        faults.extend(records.iter().filter_map(|r| r.fault).map(str::to_owned));
        let report = LoggedReport {
            records: records.len(),
            // A damaged log can claim any number.
            blocks: records
                .iter()
                .fold(0, |n: usize, r| n.saturating_add(r.blocks())),
            bytes: records
                .iter()
                .fold(0, |n: u64, r| n.saturating_add(r.stored.len)),
            base: records.base().map(Base::bytes),
            covered: view.covered(number)?,
            list: with_records.then(|| records.iter().map(RecordReport::of).collect()),
        };
        Ok((report, faults))
    }

    fn print(&self, out: &mut Output<impl Write>) -> io::Result<()> {
        writeln!(
            out,
            "  {} records, {} blocks, {} bytes logged, {}",
            self.records,
            self.blocks,
            self.bytes,
            match self.covered {
                Some(share) => format!("{:.1} % covered", share * 100.0),
                None => "too many pieces to count what is covered".to_owned(),
            }
        )?;
        if let Some(bytes) = self.base {
            writeln!(out, "  {bytes} bytes below them")?;
        }
        for record in self.list.iter().flatten() {
            record.print(out)?;
        }
        Ok(())
    }
}

impl RecordReport {
    fn of(record: Record<'_>) -> Self {
        let mut blocks = Vec::with_capacity(record.blocks());
        let _ = record.visit_back(&record.bounds(), |block| {
            blocks.push((block.start.to_vec(), block.count.to_vec()));
            ControlFlow::<()>::Continue(())
        });
        blocks.reverse();
        RecordReport {
            source: record.stored.source,
            offset: record.stored.offset,
            stored: record.stored.len,
            encoding: match record.stored.encoding {
                Encoding::Raw => "raw",
                Encoding::Deflate => "deflate",
                Encoding::DeflateStream => "deflate stream",
                Encoding::DeflateStreams => "deflate streams",
                Encoding::RawOrDeflate => "raw or deflate",
                Encoding::Pipeline => "filtered",
                Encoding::Converted => "of another type",
            },
            blocks,
            fault: record.fault.as_ref().map(|f| f.to_string()),
        }
    }

    fn print(&self, out: &mut Output<impl Write>) -> io::Result<()> {
        writeln!(
            out,
            "    {} bytes ({}) at {} of file {}",
            self.stored, self.encoding, self.offset, self.source
        )?;
        for (start, count) in &self.blocks {
            writeln!(out, "      start {start:?} count {count:?}")?;
        }
        Ok(())
    }
}

#[derive(Debug, Serialize)]
struct ChunkReport {
    /// Position in the chunk grid.
    chunk: Vec<u64>,
    /// Offset and bytes in the canonical file.
    offset: u64,
    stored: u64,
    /// The parts of records that make up the chunk, in the order in which they apply. The rest of it
    /// is fill value.
    made_of: Vec<StoredBlock>,
    /// Why the chunk cannot be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    fault: Option<String>,
}

/// Prints one chunk at a time, because a dataset may have millions.
fn print_map(view: &View, name: &str, json: bool, out: &mut Output<impl Write>) -> Result<()> {
    let datasets = &view.snapshot().datasets;
    let same = |d: &Dataset| d.name.trim_start_matches('/') == name.trim_start_matches('/');
    let Some(number) = datasets.iter().position(same) else {
        bail!("{}: no logged dataset {name}", view.path().display());
    };
    let mut reports = view
        .touched(number, 0)?
        .map(|chunk| ChunkReport::of(view, number, chunk))
        .peekable();
    let none = reports.peek().is_none();
    if json {
        return out.json_array(reports);
    }
    for report in reports {
        report?.print(out)?;
    }
    if none {
        writeln!(out, "no record touches {name}")?;
    }
    Ok(())
}

impl ChunkReport {
    fn of(view: &View, number: usize, chunk: u64) -> Result<Self> {
        let (offset, stored) = view.chunk_place(number, chunk)?;
        let (made_of, fault) = match view.chunk_blocks(number, chunk) {
            Ok(sources) => (sources, None),
            Err(e) => (Vec::new(), Some(e.to_string())),
        };
        Ok(ChunkReport {
            chunk: view.grid(number).position(chunk),
            offset,
            stored,
            made_of,
            fault,
        })
    }

    fn print(&self, out: &mut Output<impl Write>) -> io::Result<()> {
        writeln!(
            out,
            "chunk {:?}: {} bytes at {}",
            self.chunk, self.stored, self.offset
        )?;
        for source in &self.made_of {
            writeln!(
                out,
                "  start {:?} count {:?}: from {} bytes at {} of file {}",
                source.start, source.count, source.stored, source.offset, source.source
            )?;
        }
        if let Some(fault) = &self.fault {
            writeln!(out, "  fault: {fault}")?;
        }
        Ok(())
    }
}
