//! The wait before the data: listings of many logs, and the first value of a large log.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use crate::bench::{Bench, DRIVER, MOUNTED, Size, into_page_cache};
use crate::client::{Client, Read};
use crate::generate::{Blocks, Dataset, Element, Entry, Plan, Section, Stored};
use crate::report::{Goal, Outcome, Row, Unit};

use super::climate::Climate;

const WRITERS: u64 = 16;
/// Elements of a slab: 1 MiB of them.
const SLAB: u64 = 1 << 17;

/// Datasets that were written in slabs. Only the slab in the middle of the last one has data. All others
/// are holes of the file, so they take no disk space.
pub struct Sparse {
    datasets: Vec<Dataset>,
}

impl Sparse {
    fn new(datasets: u32, slabs: u64) -> Self {
        let dataset = |id| {
            let name = format!("field_{id}");
            Dataset::new(&name, id, Element::F64, &[slabs, SLAB])
        };
        Sparse {
            datasets: (0..datasets).map(dataset).collect(),
        }
    }

    fn middle(&self) -> Option<(&Dataset, u64)> {
        self.datasets.last().map(|d| (d, d.dims[0] / 2))
    }
}

impl Plan for Sparse {
    fn datasets(&self) -> Vec<Dataset> {
        self.datasets.clone()
    }

    fn ranks(&self) -> u64 {
        WRITERS
    }

    fn write(&self, rank: u64, section: &mut Section<'_>) -> Result<()> {
        let middle = self.middle().map(|(dataset, slab)| (dataset.id, slab));
        for dataset in &self.datasets {
            for slab in (rank..dataset.dims[0]).step_by(WRITERS as usize) {
                let blocks = Blocks::one(&[slab, 0], &[1, SLAB]);
                let has_data = middle == Some((dataset.id, slab));
                section.write(&Entry {
                    stored: if has_data {
                        Stored::Elements
                    } else {
                        Stored::Hole
                    },
                    ..Entry::new(dataset, &blocks)
                })?;
            }
        }
        Ok(())
    }
}

/// 10 GiB.
pub fn large(size: Size) -> Sparse {
    Sparse::new(10, size.pick(4, 1024))
}

/// The log of which a listing has 1,000 copies.
pub fn ordinary(size: Size) -> Climate {
    Climate {
        variables: 24,
        ranks: 4,
        blocks: 800,
        seed: size.seed,
    }
}

/// The time from `mount` to the first value.
pub fn first_value(bench: &Bench, out: &mut Outcome) -> Result<()> {
    let plan = large(bench.size);
    let prepared = bench.generate("startup", &plan)?;
    prepared.written.iter().for_each(|w| out.log(w));
    bench.let_settle();
    let (dataset, slab) = plan.middle().context("a dataset")?;
    let value = [Read::block(dataset, &[slab, 5], &[1, 1])?];
    let expected = f64::from(dataset.values(bench.size.seed).at(slab * SLAB + 5));
    let mut client = bench.clients.take()?;
    let mut mount_and_read = |options: &str| -> Result<f64> {
        let start = Instant::now();
        let mount = bench.mount(&prepared.log_dir(), options)?;
        let read = client.time(&mount.join(prepared.name()), &value)?;
        let seconds = start.elapsed().as_secs_f64();
        ensure!(
            read.first == [expected],
            "{:?} is not {expected}",
            read.first
        );
        Ok(seconds)
    };
    let kept = format!("index_dir={}", bench.scratch.path().join("kept").display());
    let (mut fresh, mut again) = (Vec::new(), Vec::new());
    if bench.keeps_indexes {
        mount_and_read(&kept)?;
    }
    for round in 0..=bench.rounds {
        bench.say(out.name, &format!("round {round}"));
        fresh.push(mount_and_read("")?);
        if bench.keeps_indexes {
            again.push(mount_and_read(&kept)?);
        }
    }
    bench.clients.give_back(client);
    out.contents(&[]);
    let row = |what, seconds: &[f64], goal| {
        let row = Row::new(what, MOUNTED, Unit::Seconds, seconds);
        row.map(|row| row.goal(bench.goal(Goal::AtMost(goal))))
    };
    out.row(row("mount to the first value", &fresh, 0.5));
    out.row(row("the same with a kept index", &again, 0.05));
    out.note("Each round begins with `h5logfs mount` and ends with the value in the client.");
    if !bench.keeps_indexes {
        out.note("Kept index: n/a, the mount has no option index_dir.");
    }
    Ok(())
}

/// Time in which a program without a mount opens a log whose index is kept.
pub fn known(bench: &Bench, out: &mut Outcome) -> Result<()> {
    let prepared = bench.generate("known", &large(bench.size))?;
    prepared.written.iter().for_each(|w| out.log(w));
    bench.let_settle();
    let ways = bench.without_mount();
    if ways.is_empty() {
        out.skipped = Some("neither the file driver nor the Python package is there".into());
        return Ok(());
    }
    for who in ways {
        let indexes = bench.scratch.path().join(format!("known by {who}"));
        let open = |client: &mut Client| client.time(&prepared.log(), &[]).map(|timed| timed.open);
        let scan = bench.clients_without_mount(who, &indexes)?.with(open)?;
        let (mut first, mut again) = (Vec::new(), Vec::new());
        for round in 0..=bench.rounds {
            bench.say(out.name, &format!("{who}, round {round}"));
            let clients = bench.clients_without_mount(who, &indexes)?;
            first.push(clients.with(open)?);
            again.push(clients.with(open)?);
        }
        let goal = bench.goal(Goal::AtMost(0.002)).filter(|_| who == DRIVER);
        for (what, seconds) in [
            ("scan and open", &vec![scan]),
            ("open in a new process", &first),
            ("open once more in it", &again),
        ] {
            let row = Row::new(what, who, Unit::Seconds, seconds);
            out.row(row.map(|row| row.goal(goal.filter(|_| what != "scan and open"))));
        }
        fs::remove_dir_all(&indexes)?;
    }
    out.note("The libraries are loaded before the clock starts, the driver is not.");
    Ok(())
}

/// `ls -l` of 1,000 logs through the mount, compared with `ls -l` in the source.
pub fn listing(bench: &Bench, out: &mut Outcome) -> Result<()> {
    let logs = bench.size.pick(30, 1000);
    let prepared = bench.generate("listing", &ordinary(bench.size))?;
    prepared.written.iter().for_each(|w| out.log(w));
    for number in 1..logs {
        let name = format!("run_{number:04}.h5");
        fs::copy(prepared.log(), prepared.log_dir().join(name))?;
    }
    bench.let_settle();
    let dir = prepared.log_dir();
    let kept = format!("index_dir={}", bench.scratch.path().join("kept").display());
    let (mut plain, mut cold, mut warm) = (Vec::new(), Vec::new(), Vec::new());
    let mut again = Vec::new();
    if bench.keeps_indexes {
        list(&bench.mount(&dir, &kept)?.join(""), logs)?;
    }
    for round in 0..=bench.rounds {
        bench.say(out.name, &format!("round {round}"));
        for log in fs::read_dir(&dir)? {
            into_page_cache(&log?.path())?;
        }
        list(&dir, logs)?;
        let mount = bench.mount(&dir, "")?;
        plain.push(list(&dir, logs)?);
        cold.push(list(&mount.join(""), logs)?);
        warm.push(list(&mount.join(""), logs)?);
        if bench.keeps_indexes {
            again.push(list(&bench.mount(&dir, &kept)?.join(""), logs)?);
        }
    }
    let row = |what: &str, seconds: &[f64]| {
        let what = format!("ls -l of {logs} logs, {what}");
        let row = Row::new(what, MOUNTED, Unit::Seconds, seconds);
        row.map(|row| row.against(&plain, seconds))
    };
    let goal = bench.goal(Goal::Ratio(0.5));
    out.row(row("fresh mount", &cold));
    out.row(row("once more", &warm).map(|r| r.goal(goal)));
    out.row(row("fresh mount, kept index", &again));
    out.note("Native is `ls -l` of the source. All logs are alike.");
    Ok(())
}

/// Seconds that `ls -l` takes. It must show this many files.
fn list(dir: &Path, files: usize) -> Result<f64> {
    let start = Instant::now();
    let output = Command::new("ls")
        .arg("-l")
        .arg(dir)
        .stderr(Stdio::inherit())
        .output()?;
    let seconds = start.elapsed().as_secs_f64();
    let lines = output.stdout.iter().filter(|b| **b == b'\n').count();
    // The first line is the total.
    ensure!(
        output.status.success() && lines == files + 1,
        "ls -l shows {lines} lines"
    );
    Ok(seconds)
}
