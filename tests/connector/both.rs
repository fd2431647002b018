//! Logs to which both append: HDF5 programs, through the connector, and programs of the writer.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::common::connector::Connector;
use crate::common::mpirun::{Job, program};
use crate::common::readers::{Python, said};
use crate::common::{Mounted, PROGRAM, User, can_mount};

/// What an HDF5 program does, `LIBVER STEP FILE`. A step `as …` does in a native file what the writer does in the log.
const HDF5: &str = "
import h5py, numpy as np, sys
libver, step, path = sys.argv[1:]
mode = 'w' if step == 'begin' else 'a'
f = h5py.File(path, mode, libver=libver)
new = lambda where, path: where.create_dataset(path, (0, 4), 'f8', maxshape=(None, 4), chunks=(8, 4))
def row(path, value):
    d = f[path]
    d.resize(d.shape[0] + 1, 0)
    d[-1] = value + np.arange(d.shape[1]) if d.ndim > 1 else value
if step == 'begin':
    g = f.create_group('g')
    g.attrs['units'] = 'K'
    rows = f.create_dataset('rows', (2, 4), 'f8', np.arange(8.).reshape(2, 4), maxshape=(None, 4), chunks=(2, 4),
                            compression='gzip', shuffle=True, fillvalue=-1)
    g.create_dataset('fixed', data=np.arange(12.).reshape(3, 4))
    # Dimension scales: one of the log, and one whose elements are not.
    x = f.create_dataset('x', data=np.arange(4.))
    x.make_scale('x')
    f['names'] = ['a', 'bc', 'd', 'e']
    f['names'].make_scale('names')
    rows.dims[1].attach_scale(x)
    g['fixed'].dims[1].attach_scale(x)
    g['fixed'].dims[1].attach_scale(f['names'])
    rows.dims[0].label = 'time'
    # References, types, links of all kinds.
    f.attrs['to'] = rows.ref
    f.attrs['part'] = rows.regionref[0:1, 1:3]
    f.attrs.create('texts', ['p', 'quite long', ''], dtype=h5py.string_dtype())
    f.create_dataset('refs', data=np.array([g.ref, x.ref], dtype=h5py.ref_dtype))
    f['type'] = np.dtype('i4')
    f.create_dataset('typed', data=np.arange(3, dtype='i4'), dtype=f['type'])
    f['typed'].attrs.create('of type', 5, dtype=f['type'])
    f['soft'] = h5py.SoftLink('/g/fixed')
    f['away'] = h5py.SoftLink('/nowhere')
    f['other'] = h5py.ExternalLink('other.h5', '/x')
    f['alias'] = rows
    f['way'] = g
    f.create_dataset('gaps', data=np.zeros(2, np.dtype({'names': ['a', 'b'], 'formats': ['i1', 'f8'],
                                                        'offsets': [0, 8], 'itemsize': 16})))
    # Groups and attributes that keep an order, more than a header has by default.
    many = f.create_group('many', track_order=True)
    for n in range(12, 0, -1):
        many[f'd{n}'] = float(n)
        many.attrs[f'a{n}'] = n
    dense = f.create_group('dense')
    for n in range(20):
        dense.create_group(f'g{n}')
        dense.attrs[f'a{n}'] = 'text %d' % n
    if libver == 'latest':
        dense.attrs['large'] = np.arange(20000, dtype='f8')
        many.attrs['large'] = np.arange(20000, dtype='f8')
    f['gone'] = np.arange(5)
    del f['gone']
    new(f, 'later')
    for n in range(40):
        new(g, f'series{n}')
elif step == 'as writer':
    row('rows', 100)
    f['rows'].attrs['unit'] = 'mm'
    f.attrs['title'] = 'both'
    new(f, 'g/more/w')
    row('g/more/w', 5)
    row('later', 6)
    f['g/more/w'].dims[1].attach_scale(f['x'])
    f['g/fixed'].dims[0].label = 'row'
    new(f, 'many/w')
    row('many/w', 7)
    f['many'].attrs['new'] = 'last'
    new(f, 'dense/w')
    f['dense'].attrs['new'] = 'last'
    f['dense/g3'].attrs['new'] = 'one'
    f['names'].attrs['new'] = 'names'
    row('rows', 200)
    f['g'].create_group('way')
    new(f, 't')
    row('t', 0)
    one = f.create_dataset('lone', (0,), 'f8', maxshape=(None,), chunks=(8,))
    for n in range(40):
        row(f'g/series{n}', n)
elif step == 'as writer again':
    row('rows', 300)
    row('g/more/w', 8)
    row('many/w', 9)
    row('by hdf5', 10)
    f.attrs['again'] = 'yes'
    new(f, 'last')
    row('last', 11)
    f['by hdf5'].dims[1].attach_scale(f['x'])
    f['many'].attrs['newer'] = 'more'
elif step == 'on':
    row('rows', 1000)
    row('g/more/w', 1001)
    row('many/w', 1002)
    d = new(f, 'by hdf5')
    row('by hdf5', 1003)
    d.attrs['ref'] = f['g/more/w'].ref
    f['g/more'].attrs['x'] = 1
    f['g/more/w'].dims[0].attach_scale(f['names'])
    f['typed'][1] = 17
    del f['g/series7']
elif step == 'on writer':
    for path in ('rows', 'g/more/w', 'many/w'):
        row(path, 50)
    new(f, 'by hdf5')
    f['x'] = np.arange(4.)
    f['x'].make_scale('columns')
    f['rows'].dims[1].attach_scale(f['x'])
    f['many/w'].dims[0].attach_scale(f['g/x'])
    f['names'] = ['a', 'b']
    f['type'] = np.dtype('f4')
    f['g/alias'] = f['rows']
    f['to'] = np.array([f['g'].ref], dtype=h5py.ref_dtype)
else:
    raise ValueError(step)
f.close()
";

/// What the writer does for `as writer`.
const WRITER: &[&str] = &[
    "open",
    "row /rows 100",
    "text /alias unit mm",
    "text / title both",
    "new /g/more/w",
    "row /way/more/w 5",
    "row /later 6",
    "attach /g/more/w 1 /x",
    "label /soft 0 row",
    "new /many/w",
    "append /many/w 7",
    "text /many new last",
    "flush",
    "new /dense/w",
    "text /dense new last",
    "text /dense/g3 new one",
    "text /names new names",
    "row /alias 200",
    "group /g/way",
    "new /t",
    "row /t 0",
    "list /lone",
    "refused /gaps there are gaps",
    "refused /names elements are not in the log",
    "refused /type committed datatype",
    "refused /away link",
    "rows /g/series 40",
];

const WRITER_AGAIN: &[&str] = &[
    "open",
    "row /rows 300",
    "row /g/more/w 8",
    "row /many/w 9",
    "row /by_hdf5 10",
    "text / again yes",
    "new /last",
    "row /last 11",
    "attach /by_hdf5 1 /x",
    "text /many newer more",
];

const CREATE: &[&str] = &[
    "create",
    "new /rows",
    "row /rows 1",
    "text /rows units K",
    "list /g/x",
    "row /g/x 3",
    "scale /g/x x",
    "attach /rows 0 /g/x",
    "label /rows 1 column",
    "new /g/more/w",
    "new /many/w",
];

/// A log, and a native file with the same content.
struct Both {
    dir: TempDir,
    connector: Python,
    native: Python,
    libver: &'static str,
}

impl Both {
    /// `None` where there is no Python whose HDF5 loads the connector.
    fn new(connector: &Connector, libver: &'static str) -> Option<Self> {
        Some(Both {
            dir: tempfile::tempdir().unwrap(),
            connector: connector.python()?,
            native: connector.passing_python()?,
            libver,
        })
    }

    fn log(&self) -> PathBuf {
        self.dir.path().join("log.h5")
    }

    fn plain(&self) -> PathBuf {
        self.dir.path().join("native.h5")
    }

    fn hdf5(&self, python: &Python, step: &str, path: &Path) {
        python.run(HDF5, &[self.libver.as_ref(), step.as_ref(), path]);
    }

    /// A step of an HDF5 program, in both files.
    fn step(&self, step: &str) {
        self.hdf5(&self.connector, step, &self.log());
        self.hdf5(&self.native, step, &self.plain());
    }

    /// The steps of a program of the writer, and what they are in the native file.
    fn writer(&self, ranks: u32, steps: &[&str], end: &[&str], native: &str) {
        self.run_writer(ranks, steps, end).succeed();
        self.hdf5(&self.native, native, &self.plain());
    }

    fn run_writer(&self, ranks: u32, steps: &[&str], end: &[&str]) -> Job {
        let log = self.log();
        let arguments = [&[log.to_str().unwrap()], steps, end].concat();
        Job::start(ranks, &program("writer-script"), &arguments)
    }

    /// Exports the log.
    #[track_caller]
    fn export(&self, to: &Path) {
        let mut export = Command::new(PROGRAM);
        let output = export.arg("export").arg(self.log()).arg(to).output();
        let output = output.unwrap();
        assert!(output.status.success(), "{}", said(&output));
    }

    /// Fails unless readers see the same in both files. `about` is told where they do not.
    #[track_caller]
    fn is_same(&self, about: &str) {
        let shown = self.dir.path().join("shown.h5");
        let _ = fs::remove_file(&shown);
        self.export(&shown);
        let same = self.native.same(&shown, &self.plain());
        same.unwrap_or_else(|e| panic!("{about}: {e}"));
    }

    fn is_unclosed(&self) -> bool {
        self.dir.path().join("log.h5.h5logfs-journal").exists()
    }

    #[track_caller]
    fn h5logfs(&self, command: &[&str]) -> String {
        let output = Command::new(PROGRAM).args(command).arg(self.log()).output();
        let output = output.unwrap();
        assert!(output.status.success(), "{command:?}: {}", said(&output));
        said(&output)
    }
}

const FORMS: [&str; 2] = ["earliest", "latest"];

/// Everything that HDF5 has, and that the writer does not make, stays what it is.
#[test]
fn the_writer_appends_to_logs_of_hdf5_programs() {
    let connector = Connector::new();
    for (libver, ranks) in FORMS.into_iter().zip([1, 3]) {
        let Some(both) = Both::new(&connector, libver) else {
            return;
        };
        both.step("begin");
        both.is_same("begun");
        both.writer(ranks, WRITER, &["close"], "as writer");
        assert!(!both.is_unclosed());
        both.is_same("the writer");
        both.step("on");
        both.is_same("an HDF5 program again");
        both.writer(ranks, WRITER_AGAIN, &["close"], "as writer again");
        both.is_same("the writer again");
        both.h5logfs(&["check"]);
        both.h5logfs(&["settle"]);
        both.native
            .same(&both.log(), &both.plain())
            .unwrap_or_else(|e| panic!("{e}"));
    }
}

/// A job that dies leaves a log that shows what it flushed, and to which anyone can append.
#[test]
fn the_writer_dies_in_a_log_of_an_hdf5_program() {
    let connector = Connector::new();
    for (libver, ranks) in FORMS.into_iter().zip([3, 1]) {
        let Some(both) = Both::new(&connector, libver) else {
            return;
        };
        both.step("begin");
        let lost = ["row /rows 7", "new /lost", "row /lost 8", "kill"];
        let flushed = [&["flush"][..], &lost].concat();
        both.run_writer(ranks, WRITER, &flushed).wait_for_killed();
        both.hdf5(&both.native, "as writer", &both.plain());
        assert!(both.is_unclosed());
        both.is_same("not closed");
        // The next job begins with an image and definitions.
        both.step("on");
        assert!(!both.is_unclosed());
        both.is_same("an HDF5 program");
        both.run_writer(ranks, WRITER_AGAIN, &["flush", "kill"])
            .wait_for_killed();
        both.hdf5(&both.native, "as writer again", &both.plain());
        both.is_same("not closed again");
        both.h5logfs(&["recover"]);
        assert!(!both.is_unclosed());
        both.is_same("recovered");
    }
}

/// Each begins where the other has left the log without a close.
#[test]
fn logs_that_were_not_closed_go_on() {
    let connector = Connector::new();
    let Some(both) = Both::new(&connector, "earliest") else {
        return;
    };
    // An HDF5 program that dies behind a flush.
    let dies = HDF5.replace("f.close()", "f.flush(); import os; os.kill(os.getpid(), 9)");
    let die = |step: &str| {
        let mut command = both.connector.command();
        command
            .args(["-c", &dies, both.libver, step])
            .arg(both.log());
        assert!(!command.status().unwrap().success());
        both.hdf5(&both.native, step, &both.plain());
        assert!(both.is_unclosed());
    };
    die("begin");
    both.is_same("not closed by an HDF5 program");
    both.run_writer(2, WRITER, &["flush", "kill"])
        .wait_for_killed();
    both.hdf5(&both.native, "as writer", &both.plain());
    both.is_same("not closed by the writer");
    // The writer goes on behind its own definitions.
    let more = ["open", "text / more yes", "row /rows 77", "row /many/w 78"];
    both.run_writer(3, &more, &["flush", "kill"])
        .wait_for_killed();
    let code = "
import h5py, numpy as np, sys
with h5py.File(sys.argv[1], 'a') as f:
    f.attrs['more'] = 'yes'
    for path, value in (('rows', 77), ('many/w', 78)):
        f[path].resize(f[path].shape[0] + 1, 0)
        f[path][-1] = value + np.arange(4)
";
    both.native.run(code, &[&both.plain()]);
    both.is_same("not closed by the writer again");
    die("on");
    both.is_same("not closed by an HDF5 program again");
    both.writer(1, WRITER_AGAIN, &["close"], "as writer again");
    both.is_same("closed");
}

#[test]
fn hdf5_programs_append_to_logs_of_the_writer() {
    let connector = Connector::new();
    for (end, is_closed) in [(&["close"][..], true), (&["flush", "kill"], false)] {
        let Some(both) = Both::new(&connector, "earliest") else {
            return;
        };
        let mut job = both.run_writer(2, CREATE, end);
        if is_closed {
            job.succeed();
        } else {
            job.wait_for_killed();
        }
        // Other tests look at what the writer makes.
        both.export(&both.plain());
        both.step("on writer");
        both.is_same("an HDF5 program");
        both.writer(3, WRITER_AGAIN, &["close"], "as writer again");
        both.is_same("the writer again");
        both.h5logfs(&["check"]);
    }
}

/// Who looks through the mount sees each flush of the second session.
#[test]
fn a_mount_shows_what_the_writer_appends() {
    if !can_mount(User::Caller) {
        return;
    }
    let connector = Connector::new();
    let Some(both) = Both::new(&connector, "earliest") else {
        return;
    };
    both.step("begin");
    let go_on = both.dir.path().join("go-on");
    let wait = format!("wait {}", go_on.display());
    let job = both.run_writer(2, WRITER, &["flush", &wait, "row /rows 900", "close"]);
    let mounted = Mounted::new(both.dir.path(), "");
    let shown = mounted.path().join("log.h5");
    let look = "
import h5py, sys, time
for _ in range(3000):
    try:
        with h5py.File(sys.argv[1], 'r', locking=False) as f:
            if 'lone' in f:
                assert f['rows'].shape == (4, 4), f['rows'].shape
                assert f['g/more/w'][0, 0] == 5 and f.attrs['title'] == 'both'
                assert list(f['many'])[:2] == ['d12', 'd11'] and f['typed'][2] == 2
                break
    except OSError:
        pass
    time.sleep(0.01)
else:
    raise SystemExit('the flush is not shown')
";
    both.native.run(look, &[&shown]);
    fs::write(&go_on, "").unwrap();
    job.succeed();
}
