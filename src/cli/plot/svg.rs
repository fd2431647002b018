//! A figure as SVG.

use std::fmt::Write;

use anyhow::Result;

use super::figure::{Anchor, Figure, Shape, WIDTH};
use crate::cli::picture::png;
use crate::cli::report::Text;

/// The figure as text. Images of cells are inside, as PNG.
pub fn text(figure: &Figure) -> Result<String> {
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {0}\" width=\"{WIDTH}\" height=\"{0}\" \
         font-family=\"sans-serif\" font-size=\"14\">\n<title>{1}</title>\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n",
        figure.height,
        Text(&figure.title)
    );
    for shape in &figure.shapes {
        add(shape, &mut svg)?;
    }
    svg.push_str("</svg>\n");
    Ok(svg)
}

fn add(shape: &Shape, svg: &mut String) -> Result<()> {
    match shape {
        Shape::Stroke(from, to) => writeln!(
            svg,
            "<path d=\"M{:.1} {:.1}L{:.1} {:.1}\" stroke=\"#000\"/>",
            from.0, from.1, to.0, to.1
        )?,
        Shape::Curve(points) => {
            svg.push_str("<polyline fill=\"none\" stroke=\"#31688e\" stroke-width=\"1.5\" stroke-linecap=\"round\" points=\"");
            for (x, y) in points {
                write!(svg, "{x:.1},{y:.1} ")?;
            }
            if let [(x, y)] = points[..] {
                // A line from a point to itself is a dot.
                write!(svg, "{x:.1},{y:.1}")?;
            }
            svg.push_str("\"/>\n");
        }
        Shape::Text {
            at: (x, y),
            text,
            anchor,
            is_vertical,
            is_title,
        } => {
            let anchor = match anchor {
                Anchor::Start => "start",
                Anchor::Middle => "middle",
                Anchor::End => "end",
            };
            let turned = if *is_vertical {
                format!(" transform=\"rotate(-90 {x:.1} {y:.1})\"")
            } else {
                String::new()
            };
            let size = if *is_title { " font-size=\"18\"" } else { "" };
            writeln!(
                svg,
                "<text x=\"{x:.1}\" y=\"{y:.1}\" dy=\".35em\" text-anchor=\"{anchor}\"{size}{turned}>{}</text>",
                Text(text)
            )?;
        }
        Shape::Cells {
            at,
            size,
            columns,
            places,
        } => {
            let rows = places.len() / (*columns).max(1);
            let image = png::of_cells(
                u32::try_from(*columns)?,
                u32::try_from(rows)?,
                places,
                png::MANY_COLOURS,
            )?;
            writeln!(
                svg,
                "<image x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" preserveAspectRatio=\"none\" \
                 style=\"image-rendering:pixelated\" href=\"data:image/png;base64,{}\"/>",
                at.0,
                at.1,
                size.0,
                size.1,
                png::base64(&image)
            )?;
        }
    }
    Ok(())
}
