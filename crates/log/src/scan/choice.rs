//! The objects that a copy of a log has, and the filters of its datasets.

use std::fmt;

use serde::{Deserialize, Serialize};

use h5logfs_common::fault::Fault;
use h5logfs_hdf5_format::filters::Filter;

/// Differences between a copy and its log. A view has all objects, and the filters that the log records.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Choice {
    /// Paths of chosen objects. A copy has these objects, everything below them, and the groups above. Without a path
    /// it has all objects.
    only: Vec<String>,
    /// The filters of all logged datasets that have chunks. `None` stands for those that the log records.
    pub filters: Option<Vec<Filter>>,
}

impl Choice {
    /// A choice of the objects at these paths. Without a path, all objects are chosen.
    pub fn only<'a>(paths: impl IntoIterator<Item = &'a str>) -> Self {
        let path = |path: &str| format!("/{}", path.trim_matches('/'));
        Choice {
            only: paths.into_iter().map(path).collect(),
            filters: None,
        }
    }

    /// This choice with other filters.
    pub fn with_filters(&self, filters: Vec<Filter>) -> Self {
        Choice {
            filters: Some(filters),
            ..self.clone()
        }
    }

    /// This choice with the objects at these paths in addition.
    pub fn with_objects(&self, paths: impl IntoIterator<Item = String>) -> Self {
        let mut all = self.clone();
        all.only.extend(paths);
        all
    }

    /// Whether a copy has all objects.
    pub fn has_all(&self) -> bool {
        self.only.is_empty()
    }

    /// Whether a copy has the object at this path, because it is chosen, or lies above or below a chosen object.
    pub fn has(&self, path: &str) -> bool {
        let is_near =
            |chosen: &String| is_at_or_below(path, chosen) || is_at_or_below(chosen, path);
        self.only.is_empty() || self.only.iter().any(is_near)
    }

    /// Whether exactly this path was chosen.
    pub fn names(&self, path: &str) -> bool {
        self.only.iter().any(|chosen| chosen == path)
    }

    /// Fails with the first chosen path that `found` rejects.
    pub fn check_found(&self, mut found: impl FnMut(&str) -> bool) -> Result<(), Fault> {
        let is_root = |path: &&String| path.as_str() == "/";
        let missing = self.only.iter().find(|path| !is_root(path) && !found(path));
        missing.map_or(Ok(()), |path| {
            Err(Fault::Refused(format!("there is no {path}")))
        })
    }
}

fn is_at_or_below(path: &str, other: &str) -> bool {
    let other = other.trim_end_matches('/');
    let rest = path.strip_prefix(other);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Different choices have different texts.
impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "only={:?}, filters={:?}", self.only, self.filters)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_chosen_has_what_is_above_and_below() {
        let choice = Choice::only(["/a/b", "c/"]);
        for path in ["/a", "/a/b", "/a/b/c", "/c", "/c/d/e"] {
            assert!(choice.has(path), "{path}");
        }
        for path in ["/a/c", "/ab", "/a/bc", "/b", "/cc"] {
            assert!(!choice.has(path), "{path}");
        }
        for all in [Choice::default(), Choice::only(["/"])] {
            assert!(all.has("/x/y"));
            assert_eq!(all.check_found(|_| false), Ok(()));
        }
    }

    #[test]
    fn what_is_missing_is_told() {
        let choice = Choice::only(["/a", "b"]);
        assert_eq!(choice.check_found(|_| true), Ok(()));
        let missing = choice
            .check_found(|path| path == "/a")
            .unwrap_err()
            .to_string();
        assert!(missing.contains("/b"), "{missing}");
    }
}
