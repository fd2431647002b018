//! Random damage to logs.

use super::damaged::Log;
use super::numbers::Numbers;

/// One kind of damage.
type Damage = fn(&mut Log, &mut Numbers);

const DAMAGES: [Damage; 8] = [
    turn_bits,
    change_number,
    change_number,
    cut,
    overwrite,
    copy_within,
    lose_file,
    exchange,
];

/// A copy of a log, damaged in up to three ways.
pub fn mutant(log: &Log, random: &mut Numbers) -> Log {
    let mut log = log.clone();
    for _ in 0..random.within(1, 3) {
        random.pick(&DAMAGES)(&mut log, random);
    }
    log
}

/// A random byte of a log, all equally likely.
fn place(log: &Log, random: &mut Numbers) -> Option<(usize, usize)> {
    let total: usize = log.files.iter().map(|(_, bytes)| bytes.len()).sum();
    if total == 0 {
        return None;
    }
    let mut at = random.index(total);
    let lens = log.files.iter().map(|(_, bytes)| bytes.len());
    for (file, len) in lens.enumerate() {
        if at < len {
            return Some((file, at));
        }
        at -= len;
    }
    None
}

fn turn_bits(log: &mut Log, random: &mut Numbers) {
    for _ in 0..random.within(1, 8) {
        if let Some((file, at)) = place(log, random) {
            log.files[file].1[at] ^= 1 << random.below(8);
        }
    }
}

fn cut(log: &mut Log, random: &mut Numbers) {
    if let Some((file, at)) = place(log, random) {
        log.files[file].1.truncate(at);
    }
}

/// Overwrites bytes, as if they never reached the disk or something else wrote there.
fn overwrite(log: &mut Log, random: &mut Numbers) {
    let Some((file, at)) = place(log, random) else {
        return;
    };
    let bytes = &mut log.files[file].1[at..];
    let len = bytes.len().min(random.within(1, 4096) as usize);
    match random.below(3) {
        0 => bytes[..len].fill(0),
        1 => bytes[..len].fill(0xff),
        _ => bytes[..len].copy_from_slice(&random.bytes(len)),
    }
}

/// Duplicates structures.
fn copy_within(log: &mut Log, random: &mut Numbers) {
    let (Some((file, from)), Some((other, to))) = (place(log, random), place(log, random)) else {
        return;
    };
    let piece = &log.files[file].1[from..];
    let len = piece.len().min(random.within(8, 512) as usize);
    let piece = piece[..len].to_vec();
    let room = &mut log.files[other].1[to..];
    let len = room.len().min(len);
    room[..len].copy_from_slice(&piece[..len]);
}

/// Removes a file, but not the first, which is opened.
fn lose_file(log: &mut Log, random: &mut Numbers) {
    if log.files.len() > 1 {
        let lost = 1 + random.index(log.files.len() - 1);
        log.files.remove(lost);
    }
}

fn exchange(log: &mut Log, random: &mut Numbers) {
    let (one, other) = (random.index(log.files.len()), random.index(log.files.len()));
    let bytes = log.files[one].1.clone();
    log.files[one].1 = std::mem::replace(&mut log.files[other].1, bytes);
}

/// Changes a number, which may be an extent, chunk shape, count, rank, length, size or offset. It mostly grows.
fn change_number(log: &mut Log, random: &mut Numbers) {
    let file = random.index(log.files.len());
    let bytes = &mut log.files[file].1;
    let places: Vec<(usize, usize, bool)> = numbers(bytes).collect();
    if places.is_empty() {
        return;
    }
    let (at, len, is_big) = random.pick(&places);
    let mut number = [0; 8];
    let place = &mut bytes[at..at + len];
    if is_big {
        place.reverse();
    }
    number[..len].copy_from_slice(place);
    let old = u64::from_le_bytes(number);
    let new = match random.below(12) {
        0 => old | 1 << 46,
        1 => old | 1 << 31,
        2 => old << random.within(1, 60),
        3 => i64::MAX as u64,
        4 => u64::from(u32::MAX),
        5 => old + 1,
        6 => old.saturating_mul(1000),
        7 => 1 << random.within(8, 62),
        8 => i32::MAX as u64,
        9 => 0,
        10 => u64::MAX,
        _ => old | 1 << random.below(63),
    };
    place.copy_from_slice(&new.to_le_bytes()[..len]);
    if is_big {
        place.reverse();
    }
}

/// Possible numbers: place, width, and whether they are big-endian. Few are data, because zeros must follow.
fn numbers(bytes: &[u8]) -> impl Iterator<Item = (usize, usize, bool)> {
    let is_number = |part: &[u8], len: usize| {
        let (low, high) = part[..len].split_at(2);
        let little = low != [0; 2] && high.iter().all(|byte| *byte == 0);
        let (high, low) = part[..len].split_at(len - 2);
        let big = low != [0; 2] && high.iter().all(|byte| *byte == 0);
        match (little, big) {
            (true, _) => Some(false),
            (_, true) => Some(true),
            _ => None,
        }
    };
    let windows = bytes.windows(8).enumerate();
    windows.flat_map(move |(at, part)| {
        let found = [8, 4].map(|len| is_number(part, len).map(|big| (at, len, big)));
        found.into_iter().flatten()
    })
}
