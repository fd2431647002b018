//! A picture as characters: half blocks in colours, or plain characters.

use std::env;
use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};

use rustix::termios::tcgetwinsize;

use super::canvas::Canvas;
use super::figure::{value_text, with_margin};
use crate::cli::colour::Depth;
use crate::cli::output::plain;
use crate::cli::picture::colours::colour;
use crate::cli::picture::line::{Line, along};
use crate::cli::picture::ticks::{ends, texts, ticks};
use crate::cli::picture::{Picture, PictureAxis, Scale};

/// Columns and rows where standard output is no terminal.
const USUAL: (usize, usize) = (80, 24);
/// Fewest columns and rows of a picture, and the most, which bound the work.
const FEWEST: usize = 8;
const MOST: usize = 1000;
/// Columns of the labels on the left.
const MARGIN: usize = 10;
/// Rows of title, axes, colour bar, and of the next prompt.
const AROUND: usize = 7;
/// Most ratio of the sides of an image, which is stretched beyond that.
const MOST_RATIO: f64 = 2.5;
/// Plain characters for equal parts of the scale.
const SHADES: [char; 9] = ['.', ':', '-', '=', '+', '*', '#', '%', '@'];
/// Most columns of the colour bar.
const BAR: usize = 32;
const RESET: &str = "\x1b[0m";

/// What standard output can show.
pub struct Terminal {
    columns: usize,
    rows: usize,
    /// `None` for plain characters.
    colours: Option<Depth>,
}

impl Terminal {
    pub fn of_stdout() -> Self {
        let size = tcgetwinsize(io::stdout()).ok();
        let size = size.map(|size| (size.ws_col.into(), size.ws_row.into()));
        let given = || {
            let columns = env::var("COLUMNS").ok()?.parse().ok()?;
            Some((columns, USUAL.1))
        };
        let known = size.filter(|(columns, rows)| *columns > 0 && *rows > 0);
        let (columns, rows) = known.or_else(given).unwrap_or(USUAL);
        Terminal {
            columns: columns.clamp(MARGIN + FEWEST, MOST),
            rows: rows.clamp(AROUND + FEWEST, MOST),
            colours: Depth::of(io::stdout().is_terminal()).filter(|_| has_unicode()),
        }
    }

    /// Number of cells in a character, from top to bottom.
    fn halves(&self) -> usize {
        if self.colours.is_some() { 2 } else { 1 }
    }

    /// Size of an image in characters, and so the most cells, for so many indices.
    fn size(&self, rows: u64, columns: u64) -> (usize, usize) {
        let (width, height) = (self.columns - MARGIN - 1, self.rows - AROUND);
        let ratio = (columns as f64 / rows as f64).clamp(1.0 / MOST_RATIO, MOST_RATIO);
        // A character is twice as high as wide.
        let high = (width as f64 / ratio / 2.0) as usize;
        if high <= height {
            return (high.max(FEWEST / 2), width);
        }
        let wide = (height as f64 * 2.0 * ratio) as usize;
        (height, wide.clamp(FEWEST, width))
    }

    /// The most cells of an image from top to bottom and from left to right, for so many indices.
    pub fn cells(&self, rows: u64, columns: u64) -> (u64, u64) {
        if rows <= 1 {
            // Two dots for each column.
            return (1, 2 * (self.columns - MARGIN - 1) as u64);
        }
        let (high, wide) = self.size(rows, columns);
        ((high * self.halves()) as u64, wide as u64)
    }

    /// Prints a picture.
    pub fn print(&self, picture: &Picture, scale: Option<Scale>) -> io::Result<()> {
        let mut text = String::new();
        let name = format!("{}{}", picture.name, picture.part.as_deref().unwrap_or(""));
        let units = picture.units.as_ref().map(|units| format!(" ({units})"));
        let _ = writeln!(
            text,
            "{}{}{}",
            plain(&name),
            plain(
                &picture
                    .description
                    .as_ref()
                    .map_or(String::new(), |d| format!(": {d}"))
            ),
            plain(units.as_deref().unwrap_or(""))
        );
        match (&picture.axes[..], scale) {
            (_, None) => text.push_str("nothing to draw: there is no number\n"),
            ([rows, columns], Some(scale)) => {
                self.image(picture, (rows, columns), scale, &mut text)
            }
            ([axis], Some(scale)) => self.line(picture, axis, scale, &mut text),
            (_, Some(_)) => {
                let value = picture
                    .thinned
                    .cells
                    .first()
                    .map_or(f64::NAN, |cell| cell.mean);
                let _ = writeln!(text, "{}", plain(&value_text(value, picture)));
            }
        }
        let notes = picture.notes();
        if !notes.is_empty() {
            let _ = writeln!(text, "{}", notes.join("; "));
        }
        let mut out = io::stdout().lock();
        out.write_all(text.as_bytes())?;
        out.flush()
    }

    fn image(
        &self,
        picture: &Picture,
        (rows, columns): (&PictureAxis, &PictureAxis),
        scale: Scale,
        text: &mut String,
    ) {
        let (high, wide) = self.size(rows.cells.len, columns.cells.len);
        let down = count(rows);
        let across = count(columns);
        let is_upwards = rows.has_ascending_coordinates();
        let shades = high * self.halves();
        let place = |row: usize, column: usize| {
            let row = row * down / shades;
            let row = if is_upwards { down - 1 - row } else { row };
            let cell = picture
                .thinned
                .cells
                .get(row * across + column * across / wide)?;
            scale.place(cell.mean)
        };
        let downwards = |value: f64| {
            if is_upwards {
                1.0 - rows.place(value)
            } else {
                rows.place(value)
            }
        };
        let labels = labels(rows.ends(), rows.coordinates.is_none(), high, &downwards);
        let _ = writeln!(text, "{}", plain(&rows.label()));
        for (row, label) in labels.iter().enumerate() {
            let _ = write!(text, "{label:>MARGIN$} ");
            match self.colours {
                Some(colours) => half_blocks(
                    colours,
                    wide,
                    |half, column| place(2 * row + half, column),
                    text,
                ),
                None => text.extend((0..wide).map(|column| place(row, column).map_or(' ', shade))),
            }
            text.truncate(text.trim_end_matches(' ').len());
            text.push('\n');
        }
        self.axis_across(
            columns,
            wide,
            columns.ends(),
            &|value| columns.place(value),
            text,
        );
        self.colour_bar(picture, scale, text);
    }

    /// Adds a line with the ends of the scale, and its colours between them.
    fn colour_bar(&self, picture: &Picture, scale: Scale, text: &mut String) {
        let wide = BAR.min(self.columns / 2);
        let last = (wide - 1) as f64;
        let place = |column: usize| Some(column as f64 / last);
        let (least, most) = ends(scale.least, scale.most);
        let _ = write!(text, "{least} ");
        match self.colours {
            Some(colours) => half_blocks(colours, wide, |_, column| place(column), text),
            None => text.extend(SHADES),
        }
        let units = picture.units.as_deref().unwrap_or("");
        let end = format!(" {most} {units}");
        let _ = writeln!(text, "{}", plain(&end).trim_end());
    }

    fn line(&self, picture: &Picture, axis: &PictureAxis, scale: Scale, text: &mut String) {
        let wide = self.columns - MARGIN - 1;
        let high = (self.rows - AROUND).min(wide / 3).max(FEWEST / 2);
        let scale = with_margin(scale);
        let line = Line::of(picture, scale);
        let mut canvas = Canvas::new(wide, high);
        for part in &line.parts {
            if let [point] = part[..] {
                canvas.line(point, point);
            }
            part.windows(2)
                .for_each(|pair| canvas.line(pair[0], pair[1]));
        }
        let place = |value: f64| 1.0 - scale.place(value).unwrap_or(0.5);
        let labels = labels((scale.least, scale.most), false, high, &place);
        let bar = if self.colours.is_some() { '┤' } else { '|' };
        for (row, label) in canvas.rows(self.colours.is_none()).zip(&labels) {
            let row = row.trim_end();
            let row = match self.colours {
                Some(colours) if !row.is_empty() => {
                    format!("{}{row}{RESET}", colours.foreground(colour(0.5)))
                }
                _ => row.to_owned(),
            };
            let _ = writeln!(text, "{label:>MARGIN$}{bar}{row}");
        }
        let across = |value: f64| along(line.across, value).unwrap_or(0.5);
        self.axis_across(axis, wide, line.across, &across, text);
        let units = picture.units.as_deref().unwrap_or("");
        if let Some(scale) = picture.scale() {
            let (least, most) = ends(scale.least, scale.most);
            let line = format!("{least} to {most} {units}");
            let _ = writeln!(text, "{}", plain(&line).trim_end());
        }
    }

    /// Adds a line of numbers below the picture, and one with the name of the axis.
    fn axis_across(
        &self,
        axis: &PictureAxis,
        wide: usize,
        (first, last): (f64, f64),
        place: &dyn Fn(f64) -> f64,
        text: &mut String,
    ) {
        let found = ticks(first, last, (wide / 12).max(2), axis.coordinates.is_none());
        let mut line = String::new();
        let mut placed: Vec<(usize, String)> = found
            .iter()
            .zip(texts(&found))
            .map(|(tick, label)| {
                let middle = MARGIN + 1 + (place(*tick) * wide as f64) as usize;
                (middle.saturating_sub(label.len() / 2), label)
            })
            .collect();
        placed.sort();
        for (at, label) in placed {
            let gap = at.saturating_sub(line.len());
            // A label that would touch the one before is left out.
            if (gap > 0 || line.is_empty()) && at + label.len() <= self.columns {
                line.extend(std::iter::repeat_n(' ', gap));
                line.push_str(&label);
            }
        }
        let _ = writeln!(text, "{line}");
        let label = axis.label();
        let before = MARGIN + 1 + wide.saturating_sub(label.chars().count()) / 2;
        let _ = writeln!(text, "{:before$}{}", "", plain(&label));
    }
}

fn count(axis: &PictureAxis) -> usize {
    usize::try_from(axis.cells.cells()).unwrap_or(1).max(1)
}

/// The labels of a vertical axis, one for each row of characters; most are empty.
fn labels(
    (first, last): (f64, f64),
    is_index: bool,
    high: usize,
    place: &dyn Fn(f64) -> f64,
) -> Vec<String> {
    let mut labels = vec![String::new(); high];
    let found = ticks(first, last, (high / 3).max(2), is_index);
    for (tick, text) in found.iter().zip(texts(&found)) {
        let row = (place(*tick) * high as f64) as usize;
        if let Some(label) = labels.get_mut(row.min(high - 1)) {
            *label = text;
        }
    }
    labels
}

/// Adds a row of characters with two cells each. `place`: where the upper (0) or lower (1) cell of a column lies on the map.
fn half_blocks(
    colours: Depth,
    wide: usize,
    place: impl Fn(usize, usize) -> Option<f64>,
    text: &mut String,
) {
    let mut before = None;
    for column in 0..wide {
        let [upper, lower] = [0, 1].map(|half| place(half, column).map(colour));
        let (block, front, back) = match (upper, lower) {
            (Some(upper), lower) => ('▀', Some(upper), lower),
            (None, Some(lower)) => ('▄', Some(lower), None),
            (None, None) => (' ', None, None),
        };
        if before != Some((front, back)) {
            text.push_str(RESET);
            text.extend(front.map(|colour| colours.foreground(colour)));
            text.extend(back.map(|colour| colours.background(colour)));
            before = Some((front, back));
        }
        text.push(block);
    }
    text.push_str(RESET);
}

/// The plain character for a place on the scale.
fn shade(place: f64) -> char {
    let number = (place * SHADES.len() as f64) as usize;
    SHADES[number.min(SHADES.len() - 1)]
}

/// Whether the locale has characters beyond ASCII.
fn has_unicode() -> bool {
    let given = ["LC_ALL", "LC_CTYPE", "LANG"]
        .iter()
        .filter_map(|name| env::var(name).ok());
    let locale = given.into_iter().find(|value| !value.is_empty());
    locale.is_some_and(|locale| {
        let locale = locale.to_lowercase();
        locale.contains("utf-8") || locale.contains("utf8")
    })
}
