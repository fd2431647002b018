//! Pictures as SVG. Each cell is one unit wide and high; a browser scales the picture to the width of the page. All cells of
//! one class form one path, in which neighbours in a row form one rectangle.

use std::fmt::Write;

use h5logfs_log::origins::Timeline;
use h5logfs_view::coverage::{Cell, CoverageMap};

/// Number of steps of the colour ramp.
pub const STEPS: usize = 10;
/// Step of lost elements, behind those of the ramp.
pub const LOST: usize = STEPS + 1;

/// A class of cells with the same colour.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Class {
    /// Step of the ramp, from 0 to [`STEPS`], or [`LOST`]; `None` for the colour of what is not known.
    pub step: Option<usize>,
    /// Text of the legend.
    pub label: String,
}

/// The meaning of the colours in a picture of a dataset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Colouring {
    /// Written share of a cell.
    Written,
    /// Number of times that the elements of a cell were written.
    Times,
    /// The last rank that wrote to a cell.
    Rank,
    /// The flush of the last write.
    Flush,
}

impl Colouring {
    pub fn name(self) -> &'static str {
        match self {
            Colouring::Written => "written",
            Colouring::Times => "times",
            Colouring::Rank => "rank",
            Colouring::Flush => "flush",
        }
    }

    pub fn title(self) -> &'static str {
        match self {
            Colouring::Written => "Share written",
            Colouring::Times => "How often",
            Colouring::Rank => "Last rank",
            Colouring::Flush => "Last flush",
        }
    }
}

/// The scale of the colours of a map.
pub struct Scale {
    colouring: Colouring,
    /// Least and largest number of a rank or flush.
    ends: (u64, u64),
}

/// Upper ends of the classes for the number of writes, in tenths.
const TIMES: [u128; 8] = [10, 15, 20, 30, 50, 100, 200, 500];

impl Scale {
    /// The scale of a map; `None` if all cells would be alike, or if the log lacks the information.
    pub fn of(map: &CoverageMap, colouring: Colouring) -> Option<Self> {
        let number = |cell: &Cell| match colouring {
            Colouring::Rank => cell.rank.map(u64::from),
            Colouring::Flush => cell.flush,
            Colouring::Written | Colouring::Times => Some(0),
        };
        let numbers = map
            .cells
            .iter()
            .filter(|cell| cell.logged.max(cell.written) > 0)
            .filter_map(number);
        let ends = numbers.fold(None, |ends: Option<(u64, u64)>, n| {
            let (least, most) = ends.unwrap_or((n, n));
            Some((least.min(n), most.max(n)))
        })?;
        let differs = match colouring {
            Colouring::Written => true,
            Colouring::Times => {
                let is_hidden = |cell: &Cell| cell.logged > cell.written + cell.lost;
                map.cells.iter().any(is_hidden)
            }
            Colouring::Rank | Colouring::Flush => ends.0 < ends.1,
        };
        differs.then_some(Scale { colouring, ends })
    }

    /// The class of a cell; `None` for an unwritten one.
    pub fn class(&self, cell: &Cell) -> Option<Class> {
        match self.colouring {
            Colouring::Written if cell.lost > 0 => Some(lost_class()),
            Colouring::Written => written_class(cell.written, cell.elements),
            Colouring::Times => times_class(cell),
            Colouring::Rank => self.number_class(cell, cell.rank.map(u64::from), "rank"),
            Colouring::Flush => self.number_class(cell, cell.flush, "flush"),
        }
    }

    /// The class of a rank or flush. There are at most as many classes as steps.
    fn number_class(&self, cell: &Cell, number: Option<u64>, what: &str) -> Option<Class> {
        if cell.logged == 0 {
            return None;
        }
        let Some(number) = number else {
            let label = format!("{what} not known");
            return Some(Class { step: None, label });
        };
        let (least, most) = self.ends;
        let all = (most - least).saturating_add(1);
        let each = all.div_ceil(STEPS as u64 + 1);
        let class = (number - least) / each;
        let classes = all.div_ceil(each);
        let first = least + class * each;
        let last = (first + (each - 1)).min(most);
        // The existing classes use the whole ramp.
        let step = match classes {
            0 | 1 => STEPS,
            several => class as usize * STEPS / (several as usize - 1),
        };
        Some(Class {
            step: Some(step),
            label: if first == last {
                format!("{what} {first}")
            } else {
                format!("{what}s {first} to {last}")
            },
        })
    }
}

/// The class of elements of which some are lost.
fn lost_class() -> Class {
    Class {
        step: Some(LOST),
        label: "lost, all or in part".to_owned(),
    }
}

/// The class of a written share. Nothing and all have their own steps.
pub fn written_class(written: u64, elements: u64) -> Option<Class> {
    if written == 0 {
        return None;
    }
    let step = match elements {
        all if written >= all => STEPS,
        all => (u128::from(written) * STEPS as u128 / u128::from(all)) as usize,
    };
    let label = match step {
        STEPS => "all written".to_owned(),
        step => format!("{} to {} % written", step * 10, step * 10 + 10),
    };
    Some(Class {
        step: Some(step),
        label,
    })
}

fn times_class(cell: &Cell) -> Option<Class> {
    let written = cell.written.saturating_add(cell.lost);
    if cell.logged == 0 || written == 0 {
        return None;
    }
    let tenths = (u128::from(cell.logged) * 10).div_ceil(written.into());
    let class = TIMES.partition_point(|end| *end < tenths);
    let text = |tenths: u128| match tenths % 10 {
        0 => format!("{}", tenths / 10),
        part => format!("{}.{part}", tenths / 10),
    };
    let label = match class {
        0 => "once".to_owned(),
        8 => format!("more than {} times", text(TIMES[7])),
        n => format!("{} to {} times", text(TIMES[n - 1]), text(TIMES[n])),
    };
    let step = class * STEPS / TIMES.len();
    Some(Class {
        step: Some(step),
        label,
    })
}

/// Rectangles of cells by class, and their legend.
struct Paths {
    /// Class, whether it is an estimate, and path.
    paths: Vec<(Class, bool, String)>,
}

impl Paths {
    fn new() -> Self {
        Paths { paths: Vec::new() }
    }

    fn add(&mut self, class: Class, is_estimate: bool, x: usize, y: usize, width: usize) {
        let known = |path: &&mut (Class, bool, String)| path.0 == class && path.1 == is_estimate;
        if self.paths.iter_mut().find(known).is_none() {
            self.paths.push((class.clone(), is_estimate, String::new()));
        }
        if let Some((_, _, path)) = self.paths.iter_mut().find(known) {
            let _ = write!(path, "M{x} {y}h{width}v1h-{width}z");
        }
    }

    fn finish(mut self) -> String {
        self.paths
            .sort_by_key(|(class, is_estimate, _)| (class.step, *is_estimate));
        let mut svg = String::new();
        for (class, is_estimate, path) in &self.paths {
            let _ = write!(
                svg,
                "<path class=\"{}{}\" d=\"{path}\"><title>{}{}</title></path>",
                class_name(class),
                if *is_estimate { " est" } else { "" },
                class.label,
                if *is_estimate { ", estimated" } else { "" },
            );
        }
        svg
    }
}

/// The name of a class in the style sheet.
pub fn class_name(class: &Class) -> String {
    match class.step {
        Some(LOST) => "cl".to_owned(),
        Some(step) => format!("c{step}"),
        None => "cx".to_owned(),
    }
}

/// Draws cells in rows. `class`: the class of the cell in a column and a row, and whether it is an estimate.
fn cells(
    columns: usize,
    rows: usize,
    class: impl Fn(usize, usize) -> Option<(Class, bool)>,
) -> String {
    let mut paths = Paths::new();
    for y in 0..rows {
        let mut x = 0;
        while x < columns {
            let own = class(x, y);
            let alike = (x + 1..columns).take_while(|x| class(*x, y) == own).count() + 1;
            if let Some((class, is_estimate)) = own {
                paths.add(class, is_estimate, x, y, alike);
            }
            x += alike;
        }
    }
    paths.finish()
}

/// The map of a dataset with a colouring.
pub fn map(map: &CoverageMap, scale: &Scale, label: &str) -> String {
    let (columns, rows) = (map.grid.columns(), map.grid.rows());
    let class = |x: usize, y: usize| {
        let cell = &map.cells[y * columns + x];
        Some((scale.class(cell)?, cell.is_estimate))
    };
    open("map", columns, rows, label) + &cells(columns, rows, class) + "</svg>"
}

/// The classes in a map, in the order of the ramp.
pub fn legend(map: &CoverageMap, scale: &Scale) -> Vec<Class> {
    let mut classes: Vec<Class> = Vec::new();
    for class in map.cells.iter().filter_map(|cell| scale.class(cell)) {
        if !classes.contains(&class) {
            classes.push(class);
        }
    }
    classes.sort_by_key(|class| class.step);
    classes
}

/// Number of columns of the small picture in a table.
const SMALL: usize = 40;

/// A small picture for one line of a table: the written share along the first dimension of the map, from left to right.
pub fn small(map: &CoverageMap, label: &str) -> String {
    let (columns, rows) = (map.grid.columns(), map.grid.rows());
    // A single row is shown by its columns, several rows by themselves.
    let parts = if rows > 1 { rows } else { columns };
    let shown = parts.clamp(1, SMALL);
    let mut sums = vec![(0u128, 0u128); shown];
    let mut are_lost = vec![false; shown];
    for (number, cell) in map.cells.iter().enumerate() {
        let part = if rows > 1 { number / columns } else { number };
        let sum = &mut sums[part * shown / parts];
        sum.0 += u128::from(cell.written);
        sum.1 += u128::from(cell.elements);
        are_lost[part * shown / parts] |= cell.lost > 0;
    }
    let class = |x: usize, _: usize| {
        if are_lost[x] {
            return Some((lost_class(), false));
        }
        let (written, all) = sums[x];
        // Only the ratio matters.
        let shift = 128 - (written | all).leading_zeros().min(64) - 64;
        let class = written_class((written >> shift) as u64, (all >> shift) as u64)?;
        Some((class, false))
    };
    open("small", shown, 1, label) + &cells(shown, 1, class) + "</svg>"
}

/// A picture of bytes: ranks from top to bottom, flushes from left to right.
pub fn timeline(timeline: &Timeline, label: &str) -> String {
    let (columns, rows) = (timeline.flushes.len(), timeline.ranks.len());
    let most = timeline.bytes.iter().copied().max().unwrap_or(0).max(1);
    let class = |x: usize, y: usize| {
        let bytes = timeline.bytes[y * columns + x];
        let step = (u128::from(bytes) * STEPS as u128).div_ceil(most.into()) as usize;
        let label = match step {
            0 => return None,
            step => format!("{} to {} % of the most", step * 10 - 10, step * 10),
        };
        let step = Some(step);
        Some((Class { step, label }, false))
    };
    open("map", columns, rows, label) + &cells(columns, rows, class) + "</svg>"
}

/// Vertical bars, each with its own text.
pub fn bars(values: &[u64], texts: impl Fn(usize) -> String, label: &str) -> String {
    const HIGH: f64 = 100.0;
    let most = values.iter().copied().max().unwrap_or(0).max(1) as f64;
    let mut svg = open("bars", values.len(), HIGH as usize, label);
    for (x, value) in values.iter().enumerate().filter(|(_, value)| **value > 0) {
        let high = (*value as f64 / most * HIGH).max(1.0);
        let _ = write!(
            svg,
            "<rect x=\"{x}.05\" y=\"{:.1}\" width=\".9\" height=\"{high:.1}\"><title>{}</title></rect>",
            HIGH - high,
            texts(x),
        );
    }
    svg + "</svg>"
}

/// A horizontal bar, filled to this share.
pub fn bar(share: f64) -> String {
    format!(
        "<svg class=\"bar\" viewBox=\"0 0 100 1\" preserveAspectRatio=\"none\" aria-hidden=\"true\"><rect width=\"{:.1}\" height=\"1\"/></svg>",
        share.clamp(0.0, 1.0) * 100.0
    )
}

/// Opens a picture. `label`: escaped text.
fn open(class: &str, width: usize, height: usize, label: &str) -> String {
    format!(
        "<svg class=\"{class}\" viewBox=\"0 0 {width} {height}\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"{label}\">"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_and_all_have_classes_of_their_own() {
        let step = |written, all| written_class(written, all).and_then(|class| class.step);
        assert_eq!(step(0, 9), None);
        assert_eq!(step(1, 1000), Some(0));
        assert_eq!(step(999, 1000), Some(9));
        assert_eq!(step(1000, 1000), Some(10));
        assert_eq!(step(u64::MAX - 1, u64::MAX), Some(9));
    }

    #[test]
    fn times_have_classes() {
        let label = |logged, written| {
            let cell = Cell {
                logged,
                written,
                ..Cell::default()
            };
            times_class(&cell).map(|class| class.label)
        };
        assert_eq!(label(0, 0), None);
        assert_eq!(label(7, 7).unwrap(), "once");
        assert_eq!(label(8, 7).unwrap(), "1 to 1.5 times");
        assert_eq!(label(21, 7).unwrap(), "2 to 3 times");
        assert_eq!(label(u64::MAX, 1).unwrap(), "more than 50 times");
    }

    #[test]
    fn neighbours_of_a_class_are_one_rectangle() {
        let class = |x: usize, y: usize| match (x, y) {
            (0 | 1, 0) | (3, 1) => written_class(1, 1).map(|class| (class, false)),
            (2, 0) => written_class(1, 2).map(|class| (class, true)),
            _ => None,
        };
        let svg = cells(4, 2, class);
        assert_eq!(
            svg,
            "<path class=\"c5 est\" d=\"M2 0h1v1h-1z\"><title>50 to 60 % written, estimated</title></path>\
             <path class=\"c10\" d=\"M0 0h2v1h-2zM3 1h1v1h-1z\"><title>all written</title></path>"
        );
    }
}
