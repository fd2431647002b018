//! Fields that zfp has compressed (section 5.2).
//!
//! The header of the operator has the shape, the type and the parameters. The stream behind it has no header of zfp.

use bytemuck::Pod;
use zfp_rs::{
    ZfpBitStreamRef, ZfpConfig, ZfpDimensionality, ZfpFieldMut, ZfpScalar, ZfpScalarType,
    ZfpStreamAlignment,
};

use crate::Result;

/// Bytes of a word of the stream.
const WORD: usize = super::WORD;
/// The most dimensions of a field of zfp.
const MOST_DIMENSIONS: usize = 4;

/// The memory of a decoder in bytes: the stream in whole words, and the elements where `out` is not aligned for them.
pub(super) fn memory(stored: &[u8], len: u64) -> u64 {
    (stored.len() as u64).saturating_add(len)
}

/// Decodes a field into `out`, which has the length of its elements.
pub(super) fn decode(stored: &[u8], out: &mut [u8]) -> Result<()> {
    let field = Field::parse(stored)?;
    match field.scalar {
        ZfpScalarType::I32 => field.fill::<i32>(out),
        ZfpScalarType::I64 => field.fill::<i64>(out),
        ZfpScalarType::F32 => field.fill::<f32>(out),
        ZfpScalarType::F64 => field.fill::<f64>(out),
    }
}

/// A compressed field.
struct Field<'a> {
    scalar: ZfpScalarType,
    /// The dimensions, zfp's fastest one first.
    dims: Vec<usize>,
    mode: Mode,
    stored: &'a [u8],
    /// The begin of the stream in the stored bytes.
    begin: usize,
}

/// The parameter that chooses the mode of zfp.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Mode {
    Accuracy(f64),
    Rate(f64),
    Precision(u32),
    /// No parameter: all bits of the scalars.
    Full,
}

impl<'a> Field<'a> {
    fn parse(stored: &'a [u8]) -> Result<Self> {
        let (shape, mut header) = super::behind_shape(super::behind_common(stored, false)?)?;
        if shape.is_big_endian {
            return Err("a field of a big-endian machine, whose streams are not known".into());
        }
        let (scalar, is_complex) = scalar(shape.ty)?;
        let _version_of_zfp = header.take(3)?;
        let mode = mode(&super::parameters(&mut header)?)?;
        Ok(Field {
            scalar,
            dims: dims(shape.counts, is_complex)?,
            mode,
            stored,
            begin: stored.len() - header.rest().len(),
        })
    }

    fn config(&self) -> Result<ZfpConfig> {
        let dimensionality = match self.dims.len() {
            1 => ZfpDimensionality::D1,
            2 => ZfpDimensionality::D2,
            3 => ZfpDimensionality::D3,
            _ => ZfpDimensionality::D4,
        };
        match self.mode {
            Mode::Accuracy(tolerance) => Ok(ZfpConfig::fixed_accuracy(tolerance)),
            Mode::Precision(bits) => Ok(ZfpConfig::fixed_precision(bits)),
            Mode::Full => Ok(ZfpConfig::new()),
            Mode::Rate(rate) => ZfpConfig::fixed_rate(
                rate,
                self.scalar,
                dimensionality,
                ZfpStreamAlignment::Unaligned,
            )
            .map_err(|error| {
                format!("rate {rate}: {error}; ADIOS2's own reader may know it").into()
            }),
        }
    }

    /// Decodes the elements into `out`, by way of memory of their own where `out` is not aligned for them.
    fn fill<T: ZfpScalar + Pod>(&self, out: &mut [u8]) -> Result<()> {
        let size = self
            .dims
            .iter()
            .try_fold(size_of::<T>(), |size, dim| size.checked_mul(*dim));
        if size != Some(out.len()) {
            let dims = &self.dims;
            return Err(format!(
                "a field of {dims:?} is not the block of {} bytes",
                out.len()
            )
            .into());
        }
        if let Ok(elements) = bytemuck::try_cast_slice_mut(out) {
            return self.decompress::<T>(elements);
        }
        let mut elements = vec![T::zeroed(); out.len() / size_of::<T>()];
        self.decompress(&mut elements)?;
        out.copy_from_slice(bytemuck::cast_slice(&elements));
        Ok(())
    }

    /// The stream where it lies, if the stored bytes are whole words of this machine. It begins inside of a word. The decoder
    /// ends with a whole word, which may lie past the end: then the stream has to be copied.
    fn stream_in_place(&self) -> Option<ZfpBitStreamRef<'_>> {
        if cfg!(target_endian = "big") || !self.stored.len().is_multiple_of(WORD) {
            return None;
        }
        let mut stream = ZfpBitStreamRef::from_bytes(self.stored)?;
        stream.seek_read(8 * self.begin as u64);
        Some(stream)
    }

    fn decompress<T: ZfpScalar>(&self, elements: &mut [T]) -> Result<()> {
        let mut field = match self.dims[..] {
            [x] => ZfpFieldMut::new(elements, [x]),
            [x, y] => ZfpFieldMut::new(elements, [x, y]),
            [x, y, z] => ZfpFieldMut::new(elements, [x, y, z]),
            [x, y, z, w] => ZfpFieldMut::new(elements, [x, y, z, w]),
            _ => return Err("a field without dimensions".into()),
        }
        .map_err(|error| error.to_string())?;
        let config = self.config()?;
        let in_place = self.stream_in_place();
        if in_place.is_some_and(|mut stream| stream.decompress(&config, &mut field).is_ok()) {
            return Ok(());
        }
        let words = words(&self.stored[self.begin..]);
        let decoded = ZfpBitStreamRef::from_words(&words).decompress(&config, &mut field);
        decoded.map_err(|error| format!("a damaged stream: {error}"))?;
        Ok(())
    }
}

/// The type of the scalars, and whether two of them are one complex element.
fn scalar(number: u32) -> Result<(ZfpScalarType, bool)> {
    match number {
        3 => Ok((ZfpScalarType::I32, false)),
        4 => Ok((ZfpScalarType::I64, false)),
        9 => Ok((ZfpScalarType::F32, false)),
        10 => Ok((ZfpScalarType::F64, false)),
        12 => Ok((ZfpScalarType::F32, true)),
        13 => Ok((ZfpScalarType::F64, true)),
        other => Err(format!("type {other} is none that zfp compresses").into()),
    }
}

/// The mode, from the parameters. ADIOS2 ignores all keys but these three, and writes at most one of them.
fn mode(parameters: &[(&str, &str)]) -> Result<Mode> {
    let value_of = |wanted| {
        let found = parameters.iter().find(|(key, _)| *key == wanted);
        found.map(|(_, value)| *value)
    };
    let number = |key: &str, value: &str| {
        let number = value.trim().parse::<f64>();
        number.map_err(|_| format!("{key} = {value} is not a number"))
    };
    if let Some(value) = value_of("accuracy") {
        return Ok(Mode::Accuracy(number("accuracy", value)?));
    }
    if let Some(value) = value_of("rate") {
        return Ok(Mode::Rate(number("rate", value)?));
    }
    if let Some(value) = value_of("precision") {
        let bits = value.trim().parse::<u32>();
        let bits = bits.map_err(|_| format!("precision = {value} is not a number of bits"))?;
        return Ok(Mode::Precision(bits));
    }
    Ok(Mode::Full)
}

/// The dimensions of the field. Dimensions of one element are dropped, and the first ones are joined until four are
/// left. ADIOS2 gives zfp its slowest dimension as the fastest one. A complex element is two scalars of the last
/// dimension.
fn dims(counts: Vec<u64>, is_complex: bool) -> Result<Vec<usize>> {
    let too_large = || "a field of more elements than memory has";
    let mut dims = Vec::new();
    for count in counts {
        match usize::try_from(count).map_err(|_| too_large())? {
            0 => return Err("a field without elements".into()),
            1 => {}
            dim => dims.push(dim),
        }
    }
    while dims.len() > MOST_DIMENSIONS {
        let first = dims.remove(0);
        dims[0] = dims[0].checked_mul(first).ok_or_else(too_large)?;
    }
    if let (Some(last), true) = (dims.last_mut(), is_complex) {
        *last = last.checked_mul(2).ok_or_else(too_large)?;
    }
    Ok(dims)
}

/// The stream in whole words. The last one is filled up with zeros.
fn words(stream: &[u8]) -> Vec<u64> {
    let (whole, rest) = stream.as_chunks::<WORD>();
    let mut words = Vec::with_capacity(whole.len() + 1);
    words.extend(whole.iter().map(|word| u64::from_le_bytes(*word)));
    if !rest.is_empty() {
        let mut last = [0; WORD];
        last[..rest.len()].copy_from_slice(rest);
        words.push(u64::from_le_bytes(last));
    }
    words
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use zfp_rs::{ZfpBitStream, ZfpField};

    use super::*;

    /// A header as ADIOS2 writes it.
    fn header(counts: &[u64], scalar: u32, parameters: &[(&str, &str)]) -> Vec<u8> {
        let mut bytes = vec![7, 1, 0, 0];
        bytes.extend((counts.len() as u64).to_le_bytes());
        bytes.extend(counts.iter().flat_map(|count| count.to_le_bytes()));
        bytes.extend(scalar.to_le_bytes());
        bytes.extend([1, 0, 1, parameters.len() as u8]);
        for text in parameters.iter().flat_map(|(key, value)| [key, value]) {
            bytes.push(text.len() as u8);
            bytes.extend(text.as_bytes());
        }
        bytes
    }

    /// The stream of a field of one to four dimensions, the fastest first.
    fn stream<T: ZfpScalar>(elements: &[T], dims: &[usize], config: &ZfpConfig) -> Vec<u8> {
        let field = match *dims {
            [x] => ZfpField::new(elements, [x]),
            [x, y] => ZfpField::new(elements, [x, y]),
            [x, y, z] => ZfpField::new(elements, [x, y, z]),
            _ => ZfpField::new(elements, [dims[0], dims[1], dims[2], dims[3]]),
        }
        .unwrap();
        let room = config.maximum_size(T::SCALAR_TYPE, field.dims()).unwrap();
        let mut stream = ZfpBitStream::new(room).unwrap();
        let len = stream.compress(config, &field).unwrap();
        let mut bytes = stream.into_bytes().unwrap();
        bytes.truncate(len);
        bytes
    }

    fn numbers(len: usize) -> Vec<f64> {
        (0..len).map(|i| (i as f64 * 0.37).sin() * 100.0).collect()
    }

    fn decoded(stored: &[u8], len: usize) -> Result<Vec<f64>> {
        let mut out = vec![0; 8 * len];
        decode(stored, &mut out)?;
        Ok(bytemuck::pod_collect_to_vec(&out))
    }

    /// Each mode keeps its promise, and the fields of ADIOS2's shapes are found.
    #[test]
    fn modes_and_shapes() {
        let full = ZfpConfig::new();
        for (counts, dims) in [
            (&[30][..], &[30][..]),
            (&[1, 5, 1, 6], &[5, 6]),
            (&[2, 3, 2, 3, 4], &[6, 2, 3, 4]),
            (&[3, 4, 5], &[3, 4, 5]),
        ] {
            let elements = numbers(dims.iter().product());
            let bytes = stream(&elements, dims, &full);
            let stored = [header(counts, 10, &[("reversible", "1")]), bytes].concat();
            for (made, wanted) in decoded(&stored, elements.len())
                .unwrap()
                .iter()
                .zip(&elements)
            {
                assert!(
                    (made - wanted).abs() < 1e-12,
                    "{counts:?}: {made} for {wanted}"
                );
            }
        }
        let elements = numbers(64);
        let accuracy = ZfpConfig::fixed_accuracy(0.5);
        let bytes = stream(&elements, &[8, 8], &accuracy);
        let parameters = [("accuracy", "0.5"), ("backend", "serial"), ("rate", "2")];
        let stored = [header(&[8, 8], 10, &parameters), bytes].concat();
        let made = decoded(&stored, 64).unwrap();
        assert!(
            made.iter()
                .zip(&elements)
                .all(|(a, b)| (a - b).abs() <= 0.5)
        );
        assert_ne!(made, elements);
    }

    /// Complex elements are pairs in the last dimension; `out` may lie at any address.
    #[test]
    fn complex_elements_and_unaligned_memory() {
        let elements: Vec<f32> = numbers(24).iter().map(|number| *number as f32).collect();
        let bytes = stream(&elements, &[3, 8], &ZfpConfig::new());
        let stored = [header(&[3, 4], 12, &[]), bytes].concat();
        for shift in 0..4 {
            let mut out = vec![0_u8; 24 * 4 + shift];
            decode(&stored, &mut out[shift..]).unwrap();
            let made: Vec<f32> = bytemuck::pod_collect_to_vec(&out[shift..]);
            assert!(
                made.iter()
                    .zip(&elements)
                    .all(|(a, b)| (a - b).abs() < 1e-4),
                "{made:?}"
            );
        }
    }

    /// The stream is read in place where it can be, and copied elsewhere.
    #[test]
    fn stored_bytes_of_any_length_and_address() {
        let elements = numbers(64);
        let bytes = stream(&elements, &[8, 8], &ZfpConfig::fixed_precision(30));
        let stored = [header(&[8, 8], 10, &[("precision", "30")]), bytes].concat();
        let wanted = decoded(&stored, 64).unwrap();
        for shift in 0..WORD {
            for len in stored.len()..stored.len() + 2 * WORD {
                let mut words = vec![0_u64; len.div_ceil(WORD) + 1];
                let all: &mut [u8] = bytemuck::cast_slice_mut(&mut words);
                all[shift..][..stored.len()].copy_from_slice(&stored);
                assert_eq!(decoded(&all[shift..][..len], 64).unwrap(), wanted);
            }
        }
    }

    #[test]
    fn headers_that_make_no_sense() {
        let refused = |header: Vec<u8>, text: &str| {
            let fault = decoded(&header, 8).unwrap_err().to_string();
            assert!(fault.contains(text), "{fault}: not {text}");
        };
        refused(header(&[8], 10, &[]), "a damaged stream");
        refused(header(&[9], 10, &[]), "is not the block");
        refused(header(&[u64::MAX, u64::MAX], 10, &[]), "is not the block");
        refused(header(&[u64::MAX; 6], 10, &[]), "more elements");
        refused(header(&[0, 8], 10, &[]), "without elements");
        refused(header(&[1, 1], 10, &[]), "is not the block");
        refused(header(&[8], 5, &[]), "type 5");
        refused(header(&[8], 10, &[("rate", "-1")]), "rate -1");
        refused(header(&[8], 10, &[("accuracy", "so")]), "not a number");
        refused(header(&[1; 33], 10, &[]), "33 dimensions");
        let mut swapped = header(&[8], 10, &[]);
        swapped[4..12].reverse();
        refused(swapped, "big-endian");
    }

    proptest! {
        /// Damaged bytes give elements or an error.
        #[test]
        fn damaged_bytes(at in 0_usize..400, bits: u8, cut in 0_usize..400) {
            let bytes = stream(&numbers(48), &[6, 8], &ZfpConfig::fixed_precision(20));
            let mut stored = [header(&[6, 8], 10, &[("precision", "20")]), bytes].concat();
            if let Some(byte) = stored.get_mut(at) {
                *byte ^= bits;
            }
            stored.truncate(cut.max(20));
            let _ = decoded(&stored, 48);
        }
    }
}
