//! Boxes of elements of a logged dataset, in the file type, for copies.

use h5logfs_output::Selection;

use super::WrittenLog;
use super::dataset::Dataset;
use super::transfer::Region;
use h5logfs_common::fault::Fault;

/// Boxes of elements of the logged datasets of a log.
#[derive(Debug, Clone, Copy)]
pub struct Boxes<'a> {
    log: &'a WrittenLog,
}

impl<'a> Boxes<'a> {
    #[inline]
    pub(super) fn new(log: &'a WrittenLog) -> Self {
        Boxes { log }
    }

    /// Reads a box of elements, in the file type.
    pub fn read(self, dataset: &Dataset, region: Region<'_>) -> Result<Vec<u8>, Fault> {
        let dims = dataset.dims();
        let mut out = vec![0; dataset.bytes(region.count) as usize];
        self.log
            .state
            .lock()
            .read_box(dataset, &dims, region, &mut out)?;
        Ok(out)
    }

    /// Logs a box of elements, in the file type.
    pub fn log(
        self,
        dataset: &Dataset,
        region: Region<'_>,
        elements: Vec<u8>,
    ) -> Result<(), Fault> {
        let dims = dataset.dims();
        let mut state = self.log.state.lock();
        let selection = if dims.is_empty() {
            Selection::All
        } else {
            Selection::block(region.start, region.count)
        };
        state.log(dataset, &dims, &selection, elements.into())
    }
}
