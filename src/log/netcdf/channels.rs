//! Logs that several processes share: channels, striped over one pair of files (section 5).

use super::metadata::{Front, MAGIC};
use crate::log::source::{Arrangement, SourceFile};

/// Bytes of one process that lie together.
const BLOCK: u64 = 8 << 20;
/// Channels of one file: processes of one node. Nothing in a file says how many there are.
const MOST: u32 = 1 << 16;

/// The headers of all channels of a metadata log, which is read as it lies in its file; just one where
/// the log is that of a single process. Fails with the reason where it is no metadata log.
pub fn channels(metadata: &SourceFile) -> Result<Vec<Front>, String> {
    let first = Front::read(metadata, 0)?;
    let mut found = vec![first];
    for channel in 1..MOST {
        let at = u64::from(channel) * BLOCK;
        let is_there = at < metadata.len() && u64::from(channel) < found[0].ranks;
        // Anything else at this place belongs to a channel that is known.
        let next = is_there.then(|| Front::read(metadata, at).ok()).flatten();
        match (next, found.last()) {
            (Some(next), Some(last)) if follows(last, &next) => found.push(next),
            _ => break,
        }
    }
    Ok(found)
}

/// Whether a header is that of the channel after the one whose header is `last`.
fn follows(last: &Front, next: &Front) -> bool {
    let common = |front: &Front| (front.big_endian, front.ranks, front.len);
    common(last) == common(next)
        && (&last.path, &last.host) == (&next.path, &next.host)
        && last.rank < next.rank
}

/// How the bytes of a channel lie in the metadata log, and in the data log.
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

/// What is to be said of a data log that has not the channels of its metadata log, which are so many.
pub fn doubt(data: &SourceFile, channels: u32) -> Option<String> {
    let begins = |channel: u32| {
        let mut magic = [0; MAGIC.len()];
        let at = u64::from(channel) * BLOCK;
        let end = at + magic.len() as u64;
        end <= data.len() && data.read_exact_at(&mut magic, at).is_ok() && magic == *MAGIC
    };
    if let Some(channel) = (0..channels).find(|channel| !begins(*channel)) {
        return Some(format!(
            "channel {channel} of its {channels} has not the magic bytes of a data log"
        ));
    }
    let has_more = channels > 1 && begins(channels);
    has_more.then(|| format!("it has more channels than the {channels} of its metadata log"))
}
