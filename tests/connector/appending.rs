//! Programs that open their logs again.

use crate::common::connector::Connector;

/// The elements of a deleted dataset stay in the log. A new dataset does not show them, nor does one that grows over what
/// it had before it shrank, in whichever session.
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
