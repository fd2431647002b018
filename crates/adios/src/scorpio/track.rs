//! The frames of a variable in one step (section 6.3), and the blocks of each frame (section 4).

use super::values::Values;
use crate::Result;
use crate::model::Variable;

/// One call that wrote a part of each process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// The number of the frame; `None` if the program gave none.
    pub number: Option<u64>,
    /// The ID of its decomposition.
    pub map: i64,
    /// The fill value of the call, in the type of the list, which may not be that of the variable; `None` if it had none.
    pub fill: Option<Vec<u8>>,
    /// The call had a fill value, and the file lacks it.
    pub lacks_fill: bool,
}

/// The lists about a variable in one step.
#[derive(Debug, Clone, Copy, Default)]
pub struct Lists<'a> {
    /// The decomposition of each frame.
    pub maps: Option<&'a Variable>,
    /// The number of each frame.
    pub numbers: Option<&'a Variable>,
    /// The fill values.
    pub fills: Option<&'a Variable>,
}

/// The frames of a variable in a step, in the order of the calls. Fails where lists are missing or contradict each other.
pub fn frames_of(lists: Lists<'_>, values: &Values<'_>) -> Result<Vec<Frame>> {
    let maps = lists.maps.ok_or("its list of decompositions is missing")?;
    let numbers = lists.numbers.ok_or("its list of frames is missing")?;
    let (maps, numbers) = (values.numbers(maps)?, values.numbers(numbers)?);
    let (maps, numbers) = (maps.concat(), numbers.concat());
    if maps.len() != numbers.len() {
        let (maps, numbers) = (maps.len(), numbers.len());
        return Err(format!("{maps} decompositions for {numbers} frames").into());
    }
    if let Some(number) = numbers.iter().find(|number| **number < -1) {
        return Err(format!("frame {number}").into());
    }
    let size = lists.fills.map_or(1, |fills| fills.ty.size().max(1)) as usize;
    let fills = lists
        .fills
        .map(|fills| values.elements(fills))
        .transpose()?;
    let fills = fills.unwrap_or_default().concat();
    let mut fills = fills.chunks_exact(size);
    let frame = |(map, number): (i64, i64)| {
        let has_fill = map > 0;
        let fill = has_fill.then(|| fills.next()).flatten();
        Frame {
            number: u64::try_from(number).ok(),
            map: map.saturating_abs(),
            lacks_fill: has_fill && fill.is_none(),
            fill: fill.map(<[u8]>::to_vec),
        }
    };
    Ok(maps.into_iter().zip(numbers).map(frame).collect())
}

/// One block of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Counted {
    /// Index of the frame in its step.
    pub frame: u32,
    /// Index of the group.
    pub group: u32,
    /// Index of the member in its group.
    pub member: u32,
    /// Number of the block in its variable.
    pub block: u32,
}

/// The numbers of a list in which each group has the same number of blocks, by group.
pub fn of_groups(blocks: Vec<Vec<i64>>, groups: usize) -> Result<Vec<Vec<i64>>> {
    if groups == 0 || !blocks.len().is_multiple_of(groups) {
        return Err(format!("{} blocks for {groups} groups", blocks.len()).into());
    }
    let each = (blocks.len() / groups).max(1);
    Ok(blocks.chunks(each).map(<[Vec<i64>]>::concat).collect())
}

/// Counts blocks off: each belongs to one member of one group, and to one frame. `writers`: for each group and each of
/// `frames` frames, the number of members with a block. The result is sorted. Fails where `blocks` is another number.
pub fn count_off(
    groups: &[Vec<u32>],
    writers: &[Vec<i64>],
    frames: usize,
    blocks: usize,
) -> Result<Vec<Counted>> {
    if writers.len() != groups.len() || writers.iter().any(|own| own.len() != frames) {
        return Err(format!(
            "its list of writers does not have {frames} frames of {} groups",
            groups.len()
        )
        .into());
    }
    let mut members: Vec<(u32, u32, u32)> = Vec::new();
    for (group, (ranks, own)) in (0u32..).zip(groups.iter().zip(writers)) {
        let most = own.iter().copied().max().unwrap_or(0);
        let most = usize::try_from(most).map_err(|_| "a negative number of writers")?;
        let with_blocks = ranks.get(..most);
        let with_blocks =
            with_blocks.ok_or_else(|| format!("{most} writers in a group of {}", ranks.len()))?;
        members.extend(
            (0u32..)
                .zip(with_blocks)
                .map(|(member, rank)| (*rank, group, member)),
        );
    }
    members.sort_unstable();
    let mut counted = Vec::new();
    'all: for (_, group, member) in members {
        for (frame, number) in (0u32..).zip(&writers[group as usize]) {
            if i64::from(member) < *number {
                if counted.len() > blocks {
                    break 'all;
                }
                let block = u32::try_from(counted.len())?;
                counted.push(Counted {
                    frame,
                    group,
                    member,
                    block,
                });
            }
        }
    }
    if counted.len() != blocks {
        let groups = groups.len();
        return Err(format!(
            "{blocks} blocks, but its list of writers has {} for {frames} frames of {groups} groups",
            counted.len()
        )
        .into());
    }
    counted.sort_unstable();
    Ok(counted)
}
