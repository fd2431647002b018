//! Logs of several processes in one pair of files. Each process has a channel, and channels are striped over the files
//! (section 5).

use super::metadata::{HeaderFields, MAGIC};
use crate::arrangement::Arrangement;
use crate::source_file::SourceFile;
use h5logfs_common::fault::Fault;

/// Bytes of a stripe.
const BLOCK: u64 = 8 << 20;
/// The most channels of a file: the processes of a node. A file does not state their number.
const MOST: u32 = 1 << 16;

/// The channels of one pair of files.
#[derive(Debug, PartialEq, Eq)]
pub struct Channels {
    /// Numbers and headers of the channels that have a header.
    pub found: Vec<(u32, HeaderFields)>,
    /// The known number of channels: the distance between blocks of one channel, in blocks.
    pub number: u32,
}

impl Channels {
    /// Whether a channel lacks its header. More such channels may follow the last known one, so neither the number of
    /// channels nor the places of second blocks are known.
    pub fn has_gaps(&self) -> bool {
        self.found.len() as u64 != u64::from(self.number)
    }

    /// Whether the file ends before the second block of any channel, for any possible number of channels.
    pub fn has_first_blocks_only(&self, file: &SourceFile) -> bool {
        file.len() <= u64::from(self.number) * BLOCK
    }
}

/// The headers of all channels of a metadata log. The log of a single process has one. `metadata` is the whole file.
/// Fails with the reason if it is not a metadata log.
pub fn channels(metadata: &SourceFile) -> Result<Channels, Fault> {
    let first = HeaderFields::read(metadata, 0)?;
    let most = metadata.len().div_ceil(BLOCK).min(first.ranks);
    let most = u32::try_from(most).unwrap_or(MOST).min(MOST);
    let mut found = vec![(0, first)];
    for channel in 1..most {
        // Other bytes here belong to a known channel, or to a process that died before it wrote.
        let next = HeaderFields::read(metadata, u64::from(channel) * BLOCK).ok();
        if let (Some(next), Some((_, last))) = (next, found.last())
            && follows(last, &next)
        {
            found.push((channel, next));
        }
    }
    let number = found.last().map_or(1, |(channel, _)| channel + 1);
    Ok(Channels { found, number })
}

/// Whether `next` can be the header of the channel after the one with header `last`.
fn follows(last: &HeaderFields, next: &HeaderFields) -> bool {
    let common = |fields: &HeaderFields| (fields.big_endian, fields.ranks, fields.len);
    common(last) == common(next)
        && (&last.path, &last.host) == (&next.path, &next.host)
        && last.rank < next.rank
}

/// The places of a channel's bytes in the metadata log and in the data log.
pub fn arrangement(channel: u32, channels: u32) -> Arrangement {
    match channels {
        1 => Arrangement::Whole,
        _ => Arrangement::Striped {
            block: BLOCK,
            channel,
            channels,
        },
    }
}

/// A note if the data log does not have the `channels` channels of its metadata log.
pub fn doubt(data: &SourceFile, channels: u32) -> Option<String> {
    let begins = |channel: u32| {
        let mut magic = [0; MAGIC.len()];
        let at = u64::from(channel) * BLOCK;
        let end = at + magic.len() as u64;
        end <= data.len() && data.read_exact_at(&mut magic, at).is_ok() && magic == *MAGIC
    };
    if let Some(channel) = (0..channels).find(|channel| !begins(*channel)) {
        return Some(format!(
            "channel {channel} of its {channels} lacks the magic bytes of a data log"
        ));
    }
    let has_more = channels > 1 && begins(channels);
    has_more.then(|| format!("it has more channels than the {channels} of its metadata log"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netcdf::metadata::LogHeader;
    use crate::netcdf::testing::{LogBytes, sources};

    /// A file whose channels have the given bytes.
    fn striped(channels: &[Vec<u8>]) -> Vec<u8> {
        let block = BLOCK as usize;
        let mut file = Vec::new();
        for (channel, bytes) in channels.iter().enumerate() {
            for (number, part) in bytes.chunks(block).enumerate() {
                let at = (number * channels.len() + channel) * block;
                file.resize(file.len().max(at + part.len()), 0);
                file[at..at + part.len()].copy_from_slice(part);
            }
        }
        file
    }

    fn log(rank: i64, entries: i64) -> LogBytes {
        let mut log = LogBytes {
            ranks: 8,
            rank,
            ..LogBytes::new(false)
        };
        for at in 0..entries {
            log.put(-3, 4, 0, 1, &[at, 1, 0], &[1, 2]);
        }
        log
    }

    fn ranks(bytes: &[u8]) -> Vec<u64> {
        let (_dir, sources) = sources(&[bytes]);
        let channels = channels(&sources[0]).unwrap();
        channels
            .found
            .iter()
            .map(|(_, fields)| fields.rank)
            .collect()
    }

    #[test]
    fn channels_are_found_and_read() {
        // The second log continues in a second block.
        let logs = [log(1, 3), log(3, 140_000), log(6, 5)].map(|log| log.metadata());
        let file = striped(&logs);
        assert_eq!(ranks(&file), [1, 3, 6]);
        for (channel, entries) in [(0, 3), (1, 140_000), (2, 5)] {
            let (_dir, mut sources) = sources(&[&file]);
            let source = sources.remove(0).arranged(arrangement(channel, 3)).unwrap();
            assert_eq!(LogHeader::read(&source).unwrap().entries, entries);
        }
    }

    #[test]
    fn a_process_without_a_header_hides_no_other_one() {
        let file = striped(&[log(1, 3).metadata(), Vec::new(), log(6, 5).metadata()]);
        let (_dir, mut sources) = sources(&[&file]);
        let found = channels(&sources[0]).unwrap();
        assert!(found.has_gaps() && found.has_first_blocks_only(&sources[0]));
        let numbers: Vec<_> = found
            .found
            .iter()
            .map(|(n, fields)| (*n, fields.rank))
            .collect();
        assert_eq!((numbers, found.number), (vec![(0, 1), (2, 6)], 3));
        let last = sources.remove(0).arranged(arrangement(2, 3)).unwrap();
        assert_eq!(LogHeader::read(&last).unwrap().entries, 5);
    }

    #[test]
    fn other_headers_are_of_no_channel() {
        let bent = |bend: &dyn Fn(&mut LogBytes)| {
            let mut other = log(3, 0);
            bend(&mut other);
            ranks(&striped(&[log(1, 2).metadata(), other.metadata()]))
        };
        assert_eq!(bent(&|_| ()), [1, 3]);
        assert_eq!(bent(&|log| log.rank = 1), [1]);
        assert_eq!(bent(&|log| log.ranks = 9), [1]);
        assert_eq!(bent(&|log| log.path = "/data/run/file.nd".into()), [1]);
        assert_eq!(bent(&|log| log.big_endian = true), [1]);
        let mut alone = log(0, 2);
        alone.ranks = 1;
        assert_eq!(
            ranks(&striped(&[alone.metadata(), log(3, 0).metadata()])),
            [0]
        );
        // A long log of one process out of several.
        let long = log(1, 140_000).metadata();
        assert!(long.len() as u64 > BLOCK);
        assert_eq!(ranks(&long), [1]);
        assert!(channels(&sources(&[&long[1..]]).1[0]).is_err());
    }

    #[test]
    fn data_logs_have_the_same_channels() {
        let magic = b"PnetCDF0".to_vec();
        let doubt_of = |channels: u32, file: &[Vec<u8>]| {
            let (_dir, sources) = sources(&[&striped(file)]);
            doubt(&sources[0], channels)
        };
        let three = [magic.clone(), magic.clone(), magic.clone()];
        assert_eq!(doubt_of(3, &three), None);
        assert!(doubt_of(2, &three).unwrap().contains("more channels"));
        assert!(doubt_of(4, &three).unwrap().contains("channel 3 of its 4"));
        assert_eq!(doubt_of(1, &three[..1]), None);
        assert!(doubt_of(1, &[b"QnetCDF0".to_vec()]).is_some());
    }
}
