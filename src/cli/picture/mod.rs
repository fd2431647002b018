//! A dataset as a picture, for `report` and `plot`: which elements are shown, their cells, and the coordinates of these.
//!
//! * `colours`: the colour map. `line`: a line of one dimension. `ticks`: round numbers along an axis, and numbers as text. `png`: images as files.

pub mod colours;
pub mod line;
pub mod png;
pub mod ticks;

use anyhow::{Result, ensure};

use h5logfs_arrays::scales::{self, Dimension, Scales};
use h5logfs_arrays::slices::{self, Shown, Slice};
use h5logfs_arrays::thinned::{Limits, ThinAxis, Thinned};
use h5logfs_arrays::{Axis, Dataset, Log, Object};

/// Most bytes that are read and decoded for the coordinates of one dimension.
const COORDINATE_BYTES: u64 = 1 << 20;

/// A dataset as a picture.
pub struct Picture {
    /// The path of the dataset.
    pub name: String,
    /// The shown part in numpy's form; `None` for all of the dataset.
    pub part: Option<String>,
    /// The attribute `long_name`.
    pub description: Option<String>,
    /// The attribute `units`.
    pub units: Option<String>,
    /// Whether `scale_factor` or `add_offset` makes other numbers of the elements.
    is_packed: bool,
    /// The axes of the picture: none for a single element, one for a line, two for a plane.
    pub axes: Vec<PictureAxis>,
    pub thinned: Thinned,
}

/// An axis of a picture.
pub struct PictureAxis {
    /// The name of the dimension; `None` where it has none.
    pub name: Option<String>,
    pub units: Option<String>,
    pub cells: ThinAxis,
    /// The coordinate of each cell, in the order of the cells. They ascend or descend.
    pub coordinates: Option<Vec<f64>>,
}

impl PictureAxis {
    /// The name, or the number of the dimension.
    pub fn name(&self) -> String {
        let number = || format!("dimension {}", self.cells.dimension);
        self.name.clone().unwrap_or_else(number)
    }

    /// The name and the units.
    pub fn label(&self) -> String {
        let name = self.name();
        match &self.units {
            Some(units) if !units.is_empty() => format!("{name} ({units})"),
            _ => name,
        }
    }

    /// The coordinate, or else the index, of the first and the last cell.
    pub fn ends(&self) -> (f64, f64) {
        if let Some([first, .., last]) = self.coordinates.as_deref() {
            return (*first, *last);
        }
        let (least, most) = self.cells.ends();
        let (least, most) = (least as f64, most as f64);
        if self.cells.is_reversed {
            (most, least)
        } else {
            (least, most)
        }
    }

    /// Whether the coordinates ascend from the first cell to the last one.
    pub fn has_ascending_coordinates(&self) -> bool {
        self.coordinates.is_some() && self.ends().0 < self.ends().1
    }

    /// The place of a coordinate, or else of an index, as a share of the cells from the first one on. Cells have equal
    /// sides, whatever the distances of their coordinates.
    pub fn place(&self, value: f64) -> f64 {
        if let Some(coordinates) = &self.coordinates {
            return place_among(coordinates, value);
        }
        let (start, step) = (self.cells.start as f64, self.cells.step as f64);
        let all = self.cells.cells() as f64 * self.cells.side as f64;
        let place = ((value - start) / step + 0.5) / all;
        if self.cells.is_reversed {
            1.0 - place
        } else {
            place
        }
    }
}

/// The place of a value among ascending or descending ones, each in the middle of its cell.
fn place_among(values: &[f64], value: f64) -> f64 {
    let is_ascending = values.first() < values.last();
    let before = values.partition_point(|v| {
        if is_ascending {
            *v <= value
        } else {
            *v >= value
        }
    });
    let left = before.clamp(1, values.len() - 1) - 1;
    let within = (value - values[left]) / (values[left + 1] - values[left]);
    (left as f64 + 0.5 + within) / values.len() as f64
}

/// Makes pictures of the datasets of a log.
pub struct Pictures<'a> {
    log: &'a Log,
    scales: Scales,
}

impl<'a> Pictures<'a> {
    pub fn of(log: &'a Log) -> Self {
        Pictures {
            log,
            scales: Scales::default(),
        }
    }

    /// The picture of a dataset, or of a part of it in numpy's form. Of more than two dimensions the first one is shown at
    /// its last written index, and those behind it at their first one, until two are left. `limits` may depend on the
    /// numbers of indices from top to bottom and from left to right.
    pub fn picture(
        &mut self,
        dataset: &Dataset,
        part: Option<&str>,
        limits: impl FnOnce(u64, u64) -> Limits,
    ) -> Result<Picture> {
        ensure!(dataset.has_numbers(), "its elements are not real numbers");
        if let Some(reason) = dataset.refusal()? {
            anyhow::bail!(reason);
        }
        let slices = shown(dataset, part)?;
        let sides: Vec<u64> = ranges(&slices).map(|(_, slice)| slice.len()).collect();
        let limits = match sides[..] {
            [rows, columns, ..] => limits(rows, columns),
            [columns] => limits(1, columns),
            [] => limits(1, 1),
        };
        let thinned = dataset.thinned(&slices, &blanks(dataset), &limits)?;
        let dimensions = self.scales.of(dataset).unwrap_or_else(|error| {
            log::warn!("{}: no names of dimensions: {error}", dataset.path());
            vec![Dimension::default(); dataset.shape().len()]
        });
        let axis = |cells: &ThinAxis| {
            let dimension = dimensions.get(cells.dimension).cloned().unwrap_or_default();
            let extent = dataset.shape().get(cells.dimension).copied().unwrap_or(0);
            PictureAxis {
                coordinates: self.coordinates(&dimension, extent, cells),
                name: dimension.name,
                units: dimension.units,
                cells: *cells,
            }
        };
        let is_all = slices
            .iter()
            .zip(dataset.shape())
            .all(|(slice, side)| slice.is_all(*side));
        Ok(Picture {
            name: dataset.path().to_owned(),
            part: (!is_all).then(|| Shown(&slices, dataset.shape()).to_string()),
            description: text(dataset, "long_name"),
            units: text(dataset, "units"),
            is_packed: is_packed(dataset),
            axes: thinned.axes.iter().map(axis).collect(),
            thinned,
        })
    }

    /// The coordinates of cells; `None` where the dimension has none that ascend or descend.
    fn coordinates(
        &self,
        dimension: &Dimension,
        extent: u64,
        cells: &ThinAxis,
    ) -> Option<Vec<f64>> {
        let address = dimension.coordinates?;
        let name = dimension.name.as_deref().unwrap_or("a scale");
        let Ok(Object::Dataset(scale)) = self.log.object_at(name, address) else {
            return None;
        };
        if scale.shape() != [extent] {
            return None;
        }
        let Axis::Range { start, count, step } = cells.indices() else {
            return None;
        };
        let slice = Slice::Range {
            start,
            count,
            step,
            is_reversed: cells.is_reversed,
        };
        let limits = Limits {
            rows: 1,
            columns: count,
            bytes: COORDINATE_BYTES,
            until: None,
        };
        let found = scale.thinned(&[slice], &[], &limits).ok()?;
        let is_whole = found.cells.len() as u64 == count && !found.is_part;
        let values: Vec<f64> = found.cells.iter().map(|cell| cell.mean).collect();
        (is_whole && values.len() > 1 && is_monotonic(&values)).then_some(values)
    }
}

fn is_monotonic(values: &[f64]) -> bool {
    let all = |is: fn(&f64, &f64) -> bool| values.iter().zip(&values[1..]).all(|(a, b)| is(a, b));
    values.iter().all(|v| v.is_finite()) && (all(|a, b| a < b) || all(|a, b| a > b))
}

/// A text attribute that is not empty.
fn text(dataset: &Dataset, name: &str) -> Option<String> {
    let found = scales::text_of(dataset, name).ok().flatten()?;
    (!found.trim().is_empty()).then_some(found)
}

/// The numbers that stand for missing elements. Zero is none of them: it is the fill value of most datasets with elements
/// that are zero.
fn blanks(dataset: &Dataset) -> Vec<f64> {
    let attribute = |name| scales::number_of(dataset, name).ok().flatten();
    let fill = dataset.fill_number().ok().flatten();
    let found = [fill, attribute("_FillValue"), attribute("missing_value")];
    let found = found.into_iter().flatten().filter(|number| *number != 0.0);
    // An attribute may have more digits than the elements.
    if dataset.has_singles() {
        return found.map(|number| f64::from(number as f32)).collect();
    }
    found.collect()
}

/// Whether readers scale the elements, by the conventions for climate data: a picture shows them as they are stored.
fn is_packed(dataset: &Dataset) -> bool {
    ["scale_factor", "add_offset"]
        .iter()
        .any(|name| matches!(scales::number_of(dataset, name), Ok(Some(_))))
}

/// The ranges among slices, with the numbers of their dimensions.
fn ranges(slices: &[Slice]) -> impl Iterator<Item = (usize, &Slice)> {
    let is_range = |(_, slice): &(usize, &Slice)| matches!(slice, Slice::Range { .. });
    slices.iter().enumerate().filter(is_range)
}

/// The shown slices of a dataset, of which at most two are ranges. A dimension of one index is no axis.
fn shown(dataset: &Dataset, part: Option<&str>) -> Result<Vec<Slice>> {
    let mut slices = slices::parse(part.unwrap_or(""), dataset.shape())?;
    for slice in &mut slices {
        if let Slice::Range {
            start, count: 1, ..
        } = *slice
        {
            *slice = Slice::Index(start);
        }
    }
    while ranges(&slices).count() > 2 {
        let Some((dimension, slice)) = ranges(&slices).next() else {
            break;
        };
        let Slice::Range {
            start,
            count,
            step,
            is_reversed,
        } = *slice
        else {
            break;
        };
        let index = match dimension {
            _ if count == 0 => break,
            0 if slice.is_all(dataset.shape()[0]) => dataset.last_written()?.unwrap_or(start),
            0 if !is_reversed => start + (count - 1) * step,
            _ => start,
        };
        slices[dimension] = Slice::Index(index);
    }
    Ok(slices)
}

impl Picture {
    /// The ends of the colour scale: the least and the greatest number; `None` where there is none.
    pub fn scale(&self) -> Option<Scale> {
        let (least, most) = self.thinned.statistics.ends?;
        Some(Scale { least, most })
    }

    /// The cells of an image as places on a scale, from the upper left one on. `rows`: the axis from top to bottom;
    /// `columns`: number of cells in a row, at least one.
    pub fn places(&self, rows: &PictureAxis, columns: usize, scale: Scale) -> Vec<Option<f64>> {
        let cells = self.thinned.cells.iter();
        let places: Vec<_> = cells.map(|cell| scale.place(cell.mean)).collect();
        if !rows.has_ascending_coordinates() {
            return places;
        }
        places.chunks(columns).rev().flatten().copied().collect()
    }

    /// What was not read, or stands for no number, in a few words each.
    pub fn notes(&self) -> Vec<String> {
        let statistics = &self.thinned.statistics;
        let fill = match statistics.blank {
            1 => "fill value",
            _ => "fill values",
        };
        let counted = [
            (statistics.nan, "NaN"),
            (statistics.infinite, "infinite"),
            (statistics.blank, fill),
        ];
        let counted = counted.iter().filter(|(count, _)| *count > 0);
        let mut notes: Vec<String> = counted
            .map(|(count, what)| format!("{count} {what}"))
            .collect();
        if self.is_packed {
            notes.push("stored numbers, without scale_factor and add_offset".to_owned());
        }
        if self.thinned.is_part {
            notes.push("only a part from the middle, because the whole is too large".to_owned());
        }
        if statistics.read < statistics.elements {
            notes.push(format!(
                "{} of {} elements read",
                statistics.read, statistics.elements
            ));
        }
        notes
    }
}

/// A scale of colours or heights.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scale {
    pub least: f64,
    pub most: f64,
}

impl Scale {
    /// The place of a number between both ends, from 0 to 1; `None` for NaN. Numbers beyond an end lie at that end.
    pub fn place(&self, number: f64) -> Option<f64> {
        if number.is_nan() {
            return None;
        }
        // Halves do not overflow.
        let span = self.most / 2.0 - self.least / 2.0;
        if span <= 0.0 {
            return Some(0.5);
        }
        Some(((number / 2.0 - self.least / 2.0) / span).clamp(0.0, 1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_of_coordinates_lie_in_the_middle_of_cells() {
        for (values, value, place) in [
            (&[0.0, 10.0, 20.0, 30.0][..], 0.0, 0.125),
            (&[0.0, 10.0, 20.0, 30.0], 30.0, 0.875),
            (&[0.0, 10.0, 20.0, 30.0], 15.0, 0.5),
            (&[1000.0, 500.0, 100.0, 10.0], 500.0, 0.375),
            (&[1000.0, 500.0, 100.0, 10.0], 300.0, 0.5),
            (&[1000.0, 500.0, 100.0, 10.0], 10.0, 0.875),
        ] {
            assert!(
                (place_among(values, value) - place).abs() < 1e-12,
                "{value}"
            );
        }
    }

    #[test]
    fn scales_have_no_overflow() {
        let scale = Scale {
            least: f64::MIN,
            most: f64::MAX,
        };
        assert_eq!(scale.place(0.0), Some(0.5));
        assert_eq!(scale.place(f64::MAX), Some(1.0));
        assert_eq!(scale.place(f64::NAN), None);
        let one = Scale {
            least: 3.0,
            most: 3.0,
        };
        assert_eq!(one.place(3.0), Some(0.5));
    }
}
