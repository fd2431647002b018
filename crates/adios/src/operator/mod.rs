//! Blocks that were written with an operator (section 5).
//!
//! * `bzip2`: batches of bzip2 streams.
//! * `blosc`: chunks of blosc 1 and 2.
//! * `zfp`: fields of zfp.
//!
//! Decoding writes into the caller's memory, and takes at most [`memory`] bytes besides.

mod blosc;
mod bzip2;
mod zfp;

use crate::Result;
use crate::fields::Fields;

/// Bytes of memory of a bzip2 decoder.
const BZIP2_STATE: u64 = 4 << 20;

/// The supported operators.
const BLOSC: u8 = 0;
const BZIP2: u8 = 1;
const ZFP: u8 = 7;
const NULL: u8 = 127;

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
/// damaged, decode to another length, or belong to an unsupported operator, which the fault names.
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
        _ => return Err(format!("h5logfs cannot undo operator {name}").into()),
    };
    decoded(stored, out).map_err(|fault| fault.at(format!("operator {name}")))
}

/// The name of an operator, by the number at the start of its header.
fn name(operator: u8) -> String {
    let name = match operator {
        BLOSC => "blosc",
        BZIP2 => "bzip2",
        2 => "libpressio",
        3 => "mgard",
        4 => "png",
        5 => "sirius",
        6 => "sz",
        ZFP => "zfp",
        8 => "mgardplus",
        9 => "bigwhoop",
        10 => "mgardcomplex",
        11 => "sz3",
        41 | 42 => "mdr",
        45 => "caesar",
        53 => "plugin",
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
        return Err(format!("version {version} is not read: {VERSION} is").into());
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
    }
}
