//! Checks a snapshot's description of a directory. Reading checks the bytes there.

use super::{METADATA, Parts, Tables};
use h5logfs_common::fault::Fault;

impl Tables {
    /// Fails with the reason where the parts contradict each other. `sources` is the number of source files.
    pub fn check(&self, sources: usize) -> Result<(), Fault> {
        self.parts.check(sources)
    }
}

impl Parts {
    /// Fails with the reason where the parts contradict each other. `sources` is the number of source files.
    pub fn check(&self, sources: usize) -> Result<(), Fault> {
        if sources <= usize::from(METADATA) {
            return Err(format!("a directory of {sources} files").into());
        }
        let data = self.data.iter().map(|(_, source)| *source);
        let mut others = self.formats.into_iter().chain(data);
        let is_strange = |source: &u16| *source <= METADATA || usize::from(*source) >= sources;
        if let Some(source) = others.find(is_strange) {
            return Err(format!("a file of a directory in source {source} of {sources}").into());
        }
        if !self.data.is_sorted_by(|a, b| a.0 < b.0) {
            return Err("files of data that are not in order".into());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_followed_is_refused() {
        let tables = |formats, data: &[(u32, u16)]| Parts {
            formats,
            data: data.to_vec(),
            ..Parts::default()
        };
        let sound = tables(Some(2), &[(0, 3), (7, 4)]);
        assert_eq!(sound.check(5), Ok(()));
        assert!(sound.check(4).is_err());
        assert!(tables(None, &[]).check(1).is_err());
        assert!(tables(Some(1), &[]).check(5).is_err());
        assert!(tables(None, &[(0, 0)]).check(5).is_err());
        assert!(tables(None, &[(1, 2), (1, 3)]).check(5).is_err());
    }
}
