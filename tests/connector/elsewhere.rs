//! Logs whose links and virtual datasets lead to other files.

use std::fs;

use crate::common::connector::Connector;

/// Makes two logs as sources and a plain file, and a log that leads to them; reads it in the session that makes it, in one
/// that appends to it, and after that. A log that a link leads to is not changed.
const PROGRAM: &str = "
import os, sys
import h5py, numpy as np
os.chdir(sys.argv[1])
for n in (0, 1):
    with h5py.File(f'source{n}.h5', 'w') as f:
        f['part/values'] = np.arange(6) + 10 * n
with h5py.File('plain.dat', 'w') as f:
    f['values'] = np.arange(3)
def check(f):
    assert np.array_equal(f['all'][:], [np.arange(6), np.arange(6) + 10]), f['all'][:]
    assert np.array_equal(f['log/values'][:], np.arange(6)), f['log/values'][:]
    assert np.array_equal(f['plain'][:], np.arange(3)), f['plain'][:]
    assert np.array_equal(f['own'][:], np.ones(4)), f['own'][:]
layout = h5py.VirtualLayout(shape=(2, 6), dtype=int)
for n in (0, 1):
    layout[n] = h5py.VirtualSource(f'source{n}.h5', 'part/values', shape=(6,))
with h5py.File('main.h5', 'w', libver=sys.argv[2]) as f:
    f.create_virtual_dataset('all', layout, fillvalue=-1)
    f['log'] = h5py.ExternalLink('source0.h5', 'part')
    f['plain'] = h5py.ExternalLink('plain.dat', 'values')
    f['own'] = np.ones(4)
    check(f)
    f.flush()
    f['plain'][0] = 0
    f['log/values'][0] = 5
with h5py.File('main.h5', 'r') as f:
    check(f)
with h5py.File('main.h5', 'r+') as f:
    f['more'] = 1
    check(f)
with h5py.File('main.h5', 'r') as f:
    check(f)
    assert f['more'][()] == 1
";

fn leads_to_other_files(format: &str) {
    let connector = Connector::new();
    let mut variables = connector.used();
    variables.push(("H5LOGFS_MATCH", "*.h5".into()));
    let Some(python) = crate::common::readers::Python::new() else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let python = python.with_variables(variables);
    python.run(PROGRAM, &[dir.path(), format.as_ref()]);
    let mut names: Vec<_> = fs::read_dir(dir.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    // The file in memory is nowhere, and the logs are closed.
    assert_eq!(names, ["main.h5", "plain.dat", "source0.h5", "source1.h5"]);
}

#[test]
fn links_and_virtual_datasets_of_a_log_show_what_is_in_logs_and_in_plain_files() {
    leads_to_other_files("earliest");
}

#[test]
fn a_log_in_the_newest_format_closes_with_its_virtual_datasets() {
    leads_to_other_files("latest");
}
