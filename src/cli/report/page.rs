//! The page as HTML.

use std::fmt::{Display, Write};
use std::time::Duration;

use jiff::{Timestamp, tz::TimeZone};

use super::gallery::{self, Data};
use super::svg::{self, Class, Colouring, Scale};
use super::words::{
    Grouped, Text, bytes, cell_text, covered, dataset_facts, imbalance, log_facts, mean_pieces,
    range, shape, size_class, stored_facts,
};
use super::{
    DatasetContent, DatasetReport, FileReport, LogReport, MANY_DATASETS, SEVERAL_DATASETS,
};
use h5logfs_log::origins::Timeline;
use h5logfs_view::coverage::{Axis, CoverageMap};

const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("script.js");

/// Security policy: the page is complete, and a browser must not fetch anything.
const POLICY: &str =
    "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'";

/// With at most this many datasets, their details are open at first.
const FEW_DATASETS: usize = 6;

/// What stands in place of the map of a dataset that is wholly written.
const COMPLETE: &str = "<p>Complete: every element is written.</p>\n";

/// Whether the row of a dataset describes it fully: one record has written all of it.
fn is_described_by_row(dataset: &DatasetReport) -> bool {
    match &dataset.content {
        DatasetContent::Logged(map) => {
            map.records == 1 && map.faults.is_empty() && !map.is_estimate() && map.covered() >= 1.0
        }
        _ => false,
    }
}

/// The whole page. `renewed`: time after which a browser looks for the next page.
pub fn page(files: &[FileReport], renewed: Option<Duration>) -> String {
    let mut page = Page(String::new());
    page.all(files, renewed);
    page.0
}

struct Page(String);

/// Adds formatted text, which must be escaped.
macro_rules! put {
    ($page:expr, $($text:tt)*) => {{
        // Writing to a string cannot fail.
        let _ = write!($page.0, $($text)*);
    }};
}

impl Page {
    fn all(&mut self, files: &[FileReport], renewed: Option<Duration>) {
        let title = match files {
            [file] => format!("{} – report", Text(&file.name)),
            _ => format!("report on {} logs", files.len()),
        };
        let renewed = renewed.map_or(String::new(), |renewed| {
            format!(
                "<meta http-equiv=\"refresh\" content=\"{}\">\n",
                renewed.as_secs()
            )
        });
        let now = Timestamp::now().to_zoned(TimeZone::system());
        put!(
            self,
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\n\
             {renewed}<title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<header>\n\
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

    /// Adds the head of a table. `columns`: title, and whether the column is numeric.
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
        let is_brief = log.datasets.len() > MANY_DATASETS;
        let without = |dataset: &DatasetReport| is_brief && is_described_by_row(dataset);
        self.gallery(number, &log.datasets, without);
        self.timeline(&log.timeline);
        put!(self, "<h3>Datasets</h3>\n");
        self.datasets(number, &log.datasets);
        let is_open = log.datasets.len() <= FEW_DATASETS;
        let left_out = log.datasets.iter().filter(|d| without(d)).count();
        if left_out > 0 {
            put!(
                self,
                "<p>{} datasets have no details, because one record has written all of each.</p>\n",
                Grouped(left_out)
            );
        }
        let datasets = log.datasets.iter().enumerate();
        for (at, dataset) in datasets.filter(|(_, dataset)| !without(dataset)) {
            self.dataset(
                (number, at),
                dataset,
                is_open,
                log.datasets.len() > SEVERAL_DATASETS,
            );
        }
    }

    /// Adds the pictures of the data.
    fn gallery(
        &mut self,
        file: usize,
        datasets: &[DatasetReport],
        without: impl Fn(&DatasetReport) -> bool,
    ) {
        let is_drawn = |dataset: &&DatasetReport| matches!(dataset.data, Data::Picture(_));
        let drawn = datasets.iter().filter(is_drawn).count();
        if drawn == 0 {
            return;
        }
        put!(self, "<h3>Data</h3>\n<div class=\"gallery\">\n");
        let is_terse = datasets.len() > SEVERAL_DATASETS;
        let mut pictures = Vec::new();
        for (at, dataset) in datasets.iter().enumerate() {
            if let Data::Picture(picture) = &dataset.data {
                let link = (!without(dataset)).then(|| format!("f{file}d{at}"));
                pictures.push((picture, link));
            }
        }
        pictures.sort_by_key(|(picture, _)| gallery::order(picture));
        for (picture, link) in pictures {
            match gallery::figure(picture, link.as_deref(), is_terse) {
                Ok(figure) => self.0.push_str(&figure),
                Err(error) => self.texts("faults", &[format!("{}: {error:#}", picture.name)]),
            }
        }
        put!(self, "</div>\n");
        if drawn < datasets.len() {
            put!(
                self,
                "<p class=\"soft\">{} of {} datasets have a picture.</p>\n",
                Grouped(drawn),
                Grouped(datasets.len())
            );
        }
    }

    fn timeline(&mut self, timeline: &Timeline) {
        let (flushes, ranks) = (timeline.known_flushes > 1, timeline.known_ranks > 1);
        if flushes || ranks {
            put!(self, "<h3>Who wrote when</h3>\n");
        }
        if flushes {
            self.flushes(timeline);
        }
        if ranks {
            self.ranks(timeline);
        }
        if flushes && ranks {
            self.ranks_by_flush(timeline);
        }
    }

    fn flushes(&mut self, timeline: &Timeline) {
        let columns = timeline.flushes.len();
        let sum = |x: usize| timeline.bytes.iter().skip(x).step_by(columns).sum();
        let sums: Vec<u64> = (0..columns).map(sum).collect();
        let name = |x: usize| range("flush", "flushes", timeline.flushes[x]);
        self.bars("Bytes of each flush", &sums, name);
    }

    fn ranks(&mut self, timeline: &Timeline) {
        let rows = timeline.bytes.chunks(timeline.flushes.len());
        let sums: Vec<u64> = rows.map(|row| row.iter().sum()).collect();
        let name = |y: usize| {
            let ends = timeline.ranks[y].map(|(first, last)| (first.into(), last.into()));
            range("rank", "ranks", ends)
        };
        self.bars("Bytes of each rank", &sums, name);
        put!(self, "<p>{}</p>\n", imbalance(timeline));
    }

    fn ranks_by_flush(&mut self, timeline: &Timeline) {
        let title = "Bytes by rank and flush";
        put!(self, "<h4>{title}</h4>\n<figure><div class=\"frame\">");
        let (first, last) = ends(&timeline.ranks);
        put!(
            self,
            "<div class=\"y\"><span>{first}</span><span class=\"what\">rank</span><span>{last}</span></div>"
        );
        let high = (timeline.ranks.len() as f64).clamp(4.0, 24.0) * 0.6 + 1.0;
        put!(
            self,
            "<div class=\"hold\" style=\"height:{high}rem\">{}</div>",
            svg::timeline(timeline, title)
        );
        let (first, last) = ends(&timeline.flushes);
        put!(
            self,
            "<div class=\"x\"><span>{first}</span><span>flush</span><span>{last}</span></div></div>\n"
        );
        let most = timeline.bytes.iter().copied().max().unwrap_or(0);
        put!(
            self,
            "<figcaption>The most of one cell: {}. Hatched: nothing.</figcaption></figure>\n",
            bytes(most.into())
        );
    }

    /// Adds bars with a title, the largest value, and the names of the first and the last bar.
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

    /// Adds the table of all datasets of a file.
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
        let is_brief = datasets.len() > MANY_DATASETS;
        for (at, dataset) in datasets.iter().enumerate() {
            let name = Text(&dataset.name);
            if is_brief && is_described_by_row(dataset) {
                put!(self, "<tr><td class=\"name\">{name}</td>");
                self.number(1, &"100.0 %");
                put!(self, "<td>everywhere</td>");
            } else {
                put!(
                    self,
                    "<tr><td class=\"name\"><a href=\"#f{file}d{at}\">{name}</a></td>"
                );
                self.written(&dataset.content);
            }
            let elements = dataset.dims.iter().map(|d| *d as f64).product::<f64>();
            put!(
                self,
                "<td data-key=\"{elements}\">{}</td><td>{}</td>",
                shape(&dataset.dims),
                Text(&dataset.datatype)
            );
            self.records(dataset);
            put!(self, "</tr>\n");
        }
        put!(self, "</tbody></table></div>\n");
    }

    /// Adds the written share of a dataset, and its small picture.
    fn written(&mut self, content: &DatasetContent) {
        let reason = match content {
            DatasetContent::Logged(map) => {
                let share = map.covered();
                self.number(share, &covered(share, map.is_estimate()));
                let picture = svg::small(map, "what is written");
                return put!(self, "<td>{picture}</td>");
            }
            DatasetContent::Unreadable(_) => "cannot be read",
            DatasetContent::NotLogged => "not logged",
            DatasetContent::InFile => "in the file",
        };
        self.number(-1, &"–");
        put!(self, "<td>{reason}</td>");
    }

    /// Adds number and size of its records, overwritten bytes, and pieces of its chunks.
    fn records(&mut self, dataset: &DatasetReport) {
        let DatasetContent::Logged(map) = &dataset.content else {
            return (0..4).for_each(|_| self.number(-1, &"–"));
        };
        self.number(map.records, &Grouped(map.records));
        self.number(map.stored, &bytes(map.stored.into()));
        match dataset.hidden_bytes(map) {
            Some(hidden) => self.number(hidden, &bytes(hidden)),
            None => self.number(-1, &"–"),
        }
        match mean_pieces(map) {
            Some(pieces) => self.number(pieces, &format!("{pieces:.1}")),
            None => self.number(-1, &"–"),
        }
    }

    fn dataset(
        &mut self,
        (file, at): (usize, usize),
        dataset: &DatasetReport,
        is_open: bool,
        is_terse: bool,
    ) {
        let open = if is_open { " open" } else { "" };
        let short = match &dataset.content {
            DatasetContent::Logged(map) => covered(map.covered(), map.is_estimate()) + " written",
            DatasetContent::NotLogged => "not logged".to_owned(),
            DatasetContent::InFile => "in the file".to_owned(),
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
                let is_complete = map.covered() >= 1.0 && !map.is_estimate();
                if is_complete && is_terse {
                    put!(self, "{COMPLETE}");
                    self.facts(&dataset_facts(dataset, map));
                } else {
                    self.pictures(&format!("f{file}d{at}"), dataset, map);
                    self.facts(&dataset_facts(dataset, map));
                    self.sizes(map);
                }
            }
            DatasetContent::NotLogged => {
                put!(
                    self,
                    "<p>Its elements lie in the file in one piece, and were never logged.</p>\n"
                );
            }
            DatasetContent::InFile => self.facts(&stored_facts(dataset)),
            DatasetContent::Unreadable(reason) => {
                self.texts("faults", std::slice::from_ref(reason))
            }
        }
        if let Data::None(reason) = &dataset.data {
            put!(
                self,
                "<p class=\"soft\">No picture of the data: {}</p>\n",
                Text(reason)
            );
        }
        put!(self, "</details>\n");
    }

    /// Adds the maps of a dataset, of which one is visible.
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
        let is_complete = map.covered() >= 1.0 && !map.is_estimate();
        if is_complete {
            put!(self, "{COMPLETE}");
        }
        let all = all
            .into_iter()
            .filter(|colouring| !is_complete || *colouring != Colouring::Written);
        let scales = all.map(|colouring| (colouring, Scale::of(map, colouring)));
        let scales: Vec<_> = scales.filter_map(|(c, scale)| Some((c, scale?))).collect();
        if scales.is_empty() {
            if !is_complete {
                put!(self, "<p>No record wrote to it.</p>\n");
            }
            return;
        }
        let one = if scales.len() > 1 { "" } else { " one" };
        put!(self, "<div class=\"pick{one}\">\n");
        if scales.len() > 1 {
            for (n, (colouring, _)) in scales.iter().enumerate() {
                let checked = if n == 0 { " checked" } else { "" };
                put!(
                    self,
                    "<label><input type=\"radio\" class=\"r{n}\" name=\"{id}\"{checked}>{}</label>",
                    colouring.title()
                );
            }
        }
        for (n, (colouring, scale)) in scales.iter().enumerate() {
            put!(
                self,
                "<figure class=\"view v{n}\" data-picture=\"{}\">",
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
        // Cells of a picture with two axes are squares, unless it gets too high.
        let style = match rows {
            Some(_) => format!(
                "aspect-ratio:{}/{};min-height:8rem;max-height:{}rem",
                map.grid.columns(),
                map.grid.rows(),
                (3 * map.grid.rows()).clamp(8, 28)
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

    /// Adds the sizes of the records.
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

/// The first and the last known number.
fn ends<N: Copy + Display>(classes: &[Option<(N, N)>]) -> (String, String) {
    let text = |number: Option<N>| number.map_or("?".to_owned(), |number| number.to_string());
    let mut known = classes.iter().flatten();
    let first = known.next();
    let last = known.last().or(first);
    (text(first.map(|e| e.0)), text(last.map(|e| e.1)))
}
