//! `h5logfs inspect`: shows the content of logs.
//!
//! * `report`: the description of a log and of its datasets; also with a list of all records.
//! * `objects`: the datasets of a file whose bytes are shown unchanged.
//! * `overview`: the summary, and datasets as a table or as a tree.
//! * `incomplete`: datasets that are not completely written.
//! * `picture`: a dataset as a picture for a terminal.

mod incomplete;
mod objects;
mod overview;
mod picture;
mod report;

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::{Error, Result, bail, ensure};
use clap::Args;
use serde::Serialize;

use super::output::{Output, fail_with_last};
use super::unclosed::Unclosed;
use super::{ViewArgs, logs};
use h5logfs_log::snapshot::Dataset;
use h5logfs_view::ChunkId;
use h5logfs_view::{StoredBlock, View};
use incomplete::Incomplete;
use report::Report;

/// Show the content of log files: datasets, and the records that make them up
#[derive(Debug, Clone, Args)]
pub struct InspectArgs {
    /// The log files; or directories, for the logs in them
    #[arg(value_name = "DIR|FILE", required = true)]
    pub files: Vec<PathBuf>,

    /// Show datasets in their groups
    #[arg(long, conflicts_with_all = ["records", "incomplete", "map", "json"])]
    pub tree: bool,

    /// List every record
    #[arg(long, conflicts_with_all = ["incomplete", "map"])]
    pub records: bool,

    /// Show which time steps are incomplete: datasets with missing elements, and where along the unlimited dimension
    #[arg(long, conflicts_with = "map")]
    pub incomplete: bool,

    /// Draw which part of this dataset is written, and list the records of each chunk
    #[arg(long, value_name = "DATASET")]
    pub map: Option<String>,

    /// Print JSON: an object for one file, an array for several files or directories
    #[arg(long)]
    pub json: bool,

    #[command(flatten)]
    pub view: ViewArgs,
}

/// Shows all readable files, and an error for each of the others.
pub fn run(args: InspectArgs) -> Result<()> {
    let out = &mut Output::stdout();
    let mut args = args;
    let has_dirs = args.files.iter().any(|path| logs::is_directory(path));
    let logs::Named { files, errors } = logs::named(&args.files, &args.view)?;
    args.files = files;
    let form = match (args.json, has_dirs || args.files.len() > 1) {
        (false, _) => Form::Text,
        (true, false) => Form::Object,
        (true, true) => Form::Array,
    };
    if let Some(name) = &args.map {
        ensure!(args.files.len() == 1, "--map shows a dataset of one file");
        let scanner = args.view.scanner_for(1)?;
        let view = scanner.open(&args.files[0])?;
        return print_map(&view, name, args.json, out);
    }
    if args.incomplete {
        return show(&args, form, out, errors, Incomplete::of, Incomplete::print);
    }
    let report =
        |file: &Path, view: &View| Report::of(file, view, Unclosed::of(file, view), args.records);
    show(&args, form, out, errors, report, |report, out| {
        if args.records {
            return report.print(out);
        }
        overview::print(report, args.tree, out)
    })
}

/// The form of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Text,
    /// JSON of one file.
    Object,
    /// JSON of any number of files.
    Array,
}

/// Shows a report of each file. `failed`: errors of other arguments.
fn show<T: Serialize, W: Write>(
    args: &InspectArgs,
    form: Form,
    out: &mut Output<W>,
    mut failed: Vec<Error>,
    of: impl Fn(&Path, &View) -> Result<T>,
    print: impl Fn(&T, &mut Output<W>) -> io::Result<()>,
) -> Result<()> {
    let scanner = args.view.scanner_for(args.files.len())?;
    let _listing = scanner.listing();
    let found = args.files.iter().filter_map(|file| {
        let found = scanner.open(file).and_then(|view| of(file, &view));
        found.map_err(|error| failed.push(error)).ok()
    });
    match form {
        Form::Text => {
            for (number, found) in found.enumerate() {
                if number > 0 {
                    out.blank_line()?;
                }
                print(&found, out)?;
            }
        }
        Form::Array => out.json_array(found.map(Ok::<_, io::Error>))?,
        Form::Object => {
            let mut found = found;
            found.try_for_each(|found| out.json(&found))?;
        }
    }
    fail_with_last(failed)
}

#[derive(Debug, Serialize)]
struct ChunkReport {
    /// Position in the chunk grid.
    chunk: Vec<u64>,
    /// Offset in the canonical file.
    offset: u64,
    stored: u64,
    /// The parts of records in the chunk, in the order in which they apply. The rest of the chunk is fill value.
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
        .holes()
        .touched(number, 0)?
        .map(|chunk| ChunkReport::of(view, number, chunk))
        .peekable();
    let none = reports.peek().is_none();
    if json {
        return out.json_array(reports);
    }
    picture::print(&picture::of(view, number)?, out)?;
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
        let (offset, stored) = view.inspection().chunk_place(ChunkId::new(number, chunk))?;
        let (made_of, fault) = match view.inspection().chunk_blocks(ChunkId::new(number, chunk)) {
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
