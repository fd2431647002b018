//! A rank keeps no flushed data or entries in memory.

use std::process::Command;

use crate::common::PROGRAM;
use crate::common::amount::part;
use crate::common::mpirun::{Job, program};

/// Limit in KiB of a rank's growth with a buffer of 1 MiB. The entries of a million small blocks take more.
const MOST: u64 = 12 << 10;

#[test]
fn entries_leave_the_memory_when_they_are_flushed() {
    for kind in part(vec!["series", "records", "scattered"], 3) {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("small.h5");
        let arguments = [log.to_str().unwrap(), "1000000", "1", kind];
        let mut job = Job::start(2, &program("writer-small"), &arguments);
        assert!(job.wait().success(), "{}", job.said());
        let said = job.said();
        let grew: Vec<u64> = said
            .lines()
            .filter_map(|line| line.strip_prefix("grew "))
            .flat_map(|figures| figures.split_whitespace())
            .map(|figure| figure.parse().unwrap())
            .collect();
        assert_eq!(grew.len(), 4, "{said}");
        assert!(grew.iter().all(|grew| *grew < MOST), "{kind}: {said}");
        let checked = Command::new(PROGRAM).arg("check").arg(&log).output();
        let checked = checked.unwrap();
        assert!(checked.status.success(), "{checked:?}");
    }
}
