//! Boxes of elements of a logged dataset, of the type in the file, for copies.

use h5logfs_output::Selection;

use super::Log;
use super::dataset::Dataset;
use super::transfer::Region;
use h5logfs_common::fault::Fault;

impl Log {
    /// Whether this is the first rank, while the log is open.
    pub fn is_first_rank(&self) -> bool {
        let state = self.state.lock();
        let writer = state.writer.as_ref();
        writer.is_some_and(|writer| writer.ranks().is_root())
    }

    /// A box of elements, of the type in the file.
    pub fn elements(&self, dataset: &Dataset, region: Region<'_>) -> Result<Vec<u8>, Fault> {
        let dims = dataset.dims();
        let mut out = vec![0; dataset.bytes(region.count) as usize];
        self.state
            .lock()
            .read_box(dataset, &dims, region, &mut out)?;
        Ok(out)
    }

    /// Logs a box of elements, of the type in the file.
    pub fn log_box(
        &self,
        dataset: &Dataset,
        region: Region<'_>,
        elements: Vec<u8>,
    ) -> Result<(), Fault> {
        let dims = dataset.dims();
        let mut state = self.state.lock();
        let selection = if dims.is_empty() {
            Selection::All
        } else {
            Selection::block(region.start, region.count)
        };
        state.log(dataset, &dims, &selection, elements.into())
    }
}
