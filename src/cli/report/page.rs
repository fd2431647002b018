//! The page. All text that comes from files passes [`Text`]: users choose names, and a browser obeys what stands in them.

use std::fmt::{self, Display, Write};

use indicatif::BinaryBytes;
use jiff::{Timestamp, tz::TimeZone};

use super::super::output::plain;
use super::svg::{self, Class, Colouring, Scale};
use super::{DatasetContent, DatasetReport, FileReport, LogReport};
use h5logfs_core::log::origins::Timeline;
use h5logfs_core::view::coverage::{Axis, CoverageMap};

const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("script.js");

/// The page needs nothing from elsewhere, and a browser is told not to fetch anything.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'";

/// Details of so many datasets are open from the beginning.
const FEW_DATASETS: usize = 6;

/// Text from files, for HTML.
struct Text<'a>(&'a str);

impl Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in plain(self.0).chars() {
            match c {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&#39;")?,
                c => f.write_char(c)?,
            }
        }
        Ok(())
    }
}

/// A number with a thin space behind each thousand.
struct Grouped<N>(N);

impl<N: ToString> Display for Grouped<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = self.0.to_string();
        for (at, digit) in digits.chars().enumerate() {
            if at > 0 && (digits.len() - at) % 3 == 0 {
                f.write_char('\u{2009}')?;
            }
            f.write_char(digit)?;
        }
        Ok(())
    }
}

fn bytes(n: u128) -> String {
    BinaryBytes(u64::try_from(n).unwrap_or(u64::MAX)).to_string()
}

/// Rounded down: only what is wholly written is 100 %.
fn percent(share: f64) -> String {
    format!("{:.1} %", (share * 1000.0).floor() / 10.0)
}

/// The share that was written, and whether that is known.
fn covered(share: f64, is_estimate: bool) -> String {
    let about = if is_estimate { "at most " } else { "" };
    format!("{about}{}", percent(share))
}

fn shape(dims: &[u64]) -> String {
    if dims.is_empty() {
        return "scalar".to_owned();
    }
    let dims: Vec<String> = dims.iter().map(|d| Grouped(*d).to_string()).collect();
    dims.join(" × ")
}

/// The whole page.
pub fn page(files: &[FileReport]) -> String {
    let mut page = Page(String::new());
    page.all(files);
    page.0
}

struct Page(String);

/// Adds formatted text, which must be escaped.
macro_rules! put {
    ($page:expr, $($text:tt)*) => {{
        // A string takes all that is written to it.
        let _ = write!($page.0, $($text)*);
    }};
}

impl Page {
    fn all(&mut self, files: &[FileReport]) {
        let title = match files {
            [file] => format!("{} – report", Text(&file.name)),
            _ => format!("report on {} logs", files.len()),
        };
        let now = Timestamp::now().to_zoned(TimeZone::system());
        put!(
            self,
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\n\
             <title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<header>\n\
             <h1>{}</h1>\n<p class=\"soft\">Made by h5logfs {} on {}.</p>\n</header>\n",
            if files.len() == 1 {
                "Report on a log".to_owned()
            } else {
                format!("Report on {} logs", files.len())
            },
            env!("CARGO_PKG_VERSION"),
            now.strftime("%Y-%m-%d %H:%M %Z"),
        );
        if files.len() > 1 {
            self.list(files);
        }
        for (number, file) in files.iter().enumerate() {
            self.file(number, file);
        }
        put!(self, "<script>\n{SCRIPT}</script>\n</body>\n</html>\n");
    }

    /// A table of the files.
    fn list(&mut self, files: &[FileReport]) {
        self.table_head(&[
            ("File", false),
            ("State", false),
            ("Datasets", true),
            ("Size as HDF5", true),
            ("Written", true),
        ]);
        for (number, file) in files.iter().enumerate() {
            put!(
                self,
                "<tr><td class=\"name\"><a href=\"#f{number}\">{}</a></td>",
                Text(&file.name)
            );
            match &file.content {
                Ok(log) => {
                    put!(self, "<td>{}</td>", log.state);
                    self.number(log.datasets.len(), &Grouped(log.datasets.len()));
                    self.number(log.canonical_bytes, &bytes(log.canonical_bytes.into()));
                    let share = log.covered();
                    let text = share.map(|share| covered(share, log.is_estimate()));
                    self.number(share.unwrap_or(-1.0), &text.unwrap_or("–".into()));
                }
                Err(_) => {
                    put!(self, "<td>cannot be read</td>");
                    (0..3).for_each(|_| self.number(-1, &"–"));
                }
            }
            put!(self, "</tr>\n");
        }
        put!(self, "</tbody></table></div>\n");
    }

    /// `columns`: title, and whether it has numbers.
    fn table_head(&mut self, columns: &[(&str, bool)]) {
        put!(
            self,
            "<div class=\"scroll\"><table class=\"sorts\"><thead><tr>"
        );
        for (title, is_number) in columns {
            let class = if *is_number { " class=\"n\"" } else { "" };
            put!(self, "<th scope=\"col\"{class}>{title}</th>");
        }
        put!(self, "</tr></thead><tbody>\n");
    }

    fn number(&mut self, key: impl Display, text: &impl Display) {
        put!(self, "<td class=\"n\" data-key=\"{key}\">{text}</td>");
    }

    fn file(&mut self, number: usize, file: &FileReport) {
        put!(
            self,
            "<section class=\"file\" id=\"f{number}\">\n<h2>{}</h2>\n",
            Text(&file.name)
        );
        match &file.content {
            Ok(log) => self.log(number, log),
            Err(error) => self.texts("faults", &[format!("{error:#}")]),
        }
        put!(self, "</section>\n");
    }

    fn texts(&mut self, class: &str, texts: &[String]) {
        if texts.is_empty() {
            return;
        }
        put!(self, "<ul class=\"{class}\">\n");
        for text in texts {
            put!(self, "<li>{}</li>\n", Text(text));
        }
        put!(self, "</ul>\n");
    }

    fn facts(&mut self, facts: &[(&str, String)]) {
        put!(self, "<dl class=\"facts\">");
        for (name, value) in facts {
            put!(self, "<div><dt>{name}</dt><dd>{}</dd></div>", Text(value));
        }
        put!(self, "</dl>\n");
    }

    fn log(&mut self, number: usize, log: &LogReport) {
        self.facts(&log_facts(log));
        self.texts("faults", &log.faults);
        self.texts("notes", &log.notes);
        self.timeline(&log.timeline);
        put!(self, "<h3>Datasets</h3>\n");
        self.datasets(number, &log.datasets);
        let is_open = log.datasets.len() <= FEW_DATASETS;
        for (at, dataset) in log.datasets.iter().enumerate() {
            self.dataset((number, at), dataset, is_open);
        }
    }

    fn timeline(&mut self, timeline: &Timeline) {
        if timeline.bytes.is_empty() {
            return;
        }
        let has = |known: usize| known > 1;
        let (flushes, ranks) = (has(timeline.known_flushes), has(timeline.known_ranks));
        if !flushes && !ranks {
            return;
        }
        put!(self, "<h3>Who wrote when</h3>\n");
        if flushes {
            let columns = timeline.flushes.len();
            let sums = |x: usize| timeline.bytes.iter().skip(x).step_by(columns).sum();
            let sums: Vec<u64> = (0..columns).map(sums).collect();
            let name = |x: usize| range("flush", "flushes", timeline.flushes[x]);
            self.bars("Bytes of each flush", &sums, name);
        }
        if ranks {
            let columns = timeline.flushes.len();
            let sums = timeline.bytes.chunks(columns).map(|row| row.iter().sum());
            let name = |y: usize| {
                let ends = timeline.ranks[y].map(|(a, b)| (a.into(), b.into()));
                range("rank", "ranks", ends)
            };
            self.bars("Bytes of each rank", &sums.collect::<Vec<u64>>(), name);
            put!(self, "<p>{}</p>\n", imbalance(timeline));
        }
        if flushes && ranks {
            let label = "bytes by rank and flush";
            let picture = svg::timeline(timeline, label);
            let high = (timeline.ranks.len() as f64).clamp(4.0, 24.0) * 0.6 + 1.0;
            let ends = |first: Option<u64>, last: Option<u64>| {
                let text = |n: Option<u64>| n.map_or("?".into(), |n| n.to_string());
                (text(first), text(last))
            };
            let y = ends(
                timeline.ranks.iter().flatten().next().map(|e| e.0.into()),
                timeline.ranks.iter().flatten().last().map(|e| e.1.into()),
            );
            let x = ends(
                timeline.flushes.iter().flatten().next().map(|e| e.0),
                timeline.flushes.iter().flatten().last().map(|e| e.1),
            );
            put!(
                self,
                "<h4>Bytes by rank and flush</h4>\n<figure><div class=\"frame\">"
            );
            put!(
                self,
                "<div class=\"y\"><span>{}</span><span class=\"what\">rank</span><span>{}</span></div>",
                y.0,
                y.1
            );
            put!(
                self,
                "<div class=\"hold\" style=\"height:{high}rem\">{picture}</div>"
            );
            put!(
                self,
                "<div class=\"x\"><span>{}</span><span>flush</span><span>{}</span></div></div>\n",
                x.0,
                x.1
            );
            let most = timeline.bytes.iter().copied().max().unwrap_or(0);
            put!(
                self,
                "<figcaption>The most of one cell: {}. Hatched: nothing.</figcaption></figure>\n",
                bytes(most.into())
            );
        }
    }

    /// Bars with a title, the largest value, and the names of the first and the last.
    fn bars(&mut self, title: &str, values: &[u64], name: impl Fn(usize) -> String) {
        let text = |x: usize| format!("{}: {}", name(x), bytes(values[x].into()));
        let picture = svg::bars(values, text, &title.to_lowercase());
        let most = bytes(values.iter().copied().max().unwrap_or(0).into());
        put!(self, "<h4>{title}</h4>\n<figure><div class=\"frame\">");
        put!(
            self,
            "<div class=\"y\"><span>{most}</span><span>0</span></div>{picture}"
        );
        put!(
            self,
            "<div class=\"x\"><span>{}</span><span>{}</span></div></div></figure>\n",
            name(0),
            name(values.len().saturating_sub(1))
        );
    }

    /// The table of all datasets of a file.
    fn datasets(&mut self, file: usize, datasets: &[DatasetReport]) {
        self.table_head(&[
            ("Dataset", false),
            ("Written", true),
            ("Where", false),
            ("Shape", false),
            ("Type", false),
            ("Records", true),
            ("Logged", true),
            ("Hidden", true),
            ("Pieces a chunk", true),
        ]);
        for (at, dataset) in datasets.iter().enumerate() {
            put!(
                self,
                "<tr><td class=\"name\"><a href=\"#f{file}d{at}\">{}</a></td>",
                Text(&dataset.name)
            );
            let map = match &dataset.content {
                DatasetContent::Logged(map) => Some(map),
                _ => None,
            };
            match (&dataset.content, map) {
                (_, Some(map)) => {
                    let share = map.covered();
                    self.number(share, &covered(share, map.is_estimate()));
                    put!(self, "<td>{}</td>", svg::small(map, "what is written"));
                }
                (DatasetContent::Unreadable(_), _) => {
                    self.number(-1, &"–");
                    put!(self, "<td>cannot be read</td>");
                }
                _ => {
                    self.number(-1, &"–");
                    put!(self, "<td>not logged</td>");
                }
            }
            let elements = dataset.dims.iter().map(|d| *d as f64).product::<f64>();
            put!(
                self,
                "<td data-key=\"{elements}\">{}</td><td>{}</td>",
                shape(&dataset.dims),
                Text(&dataset.datatype)
            );
            let dash = || "–".to_owned();
            let records = map.map(|map| map.records);
            self.number(
                or_none(records),
                &records.map_or_else(dash, |n| Grouped(n).to_string()),
            );
            let stored = map.map(|map| map.stored);
            self.number(
                or_none(stored),
                &stored.map_or_else(dash, |n| bytes(n.into())),
            );
            let hidden = map.and_then(|map| dataset.hidden_bytes(map));
            self.number(or_none(hidden), &hidden.map_or_else(dash, bytes));
            let pieces = map.and_then(|map| mean_pieces(map));
            self.number(
                pieces.unwrap_or(-1.0),
                &pieces.map_or_else(dash, |n| format!("{n:.1}")),
            );
            put!(self, "</tr>\n");
        }
        put!(self, "</tbody></table></div>\n");
    }

    fn dataset(&mut self, (file, at): (usize, usize), dataset: &DatasetReport, is_open: bool) {
        let open = if is_open { " open" } else { "" };
        let short = match &dataset.content {
            DatasetContent::Logged(map) => covered(map.covered(), map.is_estimate()) + " written",
            DatasetContent::NotLogged => "not logged".to_owned(),
            DatasetContent::Unreadable(_) => "cannot be read".to_owned(),
        };
        put!(
            self,
            "<details id=\"f{file}d{at}\"{open}><summary><b>{}</b> <span class=\"soft\">{}, {short}</span></summary>\n",
            Text(&dataset.name),
            shape(&dataset.dims),
        );
        match &dataset.content {
            DatasetContent::Logged(map) => {
                let faults: Vec<String> = map.faults.iter().map(|f| f.to_string()).collect();
                self.texts("faults", &faults);
                self.pictures(&format!("f{file}d{at}"), dataset, map);
                self.facts(&dataset_facts(dataset, map));
                self.sizes(map);
            }
            DatasetContent::NotLogged => {
                put!(
                    self,
                    "<p>Its elements lie in the file in one piece, and were never logged.</p>\n"
                );
            }
            DatasetContent::Unreadable(reason) => self.texts("faults", &[reason.clone()]),
        }
        put!(self, "</details>\n");
    }

    /// The maps of a dataset, of which one is shown.
    fn pictures(&mut self, id: &str, dataset: &DatasetReport, map: &CoverageMap) {
        if map.cells.is_empty() {
            put!(self, "<p>It has no elements.</p>\n");
            return;
        }
        let all = [
            Colouring::Written,
            Colouring::Times,
            Colouring::Rank,
            Colouring::Flush,
        ];
        let scales = all.map(|colouring| (colouring, Scale::of(map, colouring)));
        let scales: Vec<_> = scales
            .into_iter()
            .filter_map(|(c, scale)| Some((c, scale?)))
            .collect();
        if scales.is_empty() {
            put!(self, "<p>No record wrote to it.</p>\n");
            return;
        }
        put!(self, "<div class=\"pick\">\n");
        if scales.len() > 1 {
            for (n, (colouring, _)) in scales.iter().enumerate() {
                let checked = if n == 0 { " checked" } else { "" };
                put!(
                    self,
                    "<input type=\"radio\" class=\"r{n}\" name=\"{id}\" id=\"{id}r{n}\"{checked}><label for=\"{id}r{n}\">{}</label>",
                    colouring.title()
                );
            }
        }
        for (n, (colouring, scale)) in scales.iter().enumerate() {
            let style = if scales.len() > 1 {
                ""
            } else {
                " style=\"display:block\""
            };
            put!(
                self,
                "<figure class=\"view v{n}\"{style} data-picture=\"{}\">",
                colouring.name()
            );
            self.map(dataset, map, scale, *colouring);
            put!(self, "</figure>\n");
        }
        put!(self, "</div>\n");
    }

    fn map(
        &mut self,
        dataset: &DatasetReport,
        map: &CoverageMap,
        scale: &Scale,
        colouring: Colouring,
    ) {
        let label = format!(
            "{} of {}",
            colouring.title().to_lowercase(),
            Text(&dataset.name)
        );
        let (rows, columns) = (map.grid.row_axis(), map.grid.column_axis());
        // In a picture of two axes, cells are squares as far as it does not get too high.
        let style = match rows {
            Some(_) => format!(
                "aspect-ratio:{}/{};min-height:8rem;max-height:28rem",
                map.grid.columns(),
                map.grid.rows()
            ),
            None => "height:3rem".to_owned(),
        };
        put!(self, "<div class=\"frame zooms\">");
        match rows {
            Some(Axis { dimension, .. }) => put!(
                self,
                "<div class=\"y\" data-extent=\"{0}\"><span class=\"from\">0</span><span class=\"what\">dimension {dimension}</span><span class=\"to\">{1}</span></div>",
                dataset.dims[dimension],
                dataset.dims[dimension].saturating_sub(1)
            ),
            None => put!(self, "<div class=\"y\"></div>"),
        }
        put!(
            self,
            "<div class=\"hold\" style=\"{style}\">{}</div>",
            svg::map(map, scale, &label)
        );
        if let Some(Axis { dimension, .. }) = columns {
            put!(
                self,
                "<div class=\"x\" data-extent=\"{0}\"><span class=\"from\">0</span><span>dimension {dimension}</span><span class=\"to\">{1}</span></div>",
                dataset.dims[dimension],
                dataset.dims[dimension].saturating_sub(1)
            );
        }
        put!(self, "</div>");
        self.legend(&svg::legend(map, scale), map);
        put!(self, "<figcaption>{}</figcaption>", cell_text(map));
    }

    fn legend(&mut self, classes: &[Class], map: &CoverageMap) {
        put!(self, "<ul class=\"legend\">");
        let key = |fill: &str| {
            format!("<svg class=\"small\" viewBox=\"0 0 1 1\" aria-hidden=\"true\">{fill}</svg>")
        };
        if map.cells.iter().any(|cell| cell.written == 0) {
            put!(self, "<li>{}nothing written</li>", key(""));
        }
        for class in classes {
            let fill = format!(
                "<rect class=\"{}\" width=\"1\" height=\"1\"/>",
                svg::class_name(class)
            );
            put!(self, "<li>{}{}</li>", key(&fill), class.label);
        }
        put!(self, "</ul>");
    }

    /// How large the records are.
    fn sizes(&mut self, map: &CoverageMap) {
        let used: Vec<usize> = (0..map.sizes.len()).filter(|n| map.sizes[*n] > 0).collect();
        let (Some(first), Some(last)) = (used.first(), used.last()) else {
            return;
        };
        let most = map.sizes.iter().copied().max().unwrap_or(1).max(1);
        put!(
            self,
            "<h4>Sizes of records</h4>\n<table><thead><tr><th>Stored bytes</th><th class=\"n\">Records</th><th style=\"width:60%\"></th></tr></thead><tbody>\n"
        );
        for n in *first..=*last {
            let records = map.sizes[n];
            put!(
                self,
                "<tr><td>{}</td><td class=\"n\">{}</td><td>{}</td></tr>\n",
                size_class(n),
                Grouped(records),
                svg::bar(records as f64 / most as f64)
            );
        }
        put!(self, "</tbody></table>\n");
    }
}

/// A key for sorting; what is not known comes first.
fn or_none(number: Option<impl Display>) -> String {
    number.map_or("-1".to_owned(), |number| number.to_string())
}

/// The mean number of pieces of the chunks that have any.
fn mean_pieces(map: &CoverageMap) -> Option<f64> {
    let pieces = map.pieces.as_ref()?;
    (pieces.touched > 0).then(|| pieces.all as f64 / pieces.touched as f64)
}

/// The name of a class of flushes or ranks.
fn range(one: &str, several: &str, ends: Option<(u64, u64)>) -> String {
    match ends {
        None => format!("{one} not known"),
        Some((first, last)) if first == last => format!("{one} {first}"),
        Some((first, last)) => format!("{several} {first} to {last}"),
    }
}

/// Records of sizes from 2^(n-1) to before 2^n.
fn size_class(n: usize) -> String {
    match n {
        0 => "0 B".to_owned(),
        1 => "1 B".to_owned(),
        n => {
            let first = 1u64 << (n - 1);
            format!(
                "{} to {}",
                BinaryBytes(first),
                BinaryBytes(first.saturating_mul(2))
            )
        }
    }
}

fn imbalance(timeline: &Timeline) -> String {
    let (most, mean) = (timeline.most_of_a_rank, timeline.mean_of_ranks);
    let factor = most as f64 / mean.max(1) as f64;
    format!(
        "{} ranks wrote {} each on average. The rank that wrote most wrote {}, {factor:.2} times as much.",
        Grouped(timeline.known_ranks),
        bytes(mean.into()),
        bytes(most.into()),
    )
}

/// What one cell of a map is.
fn cell_text(map: &CoverageMap) -> String {
    let mut sides: Vec<String> = Vec::new();
    for axis in [map.grid.row_axis(), map.grid.column_axis()]
        .into_iter()
        .flatten()
    {
        sides.push(format!(
            "{} of dimension {}",
            Grouped(axis.side),
            axis.dimension
        ));
    }
    let rank = map.grid.dims().len();
    let mut text = match sides.len() {
        0 => "The cell is the whole dataset.".to_owned(),
        _ => format!("A cell is {}", sides.join(" by ")),
    };
    if sides.len() == rank && rank > 0 {
        text += ".";
    } else if !sides.is_empty() {
        text += ", with all of the other dimensions.";
    }
    if map.is_estimate() {
        text += " There are too many pieces to count all that is written: pale cells are estimates, at most so much.";
    }
    text
}

fn log_facts(log: &LogReport) -> Vec<(&'static str, String)> {
    let stored: u128 = log.maps().map(|(_, map)| u128::from(map.stored)).sum();
    let records: u128 = log.maps().map(|(_, map)| u128::from(map.records)).sum();
    let mut facts = vec![
        ("Layout", log.layout.to_owned()),
        ("State", log.state.to_owned()),
        ("Datasets", Grouped(log.datasets.len()).to_string()),
        (
            "Written",
            log.covered()
                .map_or("–".into(), |share| covered(share, log.is_estimate())),
        ),
        ("Records", Grouped(records).to_string()),
        ("Bytes of records", bytes(stored)),
        ("Size as HDF5", bytes(log.canonical_bytes.into())),
    ];
    if let Some(less) = log.bytes_without_unwritten() {
        facts.push((
            "Without unwritten chunks",
            format!("about {}", bytes(less.into())),
        ));
    }
    let hidden: Option<u128> = log
        .maps()
        .map(|(dataset, map)| dataset.hidden_bytes(map))
        .sum();
    if let Some(hidden) = hidden {
        facts.push(("Hidden by later writes", bytes(hidden)));
    }
    if log.files > 1 {
        facts.push(("Files", Grouped(log.files).to_string()));
    }
    if log.timeline.known_flushes > 0 {
        facts.push((
            "Flushes with data",
            Grouped(log.timeline.known_flushes).to_string(),
        ));
    }
    if log.timeline.known_ranks > 0 {
        facts.push((
            "Ranks with data",
            Grouped(log.timeline.known_ranks).to_string(),
        ));
    }
    if let Some(flush) = log.flush {
        facts.push(("Last complete flush", flush.to_string()));
    }
    if let Some(written) = log.written {
        let local = written.to_zoned(TimeZone::system());
        facts.push(("Last write", local.strftime("%Y-%m-%d %H:%M").to_string()));
    }
    facts
}

fn dataset_facts(dataset: &DatasetReport, map: &CoverageMap) -> Vec<(&'static str, String)> {
    let mut facts = vec![
        ("Type", dataset.datatype.clone()),
        (
            "Elements",
            Grouped(map.total(|cell| cell.elements)).to_string(),
        ),
        (
            "Elements written",
            format!(
                "{}{}",
                if map.is_estimate() { "at most " } else { "" },
                Grouped(map.total(|cell| cell.written))
            ),
        ),
        ("Records", Grouped(map.records).to_string()),
        ("Blocks", Grouped(map.blocks).to_string()),
        ("Bytes of records", bytes(map.stored.into())),
    ];
    if let Some(hidden) = dataset.hidden_bytes(map) {
        facts.push(("Hidden by later writes", bytes(hidden)));
    }
    if map.has_base {
        facts.push((
            "Below the records",
            "elements in the file itself".to_owned(),
        ));
    }
    if let Some(chunk) = &dataset.chunk {
        facts.push((
            "Chunks",
            format!("{} of {}", Grouped(dataset.chunks), shape(chunk)),
        ));
    }
    match (&map.pieces, mean_pieces(map)) {
        (Some(pieces), Some(mean)) => {
            facts.push(("Chunks with records", Grouped(pieces.touched).to_string()));
            let most = Grouped(pieces.most);
            facts.push((
                "Pieces a chunk",
                format!("{mean:.1} on average, at most {most}"),
            ));
        }
        (None, _) => facts.push(("Pieces a chunk", "too many to count".to_owned())),
        _ => {}
    }
    facts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_cannot_leave_its_place() {
        let hostile = "</b><script>alert('x')</script>\" onload=\"&amp;\u{202e}\u{0}\n";
        let text = Text(hostile).to_string();
        let expected = "&lt;/b&gt;&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;&quot; onload=&quot;&amp;amp;\\u{202e}\\u{0}\\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn numbers_are_grouped_and_shares_rounded_down() {
        assert_eq!(Grouped(1234567).to_string(), "1\u{2009}234\u{2009}567");
        assert_eq!(Grouped(123).to_string(), "123");
        assert_eq!(percent(0.99999), "99.9 %");
        assert_eq!(percent(1.0), "100.0 %");
        assert_eq!(size_class(11), "1.00 KiB to 2.00 KiB");
        assert!(!size_class(64).is_empty());
    }
}
