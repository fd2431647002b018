//! Directories of SCORPIO, against the file that their export makes, against ADIOS2's own reader, and against SCORPIO's converter.

use std::path::Path;
use std::time::Instant;

use anyhow::{Result, ensure};

use super::adios::{ADIOS2, utf8};
use crate::bench::{Bench, Job, MOUNTED, Per, Prepared, Wanted, all_into_page_cache};
use crate::client::{Clients, Read, Way};
use crate::mounts::Scratch;
use crate::report::{Goal, Outcome, Row, Unit};
use crate::scripts::{measured, script};

/// Seconds in which the converter of SCORPIO 2.0.1 made files of netCDF classic and netCDF-4 of such a directory, uncompressed: its
/// fastest runs on two processors.
const TO_CLASSIC: f64 = 2.6;
const TO_NETCDF4: f64 = 14.0;
/// Its memory.
const MEMORY: f64 = 74e6;

/// The variables of `scorpio.py`: name, number of them, number of the first, type, and lengths of their dimensions but that of the
/// records.
const VARIABLES: [(&str, u64, u64, &str, &[u64]); 3] = [
    ("levels", 60, 0, "<f4", &[10, 120, 180]),
    ("cyclic", 120, 60, "<f4", &[120, 180]),
    ("rows", 120, 180, "<f8", &[120, 180]),
];
const RECORDS: u64 = 6;

pub fn all(bench: &Bench, out: &mut Outcome) -> Result<()> {
    if !bench.modules.iter().any(|module| module == ADIOS2) {
        out.skipped = Some(format!("the interpreter has no module {ADIOS2}"));
        return Ok(());
    }
    // A divisor of the latitudes.
    let share = bench.size.pick(20, 1);
    bench.say(out.name, "writing the directory");
    let prepared = bench.adopt_directory("scorpio", |path| {
        let share = share.to_string();
        script(bench, "scorpio.py", ["fields", &share, utf8(path)?]).map(drop)
    })?;
    bench.let_settle();
    export(bench, &prepared, share, out)?;
    first_value(bench, &prepared, share, out)?;
    opening(bench, &prepared, out)?;
    frames(bench, &prepared, share, out)?;
    many_frames(bench, out)?;
    out.note(
        "export and the first value: the goals come from the fastest runs of SCORPIO's converter on another machine with two \
         processors, 2.6 s to netCDF classic and 14 s to netCDF-4. Frames: against h5py on the exported file; the goal of arrays \
         by all cores is 0.9. Opening: against ADIOS2's FileReader.",
    );
    Ok(())
}

/// A block of one record of a variable.
fn part(kind: usize, variable: u64, share: u64, record: u64, is_whole: bool) -> Read {
    let (name, _, _, element, lengths) = VARIABLES[kind];
    let mut lengths = lengths.to_vec();
    let latitudes = lengths.len() - 2;
    lengths[latitudes] /= share;
    let (start, count) = if is_whole {
        (vec![0; lengths.len()], lengths)
    } else {
        let middle = lengths.iter().map(|n| n / 2).collect();
        (middle, vec![1; lengths.len()])
    };
    Read {
        dataset: format!("{name}_{variable:03}"),
        element: element.to_owned(),
        start: [vec![record], start].concat(),
        count: [vec![1], count].concat(),
    }
}

/// What `scorpio.py` has put at the first element of such a block.
fn value(kind: usize, variable: u64, read: &Read, share: u64) -> f64 {
    let (_, _, first, _, lengths) = VARIABLES[kind];
    let latitudes = lengths.len() - 2;
    let own = |(at, length): (usize, &u64)| {
        if at == latitudes {
            length / share
        } else {
            *length
        }
    };
    let lengths = lengths.iter().enumerate().map(own);
    let place = lengths
        .zip(&read.start[1..])
        .fold(0, |place, (length, at)| place * length + at);
    ((place + 37 * (first + variable) + 11 * read.start[0]) % 65521) as f64
}

/// Exports the directory, and compares the file and the mount with what was written.
fn export(bench: &Bench, prepared: &Prepared, share: u64, out: &mut Outcome) -> Result<()> {
    let (log, native) = (prepared.log(), prepared.native());
    let program = utf8(&bench.program)?;
    let (mut seconds, mut memory) = (Vec::new(), Vec::new());
    for round in 0..=bench.rounds {
        bench.say(out.name, &format!("export, round {round}"));
        all_into_page_cache(&log)?;
        let arguments = [program, "export", "--force", utf8(&log)?, utf8(&native)?];
        let used = measured(bench, arguments)?;
        seconds.push(used.seconds);
        memory.push(used.memory);
    }
    let mount = bench.mount(&prepared.log_dir(), "")?;
    for file in [native, mount.join(prepared.name())] {
        let share = share.to_string();
        let wrong = script(bench, "scorpio.py", ["check", &share, utf8(&file)?])?;
        let wrong: Vec<_> = wrong
            .lines()
            .map(|line| format!("{}: {line}", file.display()))
            .collect();
        out.contents(&wrong);
    }
    let row = |what, unit, figures: &[f64], most| {
        let row = Row::new(what, "h5logfs export", unit, figures);
        row.map(|row| row.goal(bench.goal(Goal::AtMost(most))))
    };
    let fastest = (TO_CLASSIC / 1.5).min(TO_NETCDF4 / 6.0);
    out.row(row("export", Unit::Seconds, &seconds, fastest));
    out.row(row("export, memory", Unit::Bytes, &memory, MEMORY));
    Ok(())
}

/// The time from `mount` to a value of any variable, another one each round.
fn first_value(bench: &Bench, prepared: &Prepared, share: u64, out: &mut Outcome) -> Result<()> {
    let mut client = bench.clients.take()?;
    let mut seconds = Vec::new();
    for round in 0..=bench.rounds {
        bench.say(out.name, &format!("first value, round {round}"));
        let kind = round % VARIABLES.len();
        let variable = round as u64 * 31 % VARIABLES[kind].1;
        let read = part(kind, variable, share, round as u64 % RECORDS, false);
        all_into_page_cache(&prepared.log())?;
        let begun = Instant::now();
        let mount = bench.mount(&prepared.log_dir(), "")?;
        let timed = client.time(&mount.join(prepared.name()), std::slice::from_ref(&read))?;
        seconds.push(begun.elapsed().as_secs_f64());
        let expected = value(kind, variable, &read, share);
        ensure!(
            timed.first == [expected],
            "{read:?}: {:?} is not {expected}",
            timed.first
        );
    }
    bench.clients.give_back(client);
    let row = Row::new("mount to the first value", MOUNTED, Unit::Seconds, &seconds);
    let goal = bench.goal(Goal::AtMost(TO_CLASSIC / 20.0));
    out.row(row.map(|row| row.goal(goal)));
    Ok(())
}

/// The time to open the directory, in a new process each time.
fn opening(bench: &Bench, prepared: &Prepared, out: &mut Outcome) -> Result<()> {
    let log = prepared.log();
    // ADIOS2 chooses its engine by the end of a name.
    let links = Scratch::new(bench.scratch.path())?;
    let link = links.path().join("run.bp");
    std::os::unix::fs::symlink(&log, &link)?;
    let by = |clients: &Clients, log: &Path| {
        clients
            .with(|client| client.time(log, &[]))
            .map(|timed| timed.open)
    };
    let theirs = || {
        let way = Way::Arrays {
            options: String::new(),
            reader: ADIOS2,
        };
        by(&bench.clients.with_way(way), &link)
    };
    for who in bench.without_mount() {
        let (mut own, mut others) = (Vec::new(), Vec::new());
        for round in 0..=bench.rounds {
            bench.say(out.name, &format!("opening, {who}, round {round}"));
            all_into_page_cache(&log)?;
            others.push(theirs()?);
            let scratch = Scratch::new(bench.scratch.path())?;
            let clients = bench.clients_without_mount(who, &scratch.path().join("indexes"))?;
            own.push(by(&clients, &log)?);
        }
        let row = Row::new("opening", who, Unit::Seconds, &own);
        let goal = bench.goal(Goal::Ratio(0.5));
        out.row(row.map(|row| row.against(&others, &own).goal(goal)));
    }
    Ok(())
}

/// Each record of a variable, one after the other, through all ways.
fn frames(bench: &Bench, prepared: &Prepared, share: u64, out: &mut Outcome) -> Result<()> {
    let arrays: &[bool] = if bench.has_package {
        &[false, true]
    } else {
        &[false]
    };
    for (kind, (name, ..)) in VARIABLES.iter().enumerate() {
        let job = Job {
            what: &format!("one frame, {name}"),
            reads: (0..RECORDS)
                .map(|record| part(kind, 7, share, record, true))
                .collect(),
            per: Per::Read,
            goals: [bench.goal(Goal::Ratio(0.3)), None],
            driver: Wanted::Ratio(0.35),
        };
        for only_arrays in arrays {
            bench.only_arrays.set(*only_arrays);
            let compared = bench.compare(prepared, &job, false, out);
            bench.only_arrays.set(false);
            compared?;
        }
    }
    Ok(())
}

/// The processor time of a scan and an index for each frame, where there are many: it is to be the same as where there are fewer.
/// That of a directory with one step is taken off: it is the start of the program.
fn many_frames(bench: &Bench, out: &mut Outcome) -> Result<()> {
    let steps = bench.size.pick([1, 2, 4], [1, 20, 100]);
    let frames = steps.map(|steps: u32| 100 * steps);
    let mut seconds: [Vec<f64>; 3] = Default::default();
    for ((steps, frames), seconds) in steps.into_iter().zip(frames).zip(&mut seconds) {
        let scratch = Scratch::new(bench.scratch.path())?;
        let directory = scratch.path().join("run.bp");
        let numbers = [frames, steps].map(|number| number.to_string());
        let path = utf8(&directory)?;
        script(
            bench,
            "scorpio.py",
            ["frames", &numbers[0], &numbers[1], path],
        )?;
        for round in 0..=bench.rounds {
            bench.say(out.name, &format!("{frames} frames, round {round}"));
            let used = measured(bench, [utf8(&bench.program)?, "ls", path])?;
            seconds.push(used.processor);
        }
    }
    let [start, few, many] = &seconds;
    let of_each = |seconds: &[f64], frames: u32| -> Vec<f64> {
        let more = f64::from(frames - 100);
        let pairs = seconds.iter().zip(start);
        // A start may take longer than another one.
        pairs
            .map(|(all, start)| (all - start).max(1e-6) / more)
            .collect()
    };
    let (few, many) = (of_each(few, frames[1]), of_each(many, frames[2]));
    let what = format!("{} frames, processor time of each", frames[2]);
    let row = Row::new(what, "h5logfs ls", Unit::Seconds, &many);
    let goal = bench.goal(Goal::Ratio(0.8));
    out.row(row.map(|row| row.against(&few, &many).goal(goal)));
    out.note(format!(
        "Processor time of frames: scan and index, without the start of the program; against {} frames.",
        frames[1]
    ));
    Ok(())
}
