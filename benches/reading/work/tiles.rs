//! Sets of netCDF files, one for each process of a model, against the joined file, and against the time of the tools that join.

use std::path::Path;
use std::time::Instant;

use anyhow::Result;

use super::adios::utf8;
use crate::bench::{Bench, Job, MOUNTED, Per, Prepared, Wanted, all_into_page_cache};
use crate::client::Read;
use crate::mounts::Scratch;
use crate::report::{Goal, Outcome, Row, Unit};
use crate::scripts::{measured, script};

/// Seconds of processor time that mppnccombine of FRE-NCtools 2026.01 took for such a set on two processors, its fastest runs: to
/// a file without filters, and to one with deflate 2 and shuffle.
const JOINED: f64 = 5.2;
const JOINED_DEFLATED: f64 = 13.9;

/// Records, levels, and points of one member along y and x.
const SHAPE: [u64; 4] = [4, 20, 135, 180];
const TILES: u64 = 8;

pub fn all(bench: &Bench, out: &mut Outcome) -> Result<()> {
    let share = bench.size.pick(20, 1);
    for kind in ["classic", "deflated"] {
        bench.say(out.name, &format!("writing the {kind} set"));
        let prepared = bench.adopt_directory(&format!("{kind}.nc"), |path| {
            let share = share.to_string();
            script(bench, "tiles.py", ["fields", kind, &share, utf8(path)?]).map(drop)
        })?;
        bench.let_settle();
        export(bench, &prepared, (kind, share), out)?;
        first_map(bench, &prepared, (kind, share), out)?;
        reads(bench, &prepared, (kind, share), out)?;
    }
    many_members(bench, out)?;
    out.note(
        "Export and compact: the goals come from the processor time of mppnccombine's fastest runs on another machine with two \
         processors, 5.2 s without filters and 13.9 s with deflate 2 and shuffle; of the classic set, from cat of its members.",
    );
    Ok(())
}

/// Exports and compacts the set, and compares the file with what was written.
fn export(
    bench: &Bench,
    prepared: &Prepared,
    (kind, share): (&str, u64),
    out: &mut Outcome,
) -> Result<()> {
    let (log, native) = (prepared.log(), prepared.native());
    let (log, native, program) = (utf8(&log)?, utf8(&native)?, utf8(&bench.program)?);
    let compacted = format!("{native}.compact");
    let concatenated = format!("{native}.cat");
    let concatenate = format!("cat {log}.* > {concatenated}");
    let exported = [program, "export", "--force", log, native];
    let compact = [
        program,
        "compact",
        "--shuffle",
        "--deflate",
        "2",
        "--force",
        log,
        &compacted,
    ];
    let mut seconds: [Vec<f64>; 3] = Default::default();
    let mut memory = Vec::new();
    for round in 0..=bench.rounds {
        bench.say(out.name, &format!("export, {kind}, round {round}"));
        all_into_page_cache(&prepared.log_dir())?;
        let used = measured(bench, exported)?;
        seconds[0].push(used.seconds);
        memory.push(used.memory);
        seconds[1].push(measured(bench, ["sh", "-c", &concatenate])?.seconds);
        seconds[2].push(measured(bench, compact)?.seconds);
    }
    for file in [native, &compacted] {
        let share = share.to_string();
        let wrong = script(bench, "tiles.py", ["check", &share, file])?;
        let wrong: Vec<_> = wrong.lines().map(str::to_owned).collect();
        out.contents(&wrong);
    }
    let [exports, cats, compacts] = &seconds;
    let row = |what, unit, figures: &[f64]| Row::new(what, "h5logfs", unit, figures);
    let exported = row(format!("export, {kind}"), Unit::Seconds, exports);
    out.row(match kind {
        "classic" => exported.map(|row| {
            row.against(cats, exports)
                .goal(bench.goal(Goal::Ratio(1.0)))
        }),
        _ => exported.map(|row| row.goal(bench.goal(Goal::AtMost(JOINED / 2.0)))),
    });
    out.row(row(format!("export, {kind}, memory"), Unit::Bytes, &memory));
    let compacted = row(
        format!("compact, {kind}, deflate 2"),
        Unit::Seconds,
        compacts,
    );
    let goal = bench.goal(Goal::AtMost(JOINED_DEFLATED / 3.0));
    out.row(compacted.map(|row| row.goal(goal)));
    Ok(())
}

/// One level of all members.
fn map(share: u64, record: u64, level: u64) -> Read {
    let [_, _, high, wide] = SHAPE;
    Read {
        dataset: "temp".to_owned(),
        element: "<f4".to_owned(),
        start: vec![record, level, 0, 0],
        count: vec![1, 1, TILES * high, TILES * wide / share],
    }
}

/// The time from `mount` to a map of one level, another one each round.
fn first_map(
    bench: &Bench,
    prepared: &Prepared,
    (kind, share): (&str, u64),
    out: &mut Outcome,
) -> Result<()> {
    let mut client = bench.clients.take()?;
    let mut seconds = Vec::new();
    for round in 0..=bench.rounds {
        bench.say(out.name, &format!("first map, {kind}, round {round}"));
        all_into_page_cache(&prepared.log_dir())?;
        let read = map(share, 1, round as u64 % SHAPE[1]);
        let begun = Instant::now();
        let mount = bench.mount(&prepared.log_dir(), "")?;
        client.time(&mount.join(prepared.name()), std::slice::from_ref(&read))?;
        seconds.push(begun.elapsed().as_secs_f64());
    }
    bench.clients.give_back(client);
    let row = Row::new(
        format!("mount to the first map, {kind}"),
        MOUNTED,
        Unit::Seconds,
        &seconds,
    );
    let goal = bench.goal(Goal::AtMost(0.3));
    out.row(row.map(|row| row.goal(goal)));
    Ok(())
}

/// Maps, and the whole variable, through all ways.
fn reads(
    bench: &Bench,
    prepared: &Prepared,
    (kind, share): (&str, u64),
    out: &mut Outcome,
) -> Result<()> {
    let [records, levels, high, wide] = SHAPE;
    let maps = (0..levels).map(|level| map(share, level % records, level));
    let whole = Read {
        start: vec![0; 4],
        count: vec![records, levels, TILES * high, TILES * wide / share],
        ..map(share, 0, 0)
    };
    let jobs = [
        ("maps of one level", maps.collect(), Per::Read),
        ("whole variable", vec![whole], Per::Job),
    ];
    for (what, reads, per) in jobs {
        let job = Job {
            what: &format!("{what}, {kind}"),
            reads,
            per,
            goals: [None, bench.goal(Goal::Ratio(1.0 / 3.0))],
            driver: Wanted::Nothing,
        };
        for only_arrays in [false, true] {
            if only_arrays && !bench.has_package {
                continue;
            }
            bench.only_arrays.set(only_arrays);
            let compared = bench.compare(prepared, &job, false, out);
            bench.only_arrays.set(false);
            compared?;
        }
    }
    Ok(())
}

/// The time and the memory of an open of very many members.
fn many_members(bench: &Bench, out: &mut Outcome) -> Result<()> {
    let members = bench.size.pick(500, 10_000);
    let scratch = Scratch::new(bench.scratch.path())?;
    let joined = scratch.path().join("many.nc");
    script(
        bench,
        "tiles.py",
        ["many", &members.to_string(), utf8(&joined)?],
    )?;
    let (mut first, mut known, mut memory) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..=bench.rounds {
        bench.say(out.name, &format!("{members} members, round {round}"));
        let indexes = scratch.path().join(format!("index-{round}"));
        for seconds in [&mut first, &mut known] {
            let used = opened(bench, &joined, &indexes)?;
            seconds.push(used.seconds);
            memory.push(used.memory);
        }
    }
    let row = |what: &str, unit, figures: &[f64], most| {
        let row = Row::new(
            format!("{members} members, {what}"),
            "h5logfs inspect",
            unit,
            figures,
        );
        row.map(|row| row.goal(bench.goal(Goal::AtMost(most))))
    };
    out.row(row("opened first", Unit::Seconds, &first, 2.0));
    out.row(row("opened again", Unit::Seconds, &known, 0.2));
    out.row(row("memory", Unit::Bytes, &memory, 16e6));
    Ok(())
}

fn opened(bench: &Bench, joined: &Path, indexes: &Path) -> Result<crate::scripts::Used> {
    let indexes = format!("H5LOGFS_INDEX_DIR={}", utf8(indexes)?);
    measured(
        bench,
        [
            "env",
            &indexes,
            utf8(&bench.program)?,
            "inspect",
            utf8(joined)?,
        ],
    )
}
