//! Logs that HDF5 programs write through the VOL connector, with a metadata image.

use std::fs;
use std::process::Command;

use h5logfs_log::journal::path_of;

use super::common::connector::Connector;
use super::common::element::{WIDTH, attribute};
use super::common::readers::said;
use super::failing::sweep;
use super::judge::Work;
use super::recorder::SAID;
use super::run;
use super::scenario::{NAME, Stage, ended};

/// Writes rows as `writer-crash` does: `LOG SAID FLUSH FSYNC STEP...`.
const WRITE: &str = "
import os, sys
import h5py, numpy as np
path, said, flush, fsync, width, attribute = sys.argv[1:7]
flush, width = int(flush), int(width)
said = os.open(said, os.O_WRONLY | os.O_APPEND)
def say(what):
    os.write(said, f'{what} {flush}\\n'.encode())
def write(flush, times):
    row = flush * 1_000_000 + np.arange(width)
    f.attrs[attribute.replace('1', str(flush))] = flush
    f['rows'].resize((flush, width))
    for _ in range(times):
        f['rows'][flush - 1] = row
    for _ in range(times):
        f['now'][:] = row
f, late = None, []
def twice(act):
    try:
        act()
    except Exception:
        act()
try:
    for step in sys.argv[7:]:
        if step == 'create':
            say('make')
            f = h5py.File(path, 'w')
            f.create_dataset('rows', (0, width), 'f8', maxshape=(None, width), chunks=(1, width))
            f.create_dataset('now', (width,), 'f8', chunks=(width,))
        elif step == 'open':
            if fsync == 'none':
                say('risk')
            f = h5py.File(path, 'r+')
        elif step == 'spill':
            write(flush + 1, 6)
        elif step in ('flush', 'automatic'):
            flush += 1
            say('may')
            twice(lambda: write(flush, 1 if step == 'flush' else 6))
            if step == 'flush':
                twice(f.flush)
            else:
                nothing = f['now'].id.get_space()
                nothing.select_none()
                f['now'].id.write(nothing, nothing, np.zeros(width))
            say('synced' if fsync == 'flush' else 'kept')
        elif step.startswith('fork'):
            # The child ends in the ordinary way, in which libhdf5 closes all files.
            reading, writing = os.pipe()
            child = os.fork()
            if child == 0:
                os.close(writing)
                if step == 'fork-late':
                    os.read(reading, 1)
                for write in (lambda: f['now'].__setitem__(0, 1), f.flush):
                    try:
                        write()
                    except Exception:
                        continue
                    os._exit(1)
                sys.exit(0)
            os.close(reading)
            if step == 'fork-late':
                late.append((child, writing))
            else:
                os.close(writing)
                assert os.waitpid(child, 0)[1] == 0
        elif step == 'join':
            for child, writing in late:
                os.close(writing)
                assert os.waitpid(child, 0)[1] == 0
            late = []
        elif step == 'close':
            f.close()
            if fsync != 'none':
                say('synced')
        else:
            os._exit(0)
except Exception as error:
    # No close follows, as after a kill.
    print(error, file=sys.stderr, flush=True)
    os._exit(1)
";

/// The program, where there is an h5py for it.
fn program(
    stage: &Stage<'_>,
    connector: &Connector,
    flush: u64,
    options: &str,
    steps: &str,
) -> Option<Command> {
    let options: Vec<&str> = options.split(',').collect();
    let vol = format!("h5logfs {}", options.join(";"));
    let python = connector.python()?;
    let python = python.with_variables(connector.used_as(&vol));
    let fsync = options[0].trim_start_matches("fsync=");
    let mut command = python.command();
    command.args(["-c", WRITE]);
    command.args([stage.recorder.join(NAME), stage.recorder.join(SAID)]);
    command.args([&flush.to_string(), fsync, &WIDTH.to_string(), &attribute(1)]);
    command.args(steps.split(' '));
    Some(command)
}

/// Runs the program. Returns whether there is one.
fn write(stage: &Stage<'_>, connector: &Connector, flush: u64, options: &str, steps: &str) -> bool {
    let Some(mut command) = program(stage, connector, flush, options, steps) else {
        return false;
    };
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    true
}

/// Each request to the file system fails in one run.
#[test]
fn calls_of_an_hdf5_program_that_fail() {
    let connector = Connector::new();
    if connector.python().is_none() {
        return;
    }
    let options = "fsync=flush,checksums=yes";
    let attempt = |stage: &Stage<'_>, flush, steps| {
        ended(&mut program(stage, &connector, flush, options, steps).unwrap())
    };
    sweep(
        "connector, create",
        Work::Connector,
        |_| {},
        |stage| attempt(stage, 0, "create flush flush close"),
    );
    sweep(
        "connector, append",
        Work::Connector,
        |stage| {
            write(stage, &connector, 0, options, "create flush close");
        },
        |stage| attempt(stage, 1, "open flush close"),
    );
}

const WAYS: [(&str, bool); 4] = [
    ("fsync=none", false),
    ("fsync=close", false),
    ("fsync=flush", true),
    ("fsync=close,checksums=yes", true),
];

#[test]
fn a_log_of_an_hdf5_program() {
    let connector = Connector::new();
    run("connector", 1, Work::Connector, &WAYS, |stage, options| {
        if write(stage, &connector, 0, options, "create flush flush close") {
            write(stage, &connector, 2, options, "open flush close");
            // The earlier job's journal may return. A process knows objects and table of logs that it has closed
            // itself.
            if options == "fsync=close" {
                let steps = "open flush close open flush close open flush close";
                write(stage, &connector, 3, options, steps);
            }
        }
    });
}

/// Children end while the program runs, and after it has closed the log, or reopened it.
#[test]
fn a_log_of_an_hdf5_program_with_children() {
    let connector = Connector::new();
    let ways = &WAYS[1..];
    run(
        "connector, fork",
        1,
        Work::Connector,
        ways,
        |stage, options| {
            let steps = "create flush fork fork-late flush fork close join";
            if write(stage, &connector, 0, options, steps) {
                write(
                    stage,
                    &connector,
                    2,
                    options,
                    "open fork-late flush close join open fork close",
                );
            }
        },
    );
}

#[test]
fn a_log_that_an_hdf5_program_leaves() {
    let connector = Connector::new();
    let ways = &WAYS[1..];
    run(
        "connector, leave",
        1,
        Work::Connector,
        ways,
        |stage, options| {
            if write(stage, &connector, 0, options, "create flush flush leave") {
                write(stage, &connector, 2, options, "open flush leave");
                stage.recover(3);
            }
        },
    );
}

/// The program never flushes. Its rows are so large that its buffer fills before the last write, and the log is
/// flushed automatically in the call after that. No call followed the last row.
#[test]
fn a_log_of_an_hdf5_program_that_never_flushes() {
    let connector = Connector::new();
    let bytes = 6 * 2 * 8 * WIDTH;
    let write = |stage: &Stage<'_>, flush, options: &str, steps| {
        let options = format!("{options},flush_bytes={bytes},buffer_limit=64K");
        write(stage, &connector, flush, &options, steps)
    };
    run(
        "connector, automatic",
        1,
        Work::Connector,
        &WAYS[2..],
        |stage, options| {
            if write(stage, 0, options, "create automatic automatic leave") {
                write(stage, 2, options, "open automatic spill leave");
                stage.recorder.say("take");
                stage.command(&["recover", "--unflushed", NAME]);
            }
        },
    );
}

#[test]
fn a_log_that_goes_on_from_what_no_flush_covers() {
    let connector = Connector::new();
    let ways = &WAYS[1..];
    run(
        "connector, unflushed=yes",
        1,
        Work::Connector,
        ways,
        |stage, options| {
            let options = format!("{options},buffer_limit=64K");
            if write(
                stage,
                &connector,
                0,
                &options,
                "create flush flush spill leave",
            ) {
                stage.recorder.say("take");
                let options = format!("{options},unflushed=yes");
                write(stage, &connector, 2, &options, "open leave");
                let journal = fs::read_to_string(path_of(&stage.recorder.join(NAME))).unwrap();
                assert!(journal.contains("{\"flush\":3,"), "nothing was taken in");
                stage.recover(2);
            }
        },
    );
}

/// The writer and an HDF5 program append in turn. Some leave the log without a close, also where definitions add to an image.
#[test]
fn a_log_to_which_both_append() {
    let connector = Connector::new();
    let ways = &WAYS[1..];
    run("both", 1, Work::Writer, ways, |stage, options| {
        let of_writer = options.replace("=yes", "");
        if write(stage, &connector, 0, options, "create flush close") {
            stage.write(1, &of_writer, "open flush flush leave");
            write(stage, &connector, 3, options, "open flush leave");
            stage.write(4, &of_writer, "open flush close");
        }
    });
}

#[test]
fn a_log_that_an_hdf5_program_makes_an_ordinary_file() {
    let connector = Connector::new();
    let ways = [("fsync=close,settle=yes", false)];
    run(
        "connector, settle",
        1,
        Work::Connector,
        &ways,
        |stage, options| {
            write(stage, &connector, 0, options, "create flush flush close");
        },
    );
}
