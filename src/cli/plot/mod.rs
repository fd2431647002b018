//! `h5logfs plot`: draws a dataset, as a picture for a terminal, or as a file.
//!
//! * `figure`: title, axes and colour bar around a picture. `svg`, `raster`: a figure as a file.
//! * `terminal`: a picture as characters. `canvas`: lines as dots of characters.

mod canvas;
mod figure;
mod raster;
mod svg;
mod terminal;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;

use super::called::Called;
use super::picture::{Picture, Pictures, Scale};
use super::suggest::did_you_mean;
use super::target::{Target, TargetRequest, originals};
use super::{ViewArgs, missing, objects};
use figure::Figure;
use h5logfs_arrays::thinned::Limits;
use h5logfs_arrays::{Dataset, Log, Object};
use h5logfs_view::View;
use terminal::Terminal;

/// Share of the memory for chunks that is read and decoded for one picture.
const SHARE: u64 = 2;
/// Most names of datasets in a message.
const MOST_NAMES: usize = 20;
/// The output that is no file.
const TERMINAL: &str = "terminal";

/// Draw a dataset: in the terminal, or as a PNG or SVG file
#[derive(Debug, Clone, Args)]
// Here -o names the output file.
#[command(mut_arg("options", |options| options.short(None).long("option")))]
#[command(after_help = "\
A dataset of one dimension becomes a line, one of two an image. Of more dimensions, the first is shown at its last written \
index, and the others at index 0, until two are left; a slice chooses otherwise. NaN and fill values stay blank. Dimension \
scales, such as the coordinate variables of climate data, label the axes; an image whose vertical coordinates ascend has the \
first row at the bottom.

Large datasets are thinned: a cell of the picture shows the mean of its elements, or one of them where reading all would take \
more than half of --cache-size. The line below the picture says so.

A terminal gets half blocks in the colours that COLORTERM and TERM promise. With NO_COLOR, or if standard output is no \
terminal, the picture is made of plain characters.")]
pub struct PlotArgs {
    /// The log file, or any HDF5 file
    #[arg(value_name = "FILE")]
    pub file: PathBuf,

    /// The dataset, with a slice as in numpy if not all of it is wanted: `T[3,:,::2]`. Without it, the only dataset of FILE
    #[arg(value_name = "DATASET[SLICE]")]
    pub dataset: Option<String>,

    /// The file to write, whose name ends in .png or .svg; or terminal
    #[arg(short, long, value_name = "FILE.png|FILE.svg|terminal", default_value = TERMINAL)]
    pub output: PathBuf,

    /// Replace the output file if it exists; but never a file of a log that is still needed
    #[arg(long)]
    pub force: bool,

    /// The numbers at both ends of the colour scale, or of the vertical axis of a line; the least and greatest if not given
    #[arg(long, value_name = "LEAST,MOST", value_parser = range, allow_hyphen_values = true)]
    pub range: Option<Scale>,

    #[command(flatten)]
    pub view: ViewArgs,
}

fn range(text: &str) -> Result<Scale, String> {
    let parsed = text.split_once(',').and_then(|(least, most)| {
        let number = |text: &str| text.trim().parse::<f64>().ok().filter(|n| n.is_finite());
        Some((number(least)?, number(most)?))
    });
    match parsed {
        Some((least, most)) if least < most => Ok(Scale { least, most }),
        _ => Err("expected two numbers, the smaller one first, such as -1,1".into()),
    }
}

/// The form of the output.
enum Form {
    Terminal(Terminal),
    Png,
    Svg,
}

impl Form {
    fn of(output: &Path) -> Result<Self> {
        if output == Path::new(TERMINAL) {
            return Ok(Form::Terminal(Terminal::of_stdout()));
        }
        let ending = output.extension().map(OsStr::to_ascii_lowercase);
        match ending.as_deref().and_then(OsStr::to_str) {
            Some("png") => Ok(Form::Png),
            Some("svg") => Ok(Form::Svg),
            _ => bail!(
                "{}: expected a name that ends in .png or .svg, or {TERMINAL}",
                output.display()
            ),
        }
    }

    /// The most cells of an image with so many indices from top to bottom and from left to right.
    fn limits(&self, rows: u64, columns: u64, bytes: u64) -> Limits {
        let (rows, columns) = match self {
            Form::Terminal(terminal) => terminal.cells(rows, columns),
            Form::Png | Form::Svg => figure::CELLS,
        };
        Limits {
            rows,
            columns,
            bytes,
            until: None,
        }
    }
}

pub fn run(args: PlotArgs) -> Result<()> {
    let form = Form::of(&args.output)?;
    let settings = args.view.settings()?;
    let target = match form {
        Form::Terminal(_) => None,
        Form::Png | Form::Svg => {
            let request = TargetRequest {
                out: &args.output,
                force: args.force,
                settings: &settings,
                form: "an image",
            };
            Some(Target::new(&request, originals(&args.file, &settings)?)?)
        }
    };
    let scanner = args.view.scanner_for(1)?;
    let view = scanner.open_any(&args.file)?;
    let log = scanner.arrays(&view)?;
    let picture = picture(&args, &view, &log, &form)?;
    missing::warn(view.snapshot(), &args.file)?;
    let scale = args.range.or(picture.scale());
    let bytes = match &form {
        Form::Terminal(terminal) => return Ok(terminal.print(&picture, scale)?),
        Form::Png => raster::png(&Figure::of(&picture, scale, &args.file))?,
        Form::Svg => svg::text(&Figure::of(&picture, scale, &args.file))?.into_bytes(),
    };
    let Some(target) = target else {
        return Ok(());
    };
    let written = target.create().and_then(|mut output| {
        output.write(&bytes)?;
        output.finish()
    });
    written.with_context(|| format!("cannot write {}", target.name()))
}

fn picture(args: &PlotArgs, view: &View, log: &Log, form: &Form) -> Result<Picture> {
    let file = args.file.display();
    let (dataset, part) = match &args.dataset {
        Some(wanted) => named(wanted, view, log).with_context(|| file.to_string())?,
        None => (only(view, log).with_context(|| file.to_string())?, None),
    };
    let bytes = args.view.cache_size / SHARE;
    let limits = |rows, columns| form.limits(rows, columns, bytes);
    let picture = Pictures::of(log).picture(&dataset, part, limits);
    picture.map_err(|error| match error.downcast() {
        // It names the file and the dataset.
        Ok(error) => Called::of(&args.file).error(error).into(),
        Err(error) => error.context(format!("{file}: {}", dataset.path())),
    })
}

/// The dataset that a user names, and the slice behind the name. A name may have brackets itself.
fn named<'a>(wanted: &'a str, view: &View, log: &Log) -> Result<(Dataset, Option<&'a str>)> {
    let whole = log.object(wanted)?;
    if let Some(Object::Dataset(dataset)) = whole {
        return Ok((*dataset, None));
    }
    ensure!(whole.is_none(), "{wanted}: is no dataset{}", list(view));
    let split = wanted
        .strip_suffix(']')
        .and_then(|text| text.rsplit_once('['));
    let (name, part) = split.map_or((wanted, None), |(name, part)| (name, Some(part)));
    match log.object(name)? {
        Some(Object::Dataset(dataset)) => Ok((*dataset, part)),
        Some(_) => bail!("{name}: is no dataset{}", list(view)),
        None => {
            let found = objects::datasets(view).datasets;
            let names = found.iter().map(|(path, _)| path.trim_start_matches('/'));
            let meant = did_you_mean(name.trim_start_matches('/'), names);
            let others = if meant.is_empty() { list(view) } else { meant };
            bail!("there is no dataset {name}{others}")
        }
    }
}

/// The only dataset that can be drawn.
fn only(view: &View, log: &Log) -> Result<Dataset> {
    let found = objects::datasets(view);
    let datasets =
        found
            .datasets
            .iter()
            .filter_map(|(path, address)| match log.object_at(path, *address) {
                Ok(Object::Dataset(dataset)) if dataset.has_numbers() => Some(*dataset),
                _ => None,
            });
    let mut datasets: Vec<Dataset> = datasets.take(2).collect();
    match (datasets.pop(), datasets.is_empty()) {
        (Some(dataset), true) => Ok(dataset),
        (None, _) => bail!("there is no dataset of numbers"),
        (Some(_), false) => bail!("say which dataset to draw{}", list(view)),
    }
}

/// The names of the datasets, for a message.
fn list(view: &View) -> String {
    let found = objects::datasets(view).datasets;
    let names = found
        .iter()
        .take(MOST_NAMES)
        .map(|(path, _)| path.trim_start_matches('/'));
    let names: Vec<&str> = names.collect();
    if names.is_empty() {
        return "; there is none in the file".to_owned();
    }
    let more = found.len() - names.len();
    let more = if more > 0 {
        format!(" and {more} more")
    } else {
        String::new()
    };
    format!("; there are {}{more}", names.join(", "))
}
