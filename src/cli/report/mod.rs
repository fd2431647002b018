//! `h5logfs report`: a page about logs for a browser, with pictures of the data and of the written elements.
//!
//! * `page`: the page. `words`: its text and numbers. `gallery`: pictures of the data. `svg`: those of what is written.

mod gallery;
mod page;
mod svg;
mod words;

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use clap::Args;
use jiff::Timestamp;

use super::called::Called;
use super::follow::is_no_log;
use super::ls::{State, last_write};
use super::output::fail_with_last;
use super::parts::Parts;
use super::picture::Pictures;
use super::target::{STDOUT, Target, TargetRequest, originals};
use super::unclosed::Unclosed;
use super::{LogScanner, ViewArgs, called, logs, objects};
use gallery::{Allowance, Data};
use h5logfs_arrays::{Log, Object};
use h5logfs_catalog::changes::{self, Changes, FollowedState, Plain};
use h5logfs_catalog::lookup::overwrite::Originals;
use h5logfs_common::diagnostic::{Diagnostic, Severity};
use h5logfs_hdf5_format::{DatasetInfo, Layout};
use h5logfs_log::origins::Timeline;
use h5logfs_log::scan::Settings;
use h5logfs_log::snapshot::{Content, Dataset, Storage};
use h5logfs_view::View;
use h5logfs_view::coverage::{CoverageMap, Wanted};

pub use words::{Text, bytes, shape};

/// Shortest time between two pages of `--watch`, and its least multiple of the time to make a page.
const SHORTEST_PAUSE: Duration = Duration::from_secs(2);
const PAUSE_PER_PAGE: u32 = 10;
/// State of a log that is now an ordinary HDF5 file.
const SETTLED: &str = "settled";
/// Most rows of the largest picture.
const MOST_ROWS: usize = 100;
const MOST_COLUMNS: usize = 200;
/// Most cells of all pictures of one file: many datasets get smaller pictures, down to [`FEWEST_CELLS`].
const CELLS_OF_FILE: usize = 160_000;
const FEWEST_CELLS: usize = 400;
/// Most flushes and ranks that a timeline shows individually.
const MOST_FLUSHES: usize = 120;
/// With more datasets than this, wholly written ones have neither maps nor sizes of records, which take some KB each.
const SEVERAL_DATASETS: usize = 100;
/// With more datasets than this, datasets fully described by their row have no details at all.
const MANY_DATASETS: usize = 1000;
const MOST_RANKS: usize = 64;

/// Make an HTML page about logs: pictures of the data, and the written parts of each dataset, by flush and rank
#[derive(Debug, Clone, Args)]
// Here -o names the output file.
#[command(mut_arg("options", |options| options.short(None)))]
pub struct ReportArgs {
    /// The log files, or any HDF5 files; or directories, for the logs in them
    #[arg(value_name = "DIR|FILE", required = true)]
    pub files: Vec<PathBuf>,

    /// The page to write, which appears when it is complete; or -, for standard output
    #[arg(short, long, value_name = "OUT")]
    pub output: PathBuf,

    /// Replace OUT if it exists; but never a file of a log that is still needed
    #[arg(long)]
    pub force: bool,

    /// While a log is not closed, write the page again when it has changed; a browser reloads it by itself
    #[arg(long)]
    pub watch: bool,

    /// The two dimensions that pictures show from top to bottom and from left to right, numbered from 0; the two largest
    /// if not given
    #[arg(long, value_name = "A,B", value_parser = axes)]
    pub axes: Option<(usize, usize)>,

    #[command(flatten)]
    pub view: ViewArgs,
}

fn axes(text: &str) -> Result<(usize, usize), String> {
    let parsed = text.split_once(',').and_then(|(rows, columns)| {
        let number = |text: &str| text.trim().parse::<usize>().ok();
        Some((number(rows)?, number(columns)?))
    });
    match parsed {
        Some((rows, columns)) if rows != columns => Ok((rows, columns)),
        _ => Err("expected two different dimensions, such as 0,2".into()),
    }
}

pub fn run(mut args: ReportArgs) -> Result<()> {
    let logs::Named { files, mut errors } = logs::named(&args.files, &args.view)?;
    args.files = files;
    let report = |number: usize, scanner: &LogScanner<'_>| {
        FileReport::of(&args.files[number], &args, scanner)
    };
    let files = if args.watch {
        watch(&args)?
    } else {
        write(&args, args.force, None, report)?
    };
    let failed = files.iter().filter(|file| file.content.is_err()).count();
    if failed > 0 {
        let all = files.len();
        errors.push(anyhow!(
            "{failed} of {all} files cannot be read: the page says why"
        ));
    }
    fail_with_last(errors)
}

/// Writes the page about each file. `renewed`: time until the next page.
fn write(
    args: &ReportArgs,
    force: bool,
    renewed: Option<Duration>,
    mut report: impl FnMut(usize, &LogScanner<'_>) -> FileReport,
) -> Result<Vec<FileReport>> {
    let settings = args.view.settings()?;
    let request = TargetRequest {
        out: &args.output,
        force,
        settings: &settings,
        form: "a page",
    };
    let target = Target::new(&request, all_originals(&args.files, &settings))?;
    let scanner = args.view.scanner()?;
    let files: Vec<FileReport> = (0..args.files.len())
        .map(|number| report(number, &scanner))
        .collect();
    let renewed = renewed.filter(|_| files.iter().any(FileReport::is_unclosed));
    let page = page::page(&files, renewed);
    let written = target.create().and_then(|mut output| {
        output.write(page.as_bytes())?;
        output.finish()
    });
    written.with_context(|| format!("cannot write {}", target.name()))?;
    Ok(files)
}

/// Writes the page again when a log has changed, until all are closed. Returns the last reports.
fn watch(args: &ReportArgs) -> Result<Vec<FileReport>> {
    ensure!(
        args.output != Path::new(STDOUT),
        "--watch writes a file again and again: it cannot be standard output"
    );
    let changes = |file: &PathBuf| {
        let changes = Changes::of(file);
        changes.with_context(|| file.display().to_string())
    };
    let mut changes: Vec<Changes> = args.files.iter().map(changes).collect::<Result<_>>()?;
    let (mut force, mut pause) = (args.force, SHORTEST_PAUSE);
    let mut files: Vec<FileReport> = Vec::new();
    loop {
        let begin = Instant::now();
        let mut before = files.into_iter();
        files = write(args, force, Some(pause), |number, scanner| {
            let report = || FileReport::of(&args.files[number], args, scanner);
            renewed(&mut changes[number], before.next(), report)
        })?;
        if !files.iter().any(FileReport::is_unclosed) {
            return Ok(files);
        }
        // From now on the command replaces its own page.
        force = true;
        pause = (begin.elapsed() * PAUSE_PER_PAGE).max(SHORTEST_PAUSE);
        thread::sleep(pause);
        changes::wait_for_any(&mut changes, None);
    }
}

/// The next report on a log. The log may be closed meanwhile, or even become an ordinary file. `before`: the last report.
fn renewed(
    changes: &mut Changes,
    before: Option<FileReport>,
    report: impl Fn() -> FileReport,
) -> FileReport {
    let now = match before {
        None => report(),
        Some(before) => match (changes.retry(|| report().content), changes.plain()) {
            (Err(error), Some(plain)) if is_no_log(&error) => before.became(plain),
            (content, _) => FileReport { content, ..before },
        },
    };
    if let Ok(log) = &now.content {
        changes.learn(&log.found);
    }
    now
}

/// The files that must not be overwritten. Missing files need no protection.
fn all_originals(files: &[PathBuf], settings: &Settings) -> Originals {
    let found = files
        .iter()
        .filter_map(|file| originals(file, settings).ok());
    found.fold(Originals::default(), Originals::with)
}

/// The report on one file.
struct FileReport {
    /// The user's name for the file.
    name: String,
    /// The report, or why the file cannot be read.
    content: Result<LogReport>,
}

/// The report on one log.
struct LogReport {
    layout: &'static str,
    state: &'static str,
    /// Notes for the user.
    notes: Vec<String>,
    faults: Vec<String>,
    /// Number of files that contain its bytes.
    files: usize,
    /// Length of the canonical file.
    canonical_bytes: u64,
    /// The last complete flush of an unclosed log with numbered flushes.
    flush: Option<u64>,
    found: FollowedState,
    written: Option<Timestamp>,
    timeline: Timeline,
    datasets: Vec<DatasetReport>,
    /// Number of lost elements for which no dataset has a place.
    left_out: u64,
    /// Whether the number of all lost elements is known.
    are_losses_counted: bool,
}

/// The report on one dataset.
struct DatasetReport {
    name: String,
    datatype: String,
    element_size: u64,
    dims: Vec<u64>,
    /// `None` for contiguous storage.
    chunk: Option<Vec<u64>>,
    /// Number of chunks.
    chunks: u64,
    content: DatasetContent,
    data: Data,
}

enum DatasetContent {
    Logged(Box<CoverageMap>),
    NotLogged,
    /// The file has the elements as its metadata say.
    InFile,
    Unreadable(String),
}

impl FileReport {
    /// Whether the log may grow.
    fn is_unclosed(&self) -> bool {
        self.content.as_ref().is_ok_and(|log| !log.found.is_closed)
    }

    /// Turns the report on a log into that on the plain file that the log has become. No new page can be made about such a file.
    fn became(mut self, plain: Plain) -> Self {
        let (state, what) = match plain {
            Plain::Hdf5 => (SETTLED, "closed and settled: an ordinary HDF5 file"),
            Plain::Main => (
                State::Closed.words(),
                "closed: all data are in the file itself",
            ),
        };
        if let Ok(log) = &mut self.content
            && log.state != state
        {
            let shown = match log.flush.take() {
                Some(flush) => format!("; shown as flush {flush} left it"),
                None if !log.found.is_closed => "; shown as it was last seen".to_owned(),
                None => String::new(),
            };
            log.state = state;
            log.found.is_closed = true;
            log.notes = vec![format!("{what}{shown}")];
        }
        self
    }

    fn of(file: &Path, args: &ReportArgs, scanner: &LogScanner<'_>) -> Self {
        // A watched log that becomes a plain file keeps its page.
        let view = if args.watch {
            scanner.open(file)
        } else {
            scanner.open_any(file)
        };
        let report = |view: Arc<View>| LogReport::of(file, &view, args, &scanner.arrays(&view)?);
        FileReport {
            name: file.display().to_string(),
            content: view.and_then(report),
        }
    }
}

impl LogReport {
    fn of(file: &Path, view: &View, args: &ReportArgs, log: &Log) -> Result<Self> {
        let unclosed = Unclosed::of(file, view);
        let snapshot = view.snapshot();
        let (notes, mut faults): (Vec<_>, Vec<_>) =
            (snapshot.diagnostics.iter()).partition(|d| d.severity == Severity::Note);
        let of_table = view.indexes().diagnostics();
        if let Ok(of_table) = &of_table {
            faults.extend(of_table);
        }
        let mut faults: Vec<String> = faults.into_iter().map(Diagnostic::to_string).collect();
        faults.extend(
            of_table
                .err()
                .map(|e| Called::of(file).error(e).to_string()),
        );
        let origins = view.indexes().origins()?;
        let notes = notes.into_iter().chain(&origins.diagnostics);
        let mut notes: Vec<String> = notes.map(Diagnostic::to_string).collect();
        notes.extend(unclosed.as_ref().map(Unclosed::to_string));
        let parts = Parts::of(view).filter(Parts::are_several);
        notes.extend(parts.map(|parts| parts.to_string()));
        notes.extend(logs::part_of(file));
        let found = objects::datasets(view);
        faults.extend(found.faults);
        let logged: HashSet<u64> = snapshot
            .datasets
            .iter()
            .map(|dataset| dataset.header)
            .collect();
        let others = found
            .datasets
            .iter()
            .filter(|(_, address)| !logged.contains(address));
        let others: Vec<&(String, u64)> = others.collect();
        let all = snapshot.datasets.len() + others.len();
        let (mut data, mut drawn) = (Allowance::new(all, args.files.len()), Pictures::of(log));
        let wanted = |dataset: &Dataset| wanted(dataset, snapshot.datasets.len(), args);
        let mut pictures = view.pictures(&origins);
        let dataset = |(number, dataset): (usize, &Dataset)| {
            let content = match &dataset.content {
                Content::Logged { .. } => {
                    match wanted(dataset).and_then(|wanted| Ok(pictures.of(number, &wanted)?)) {
                        Ok(map) => DatasetContent::Logged(Box::new(map)),
                        Err(e) => DatasetContent::Unreadable(called(file, e).to_string()),
                    }
                }
                Content::Unreadable(reason) => DatasetContent::Unreadable(reason.clone()),
                Content::Extent { .. } => DatasetContent::NotLogged,
            };
            let data = data.data(log, &mut drawn, &dataset.name, dataset.header);
            DatasetReport::of(dataset, view.grid(number).len(), content, data)
        };
        let mut datasets: Vec<DatasetReport> =
            snapshot.datasets.iter().enumerate().map(dataset).collect();
        for (path, address) in others {
            let shown = data.data(log, &mut drawn, path, *address);
            datasets.push(DatasetReport::in_file(log, path, *address, shown));
        }
        Ok(LogReport {
            layout: snapshot.log.layout().name(),
            state: State::of(unclosed.as_ref(), snapshot).words(),
            notes,
            faults,
            files: files_of(view),
            canonical_bytes: view.len(),
            flush: snapshot.journal.as_ref().map(|_| snapshot.flushes),
            found: FollowedState::in_view(view),
            written: last_write(snapshot),
            timeline: origins.timeline(MOST_FLUSHES, MOST_RANKS),
            datasets,
            left_out: snapshot
                .left_out
                .iter()
                .fold(0, |all, lost| all.saturating_add(lost.elements)),
            are_losses_counted: snapshot.are_losses_counted(),
        })
    }

    /// Datasets with pictures.
    fn maps(&self) -> impl Iterator<Item = (&DatasetReport, &CoverageMap)> {
        self.datasets
            .iter()
            .filter_map(|dataset| match &dataset.content {
                DatasetContent::Logged(map) => Some((dataset, &**map)),
                _ => None,
            })
    }

    /// Number of elements that were written and are lost.
    fn lost(&self) -> u128 {
        let lost = |map: &CoverageMap| map.total(|cell| cell.lost);
        let of_maps = self.maps().map(|(_, map)| lost(map));
        of_maps.sum::<u128>() + u128::from(self.left_out)
    }

    /// Share of the written elements of all logged datasets; `None` without any, and where nothing tells how many are lost.
    fn covered(&self) -> Option<f64> {
        let sum = |of: fn(&CoverageMap) -> u128| self.maps().map(|(_, map)| of(map)).sum::<u128>();
        let all = sum(|map| map.total(|cell| cell.elements)) + u128::from(self.left_out);
        let written = sum(|map| map.total(|cell| cell.written));
        let is_known = all > 0 && self.are_losses_counted;
        is_known.then(|| written as f64 / all as f64)
    }

    /// Whether the share is an estimate.
    fn is_estimate(&self) -> bool {
        self.maps().any(|(_, map)| map.is_estimate())
    }

    /// Size of the canonical file without the chunks that no record touches, in bytes; `None` if these were not counted.
    fn bytes_without_unwritten(&self) -> Option<u64> {
        let unwritten = self
            .maps()
            .map(|(dataset, map)| dataset.unwritten_bytes(map));
        let unwritten = unwritten.sum::<Option<u64>>()?;
        Some(self.canonical_bytes.saturating_sub(unwritten))
    }
}

impl DatasetReport {
    /// A dataset that no scan has listed.
    fn in_file(log: &Log, path: &str, address: u64, data: Data) -> Self {
        let found = log.object_at(path, address);
        let (info, dims) = match found {
            Ok(Object::Dataset(dataset)) => {
                (Some(dataset.info().clone()), dataset.shape().to_vec())
            }
            _ => (None, Vec::new()),
        };
        let chunk = |info: &DatasetInfo| match &info.layout {
            Layout::Chunked { chunk, .. } => Some(chunk.clone()),
            _ => None,
        };
        let chunk = info.as_ref().and_then(chunk);
        let across = chunk.iter().flat_map(|chunk| dims.iter().zip(chunk));
        DatasetReport {
            name: path.to_owned(),
            datatype: info
                .as_ref()
                .map_or_else(String::new, |info| info.datatype.to_string()),
            element_size: info.as_ref().map_or(0, |info| info.datatype.size.into()),
            chunks: across.fold(1, |n: u64, (side, chunk)| {
                n.saturating_mul(side.div_ceil(*chunk))
            }),
            dims,
            chunk,
            content: match info {
                Some(_) => DatasetContent::InFile,
                None => DatasetContent::Unreadable("its header is damaged".to_owned()),
            },
            data,
        }
    }

    fn of(dataset: &Dataset, chunks: u64, content: DatasetContent, data: Data) -> Self {
        DatasetReport {
            name: dataset.name.clone(),
            datatype: dataset.datatype.clone(),
            element_size: dataset.element_size,
            dims: dataset.dims.clone(),
            chunk: match &dataset.storage {
                Storage::Chunked(chunk) => Some(chunk.clone()),
                Storage::Contiguous => None,
            },
            chunks,
            content,
            data,
        }
    }

    /// Size of the chunks that no record touches, in bytes.
    fn unwritten_bytes(&self, map: &CoverageMap) -> Option<u64> {
        let (Some(chunk), false) = (&self.chunk, map.has_base) else {
            return Some(0);
        };
        let untouched = self.chunks.saturating_sub(map.pieces.as_ref()?.touched);
        let elements = chunk.iter().fold(1, |n: u64, side| n.saturating_mul(*side));
        let bytes = elements.saturating_mul(self.element_size);
        Some(untouched.saturating_mul(bytes))
    }

    /// Bytes written by records and overwritten by later ones; `None` if they were not counted.
    fn hidden_bytes(&self, map: &CoverageMap) -> Option<u128> {
        if map.is_estimate() || map.is_spread || map.has_base {
            return None;
        }
        let hidden = map.total(|cell| cell.logged.saturating_sub(cell.written + cell.lost));
        Some(hidden * u128::from(self.element_size))
    }
}

/// The picture of one of `datasets` datasets. Fails if it lacks the requested dimensions.
fn wanted(dataset: &Dataset, datasets: usize, args: &ReportArgs) -> Result<Wanted> {
    let rank = dataset.dims.len();
    if let Some((rows, columns)) = args.axes
        && rows.max(columns) >= rank
        && rank > 1
    {
        bail!("it has no dimension {}", rows.max(columns));
    }
    let cells = (CELLS_OF_FILE / datasets.max(1)).clamp(FEWEST_CELLS, MOST_ROWS * MOST_COLUMNS);
    // Pictures are twice as wide as high.
    let rows = ((cells / 2) as f64).sqrt() as usize;
    Ok(Wanted {
        rows: rows.min(MOST_ROWS),
        columns: if rank > 1 { cells / rows } else { MOST_COLUMNS },
        axes: args.axes.filter(|_| rank > 1),
    })
}

/// Number of files that contain the log.
fn files_of(view: &View) -> usize {
    let sources = view.snapshot().sources.iter();
    let mut paths: Vec<_> = sources.map(|source| &source.place.path).collect();
    paths.sort();
    paths.dedup();
    paths.len()
}
