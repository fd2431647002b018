//! A picture of one dimension as a line.

use super::{Picture, Scale};

/// A point of a line: the place from left to right, and from bottom to top, as shares from 0 to 1.
pub type Point = (f64, f64);

/// A picture of one dimension as points.
pub struct Line {
    /// Connected points. Blank elements lie between two parts. A part may be a single point.
    pub parts: Vec<Vec<Point>>,
    /// The values at the left and the right end.
    pub across: (f64, f64),
}

impl Line {
    /// The line of a picture, with heights on a scale. Where a cell has several elements, the line goes through the least
    /// and the greatest of them, so that no peak is lost.
    pub fn of(picture: &Picture, scale: Scale) -> Self {
        let cells = &picture.thinned.cells;
        let axis = picture.axes.first();
        let coordinates = axis.and_then(|axis| axis.coordinates.as_deref());
        let across = axis.map_or((0.0, 0.0), |axis| axis.ends());
        let place = |at: usize| match coordinates {
            Some(values) => values
                .get(at)
                .and_then(|v| along(across, *v))
                .unwrap_or(0.5),
            None if cells.len() < 2 => 0.5,
            None => at as f64 / (cells.len() - 1) as f64,
        };
        let mut parts: Vec<Vec<Point>> = Vec::new();
        let mut is_connected = false;
        for (at, cell) in cells.iter().enumerate() {
            let Some((least, most)) = scale.place(cell.least).zip(scale.place(cell.most)) else {
                is_connected = false;
                continue;
            };
            if !is_connected {
                parts.push(Vec::new());
                is_connected = true;
            }
            let Some(part) = parts.last_mut() else {
                continue;
            };
            let x = place(at);
            let is_up = part
                .last()
                .is_none_or(|(_, y)| (y - least).abs() <= (y - most).abs());
            let (first, last) = if is_up { (least, most) } else { (most, least) };
            part.push((x, first));
            if least < most {
                part.push((x, last));
            }
        }
        Line { parts, across }
    }
}

/// The place of a value between two ends, which may descend.
pub fn along((first, last): (f64, f64), value: f64) -> Option<f64> {
    let scale = Scale {
        least: first.min(last),
        most: first.max(last),
    };
    let place = scale.place(value)?;
    Some(if first <= last { place } else { 1.0 - place })
}
