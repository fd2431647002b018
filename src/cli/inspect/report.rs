//! The report of `inspect` on a log.

use std::collections::{BTreeSet, HashSet};
use std::io::{self, Write};
use std::ops::ControlFlow;
use std::path::Path;

use anyhow::Result;
use serde::Serialize;

use super::objects;
use crate::cli::called::Called;
use crate::cli::colour::Colour;
use crate::cli::logs;
use crate::cli::output::{Output, counted, percent};
use crate::cli::parts::Parts;
use crate::cli::unclosed::Unclosed;
use h5logfs_common::diagnostic::{Diagnostic, Severity};
use h5logfs_log::base::Base;
use h5logfs_log::model::{Encoding, Record};
use h5logfs_log::origins::Origins;
use h5logfs_log::snapshot::{Content, LeftOut, Snapshot, Storage};
use h5logfs_view::View;
use h5logfs_view::coverage::Wanted;

#[derive(Debug, Serialize)]
pub(super) struct Report {
    file: String,
    layout: &'static str,
    /// Lines about the log as a whole that its layout adds.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    facts: Vec<String>,
    sources: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    unclosed: Option<Unclosed>,
    /// Length of the canonical file.
    canonical_bytes: u64,
    metadata_bytes: u64,
    /// The distribution of the canonical file over files that contain its bytes unchanged.
    #[serde(skip_serializing_if = "Option::is_none")]
    parts: Option<Parts>,
    pub datasets: Vec<DatasetReport>,
    /// Parts of the log that are missing.
    losses: Vec<String>,
    /// Paths of datasets that the view does not have, because all of their elements are lost.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    lost_datasets: Vec<String>,
    warnings: Vec<String>,
    /// Faults of the log that make no dataset unreadable.
    complaints: Vec<String>,
}

#[derive(Debug, Serialize)]
pub(super) struct DatasetReport {
    pub name: String,
    pub datatype: String,
    pub shape: Vec<u64>,
    /// `null` means unlimited.
    pub max_shape: Vec<Option<u64>>,
    /// `null` for contiguous storage.
    pub chunk: Option<Vec<u64>>,
    pub filters: Vec<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub logged: Option<LoggedReport>,
    pub faults: Vec<String>,
}

#[derive(Debug, Serialize)]
pub(super) struct LoggedReport {
    pub records: usize,
    blocks: usize,
    /// Stored size of all records, in bytes.
    pub bytes: u64,
    /// Size of the plain array in the file, if there is one, in bytes. Records override it.
    #[serde(skip_serializing_if = "Option::is_none")]
    base: Option<u64>,
    /// Share of the elements that are written, by a record or in the base below all records. Left out if it was not counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub covered: Option<f64>,
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

pub(super) fn texts<'a>(diagnostics: impl IntoIterator<Item = &'a Diagnostic>) -> Vec<String> {
    diagnostics.into_iter().map(Diagnostic::to_string).collect()
}

/// What is left out of the view altogether, because nothing is left of it.
pub(super) fn without_dataset(snapshot: &Snapshot) -> Vec<&LeftOut> {
    let mut left_out: Vec<&LeftOut> = snapshot.left_out.iter().collect();
    if !left_out.is_empty() {
        let names: HashSet<&str> = snapshot.datasets.iter().map(|d| &*d.name).collect();
        left_out.retain(|lost| !names.contains(&*lost.name));
    }
    left_out
}

/// The paths of datasets of which nothing is left.
fn lost_datasets(snapshot: &Snapshot) -> Vec<String> {
    let lost = without_dataset(snapshot).into_iter();
    lost.map(|lost| lost.name.clone()).collect()
}

impl Report {
    /// Reports on a log. `file`: the user's name for it.
    pub fn of(
        file: &Path,
        view: &View,
        unclosed: Option<Unclosed>,
        with_records: bool,
    ) -> Result<Self> {
        let snapshot = view.snapshot();
        let (notes, losses): (Vec<_>, Vec<_>) = snapshot
            .diagnostics
            .iter()
            .partition(|d| d.severity == Severity::Note);
        let parts = Parts::of(view);
        let (datasets, unlisted) = if parts.is_some() {
            objects::datasets(view)
        } else {
            let numbers = 0..snapshot.datasets.len();
            let datasets = numbers.map(|number| DatasetReport::of(view, number, with_records));
            (datasets.collect::<Result<_>>()?, Vec::new())
        };
        let sources = snapshot.sources.iter();
        let files: Vec<&Path> = sources.map(|source| &*source.place.path).collect();
        let complaints = texts(&view.indexes().diagnostics()?);
        Ok(Report {
            file: Called::of(file)
                .path(&view.path())
                .to_string_lossy()
                .into_owned(),
            layout: snapshot.log.layout().name(),
            facts: snapshot.log.layout().facts(&files),
            sources: snapshot
                .sources
                .iter()
                .map(|s| s.place.path.to_string_lossy().into_owned())
                .collect(),
            unclosed,
            canonical_bytes: view.len(),
            metadata_bytes: view.preamble_len(),
            parts,
            datasets,
            losses: texts(losses),
            lost_datasets: lost_datasets(snapshot),
            warnings: texts(notes)
                .into_iter()
                .chain(logs::part_of(file))
                .collect(),
            complaints: complaints.into_iter().chain(unlisted).collect(),
        })
    }

    /// Prints the log, then each dataset in full, with its records if requested.
    pub fn print(&self, out: &mut Output<impl Write>) -> io::Result<()> {
        self.print_summary(out)?;
        self.datasets
            .iter()
            .try_for_each(|dataset| dataset.print(out))
    }

    /// Prints the description of the log as a whole.
    pub fn print_summary(&self, out: &mut Output<impl Write>) -> io::Result<()> {
        let kind = if self.parts.is_some() { "file" } else { "log" };
        writeln!(out, "{}: {} {kind}", self.file, self.layout)?;
        // One file may contain several sources.
        let files: BTreeSet<&String> = self.sources.iter().collect();
        if files.len() > 1 {
            writeln!(out, "  and {} more files", files.len() - 1)?;
        }
        for fact in &self.facts {
            writeln!(out, "  {fact}")?;
        }
        match &self.parts {
            Some(parts) => {
                writeln!(out, "  as HDF5: {} bytes", self.canonical_bytes)?;
                writeln!(out, "  {parts}")?;
            }
            None => {
                writeln!(
                    out,
                    "  as HDF5: {} bytes, {} of them metadata",
                    self.canonical_bytes, self.metadata_bytes
                )?;
                self.print_totals(out)?;
            }
        }
        for loss in &self.losses {
            out.painted(&[(Some(Colour::Bad), "  missing: "), (None, loss)])?;
        }
        for warning in &self.warnings {
            writeln!(out, "  note: {warning}")?;
        }
        if let Some(unclosed) = &self.unclosed {
            out.painted(&[
                (Some(Colour::Notice), "  note: "),
                (None, &unclosed.to_string()),
            ])?;
        }
        for complaint in &self.complaints {
            out.painted(&[(Some(Colour::Bad), "  fault: "), (None, complaint)])?;
        }
        Ok(())
    }

    fn print_totals(&self, out: &mut Output<impl Write>) -> io::Result<()> {
        let logged: Vec<_> = self.datasets.iter().flat_map(|d| &d.logged).collect();
        // A damaged log can claim any number.
        let sum = |of: fn(&LoggedReport) -> u64| {
            let numbers = logged.iter().map(|logged| of(logged));
            numbers.fold(0, u64::saturating_add)
        };
        let incomplete = logged.iter().filter(|logged| logged.is_incomplete());
        let uncounted = logged.iter().filter(|logged| logged.covered.is_none());
        let uncounted = match uncounted.count() {
            0 => String::new(),
            count => format!(", {count} in too many pieces to count"),
        };
        let lost = match self.lost_datasets.len() {
            0 => String::new(),
            count => format!(", {count} more are lost"),
        };
        writeln!(
            out,
            "  {}, {} incomplete{uncounted}{lost}; {}, {}, {} logged",
            counted(logged.len() as u64, "logged dataset"),
            incomplete.count(),
            counted(sum(|logged| logged.records as u64), "record"),
            counted(sum(|logged| logged.blocks as u64), "block"),
            counted(sum(|logged| logged.bytes), "byte"),
        )
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
            line += &format!(", filters {}", self.filter_names());
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

impl DatasetReport {
    /// Names of the dataset's filters.
    pub fn filter_names(&self) -> String {
        let names: Vec<String> = self.filters.iter().map(|id| filter_name(*id)).collect();
        names.join(" ")
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
    /// The report on a dataset, and its faults.
    fn of(view: &View, number: usize, with_records: bool) -> Result<(Self, Vec<String>)> {
        if !with_records && view.inspection().has_equal_rows(number) {
            return Self::of_equal_rows(view, number);
        }
        let mut faults = texts(view.indexes().of(number)?.diagnostics());
        let records = view.indexes().records(number)?.records;
        let of_records = records.map(|r| r.fault.map(str::to_owned));
        faults.extend(of_records.flatten());
        let report = LoggedReport {
            records: records.len(),
            // A damaged log can claim any number.
            blocks: records.map(|r| r.blocks()).fold(0, usize::saturating_add),
            bytes: records.map(|r| r.stored.len).fold(0, u64::saturating_add),
            base: records.base().map(Base::bytes),
            covered: view.inspection().covered(number)?,
            list: with_records.then(|| records.map(RecordReport::of).collect()),
        };
        Ok((report, faults))
    }

    /// The report on a dataset whose rows are equal. A set of files may have millions of records.
    fn of_equal_rows(view: &View, number: usize) -> Result<(Self, Vec<String>)> {
        let wanted = Wanted {
            rows: 1,
            columns: 1,
            axes: None,
        };
        let map = view.pictures(&Origins::default()).of(number, &wanted)?;
        let report = LoggedReport {
            records: usize::try_from(map.records).unwrap_or(usize::MAX),
            blocks: usize::try_from(map.blocks).unwrap_or(usize::MAX),
            bytes: map.stored,
            base: None,
            covered: (!map.is_estimate()).then(|| map.covered()),
            list: None,
        };
        Ok((report, texts(&map.faults)))
    }

    /// Whether some elements are known to be unwritten.
    fn is_incomplete(&self) -> bool {
        self.covered.is_some_and(|share| share < 1.0)
    }

    fn print(&self, out: &mut Output<impl Write>) -> io::Result<()> {
        writeln!(
            out,
            "  {} records, {} blocks, {} bytes logged, {}",
            self.records,
            self.blocks,
            self.bytes,
            match self.covered {
                Some(share) => format!("{} covered", percent(share)),
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
    fn of(record: &Record<'_>) -> Self {
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
                Encoding::Operator => "by an operator",
                Encoding::Part => "part of an array",
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
