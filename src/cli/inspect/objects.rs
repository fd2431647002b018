//! The datasets of a file whose bytes are shown unchanged, in the order of their names. No scan has listed them, so they are
//! looked up in the file's metadata.

use std::collections::HashSet;

use super::report::DatasetReport;
use h5logfs_common::fault::Fault;
use h5logfs_hdf5_format::{DatasetInfo, Dataspace, Layout, LinkTarget, ObjectKind, Objects};
use h5logfs_view::{Metadata, View};

/// Deepest nesting of groups. Paths in a long chain of groups would have far more bytes than the file.
const MOST_DEPTH: usize = 1000;

/// The datasets of a view, each under its first path, and why others could not be listed.
pub fn datasets(view: &View) -> (Vec<DatasetReport>, Vec<String>) {
    let mut found = ObjectCounts::default();
    match Objects::open(view.metadata()) {
        Ok(objects) => found.walk(&objects),
        Err(fault) => found.faults.push(fault.to_string()),
    }
    found.datasets.sort_by(|a, b| a.name.cmp(&b.name));
    (found.datasets, found.faults)
}

#[derive(Default)]
struct ObjectCounts {
    datasets: Vec<DatasetReport>,
    faults: Vec<String>,
}

impl ObjectCounts {
    /// Visits all groups. Each object has one place in the file, so this ends.
    fn walk(&mut self, objects: &Objects<Metadata<'_>>) {
        let mut seen = HashSet::from([objects.root()]);
        let mut waiting = vec![(String::new(), 0, objects.root())];
        while let Some((path, depth, group)) = waiting.pop() {
            let links = match objects.links(group) {
                Ok(links) => links,
                Err(fault) => {
                    self.faults.push(format!("group {path}/: {fault}"));
                    continue;
                }
            };
            for link in links {
                let LinkTarget::Hard(address) = link.target else {
                    continue;
                };
                if !seen.insert(address) {
                    continue;
                }
                let below = format!("{path}/{}", String::from_utf8_lossy(&link.name));
                match objects.kind(address) {
                    Ok(ObjectKind::Group) if depth < MOST_DEPTH => {
                        waiting.push((below, depth + 1, address));
                    }
                    Ok(ObjectKind::Group) => self.faults.push(format!("{below}: it is too deep")),
                    Ok(ObjectKind::Datatype) => {}
                    Ok(ObjectKind::Dataset) => self.add(below, objects.dataset(address)),
                    Err(fault) => self.faults.push(format!("{below}: {fault}")),
                }
            }
        }
    }

    fn add(&mut self, name: String, dataset: Result<DatasetInfo, Fault>) {
        match dataset {
            Ok(dataset) => self.datasets.push(report(name, &dataset)),
            Err(fault) => self.faults.push(format!("{name}: {fault}")),
        }
    }
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
