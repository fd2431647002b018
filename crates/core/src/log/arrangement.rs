//! How the bytes of a source lie in its file.

use serde::{Deserialize, Serialize};

/// Where in a file the bytes of a source lie: everything above counts them as if they followed each other.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Arrangement {
    /// They are the file's.
    #[default]
    Whole,
    /// They are the file's, and zeros after its end: nobody has written there yet.
    ZerosAfter,
    /// Of all blocks of `block` bytes every `channels`th one, from number `channel` on.
    Striped {
        block: u64,
        channel: u32,
        channels: u32,
    },
    /// Blocks of `block` bytes each that lie anywhere, `len` bytes of them.
    Blocks {
        block: u64,
        /// Offsets in the file, by the numbers of the blocks in ascending order. Those that are missing
        /// have no bytes.
        at: Vec<(u64, u64)>,
        len: u64,
    },
}

impl Arrangement {
    /// Whether it can be followed. Fails with the reason.
    pub fn check(&self) -> Result<(), String> {
        let is_sound = match self {
            Arrangement::Whole | Arrangement::ZerosAfter => true,
            Arrangement::Striped {
                block,
                channel,
                channels,
            } => *block > 0 && channel < channels,
            // Positions are signed in most formats.
            Arrangement::Blocks { block, at, len } => {
                *block > 0 && at.is_sorted_by(|a, b| a.0 < b.0) && *len <= i64::MAX as u64
            }
        };
        match is_sound {
            true => Ok(()),
            false => Err("bytes in blocks that make no sense".into()),
        }
    }

    /// Whether a file of this size can have the blocks. Those that share their bytes would make a log of any
    /// length. Fails with the reason.
    pub(super) fn check_in(&self, file: u64) -> Result<(), String> {
        let Arrangement::Blocks { block, at, .. } = self else {
            return Ok(());
        };
        let bytes = block.checked_mul(at.len() as u64);
        match bytes.is_some_and(|bytes| bytes <= file) {
            true => Ok(()),
            false => Err("its chunks have more bytes than the file".into()),
        }
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
                // Whole blocks of this channel, and what there is of one more.
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

    /// Whether no block of `len` bytes from `offset` on, which do not end past the last one, is missing.
    pub(super) fn has(&self, offset: u64, len: u64) -> bool {
        match self {
            Arrangement::Blocks { block, at, .. } if len > 0 => {
                let (first, last) = (offset / block, (offset + len - 1) / block);
                let number = |number: &(u64, u64)| number.0;
                let found = at.binary_search_by_key(&first, number).ok();
                let found = found.zip(usize::try_from(last - first).ok());
                // They ascend, so that none is missing where the last one stands as far behind the first.
                let found = found.and_then(|(found, further)| at.get(found.checked_add(further)?));
                found.is_some_and(|found| found.0 == last)
            }
            _ => true,
        }
    }

    /// Where in the file byte `offset` is, and how many follow it there, itself included. `None` where there is none.
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
