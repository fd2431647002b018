//! Programs ported to the writer, from their calls to the view of readers.

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::common::mpirun::{Job, program};
use crate::common::readers::{Python, said};
use crate::common::{Mounted, PROGRAM, User, can_mount};

/// A directory for one test with the log of the program `writer-port`.
struct Ported {
    dir: TempDir,
}

impl Ported {
    fn write(ranks: u32, what: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let ported = Ported { dir };
        let log = ported.log();
        let arguments = [what, log.to_str().unwrap()];
        Job::start(ranks, &program("writer-port"), &arguments).succeed();
        ported
    }

    fn log(&self) -> PathBuf {
        self.dir.path().join("log.h5")
    }

    /// Exports the log, as the mount shows it.
    fn exported(&self, name: &str) -> PathBuf {
        let shown = self.dir.path().join(name);
        let mut export = Command::new(PROGRAM);
        let output = export.arg("export").arg(self.log()).arg(&shown).output();
        let output = output.unwrap();
        assert!(output.status.success(), "{}", said(&output));
        shown
    }
}

/// The readers' view of the file that the program writes with `scales`.
const SCALES: &str = "
import h5py
with h5py.File(path, 'r') as f:
    pressure = f['air/pressure']
    assert [d.label for d in pressure.dims] == ['', 'place']
    time, x = pressure.dims
    assert (time.keys(), x.keys()) == (['time'], ['x']), (time.keys(), x.keys())
    assert time[0] == f['time'] and x['x'] == f['x']
    assert time[0][:].tolist() == [0, 6, 12] and time[0].maxshape == (None,)
    field = f['hdf5/field']
    assert field.dims[0].keys() == ['the centre', ''], field.dims[0].keys()
    for scale in 'time', 'x', 'member', 'hdf5/_centre', 'hdf5/edge':
        assert h5py.h5ds.is_scale(f[scale].id), scale
    assert not h5py.h5ds.is_scale(pressure.id)
    (user, dimension), = f['x'].attrs['REFERENCE_LIST']
    assert f[user] == pressure and dimension == 1
    assert 'NAME' not in f['hdf5/edge'].attrs
";

/// The view of netCDF and xarray, with both of its engines for such files.
const NETCDF_SCALES: &str = "
import netCDF4, numpy, xarray
with netCDF4.Dataset(path) as f:
    sizes = {name: (len(d), d.isunlimited()) for name, d in f.dimensions.items()}
    cells = len(f['x'])
    assert sizes == {'member': (2, False), 'time': (3, True), 'x': (cells, False)}, sizes
    assert f['air/pressure'].dimensions == ('time', 'x')
    assert sorted(f.variables) == ['seeds', 'time', 'x'], list(f.variables)
for engine in 'netcdf4', 'h5netcdf':
    with xarray.open_dataset(path, engine=engine) as d:
        assert dict(d.sizes) == {'member': 2, 'time': 3, 'x': cells}, d
        assert set(d.coords) == {'time', 'x'} and list(d.data_vars) == ['seeds'], d
        assert d['time'][1] == numpy.datetime64('2000-01-01T06:00'), d['time']
        assert d['x'].values.tolist() == [n / 2 for n in range(cells)]
    with xarray.open_datatree(path, engine=engine) as tree:
        pressure = tree['air/pressure']
        assert pressure.sel(time='2000-01-01T12:00', x=0.5).item() == 200, pressure
";

/// Checks these files, in one process of each Python.
fn check_scales(shown: &[PathBuf]) {
    let paths: Vec<&Path> = shown.iter().map(PathBuf::as_path).collect();
    let of_each = |check: &str| {
        let check = check.replace('\n', "\n    ");
        format!("import sys\nfor path in sys.argv[1:]:\n    print(path, flush=True){check}")
    };
    for python in Python::all() {
        python.run(&of_each(SCALES), &paths);
    }
    if let Some(python) = Python::new() {
        python.run(&of_each(NETCDF_SCALES), &paths);
    }
    for path in shown {
        let head = Command::new("ncdump").arg("-h").arg(path).output().unwrap();
        let head = said(&head);
        let shows = |line: &str| assert!(head.contains(line), "{head}");
        shows("time = UNLIMITED ; // (3 currently)");
        shows("double pressure(time, x) ;");
        shows("int seeds(member) ;");
    }
}

/// The names must be right in a closed, an unclosed and a recovered file, through a mount and after an export.
#[test]
fn dimensions_have_the_names_of_their_scales() {
    let (closed, open) = (Ported::write(2, "scales"), Ported::write(2, "open-scales"));
    let unclosed = open.exported("unclosed.h5");
    let mut shown = vec![closed.exported("closed.h5"), unclosed.clone()];
    let of_mounts: Vec<Mounted> = if can_mount(User::Caller) {
        let mount = |ported: &Ported| Mounted::new(ported.dir.path(), "");
        [&closed, &open].map(mount).into()
    } else {
        Vec::new()
    };
    shown.extend(of_mounts.iter().map(|mounted| mounted.join("log.h5")));
    check_scales(&shown);
    drop(of_mounts);
    let mut recover = Command::new(PROGRAM);
    let output = recover.arg("recover").arg(open.log()).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let recovered = open.exported("recovered.h5");
    check_scales(std::slice::from_ref(&recovered));
    // The view before the close equals the view after it.
    for python in Python::all() {
        python.same(&unclosed, &recovered).unwrap();
    }
}

#[test]
fn a_scale_has_any_number_of_uses() {
    let ported = Ported::write(1, "many-scales");
    let shown = ported.exported("shown.h5");
    let check = "
import sys, h5py
with h5py.File(sys.argv[1], 'r') as f:
    uses = f['cell'].attrs['REFERENCE_LIST']
    assert len(uses) == 4500, len(uses)
    place = lambda of: h5py.h5o.get_info(of.id).addr
    assert {place(f[user]) for user, _ in uses} == {place(field) for field in f['fields'].values()}
    assert f['fields/4499'].dims[0]['cell'] == f['cell']
";
    for python in Python::all() {
        python.run(check, &[&shown]);
    }
}

#[test]
fn ghost_cells_stay_behind() {
    let ported = Ported::write(4, "ghosts");
    let shown = ported.exported("shown.h5");
    let check = "
import sys, h5py, numpy
with h5py.File(sys.argv[1], 'r') as f:
    wanted = numpy.add.outer(1000.0 * numpy.arange(6), numpy.arange(10))
    for name in 'field', 'filtered', 'lent':
        assert (f[name][:] == wanted).all(), (name, f[name][:])
    for rank, plane in enumerate(f['coarse'][:]):
        row, column = rank % 2 * 3, rank // 2 * 5
        assert (plane == wanted[row:row + 3, column:column + 5:2]).all(), plane
";
    for python in Python::all() {
        python.run(check, &[&shown]);
    }
}

/// The order also holds after a failed flush, and in a dataset to which only one rank appends.
#[test]
fn appended_rows_lie_in_the_order_of_the_ranks() {
    let ported = Ported::write(4, "appends");
    let shown = ported.exported("shown.h5");
    let check = "
import sys, h5py
wanted = []
for round in range(5):
    for rank in range(4):
        wanted += [[rank, round, n] for n in range((3 * rank + 5 * round) % 7)]
        if round == 3:
            wanted += [[rank, -1, n] for n in range(rank)]
with h5py.File(sys.argv[1], 'r') as f:
    assert f['particles'][:].tolist() == wanted, f['particles'][:].tolist()
    assert f['plain'][:].tolist() == 10 * [0] + [v for round in range(5) for v in (round, 7)]
    assert f['tracked'][:].tolist() == [3 * [rank] for rank in range(4) for _ in range(rank + 1)]
    assert f['late'][:].tolist() == [9, 1, 2, 3]
";
    for python in Python::all() {
        python.run(check, &[&shown]);
    }
}

#[test]
fn attributes_come_from_vectors_arrays_and_slices() {
    let ported = Ported::write(2, "attributes");
    let shown = ported.exported("shown.h5");
    let check = "
import sys, h5py, numpy
file = h5py.File(sys.argv[1], 'r')
a = file.attrs
def same(name, values, dtype):
    assert a[name].dtype == dtype and numpy.array_equal(a[name], values), (name, a[name])
same('vec', [1.0, 2.5], 'f8')
same('moved', [1.0, 2.5], 'f8')
same('slice', [2.5], 'f8')
same('array', [1, 2, 3], 'i4')
same('pair', [7, 8], 'u1')
same('none', [], 'f4')
same('yes', True, '?')
same('flags', [True, False], '?')
assert a['text'] == 'Pa', a['text']
assert list(a['texts']) == ['K', 'm s⁻¹'], a['texts']
assert list(a['owned']) == list(a['borrowed']) == ['Pa', 'Pa'], a['owned']
a = file['air'].attrs
same('levels', [1000.0, 850.0, 500.0], 'f8')
assert list(a['axes']) == ['time', 'cell'], a['axes']
same('box', [[0, 0], [9, 9]], 'u4')
";
    for python in Python::all() {
        python.run(check, &[&shown]);
    }
}
