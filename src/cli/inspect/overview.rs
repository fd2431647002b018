//! A log in a few lines: its summary, and a line for each dataset.

use std::collections::BTreeMap;
use std::io::{self, Write};

use indicatif::BinaryBytes;

use super::report::{DatasetReport, Report};
use crate::cli::colour::Colour;
use crate::cli::output::{Output, percent, plain};
use crate::cli::table::{self, number, or_dash, text};

/// Longest description of a datatype. Compounds may have longer ones, which the list of records and JSON show in full.
const LONGEST_TYPE: usize = 24;

/// Prints the summary and the datasets. `tree`: print them in their groups.
pub fn print<'a>(report: &'a Report, tree: bool, out: &mut Output<impl Write>) -> io::Result<()> {
    report.print_summary(out)?;
    let lines = if tree {
        let mut root = Group::default();
        for dataset in &report.datasets {
            root.add(dataset);
        }
        let mut lines = vec![Line::of_group("/".to_owned())];
        root.lines("", &mut lines);
        lines
    } else {
        let line =
            |dataset: &'a DatasetReport| Line::of(plain(&dataset.name).into_owned(), dataset);
        report.datasets.iter().map(line).collect()
    };
    print_lines(&lines, out)
}

/// The shape in the form of h5ls.
pub fn shape(dataset: &DatasetReport) -> String {
    let sides = dataset.shape.iter().zip(&dataset.max_shape);
    let sides = sides.map(|(now, most)| match most {
        Some(most) if most == now => now.to_string(),
        Some(most) => format!("{now}/{most}"),
        None => format!("{now}/Inf"),
    });
    format!("{{{}}}", sides.collect::<Vec<_>>().join(", "))
}

/// A line of the table, and the faults under it.
struct Line<'a> {
    cells: [String; 8],
    faults: &'a [String],
}

impl<'a> Line<'a> {
    fn of(name: String, dataset: &'a DatasetReport) -> Self {
        let chunk = dataset.chunk.as_ref().map(|chunk| {
            let sides: Vec<_> = chunk.iter().map(u64::to_string).collect();
            format!("{{{}}}", sides.join(", "))
        });
        let filters = (!dataset.filters.is_empty()).then(|| dataset.filter_names());
        let logged = dataset.logged.as_ref();
        Line {
            cells: [
                name,
                cut(&plain(&dataset.datatype), LONGEST_TYPE),
                shape(dataset),
                or_dash(chunk),
                or_dash(filters),
                or_dash(logged.map(|logged| logged.records)),
                or_dash(logged.map(|logged| BinaryBytes(logged.bytes))),
                or_dash(logged.and_then(|logged| logged.covered).map(percent)),
            ],
            faults: &dataset.faults,
        }
    }

    fn of_group(name: String) -> Self {
        let mut cells = <[String; 8]>::default();
        cells[0] = name;
        Line { cells, faults: &[] }
    }
}

fn cut(text: &str, longest: usize) -> String {
    if text.chars().count() <= longest {
        return text.to_owned();
    }
    text.chars().take(longest - 1).chain(['…']).collect()
}

fn print_lines(lines: &[Line<'_>], out: &mut Output<impl Write>) -> io::Result<()> {
    let columns = [
        text("DATASET"),
        text("TYPE"),
        text("SHAPE"),
        text("CHUNK"),
        text("FILTERS"),
        number("RECORDS"),
        number("LOGGED"),
        number("COVERED"),
    ];
    let cells: Vec<_> = lines.iter().map(|line| line.cells.clone()).collect();
    let mut texts = table::lines(columns, &cells).into_iter();
    if let Some(head) = texts.next() {
        writeln!(out, "{head}")?;
    }
    for (line, text) in lines.iter().zip(texts) {
        writeln!(out, "{text}")?;
        for fault in line.faults {
            out.painted(&[(Some(Colour::Bad), "    fault: "), (None, fault)])?;
        }
    }
    Ok(())
}

/// The members of a group.
#[derive(Default)]
struct Group<'a> {
    members: BTreeMap<&'a str, Group<'a>>,
    /// The datasets of one name: several, if a damaged file repeats a name.
    datasets: Vec<&'a DatasetReport>,
}

impl<'a> Group<'a> {
    fn add(&mut self, dataset: &'a DatasetReport) {
        let mut group = self;
        for name in dataset.name.split('/').filter(|name| !name.is_empty()) {
            group = group.members.entry(name).or_default();
        }
        group.datasets.push(dataset);
    }

    /// Adds a line for each member under the group. `indent`: text before them.
    fn lines(&self, indent: &str, lines: &mut Vec<Line<'a>>) {
        let last = self.members.len().saturating_sub(1);
        for (number, (name, member)) in self.members.iter().enumerate() {
            let (branch, below) = if number == last {
                ("└── ", "    ")
            } else {
                ("├── ", "│   ")
            };
            let name = format!("{indent}{branch}{}", plain(name));
            if member.datasets.is_empty() {
                lines.push(Line::of_group(name + "/"));
            } else {
                let own = member.datasets.iter();
                lines.extend(own.map(|dataset| Line::of(name.clone(), dataset)));
            }
            member.lines(&format!("{indent}{below}"), lines);
        }
    }
}
