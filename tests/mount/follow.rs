//! `h5logfs follow`: its reports on a job, while it runs and when it ends.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{ChildStdout, Command, Stdio};

use rustix::fs::{FlockOperation, flock};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::common::PROGRAM;
use crate::common::guard::Running;
use crate::common::people::{copy, corpus as of_project};
use crate::common::pnetcdf::{Case, corpus};
use crate::common::readers::said;
use crate::common::settled::settle;
use crate::common::unclosed::Log;

/// A running `follow`.
struct Follow {
    child: Running,
    lines: BufReader<ChildStdout>,
}

impl Follow {
    fn start(log: &Path, options: &[&str]) -> Self {
        let mut command = Command::new(PROGRAM);
        command.arg("follow").arg(log).args(options);
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Follow {
            child: Running(child),
            lines,
        }
    }

    /// The next line. The test runner ends a test that waits for ever.
    fn line(&mut self) -> String {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        line
    }

    fn event(&mut self) -> Value {
        let line = self.line();
        serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e}: {line}"))
    }

    fn status(&mut self) -> Option<i32> {
        assert_eq!(self.line(), "");
        self.child.0.wait().unwrap().code()
    }
}

/// A flush that adds these bytes.
fn grow(log: &mut Log, from: u64, bytes: &[u8]) {
    log.extend(from + bytes.len() as u64);
    log.extent(0, &[(from, bytes)]);
    log.flush();
}

fn recover(log: &Path) {
    let recovered = Command::new(PROGRAM).arg("recover").arg(log).output();
    let recovered = recovered.unwrap();
    assert!(recovered.status.success(), "{}", said(&recovered));
}

#[test]
fn each_flush_is_told_once_and_the_end_of_the_job_and_of_the_log() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log.h5");
    let mut log = Log::begin(&path);
    grow(&mut log, 0, b"aaa");
    let job = File::open(log.journal_path()).unwrap();
    flock(&job, FlockOperation::LockExclusive).unwrap();
    let mut follow = Follow::start(&path, &["--json", "--until", "closed"]);
    let mut text = Follow::start(&path, &["--timeout", "1", "--stay"]);
    let first = follow.event();
    assert_eq!(first["event"], "flush");
    assert_eq!(
        (&first["flush"], &first["automatic"]),
        (&1.into(), &false.into())
    );
    assert_eq!(
        first["datasets"],
        serde_json::json!([{"name": "/d", "dims": [3]}])
    );
    assert!(text.line().contains("flush 1: "));
    for flush in 2..=9 {
        let before = log.data.len();
        grow(&mut log, 2 * flush, b"bb");
        let event = follow.event();
        assert_eq!(event["flush"], flush);
        assert_eq!(event["new_bytes"], log.data.len() - before);
        assert_eq!(
            event["datasets"][0]["dims"],
            serde_json::json!([2 * flush + 2])
        );
        let line = text.line();
        let dims = format!("; /d {}", 2 * flush + 2);
        assert!(
            line.contains(&format!("flush {flush}: +")) && line.ends_with(&format!("{dims}\n")),
            "{line}"
        );
    }
    // The job dies, and another command closes the log.
    drop(job);
    assert!(
        text.line()
            .starts_with("its job has ended: `h5logfs recover")
    );
    let mut dead = Follow::start(&path, &["--timeout", "1", "--until", "closed"]);
    assert!(dead.line().contains("flush 9: "));
    assert_eq!(dead.status(), Some(3));
    recover(&path);
    let end = follow.event();
    assert_eq!(
        (&end["event"], &end["datasets"]),
        (&"closed".into(), &serde_json::json!([]))
    );
    assert_eq!(follow.status(), Some(0));
    assert!(text.line().starts_with("closed: "));
    // A new log replaces it.
    let elsewhere = dir.path().join("other.h5");
    let mut other = Log::begin(&elsewhere);
    grow(&mut other, 0, b"x");
    fs::rename(other.journal_path(), log.journal_path()).unwrap();
    fs::rename(&elsewhere, &path).unwrap();
    assert_eq!(text.line(), "another log has replaced it\n");
    assert!(text.line().contains("flush 1: "));
}

/// Between two looks the log is closed and settled, and so no log any more.
#[test]
fn a_log_that_is_settled_is_closed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log.h5");
    let mut log = Log::begin(&path);
    grow(&mut log, 0, b"aaa");
    let mut follow = Follow::start(&path, &["--json", "--until", "closed"]);
    assert_eq!(follow.event()["flush"], 1);
    let pid = Pid::from_child(&follow.child.0);
    kill_process(pid, Signal::STOP).unwrap();
    grow(&mut log, 3, b"bb");
    grow(&mut log, 5, b"cc");
    recover(&path);
    settle(&path).unwrap();
    kill_process(pid, Signal::CONT).unwrap();
    let end = follow.event();
    assert_eq!(
        (&end["event"], &end["settled"]),
        (&"closed".into(), &true.into())
    );
    assert_eq!(follow.status(), Some(0));
    let mut late = Follow::start(&path, &["--until", "closed"]);
    assert!(late.line().starts_with("closed and settled: "));
    assert_eq!(late.status(), Some(0));
    // None of its flushes can be shown.
    let out = dir.path().join("out.h5");
    let mut export = Command::new(PROGRAM);
    let export = export.args(["export", "--at-flush", "3"]).arg(&path);
    let output = export.arg(&out).output().unwrap();
    assert!(said(&output).contains("it is settled"), "{}", said(&output));
}

/// A job that runs later makes the log. `follow` waits for it, and ends with it.
#[test]
fn a_log_that_is_not_there_yet_is_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log.h5");
    assert_eq!(Follow::start(&path, &[]).status(), Some(1));
    let mut follow = Follow::start(&path, &["--wait"]);
    let mut told = BufReader::new(follow.child.0.stderr.take().unwrap());
    let mut line = String::new();
    told.read_line(&mut line).unwrap();
    assert_eq!(line, format!("h5logfs: waiting for {}\n", path.display()));
    let mut log = Log::begin(&path);
    grow(&mut log, 0, b"aaa");
    loop {
        let line = follow.line();
        assert!(!line.is_empty(), "it has ended");
        if line.contains("flush 1") {
            break;
        }
    }
    recover(&path);
    assert!(follow.line().starts_with("closed: "));
    assert_eq!(follow.status(), Some(0));
}

/// Only the files of these logs tell of their job: it has ended when nothing changes and nobody writes.
#[test]
fn a_job_without_a_journal_ends_when_nobody_writes() {
    let dir = tempfile::tempdir().unwrap();
    let (log, set) = (dir.path().join("run.bp"), dir.path().join("set"));
    copy(&of_project("corpus-adios/b5_crash.bp"), &log);
    copy(&of_project("corpus-tiles/fms_live"), &set);
    let until_closed = ["--timeout", "1", "--until", "closed"];
    let writer = File::options()
        .write(true)
        .open(log.join("data.0"))
        .unwrap();
    let mut text = Follow::start(&log, &["--timeout", "1"]);
    let mut follow = Follow::start(&log, &until_closed);
    let line = follow.line();
    // The time of arrival stands first.
    assert!(
        line.as_bytes()[2] == b':' && line.contains("flush "),
        "{line}"
    );
    assert!(text.line().contains("flush "));
    // While a process writes, the job lives.
    let mut line = String::new();
    let mut told = BufReader::new(follow.child.0.stderr.take().unwrap());
    told.read_line(&mut line).unwrap();
    assert!(line.contains("waiting until"), "{line}");
    drop(writer);
    assert!(text.line().starts_with("it has not changed for 1 s"));
    assert_eq!(follow.status(), Some(3));
    // Nothing tells that a set is closed.
    let mut follow = Follow::start(&set.join("ocean.nc"), &until_closed);
    assert!(follow.line().starts_with("written: "));
    assert!(follow.line().starts_with("closed: "));
    assert_eq!(follow.status(), Some(0));
}

/// PnetCDF logs record neither flushes nor the end of their job, and are removed once their data is in the file.
#[test]
fn logs_beside_a_netcdf_file_are_not_closed_until_they_are_removed() {
    let dir = tempfile::tempdir().unwrap();
    let case = Case::read(&corpus().join("records-cdf2-np4"));
    let path = case.lay_out(dir.path());
    let of_rank = |rank: u32, kind| path.with_file_name(format!("file.nc_0_{rank}.{kind}"));
    let last = [of_rank(3, "data"), of_rank(3, "meta")];
    let kept = last.each_ref().map(|file| fs::read(file).unwrap());
    for file in &last {
        fs::remove_file(file).unwrap();
    }
    let mut follow = Follow::start(&path, &["--json", "--until", "closed"]);
    let mut text = Follow::start(&path, &[]);
    let first = follow.event();
    assert_eq!(first["event"], "unclosed");
    assert!(text.line().starts_with("not closed: "));
    // The last rank is late.
    let pids = [&follow, &text].map(|follow| Pid::from_child(&follow.child.0));
    let signal = |signal| {
        for pid in pids {
            kill_process(pid, signal).unwrap();
        }
    };
    let meanwhile = |act: &dyn Fn()| {
        signal(Signal::STOP);
        act();
        signal(Signal::CONT);
    };
    meanwhile(&|| {
        for (file, bytes) in last.iter().zip(&kept) {
            fs::write(file, bytes).unwrap();
        }
    });
    let more = follow.event();
    assert_eq!(
        (&more["event"], &more["new_bytes"]),
        (&"unclosed".into(), &kept.concat().len().into())
    );
    assert!(text.line().starts_with("not closed: +"));
    meanwhile(&|| {
        fs::write(&path, fs::read(case.file("expected.nc")).unwrap()).unwrap();
        for rank in 0..4 {
            fs::remove_file(of_rank(rank, "data")).unwrap();
            fs::remove_file(of_rank(rank, "meta")).unwrap();
        }
    });
    let end = follow.event();
    assert_eq!(
        (&end["event"], &end["settled"]),
        (&"closed".into(), &false.into())
    );
    assert_eq!(follow.status(), Some(0));
    assert!(text.line().starts_with("closed: "));
}
