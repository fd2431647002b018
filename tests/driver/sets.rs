//! Random files of HDF5's subfiling driver, written by parallel HDF5. The driver reads the same content as from the
//! single file, and the same as arrays.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::PROGRAM;
use crate::common::amount::{cases, first_seed};
use crate::common::hosts::{Hdf5, succeed};
use crate::common::mpirun::{Job, Mpi};
use h5logfs_arrays::{Log, Options, Reading, Selection};
use tempfile::TempDir;

const CASES: usize = 24;
const MOST_RANKS: u64 = 8;

/// A set of files in its own directory.
struct Set {
    program: PathBuf,
    dir: TempDir,
}

impl Set {
    fn path(&self) -> PathBuf {
        self.dir.path().join("data.h5")
    }

    fn job(&self, ranks: u32, arguments: &[&str]) -> Job {
        Job::launch({
            let mut mpirun = Mpi::of_build().run(ranks, &self.program);
            mpirun.args(arguments);
            mpirun
        })
    }

    /// Reads a file with HDF5's driver, or an ordinary file. The error is the reason why HDF5 reads nothing.
    fn read(&self, way: &str, path: &Path) -> Result<Vec<u8>, String> {
        let out = self.dir.path().join(format!("{way}.out"));
        let [path, to] = [path, &out].map(|path| path.to_str().unwrap());
        self.job(1, &[way, path, to])
            .outcome(crate::common::mpirun::DEADLINE)?;
        Ok(fs::read(&out).unwrap())
    }

    /// The elements of all datasets as arrays.
    fn arrays(&self) -> Vec<u8> {
        let log = Log::open(self.path(), &Options::default()).unwrap();
        let mut all = Vec::new();
        for number in 0.. {
            let name = format!("/d{number}");
            if log.kind_of(&name).unwrap().is_none() {
                return all;
            }
            let dataset = log.dataset(&name).unwrap();
            let bytes = dataset.shape().iter().product::<u64>();
            let bytes = bytes * u64::from(dataset.info().datatype.size);
            let mut elements = vec![0; bytes as usize];
            let reading = Reading::default();
            dataset
                .read_bytes(&Selection::All, reading, &mut elements)
                .unwrap();
            all.extend(elements);
        }
        all
    }

    fn export(&self) -> PathBuf {
        let flat = self.dir.path().join("flat.h5");
        succeed(
            Command::new(PROGRAM)
                .arg("export")
                .arg(self.path())
                .arg(&flat),
        );
        flat
    }
}

#[test]
fn what_parallel_hdf5_has_written_is_what_it_reads() {
    let Some(hdf5) = Hdf5::find() else { return };
    let program = hdf5.compiled("subfiling", "sets");
    let first = first_seed();
    for seed in first..first + cases(CASES) as u64 {
        let set = Set {
            program: program.clone(),
            dir: tempfile::tempdir().unwrap(),
        };
        let path = set.path();
        let path = path.to_str().unwrap();
        let ranks = 1 + (seed / 3 % MOST_RANKS) as u32;
        let is_killed = seed.is_multiple_of(3);
        let end = if is_killed { "killed" } else { "closed" };
        let mut job = set.job(ranks, &["write", path, &seed.to_string(), end]);
        if is_killed {
            job.wait_for_killed();
        } else {
            job.succeed();
        }
        let known = match set.read("read", Path::new(path)) {
            Ok(known) => known,
            // The driver may reject the files of a killed program.
            Err(_) if is_killed => continue,
            Err(why) => panic!("seed {seed}: {why}"),
        };
        let flat = set.read("plain", &set.export());
        assert!(
            !known.is_empty() && flat == Ok(known.clone()),
            "seed {seed}"
        );
        assert!(set.arrays() == known, "seed {seed}");
    }
}
