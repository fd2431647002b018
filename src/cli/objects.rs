//! The datasets of a canonical file, as its metadata list them. A scan lists only those whose elements it has found.

use std::collections::HashSet;

use h5logfs_common::fault::Fault;
use h5logfs_hdf5_format::{LinkTarget, ObjectKind, Objects};
use h5logfs_view::{Metadata, View};

/// Deepest nesting of groups. Paths in a long chain of groups would have far more bytes than the file.
const MOST_DEPTH: usize = 1000;

/// The datasets of a file, and why others could not be listed.
#[derive(Debug, Default)]
pub struct Found {
    /// First path and address of each dataset, in the order of the paths.
    pub datasets: Vec<(String, u64)>,
    pub faults: Vec<String>,
}

/// The datasets of a view.
pub fn datasets(view: &View) -> Found {
    match Objects::open(view.metadata()) {
        Ok(objects) => Found::of(&objects),
        Err(fault) => Found {
            datasets: Vec::new(),
            faults: vec![fault.to_string()],
        },
    }
}

impl Found {
    /// Visits all groups. Each object has one place in the file, so this ends.
    pub fn of(objects: &Objects<Metadata<'_>>) -> Self {
        let mut found = Found::default();
        let mut seen = HashSet::from([objects.root()]);
        let mut waiting = vec![(String::new(), 0, objects.root())];
        while let Some((path, depth, group)) = waiting.pop() {
            let links = match objects.links(group) {
                Ok(links) => links,
                Err(fault) => {
                    found.faults.push(format!("group {path}/: {fault}"));
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
                    Ok(ObjectKind::Group) => found.faults.push(format!("{below}: it is too deep")),
                    Ok(ObjectKind::Datatype) => {}
                    Ok(ObjectKind::Dataset) => found.datasets.push((below, address)),
                    Err(fault) => found.fault(&below, &fault),
                }
            }
        }
        found.datasets.sort();
        found
    }

    pub fn fault(&mut self, path: &str, fault: &Fault) {
        self.faults.push(format!("{path}: {fault}"));
    }
}
