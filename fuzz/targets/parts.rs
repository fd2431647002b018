//! An HDF5 file in several parts: its configuration, its superblock and its driver information.

use std::path::Path;

use h5logfs_catalog::lookup::scan_file;
use h5logfs_common::error::{Error, Result};
use h5logfs_common::memory::Reserved;
use h5logfs_common::task::Task;
use h5logfs_log::scan::{ScanRequest, Scanner, Settings};
use h5logfs_log::snapshot::Snapshot;

use super::Seeds;
use super::input::{Input, Output};
use super::reading::read;
use super::test_dir::TestDir;

/// Bytes of the file that its stub has, too.
const STUB: usize = 185;

/// No file here needs a scan.
#[derive(Debug)]
struct NoScanner;

impl Scanner for NoScanner {
    fn scan(&self, _: &Task, request: ScanRequest<'_>) -> Result<Reserved<Snapshot>> {
        Err(Error::NotALog {
            path: request.relative.to_owned(),
            reason: "not in parts".into(),
        })
    }
}

pub fn run(bytes: &[u8]) {
    let (config, file) = Input(bytes).two_parts();
    let test_dir = TestDir::new();
    test_dir.write("a.h5", &file[..file.len().min(STUB)]);
    test_dir.write("a.h5.subfile_5.config", config);
    test_dir.write("a.h5.subfile_5_1_of_2", file);
    test_dir.write("a.h5.subfile_5_2_of_2", &[7; 5000]);
    test_dir.write("b_00.h5", file);
    test_dir.write("b_01.h5", &[7; 5000]);
    for name in ["a.h5", "b_00.h5"] {
        let (task, settings) = (Task::unlimited(), Settings::default());
        let name = Path::new(name);
        let found = scan_file(&task, &NoScanner, &test_dir.source, name, &settings);
        if let Ok(found) = found {
            let (snapshot, _memory) = found.into_parts();
            assert_eq!(snapshot.check(), Ok(()), "a snapshot that was just made");
            if let Ok(view) = test_dir.view(snapshot) {
                read(&view);
            }
        }
    }
}

const CONFIG: &[u8] =
    b"stripe_size=4096\naggregator_count=2\nsubfile_count=2\nhdf5_file=/a.h5\nsubfile_dir=/\n";

pub fn seeds() -> Seeds {
    let files: [(&str, &[u8]); 4] = [
        (
            "old",
            include_bytes!("../../tests/corpus-striped/contig_2/data.h5.subfile_6456011_1_of_2"),
        ),
        (
            "new",
            include_bytes!(
                "../../tests/corpus-striped/v220_zero_stub/data.h5.subfile_6456226_1_of_2"
            ),
        ),
        (
            "family",
            include_bytes!("../../tests/corpus-striped/family/fam_00000.h5"),
        ),
        (
            "family-new",
            include_bytes!("../../tests/corpus-striped/family/famL_000.h5"),
        ),
    ];
    let seed = |(name, file): (&str, &[u8])| {
        let out = Output::default().put(&(CONFIG.len() as u32).to_le_bytes());
        (name.to_owned(), out.put(CONFIG).put(file).0)
    };
    files.into_iter().map(seed).collect()
}
