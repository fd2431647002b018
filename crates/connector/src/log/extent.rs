//! `H5Dset_extent`. Records stay in the log when a dataset shrinks. If the dataset grows again, the fill value is written over
//! elements that come back.

use super::State;
use super::dataset::{Dataset, Extent};
use super::metadata_image::MetadataImage;
use super::transfer::Region;
use h5logfs_common::fault::Fault;
use h5logfs_output::Selection;
use h5logfs_output::automatic::Cause;

/// The most fill values made in one step, in bytes.
const AT_ONCE: u64 = 16 << 20;

/// A box of elements: start and count.
type Box = (Vec<u64>, Vec<u64>);

impl State {
    pub(super) fn prepare_extent(
        &mut self,
        metadata_image: &MetadataImage,
        dataset: &Dataset,
        dims: &[u64],
    ) -> Result<Extent, Fault> {
        let mut extent = dataset.extent();
        if !extent.is_known
            && dims
                .iter()
                .zip(extent.dims.iter())
                .any(|(new, old)| new > old)
        {
            let reached = self.reached(dataset, &extent.dims);
            // All ranks must agree, since the steps below are collective.
            let reached = self.writer()?.ranks().all(reached);
            extent.reached = reached.map_err(|e| e.to_string())?;
            extent.is_known = true;
        }
        // With several ranks, any may have written to the dataset, and all ranks must take the same branch.
        if dataset.is_written() || self.writer()?.ranks().size() > 1 {
            let back = that_come_back(&extent, dims);
            self.fill_again(metadata_image, dataset, dims, &back)?;
        }
        for (reached, dim) in extent.reached.iter_mut().zip(dims) {
            *reached = (*reached).max(*dim);
        }
        extent.dims = dims.into();
        Ok(extent)
    }

    /// Writes the fill value over elements that come back. They are still outside the extent, so no reader sees a partial result
    /// after a failure.
    fn fill_again(
        &mut self,
        metadata_image: &MetadataImage,
        dataset: &Dataset,
        dims: &[u64],
        back: &[Box],
    ) -> Result<(), Fault> {
        if back.is_empty() {
            return Ok(());
        }
        let writer = self.writer()?;
        let (is_alone, is_root) = (writer.ranks().size() == 1, writer.ranks().is_root());
        if writer.files().header().subfiles > 1 {
            return Err(format!(
                "dataset {} shrank and grows again, which a log with subfiles does not support: write it without subfiles",
                dataset.id
            ).into());
        }
        // Records of other ranks so far must precede the fill values, and later ones must follow them. So there is a flush before
        // and after.
        if !is_alone {
            self.flush(metadata_image, true, Cause::Automatic)?;
        }
        let filled = if is_root {
            let mut boxes = back.iter();
            boxes.try_for_each(|(start, count)| {
                self.fill(dataset, dims, start.clone(), count.clone())
            })
        } else {
            Ok(())
        };
        if is_alone {
            return filled;
        }
        // This flush tells the other ranks whether the first rank succeeded.
        self.flush_if(filled, metadata_image, true, Cause::Automatic)
    }

    /// The end of a dataset's records in each dimension; at least its extent.
    fn reached(&mut self, dataset: &Dataset, dims: &[u64]) -> Result<Vec<u64>, Fault> {
        /// A position beyond any extent. Its square root fits into the offsets of HDF5.
        const FAR: u64 = 1 << 62;
        let mut reached = dims.to_vec();
        for d in 0..dims.len() {
            // A record lies behind an index up to the end of the last record, and nowhere after. So a binary search finds that
            // end.
            let (mut low, mut high) = (dims[d], dataset.max_dims[d].unwrap_or(FAR));
            while low < high {
                let middle = low + (high - low) / 2;
                let mut start = vec![0; dims.len()];
                start[d] = middle;
                let count: Vec<u64> = start.iter().map(|start| FAR - start).collect();
                let region = Region {
                    start: &start,
                    count: &count,
                };
                if self.is_logged(dataset, &vec![FAR; dims.len()], region)? {
                    low = middle + 1;
                } else {
                    high = middle;
                }
            }
            reached[d] = low;
        }
        Ok(reached)
    }

    /// Logs the fill value in a box of elements.
    fn fill(
        &mut self,
        dataset: &Dataset,
        dims: &[u64],
        start: Vec<u64>,
        count: Vec<u64>,
    ) -> Result<(), Fault> {
        let elements: u64 = count.iter().product();
        let most = (AT_ONCE / dataset.element as u64).max(1);
        if elements > most
            && let Some(d) = count.iter().position(|count| *count > 1)
        {
            let half = count[d] / 2;
            let (mut first, mut second) = (count.clone(), count.clone());
            first[d] = half;
            second[d] -= half;
            let mut behind = start.clone();
            behind[d] += half;
            self.fill(dataset, dims, start, first)?;
            return self.fill(dataset, dims, behind, second);
        }
        let bytes = if dataset.fill.is_empty() {
            vec![0; elements as usize * dataset.element]
        } else {
            dataset.fill.repeat(elements as usize)
        };
        self.log(
            dataset,
            dims,
            &Selection::block(&start, &count),
            bytes.into(),
        )
    }
}

/// Boxes of the elements that come back: in the new extent and in an earlier one, but not in the present one.
fn that_come_back(extent: &Extent, dims: &[u64]) -> Vec<Box> {
    let Extent {
        dims: old, reached, ..
    } = extent;
    let rank = dims.len();
    let mut boxes = Vec::new();
    for d in 0..rank {
        let back = dims[d].min(reached[d]);
        if back <= old[d] {
            continue;
        }
        let (mut start, mut count) = (vec![0; rank], vec![0; rank]);
        for e in 0..rank {
            // Dimensions before `d` keep the present size, so that no element is in two boxes.
            count[e] = if e < d {
                old[e].min(dims[e])
            } else {
                dims[e].min(reached[e])
            };
        }
        start[d] = old[d];
        count[d] = back - old[d];
        if count.iter().all(|count| *count > 0) {
            boxes.push((start, count));
        }
    }
    boxes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn back(old: &[u64], reached: &[u64], new: &[u64]) -> Vec<Box> {
        let extent = Extent {
            dims: old.into(),
            reached: reached.to_vec(),
            is_known: true,
        };
        that_come_back(&extent, new)
    }

    #[test]
    fn only_elements_that_were_there_come_back() {
        assert_eq!(back(&[4], &[4], &[9]), []);
        assert_eq!(back(&[4], &[7], &[3]), []);
        assert_eq!(back(&[4], &[7], &[9]), [(vec![4], vec![3])]);
        assert_eq!(
            back(&[2, 3], &[5, 6], &[4, 9]),
            [(vec![2, 0], vec![2, 6]), (vec![0, 3], vec![2, 3])]
        );
        // Shrinks in one dimension and grows in the other.
        assert_eq!(back(&[2, 3], &[5, 6], &[4, 1]), [(vec![2, 0], vec![2, 1])]);
        assert_eq!(back(&[0, 3], &[5, 6], &[4, 3]), [(vec![0, 0], vec![4, 3])]);
    }
}
