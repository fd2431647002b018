//! Lines of a table with aligned columns.

/// A column of a table.
pub struct Column {
    head: &'static str,
    is_number: bool,
}

/// A left-aligned column.
pub const fn text(head: &'static str) -> Column {
    Column {
        head,
        is_number: false,
    }
}

/// A right-aligned column.
pub const fn number(head: &'static str) -> Column {
    Column {
        head,
        is_number: true,
    }
}

/// The head, and a line for each row. Cells are ready to be printed. The last cell of a line is not padded.
pub fn lines<const N: usize>(columns: [Column; N], rows: &[[String; N]]) -> Vec<String> {
    let head = columns.each_ref().map(|column| column.head.to_owned());
    let rows = || std::iter::once(&head).chain(rows);
    let width = |n: usize| rows().map(|row| row[n].chars().count()).max();
    let widths: [usize; N] = std::array::from_fn(|n| width(n).unwrap_or(0));
    let line = |row: &[String; N]| {
        let cells = row.iter().zip(&columns).zip(widths);
        let padded = cells.map(|((cell, column), width)| {
            if column.is_number {
                format!("{cell:>width$}")
            } else {
                format!("{cell:<width$}")
            }
        });
        let line = padded.collect::<Vec<_>>().join("  ");
        line.trim_end().to_owned()
    };
    rows().map(line).collect()
}

/// The text, or a dash without one.
pub fn or_dash(value: Option<impl ToString>) -> String {
    value.map_or("-".to_owned(), |value| value.to_string())
}
