//! The datasets of a file whose bytes are shown unchanged, in the order of their names. No scan has listed them, so they are
//! looked up in the file's metadata.

use super::report::DatasetReport;
use crate::cli::objects::Found;
use h5logfs_hdf5_format::{DatasetInfo, Dataspace, Layout, Objects};
use h5logfs_view::View;

/// The datasets of a view, each under its first path, and why others could not be listed.
pub fn datasets(view: &View) -> (Vec<DatasetReport>, Vec<String>) {
    let objects = match Objects::open(view.metadata()) {
        Ok(objects) => objects,
        Err(fault) => return (Vec::new(), vec![fault.to_string()]),
    };
    let mut found = Found::of(&objects);
    let mut datasets = Vec::new();
    for (name, address) in std::mem::take(&mut found.datasets) {
        match objects.dataset(address) {
            Ok(dataset) => datasets.push(report(name, &dataset)),
            Err(fault) => found.fault(&name, &fault),
        }
    }
    (datasets, found.faults)
}

fn report(name: String, dataset: &DatasetInfo) -> DatasetReport {
    let (shape, most) = match &dataset.space {
        Dataspace::Simple { dims, max_dims } => (dims.clone(), max_dims.as_slice()),
        Dataspace::Null => (Vec::new(), [].as_slice()),
    };
    let limit = |most: &u64| (*most != u64::MAX).then_some(*most);
    DatasetReport {
        name,
        datatype: dataset.datatype.to_string(),
        shape,
        max_shape: most.iter().map(limit).collect(),
        chunk: match &dataset.layout {
            Layout::Chunked { chunk, .. } => Some(chunk.clone()),
            _ => None,
        },
        filters: dataset.filters.iter().map(|filter| filter.id).collect(),
        logged: None,
        faults: match &dataset.layout {
            Layout::Other(reason) => vec![reason.clone()],
            _ => Vec::new(),
        },
    }
}
