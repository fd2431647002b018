//! Elements as plain values.

use crate::datatype::ReferenceKind;
use crate::datatype::{Bits, Class, Datatype, FloatFormat, Member, Normalization, Padding};
use crate::heap::GlobalHeaps;
use crate::{Fields, HeaderBytes, Objects, Result};

const SHORT: &str = "an element that ends early";
/// Elements that are looked up between two questions whether to go on.
const AT_ONCE: usize = 1 << 10;

/// An element.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// An integer, a bit field, or the number of an enumeration member.
    Integer(i128),
    /// A floating-point number. Numbers with more bits are rounded.
    Float(f64),
    /// A text without its padding. Valid files have UTF-8 or ASCII.
    Text(Vec<u8>),
    /// Plain bytes: an opaque element, a time, or a number of more than 16 bytes.
    Bytes(Vec<u8>),
    /// The address of an object; `None` for a reference that leads nowhere.
    Reference(Option<u64>),
    /// A part of a dataset; `None` for a reference that leads nowhere.
    Region(Option<Region>),
    /// The elements of an array in row-major order, or the elements of a sequence.
    List(Vec<Value>),
    /// The members of a compound in the order of its type, or the parts of a complex number.
    Compound(Vec<Value>),
}

/// A part of a dataset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Region {
    /// The address of the dataset.
    pub dataset: u64,
    /// The selected elements, in the form of the file (III.E, dataspace selections).
    pub selection: Vec<u8>,
}

impl<B: HeaderBytes> Objects<B> {
    /// An object of the global heap collection at address `collection`.
    pub fn heap_object(&self, collection: u64, index: u32) -> Result<Vec<u8>> {
        GlobalHeaps::new(&self.bytes).object(collection, index)
    }

    /// Elements of a type as plain values. Elements of variable length are read from their heaps. Fails if `bytes` are
    /// not whole elements, or if the elements lead to more bytes than the file has.
    pub fn values(&self, datatype: &Datatype, bytes: &[u8]) -> Result<Vec<Value>> {
        self.values_while(datatype, bytes, || Ok(()))
    }

    /// [`Objects::values`], which asks `go_on` now and then, and fails where that fails.
    pub fn values_while(
        &self,
        datatype: &Datatype,
        bytes: &[u8],
        mut go_on: impl FnMut() -> Result<()>,
    ) -> Result<Vec<Value>> {
        let mut elements = Elements {
            heaps: GlobalHeaps::new(&self.bytes),
        };
        let mut values = Vec::new();
        for (number, element) in elements_of(datatype, bytes)?.enumerate() {
            if number.is_multiple_of(AT_ONCE) {
                go_on()?;
            }
            values.push(elements.one(datatype, element)?);
        }
        Ok(values)
    }
}

/// The bytes of each element. Fails if `bytes` are not whole elements.
fn elements_of<'b>(
    datatype: &Datatype,
    bytes: &'b [u8],
) -> Result<std::slice::ChunksExact<'b, u8>> {
    let size = datatype.size as usize;
    if size == 0 || !bytes.len().is_multiple_of(size) {
        return Err(format!(
            "{} bytes, which are not whole elements of {size} bytes",
            bytes.len()
        )
        .into());
    }
    Ok(bytes.chunks_exact(size))
}

/// Decodes elements.
struct Elements<'a, B> {
    heaps: GlobalHeaps<'a, B>,
}

impl<B: HeaderBytes> Elements<'_, B> {
    fn all(&mut self, datatype: &Datatype, bytes: &[u8]) -> Result<Vec<Value>> {
        let elements = elements_of(datatype, bytes)?;
        elements
            .map(|element| self.one(datatype, element))
            .collect()
    }

    fn one(&mut self, datatype: &Datatype, element: &[u8]) -> Result<Value> {
        Ok(match &datatype.class {
            Class::Integer {
                signed,
                big_endian,
                bits,
            } => integer(element, *signed, *big_endian, *bits),
            Class::Bitfield { big_endian, bits } => integer(element, false, *big_endian, *bits),
            Class::Float { big_endian, format } => float(element, *big_endian, format),
            Class::Enumeration { base, .. } => self.one(base, element)?,
            Class::Text { padding, .. } => Value::Text(text(element, *padding)),
            Class::Reference(ReferenceKind::Object) => {
                Value::Reference(reference(Fields(element).u64().ok_or(SHORT)?))
            }
            Class::Reference(ReferenceKind::Region) => self.region(element)?,
            Class::VariableText { padding, .. } => {
                let bytes = self.variable(element, 1)?;
                let end = bytes.iter().position(|byte| *byte == 0);
                Value::Text(text(&bytes[..end.unwrap_or(bytes.len())], *padding))
            }
            Class::VariableList { base } => {
                let bytes = self.variable(element, base.size)?;
                Value::List(self.all(base, &bytes)?)
            }
            Class::Array { base, .. } => Value::List(self.all(base, element)?),
            Class::Complex { base } => Value::Compound(self.all(base, element)?),
            Class::Compound { members } => Value::Compound(self.members(members, element)?),
            Class::Opaque { .. }
            | Class::Time { .. }
            | Class::Reference(ReferenceKind::Other(_))
            | Class::Other(_) => Value::Bytes(element.to_vec()),
        })
    }

    fn members(&mut self, members: &[Member], element: &[u8]) -> Result<Vec<Value>> {
        let value = |member: &Member| {
            let rest = element.get(member.offset as usize..);
            let own = rest.and_then(|rest| rest.get(..member.datatype.size as usize));
            self.one(&member.datatype, own.ok_or(SHORT)?)
        };
        members.iter().map(value).collect()
    }

    /// The bytes of an element of variable length. The element states the number of its parts, each of `size` bytes.
    fn variable(&mut self, element: &[u8], size: u32) -> Result<Vec<u8>> {
        let mut fields = Fields(element);
        let count = fields.u32().ok_or(SHORT)?;
        let (address, index) = place(&mut fields).ok_or(SHORT)?;
        let Some(address) = reference(address).filter(|_| count > 0) else {
            return Ok(Vec::new());
        };
        let mut bytes = self.heaps.object(address, index)?;
        let len = usize::try_from(u64::from(count) * u64::from(size))?;
        if bytes.len() < len {
            return Err(format!(
                "{count} elements of {size} bytes in {} bytes of a global heap",
                bytes.len()
            )
            .into());
        }
        bytes.truncate(len);
        Ok(bytes)
    }

    fn region(&mut self, element: &[u8]) -> Result<Value> {
        let (address, index) = place(&mut Fields(element)).ok_or(SHORT)?;
        let Some(address) = reference(address) else {
            return Ok(Value::Region(None));
        };
        let object = self.heaps.object(address, index)?;
        let mut fields = Fields(&object);
        Ok(Value::Region(Some(Region {
            dataset: fields.u64().ok_or(SHORT)?,
            selection: fields.0.to_vec(),
        })))
    }
}

/// Reads a place in a global heap: the address of the collection, and the number of the object.
fn place(fields: &mut Fields<'_>) -> Option<(u64, u32)> {
    fields.u64().zip(fields.u32())
}

/// The target of a reference. References that lead nowhere have the address 0, or the undefined one.
fn reference(address: u64) -> Option<u64> {
    (address != 0 && address != u64::MAX).then_some(address)
}

/// The bytes of an element as a number; `None` if there are more than 16.
fn whole(element: &[u8], big_endian: bool) -> Option<u128> {
    let mut bytes = [0; 16];
    bytes.get_mut(..element.len())?.copy_from_slice(element);
    if big_endian {
        bytes[..element.len()].reverse();
    }
    Some(u128::from_le_bytes(bytes))
}

/// `count` bits of a number from bit `at` on. Bits past the end of the number are 0.
fn bits_of(number: u128, at: u32, count: u32) -> u128 {
    let shifted = number.checked_shr(at).unwrap_or(0);
    let mask = 1u128.checked_shl(count).map_or(u128::MAX, |bit| bit - 1);
    shifted & mask
}

pub(crate) fn integer(element: &[u8], signed: bool, big_endian: bool, bits: Bits) -> Value {
    let Some(number) = whole(element, big_endian) else {
        return Value::Bytes(element.to_vec());
    };
    let precision = u32::from(bits.precision);
    let number = bits_of(number, bits.offset.into(), precision);
    let unused = 128u32.saturating_sub(precision);
    let is_negative = signed && precision > 0 && bits_of(number, precision - 1, 1) == 1;
    match is_negative {
        _ if unused >= 128 => Value::Integer(0),
        true => Value::Integer((number << unused) as i128 >> unused),
        // An unsigned number may use all bits of 16 bytes.
        false => {
            i128::try_from(number).map_or_else(|_| Value::Bytes(element.to_vec()), Value::Integer)
        }
    }
}

fn float(element: &[u8], big_endian: bool, format: &FloatFormat) -> Value {
    let Some(number) = whole(element, big_endian) else {
        return Value::Bytes(element.to_vec());
    };
    let is_ieee = FloatFormat::ieee(element.len() as u32) == Some(*format);
    match element.len() {
        4 if is_ieee => Value::Float(f32::from_bits(number as u32).into()),
        8 if is_ieee => Value::Float(f64::from_bits(number as u64)),
        _ => any_float(number, format).map_or_else(|| Value::Bytes(element.to_vec()), Value::Float),
    }
}

/// Decodes a number of any floating-point format; `None` if the format is not usable.
fn any_float(number: u128, format: &FloatFormat) -> Option<f64> {
    let mantissa_bits = u32::from(format.mantissa_bits);
    let exponent_bits = u32::from(format.exponent_bits);
    if !(1..32).contains(&exponent_bits) || mantissa_bits > 120 {
        return None;
    }
    let mantissa = bits_of(number, format.mantissa_at.into(), mantissa_bits);
    let exponent = bits_of(number, format.exponent_at.into(), exponent_bits) as i64;
    let is_negative = bits_of(number, format.sign.into(), 1) == 1;
    // The implied bit of the mantissa, and the number of bits of its fraction.
    let (implied, fraction) = match format.normalization {
        Normalization::Implied => (1 << mantissa_bits, mantissa_bits),
        // The x87 `long double` declares no normalization: its highest bit is stored.
        Normalization::Stored | Normalization::None => (0, mantissa_bits.checked_sub(1)?),
    };
    let scale = |exponent: i64| exponent - i64::from(format.bias) - i64::from(fraction);
    let size = if exponent == (1 << exponent_bits) - 1 {
        match bits_of(mantissa, 0, fraction) {
            0 => f64::INFINITY,
            _ => f64::NAN,
        }
    } else if exponent == 0 {
        scaled(mantissa, scale(1))
    } else {
        scaled(mantissa | implied, scale(exponent))
    };
    Some(if is_negative { -size } else { size })
}

/// `number` × 2^`exponent`, rounded.
fn scaled(number: u128, exponent: i64) -> f64 {
    // Beyond these exponents all numbers are 0 or infinite. A single factor of this range could overflow by itself, so
    // the exponent is applied in two halves.
    let exponent = exponent.clamp(-2000, 2000) as i32;
    let half = exponent / 2;
    number as f64 * 2f64.powi(half) * 2f64.powi(exponent - half)
}

fn text(bytes: &[u8], padding: Padding) -> Vec<u8> {
    let len = match padding {
        Padding::NullTerminated => bytes.iter().position(|byte| *byte == 0),
        Padding::NullPadded => len_without(bytes, 0),
        Padding::SpacePadded => len_without(bytes, b' '),
    };
    bytes[..len.unwrap_or(bytes.len())].to_vec()
}

/// The length without trailing bytes equal to `padding`; `None` if all bytes are padding.
fn len_without(bytes: &[u8], padding: u8) -> Option<usize> {
    let last = bytes.iter().rposition(|byte| *byte != padding);
    Some(last.map_or(0, |last| last + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_have_their_bits() {
        let bits = |offset, precision| Bits { offset, precision };
        let of = |bytes: &[u8], signed, big, bits| integer(bytes, signed, big, bits);
        assert_eq!(
            of(&[0xfe, 0xff], true, false, bits(0, 16)),
            Value::Integer(-2)
        );
        assert_eq!(
            of(&[0xff, 0xfe], true, true, bits(0, 16)),
            Value::Integer(-2)
        );
        assert_eq!(
            of(&[0xfe, 0xff], false, false, bits(0, 16)),
            Value::Integer(0xfffe)
        );
        assert_eq!(
            of(&[0b0111_0100], true, false, bits(2, 5)),
            Value::Integer(-3)
        );
        assert_eq!(
            of(&[0xff; 8], false, false, bits(0, 64)),
            Value::Integer(u64::MAX.into())
        );
        assert_eq!(
            of(&[0xff; 16], true, false, bits(0, 128)),
            Value::Integer(-1)
        );
        assert_eq!(
            of(&[0xff; 4], true, false, bits(60000, 60000)),
            Value::Integer(0)
        );
        assert_eq!(of(&[0xff; 4], true, false, bits(0, 0)), Value::Integer(0));
        assert_eq!(
            of(&[1; 17], true, false, bits(0, 136)),
            Value::Bytes(vec![1; 17])
        );
    }

    #[test]
    fn floats_have_any_format() {
        let half = FloatFormat::ieee(2).unwrap();
        let of = |bits: u16| match float(&bits.to_le_bytes(), false, &half) {
            Value::Float(number) => number,
            other => panic!("{other:?}"),
        };
        assert_eq!(of(0x3c00), 1.0);
        assert_eq!(of(0xc100), -2.5);
        assert_eq!(of(1), 2f64.powi(-24));
        assert_eq!(of(0x7c00), f64::INFINITY);
        assert!(of(0x7e00).is_nan());
        assert!(of(0x8000).is_sign_negative());
        // The generic decoder yields the numbers of the processor.
        let (single, double) = (FloatFormat::ieee(4).unwrap(), FloatFormat::ieee(8).unwrap());
        for number in [0.1f32, -3.25e38, f32::MIN_POSITIVE / 8.0, f32::MAX] {
            assert_eq!(
                any_float(number.to_bits().into(), &single),
                Some(number.into())
            );
        }
        for number in [0.1f64, f64::MIN_POSITIVE / 8.0, f64::MAX, -1e300] {
            assert_eq!(any_float(number.to_bits().into(), &double), Some(number));
        }
        // The 80 bits of an x87 in 16 bytes.
        let extended = FloatFormat {
            bits: Bits {
                offset: 0,
                precision: 80,
            },
            sign: 79,
            exponent_at: 64,
            exponent_bits: 15,
            mantissa_at: 0,
            mantissa_bits: 64,
            bias: 16383,
            normalization: Normalization::Stored,
        };
        let three = 0x4000_c000_0000_0000_0000u128;
        assert_eq!(any_float(three, &extended), Some(3.0));
        assert_eq!(
            any_float(0x7fff_8000_0000_0000_0000, &extended),
            Some(f64::INFINITY)
        );
    }

    #[test]
    fn texts_end_at_their_padding() {
        assert_eq!(text(b"a\0b", Padding::NullTerminated), b"a");
        assert_eq!(text(b"a\0b\0\0", Padding::NullPadded), b"a\0b");
        assert_eq!(text(b" a  ", Padding::SpacePadded), b" a");
        assert_eq!(text(b"  ", Padding::SpacePadded), b"");
        assert_eq!(text(b"abc", Padding::NullTerminated), b"abc");
    }
}
