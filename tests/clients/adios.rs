//! ADIOS2 directories read by HDF5 programs: directories of the corpus, directories of random programs, compared with
//! ADIOS2's own reader, and directories that are being written.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::common::amount::{either, first_seed, told};
use crate::common::readers::{Python, said};
use crate::common::{Mounted, PROGRAM, User, can_mount};

/// `H5LOGFS_TEST_CASES` sets the number of programs, `H5LOGFS_TEST_SEED` the first one.
#[test]
fn random_programs_are_shown_as_they_were_put() {
    let (Some(python), true) = (Python::new(), can_mount(User::Caller)) else {
        return;
    };
    let source = tempfile::tempdir().unwrap();
    let numbers = [
        first_seed(),
        told("H5LOGFS_TEST_CASES").unwrap_or(either(40, 1000)),
    ];
    let numbers = numbers.map(|number| number.to_string());
    let tool = |command: &str| {
        let mut tool = python.tool("adios.py");
        tool.arg(command).arg(source.path()).arg("1");
        tool
    };
    let made = tool("make").args(&numbers).output().unwrap();
    assert!(made.status.success(), "{}", said(&made));
    let mounted = Mounted::new(source.path(), "");
    let checked = tool("check").arg(mounted.path()).args(&numbers).output();
    let checked = checked.unwrap();
    assert!(checked.status.success(), "{}", said(&checked));
}

/// Exactly the completed steps are there. `H5LOGFS_TEST_CASES` and `H5LOGFS_TEST_SEED` as above.
#[test]
fn programs_that_are_killed_leave_their_steps() {
    let Some(python) = Python::new() else { return };
    let dir = tempfile::tempdir().unwrap();
    let count = told("H5LOGFS_TEST_CASES").unwrap_or(either(6, 300));
    let mut tool = python.tool("adioskill.py");
    tool.args([Path::new(PROGRAM), dir.path()]);
    let numbers = [first_seed(), count].map(|number| number.to_string());
    let output = tool.args(numbers).output().unwrap();
    let said = said(&output);
    eprintln!("{said}");
    assert!(output.status.success(), "{said}");
}

/// Writes a step of small variables.
const MANY: &str = "
import sys
import adios2
import numpy as np
io = adios2.Adios().declare_io('out')
io.set_engine('BP5')
with adios2.Stream(io, sys.argv[1], 'w') as out:
    out.begin_step()
    for number in range(int(sys.argv[2])):
        out.write(f'v{number}', np.full(4, number), [4], [0], [4])
    out.end_step()
";

/// Each dataset needs some bytes of the metadata. A list that read all of it for each one took seconds.
#[test]
fn a_list_reads_the_metadata_of_many_variables_a_few_times() {
    let Some(python) = Python::new() else { return };
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("run.bp");
    let mut writer = python.command();
    let written = writer.args(["-c", MANY]).arg(&run).arg("1000").output();
    let written = written.unwrap();
    assert!(written.status.success(), "{}", said(&written));
    // The kernel adds a program's reads to the figures of the waiting shell.
    let counted = || {
        let mut shell = Command::new("sh");
        shell.args(["-c", "\"$@\" >&2 && cat /proc/$$/io", "sh"]);
        let output = shell.args([PROGRAM, "ls"]).arg(&run).output().unwrap();
        let told = String::from_utf8_lossy(&output.stdout).into_owned();
        let read = told.lines().find_map(|line| line.strip_prefix("rchar: "));
        let listed = said(&output);
        assert!(
            output.status.success() && listed.contains("1000"),
            "{listed}"
        );
        read.unwrap().parse::<u64>().unwrap()
    };
    let metadata: u64 = ["md.0", "mmd.0"]
        .map(|name| run.join(name).metadata().unwrap().len())
        .iter()
        .sum();
    let read = counted();
    assert!(read < 10 * metadata + (1 << 20), "{read} of {metadata}");
}

/// Writes ten steps a second with an engine, until its standard input ends.
const WRITE: &str = "
import select, sys
import adios2
import numpy as np
engine, path = sys.argv[1:]
io = adios2.Adios().declare_io('out')
io.set_engine(engine)
with adios2.Stream(io, path, 'w') as out:
    step = 0
    while not select.select([sys.stdin], [], [], 0.1)[0]:
        out.begin_step()
        out.write('field', np.arange(1000.0) + step, [1000], [0], [1000])
        out.end_step()
        step += 1
";

#[test]
fn steps_of_a_running_program_are_told() {
    let Some(python) = Python::new() else { return };
    for engine in ["BP4", "BP5"] {
        let dir = tempfile::tempdir().unwrap();
        let (run, page) = (dir.path().join("run.bp"), dir.path().join("page.html"));
        let mut writer = python.command();
        writer.args(["-c", WRITE, engine]).arg(&run);
        let mut writer = writer.stdin(Stdio::piped()).spawn().unwrap();
        // The header alone has 64 bytes.
        while !run
            .join("md.idx")
            .metadata()
            .is_ok_and(|found| found.len() > 64)
        {
            assert!(
                writer.try_wait().unwrap().is_none(),
                "{engine}: no step came"
            );
            thread::sleep(Duration::from_millis(10));
        }
        let mut report = Command::new(PROGRAM);
        report.args(["report", "--watch", "-o"]).args([&page, &run]);
        let report = report.stderr(Stdio::piped()).spawn().unwrap();
        let mut follow = Command::new(PROGRAM);
        follow
            .args(["follow", "--json", "--until", "closed"])
            .arg(&run);
        let mut follow = follow.stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(follow.stdout.take().unwrap()).lines();
        let mut events: Vec<Value> = Vec::new();
        for line in lines {
            events.push(serde_json::from_str(&line.unwrap()).unwrap());
            if events.len() == 3 {
                // The program closes the directory.
                drop(writer.stdin.take());
            }
        }
        assert!(follow.wait().unwrap().success() && writer.wait().unwrap().success());
        let (closed, flushes) = events.split_last().unwrap();
        assert!(
            closed["event"] == "closed" && flushes.len() >= 3,
            "{engine}: {events:?}"
        );
        let mut last = 0;
        for flush in flushes {
            let number = flush["flush"].as_u64().unwrap();
            // A single step is no dimension.
            let is_right = number == 1 || flush["datasets"][0]["dims"] == json!([number, 1000]);
            assert!(number > last && is_right, "{engine}: {events:?}");
            last = number;
        }
        let watched = report.wait_with_output().unwrap();
        assert!(watched.status.success(), "{}", said(&watched));
        let page = fs::read_to_string(page).unwrap();
        assert!(
            page.contains("closed") && !page.contains("not closed"),
            "{engine}: {page}"
        );
    }
}
