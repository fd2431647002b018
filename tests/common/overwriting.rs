//! Programs that open a log for writing, replace or delete it.

use std::fs;
use std::path::Path;

use super::readers::{Python, corpus, project};

/// The outcome of each way to open a file for writing, to replace it, or to delete it: the program's message, or the
/// resulting file.
const TRY: &str = "
import os, sys
import h5py
sys.path.insert(0, sys.argv[1])
import libhdf5
def told(path, act):
    before = open(path, 'rb').read()
    try:
        act()
    except OSError as e:
        assert open(path, 'rb').read() == before, 'it is refused and changed'
        return type(e).__name__ + ': ' + str(e).replace(os.path.realpath(os.path.dirname(path)) + '/', '')
    return 'written' if os.path.exists(path) else 'gone'
def delete(path):
    if libhdf5.lib.H5Fdelete(path.encode(), 0) < 0:
        raise OSError('; '.join(libhdf5.errors()))
def write(path, mode):
    with h5py.File(path, mode) as f:
        f['new'] = 1
os.chdir(os.path.dirname(sys.argv[2]))
path = os.path.basename(sys.argv[2])
for mode in sys.argv[3].split():
    print(path, mode, told(path, lambda: write(path, mode)))
print(path, 'delete', told(path, lambda: delete(path)))
";

/// A line for each of these modes, and one for a deletion.
pub fn tried(python: &Python, file: &Path, modes: &str) -> Vec<String> {
    let tools = project().join("tests/tools");
    let told = python.run(TRY, &[&tools, file, modes.as_ref()]);
    told.lines().map(str::to_owned).collect()
}

/// Copies a log with subfiles into a directory, as `sub.h5`.
pub fn copy_subfiles(dir: &Path) {
    let at = |name: &str| dir.join(name);
    fs::copy(corpus().join("subfile.log.h5"), at("sub.h5")).unwrap();
    fs::create_dir(at("sub.h5.subfiles")).unwrap();
    let subfiles = corpus().join("subfile.log.h5.subfiles");
    for subfile in fs::read_dir(subfiles).unwrap().flatten() {
        let name = subfile.file_name().into_string().unwrap();
        let name = name.replace("subfile.log.h5", "sub.h5");
        fs::copy(subfile.path(), at("sub.h5.subfiles").join(name)).unwrap();
    }
}
