//! An HDF5 file that may be no log.

use h5logfs_log::{find_signature, plain};

use super::Seeds;
use super::test_dir::TestDir;

/// Names one of which the root group of every log in an HDF5 file has.
const NAMES: [&[u8]; 2] = [b"_int_att", b"_metadata_log"];

pub fn run(bytes: &[u8]) {
    let test_dir = TestDir::new();
    test_dir.write("file.h5", bytes);
    test_dir.write("longer.h5", &[bytes, &[0xff; 64]].concat());
    if is_certain(&test_dir, "file.h5") {
        assert!(is_certain(&test_dir, "longer.h5"), "bytes behind it count");
    }
}

fn is_certain(test_dir: &TestDir, name: &str) -> bool {
    let file = test_dir.open(name);
    let signature = find_signature(&file).expect("a file that can be read");
    signature.is_some_and(|at| plain::is_certain(&file, at))
}

macro_rules! pair {
    ($name:literal) => {
        [
            (
                concat!($name, "-plain").to_owned(),
                include_bytes!(concat!("../../tests/corpus/", $name, ".expected.h5")).to_vec(),
            ),
            (
                concat!($name, "-log").to_owned(),
                include_bytes!(concat!("../../tests/corpus/", $name, ".log.h5")).to_vec(),
            ),
        ]
    };
}

/// Old and new superblocks and headers, groups with few and many links and attributes, a user block.
pub fn seeds() -> Seeds {
    let pairs = [
        pair!("tiny"),
        pair!("libver_latest"),
        pair!("netcdf4_wrf"),
        pair!("userblock"),
    ];
    let seeds: Seeds = pairs.into_iter().flatten().collect();
    for (name, bytes) in &seeds {
        let test_dir = TestDir::new();
        test_dir.write("file.h5", bytes);
        let has_name = NAMES
            .iter()
            .any(|n| bytes.windows(n.len()).any(|w| w == *n));
        assert_eq!(is_certain(&test_dir, "file.h5"), !has_name, "{name}");
    }
    seeds
}
