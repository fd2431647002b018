//! System calls that fail. In each run another request to the file system fails, either once or with all requests after
//! it. The program may fail, too. All data that it had acknowledged are there afterwards.

use super::common::amount::part;
use super::common::element::ANOTHER;
use super::common::served::Refusal;
use super::judge::Work;
use super::promise::Promise;
use super::recorder::{Failing, Recorder};
use super::scenario::{Kind, NAME, SILENT, Stage, alone};
use super::{SOURCE, can_mount};
use crate::common::User;

/// Number of parts of the runs. A short test does one part.
const PARTS: usize = 32;

/// Lets each request of `act` fail in one run after `prepare`.
pub fn sweep(
    name: &str,
    work: Work,
    prepare: impl Fn(&Stage<'_>),
    act: impl Fn(&Stage<'_>) -> Result<bool, String>,
) {
    if !can_mount(User::Caller) {
        return;
    }
    let _one = alone();
    let kind = Kind {
        ranks: 1,
        is_exact: true,
        work,
    };
    let staged = |recorder: &Recorder, failing: Option<(usize, usize, Refusal)>| {
        let stage = Stage { recorder, kind };
        prepare(&stage);
        let from = recorder.asked();
        recorder.fail(failing.map(|(first, count, with)| Failing {
            requests: from + first..(from + first).saturating_add(count),
            with,
        }));
        let ended = act(&stage);
        recorder.fail(None);
        ended.map(|is_good| (is_good, recorder.asked() - from))
    };
    let (is_good, requests) = staged(&Recorder::new(), None).unwrap();
    assert!(is_good && requests > 0, "{name} fails by itself");
    let kinds = [Refusal::NoSpace, Refusal::Failed];
    let kinds = kinds
        .iter()
        .flat_map(|with| [(1, *with), (usize::MAX, *with)]);
    let all: Vec<_> = kinds
        .flat_map(|(count, with)| (0..requests).map(move |first| (first, count, with)))
        .collect();
    let (mut tried, mut violations) = (0, Vec::new());
    for failing in part(all, PARTS) {
        let recorder = Recorder::new();
        let ended = staged(&recorder, Some(failing));
        let history = recorder.history();
        let promise = Promise::at(&history, history.0.len());
        let disk = history.at(history.0.len());
        let judged = ended.and_then(|_| kind.judge(&disk, &promise, true));
        tried += 1;
        violations.extend(judged.err().map(|e| format!("{failing:?}: {e}")));
    }
    eprintln!(
        "{name:30} | {requests:4} requests | {tried:5} failed | {} violations",
        violations.len()
    );
    assert!(violations.is_empty(), "{name}: {}", violations.join("\n"));
}

/// A job of the writer.
fn job(name: &str, options: &str, first: &str, flush: u64, then: &str) {
    let prepare = |stage: &Stage<'_>| {
        if !first.is_empty() {
            let options = options.replace(",discard", "").replace(",settle", "");
            stage.write(0, &options, first);
        }
    };
    let act = |stage: &Stage<'_>| stage.attempt(flush, options, then);
    sweep(&format!("{name}, {options}"), Work::Writer, prepare, act);
}

/// A job that makes a log, and one that appends to it.
fn jobs(options: &str) {
    job("create", options, "", 0, "create flush flush close");
    let options = options.trim_end_matches(",subfiles");
    let (first, then) = ("create flush close", "open flush flush close");
    job("append", options, first, 1, then);
}

#[test]
fn of_a_job_that_syncs_flushes() {
    jobs("fsync=flush,checksums");
}

#[test]
fn of_a_job_that_tries_again() {
    jobs("fsync=close,small,again");
}

#[test]
fn of_a_job_with_subfiles() {
    jobs("fsync=none,again,subfiles");
}

#[test]
fn of_a_job_that_replaces_a_log() {
    let options = "fsync=flush,discard";
    job(
        "replace",
        options,
        "create flush leave",
        ANOTHER,
        "create flush close",
    );
}

#[test]
fn of_a_close_that_settles() {
    let options = "fsync=close,again,settle";
    job(
        "settle",
        options,
        "create flush close",
        1,
        "open flush close",
    );
}

/// A command that changes a log, of which all flushes stay.
fn command(command: &str, steps: &str) {
    let prepare = |stage: &Stage<'_>| stage.write(0, "fsync=flush,checksums", steps);
    let act = |stage: &Stage<'_>| stage.attempt_command(&[command, NAME]);
    sweep(command, Work::Writer, prepare, act);
}

#[test]
fn of_commands_that_change_a_log() {
    command("recover", "create flush flush leave");
    command("settle", "create flush flush close");
}

#[test]
fn of_commands_that_write_another_file() {
    for command in ["export", "compact"] {
        let prepare = |stage: &Stage<'_>| {
            stage.write_to(SOURCE, SILENT, 0, "", "create flush close");
            stage.recorder.say("make 0");
            stage.recorder.say("may 1");
            stage.command(&[command, "--force", SOURCE, NAME]);
            stage.recorder.say("synced 1");
            stage.write_to(SOURCE, SILENT, 1, "", "open flush close");
            stage.recorder.say("may 2");
        };
        let act = |stage: &Stage<'_>| stage.attempt_command(&[command, "--force", SOURCE, NAME]);
        sweep(command, Work::Ordinary, prepare, act);
    }
}
