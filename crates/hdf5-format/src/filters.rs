//! The filters of chunks.
//!
//! There are two encoders. [`encode`] serves files whose bytes are made when they are read: the size of a chunk must be known
//! before the chunk is made. So its deflate filter writes stored blocks (RFC 1951, 3.2.4): their size is arithmetic, every reader
//! can inflate them, and nothing is compressed. [`compress`] compresses. Filters that this crate cannot apply are left out, and
//! the chunk's filter mask says so.

use std::borrow::Cow;
use std::io::{self, Write};

use flate2::Compression;
use flate2::write::ZlibEncoder;
use serde::{Deserialize, Serialize};
use zlib_rs::adler32::adler32;

use crate::deflate::{inflate, inflate_in};
use crate::fields::Fields;
use crate::{Result, szip};
use h5logfs_common::buffers::{make_room, with_room, zeroed};

/// A filter of a pipeline (IV.A.2.l).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Filter {
    /// Registered number of the filter.
    pub id: i32,
    /// Bit 0: the filter is optional.
    pub flags: u32,
    /// Client data: its parameters.
    pub values: Vec<u32>,
}

/// The deflate filter; its parameter is the level.
pub const DEFLATE: i32 = 1;
/// The shuffle filter; its parameter is the size of an element.
pub const SHUFFLE: i32 = 2;
/// The Fletcher-32 checksum.
pub const FLETCHER32: i32 = 3;
/// Adaptive entropy coding. This crate only undoes it.
pub const SZIP: i32 = 4;

/// The bit of a filter's flags that allows chunks without it.
pub const OPTIONAL: u32 = 1;

impl Filter {
    /// Fails where its parameters make no sense for elements of so many bytes.
    pub fn check(&self, element_size: u64) -> Result<()> {
        let width = self.values.first().copied().unwrap_or(0);
        if self.id == SHUFFLE && u64::from(width) > element_size {
            return Err("a shuffle of more than an element".into());
        }
        Ok(())
    }

    /// The filter as chunks have it that this crate encodes: optional where the crate cannot apply it. HDF5 allows chunks without
    /// a filter for optional filters only.
    pub fn skippable(mut self) -> Self {
        if !self.can_apply() {
            self.flags |= OPTIONAL;
        }
        self
    }

    /// Whether the filter can be applied. Other filters are left out, and their bits are set in the filter mask.
    pub fn can_apply(&self) -> bool {
        [DEFLATE, SHUFFLE, FLETCHER32].contains(&self.id)
    }

    /// Whether the filter can be undone.
    pub fn can_undo(&self) -> bool {
        self.can_apply() || self.id == SZIP
    }
}

/// Reads a filter pipeline message of versions 1 and 2.
pub fn of_message(message: &[u8]) -> Option<Vec<Filter>> {
    /// Filters below have no name in version 2.
    const FIRST_NAMED: u16 = 256;
    let mut fields = Fields(message);
    let (version, count) = (fields.u8()?, fields.u8()?);
    let is_old = match version {
        1 => true,
        2 => false,
        _ => return None,
    };
    if is_old {
        fields.skip(6)?;
    }
    let mut filters = Vec::new();
    for _ in 0..count {
        let id = fields.u16()?;
        let name = if is_old || id >= FIRST_NAMED {
            usize::from(fields.u16()?)
        } else {
            0
        };
        let (flags, count) = (fields.u16()?, fields.u16()?);
        fields.skip(if is_old {
            name.next_multiple_of(8)
        } else {
            name
        })?;
        let values = (0..count).map(|_| fields.u32()).collect::<Option<_>>()?;
        if is_old && count % 2 == 1 {
            fields.skip(4)?;
        }
        filters.push(Filter {
            id: id.into(),
            flags: flags.into(),
            values,
        });
    }
    Some(filters)
}

/// The largest stored block of deflate.
const STORED_BLOCK: u64 = 65_535;

/// The filter mask of a chunk: the bits of the filters that are left out.
pub fn mask(pipeline: &[Filter]) -> u32 {
    let skipped = pipeline.iter().enumerate().filter(|(_, f)| !f.can_apply());
    skipped.fold(0, |mask, (i, _)| {
        mask | 1u32.checked_shl(i as u32).unwrap_or(0)
    })
}

/// Stored bytes of a chunk of `raw` bytes; `None` where they overflow.
pub fn stored_size(raw: u64, pipeline: &[Filter]) -> Option<u64> {
    pipeline.iter().try_fold(raw, |size, f| match f.id {
        DEFLATE => deflated_size(size),
        FLETCHER32 => size.checked_add(4),
        _ => Some(size),
    })
}

fn deflated_size(size: u64) -> Option<u64> {
    let blocks = size.div_ceil(STORED_BLOCK).max(1);
    blocks.checked_mul(5)?.checked_add(size)?.checked_add(2 + 4)
}

/// Applies the pipeline without compression; the result has [`stored_size`] bytes.
pub fn encode(mut bytes: Vec<u8>, pipeline: &[Filter]) -> Result<Vec<u8>> {
    for filter in pipeline {
        bytes = match filter.id {
            DEFLATE => deflate_stored(&bytes)?,
            SHUFFLE => shuffle(&bytes, shuffle_width(filter))?,
            FLETCHER32 => with_fletcher32(bytes)?,
            _ => bytes,
        };
    }
    Ok(bytes)
}

/// Applies the pipeline. Deflate compresses, so the size is not known beforehand.
pub fn compress(raw: &[u8], pipeline: &[Filter]) -> io::Result<Vec<u8>> {
    let mut bytes = Cow::Borrowed(raw);
    for filter in pipeline {
        bytes = Cow::Owned(match filter.id {
            DEFLATE => deflate(&bytes, filter.values.first().copied().unwrap_or(6))?,
            SHUFFLE => shuffle(&bytes, shuffle_width(filter)).map_err(io::Error::other)?,
            FLETCHER32 => with_fletcher32(bytes.into_owned()).map_err(io::Error::other)?,
            _ => continue,
        });
    }
    Ok(bytes.into_owned())
}

/// Bytes of memory that undoing the pipeline takes besides the stored ones: the output of one filter, and its input
/// where that is the output of another one.
pub fn decoding_memory(stored: u64, raw: u64, pipeline: &[Filter]) -> u64 {
    let most = stored_size(raw, pipeline).unwrap_or(u64::MAX);
    let most = most.max(raw).max(stored);
    // A checksum is cut off in place, after a copy of the stored bytes.
    let makes_new = pipeline.iter().filter(|f| f.id != FLETCHER32).count();
    let of_szip = if pipeline.iter().any(|f| f.id == SZIP) {
        szip::memory(most)
    } else {
        0
    };
    most.saturating_mul(makes_new.clamp(1, 2) as u64)
        .saturating_add(of_szip)
}

/// Undoes the pipeline. The result has `raw` bytes.
pub fn decode(stored: &[u8], raw: u64, pipeline: &[Filter]) -> Result<Vec<u8>> {
    let bytes = undone(stored, raw, pipeline, 0)?;
    check_len(&bytes, raw)?;
    Ok(bytes.into_owned())
}

/// Undoes the pipeline in memory of the caller, which has the length of the result: the last step writes there.
pub fn decode_in(stored: &[u8], pipeline: &[Filter], out: &mut [u8]) -> Result<()> {
    let raw = out.len() as u64;
    match pipeline.first() {
        Some(filter) if filter.id == DEFLATE => {
            check_deflated_once(&pipeline[1..])?;
            inflate_in(&undone(stored, raw, pipeline, 1)?, out)
        }
        Some(filter) if filter.id == SHUFFLE => {
            let bytes = undone(stored, raw, pipeline, 1)?;
            check_len(&bytes, raw)?;
            unshuffle_in(&bytes, shuffle_width(filter), out);
            Ok(())
        }
        _ => {
            let bytes = undone(stored, raw, pipeline, 0)?;
            check_len(&bytes, raw)?;
            out.copy_from_slice(&bytes);
            Ok(())
        }
    }
}

/// Undoes the filters of the pipeline from number `first` on, of an element block that had `raw` bytes before all of them.
fn undone<'a>(
    stored: &'a [u8],
    raw: u64,
    pipeline: &[Filter],
    first: usize,
) -> Result<Cow<'a, [u8]>> {
    let mut bytes = Cow::Borrowed(stored);
    for (i, filter) in pipeline.iter().enumerate().skip(first).rev() {
        bytes = Cow::Owned(match filter.id {
            DEFLATE => {
                check_deflated_once(&pipeline[..i])?;
                let size = stored_size(raw, &pipeline[..i]).ok_or("too many bytes")?;
                inflate(&bytes, size)?
            }
            SHUFFLE => unshuffle(&bytes, shuffle_width(filter))?,
            FLETCHER32 => strip_fletcher32(bytes.into_owned())?,
            SZIP => {
                let most = stored_size(raw, &pipeline[..i]).ok_or("too many bytes")?;
                szip::decode(&bytes, most, &filter.values)?
            }
            other => return Err(format!("filter {other} is none that h5logfs can undo").into()),
        });
    }
    Ok(bytes)
}

/// How many bytes a stream inflates to is known only where it is the one deflate filter of its pipeline.
fn check_deflated_once(others: &[Filter]) -> Result<()> {
    if others.iter().any(|f| f.id == DEFLATE) {
        return Err("deflate appears twice in the pipeline".into());
    }
    Ok(())
}

fn check_len(bytes: &[u8], raw: u64) -> Result<()> {
    if bytes.len() as u64 == raw {
        return Ok(());
    }
    Err(format!("{} bytes instead of {raw}", bytes.len()).into())
}

fn shuffle_width(filter: &Filter) -> usize {
    filter.values.first().map_or(1, |w| *w as usize).max(1)
}

/// Byte 0 of every element, then byte 1 of every element, and so on. Bytes behind the last whole element stay at
/// the end.
fn shuffle(bytes: &[u8], width: usize) -> Result<Vec<u8>> {
    let count = bytes.len() / width;
    let mut out = copied(bytes)?;
    for byte in 0..width {
        let plane = &mut out[byte * count..(byte + 1) * count];
        for (to, element) in plane.iter_mut().zip(bytes.chunks_exact(width)) {
            *to = element[byte];
        }
    }
    Ok(out)
}

fn unshuffle(bytes: &[u8], width: usize) -> Result<Vec<u8>> {
    let mut out = zeroed(bytes.len())?;
    unshuffle_in(bytes, width, &mut out);
    Ok(out)
}

/// Undoes the shuffle of `bytes` into memory of the same length.
fn unshuffle_in(bytes: &[u8], width: usize, out: &mut [u8]) {
    match width {
        2 => unshuffle_elements::<2>(bytes, out),
        4 => unshuffle_elements::<4>(bytes, out),
        8 => unshuffle_elements::<8>(bytes, out),
        _ => {
            let count = bytes.len() / width;
            for byte in 0..width {
                let plane = &bytes[byte * count..(byte + 1) * count];
                for (from, element) in plane.iter().zip(out.chunks_exact_mut(width)) {
                    element[byte] = *from;
                }
            }
        }
    }
    let whole = bytes.len() - bytes.len() % width;
    out[whole..].copy_from_slice(&bytes[whole..]);
}

/// Puts elements of a usual width together, one after the other: their planes are read side by side, and memory is written
/// once.
fn unshuffle_elements<const WIDTH: usize>(bytes: &[u8], out: &mut [u8]) {
    let count = bytes.len() / WIDTH;
    let planes: [&[u8]; WIDTH] =
        std::array::from_fn(|byte| &bytes[byte * count..(byte + 1) * count]);
    for (at, element) in out.as_chunks_mut::<WIDTH>().0.iter_mut().enumerate() {
        *element = std::array::from_fn(|byte| planes[byte][at]);
    }
}

fn copied(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut out = with_room(bytes.len())?;
    out.extend_from_slice(bytes);
    Ok(out)
}

/// A zlib stream (RFC 1950), compressed. A level compresses as well as that of zlib, within 3 %.
///
/// Programs mean the levels of zlib. Level 1 of zlib-rs is a fast one of its own, whose streams are up to three times as long
/// as those of zlib; 2 and 3 are poorer than zlib's in tables of small numbers. The next level of zlib-rs makes up for
/// that, and still takes less time than zlib with the level that was asked for.
fn deflate(bytes: &[u8], level: u32) -> io::Result<Vec<u8>> {
    let level = match level {
        1..=3 => level + 1,
        _ => level.min(9),
    };
    let level = Compression::new(level);
    let mut encoder = ZlibEncoder::new(Vec::with_capacity(bytes.len() / 2), level);
    encoder.write_all(bytes)?;
    encoder.finish()
}

/// A zlib stream (RFC 1950) of stored blocks.
fn deflate_stored(bytes: &[u8]) -> Result<Vec<u8>> {
    let size = deflated_size(bytes.len() as u64).unwrap_or(0);
    let mut out = with_room(size as usize)?;
    // 32 KiB window, no dictionary, fastest level.
    out.extend_from_slice(&[0x78, 0x01]);
    let mut blocks = bytes.chunks(STORED_BLOCK as usize).peekable();
    if blocks.peek().is_none() {
        out.extend_from_slice(&[1, 0, 0, 0xff, 0xff]);
    }
    while let Some(block) = blocks.next() {
        let len = block.len() as u16;
        out.push(u8::from(blocks.peek().is_none()));
        out.extend_from_slice(&len.to_le_bytes());
        out.extend_from_slice(&(!len).to_le_bytes());
        out.extend_from_slice(block);
    }
    out.extend_from_slice(&adler32(1, bytes).to_be_bytes());
    Ok(out)
}

/// The checksum of HDF5's fletcher32 filter: over big-endian 16-bit words, stored little endian.
fn fletcher32(bytes: &[u8]) -> u32 {
    // The largest number of words after which the sums still fit into 32 bits.
    const UNREDUCED: usize = 360;
    let reduce = |sum: u32| (sum & 0xffff) + (sum >> 16);
    let (mut a, mut b) = (0u32, 0u32);
    for part in bytes.chunks(2 * UNREDUCED) {
        for word in part.chunks(2) {
            let low = word.get(1).copied().unwrap_or(0);
            a += u32::from(u16::from_be_bytes([word[0], low]));
            b += a;
        }
        a = reduce(a);
        b = reduce(b);
    }
    reduce(b) << 16 | reduce(a)
}

fn with_fletcher32(mut bytes: Vec<u8>) -> Result<Vec<u8>> {
    let sum = fletcher32(&bytes).to_le_bytes();
    make_room(&mut bytes, sum.len())?;
    bytes.extend_from_slice(&sum);
    Ok(bytes)
}

fn strip_fletcher32(mut bytes: Vec<u8>) -> Result<Vec<u8>> {
    let split = bytes.len().checked_sub(4).ok_or("no room for a checksum")?;
    let sum = fletcher32(&bytes[..split]);
    if bytes[split..] != sum.to_le_bytes() {
        return Err("fletcher32 checksum does not match".into());
    }
    bytes.truncate(split);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn filter(id: i32, width: u32) -> Filter {
        Filter {
            id,
            flags: 0,
            values: vec![width],
        }
    }

    fn pipeline() -> impl Strategy<Value = Vec<Filter>> {
        let kinds = Just(vec![DEFLATE, SHUFFLE, FLETCHER32]).prop_shuffle();
        (kinds, 0usize..4, 1u32..9)
            .prop_map(|(ids, n, width)| ids[..n].iter().map(|id| filter(*id, width)).collect())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn what_is_encoded_has_the_size_foretold_and_decodes(
            bytes in prop::collection::vec(any::<u8>(), 1..140_000),
            pipeline in pipeline(),
        ) {
            let raw = bytes.len() as u64;
            let stored = encode(bytes.clone(), &pipeline).unwrap();
            prop_assert_eq!(Some(stored.len() as u64), stored_size(raw, &pipeline));
            prop_assert_eq!(&decode(&stored, raw, &pipeline).unwrap(), &bytes);
            let small = compress(&bytes, &pipeline).unwrap();
            let mut out = vec![7; bytes.len()];
            decode_in(&small, &pipeline, &mut out).unwrap();
            prop_assert_eq!(&out, &bytes);
            prop_assert!(decode_in(&small, &pipeline, &mut out[1..]).is_err());
            prop_assert_eq!(decode(&small, raw, &pipeline).unwrap(), bytes);
        }
    }

    /// Columns of a table. What zlib 1.2.13 makes of them is here, as parts of their bytes.
    #[test]
    fn levels_compress_like_those_of_zlib() {
        let mut random = 1u64;
        let mut below = |end: u64| {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % end
        };
        let events: Vec<u32> = (0..1 << 16).map(|row| row / 16).collect();
        let hits: Vec<u32> = (0..1 << 16)
            .map(|_| (0..6).map(|_| below(2)).sum::<u64>() as u32)
            .collect();
        let part = |column: &[u32], level| {
            let bytes: Vec<u8> = column.iter().flat_map(|n| n.to_le_bytes()).collect();
            deflate(&bytes, level).unwrap().len() as f64 / bytes.len() as f64
        };
        let parts = |level| (part(&events, level), part(&hits, level));
        for (level, zlib) in [
            (1, (0.0452, 0.1664)),
            (2, (0.0452, 0.1576)),
            (3, (0.0452, 0.1451)),
            (6, (0.0276, 0.1242)),
            (9, (0.0276, 0.1122)),
        ] {
            let found = parts(level);
            let is_near = |found: f64, zlib: f64| found < 1.03 * zlib;
            assert!(
                is_near(found.0, zlib.0) && is_near(found.1, zlib.1),
                "{level}: {found:?}"
            );
        }
    }

    #[test]
    fn foreign_filters_are_masked() {
        let szip = filter(4, 0);
        let pipeline = [filter(SHUFFLE, 4), szip, filter(DEFLATE, 0)];
        assert_eq!(mask(&pipeline), 0b010);
        assert_eq!(stored_size(10, &pipeline), Some(10 + 11));
        assert!(decode(b"x", 1, &pipeline).is_err());
    }

    #[test]
    fn damage_is_found() {
        let sum = [filter(FLETCHER32, 0)];
        let mut stored = encode(vec![7; 100], &sum).unwrap();
        stored[50] ^= 1;
        assert!(decode(&stored, 100, &sum).is_err());
        assert!(decode(b"abc", 3, &sum).is_err());
    }

    #[test]
    fn both_versions_of_pipelines_are_read() {
        let deflate = Filter {
            id: 1,
            flags: 1,
            values: vec![6],
        };
        let other = Filter {
            id: 300,
            flags: 0,
            values: vec![1, 2],
        };
        let values = [1u32, 2].map(u32::to_le_bytes).concat();
        let old = [
            &[1, 2, 0, 0, 0, 0, 0, 0],
            &[1, 0, 8, 0, 1, 0, 1, 0],
            b"deflate\0",
            &[6, 0, 0, 0, 0, 0, 0, 0],
            &[44, 1, 0, 0, 0, 0, 2, 0],
            &values[..],
        ];
        let new = [
            &[2, 2, 1, 0, 1, 0, 1, 0, 6, 0, 0, 0][..],
            &[44, 1, 2, 0, 0, 0, 2, 0],
            b"x\0",
            &values,
        ];
        for message in [old.concat(), new.concat()] {
            assert_eq!(
                of_message(&message),
                Some(vec![deflate.clone(), other.clone()])
            );
            for len in 0..message.len() {
                assert_eq!(of_message(&message[..len]), None);
            }
        }
    }
}
