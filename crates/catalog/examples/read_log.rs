//! Reads the first bytes of a log as canonical HDF5.

use h5logfs_catalog::workers::{Limits, Workers};
use h5logfs_catalog::{Catalog, Presented};
use h5logfs_log::source_dir::SourceDir;
use h5logfs_view::cache::MemoryLimits;
use std::path::Path;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let scanner = Workers::pooled(Limits::default())?;
    let dir = SourceDir::open(Path::new("/data/run7"))?;
    let catalog = Catalog::new(dir, MemoryLimits::default(), scanner);

    let path = Path::new("checkpoint.h5");
    if let Presented::View { len, .. } = catalog.get(path)? {
        println!("{len} bytes as canonical HDF5");
        let view = catalog.open(path)?;
        let mut superblock = [0; 96];
        view.read_at(0, &mut superblock)?;
    }
    Ok(())
}
