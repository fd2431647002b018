//! `h5logfs compact`: makes an ordinary, small HDF5 file from a log. [`ranks`] does it with the ranks of a job.

pub mod ranks;
pub mod watch;

use std::io;
use std::num::NonZeroU16;

use anyhow::{Context, Result, ensure};
use clap::Args;

use super::missing::{LossArgs, Made};
use super::output::Output;
use super::progress::{Progress, Summary};
use super::target::{FromTo, Unordered};
use super::{Scanned, ViewArgs, called, log_bytes};
use h5logfs_common::parallel;
use h5logfs_convert::compact::metadata::Metadata;
use h5logfs_convert::compact::sequence::Compacted;
use h5logfs_convert::compact::threads;
use h5logfs_convert::compact::verify::verify;
use h5logfs_convert::compact::{Source, left_out::LeftOut};
use h5logfs_hdf5_format::filters::{DEFLATE, FLETCHER32, Filter, OPTIONAL, SHUFFLE};
use h5logfs_log::scan::Choice;

/// Make an ordinary, small HDF5 file from a log: only the written data, in compressed chunks
#[derive(Debug, Clone, Args)]
#[command(
    override_usage = "h5logfs compact [OPTIONS] FILE OUT\n       h5logfs compact [OPTIONS] FILE -o OUT",
    mut_arg("options", |options| options.short(None)),
    mut_arg("out", |out| out.help("The file to write, or - for standard output. It gets the file when that is complete"))
)]
pub struct CompactArgs {
    #[command(flatten)]
    pub paths: FromTo,

    #[command(flatten)]
    pub filters: FilterArgs,

    /// Only these datasets or groups, their dimension scales, and the groups above them; repeat the option for several
    #[arg(long, value_name = "PATH")]
    pub dataset: Vec<String>,

    /// Leave out chunks that cannot be read, and list them; the exit status is 4 if there are any
    #[arg(long)]
    pub skip_damaged: bool,

    #[command(flatten)]
    pub losses: LossArgs,

    /// Read the new file back and compare it with the log
    #[arg(long)]
    pub verify: bool,

    /// Number of threads that read and compress; one for each processor if not given
    #[arg(long, value_name = "N")]
    pub jobs: Option<NonZeroU16>,

    #[command(flatten)]
    pub view: ViewArgs,
}

/// Filters for all chunked datasets of the log. By default each dataset has the filters that the log records.
#[derive(Debug, Clone, Args)]
pub struct FilterArgs {
    /// Compress all chunks with this level of deflate, 1 to 9, instead of the filters that the log records
    #[arg(long, value_name = "LEVEL", value_parser = clap::value_parser!(u32).range(1..=9))]
    pub deflate: Option<u32>,

    /// Shuffle the bytes of all chunks before they are compressed
    #[arg(long)]
    pub shuffle: bool,

    /// Store a checksum with each chunk
    #[arg(long)]
    pub fletcher32: bool,
}

impl FilterArgs {
    /// The chosen filters, in the order in which h5repack applies them; `None` if the user has chosen none.
    fn chosen(&self) -> Option<Vec<Filter>> {
        let filter = |id, flags, values| Filter { id, flags, values };
        // libhdf5 adds the size of an element.
        let shuffle = self.shuffle.then(|| filter(SHUFFLE, OPTIONAL, Vec::new()));
        let deflate = self.deflate;
        let deflate = deflate.map(|level| filter(DEFLATE, OPTIONAL, vec![level]));
        let sum = self.fletcher32;
        let sum = sum.then(|| filter(FLETCHER32, 0, Vec::new()));
        let chosen: Vec<Filter> = [shuffle, deflate, sum].into_iter().flatten().collect();
        (!chosen.is_empty()).then_some(chosen)
    }
}

/// The scans of a log.
struct Scans {
    log: Scanned,
    /// Elements are read as the log stores them, so filters chosen by the user need another scan, for the metadata alone.
    other: Option<Scanned>,
}

pub fn run(args: CompactArgs) -> Result<()> {
    let target = args.paths.target(&args.view.settings()?)?;
    let scanner = args.view.scanner()?;
    let scans = args.scans(|choice| scanner.scan(&args.paths.file, choice))?;
    let source = args.source(scans)?;
    let summary = Summary::begin(log_bytes(&source.view));
    let written = target.create_unordered().and_then(|output| {
        let compacted = write(&args, &source, &output)?;
        output.finish(compacted.file.len)?;
        summary.print(&target.name(), compacted.file.len);
        Ok(compacted.left_out)
    });
    let written = written.map_err(|e| called(&args.paths.file, e));
    let left_out = written.with_context(|| format!("cannot write {}", target.name()))?;
    report(&left_out)?;
    let made = Made {
        log: &args.paths.file,
        snapshot: source.view.snapshot(),
        name: &target.name(),
        left_out: count(&left_out),
    };
    made.warn()?;
    Ok(made.end(&args.losses)?)
}

impl CompactArgs {
    fn scans<E>(&self, scan: impl Fn(Choice) -> Result<Scanned, E>) -> Result<Scans, E> {
        let choice = Choice::only(self.dataset.iter().map(String::as_str));
        let filters = self.filters.chosen();
        let other = filters.map(|filters| choice.with_filters(filters));
        Ok(Scans {
            log: scan(choice)?,
            other: other.map(scan).transpose()?,
        })
    }

    fn source(&self, scans: Scans) -> Result<Source> {
        let Scans { mut log, other } = scans;
        let other = other.map(|other| Metadata::of_scan(&mut log.snapshot, other.snapshot));
        let other = other.transpose()?;
        let view = log.open()?;
        ensure!(
            view.snapshot().log.layout().flat().is_none(),
            "{}: this is an HDF5 file in several parts, without records: make one file of it with `h5logfs export`, and \
             compress that with h5repack",
            view.path().display()
        );
        Ok(Source {
            metadata: other.map_or_else(|| Metadata::of_view(&view), Ok)?,
            skips_damaged: self.skip_damaged,
            view,
        })
    }
}

fn write(args: &CompactArgs, source: &Source, output: &Unordered<'_>) -> Result<Compacted> {
    let jobs = args
        .jobs
        .map_or_else(parallel::cores, |jobs| jobs.get().into());
    let bar = Progress::new("h5logfs compact", source.total());
    let file = output.file();
    let compacted = threads::write(source, file, jobs, &|done| bar.set_position(done))?;
    bar.finish();
    if args.verify {
        let bar = Progress::new("h5logfs compact", source.total());
        verify(source, file, &compacted, jobs, &|done| {
            bar.set_position(done)
        })?;
        bar.finish();
    }
    Ok(compacted)
}

fn count(left_out: &[LeftOut]) -> u64 {
    left_out.iter().map(|left_out| left_out.count).sum()
}

/// Lists the parts that are not in the file.
fn report(left_out: &[LeftOut]) -> io::Result<()> {
    let mut out = Output::to(io::stderr().lock());
    left_out
        .iter()
        .try_for_each(|left_out| writeln!(out, "left out: {left_out}"))
}
