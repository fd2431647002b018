//! Lists the datasets of a log, or prints one, chunk by chunk: `read_dataset run.log.h5 [/path/of/dataset]`
//!
//! Only `h5logfs-catalog` and what is below it are linked: no libhdf5, FUSE or MPI. Scans run in processes of
//! the program `h5logfs`, which is found through `H5LOGFS_PROGRAM` or `PATH`.

use std::error::Error;
use std::ffi::OsStr;
use std::io::{Read, Seek, SeekFrom, Write, stdout};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use h5logfs_catalog::Catalog;
use h5logfs_catalog::workers::{Limits, WorkerPool};
use h5logfs_log::source_dir::SourceDir;
use h5logfs_view::ChunkId;
use h5logfs_view::cache::MemoryLimits;
use h5logfs_view::{View, ViewReader};

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args_os().skip(1);
    let path = PathBuf::from(args.next().ok_or("usage: read_dataset LOG [DATASET]")?);
    let wanted = args.next();
    run(&path, wanted.as_deref(), Limits::default(), &mut stdout())
}

pub fn run(
    path: &Path,
    wanted: Option<&OsStr>,
    limits: Limits,
    out: &mut impl Write,
) -> Result<(), Box<dyn Error>> {
    // A catalog presents the logs below one directory, by their paths relative to it.
    let path = path.canonicalize()?;
    let dir = path.parent().ok_or("this is a directory")?;
    let pool = WorkerPool::start(limits)?;
    let catalog = Catalog::new(SourceDir::open(dir)?, MemoryLimits::default(), pool);
    let view = catalog.open(path.strip_prefix(dir)?)?;
    let datasets = &view.snapshot().datasets;
    if let Some(wanted) = wanted {
        let number = datasets.iter().position(|d| *d.name == *wanted);
        return print_chunks(&view, number.ok_or("there is no such dataset")?, out);
    }
    for d in datasets {
        writeln!(out, "{}: {} {:?}", d.name, d.datatype, d.dims)?;
    }
    Ok(())
}

/// Prints the chunks as the canonical file stores them. Elements past the edge of the dataset have the fill
/// value. The bytes of a filtered chunk are not its elements.
fn print_chunks(
    view: &Arc<View>,
    number: usize,
    out: &mut impl Write,
) -> Result<(), Box<dyn Error>> {
    let dataset = &view.snapshot().datasets[number];
    let mut reader = ViewReader::new(Arc::clone(view));
    for chunk in 0..view.grid(number).len() {
        let (offset, len) = view.chunk_place(ChunkId::new(number, chunk))?;
        let mut bytes = vec![0; len as usize];
        reader.seek(SeekFrom::Start(offset))?;
        reader.read_exact(&mut bytes)?;
        writeln!(out, "chunk {:?}:", view.grid(number).position(chunk))?;
        let text = match dataset.datatype.as_str() {
            "i32" if dataset.filters.is_empty() => numbers(&bytes, i32::from_le_bytes),
            "f32" if dataset.filters.is_empty() => numbers(&bytes, f32::from_le_bytes),
            "f64" if dataset.filters.is_empty() => numbers(&bytes, f64::from_le_bytes),
            _ => numbers(&bytes, |[byte]| format!("{byte:02x}")),
        };
        writeln!(out, "{text}")?;
    }
    Ok(())
}

fn numbers<T: ToString, const N: usize>(bytes: &[u8], decode: fn([u8; N]) -> T) -> String {
    let numbers = bytes.as_chunks::<N>().0.iter();
    let numbers: Vec<String> = numbers.map(|n| decode(*n).to_string()).collect();
    numbers.join(" ")
}
