//! Pictures of the data: for each dataset an image or a line, with what its axes and colours mean. Reads are bounded, for one
//! dataset and for all; one that cannot be shown has its reason in its place.

use std::cmp::Reverse;
use std::fmt::Write;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::MANY_DATASETS;
use super::words::{Grouped, Text};
use crate::cli::picture::line::Line;
use crate::cli::picture::ticks::{ends, number};
use crate::cli::picture::{Picture, PictureAxis, Pictures, Scale, png};
use h5logfs_arrays::objects::Layout;
use h5logfs_arrays::thinned::Limits;
use h5logfs_arrays::{Dataset, Log, Object, scales};

/// Most bytes that are read and decoded for all pictures of a page, and for each of a few.
const BYTES: u64 = 256 << 20;
const BYTES_OF_ONE: u64 = 32 << 20;
const FEWEST_BYTES: u64 = 8 << 20;
/// Most time for all pictures, and for one.
const TIME: Duration = Duration::from_secs(10);
const TIME_OF_ONE: Duration = Duration::from_secs(2);
/// Most cells of all images, of one, and the fewest.
const CELLS: u64 = 140_000;
const CELLS_OF_ONE: u64 = 160 * 96;
const FEWEST_CELLS: u64 = 24 * 14;
/// An image with fewer cells stands behind the others.
const FEW_CELLS: usize = 16;
/// Most points of all lines, and of one.
const POINTS: u64 = 20_000;
const POINTS_OF_ONE: u64 = 240;
const FEWEST_POINTS: u64 = 40;
/// Most datasets with pictures, and of a page that has little room for each.
const MOST: usize = 400;
const MOST_OF_MANY: usize = 100;
/// Why a dataset has no picture that could have one.
const NOT_DRAWN: &str = "the page has pictures of other datasets; `h5logfs plot` draws this one";
/// The plane in which a line is drawn.
const LINE: (f64, f64) = (480.0, 160.0);

/// What is left for further pictures.
pub struct Allowance {
    /// Number of datasets that share it.
    datasets: u64,
    bytes: u64,
    until: Instant,
    pictures: usize,
}

/// The data of a dataset on a page.
pub enum Data {
    Picture(Box<Picture>),
    /// Why there is no picture.
    None(String),
}

impl Allowance {
    /// The allowance of one of `files` files, which has so many datasets.
    pub fn new(datasets: usize, files: usize) -> Self {
        let files = files.max(1);
        let most = if datasets > MANY_DATASETS {
            MOST_OF_MANY
        } else {
            MOST
        };
        let parts = u32::try_from(files).unwrap_or(u32::MAX);
        Allowance {
            datasets: (datasets.min(most) * files).max(1) as u64,
            bytes: (BYTES / files as u64).max(FEWEST_BYTES),
            until: Instant::now() + TIME / parts,
            pictures: (most / files).max(1),
        }
    }

    /// The data of the dataset at an address.
    pub fn data(
        &mut self,
        log: &Log,
        pictures: &mut Pictures<'_>,
        path: &str,
        address: u64,
    ) -> Data {
        if self.pictures == 0 {
            return Data::None(NOT_DRAWN.to_owned());
        }
        let dataset = match log.object_at(path, address) {
            Ok(Object::Dataset(dataset)) => dataset,
            Ok(_) => return Data::None("it is no dataset".to_owned()),
            Err(error) => return Data::None(error.to_string()),
        };
        match self.picture(pictures, &dataset) {
            Ok(Ok(picture)) => Data::Picture(Box::new(picture)),
            Ok(Err(reason)) => Data::None(reason.to_owned()),
            Err(error) => Data::None(error.to_string()),
        }
    }

    fn picture(
        &mut self,
        pictures: &mut Pictures<'_>,
        dataset: &Dataset,
    ) -> Result<Result<Picture, &'static str>> {
        if scales::is_bare_dimension(dataset).unwrap_or(false) {
            return Ok(Err("a dimension without coordinates"));
        }
        if !dataset.has_numbers() {
            return Ok(Err("its elements are not real numbers"));
        }
        // A page of root shows nothing that another file has.
        if matches!(dataset.info().layout, Layout::Virtual(_)) {
            return Ok(Err(
                "its elements are in other datasets; `h5logfs plot` draws it",
            ));
        }
        let now = Instant::now();
        if self.bytes < FEWEST_BYTES || now >= self.until {
            return Ok(Err(NOT_DRAWN));
        }
        self.pictures -= 1;
        let bytes = (BYTES / self.datasets).clamp(FEWEST_BYTES, BYTES_OF_ONE);
        let limits = |rows: u64, columns: u64| Limits {
            bytes,
            until: Some(self.until.min(now + TIME_OF_ONE)),
            ..self.cells(rows, columns)
        };
        let picture = pictures.picture(dataset, None, limits)?;
        self.bytes = self.bytes.saturating_sub(picture.thinned.bytes);
        Ok(Ok(picture))
    }

    /// The most cells of a picture with so many indices: as many in all as allowed, and about as wide as the dataset.
    fn cells(&self, rows: u64, columns: u64) -> Limits {
        let most = (CELLS / self.datasets).clamp(FEWEST_CELLS, CELLS_OF_ONE) as f64;
        let ratio = (columns as f64 / rows as f64).clamp(0.5, 4.0);
        let high = (most / ratio).sqrt().max(1.0);
        let points = (POINTS / self.datasets).clamp(FEWEST_POINTS, POINTS_OF_ONE);
        Limits {
            rows: high as u64,
            columns: if rows > 1 {
                (most / high) as u64
            } else {
                points
            },
            bytes: 0,
            until: None,
        }
    }
}

/// The figure of a dataset. `link`: the place of its details. `is_terse`: in fewer bytes.
pub fn figure(picture: &Picture, link: Option<&str>, is_terse: bool) -> Result<String> {
    let mut html = String::from("<figure class=\"card\">");
    let name = Text(&picture.name);
    match link {
        Some(link) => write!(html, "<figcaption><a href=\"#{link}\">{name}</a>")?,
        None => write!(html, "<figcaption>{name}")?,
    }
    if let Some(part) = &picture.part {
        write!(html, " <span class=\"soft\">{}</span>", Text(part))?;
    }
    if let Some(description) = &picture.description {
        write!(
            html,
            "<br><span class=\"soft\">{}</span>",
            Text(description)
        )?;
    }
    html.push_str("</figcaption>");
    match (&picture.axes[..], picture.scale()) {
        (_, None) => html.push_str("<p>No number is in it.</p>"),
        ([rows, columns], Some(scale)) => {
            let colours = if is_terse {
                png::FEW_COLOURS
            } else {
                png::MANY_COLOURS
            };
            image(picture, (rows, columns), (scale, colours), &mut html)?;
        }
        ([axis], Some(scale)) => line(picture, axis, scale, &mut html)?,
        (_, Some(scale)) => write!(
            html,
            "<p class=\"value\">{}{}</p>",
            number(scale.least),
            units(picture)
        )?,
    }
    let notes = picture.notes();
    if !notes.is_empty() {
        write!(html, "<p class=\"soft\">{}</p>", Text(&notes.join("; ")))?;
    }
    html.push_str("</figure>\n");
    Ok(html)
}

fn units(picture: &Picture) -> String {
    let units = picture.units.as_deref();
    units.map_or_else(String::new, |units| format!(" {}", Text(units)))
}

fn image(
    picture: &Picture,
    (rows, columns): (&PictureAxis, &PictureAxis),
    (scale, colours): (Scale, u8),
    html: &mut String,
) -> Result<()> {
    let across = usize::try_from(columns.cells.cells())?.max(1);
    let down = u32::try_from(rows.cells.cells())?;
    let places = picture.places(rows, across, scale);
    let (mut first, mut last) = rows.ends();
    if rows.has_ascending_coordinates() {
        (first, last) = (last, first);
    }
    let image = png::of_cells(u32::try_from(across)?, down, &places, colours)?;
    let ratio = (columns.cells.len as f64 / rows.cells.len as f64).clamp(0.5, 4.0);
    write!(
        html,
        "<div class=\"frame\"><div class=\"y\"><span>{}</span><span class=\"what\">{}</span><span>{}</span></div>\
         <img class=\"data\" alt=\"{}\" style=\"aspect-ratio:{ratio:.2}\" src=\"data:image/png;base64,{}\">",
        number(first),
        Text(&rows.name()),
        number(last),
        Text(&description(picture, scale)),
        png::base64(&image)
    )?;
    axis_across(columns, columns.ends(), html)?;
    let (least, most) = ends(scale.least, scale.most);
    write!(
        html,
        "</div><div class=\"ramp\"><span>{least}</span><i></i><span>{most}{}</span></div>",
        units(picture)
    )?;
    Ok(())
}

fn line(picture: &Picture, axis: &PictureAxis, scale: Scale, html: &mut String) -> Result<()> {
    let line = Line::of(picture, scale);
    let (least, most) = ends(scale.least, scale.most);
    write!(
        html,
        "<div class=\"frame\"><div class=\"y\"><span>{most}</span><span>{least}</span></div>\
         <svg class=\"line\" viewBox=\"0 -4 {} {}\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"{}\"><path d=\"",
        LINE.0,
        LINE.1 + 8.0,
        Text(&description(picture, scale)),
    )?;
    for part in &line.parts {
        path(part, html)?;
    }
    html.push_str("\"/></svg>");
    axis_across(axis, line.across, html)?;
    html.push_str("</div>");
    if picture.units.is_some() {
        write!(
            html,
            "<p class=\"soft\">{}</p>",
            units(picture).trim_start()
        )?;
    }
    Ok(())
}

/// Adds connected points, each by its distance from the one before, which takes the fewest letters.
fn path(points: &[(f64, f64)], html: &mut String) -> Result<()> {
    let pixel = |(x, y): &(f64, f64)| {
        (
            (x * LINE.0).round() as i64,
            ((1.0 - y) * LINE.1).round() as i64,
        )
    };
    let mut points = points.iter().map(pixel);
    let Some((mut x, mut y)) = points.next() else {
        return Ok(());
    };
    if points.len() == 0 {
        // The eye does not find a dot.
        write!(html, "M{} {y}h6", x - 3)?;
        return Ok(());
    }
    write!(html, "M{x} {y}")?;
    for (to_x, to_y) in points {
        write!(html, "l{} {}", to_x - x, to_y - y)?;
        (x, y) = (to_x, to_y);
    }
    Ok(())
}

fn axis_across(axis: &PictureAxis, (first, last): (f64, f64), html: &mut String) -> Result<()> {
    write!(
        html,
        "<div class=\"x\"><span>{}</span><span>{}</span><span>{}</span></div>",
        number(first),
        Text(&axis.label()),
        number(last)
    )?;
    Ok(())
}

/// Where a picture stands in the gallery: images before lines before single numbers, and behind them what has few elements
/// and coordinates.
pub fn order(picture: &Picture) -> impl Ord {
    let own = picture.name.rsplit('/').next();
    let is_scale = picture.axes.iter().any(|axis| axis.name.as_deref() == own);
    let is_small = picture.axes.len() > 1 && picture.thinned.cells.len() < FEW_CELLS;
    (is_scale, is_small, Reverse(picture.axes.len()))
}

/// The picture in words, for readers who do not see it.
fn description(picture: &Picture, scale: Scale) -> String {
    let units = picture
        .units
        .as_ref()
        .map_or_else(String::new, |units| format!(" {units}"));
    let axes = picture
        .axes
        .iter()
        .map(|axis| format!("{} {}", Grouped(axis.cells.len), axis.label()));
    let (least, most) = ends(scale.least, scale.most);
    format!(
        "{}{}, {}: from {least} to {most}{units}",
        picture.name,
        picture.part.as_deref().unwrap_or(""),
        axes.collect::<Vec<_>>().join(" by "),
    )
}
