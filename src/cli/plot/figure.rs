//! A figure: title, axes and colour bar around a picture, as shapes at their places in pixels.

use std::path::Path;

use crate::cli::output::plain;
use crate::cli::picture::line::Line;
use crate::cli::picture::ticks::{number, texts, ticks};
use crate::cli::picture::{Picture, PictureAxis, Scale};

/// Width of a figure.
pub const WIDTH: u32 = 960;
/// The most cells from top to bottom and from left to right.
pub const CELLS: (u64, u64) = (PLOT.3 as u64, PLOT.2 as u64);

/// Height of what is below the picture: axis and notes.
const BELOW: f64 = 100.0;

/// The place of the picture: left, top, width, height. An image leaves room for the colour bar.
const PLOT: (f64, f64, f64, f64) = (100.0, 70.0, 690.0, 470.0);
const LINE_WIDTH: f64 = 820.0;
/// The colour bar: its distance from the image, and its width.
const BAR: (f64, f64) = (24.0, 18.0);
const BAR_CELLS: usize = 64;
const TICK: f64 = 6.0;
/// Height of a letter.
const LETTER: f64 = 16.0;
/// Most letters of a title, and of the label of an axis.
const TITLE: usize = 84;
const LABEL: usize = 50;
/// Most ratio of the sides of an image, which is stretched beyond that.
const MOST_RATIO: f64 = 3.0;

/// A point in pixels from the left and from the top.
pub type Pixel = (f64, f64);

/// The part of a text that lies at its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Anchor {
    Start,
    Middle,
    End,
}

/// A part of a figure.
#[derive(Debug, Clone, PartialEq)]
pub enum Shape {
    /// A black line, one pixel wide.
    Stroke(Pixel, Pixel),
    /// A line of the data.
    Curve(Vec<Pixel>),
    /// A text, whose middle line is at this height. A vertical one reads from bottom to top.
    Text {
        at: Pixel,
        text: String,
        anchor: Anchor,
        is_vertical: bool,
        is_title: bool,
    },
    /// Cells, row by row, as places on the colour map.
    Cells {
        at: Pixel,
        size: Pixel,
        columns: usize,
        places: Vec<Option<f64>>,
    },
}

/// A picture with all around it.
pub struct Figure {
    /// Height in pixels. The width is [`WIDTH`].
    pub height: u32,
    pub shapes: Vec<Shape>,
    /// The title, for readers that see no picture.
    pub title: String,
}

impl Figure {
    /// The figure of a picture from a file. `scale`: ends of the colours, or of the vertical axis of a line.
    pub fn of(picture: &Picture, scale: Option<Scale>, file: &Path) -> Self {
        let name = format!("{}{}", picture.name, picture.part.as_deref().unwrap_or(""));
        let mut figure = Figure {
            height: 0,
            shapes: Vec::new(),
            title: cut(&name, TITLE),
        };
        let title = figure.title.clone();
        figure.text((PLOT.0, 24.0), &title, Anchor::Start, true);
        let file = file
            .file_name()
            .unwrap_or(file.as_os_str())
            .to_string_lossy();
        let under = match &picture.description {
            Some(description) => format!("{description}, {file}"),
            None => file.into_owned(),
        };
        figure.text((PLOT.0, 48.0), &cut(&under, TITLE), Anchor::Start, false);
        let bottom = match (&picture.axes[..], scale) {
            (_, None) => {
                figure.text(
                    (PLOT.0, 120.0),
                    "nothing to draw: there is no number",
                    Anchor::Start,
                    false,
                );
                PLOT.1
            }
            ([rows, columns], Some(scale)) => figure.image(picture, rows, columns, scale),
            ([axis], Some(scale)) => figure.line(picture, axis, scale),
            (_, Some(_)) => {
                let value = picture
                    .thinned
                    .cells
                    .first()
                    .map_or(f64::NAN, |cell| cell.mean);
                figure.text(
                    (PLOT.0, 120.0),
                    &value_text(value, picture),
                    Anchor::Start,
                    true,
                );
                PLOT.1
            }
        };
        figure.height = (bottom + BELOW).round() as u32;
        let notes = cut(&picture.notes().join("; "), TITLE);
        figure.text(
            (PLOT.0, bottom + BELOW - 16.0),
            &notes,
            Anchor::Start,
            false,
        );
        figure
    }

    fn text(&mut self, at: Pixel, text: &str, anchor: Anchor, is_title: bool) {
        self.shapes.push(Shape::Text {
            at,
            text: plain(text).into_owned(),
            anchor,
            is_vertical: false,
            is_title,
        });
    }

    /// Adds an image. Returns its lower end.
    fn image(
        &mut self,
        picture: &Picture,
        rows: &PictureAxis,
        columns: &PictureAxis,
        scale: Scale,
    ) -> f64 {
        let (left, top, width, height) = PLOT;
        let indices = |axis: &PictureAxis| axis.cells.len as f64;
        let ratio = (indices(columns) / indices(rows)).clamp(1.0 / MOST_RATIO, MOST_RATIO);
        let size = if ratio > width / height {
            (width, width / ratio)
        } else {
            (height * ratio, height)
        };
        let across = usize::try_from(columns.cells.cells()).unwrap_or(1).max(1);
        let places = picture.places(rows, across, scale);
        let is_upwards = rows.has_ascending_coordinates();
        let at = (left, top);
        self.shapes.push(Shape::Cells {
            at,
            size,
            columns: across,
            places,
        });
        self.frame(at, size);
        self.axis_across(
            columns,
            at,
            size,
            &|value| columns.place(value),
            columns.ends(),
        );
        let place = |value: f64| {
            if is_upwards {
                1.0 - rows.place(value)
            } else {
                rows.place(value)
            }
        };
        let ends = rows.ends();
        let is_index = rows.coordinates.is_none();
        self.axis_down(&rows.label(), ends, is_index, at, size, &place);
        self.colour_bar(picture, (left + size.0 + BAR.0, top), size.1, scale);
        top + size.1
    }

    fn colour_bar(&mut self, picture: &Picture, at: Pixel, height: f64, scale: Scale) {
        let size = (BAR.1, height);
        let last = (BAR_CELLS - 1) as f64;
        self.shapes.push(Shape::Cells {
            at,
            size,
            columns: 1,
            places: (0..BAR_CELLS)
                .map(|n| Some(1.0 - n as f64 / last))
                .collect(),
        });
        self.frame(at, size);
        let right = at.0 + BAR.1;
        let most = (height / (3.0 * LETTER)) as usize;
        let mut found = ticks(scale.least, scale.most, most.max(2), false);
        // The ends themselves are what a reader looks for.
        let near = |end: f64, tick: f64| {
            let distance = scale
                .place(tick)
                .zip(scale.place(end))
                .map(|(a, b)| (a - b).abs());
            distance.is_none_or(|distance| distance * height < LETTER)
        };
        found.retain(|tick| !near(scale.least, *tick) && !near(scale.most, *tick));
        found.insert(0, scale.least);
        if scale.least < scale.most {
            found.push(scale.most);
        }
        for (tick, text) in found.iter().zip(texts(&found)) {
            let y = at.1 + height * (1.0 - scale.place(*tick).unwrap_or(0.5));
            self.shapes
                .push(Shape::Stroke((right, y), (right + TICK, y)));
            self.text((right + TICK + 4.0, y), &text, Anchor::Start, false);
        }
        if let Some(units) = &picture.units {
            self.text((at.0, at.1 - 14.0), &cut(units, 18), Anchor::Start, false);
        }
    }

    /// Adds a line. Returns the lower end of its frame.
    fn line(&mut self, picture: &Picture, axis: &PictureAxis, scale: Scale) -> f64 {
        let (left, top, _, height) = PLOT;
        let (at, size) = ((left, top), (LINE_WIDTH, height));
        let scale = with_margin(scale);
        let line = Line::of(picture, scale);
        let pixel = |(x, y): &(f64, f64)| (left + x * size.0, top + (1.0 - y) * height);
        self.frame(at, size);
        for part in &line.parts {
            let curve = match part[..] {
                [point] => cross(pixel(&point)),
                _ => part.iter().map(pixel).collect(),
            };
            self.shapes.push(Shape::Curve(curve));
        }
        let along =
            |value: f64| crate::cli::picture::line::along(line.across, value).unwrap_or(0.5);
        self.axis_across(axis, at, size, &along, line.across);
        let label = picture.units.as_deref().unwrap_or("");
        let place = |value: f64| 1.0 - scale.place(value).unwrap_or(0.5);
        self.axis_down(label, (scale.least, scale.most), false, at, size, &place);
        top + height
    }

    fn frame(&mut self, (left, top): Pixel, (width, height): Pixel) {
        let (right, bottom) = (left + width, top + height);
        let corners = [
            (left, top),
            (right, top),
            (right, bottom),
            (left, bottom),
            (left, top),
        ];
        let sides = corners
            .windows(2)
            .map(|pair| Shape::Stroke(pair[0], pair[1]));
        self.shapes.extend(sides);
    }

    fn axis_across(
        &mut self,
        axis: &PictureAxis,
        (left, top): Pixel,
        (width, height): Pixel,
        place: &dyn Fn(f64) -> f64,
        (first, last): (f64, f64),
    ) {
        let bottom = top + height;
        let most = ((width / (6.0 * LETTER)) as usize).max(2);
        let found = ticks(first, last, most, axis.coordinates.is_none());
        for (tick, text) in found.iter().zip(texts(&found)) {
            let x = left + width * place(*tick);
            self.shapes
                .push(Shape::Stroke((x, bottom), (x, bottom + TICK)));
            self.text(
                (x, bottom + TICK + LETTER * 0.8),
                &text,
                Anchor::Middle,
                false,
            );
        }
        let label = cut(&axis.label(), LABEL);
        self.text(
            (left + width / 2.0, bottom + TICK + LETTER * 2.2),
            &label,
            Anchor::Middle,
            false,
        );
    }

    fn axis_down(
        &mut self,
        label: &str,
        (first, last): (f64, f64),
        is_index: bool,
        (left, top): Pixel,
        (_, height): Pixel,
        place: &dyn Fn(f64) -> f64,
    ) {
        let most = ((height / (3.0 * LETTER)) as usize).max(2);
        let found = ticks(first, last, most, is_index);
        for (tick, text) in found.iter().zip(texts(&found)) {
            let y = top + height * place(*tick);
            self.shapes.push(Shape::Stroke((left - TICK, y), (left, y)));
            self.text((left - TICK - 3.0, y), &text, Anchor::End, false);
        }
        self.shapes.push(Shape::Text {
            at: (14.0, top + height / 2.0),
            text: plain(&cut(label, LABEL)).into_owned(),
            anchor: Anchor::Middle,
            is_vertical: true,
            is_title: false,
        });
    }
}

/// A point between blank ones, as a line that the eye finds.
fn cross((x, y): Pixel) -> Vec<Pixel> {
    const ARM: f64 = 3.0;
    vec![
        (x - ARM, y),
        (x + ARM, y),
        (x, y),
        (x, y - ARM),
        (x, y + ARM),
    ]
}

/// A single value with its units.
pub fn value_text(value: f64, picture: &Picture) -> String {
    let units = picture
        .units
        .as_deref()
        .map_or(String::new(), |units| format!(" {units}"));
    format!("{}{units}", number(value))
}

/// The scale with some room at both ends, for a line.
pub fn with_margin(scale: Scale) -> Scale {
    let margin = (scale.most / 2.0 - scale.least / 2.0) / 10.0;
    let margin = if margin > 0.0 {
        margin
    } else {
        (scale.most.abs() / 10.0).max(0.5)
    };
    Scale {
        least: (scale.least - margin).max(f64::MIN),
        most: (scale.most + margin).min(f64::MAX),
    }
}

/// The text, without its end if it is long.
fn cut(text: &str, longest: usize) -> String {
    if text.chars().count() <= longest {
        return text.to_owned();
    }
    text.chars()
        .take(longest - 3)
        .chain("...".chars())
        .collect()
}
