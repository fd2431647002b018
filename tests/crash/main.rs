//! Crash states of logs: the states that kills and power failures can leave are made from the recorded operations of
//! programs. Each is read, recovered, settled and appended to. Acknowledged data must be there, nothing else may be
//! shown, and no state is a dead end.
//!
//! Calls of the system that fail leave states, too, which are judged likewise (`failing`).
//!
//! `H5LOGFS_TEST_CASES` is the number of states for each scenario.

#[path = "../common/mod.rs"]
mod common;

mod connector;
mod failing;
mod history;
mod images;
mod judge;
mod kept;
mod power;
mod promise;
mod recorder;
mod scenario;

use std::fs;

use common::element::ANOTHER;
use common::rows::{Course, Job};
use common::{User, can_mount};
use h5logfs_log::logvol::names::subfile;
use h5logfs_output::{Options, Subfiles};
use h5logfs_scan::closing::{How, recover};
use judge::{Found, Work, read};
use scenario::{Kind, NAME, SILENT, Stage, check};

/// A log from which another file is made.
const SOURCE: &str = "source.h5";

/// Options of a job, and whether readers recognise lost elements.
const WAYS: [(&str, bool); 5] = [
    ("fsync=none", false),
    ("fsync=close", false),
    ("fsync=flush", true),
    ("fsync=close,checksums", true),
    ("fsync=flush,checksums", true),
];

/// Runs in each way, and fails where a state breaks a promise.
fn in_ways(what: &str, drive: impl Fn(&Stage<'_>, &str)) {
    run(what, 1, Work::Writer, &WAYS, drive);
}

fn run(
    what: &str,
    ranks: usize,
    work: Work,
    ways: &[(&str, bool)],
    drive: impl Fn(&Stage<'_>, &str),
) {
    if !can_mount(User::Caller) {
        return;
    }
    let mut violations = 0;
    for (options, is_exact) in ways {
        let name = format!("{what}, {options}");
        let kind = Kind {
            ranks,
            is_exact: *is_exact,
            work,
        };
        violations += check(&name, kind, |stage| drive(stage, options));
    }
    assert_eq!(violations, 0);
}

#[test]
fn a_log_that_is_created_flushed_and_closed() {
    in_ways("create, flush, close", |stage, options| {
        stage.write(0, options, "create flush flush flush close");
    });
}

#[test]
fn a_log_that_was_left_and_is_recovered() {
    in_ways("leave, recover", |stage, options| {
        stage.write(0, options, "create flush flush spill leave");
        stage.recover(2);
    });
}

#[test]
fn a_log_that_was_left_with_data_that_no_flush_covers() {
    for how in ["", "--unflushed", "--discard-unflushed"] {
        let what = format!("spill, recover {how}");
        in_ways(&what, |stage, options| {
            let options = format!("{options},small");
            stage.write(0, &options, "create flush flush spill leave");
            if how == "--unflushed" {
                stage.recorder.say("take");
            }
            let arguments = ["recover", how, NAME].into_iter();
            stage.command(
                &arguments
                    .filter(|word| !word.is_empty())
                    .collect::<Vec<_>>(),
            );
            stage.recorder.say("synced 2");
        });
    }
    in_ways("spill, recover, recover --unflushed", |stage, options| {
        let options = format!("{options},small");
        stage.write(0, &options, "create flush flush spill leave");
        stage.recover(2);
        stage.recorder.say("take");
        stage.command(&["recover", "--unflushed", NAME]);
    });
}

#[test]
fn a_log_whose_job_never_flushes() {
    let (what, ways) = ("automatic, spill", &WAYS[2..4]);
    run(what, 1, Work::Writer, ways, |stage, options| {
        let options = format!("{options},small,automatic");
        stage.write(0, &options, "create automatic automatic spill leave");
        stage.write(2, &options, "open automatic spill leave");
        stage.recover(3);
    });
}

#[test]
fn a_job_that_goes_on_where_another_one_has_left_data_that_no_flush_covers() {
    in_ways("spill, append", |stage, options| {
        let options = format!("{options},small");
        stage.write(0, &options, "create flush flush spill leave");
        stage.write(2, &options, "open flush spill leave");
        stage.recover(3);
    });
}

#[test]
fn a_log_of_which_flushes_are_dropped() {
    in_ways("leave, recover --last-flush", |stage, options| {
        stage.write(0, options, "create flush flush flush leave");
        stage.recorder.say("drop 2");
        stage.command(&["recover", "--last-flush", "2", NAME]);
        stage.recorder.say("dropped 2");
    });
}

#[test]
fn appends_to_a_closed_log() {
    in_ways("append to closed", |stage, options| {
        stage.write(0, options, "create flush flush close");
        stage.write(2, options, "open flush flush close");
    });
}

#[test]
fn appends_to_a_log_that_was_left() {
    in_ways("append to unclosed", |stage, options| {
        stage.write(0, options, "create flush flush leave");
        stage.write(2, options, "open flush flush close");
    });
}

#[test]
fn a_closed_log_that_is_replaced() {
    in_ways("overwrite closed", |stage, options| {
        stage.write(0, options, "create flush flush close");
        let options = format!("{options},overwrite");
        stage.write(ANOTHER, &options, "create flush flush close");
    });
}

#[test]
fn a_log_that_was_left_and_is_replaced() {
    in_ways("overwrite unclosed", |stage, options| {
        stage.write(0, options, "create flush flush leave");
        let options = format!("{options},discard");
        stage.write(ANOTHER, &options, "create flush flush close");
    });
}

#[test]
fn a_log_with_subfiles() {
    in_ways("subfiles", |stage, options| {
        let options = format!("{options},subfiles");
        stage.write(0, &options, "create flush flush close");
        let options = options.replace(",subfiles", "");
        stage.write(2, &options, "open flush leave");
        stage.recover(3);
    });
}

#[test]
fn a_log_with_subfiles_that_is_replaced() {
    in_ways("overwrite subfiles", |stage, options| {
        let options = format!("{options},subfiles,discard");
        stage.write(0, &options, "create flush flush close");
        stage.write(ANOTHER, &options, "create flush close");
    });
}

#[test]
fn a_log_that_becomes_an_ordinary_file_when_it_is_closed() {
    in_ways("settle at close", |stage, options| {
        let options = format!("{options},settle");
        stage.write(0, &options, "create flush flush close");
    });
}

#[test]
fn a_log_that_becomes_an_ordinary_file_and_a_log_again() {
    in_ways("settle, undo", |stage, options| {
        stage.write(0, options, "create flush flush close");
        stage.settle_and_undo();
        stage.write(2, options, "open flush close");
    });
}

/// A forked child tries to write, to flush and to close, while the job runs, and after another job has closed the
/// log.
#[test]
fn a_second_process_that_was_forked() {
    in_ways("fork", |stage, options| {
        stage.write(0, options, "create flush fork flush fork close");
        stage.write(2, options, "open fork flush fork leave");
        stage.recover(3);
    });
    let ways = &WAYS[3..4];
    run("fork, subfiles", 1, Work::Writer, ways, |stage, options| {
        let options = format!("{options},subfiles");
        stage.write(0, &options, "create flush fork flush fork close");
    });
}

/// Another process does not see that a job writes the log, and closes or continues it. Later operations of the first
/// job are refused.
#[test]
fn a_second_process_that_does_not_see_the_lock() {
    in_ways("recover beside the job", |stage, options| {
        stage.write_unseen(0, options, "create flush flush recover refused leave");
        stage.write(2, options, "open flush close");
    });
    in_ways("append beside the job", |stage, options| {
        stage.write_unseen(0, options, "create flush flush append refused leave");
        stage.recover(3);
    });
    let ways = &WAYS[3..4];
    run(
        "spill, recover beside the job",
        1,
        Work::Writer,
        ways,
        |stage, options| {
            let options = format!("{options},small");
            stage.write_unseen(0, &options, "create flush flush recover refused leave");
        },
    );
    run(
        "subfiles, recover beside the job",
        1,
        Work::Writer,
        ways,
        |stage, options| {
            let options = format!("{options},subfiles");
            stage.write_unseen(0, &options, "create flush flush recover refused leave");
        },
    );
}

#[test]
fn an_export_in_the_place_of_an_older_one() {
    replaced("export");
}

#[test]
fn a_compacted_file_in_the_place_of_an_older_one() {
    replaced("compact");
}

/// A log grows, and a command rewrites its file.
fn replaced(command: &str) {
    let what = format!("{command} --force");
    run(&what, 1, Work::Ordinary, &[("", true)], |stage, options| {
        let said = |flush| {
            stage.recorder.say(format!("may {flush}"));
            stage.command(&[command, "--force", SOURCE, NAME]);
            stage.recorder.say(format!("synced {flush}"));
        };
        stage.write_to(SOURCE, SILENT, 0, options, "create flush close");
        stage.recorder.say("make 0");
        said(1);
        stage.write_to(SOURCE, SILENT, 1, options, "open flush flush close");
        said(3);
    });
}

/// The operations of several processes are recorded in one order, another one each time.
#[test]
fn logs_of_several_ranks() {
    let ways = &WAYS[1..3];
    run("2 ranks", 2, Work::Writer, ways, |stage, options| {
        stage.write(0, options, "create flush flush close");
        stage.write(2, options, "open flush close");
    });
    let sealed = &WAYS[3..4];
    run(
        "2 ranks, spill",
        2,
        Work::Writer,
        sealed,
        |stage, options| {
            let options = format!("{options},small");
            stage.write(0, &options, "create flush flush spill leave");
            stage.recorder.say("take");
            stage.command(&["recover", "--unflushed", NAME]);
        },
    );
    run(
        "2 ranks, recover beside the job",
        2,
        Work::Writer,
        sealed,
        |stage, options| {
            let options = format!("{options},subfiles");
            stage.write_unseen(0, &options, "create flush flush recover refused leave");
        },
    );
    // Both ranks spill into the data file, one after the other.
    run(
        "2 ranks, automatic",
        2,
        Work::Writer,
        sealed,
        |stage, options| {
            let options = format!("{options},small,automatic");
            stage.write(0, &options, "create automatic automatic spill leave");
            stage.recorder.say("take");
            stage.command(&["recover", "--unflushed", NAME]);
        },
    );
    run(
        "2 ranks, subfiles",
        2,
        Work::Writer,
        sealed,
        |stage, options| {
            let new = format!("{options},subfiles");
            stage.write(0, &new, "create flush flush close");
            stage.write(2, options, "open flush close");
        },
    );
}

/// This holds without checksums as well, although a log then shows nothing at all.
#[test]
fn recover_tells_which_flushes_are_whole() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(NAME);
    let mut job = Job::create(std::slice::from_ref(&path), &Options::default());
    let ends = [(); 4].map(|()| {
        job.flush(Course::default());
        path.metadata().unwrap().len()
    });
    job.leave();
    // Nothing of the last flush reached the disk. Of the previous one only the size did.
    let file = fs::File::options().write(true).open(&path).unwrap();
    file.set_len(ends[1]).unwrap();
    file.set_len(ends[2]).unwrap();
    assert!(matches!(read(&path, None), Found::Nothing(_)));
    let refused = recover(&path, How::default()).unwrap_err().to_string();
    assert!(refused.contains("`--last-flush 2`"), "{refused}");
    let how = How {
        last_flush: Some(2),
        ..How::default()
    };
    recover(&path, how).unwrap();
    assert_eq!(read(&path, None), Found::Flush(2));
}

/// A power failure can restore the closed log that was about to be replaced, and leave the subfiles of the new one.
#[test]
fn subfiles_of_another_log_are_not_shown() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options {
        subfiles: Subfiles::Number(1),
        ..Options::default()
    };
    let closed = |name: &str| {
        let path = dir.path().join(name);
        let mut job = Job::create(std::slice::from_ref(&path), &options);
        job.flush(Course::default());
        job.leave();
        recover(&path, How::default()).unwrap();
        assert_eq!(read(&path, None), Found::Flush(1));
        path
    };
    let (old, new) = (closed(NAME), closed("new.h5"));
    fs::copy(subfile(&new, 0), subfile(&old, 0)).unwrap();
    let found = read(&old, None);
    assert!(
        matches!(&found, Found::Nothing(why) if why.contains("belongs to another log")),
        "{found:?}"
    );
}
