//! A picture of a dataset for a terminal, which shows the written share of each part.

use std::io::{self, Write};

use super::super::output::{Output, percent};
use h5logfs_common::error::Result;
use h5logfs_log::origins::Origins;
use h5logfs_view::View;
use h5logfs_view::coverage::{Axis, Cell, CoverageMap, Wanted};

/// Most rows. With the frame, the picture fits into 80 columns and half a page.
const ROWS: usize = 16;
const COLUMNS: usize = 72;

/// The picture of a logged dataset. It shows neither ranks nor flushes.
pub fn of(view: &View, number: usize) -> Result<CoverageMap> {
    let wanted = Wanted {
        rows: ROWS,
        columns: COLUMNS,
        axes: None,
    };
    view.pictures(&Origins::default()).of(number, &wanted)
}

pub fn print(map: &CoverageMap, out: &mut Output<impl Write>) -> io::Result<()> {
    let columns = map.grid.columns();
    if map.cells.is_empty() {
        return writeln!(out, "no elements");
    }
    let about = if map.is_estimate() { "at most " } else { "" };
    let share = percent(map.covered());
    writeln!(out, "{about}{share} written{}", axes(map))?;
    let edge = "─".repeat(columns);
    writeln!(out, "┌{edge}┐")?;
    for row in map.cells.chunks(columns) {
        let row: String = row.iter().map(shade).collect();
        writeln!(out, "│{row}│")?;
    }
    writeln!(out, "└{edge}┘")?;
    let lost = map.cells.iter().any(|cell| cell.lost > 0);
    let lost = if lost { "  × some lost" } else { "" };
    writeln!(
        out,
        "█ all  ▓ two thirds or more  ▒ one third or more  ░ less  · nothing written{lost}"
    )
}

/// The shade of a cell. Nothing and all have their own shades.
fn shade(cell: &Cell) -> char {
    let (written, all) = (u128::from(cell.written), u128::from(cell.elements));
    match written {
        _ if cell.lost > 0 => '×',
        0 => '·',
        written if written >= all => '█',
        written if written * 3 >= all * 2 => '▓',
        written if written * 3 >= all => '▒',
        _ => '░',
    }
}

/// The axes of the picture.
fn axes(map: &CoverageMap) -> String {
    let along = |axis: Option<Axis>, way: &str| {
        axis.map_or(
            String::new(),
            |Axis {
                 dimension, side, ..
             }| {
                let each = match side {
                    1 => String::new(),
                    side => format!(", {side} indices each"),
                };
                format!("; {way}: dimension {dimension}{each}")
            },
        )
    };
    along(map.grid.row_axis(), "down") + &along(map.grid.column_axis(), "across")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_and_all_are_never_rounded_to() {
        let shade = |written, elements| {
            shade(&Cell {
                written,
                elements,
                ..Cell::default()
            })
        };
        let shown: String = [0, 1, 332, 334, 666, 667, 999, 1000]
            .map(|written| shade(written, 1000))
            .into_iter()
            .collect();
        assert_eq!(shown, "·░░▒▒▓▓█");
        assert_eq!(shade(u64::MAX - 1, u64::MAX), '▓');
    }
}
