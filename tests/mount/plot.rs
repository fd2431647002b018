//! `h5logfs plot`: pictures of datasets, as characters and as files.

use std::fs;
use std::io::Cursor;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::common::PROGRAM;
use crate::common::encoder::{Dataset, Entry, LogFile, Type};
use crate::common::people::corpus;
use crate::common::readers::said;

/// Plain characters for equal parts of the scale.
const SHADES: &[u8] = b".:-=+*#%@";

fn plot(dir: &Path, arguments: &[&str]) -> Output {
    let mut program = Command::new(PROGRAM);
    let program = program.arg("plot").args(arguments).current_dir(dir);
    program.env_remove("COLUMNS").output().unwrap()
}

fn printed(dir: &Path, arguments: &[&str]) -> String {
    let output = plot(dir, arguments);
    assert!(output.status.success(), "{arguments:?}: {}", said(&output));
    String::from_utf8(output.stdout).unwrap()
}

/// A log with `/plane` of 4 by 4 bytes from 0 to 15, `/line` of 3 bytes and `/space` of 3 by 4 by 4, of which 2 are written.
fn log(dir: &Path) -> PathBuf {
    let datasets = vec![
        Dataset::new("plane", 0, Type::U8, &[4, 4]),
        Dataset::new("line", 1, Type::U8, &[3]),
        Dataset::new("space", 2, Type::U8, &[3, 4, 4]),
        Dataset::new("text", 3, Type::String5, &[1]),
    ];
    let entries = vec![
        Entry::one(0, &[0, 0], &[4, 4], (0..16).collect()),
        Entry::one(1, &[0], &[3], vec![0, 9, 4]),
        Entry::one(2, &[0, 0, 0], &[1, 4, 4], vec![1; 16]),
        Entry::one(2, &[1, 0, 0], &[1, 4, 4], (100..116).collect()),
        Entry::one(3, &[0], &[1], b"hello".to_vec()),
    ];
    let path = dir.join("log.h5");
    LogFile::with(datasets, entries).write(&path);
    path
}

/// The rows of the picture of a plane of 4 by 4 numbers from 0 to 15, as characters.
fn model(rows: usize, columns: usize, value: impl Fn(usize, usize) -> usize) -> Vec<String> {
    let shade = |value: usize| char::from(SHADES[(value * SHADES.len() / 15).min(8)]);
    let row = |y| {
        (0..columns)
            .map(|x| shade(value(y * 4 / rows, x * 4 / columns)))
            .collect()
    };
    (0..rows).map(row).collect()
}

#[test]
fn a_pipe_gets_plain_characters() {
    let dir = tempfile::tempdir().unwrap();
    log(dir.path());
    // 24 rows of 80 columns leave 17 rows for the picture, which is square in letters twice as high as wide.
    for (name, value) in [
        ("plane", (|y, x| y * 4 + x) as fn(usize, usize) -> usize),
        ("plane[:, ::-1]", |y, x| y * 4 + 3 - x),
        ("/space[1]", |y, x| y * 4 + x),
        // The last written step.
        ("space", |y, x| y * 4 + x),
    ] {
        let text = printed(dir.path(), &["log.h5", name]);
        let picture = text
            .lines()
            .skip(2)
            .take(17)
            .map(|line| line[11..].to_owned());
        assert_eq!(picture.collect::<Vec<_>>(), model(17, 34, value), "{text}");
        assert!(text.is_ascii(), "{text}");
    }
    let text = printed(dir.path(), &["log.h5", "space"]);
    assert!(text.starts_with("space[1, :, :]\n"), "{text}");
    let text = printed(dir.path(), &["log.h5", "line"]);
    assert!(text.contains('*') && text.contains("0 to 9"), "{text}");
    let text = printed(dir.path(), &["log.h5", "line[1]"]);
    assert_eq!(text, "line[1]\n9\n");
}

/// The output of a command in a terminal, as util-linux's `script` gives it.
fn in_terminal(dir: &Path, command: &str, variables: &[(&str, &str)]) -> String {
    let mut script = Command::new("script");
    script.args(["-qec", command, "/dev/null"]).current_dir(dir);
    for name in ["NO_COLOR", "COLORTERM", "LC_ALL", "LC_CTYPE"] {
        script.env_remove(name);
    }
    script
        .env("LANG", "C.UTF-8")
        .envs(variables.iter().copied());
    let output = script.output().unwrap();
    assert!(output.status.success(), "{command}: {}", said(&output));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_terminal_gets_its_colours() {
    let dir = tempfile::tempdir().unwrap();
    log(dir.path());
    let plot = format!("{PROGRAM} plot log.h5 plane");
    let few = ("TERM", "xterm-256color");
    let all = in_terminal(dir.path(), &plot, &[few, ("COLORTERM", "truecolor")]);
    assert!(all.contains('▀') && all.contains("\x1b[48;2;"), "{all}");
    let few_colours = in_terminal(dir.path(), &plot, &[few]);
    assert!(
        few_colours.contains("\x1b[48;5;") && !few_colours.contains(";2;"),
        "{few_colours}"
    );
    for variable in [("NO_COLOR", "1"), ("LANG", "C"), ("TERM", "dumb")] {
        let plain = in_terminal(dir.path(), &plot, &[few, variable]);
        assert!(plain.is_ascii() && !plain.contains('\x1b'), "{plain}");
    }
}

/// States and verdicts have colours in a terminal alone.
#[test]
fn words_have_colours_in_a_terminal() {
    let dir = tempfile::tempdir().unwrap();
    log(dir.path());
    fs::copy(corpus("corpus/bad_foff.log.h5"), dir.path().join("bad.h5")).unwrap();
    for (command, coloured) in [
        ("check log.h5 2>/dev/null", "\x1b[32mgood\x1b[0m"),
        ("check bad.h5 2>/dev/null; true", "\x1b[31m"),
        ("ls .", "\x1b[31m"),
        ("inspect bad.h5", "\x1b[31m"),
        ("doctor; true", "\x1b[32mgood\x1b[0m: "),
    ] {
        let command = format!("{PROGRAM} {command}");
        let text = in_terminal(dir.path(), &command, &[("TERM", "linux")]);
        assert!(text.contains(coloured), "{command}: {text}");
        let plain = in_terminal(
            dir.path(),
            &command,
            &[("TERM", "linux"), ("NO_COLOR", "1")],
        );
        assert!(!plain.contains('\x1b'), "{command}: {plain}");
        let piped = Command::new("sh")
            .args(["-c", &command])
            .current_dir(dir.path())
            .output()
            .unwrap();
        assert!(!piped.stdout.contains(&0x1b), "{command}");
    }
}

/// Long commands end with a line about the file that they made.
#[test]
fn the_last_line_tells_sizes_and_time() {
    let dir = tempfile::tempdir().unwrap();
    log(dir.path());
    for command in [
        "compact log.h5 small.h5",
        "export log.h5 whole.h5",
        "settle log.h5",
    ] {
        let text = in_terminal(
            dir.path(),
            &format!("{PROGRAM} {command}"),
            &[("TERM", "linux")],
        );
        let last = text.trim_end().lines().last().unwrap();
        let name = command.rsplit(' ').next().unwrap();
        assert!(
            last.contains(&format!("{name}: ")) && last.contains(", in "),
            "{text}"
        );
    }
}

#[test]
fn an_image_has_the_colours_of_the_numbers() {
    let dir = tempfile::tempdir().unwrap();
    log(dir.path());
    printed(dir.path(), &["log.h5", "plane", "-o", "plane.png"]);
    let mut reader =
        png::Decoder::new(Cursor::new(fs::read(dir.path().join("plane.png")).unwrap()))
            .read_info()
            .unwrap();
    let (width, height) = reader.info().size();
    let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
    reader.next_frame(&mut pixels).unwrap();
    assert_eq!((width, height), (960, 640));
    let pixel = |x: u32, y: u32| &pixels[((y * width + x) * 3) as usize..][..3];
    // The picture is a square of 470 pixels from (100, 70) on. The ends of the scale have the ends of viridis.
    let near = |x, y, colour: [u8; 3]| {
        pixel(x, y)
            .iter()
            .zip(colour)
            .all(|(a, b)| a.abs_diff(b) < 8)
    };
    assert!(near(110, 80, [68, 1, 84]), "{:?}", pixel(110, 80));
    assert!(near(560, 530, [253, 231, 37]), "{:?}", pixel(560, 530));
    // Number 8 of 0 to 15 is a little behind the middle.
    assert!(near(110, 310, [31, 155, 138]), "{:?}", pixel(110, 310));
    assert_eq!(pixel(950, 10), [255; 3]);
    let svg = dir.path().join("line.svg");
    printed(
        dir.path(),
        &["log.h5", "line", "-o", "line.svg", "--range", "-1,10"],
    );
    let text = fs::read_to_string(&svg).unwrap();
    assert!(
        text.starts_with("<svg") && text.contains("<polyline"),
        "{text}"
    );
    assert!(
        text.contains("<title>line</title>") && text.contains("dimension 0"),
        "{text}"
    );
}

/// A log and the file that its program would have made otherwise look the same.
#[test]
fn logs_of_all_layouts_look_like_plain_files() {
    let dir = tempfile::tempdir().unwrap();
    for (log, plain, dataset) in [
        ("corpus/nd.log.h5", "corpus/nd.expected.h5", None),
        ("corpus/subfile.log.h5", "corpus/subfile.expected.h5", None),
        ("corpus/deflate.log.h5", "corpus/deflate.expected.h5", None),
        (
            "corpus-adios/b4_steps.bp",
            "corpus-adios/b4_steps.expected.h5",
            None,
        ),
        (
            "corpus-adios/b5_steps.bp",
            "corpus-adios/b5_steps.expected.h5",
            None,
        ),
        (
            "corpus-scorpio/eam_h0_gaussian_15x30.nc.bp",
            "corpus-scorpio/eam_h0_gaussian_15x30.expected.nc",
            Some("TS"),
        ),
        (
            "corpus-striped/contig_2/data.h5",
            "corpus-striped/contig_2.expected.h5",
            None,
        ),
    ] {
        let [log, plain] = [log, plain].map(corpus);
        let datasets = match dataset {
            Some(name) => vec![name.to_owned()],
            None => datasets_of_numbers(&plain),
        };
        assert!(!datasets.is_empty(), "{}", plain.display());
        for dataset in datasets {
            let [of_log, of_plain] = [&log, &plain].map(|file| {
                let path = file.to_str().unwrap();
                printed(dir.path(), &[path, &dataset, "--force", "-o", "out.svg"]);
                let name = file.file_name().unwrap().to_str().unwrap();
                let svg = fs::read_to_string(dir.path().join("out.svg")).unwrap();
                (
                    svg.replace(name, "NAME"),
                    printed(dir.path(), &[path, &dataset]),
                )
            });
            assert_eq!(of_log, of_plain, "{} {dataset}", log.display());
        }
    }
}

/// Some datasets of a plain file whose elements are numbers.
fn datasets_of_numbers(file: &Path) -> Vec<String> {
    let file = hdf5::File::open(file).unwrap();
    let is_number = |dataset: &hdf5::Dataset| {
        use hdf5::types::TypeDescriptor::{Float, Integer, Unsigned};
        let found = dataset.dtype().unwrap().to_descriptor();
        matches!(found, Ok(Float(_) | Integer(_) | Unsigned(_))) && dataset.size() > 0
    };
    let datasets = file.datasets().unwrap().into_iter().filter(is_number);
    datasets.take(3).map(|dataset| dataset.name()).collect()
}

#[test]
fn errors_say_what_helps() {
    let dir = tempfile::tempdir().unwrap();
    let path = log(dir.path());
    let before = fs::read(&path).unwrap();
    fs::write(dir.path().join("plain.txt"), "no HDF5").unwrap();
    fs::write(dir.path().join("old.png"), "old").unwrap();
    for (arguments, words) in [
        (&["log.h5", "plan"][..], "did you mean plane?"),
        (&["log.h5", "plane[4]"], "index 4 of a dimension of 4"),
        (
            &["log.h5", "plane[0,0,0]"],
            "3 indices for a dataset of 2 dimensions",
        ),
        (&["log.h5", "plane[0:0]"], "there are no elements"),
        (&["log.h5", "text"], "not real numbers"),
        (&["log.h5"], "say which dataset"),
        (&["plain.txt", "a"], "plain.txt"),
        (&["none.h5", "a"], "none.h5"),
        (&["log.h5", "plane", "-o", "old.png"], "--force"),
        (&["log.h5", "plane", "-o", "a.jpg"], ".png or .svg"),
        (
            &["log.h5", "plane", "--range", "2,1"],
            "the smaller one first",
        ),
    ] {
        let output = plot(dir.path(), arguments);
        assert!(!output.status.success(), "{arguments:?}");
        assert!(
            said(&output).contains(words),
            "{arguments:?}: {}",
            said(&output)
        );
    }
    // No picture takes the place of a log.
    fs::hard_link(&path, dir.path().join("log.png")).unwrap();
    let output = plot(dir.path(), &["log.h5", "plane", "--force", "-o", "log.png"]);
    assert!(!output.status.success());
    assert_eq!(fs::read(&path).unwrap(), before);
}
