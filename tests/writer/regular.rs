//! Small writes with a regular stride: their size in the file, and reading them.

use std::fs;
use std::path::Path;

use crate::common::driver::Driver;
use crate::common::mpirun::{Job, program};
use crate::common::{Mounted, User, can_mount};

const RANKS: u32 = 2;
const WRITES: u64 = 20_000;

/// Bytes in the file for each write, without its element.
fn bytes_of_a_write(log: &Path, kind: &str) -> f64 {
    let writes = WRITES.to_string();
    let arguments = [log.to_str().unwrap(), &writes, "16", kind];
    let mut job = Job::start(RANKS, &program("writer-small"), &arguments);
    assert!(job.wait().success(), "{}", job.said());
    let all = u64::from(RANKS) * WRITES;
    (fs::metadata(log).unwrap().len() - 8 * all) as f64 / all as f64
}

/// The layout has 16 bytes for each block, and the entries are in the file twice.
#[test]
fn small_writes_in_turns_take_four_bytes_or_less() {
    let dir = tempfile::tempdir().unwrap();
    for kind in ["series", "turns"] {
        let taken = bytes_of_a_write(&dir.path().join(format!("{kind}.h5")), kind);
        assert!(taken <= 4.0, "{kind}: {taken}");
    }
    if !can_mount(User::Caller) {
        return;
    }
    let mounted = Mounted::new(dir.path(), "");
    let read = |name: &str| {
        let file = hdf5::File::open(mounted.join(name)).unwrap();
        file.dataset("data").unwrap().read_raw::<u64>().unwrap()
    };
    let turns = read("turns.h5");
    assert!(turns.into_iter().eq((0..2 * WRITES).map(|at| at / 2)));
    let row = (0..WRITES).flat_map(|value| [value, 0]);
    assert!(read("series.h5").into_iter().eq(row.clone().chain(row)));
    drop(mounted);
    if let Some(python) = Driver::new().python() {
        const CODE: &str = "import sys, h5py\n\
            data = h5py.File(sys.argv[1])['data']\n\
            print(data[::2].tolist() == data[1::2].tolist() == list(range(len(data) // 2)))";
        let said = python.run(CODE, &[&dir.path().join("turns.h5")]);
        assert_eq!(said.trim(), "True");
    }
}
