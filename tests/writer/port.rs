//! What a program that is ported to the writer needs, from the call to what readers see.

use std::path::PathBuf;
use std::process::Command;

use tempfile::TempDir;

use crate::common::PROGRAM;
use crate::common::mpirun::{Job, program};
use crate::common::readers::{Python, said};

/// A directory for one test, and the log in it that the program `writer-port` has written.
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

    /// What a mount shows of the log, as a file.
    fn exported(&self, name: &str) -> PathBuf {
        let shown = self.dir.path().join(name);
        let mut export = Command::new(PROGRAM);
        let output = export.arg("export").arg(self.log()).arg(&shown).output();
        let output = output.unwrap();
        assert!(output.status.success(), "{}", said(&output));
        shown
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
same('borrowed', [7, 8], 'u1')
same('none', [], 'f4')
same('yes', True, '?')
same('flags', [True, False], '?')
assert a['text'] == 'Pa', a['text']
assert list(a['texts']) == ['K', 'm s⁻¹'], a['texts']
assert list(a['owned']) == ['Pa', 'Pa'], a['owned']
a = file['air'].attrs
same('levels', [1000.0, 850.0, 500.0], 'f8')
assert list(a['axes']) == ['time', 'cell'], a['axes']
same('box', [[0, 0], [9, 9]], 'u4')
";
    for python in Python::all() {
        python.run(check, &[&shown]);
    }
}
