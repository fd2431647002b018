//! The catalog's knowledge of netCDF files and their logs: changes that leave no trace in the file, and many logs.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::common::clock::{settle, settle_listing};
use crate::common::readers::project;
use h5logfs_catalog::{Catalog, Lookup, Presented, Wait};
use h5logfs_log::scan::Settings;
use h5logfs_log::source_dir::SourceDir;
use h5logfs_scan::InProcess;
use h5logfs_view::cache::MemoryLimits;
use h5logfs_view::index::store::Store;
use tempfile::TempDir;

const FILE: &str = "file.nc";
const LOG: [&str; 2] = ["file.nc_0_0.meta", "file.nc_0_0.data"];

/// A file of the corpus.
fn sample(name: &str) -> PathBuf {
    project()
        .join("tests/corpus-pnetcdf/uncounted-cdf1-np1")
        .join(name)
}

/// A directory with the netCDF file, without its log.
fn site() -> TempDir {
    let site = tempfile::tempdir().unwrap();
    fs::create_dir(site.path().join("run")).unwrap();
    copy(&site, FILE);
    site
}

fn run(site: &TempDir) -> PathBuf {
    site.path().join("run")
}

/// Copies a file of the corpus.
fn copy(site: &TempDir, name: &str) {
    fs::write(run(site).join(name), fs::read(sample(name)).unwrap()).unwrap();
}

fn catalog(site: &TempDir) -> Catalog {
    let dir = SourceDir::open(&run(site)).unwrap();
    Catalog::new(dir, MemoryLimits::each(64 << 20), InProcess::default())
}

/// Number of files in the presented log; 0 if there is none.
fn sources(catalog: &Catalog) -> usize {
    match catalog.get(Path::new(FILE)).unwrap() {
        Presented::View { .. } => {
            let view = catalog.open(Path::new(FILE)).unwrap();
            view.snapshot().sources.len()
        }
        Presented::Plain | Presented::Settled(_) | Presented::Absent => 0,
        Presented::Broken(e) => panic!("{e}"),
    }
}

#[test]
fn a_log_that_was_empty_is_noticed_when_it_is_written() {
    let site = site();
    // A state that the driver leaves briefly.
    for name in LOG {
        fs::write(run(&site).join(name), "").unwrap();
    }
    settle_listing(&run(&site));
    let catalog = catalog(&site);
    assert_eq!(sources(&catalog), 0);
    for name in LOG {
        copy(&site, name);
    }
    assert_eq!(sources(&catalog), 3);
}

#[test]
fn what_is_kept_is_not_used_for_a_log_that_was_empty() {
    let site = site();
    for name in LOG {
        fs::write(run(&site).join(name), "").unwrap();
    }
    settle(&run(&site));
    let again = || {
        let store = Store::open(&site.path().join("kept"), 64 << 20).unwrap();
        let mut settings = Settings::default();
        settings.set("netcdf", b"hdf5").unwrap();
        let catalog = catalog(&site).with_store(Arc::new(store));
        let catalog = catalog.with_settings(settings);
        (sources(&catalog), catalog.scans())
    };
    assert_eq!(again(), (1, 1));
    assert_eq!(again(), (1, 0));
    for name in LOG {
        copy(&site, name);
    }
    assert_eq!(again(), (3, 1));
}

#[test]
fn what_is_hidden_is_told_fast_however_many_logs_there_are() {
    let site = site();
    let logs = 1500;
    for rank in 0..logs {
        for (name, part) in LOG.iter().zip(["meta", "data"]) {
            let mut bytes = fs::read(sample(name)).unwrap();
            if part == "meta" {
                // The number of processes, and of this one.
                bytes[24..32].copy_from_slice(&u64::to_le_bytes(logs));
                bytes[32..40].copy_from_slice(&u64::to_le_bytes(rank));
            }
            fs::write(run(&site).join(format!("{FILE}_0_{rank}.{part}")), bytes).unwrap();
        }
    }
    settle_listing(&run(&site));
    let catalog = catalog(&site);
    let start = Instant::now();
    for rank in 0..logs {
        for part in ["meta", "data"] {
            let name = format!("{FILE}_0_{rank}.{part}");
            let hidden = catalog.is_hidden(Path::new(""), OsStr::new(&name), Wait::Yes);
            assert_eq!(hidden, Lookup::Known(true));
        }
    }
    // Each of them alone took longer than 5 ms.
    assert!(
        start.elapsed() < Duration::from_secs(6),
        "{:?}",
        start.elapsed()
    );
    assert_eq!(catalog.scans(), 1);
}

#[test]
fn a_log_that_cannot_be_opened_costs_no_scan_for_each_name() {
    let site = site();
    LOG.iter().for_each(|name| copy(&site, name));
    // The directory stands for a file that cannot be read.
    fs::create_dir(run(&site).join("file.nc_0_1.meta")).unwrap();
    settle_listing(&run(&site));
    let catalog = catalog(&site);
    let start = Instant::now();
    for _ in 0..100 {
        let hidden = catalog.is_hidden(Path::new(""), OsStr::new(LOG[0]), Wait::Yes);
        assert_eq!(hidden, Lookup::Known(true));
    }
    let most = 2 + start.elapsed().as_millis() as u64 / 100;
    assert!(catalog.scans() <= most, "{} scans", catalog.scans());
    // A request for the file itself is answered by its present state.
    assert!(matches!(
        catalog.get(Path::new(FILE)),
        Ok(Presented::Broken(_))
    ));
    fs::remove_dir(run(&site).join("file.nc_0_1.meta")).unwrap();
    assert_eq!(sources(&catalog), 3);
}

#[test]
fn what_is_kept_of_a_file_seen_from_elsewhere_is_not_used_for_logs_elsewhere() {
    let site = tempfile::tempdir().unwrap();
    let (other, logs) = (site.path().join("other"), site.path().join("logs"));
    for dir in [&other, &logs] {
        fs::create_dir(dir).unwrap();
    }
    fs::write(other.join(FILE), fs::read(sample(FILE)).unwrap()).unwrap();
    // Their header says that they belong to run/file.nc.
    for name in LOG {
        fs::write(logs.join(name), fs::read(sample(name)).unwrap()).unwrap();
    }
    settle(site.path());
    let presented = |dir: &Path, relative: &str| {
        let dirs = [logs.clone()];
        let dir = SourceDir::open(dir).unwrap().with_further(&dirs).unwrap();
        let store = Store::open(&site.path().join("kept"), 64 << 20).unwrap();
        let settings = Settings {
            log_dirs: dirs.into(),
            ..Settings::default()
        };
        let catalog = Catalog::new(dir, MemoryLimits::each(64 << 20), InProcess::default());
        let catalog = catalog.with_settings(settings).with_store(Arc::new(store));
        catalog.get(Path::new(relative)).unwrap()
    };
    // The known part of the name fits.
    assert!(matches!(presented(&other, FILE), Presented::View { .. }));
    assert!(matches!(
        presented(site.path(), "other/file.nc"),
        Presented::Plain
    ));
}
