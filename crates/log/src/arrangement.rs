//! The arrangement of a source: which bytes of a file belong to it.

use serde::{Deserialize, Serialize};

use h5logfs_common::fault::Fault;

/// The place of a source's bytes in its file. All other modules count the bytes of a source as if they were contiguous.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Arrangement {
    /// All bytes of the file.
    #[default]
    Whole,
    /// All bytes of the file, and zeros after its end.
    ZerosAfter,
    /// Every `channels`th block of `block` bytes, from block `channel` on.
    Striped {
        /// Bytes of a block.
        block: u64,
        /// Number of the channel, from 0.
        channel: u32,
        /// Number of channels in the file.
        channels: u32,
    },
    /// Blocks of `block` bytes at any offsets.
    Blocks {
        /// Bytes of a block.
        block: u64,
        /// Number and file offset of each block, by ascending number. Blocks that are not listed have no
        /// bytes.
        at: Vec<(u64, u64)>,
        /// Bytes of the source.
        len: u64,
    },
}

impl Arrangement {
    /// Fails with the reason where the arrangement contradicts itself.
    pub fn check(&self) -> Result<(), Fault> {
        let is_sound = match self {
            Arrangement::Whole | Arrangement::ZerosAfter => true,
            Arrangement::Striped {
                block,
                channel,
                channels,
            } => *block > 0 && channel < channels,
            // Most formats have signed positions.
            Arrangement::Blocks { block, at, len } => {
                *block > 0 && at.is_sorted_by(|a, b| a.0 < b.0) && *len <= i64::MAX as u64
            }
        };
        if is_sound {
            Ok(())
        } else {
            Err("bytes in blocks that make no sense".into())
        }
    }

    /// Fails with the reason where a file of this size cannot have the blocks. Blocks that share bytes could make a
    /// log of any length.
    pub(super) fn check_in(&self, file: u64) -> Result<(), Fault> {
        let Arrangement::Blocks { block, at, .. } = self else {
            return Ok(());
        };
        let bytes = block.checked_mul(at.len() as u64);
        if bytes.is_none_or(|bytes| bytes > file) {
            return Err("its chunks have more bytes than the file".into());
        }
        let mut starts: Vec<u64> = at.iter().map(|(_, start)| *start).collect();
        starts.sort_unstable();
        if starts.windows(2).any(|pair| pair[1] - pair[0] < *block) {
            return Err("its chunks share bytes".into());
        }
        Ok(())
    }

    /// Memory held, in bytes.
    pub fn bytes(&self) -> usize {
        match self {
            Arrangement::Blocks { at, .. } => size_of_val(at.as_slice()),
            _ => 0,
        }
    }

    /// Bytes of a source in a file of this size.
    pub(super) fn len(&self, file: u64) -> u64 {
        match self {
            Arrangement::Whole | Arrangement::ZerosAfter => file,
            Arrangement::Striped {
                block,
                channel,
                channels,
            } => {
                let (channel, channels) = (u64::from(*channel), u64::from(*channels));
                let (blocks, rest) = (file / block, file % block);
                // Whole blocks of this channel, and the part of one more that is in the file.
                let whole = (blocks + channels - 1 - channel) / channels;
                let last = if blocks % channels == channel {
                    rest
                } else {
                    0
                };
                whole.saturating_mul(*block).saturating_add(last)
            }
            Arrangement::Blocks { len, .. } => *len,
        }
    }

    /// Whether all blocks of the `len` bytes at `offset` exist. These bytes do not end past the last block.
    pub(super) fn has(&self, offset: u64, len: u64) -> bool {
        match self {
            Arrangement::Blocks { block, at, .. } if len > 0 => {
                let (first, last) = (offset / block, (offset + len - 1) / block);
                let number = |number: &(u64, u64)| number.0;
                let found = at.binary_search_by_key(&first, number).ok();
                let found = found.zip(usize::try_from(last - first).ok());
                // Numbers ascend, so none is missing where the last one is listed at the right distance.
                let found = found.and_then(|(found, further)| at.get(found.checked_add(further)?));
                found.is_some_and(|found| found.0 == last)
            }
            _ => true,
        }
    }

    /// The file offset of byte `offset`, and how many bytes are contiguous from there on. `None` where there is no
    /// such byte.
    pub(super) fn locate(&self, offset: u64) -> Option<(u64, u64)> {
        match self {
            Arrangement::Whole | Arrangement::ZerosAfter => Some((offset, u64::MAX - offset)),
            Arrangement::Striped {
                block,
                channel,
                channels,
            } => {
                let number = (offset / block).checked_mul(u64::from(*channels))?;
                let start = number
                    .checked_add(u64::from(*channel))?
                    .checked_mul(*block)?;
                let within = offset % block;
                Some((start.checked_add(within)?, block - within))
            }
            Arrangement::Blocks { block, at, len } => {
                let (number, within) = (offset / block, offset % block);
                let left = len.checked_sub(offset).filter(|left| *left > 0)?;
                let found = at
                    .binary_search_by_key(&number, |(number, _)| *number)
                    .ok()?;
                Some((at[found].1.checked_add(within)?, left.min(block - within)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrangements_that_make_no_sense_are_refused() {
        let blocks = |block, at| Arrangement::Blocks { block, at, len: 9 };
        assert!(blocks(0, vec![]).check().is_err());
        assert!(blocks(4, vec![(1, 0), (0, 4)]).check().is_err());
        let two = blocks(4, vec![(0, 4), (1, 0)]);
        assert!(two.check().is_ok());
        assert!(two.check_in(8).is_ok());
        assert!(two.check_in(7).is_err());
        assert!(blocks(4, vec![(0, 4), (1, 1)]).check_in(8).is_err());
        assert!(blocks(u64::MAX, vec![(0, 4), (1, 0)]).check_in(7).is_err());
        let long = Arrangement::Blocks {
            block: 4,
            at: Vec::new(),
            len: 1 << 63,
        };
        assert!(long.check().is_err());
        let striped = |block, channel| Arrangement::Striped {
            block,
            channel,
            channels: 2,
        };
        assert!(striped(0, 1).check().is_err());
        assert!(striped(4, 2).check().is_err());
    }
}
