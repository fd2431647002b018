//! What the catalog knows of netCDF files and the logs beside them: changes that leave no trace in the file, and
//! many logs.

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use common::readers::project;
use h5logfs::catalog::{Catalog, Presented};
use h5logfs::index::store::Store;
use h5logfs::log::source::Folder;
use h5logfs::scan::Settings;
use h5logfs::view::cache::MemoryLimits;
use tempfile::TempDir;

const FILE: &str = "file.nc";
const LOG: [&str; 2] = ["file.nc_0_0.meta", "file.nc_0_0.data"];
/// Longer than a file must have been left alone before anything of it is kept.
const SETTLING: Duration = Duration::from_millis(2100);

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
    let folder = Folder::open(&run(site)).unwrap();
    Catalog::new(folder, MemoryLimits::each(64 << 20))
}

/// How many files make the log that is presented; 0 where there is none.
fn sources(catalog: &Catalog) -> usize {
    match catalog.get(Path::new(FILE)).unwrap() {
        Presented::View { .. } => {
            let view = catalog.open(Path::new(FILE)).unwrap();
            view.snapshot().sources.len()
        }
        Presented::Plain => 0,
        Presented::Broken(e) => panic!("{e}"),
    }
}

#[test]
fn a_log_that_was_empty_is_noticed_when_it_is_written() {
    let site = site();
    // As the driver leaves them for a moment.
    for name in LOG {
        fs::write(run(&site).join(name), "").unwrap();
    }
    std::thread::sleep(Duration::from_millis(200));
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
    std::thread::sleep(SETTLING);
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
