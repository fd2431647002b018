//! Blocks that were written with an operator (section 5).
//!
//! * `bzip2`: batches of bzip2 streams.
//! * `blosc`: chunks of blosc 1 and 2.
//! * `zfp`: fields of zfp.
//!
//! `unread` says what the headers of other operators say.
//!
//! Decoding writes into the caller's memory, and takes at most [`memory`] bytes besides.

mod blosc;
mod bzip2;
mod unread;
mod zfp;

use crate::Result;
use crate::fields::Fields;

/// Stored bytes are decoded fastest in memory that is aligned to so many bytes, with zeros behind them: up to a multiple of
/// it, and one more. No operator minds bytes behind its own.
pub const WORD: usize = 8;

/// Bytes of memory of a bzip2 decoder.
const BZIP2_STATE: u64 = 4 << 20;

/// The supported operators.
const BLOSC: u8 = 0;
const BZIP2: u8 = 1;
const ZFP: u8 = 7;
const NULL: u8 = 127;

/// Those that are not.
const LIBPRESSIO: u8 = 2;
const MGARD: u8 = 3;
const PNG: u8 = 4;
const SIRIUS: u8 = 5;
const SZ: u8 = 6;
const MGARD_PLUS: u8 = 8;
const BIGWHOOP: u8 = 9;
const MGARD_COMPLEX: u8 = 10;
const SZ3: u8 = 11;
const MDR: u8 = 41;
const MDR_OF_PRODM: u8 = 42;
const CAESAR: u8 = 45;
const PLUGIN: u8 = 53;

/// The most dimensions of a dataspace of HDF5, and so of what is shown of a block.
const MOST_COUNTS: u64 = 32;

/// The header version of all supported operators.
const VERSION: u8 = 1;

/// The largest memory use of decoding in bytes, besides the stored bytes and the `len` bytes of elements.
pub fn memory(stored: &[u8], len: u64) -> u64 {
    match stored.first() {
        Some(&BLOSC) => blosc::memory(stored, len),
        Some(&BZIP2) => BZIP2_STATE,
        Some(&ZFP) => zfp::memory(stored, len),
        _ => 0,
    }
}

/// Decodes the stored bytes of a block. `out` has the length of the block's elements. Fails where the bytes are
/// damaged, decode to another length, or belong to an unsupported operator. The fault names that operator, its
/// parameters, and what can read the block.
pub fn decode(stored: &[u8], out: &mut [u8]) -> Result<()> {
    let operator = *stored
        .first()
        .ok_or("the header of an operator is missing")?;
    let name = name(operator);
    let decoded = match operator {
        BLOSC => blosc::decode,
        BZIP2 => bzip2::decode,
        ZFP => zfp::decode,
        NULL => null,
        _ => return Err(unread::message(operator, stored).into()),
    };
    decoded(stored, out).map_err(|fault| fault.at(format!("operator {name}")))
}

/// The name of an operator, by the number at the start of its header.
fn name(operator: u8) -> String {
    let name = match operator {
        BLOSC => "blosc",
        BZIP2 => "bzip2",
        LIBPRESSIO => "libpressio",
        MGARD => "mgard",
        PNG => "png",
        SIRIUS => "sirius",
        SZ => "sz",
        ZFP => "zfp",
        MGARD_PLUS => "mgardplus",
        BIGWHOOP => "bigwhoop",
        MGARD_COMPLEX => "mgardcomplex",
        SZ3 => "sz3",
        MDR | MDR_OF_PRODM => "mdr",
        CAESAR => "caesar",
        PLUGIN => "plugin",
        NULL => "null",
        other => return format!("number {other}"),
    };
    name.to_owned()
}

/// The bytes after the common header.
fn behind_common(stored: &[u8], is_big_endian: bool) -> Result<Fields<'_>> {
    let mut fields = Fields::new(stored, is_big_endian);
    let _operator = fields.u8()?;
    let version = fields.u8()?;
    if version != VERSION {
        return Err(format!(
            "version {version} of its header is not read, only {VERSION}; the release of ADIOS2 that wrote it can, \
             unless the bytes are damaged"
        )
        .into());
    }
    let _unused = fields.u16()?;
    Ok(fields)
}

/// The bytes after the common header and the decoded length, in the byte order of the writer. The decoded length is
/// known to be `len`, so it reveals the byte order.
fn behind_size(stored: &[u8], len: u64) -> Result<Fields<'_>> {
    for is_big_endian in [false, true] {
        let mut fields = behind_common(stored, is_big_endian)?;
        if fields.u64()? == len {
            return Ok(fields);
        }
    }
    Err(format!("it does not hold the {len} bytes of the block").into())
}

/// The extents of a block, slowest first, and the fields behind its type. The number of dimensions reveals the byte
/// order.
fn behind_shape(header: Fields<'_>) -> Result<(Shape, Fields<'_>)> {
    let is_big_endian = (1..=MOST_COUNTS).contains(&header.clone().u64()?.swap_bytes());
    let mut header = Fields::new(header.rest(), is_big_endian);
    let rank = header.u64()?;
    if !(1..=MOST_COUNTS).contains(&rank) {
        return Err(format!("a field of {rank} dimensions").into());
    }
    let counts = (0..rank).map(|_| header.u64()).collect::<Result<_>>()?;
    let ty = header.u32()?;
    let shape = Shape {
        counts,
        ty,
        is_big_endian,
    };
    Ok((shape, header))
}

/// The block in the header of an operator.
struct Shape {
    /// The extents, slowest first.
    counts: Vec<u64>,
    /// The number of the type in ADIOS2.
    ty: u32,
    is_big_endian: bool,
}

/// The parameters that a user gave an operator, as keys and values.
fn parameters<'a>(header: &mut Fields<'a>) -> Result<Vec<(&'a str, &'a str)>> {
    (0..header.u8()?)
        .map(|_| Ok((short_text(header)?, short_text(header)?)))
        .collect()
}

/// A text behind its length of one byte.
fn short_text<'a>(header: &mut Fields<'a>) -> Result<&'a str> {
    let len = header.u8()?;
    let bytes = header.take(len.into())?;
    Ok(std::str::from_utf8(bytes).map_err(|_| "a parameter that is not a text")?)
}

/// No operation: the elements are stored as they are.
fn null(stored: &[u8], out: &mut [u8]) -> Result<()> {
    let mut fields = behind_size(stored, out.len() as u64)?;
    out.copy_from_slice(fields.take(out.len())?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A common header and a decoded length.
    fn header(operator: u8, len: u64) -> Vec<u8> {
        [&[operator, 1, 0, 0][..], &len.to_le_bytes()].concat()
    }

    #[test]
    fn plain_bytes_of_either_order() {
        let mut out = [0; 3];
        let little = [&header(NULL, 3)[..], b"abc"].concat();
        assert_eq!(decode(&little, &mut out), Ok(()));
        assert_eq!(&out, b"abc");
        let big = [&[NULL, 1, 0, 0][..], &3_u64.to_be_bytes(), b"xyz"].concat();
        assert_eq!(decode(&big, &mut out), Ok(()));
        assert_eq!(&out, b"xyz");
        for len in 0..little.len() {
            assert!(decode(&little[..len], &mut out).is_err());
        }
        assert!(decode(&little, &mut [0; 4]).is_err());
    }

    #[test]
    fn others_are_refused_by_name() {
        for (operator, name) in [(11, "sz3"), (6, "sz"), (3, "mgard"), (99, "number 99")] {
            let fault = decode(&header(operator, 8), &mut [0; 8]).unwrap_err();
            assert!(fault.to_string().contains(name), "{fault}");
        }
        assert!(decode(&[], &mut [0; 8]).is_err());
    }

    #[test]
    fn later_versions_of_headers_are_refused() {
        for operator in [BLOSC, BZIP2, ZFP, NULL] {
            let mut later = header(operator, 8);
            later[1] = 2;
            let fault = decode(&later, &mut [0; 8]).unwrap_err().to_string();
            assert!(
                fault.contains(&name(operator)) && fault.contains("version 2"),
                "{fault}"
            );
        }
    }
}
