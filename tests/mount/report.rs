//! `h5logfs report`. The pictures show what was written, cell by cell. No text of a log is interpreted by the page.

use std::collections::HashSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use rustix::process::{Pid, Signal, kill_process};

use crate::common::encoder::{Dataset, Entry, LogFile, Type};
use crate::common::guard::Running;
use crate::common::people::{copy, corpus};
use crate::common::pnetcdf::{self, Case};
use crate::common::readers::said;
use crate::common::settled::settle;
use crate::common::unclosed::{Block, Log};
use crate::common::{PROGRAM, wait_long_until};

fn report(dir: &Path, arguments: &[&str]) -> Output {
    let mut program = Command::new(PROGRAM);
    let program = program.arg("report").args(arguments).current_dir(dir);
    program.output().unwrap()
}

/// Starts to watch a log, with this page.
fn watch(page: &Path, log: &Path) -> Running {
    let mut program = Command::new(PROGRAM);
    let program = program.args(["report", "--watch", "-o"]).args([page, log]);
    Running(program.spawn().unwrap())
}

/// The page for these files.
fn page(dir: &Path, files: &[&str]) -> String {
    let output = report(dir, &[files, &["--force", "-o", "page.html"]].concat());
    assert!(output.status.success(), "{}", said(&output));
    fs::read_to_string(dir.join("page.html")).unwrap()
}

/// A log of bytes, written by ranks in flushes.
struct MadeUp {
    dims: Vec<u64>,
    /// Rank, flush from 1, start and count of each write, in the order of flushes.
    writes: Vec<(u32, u64, Vec<u64>, Vec<u64>)>,
}

/// The model of a cell.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
struct Cell {
    elements: u64,
    written: u64,
    logged: u64,
    rank: u32,
    flush: u64,
}

impl MadeUp {
    fn write(&self, path: &Path, name: &str) {
        let definition = format!(
            r#"{{"path":"/{name}","layout":{{"datatype":{{"integer":{{"size":1,"signed":false}}}},"dims":{:?},"max_dims":{:?}}}}}"#,
            self.dims, self.dims
        );
        let mut log = Log::of_datasets(path, &[definition]);
        for flush in 1..=self.writes.last().unwrap().1 {
            for (rank, _, start, count) in self.writes.iter().filter(|write| write.1 == flush) {
                let block = Block {
                    dataset: 0,
                    start: start.clone(),
                    count: count.clone(),
                    values: vec![7; count.iter().product::<u64>() as usize],
                };
                log.extent_of(*rank, &[block]);
            }
            log.commit();
        }
    }

    /// The cells with these sides along some dimensions, computed element by element.
    fn cells(&self, axes: &[(usize, u64)]) -> Vec<Cell> {
        let across: Vec<u64> = (axes.iter())
            .map(|(d, side)| self.dims[*d].div_ceil(*side))
            .collect();
        let cell = |at: &[u64]| {
            axes.iter()
                .zip(&across)
                .fold(0, |n, ((d, side), across)| n * across + at[*d] / side)
        };
        let mut cells = vec![Cell::default(); across.iter().product::<u64>() as usize];
        each(&vec![0; self.dims.len()], &self.dims, |at| {
            cells[cell(at) as usize].elements += 1
        });
        let mut seen = HashSet::new();
        for (rank, flush, start, count) in &self.writes {
            each(start, count, |at| {
                let cell = &mut cells[cell(at) as usize];
                cell.logged += 1;
                cell.written += u64::from(seen.insert(at.to_vec()));
                (cell.rank, cell.flush) = (*rank, *flush);
            });
        }
        cells
    }
}

fn each(start: &[u64], count: &[u64], mut visit: impl FnMut(&[u64])) {
    let all: u64 = count.iter().product();
    for mut number in 0..all {
        let mut at = start.to_vec();
        for d in (0..start.len()).rev() {
            at[d] += number % count[d];
            number /= count[d];
        }
        visit(&at);
    }
}

/// A picture of a page.
struct Picture {
    /// Title of each cell, row by row; empty where nothing is drawn.
    titles: Vec<String>,
    columns: usize,
    /// The vertical and horizontal dimensions, and the number of elements in a cell.
    axes: Vec<(usize, u64)>,
}

fn between<'a>(text: &'a str, before: &str, after: &str) -> &'a str {
    let start = text
        .find(before)
        .unwrap_or_else(|| panic!("no {before} in {text}"))
        + before.len();
    let len = text[start..].find(after).unwrap();
    &text[start..start + len]
}

fn digits(text: &str) -> u64 {
    let digits: String = text.chars().filter(char::is_ascii_digit).collect();
    digits.parse().unwrap()
}

/// The first picture of this kind.
fn picture(page: &str, kind: &str) -> Picture {
    let figure = between(page, &format!("data-picture=\"{kind}\">"), "</figure>");
    let svg = between(figure, "<svg class=\"map\"", "</svg>");
    let sides: Vec<usize> = between(svg, "viewBox=\"0 0 ", "\"")
        .split(' ')
        .map(|side| side.parse().unwrap())
        .collect();
    let (columns, rows) = (sides[0], sides[1]);
    let mut titles = vec![String::new(); columns * rows];
    for path in svg.split("<path ").skip(1) {
        let title = between(path, "<title>", "</title>");
        for rectangle in between(path, " d=\"", "\"").split('M').skip(1) {
            let numbers: Vec<usize> = rectangle
                .split(|c: char| !c.is_ascii_digit())
                .filter_map(|number| number.parse().ok())
                .collect();
            // x, y, width, height, width
            let (x, y, width) = (numbers[0], numbers[1], numbers[2]);
            assert_eq!(numbers[3..], [1, width], "{rectangle}");
            for cell in &mut titles[y * columns + x..y * columns + x + width] {
                assert!(cell.is_empty(), "two rectangles cover a cell");
                *cell = title.to_owned();
            }
        }
    }
    // "A cell is 5 of dimension 0 by 2 of dimension 2, with …".
    let caption = between(figure, "<figcaption>", "</figcaption>");
    let axes = between(caption, "A cell is ", ".")
        .split(" by ")
        .map(|axis| {
            let (side, rest) = axis.split_once(" of dimension ").unwrap();
            (
                digits(rest.split(',').next().unwrap()) as usize,
                digits(side),
            )
        });
    Picture {
        titles,
        columns,
        axes: axes.collect(),
    }
}

/// Pages of logs with one, two and three dimensions, with gaps, overlaps and partly written cells.
#[test]
fn pictures_show_what_was_written_cell_by_cell() {
    let dir = tempfile::tempdir().unwrap();
    let line = MadeUp {
        dims: vec![900],
        writes: vec![
            (0, 1, vec![0], vec![300]),
            (1, 1, vec![411], vec![100]),
            (0, 2, vec![250], vec![200]),
            (2, 3, vec![899], vec![1]),
        ],
    };
    let plane = MadeUp {
        dims: vec![40, 60],
        writes: vec![
            (0, 1, vec![0, 0], vec![20, 30]),
            (1, 1, vec![20, 30], vec![20, 30]),
            (3, 2, vec![10, 25], vec![5, 10]),
            (3, 2, vec![39, 0], vec![1, 7]),
        ],
    };
    let space = MadeUp {
        dims: vec![250, 3, 500],
        writes: vec![
            (0, 1, vec![0, 0, 0], vec![100, 1, 500]),
            (1, 1, vec![90, 1, 33], vec![77, 2, 44]),
            (1, 2, vec![249, 2, 499], vec![1, 1, 1]),
        ],
    };
    for (name, log) in [("line", &line), ("plane", &plane), ("space", &space)] {
        log.write(&dir.path().join(name), name);
        let page = page(dir.path(), &[name]);
        let shown = picture(&page, "written");
        assert!(shown.titles.len() <= 20_000 && shown.columns <= 200);
        let cells = log.cells(&shown.axes);
        assert_eq!(cells.len(), shown.titles.len(), "{name}: {:?}", shown.axes);
        for (number, (cell, title)) in cells.iter().zip(&shown.titles).enumerate() {
            let expected = match cell.written * 10 / cell.elements {
                _ if cell.written == 0 => String::new(),
                10 => "all written".to_owned(),
                tenth => format!("{} to {} % written", 10 * tenth, 10 * tenth + 10),
            };
            assert_eq!(
                *title, expected,
                "{name}: cell {number} of {:?}",
                shown.axes
            );
        }
        let by = |kind: &str, number: fn(&Cell) -> u64| {
            let shown = picture(&page, kind);
            for (cell, title) in log.cells(&shown.axes).iter().zip(&shown.titles) {
                let expected = match cell.logged {
                    0 => String::new(),
                    _ => format!("{kind} {}", number(cell)),
                };
                assert_eq!(*title, expected, "{name}");
            }
        };
        by("rank", |cell| cell.rank.into());
        by("flush", |cell| cell.flush);
        let all: u64 = cells.iter().map(|cell| cell.elements).sum();
        let written: u64 = cells.iter().map(|cell| cell.written).sum();
        let share = (written as f64 / all as f64 * 1000.0).floor() / 10.0;
        assert!(
            page.contains(&format!("<dt>Written</dt><dd>{share:.1} %</dd>")),
            "{share}"
        );
    }
    // The line was written twice from 250 to 300, and from 411 to 450.
    let page = page(dir.path(), &["line"]);
    let shown = picture(&page, "times");
    for (cell, title) in line.cells(&shown.axes).iter().zip(&shown.titles) {
        match cell.logged.checked_sub(cell.written) {
            _ if cell.logged == 0 => assert_eq!(title, ""),
            Some(0) => assert_eq!(title, "once"),
            _ => assert!(title.ends_with(" times"), "{title}"),
        }
    }
    assert!(page.contains("<dt>Hidden by later writes</dt><dd>89 B</dd>"));
    assert!(page.contains("<dt>Last complete flush</dt><dd>3</dd>"));
    assert!(page.contains("left unclosed"));
}

/// Pages have the ranks and flushes of all logs that record them. Our writer's logs keep them when closed.
#[test]
fn ranks_and_flushes_are_those_of_the_log() {
    let known = |page: &str, what: &str| {
        let (_, after) = page.split_once(&format!("<dt>{what} with data</dt><dd>"))?;
        Some(digits(after.split('<').next().unwrap()))
    };
    let dir = tempfile::tempdir().unwrap();
    for (log, flushes, ranks) in [
        ("corpus/overlap.log.h5", Some(3), Some(4)),
        ("corpus/subfile.log.h5", Some(1), Some(4)),
        ("corpus/reopen.log.h5", Some(2), Some(2)),
        ("corpus-pnetcdf/rand-cdf2-np4/file.nc", None, Some(4)),
    ] {
        let page = page(dir.path(), &[corpus(log).to_str().unwrap()]);
        assert_eq!(known(&page, "Flushes"), flushes, "{log}");
        assert_eq!(known(&page, "Ranks"), ranks, "{log}");
    }
    let log = MadeUp {
        dims: vec![30],
        writes: vec![
            (0, 1, vec![0], vec![10]),
            (2, 1, vec![20], vec![5]),
            (1, 3, vec![5], vec![10]),
        ],
    };
    log.write(&dir.path().join("log"), "d");
    let pictures = || {
        let page = page(dir.path(), &["log"]);
        ["rank", "flush"].map(|kind| picture(&page, kind).titles)
    };
    let before = pictures();
    assert_eq!(before[0][24], "rank 2");
    assert_eq!(before[1][5], "flush 3");
    let mut recover = Command::new(PROGRAM);
    let recovered = recover.arg("recover").arg(dir.path().join("log")).output();
    assert!(recovered.unwrap().status.success());
    assert_eq!(pictures(), before);
    assert!(page(dir.path(), &["log"]).contains("<dt>State</dt><dd>closed</dd>"));
}

#[test]
fn dimensions_can_be_chosen() {
    let dir = tempfile::tempdir().unwrap();
    let space = MadeUp {
        dims: vec![8, 3, 9],
        writes: vec![(0, 1, vec![0, 2, 4], vec![3, 1, 5])],
    };
    space.write(&dir.path().join("log"), "d");
    let output = report(dir.path(), &["log", "-o", "page.html", "--axes", "1,0"]);
    assert!(output.status.success(), "{}", said(&output));
    let page = fs::read_to_string(dir.path().join("page.html")).unwrap();
    let shown = picture(&page, "written");
    assert_eq!(shown.axes, [(1, 1), (0, 1)]);
    for (cell, title) in space.cells(&shown.axes).iter().zip(&shown.titles) {
        assert_eq!(title.is_empty(), cell.written == 0);
    }
    for axes in ["0,0", "1", "a,b", ""] {
        let output = report(dir.path(), &["log", "-o", "-", "--axes", axes]);
        assert!(!output.status.success(), "{axes}");
    }
    let output = report(dir.path(), &["log", "-o", "-", "--axes", "0,3"]);
    let page = String::from_utf8(output.stdout).unwrap();
    assert!(page.contains("it has no dimension 3"));
}

/// Users choose the names of files and datasets. A page has a single script, which is ours, and needs nothing from
/// elsewhere.
#[test]
fn names_are_text_whatever_they_contain() {
    let dir = tempfile::tempdir().unwrap();
    let name = r#"<img src=x onerror=alert(1)>"'&<!--"#;
    let log = MadeUp {
        dims: vec![4],
        writes: vec![(0, 1, vec![0], vec![2])],
    };
    let escaped = name.replace('"', "\\\"");
    log.write(&dir.path().join(name), &escaped);
    let page = page(dir.path(), &[name]);
    assert!(!page.contains("<img") && !page.contains("<!--"));
    let shown = "&lt;img src=x onerror=alert(1)&gt;&quot;&#39;&amp;&lt;!--";
    // The name occurs in the title, the heading, the table, the details and the labels of pictures.
    assert!(page.matches(shown).count() >= 5);
    assert_eq!(page.matches("<script").count(), 1);
    for elsewhere in ["http:", "https:", "src=\"", "url(", "@import"] {
        assert!(!page.contains(elsewhere), "{elsewhere}");
    }
    assert!(page.contains("default-src 'none'"));
}

#[test]
fn several_logs_are_one_page_and_a_damaged_one_tells_its_fault() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    for name in ["nd.log.h5", "bad_foff.log.h5"] {
        copy(&corpus(&format!("corpus/{name}")), &at(name));
    }
    let whole = fs::read(at("nd.log.h5")).unwrap();
    fs::write(at("cut.h5"), &whole[..whole.len() / 2]).unwrap();
    Log::usual(&at("dead.h5"));
    let files = [
        "nd.log.h5",
        "cut.h5",
        "dead.h5",
        "bad_foff.log.h5",
        "none.h5",
    ];
    let output = report(dir.path(), &[&files[..], &["-o", "page.html"]].concat());
    assert!(!output.status.success());
    assert!(
        said(&output).contains("2 of 5 files cannot be read"),
        "{}",
        said(&output)
    );
    let page = fs::read_to_string(at("page.html")).unwrap();
    assert_eq!(page.matches("<section class=\"file\"").count(), 5);
    let of_file = |number: usize| {
        let from = page.find(&format!("id=\"f{number}\"")).unwrap();
        &page[from..from + page[from..].find("</section>").unwrap()]
    };
    assert!(of_file(0).contains("Complete: every element is written."));
    assert!(of_file(1).contains("class=\"faults\"") && of_file(1).contains("cut.h5"));
    assert!(of_file(2).contains("`h5logfs recover dead.h5`"));
    assert!(of_file(3).contains("class=\"faults\""));
    assert!(of_file(4).contains("No such file"));
    // An existing page is not replaced without a request.
    let output = report(dir.path(), &["dead.h5", "-o", "page.html"]);
    assert!(said(&output).contains("--force"), "{}", said(&output));
}

#[test]
fn no_page_takes_the_place_of_a_log() {
    let dir = tempfile::tempdir().unwrap();
    let log = Log::usual(&dir.path().join("dead.h5"));
    fs::hard_link(log.path(), dir.path().join("other name")).unwrap();
    let journal = log.journal_path();
    let journal_name = journal.file_name().unwrap().to_str().unwrap();
    let before = (fs::read(log.path()).unwrap(), fs::read(&journal).unwrap());
    for out in ["dead.h5", "other name", journal_name] {
        let output = report(dir.path(), &["dead.h5", "--force", "-o", out]);
        assert!(!output.status.success(), "{out}");
        assert_eq!(
            before,
            (fs::read(log.path()).unwrap(), fs::read(&journal).unwrap())
        );
    }
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 3);
}

/// The last page shows the last state of a log that is settled between two looks.
#[test]
fn a_watched_page_stays_when_its_log_is_settled() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log.h5");
    let mut log = Log::begin(&path);
    log.extend(1);
    log.extent(0, &[(0, b"x")]);
    log.flush();
    let out = dir.path().join("page.html");
    let mut watching = watch(&out, &path);
    wait_long_until("the page", || out.exists());
    let pid = Pid::from_child(&watching.0);
    kill_process(pid, Signal::STOP).unwrap();
    let recovered = Command::new(PROGRAM).arg("recover").arg(&path).output();
    assert!(recovered.unwrap().status.success());
    settle(&path).unwrap();
    kill_process(pid, Signal::CONT).unwrap();
    assert!(watching.0.wait().unwrap().success());
    let page = fs::read_to_string(&out).unwrap();
    assert!(page.contains("<dt>State</dt><dd>settled</dd>"));
    assert!(
        page.contains("Complete: every element is written.")
            && !page.contains("http-equiv=\"refresh\"")
    );
}

#[test]
fn a_watched_page_is_renewed_until_the_log_is_closed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log.h5");
    let mut log = Log::begin(&path);
    let mut grow = |flush: u64| {
        log.extend(flush);
        log.extent(0, &[(flush - 1, b"x")]);
        log.flush();
    };
    grow(1);
    let out = dir.path().join("page.html");
    let mut watching = watch(&out, &path);
    let shows = |words: &str| fs::read_to_string(&out).is_ok_and(|page| page.contains(words));
    wait_long_until("the page", || shows("http-equiv=\"refresh\""));
    grow(2);
    wait_long_until("the second page", || shows("flush 2"));
    assert!(
        report(dir.path(), &["log.h5", "--watch", "-o", "page.html"])
            .status
            .code()
            == Some(1)
    );
    let recovered = Command::new(PROGRAM).arg("recover").arg(&path).output();
    assert!(recovered.unwrap().status.success());
    assert!(watching.0.wait().unwrap().success());
    assert!(!shows("http-equiv=\"refresh\""));
}

/// The logs beside a netCDF file number no flushes, and are removed once their data is in the file.
#[test]
fn a_watched_page_is_renewed_until_the_logs_beside_a_file_are_gone() {
    let dir = tempfile::tempdir().unwrap();
    let case = Case::read(&pnetcdf::corpus().join("records-cdf2-np4"));
    let path = case.lay_out(dir.path());
    let of_rank = |rank: u32, kind| path.with_file_name(format!("file.nc_0_{rank}.{kind}"));
    let late = of_rank(3, "meta");
    let kept = fs::read(&late).unwrap();
    fs::remove_file(&late).unwrap();
    let out = dir.path().join("page.html");
    let mut watching = watch(&out, &path);
    let page = || fs::read_to_string(&out).unwrap_or_default();
    wait_long_until("the page", || {
        page().contains("http-equiv=\"refresh\"")
            && page().contains("file.nc_0_3.data: its metadata log is not there")
    });
    fs::write(&late, kept).unwrap();
    wait_long_until("the second page", || {
        page().contains("http-equiv=\"refresh\"")
            && !page().contains("its metadata log is not there")
    });
    fs::write(&path, fs::read(case.file("expected.nc")).unwrap()).unwrap();
    for rank in 0..4 {
        fs::remove_file(of_rank(rank, "data")).unwrap();
        fs::remove_file(of_rank(rank, "meta")).unwrap();
    }
    assert!(watching.0.wait().unwrap().success());
    let page = page();
    assert!(page.contains("<dt>State</dt><dd>closed</dd>"));
    assert!(page.contains("closed: all data are in the file itself"));
    assert!(page.contains("data-picture=\"written\"") && !page.contains("http-equiv=\"refresh\""));
}

/// Thousands of small datasets get a row each, and details only where a row is not enough.
#[test]
fn a_page_of_many_datasets_stays_small() {
    const MANY: i32 = 1001;
    let dir = tempfile::tempdir().unwrap();
    let datasets = (0..MANY).map(|n| Dataset::new(&format!("d{n}"), n, Type::U8, &[8]));
    let entries = (0..MANY).map(|n| {
        // One of them is partly unwritten.
        let count = if n == 7 { 5 } else { 8 };
        Entry::one(n, &[0], &[count], vec![1; count as usize])
    });
    LogFile::with(datasets.collect(), entries.collect()).write(&dir.path().join("many.h5"));
    let page = page(dir.path(), &["many.h5"]);
    assert_eq!(page.matches("<details").count(), 1);
    assert!(page.contains("<b>/d7</b>") && page.matches("href=\"#f0d").count() == 1);
    assert!(page.contains("<p>1\u{2009}000 datasets have no details,"));
    assert!(page.len() < MANY as usize * 500, "{} bytes", page.len());
}

/// The bytes of the first image of the data on a page.
fn first_image(page: &str) -> Vec<u8> {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let text = between(page, "src=\"data:image/png;base64,", "\"");
    let number = |letter: &u8| LETTERS.iter().position(|known| known == letter);
    let numbers: Vec<usize> = text.bytes().filter_map(|letter| number(&letter)).collect();
    let bits = |four: &[usize]| {
        four.iter()
            .enumerate()
            .fold(0, |bits, (n, number)| bits | number << (18 - 6 * n))
    };
    let three = |four: &[usize]| (bits(four) as u32).to_be_bytes()[1..four.len()].to_vec();
    numbers.chunks(4).flat_map(three).collect()
}

/// An image shows each number by its colour, and leaves fill values blank.
#[test]
fn pictures_show_the_data() {
    let dir = tempfile::tempdir().unwrap();
    let mut plane = Dataset::new("plane", 0, Type::U8, &[4, 4]);
    plane.fill = Some(vec![200]);
    let line = Dataset::new("line", 1, Type::U8, &[9]);
    let values: Vec<u8> = (0..12).collect();
    let entries = vec![
        // The last row is not written.
        Entry::one(0, &[0, 0], &[3, 4], values.clone()),
        Entry::one(1, &[0], &[9], vec![5, 6, 50, 8, 9, 1, 2, 3, 4]),
    ];
    LogFile::with(vec![plane, line], entries).write(&dir.path().join("log.h5"));
    let page = page(dir.path(), &["log.h5"]);
    let mut decoder = png::Decoder::new(std::io::Cursor::new(first_image(&page)));
    decoder.set_transformations(png::Transformations::IDENTITY);
    let mut reader = decoder.read_info().unwrap();
    assert_eq!(reader.info().size(), (4, 4));
    let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
    reader.next_frame(&mut pixels).unwrap();
    // Colour 0 is transparent, and 64 others follow.
    let colour = |value: &u8| (f64::from(*value) / 11.0 * 63.0).round() as u8 + 1;
    let expected: Vec<u8> = values.iter().map(colour).chain([0; 4]).collect();
    assert_eq!(pixels, expected);
    let card = between(&page, ">/plane</a>", "</figure>");
    assert!(
        card.contains("4 fill values") && card.contains("<span>11</span>"),
        "{card}"
    );
    let card = between(&page, ">/line</a>", "</figure>");
    assert!(
        card.contains("<svg class=\"line\"") && card.contains("<span>50</span>"),
        "{card}"
    );
    // The line is wholly written, and the plane is not.
    assert_eq!(
        page.matches("Complete: every element is written.").count(),
        1
    );
    assert_eq!(page.matches("data-picture=\"written\"").count(), 1);
}

/// Files of every layout, and plain ones, have their datasets and pictures; what cannot be read says why.
#[test]
fn pages_of_all_layouts_show_their_data() {
    let dir = tempfile::tempdir().unwrap();
    for (file, drawn) in [
        ("corpus/nd.expected.h5", 3),
        ("corpus-striped/contig_2/data.h5", 3),
        ("corpus-striped/family", 3),
        ("corpus-adios/b4_steps.bp", 1),
        ("corpus-adios/b5_steps.bp", 1),
        ("corpus-scorpio/eam_h0_gaussian_15x30.nc.bp", 50),
        ("corpus-tiles/fms_scatter", 10),
        ("corpus-pnetcdf/records-cdf2-np4/file.nc", 4),
    ] {
        let page = page(dir.path(), &[corpus(file).to_str().unwrap()]);
        let found = page.matches("<figure class=\"card\">").count();
        assert!(found >= drawn, "{file}: {found} pictures");
        assert!(!page.contains("<dt>Datasets</dt><dd>0</dd>"), "{file}");
    }
    let page = page(
        dir.path(),
        &[corpus("corpus-striped/missing_2of3/data.h5")
            .to_str()
            .unwrap()],
    );
    assert!(
        page.contains("No picture of the data: ") && page.contains("which is missing"),
        "{page}"
    );
}

/// Hundreds of datasets make a page that a browser opens at once.
#[test]
fn a_page_of_hundreds_of_pictures_stays_below_a_megabyte() {
    const SEVERAL: i32 = 400;
    let dir = tempfile::tempdir().unwrap();
    let name = |n: i32| format!("number_of_the_dataset_{n}");
    let datasets = (0..SEVERAL).map(|n| Dataset::new(&name(n), n, Type::U8, &[2, 40, 60]));
    // Noise, which no image compresses.
    let mut state = 1u32;
    let mut noise = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    let entries = (0..SEVERAL).map(|n| {
        Entry::one(
            n,
            &[0, 0, 0],
            &[2, 40, 60],
            (0..4800).map(|_| noise()).collect(),
        )
    });
    LogFile::with(datasets.collect(), entries.collect()).write(&dir.path().join("log.h5"));
    let page = page(dir.path(), &["log.h5"]);
    assert_eq!(
        page.matches("<figure class=\"card\">").count(),
        SEVERAL as usize
    );
    assert!(page.len() < 1_000_000, "{} bytes", page.len());
}
