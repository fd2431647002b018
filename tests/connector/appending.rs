//! Programs that reopen their logs.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Stdio};

use h5logfs_arrays::{Log, Options, Selection};

use crate::common::amount::each_variant;
use crate::common::connector::Connector;
use crate::common::driver::Driver;
use crate::common::hosts::Hdf5;
use crate::common::mpirun::Mpi;
use crate::common::readers::{Python, said};
use crate::common::{Mounted, PROGRAM, User, can_mount, messages};

/// The elements of a deleted dataset stay in the log. Neither a new dataset shows them, nor one that grows again
/// after it shrank, in any session.
#[test]
fn what_was_deleted_or_cut_off_does_not_come_back() {
    let connector = Connector::new();
    let Some(python) = connector.python() else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let code = "
import h5py, numpy as np, sys
path = sys.argv[1]
with h5py.File(path, 'w') as f:
    f['kept'] = np.arange(4)
    f['gone'] = np.full(6, 7)
    del f['gone']
    f.create_dataset('rows', data=np.ones((5, 2)), maxshape=(None, 2), chunks=(2, 2), fillvalue=-1)
with h5py.File(path, 'a') as f:
    f['gone'] = 0
    del f['gone']
with h5py.File(path, 'a') as f:
    new = f.create_dataset('new', (6,), 'i8')
    new[1] = 3
    f['rows'].resize((2, 2))
    assert new[:].tolist() == [0, 3, 0, 0, 0, 0], new[:]
with h5py.File(path, 'a') as f:
    f['rows'].resize((4, 2))
    assert f['rows'][:, 0].tolist() == [1, 1, -1, -1], f['rows'][:]
with h5py.File(path, 'r') as f:
    assert f['kept'][:].tolist() == [0, 1, 2, 3]
    assert f['new'][:].tolist() == [0, 3, 0, 0, 0, 0], f['new'][:]
    assert f['rows'][:, 1].tolist() == [1, 1, -1, -1], f['rows'][:]
    assert sorted(f) == ['kept', 'new', 'rows']
print('good')
";
    let path = dir.path().join("log.h5");
    let said = python.run(code, &[&path]);
    assert_eq!(said.trim(), "good");
}

/// Readers lack the memory for the elements of one dataset, and read all others. An appending program has the memory:
/// otherwise the dataset would be lost, or the log could never grow again.
#[test]
#[ignore = "takes a gigabyte of memory"]
fn a_log_grows_that_readers_cannot_show_whole() {
    let connector = Connector::new();
    let Some(python) = connector.python() else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let code = "
import h5py, numpy as np, sys
path, size = sys.argv[1], 100 << 20
with h5py.File(path, 'w') as f:
    f['small'] = np.arange(4)
    large = f.create_dataset('large', 3, h5py.vlen_dtype('u1'))
    for n in range(3):
        large[n] = np.full(size, n, 'u1')
with h5py.File(path, 'a') as f:
    f['more'] = np.arange(5)
with h5py.File(path, 'r') as f:
    assert f['small'][:].tolist() == [0, 1, 2, 3] and f['more'][4] == 4
    try:
        f['large'][0]
    except OSError as error:
        assert 'index_memory' in str(error), error
    else:
        raise SystemExit('it was read')
print('good')
";
    let path = dir.path().join("log.h5");
    assert_eq!(python.run(code, &[&path]).trim(), "good");
    let reader = Driver::new();
    let roomy = vec![("HDF5_DRIVER_CONFIG", "index_memory=1G".into())];
    let python = reader.python().unwrap().with_variables(roomy);
    let code = "
import h5py, sys
with h5py.File(sys.argv[1]) as f:
    print(sorted(f), [int(f['large'][n][-1]) for n in range(3)])
";
    let said = python.run(code, &[&path]);
    assert_eq!(said.trim(), "['large', 'more', 'small'] [0, 1, 2]");
}

/// Ranks that have closed the log know how far its datasets reached, and exchange this.
#[test]
fn what_ranks_have_cut_off_does_not_come_back() {
    let driver = Driver::new();
    let (Some(hdf5), Some(python)) = (Hdf5::find(), driver.python()) else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("log.h5");
    let mut mpirun = Mpi::of_build().run(3, &hdf5.compiled("connector", "regrown"));
    mpirun.arg(&log).envs(Connector::new().used());
    let output = mpirun.output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let code = "import sys, h5py; print(h5py.File(sys.argv[1], 'r')['rows'][:].tolist())";
    let rows = |number: usize, value: i32| vec![vec![value; 3]; number];
    let wanted = [rows(2, 7), rows(6, -1)].concat();
    assert_eq!(python.run(code, &[&log]).trim(), format!("{wanted:?}"));
}

/// A resubmitted job truncates the file of the first attempt.
#[test]
fn what_a_killed_job_left_is_kept_beside_a_new_file() {
    let connector = Connector::new();
    let (Some(python), Some(plain)) = (connector.python(), Python::new()) else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let code = "
import h5py, os, signal, sys
f = h5py.File(sys.argv[1], 'w')
f['attempt'] = int(sys.argv[2])
f.flush()
if sys.argv[3] == 'killed':
    os.kill(os.getpid(), signal.SIGKILL)
f.close()
";
    let path = dir.path().join("out.h5");
    let attempt = |python: &Python, number: &str, end: &str| {
        let mut command = python.command();
        let command = command.args(["-c", code]).arg(&path).args([number, end]);
        let output = command.output().unwrap();
        (output.status.success(), messages(&output))
    };
    let is_kept = |said: &str, number: u32| {
        said.contains(&format!("is kept as {}.killed-{number};", path.display()))
    };
    assert_eq!(attempt(&python, "1", "killed"), (false, String::new()));
    let (succeeded, said) = attempt(&python, "2", "killed");
    assert!(!succeeded && is_kept(&said, 1), "{said}");
    let (succeeded, said) = attempt(&python, "3", "closed");
    assert!(succeeded && is_kept(&said, 2), "{said}");
    // A closed log may be replaced.
    assert_eq!(attempt(&python, "4", "closed"), (true, String::new()));
    let shown = "
import h5py, os, sys
names = sorted(name for name in os.listdir(sys.argv[1]) if not name.endswith('-journal'))
print(*[(name, int(h5py.File(os.path.join(sys.argv[1], name), 'r')['attempt'][()])) for name in names])
";
    let said = python.run(shown, &[dir.path()]);
    let kept = "('out.h5.killed-1', 1) ('out.h5.killed-2', 2)";
    assert_eq!(said.trim(), format!("('out.h5', 4) {kept}"));
    // Unless the user has declared it worthless.
    assert_eq!(attempt(&python, "5", "killed"), (false, String::new()));
    let mut variables = connector.used();
    variables.push(("H5LOGFS_DISCARD_UNCLOSED", "yes".into()));
    let python_that_discards = plain.with_variables(variables);
    assert_eq!(
        attempt(&python_that_discards, "6", "closed"),
        (true, String::new())
    );
    let said = python.run(shown, &[dir.path()]);
    assert_eq!(said.trim(), format!("('out.h5', 6) {kept}"));
}

/// A program that opens its file for each step finds its own writes, and the changes of another program.
#[test]
fn a_file_is_opened_for_each_step() {
    let connector = Connector::new();
    let Some(python) = connector.python() else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let code = "
import h5py, os, subprocess, sys
path = sys.argv[1]
other = \"\"\"
import h5py, sys
with h5py.File(sys.argv[1], 'a') as f:
    f.attrs['other'] = 'program'
    f['d'].resize((9,))
    f['d'][8] = 8
\"\"\"
with h5py.File(path, 'w') as f:
    f.create_dataset('d', (0,), 'i4', maxshape=(None,), chunks=(4,))
for i in range(8):
    with h5py.File(path, 'a') as f:
        d = f['d']
        assert d[:].tolist() == list(range(i)), d[:]
        d.resize((i + 1,))
        d[i] = i
        if i % 3 == 0:
            f.attrs[f'step {i}'] = i
            f[f'group {i}/x'] = i
        if i == 6:
            del f['group 3']
subprocess.run([sys.executable, '-c', other, path], check=True)
with h5py.File(path, 'a') as f:
    assert f.attrs['other'] == 'program'
    f['d'].resize((10,))
    f['d'][9] = 9
with h5py.File(path, 'r') as f:
    assert f['d'][:].tolist() == list(range(10)), f['d'][:]
    assert sorted(f) == ['d', 'group 0', 'group 6'], list(f)
    assert sorted(f.attrs) == ['other', 'step 0', 'step 3', 'step 6']
    assert f['group 6/x'][()] == 6
print('good')
";
    let path = dir.path().join("log.h5");
    let said = python.run(code, &[&path]);
    assert_eq!(said.trim(), "good");
}

/// A program that reopens its log gets the content of the file, whatever has happened since. Its memory is used only
/// for the same file, opened in the same way.
#[test]
fn a_log_that_is_opened_again_is_what_its_file_says() {
    let connector = Connector::new();
    let Some(python) = connector.python() else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let code = "
import h5py, os, shutil, subprocess, sys
path = sys.argv[1]
steps = 0
def begin():
    global steps
    with h5py.File(path, 'w') as f:
        f.create_dataset('d', (0,), 'i4', maxshape=(None,), chunks=(4,))
    steps = 0
def open_objects():
    return h5py.h5f.get_obj_count(h5py.h5f.OBJ_ALL, h5py.h5f.OBJ_ALL)
def step(**how):
    global steps
    before = open_objects()
    with h5py.File(path, 'a', **how) as f:
        d = f['d']
        assert d[:].tolist() == list(range(steps)), (d[:], steps)
        d.resize((steps + 1,))
        d[steps] = steps
        f.attrs['steps'] = steps + 1
        f[f'step {steps}'] = f'{how}'
    assert open_objects() == before
    steps += 1
def repeat():
    for _ in range(4):
        step()
begin()
repeat()
# An older state of the file, in its place and in its own bytes.
old = path + '.old'
shutil.copy(path, old)
for put in (lambda: os.replace(shutil.copy(old, old + '.2'), path), lambda: shutil.copyfile(old, path)):
    step()
    put()
    steps = 4
    repeat()
# Another one of its name, and none.
begin()
repeat()
os.remove(path)
begin()
repeat()
# Other lists.
step(libver='latest')
step(libver='latest')
step(rdcc_nbytes=0)
step()
# The program changes how the file is cached, and mounts a file on a group.
with h5py.File(path, 'a') as f:
    f.create_group('mounted')
with h5py.File(old + '.3', 'w') as other:
    other['inside'] = 1
for _ in range(2):
    with h5py.File(path, 'a') as f, h5py.File(old + '.3', 'a') as other:
        config = f.id.get_mdc_config()
        assert config.evictions_enabled and 'inside' not in f['mounted']
        config.evictions_enabled = False
        config.incr_mode = config.decr_mode = config.flash_incr_mode = 0
        f.id.set_mdc_config(config)
        h5py.h5f.mount(f.id, b'mounted', other.id)
        assert 'inside' in f['mounted']
repeat()
# What another program does, and what a child does that has the memory of this one.
child = os.fork()
if child == 0:
    step()
    step()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
steps += 2
repeat()
# A link from another log that is written, and a reader, see the closed file.
with h5py.File(old + '.4', 'w') as f:
    f['link'] = h5py.ExternalLink(path, '/d')
    f['x'] = 0
    for _ in range(3):
        step()
        assert f['link'][:].tolist() == list(range(steps)), f['link'][:]
        with h5py.File(path, 'r') as reader:
            assert reader['d'][:].tolist() == list(range(steps))
# A handle that stays, and is not the first one.
with h5py.File(path, 'a') as f:
    d = f['d']
assert not d
f = h5py.File(path, 'a')
d = f['d']
again = h5py.File(path, 'a')
f.close()
again['d'].resize((steps + 1,))
again['d'][steps] = steps
again.close()
steps += 1
repeat()
# A plain file has taken its place.
os.remove(path)
plain = {name: value for name, value in os.environ.items() if name != 'HDF5_VOL_CONNECTOR'}
code = \"import h5py, sys; h5py.File(sys.argv[1], 'w').create_dataset('d', (0,), 'i4', maxshape=(None,), chunks=(4,))\"
subprocess.run([sys.executable, '-c', code, path], env=plain, check=True)
steps = 0
repeat()
assert b'h5lgxtnt' not in open(path, 'rb').read()
print('good')
";
    let path = dir.path().join("log.h5");
    let said = python.run(code, &[&path]);
    assert_eq!(said.trim(), "good");
}

/// A log of unordered groups, logged datasets, and attributes of numbers, texts and references is closed without another program.
/// Any other object needs one.
#[test]
fn a_log_of_plain_objects_is_closed_by_its_program() {
    let connector = Connector::new();
    let Some(python) = connector.python() else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let code = "
import h5py, numpy, os, sys
path = sys.argv[1]
journal, h5logfs = path + '.h5logfs-journal', os.environ['H5LOGFS_PROGRAM']
os.environ['H5LOGFS_PROGRAM'] = '/nowhere/h5logfs'
with h5py.File(path, 'w') as f:
    f.attrs['title'] = 'steps'
    f.attrs['_n'] = [1, 2]
    for i in range(300):
        f[f'many/_{i:03}'] = [i, i + 1]
    f.create_dataset('g/d', (0, 3), 'f8', maxshape=(None, 3), chunks=(4, 3), fillvalue=7, compression='gzip')
    f['g/d'].attrs['units'] = 'K'
    f['link'] = h5py.SoftLink('/g/d')
assert not os.path.exists(journal)
for i in range(20):
    with h5py.File(path, 'a') as f:
        d = f['g/d']
        d.resize((i + 1, 3))
        d[i] = i
        f['g'].attrs['last'] = i
        if i % 5 == 0:
            f[f'step {i}'] = i
    assert not os.path.exists(journal), i
os.environ['H5LOGFS_PROGRAM'] = h5logfs
with h5py.File(path, 'r') as f:
    assert f['link'][:].tolist() == [[float(i)] * 3 for i in range(20)], f['link'][:]
    assert f['link'].attrs['units'] == 'K' and f.attrs['title'] == 'steps'
    assert f.attrs['_n'].tolist() == [1, 2] and f['g'].attrs['last'] == 19
    assert f['g/d'].compression == 'gzip' and f['g/d'].fillvalue == 7
    assert all(f[f'many/_{i:03}'][:].tolist() == [i, i + 1] for i in range(300))
    assert sorted(f) == ['g', 'link', 'many', 'step 0', 'step 10', 'step 15', 'step 5'], list(f)
os.environ['H5LOGFS_PROGRAM'] = '/nowhere/h5logfs'
with h5py.File(path, 'a') as f:
    f.attrs['reference'] = f['g'].ref
    f['g/d'].dims[0].label = 'step'
    f['many/_000'].make_scale('x')
    f['g/d'].dims[0].attach_scale(f['many/_000'])
assert not os.path.exists(journal)
os.environ['H5LOGFS_PROGRAM'] = h5logfs
with h5py.File(path, 'r') as f:
    assert f[f.attrs['reference']] == f['g'] and f['g/d'].dims[0].label == 'step'
    assert f['g/d'].dims[0]['x'] == f['many/_000'] and f['many/_000'][:].tolist() == [0, 1]
os.environ['H5LOGFS_PROGRAM'] = '/nowhere/h5logfs'
with h5py.File(path, 'a') as f:
    f['type'] = numpy.dtype('i4')
assert os.path.exists(journal)
print('good')
";
    let path = dir.path().join("log.h5");
    let said = python.run(code, &[&path]);
    assert_eq!(said.trim(), "good");
}

/// A program that repeatedly closes its log keeps the process that does it. That process has none of the program's
/// own files, such as the lock of one. The program may fork, close unknown descriptors, and lose that process.
#[test]
fn the_process_that_closes_logs_may_be_lost() {
    let connector = Connector::new();
    let Some(python) = connector.python() else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let code = "
import fcntl, h5py, numpy, os, signal, socket, sys
path, steps = sys.argv[1], 0
def locked():
    fd = os.open(path + '.lock', os.O_CREAT | os.O_RDWR)
    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return fd
def step():
    global steps
    with h5py.File(path, 'a') as f:
        d = f['d'] if 'd' in f else f.create_dataset('d', (0,), 'i4', maxshape=(None,), chunks=(4,))
        # Committed types are a matter of libhdf5: without one the program closes the log itself.
        if 'type' not in f:
            f['type'] = numpy.dtype('i4')
        assert d.shape == (steps,), (d.shape, steps)
        d.resize((steps + 1,))
        d[steps] = steps
    steps += 1
def closers(process='self'):
    found = []
    for task in os.listdir(f'/proc/{process}/task'):
        for child in open(f'/proc/{process}/task/{task}/children').read().split():
            arguments = open(f'/proc/{child}/cmdline').read().split('\\0')
            found += [int(child)] if 'close-log' in arguments else []
            found += closers(child)
    return found
# As libhdf5 opens files.
own = locked()
os.set_inheritable(own, True)
for _ in range(4):
    step()
kept = closers()
assert len(kept) == 1, kept
os.close(own)
os.close(locked())
step()
assert closers() == kept
child = os.fork()
if child == 0:
    step()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
steps += 1
for _ in range(3):
    step()
own = [int(fd) for fd in os.listdir('/proc/self/fd') if int(fd) > 2]
for fd in own:
    try:
        if os.readlink(f'/proc/self/fd/{fd}').startswith('socket:'):
            os.close(fd)
    except OSError:
        pass
# They have the numbers now.
one, other = socket.socketpair()
for _ in range(3):
    step()
other.send(b'own')
assert one.recv(9) == b'own'
for process in closers():
    os.kill(process, signal.SIGKILL)
step()
try:
    raise Exception(os.waitpid(-1, os.WNOHANG))
except ChildProcessError:
    pass
with h5py.File(path) as f:
    assert f['d'][:].tolist() == list(range(steps)), f['d'][:]
print('good')
";
    let path = dir.path().join("log.h5");
    let said = python.run(code, &[&path]);
    assert_eq!(said.trim(), "good");
}

/// Reads a dataset for each input line, and prints whether the content is right: each row holds its own number and the
/// dataset's.
const HOLD: &str = "
import sys
import h5py, numpy as np
f = h5py.File(sys.argv[1], 'r')
wanted = np.arange(4000)[:, None] + np.zeros(64)
print(f['d0'][:7, 0].tolist() == list(range(7)), flush=True)
for name in sys.stdin:
    try:
        print((f[name.strip()][:] == wanted + int(name[1:])).all(), flush=True)
    except OSError as e:
        print(e, flush=True)
";

/// A program that holds the file at `path` open, with this tool.
struct Holder(Child, BufReader<ChildStdout>);

impl Holder {
    fn new(python: &Python, path: &Path) -> Self {
        let mut command = python.command();
        let command = command.args(["-c", HOLD]).arg(path);
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = child.unwrap();
        let said = BufReader::new(child.stdout.take().unwrap());
        let mut holder = Holder(child, said);
        assert_eq!(holder.line(), "True");
        holder
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.1.read_line(&mut line).unwrap();
        line.trim().to_owned()
    }

    fn reads(&mut self, name: &str) -> String {
        writeln!(self.0.stdin.as_mut().unwrap(), "{name}").unwrap();
        self.line()
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

/// A program with an open closed log can still read it after others reopen it, whatever they write, and in every way
/// of reading.
#[test]
fn a_closed_log_that_is_open_stays_readable() {
    let (connector, driver) = (Connector::new(), Driver::new());
    let (Some(python), Some(by_driver)) = (connector.python(), driver.python()) else {
        return;
    };
    const WRITE: &str = "
import h5py, numpy as np, os, sys
path, mode = sys.argv[1:]
with h5py.File(path, 'w' if mode == 'make' else 'a') as f:
    if mode == 'make':
        rows = np.arange(4000)[:, None] + np.zeros(64)
        for number in range(5):
            name, packed = f'd{number}', 'gzip' if number % 2 else None
            d = f.create_dataset(name, (4000, 64), 'f8', chunks=(500, 64), maxshape=(None, 64), compression=packed)
            for row in range(0, 4000, 500):
                d[row:row + 500] = rows[row:row + 500] + number
    elif mode != 'look':
        for number in range(5):
            f[f'd{number}'][:1000] = -1
        f[f'new {mode}'] = np.full((2000, 64), 9.)
        f.flush()
    if mode == 'dies':
        os._exit(0)
";
    each_variant(&["", " subfiles=1;checksums=yes"], |options| {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log.h5");
        let information = format!("h5logfs{options}");
        let writer = Python::new()
            .unwrap()
            .with_variables(connector.used_as(&information));
        let write = |mode: &str| writer.run(WRITE, &[&log, Path::new(mode)]);
        write("make");
        let mut holders = vec![Holder::new(&python, &log), Holder::new(&by_driver, &log)];
        let mounted = can_mount(User::Caller).then(|| Mounted::new(dir.path(), "index_dir=none"));
        if let Some(mounted) = &mounted {
            let plain = Python::new().unwrap();
            holders.push(Holder::new(&plain, &mounted.join("log.h5")));
        }
        let mut own = Options::parse("index_dir=none".as_ref()).unwrap();
        own.scans.program = PROGRAM.into();
        let held = Log::open(&log, &own).unwrap();
        for (number, mode) in ["look", "append", "again", "dies"].iter().enumerate() {
            write(mode);
            let name = format!("d{}", number + 1);
            for (way, holder) in holders.iter_mut().enumerate() {
                assert_eq!(holder.reads(&name), "True", "{options} {mode}, way {way}");
            }
            let dataset = held.dataset(&name).unwrap();
            let rows = dataset.read::<f64>(&Selection::All).unwrap();
            let wanted = (0..4000 * 64).map(|at| (at / 64 + number as i32 + 1) as f64);
            assert!(rows.into_iter().eq(wanted), "{options} {mode}");
        }
    });
}
