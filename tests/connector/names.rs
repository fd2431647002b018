//! Names and paths of logs: long names, paths that partly disappear while the log is open, and files of a user with
//! names of parts of a log.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::common::connector::Connector;
use crate::common::driver::Driver;
use crate::common::readers::{Python, said};
use crate::common::settled::settle_by_command;
use crate::common::{Mounted, PROGRAM, User, can_mount};

/// The longest file name.
const LONGEST: usize = 255;

fn long_name(len: usize) -> String {
    format!("{}.h5", "n".repeat(len - 3))
}

#[test]
fn a_closed_log_with_a_long_name_is_read_in_all_ways() {
    let (connector, driver) = (Connector::new(), Driver::new());
    let (Some(writes), Some(plain)) = (connector.python(), Python::new()) else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let made = dir.path().join("made.h5");
    let make = "import h5py, sys; f = h5py.File(sys.argv[1], 'w'); f['x'] = range(100); f.close()";
    writes.run(make, &[&made]);
    let (name, out) = (long_name(LONGEST), dir.path().join("out"));
    let path = dir.path().join(&name);
    fs::rename(made, &path).unwrap();
    let sum = "import h5py, sys; print(h5py.File(sys.argv[1])['x'][:].sum())";
    let reads = |python: &Python, path: &Path| assert_eq!(python.run(sum, &[path]), "4950\n");
    reads(&plain.with_variables(driver.used()), &path);
    reads(&writes, &path);
    if can_mount(User::Caller) {
        let mounted = Mounted::by(User::Caller, dir.path(), "");
        reads(&plain, &mounted.join(&name));
    }
    for command in [
        "inspect", "check", "recover", "ls", "export", "compact", "report",
    ] {
        let _ = fs::remove_file(&out);
        let mut program = Command::new(PROGRAM);
        program.arg(command).current_dir(&dir);
        match command {
            "export" | "compact" => program.args([&path, &out]),
            "report" => program.arg(&path).arg("-o").arg(&out),
            "ls" => program.arg("."),
            _ => program.arg(&path),
        };
        let output = program.output().unwrap();
        assert!(output.status.success(), "{command}: {}", said(&output));
        if ["export", "compact"].contains(&command) {
            reads(&plain, &out);
        }
    }
    // No journal could lie beside it.
    let open = "import h5py, sys; h5py.File(sys.argv[1], sys.argv[2])";
    let before = fs::read(&path).unwrap();
    for mode in ["a", "w"] {
        let mut program = writes.command();
        program.args(["-c", open]).arg(&path).arg(mode);
        let said = said(&program.output().unwrap());
        assert!(
            said.contains("its name of 255 bytes is too long for a log"),
            "{said}"
        );
        assert_eq!(fs::read(&path).unwrap(), before);
    }
    settle_by_command(&path);
    reads(&plain, &path);
    // The longest name that can be written, and one more.
    for (len, words) in [
        (217, ""),
        (218, "its name of 218 bytes is too long for a log"),
    ] {
        let mut program = writes.command();
        program
            .args(["-c", make])
            .arg(dir.path().join(long_name(len)));
        let output = program.output().unwrap();
        assert_eq!(output.status.success(), words.is_empty());
        assert!(said(&output).contains(words), "{}", said(&output));
    }
}

/// Components of the path disappear after the log was created or reopened.
#[test]
fn a_log_is_where_its_path_led_when_it_was_opened() {
    let connector = Connector::new();
    let Some(python) = connector.python() else {
        return;
    };
    let code = "
import os, sys
import h5py
os.chdir(sys.argv[1])
for options in 'w', 'a':
    os.mkdir('way')
    os.mkdir('other')
    os.symlink('.', 'link')
    files = [h5py.File(way + '%d.h5' % n, options) for n, way in enumerate(
        ['way/../', os.path.abspath('way') + '/../', 'link/', './way/../link/../' + os.path.basename(os.getcwd()) + '/'])]
    for f in files:
        f[options] = range(10)
    os.rmdir('way')
    os.remove('link')
    os.chdir('other')
    for f in files:
        f.flush()
        f['after ' + options] = 1
        f.close()
    os.chdir('..')
    os.rmdir('other')
for n in range(4):
    with h5py.File('%d.h5' % n) as f:
        assert sorted(f) == ['a', 'after a', 'after w', 'w'], list(f)
assert len(os.listdir('.')) == 4, os.listdir('.')
";
    let dir = tempfile::tempdir().unwrap();
    python.run(code, &[dir.path()]);
}

/// A user's files with names of parts of `run.h5`.
const STRANGERS: [&str; 12] = [
    "run.h5.subfiles/notes.2024",
    "run.h5.subfiles/result.001",
    "run.h5.subfiles/run.h5.0",
    "run.h5.subfiles/thoughts.",
    "run.h5.h5logfs-spill/0.1",
    "run.h5.h5logfs-spill/notes.2024",
    "run.h5.h5logfs-unflushed",
    "run.h5.h5logfs-unflushed-2",
    "run.h5.killed-1",
    "run.h5.killed-1.subfiles/run.h5.killed-1.0",
    ".run.h5.h5logfs-new-01234567",
    ".run.h5.h5logfs-journal.h5logfs-new-01234567",
];

#[test]
fn a_users_files_stay_whatever_their_names() {
    let connector = Connector::new();
    let Some(python) = connector.python() else {
        return;
    };
    // The existing files, and the action.
    let plain = "import h5py, sys; h5py.File(sys.argv[1], 'w')['x'] = range(10)";
    let closed = plain;
    let left = "
import h5py, os, sys
f = h5py.File(sys.argv[1], 'w')
f['x'] = range(10)
f['type'] = f['x'].dtype
f.flush()
os._exit(0)
";
    let append = "import h5py, sys; h5py.File(sys.argv[1], 'a')['y'] = range(10)";
    let natively = Python::new().unwrap();
    let log = |dir: &Path| dir.join("run.h5");
    let run = |python: &Python, code: &str, dir: &Path| {
        python.run(code, &[&log(dir)]);
    };
    let command = |arguments: &[&str], dir: &Path| {
        let mut command = Command::new(PROGRAM);
        let output = command.args(arguments).arg(log(dir)).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", said(&output));
    };
    type Step<'a> = &'a dyn Fn(&Path);
    let cases: [(&str, [Step<'_>; 2]); 8] = [
        ("a new file", [&|_| {}, &|dir| run(&python, closed, dir)]),
        (
            "over a plain file",
            [&|dir| run(&natively, plain, dir), &|dir| {
                run(&python, closed, dir)
            }],
        ),
        (
            "over a log",
            [&|dir| run(&python, closed, dir), &|dir| {
                run(&python, closed, dir)
            }],
        ),
        (
            "over a log that was not closed",
            [&|dir| run(&python, left, dir), &|dir| {
                run(&python, closed, dir)
            }],
        ),
        (
            "an append",
            [&|dir| run(&python, closed, dir), &|dir| {
                run(&python, append, dir)
            }],
        ),
        (
            "an append to what is not closed",
            [&|dir| run(&python, left, dir), &|dir| {
                run(&python, append, dir)
            }],
        ),
        (
            "recover",
            [&|dir| run(&python, left, dir), &|dir| {
                command(&["recover"], dir)
            }],
        ),
        (
            "recover --unflushed, and settle",
            [&|dir| run(&python, left, dir), &|dir| {
                command(&["recover", "--unflushed"], dir);
                command(&["recover", "--discard-unflushed"], dir);
                command(&["settle"], dir);
            }],
        ),
    ];
    for (what, [before, act]) in cases {
        let dir = tempfile::tempdir().unwrap();
        before(dir.path());
        for name in STRANGERS {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, name).unwrap();
        }
        act(dir.path());
        for name in STRANGERS {
            let found = fs::read_to_string(dir.path().join(name));
            assert_eq!(found.ok().as_deref(), Some(name), "{what}");
        }
    }
    // A file with the name of the journal is in the way.
    let dir = tempfile::tempdir().unwrap();
    run(&python, closed, dir.path());
    let journal = dir.path().join("run.h5.h5logfs-journal");
    fs::write(&journal, "notes").unwrap();
    command(&["recover"], dir.path());
    for code in [closed, append] {
        let refused = python
            .command()
            .args(["-c", code])
            .arg(log(dir.path()))
            .output();
        let refused = said(&refused.unwrap());
        let words = "h5logfs-journal does not belong to the log of this name";
        assert!(refused.contains(words), "{refused}");
    }
    assert_eq!(fs::read_to_string(journal).unwrap(), "notes");
}

/// A truncated file keeps its rights, as natively, where the file is overwritten and not replaced.
#[test]
fn a_truncated_file_keeps_what_users_may_do_with_it() {
    let connector = Connector::new();
    let (Some(python), Some(natively)) = (connector.python(), Python::new()) else {
        return;
    };
    let code = "
import os, stat, sys
import h5py
os.chdir(sys.argv[1])
os.umask(0o022)
def rights(path):
    return oct(stat.S_IMODE(os.stat(path).st_mode)), {n: os.getxattr(path, n) for n in os.listxattr(path)}
for mode in 0o600, 0o640, 0o666, 0o644:
    with open('run.h5', 'w') as f:
        os.fchmod(f.fileno(), mode)
    try:
        os.setxattr('run.h5', 'user.note', b'value')
    except OSError:
        pass
    expected = rights('run.h5')
    with h5py.File('run.h5', 'w') as f:
        f['x'] = range(10)
        f.flush()
        print(rights('run.h5') == expected)
    for _ in range(2):
        with h5py.File('run.h5', 'a') as f:
            f['x'][3] = 1
            f.flush()
            for part in os.listdir('.'):
                print(rights(part)[0] == expected[0])
    os.remove('run.h5')
with open('run.h5', 'w') as f:
    os.fchmod(f.fileno(), 0o444)
if os.getuid() == 0:
    os.chmod('.', 0o777)
    os.setuid(65534)
try:
    h5py.File('run.h5', 'w')
    print('overwritten')
except OSError as e:
    print('Permission denied' in str(e) or str(e))
print(os.listdir('.'))
";
    for python in [natively, python] {
        let dir = tempfile::tempdir().unwrap();
        let said = python.run(code, &[dir.path()]);
        let (all, last) = said.trim_end().rsplit_once('\n').unwrap();
        assert_eq!(last, "['run.h5']");
        assert!(all.lines().all(|line| line == "True"), "{said}");
    }
}
