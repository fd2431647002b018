//! Lists the datasets of a log, or prints one as an array: `read_dataset run.log.h5 [/path/of/dataset]`
//!
//! The program links `h5logfs-arrays` and its dependencies only: no libhdf5, FUSE or MPI. The first open of a log
//! needs the program `h5logfs` for the scan, found through `H5LOGFS_PROGRAM` or `PATH`.

use std::error::Error;
use std::io::{Write, stdout};
use std::path::Path;

use h5logfs_arrays::objects::ObjectKind;
use h5logfs_arrays::{Log, Options, Selection};

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let path = args.next().ok_or("usage: read_dataset LOG [DATASET]")?;
    let options = Options::default();
    run(
        path.as_ref(),
        args.next().as_deref(),
        &options,
        &mut stdout(),
    )
}

pub fn run(
    path: &Path,
    wanted: Option<&str>,
    options: &Options,
    out: &mut impl Write,
) -> Result<(), Box<dyn Error>> {
    let log = Log::open(path, options)?;
    let Some(wanted) = wanted else {
        return list(&log, "", out);
    };
    let dataset = log.dataset(wanted)?;
    // HDF5's conversion turns numbers of any type into doubles.
    let numbers = dataset.read::<f64>(&Selection::All)?;
    writeln!(out, "{:?}, mean {:?}", dataset.shape(), numbers.mean())?;
    // One index of the first dimension at a time: the whole dataset need not fit into memory.
    let [rows, row @ ..] = dataset.shape() else {
        return Ok(());
    };
    let (mut start, mut count) = (vec![0; row.len() + 1], vec![1]);
    count.extend(row);
    for index in 0..*rows {
        start[0] = index;
        let slab = dataset.read::<f64>(&Selection::hyperslab(&start, &count))?;
        writeln!(out, "{index}: {}", slab.sum())?;
    }
    Ok(())
}

/// Lists the datasets of a group and its subgroups.
fn list(log: &Log, group: &str, out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    for link in log.links(&format!("{group}/"))? {
        let path = format!("{group}/{}", String::from_utf8_lossy(&link.name));
        match log.kind(&link)? {
            Some(ObjectKind::Group) => list(log, &path, out)?,
            Some(ObjectKind::Dataset) => {
                let dataset = log.dataset(&path)?;
                writeln!(out, "{path}: {:?}", dataset.shape())?;
            }
            _ => {}
        }
    }
    Ok(())
}
