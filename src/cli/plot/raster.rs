//! A figure as pixels, for PNG.

use anyhow::Result;
use noto_sans_mono_bitmap::{FontWeight, RasterHeight, get_raster, get_raster_width};

use super::figure::{Anchor, Figure, Pixel, Shape, WIDTH};
use crate::cli::picture::colours::colour;
use crate::cli::picture::png;

const WHITE: [u8; 3] = [255; 3];
const BLACK: [u8; 3] = [0; 3];
const CURVE: [u8; 3] = [0x31, 0x68, 0x8e];
/// Half of the width of a curve.
const HALF: f64 = 0.8;

/// The figure as a PNG file.
pub fn png(figure: &Figure) -> Result<Vec<u8>> {
    let mut image = Image {
        height: figure.height,
        pixels: vec![WHITE; (WIDTH * figure.height) as usize],
    };
    for shape in &figure.shapes {
        image.draw(shape);
    }
    png::of_pixels(WIDTH, figure.height, image.pixels.as_flattened())
}

struct Image {
    height: u32,
    pixels: Vec<[u8; 3]>,
}

impl Image {
    /// Mixes a colour into a pixel. Those outside of the image are left out.
    fn mix(&mut self, x: i64, y: i64, colour: [u8; 3], share: f64) {
        let (Ok(x), Ok(y)) = (u32::try_from(x), u32::try_from(y)) else {
            return;
        };
        if x >= WIDTH || y >= self.height {
            return;
        }
        if let Some(pixel) = self.pixels.get_mut((y * WIDTH + x) as usize) {
            for (old, new) in pixel.iter_mut().zip(colour) {
                *old = (f64::from(*old) * (1.0 - share) + f64::from(new) * share).round() as u8;
            }
        }
    }

    fn draw(&mut self, shape: &Shape) {
        match shape {
            Shape::Stroke(from, to) => self.stroke(*from, *to),
            Shape::Curve(points) => {
                if let [point] = points[..] {
                    self.segment(point, point);
                }
                points
                    .windows(2)
                    .for_each(|pair| self.segment(pair[0], pair[1]));
            }
            Shape::Cells {
                at,
                size,
                columns,
                places,
            } => self.cells(*at, *size, *columns, places),
            Shape::Text {
                at,
                text,
                anchor,
                is_vertical,
                is_title,
            } => self.text(*at, text, *anchor, *is_vertical, *is_title),
        }
    }

    /// A horizontal or vertical line of whole pixels.
    fn stroke(&mut self, from: Pixel, to: Pixel) {
        let whole = |(x, y): Pixel| (x.round() as i64, y.round() as i64);
        let ((x, y), (to_x, to_y)) = (whole(from), whole(to));
        for y in y.min(to_y)..=y.max(to_y) {
            for x in x.min(to_x)..=x.max(to_x) {
                self.mix(x, y, BLACK, 1.0);
            }
        }
    }

    /// A part of a curve. Each pixel near it is as dark as the share that the curve covers.
    fn segment(&mut self, from: Pixel, to: Pixel) {
        let (dx, dy) = (to.0 - from.0, to.1 - from.1);
        let length = dx * dx + dy * dy;
        let ends = |a: f64, b: f64| {
            (
                (a.min(b) - 2.0).floor() as i64,
                (a.max(b) + 2.0).ceil() as i64,
            )
        };
        let ((left, right), (top, bottom)) = (ends(from.0, to.0), ends(from.1, to.1));
        for y in top..=bottom {
            for x in left..=right {
                let (px, py) = (x as f64 - from.0, y as f64 - from.1);
                let along = if length > 0.0 {
                    ((px * dx + py * dy) / length).clamp(0.0, 1.0)
                } else {
                    0.0
                };
                let distance = (px - along * dx).hypot(py - along * dy);
                let share = (HALF + 0.5 - distance).clamp(0.0, 1.0);
                if share > 0.0 {
                    self.mix(x, y, CURVE, share);
                }
            }
        }
    }

    fn cells(&mut self, at: Pixel, size: Pixel, columns: usize, places: &[Option<f64>]) {
        let rows = places.len() / columns.max(1);
        let (left, top) = (at.0.round() as i64, at.1.round() as i64);
        let (width, height) = (
            size.0.round().max(1.0) as i64,
            size.1.round().max(1.0) as i64,
        );
        let of = |pixel: i64, all: i64, cells: usize| {
            ((pixel as f64 + 0.5) / all as f64 * cells as f64) as usize
        };
        for y in 0..height {
            for x in 0..width {
                let cell = of(y, height, rows) * columns + of(x, width, columns);
                if let Some(Some(place)) = places.get(cell) {
                    self.mix(left + x, top + y, colour(*place), 1.0);
                }
            }
        }
    }

    fn text(&mut self, at: Pixel, text: &str, anchor: Anchor, is_vertical: bool, is_title: bool) {
        let (weight, height) = if is_title {
            (FontWeight::Regular, RasterHeight::Size20)
        } else {
            (FontWeight::Regular, RasterHeight::Size16)
        };
        let letter = get_raster_width(weight, height) as i64;
        let width = letter * text.chars().count() as i64;
        let before = match anchor {
            Anchor::Start => 0,
            Anchor::Middle => width / 2,
            Anchor::End => width,
        };
        let up = height.val() as i64 / 2;
        for (number, c) in (0i64..).zip(text.chars()) {
            let Some(glyph) =
                get_raster(c, weight, height).or_else(|| get_raster('?', weight, height))
            else {
                continue;
            };
            for (row, pixels) in (0i64..).zip(glyph.rows()) {
                for (column, share) in (0i64..).zip(pixels).filter(|(_, share)| **share > 0) {
                    let (along, across) = (number * letter + column - before, row - up);
                    let (dx, dy) = if is_vertical {
                        (across, -along)
                    } else {
                        (along, across)
                    };
                    let (x, y) = (at.0.round() as i64 + dx, at.1.round() as i64 + dy);
                    self.mix(x, y, BLACK, f64::from(*share) / 255.0);
                }
            }
        }
    }
}
