//! Types of numbers in either byte order, and conversions between them.

use serde::{Deserialize, Serialize};

/// A type of numbers of C.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum NumberType {
    /// Signed, 1 byte.
    I8,
    /// Unsigned, 1 byte.
    U8,
    /// Signed, 2 bytes.
    I16,
    /// Unsigned, 2 bytes.
    U16,
    /// Signed, 4 bytes.
    I32,
    /// Unsigned, 4 bytes.
    U32,
    /// Signed, 8 bytes.
    I64,
    /// Unsigned, 8 bytes.
    U64,
    /// IEEE 754, 4 bytes.
    F32,
    /// IEEE 754, 8 bytes.
    F64,
}

impl NumberType {
    /// Bytes of one number.
    pub fn size(self) -> usize {
        match self {
            NumberType::I8 | NumberType::U8 => 1,
            NumberType::I16 | NumberType::U16 => 2,
            NumberType::I32 | NumberType::U32 | NumberType::F32 => 4,
            NumberType::I64 | NumberType::U64 | NumberType::F64 => 8,
        }
    }
}

impl NumberType {
    /// netCDF's default fill value, little-endian, in the first bytes.
    pub fn default_fill(self) -> [u8; 8] {
        /// 9.9692099683868690e+36, in both widths.
        const FLOAT: u32 = 0x7cf0_0000;
        let value: u64 = match self {
            NumberType::I8 => -127i8 as u64,
            NumberType::U8 => u64::from(u8::MAX),
            NumberType::I16 => -32767i16 as u64,
            NumberType::U16 => u64::from(u16::MAX),
            NumberType::I32 => -2_147_483_647i32 as u64,
            NumberType::U32 => u64::from(u32::MAX),
            NumberType::I64 => -9_223_372_036_854_775_806i64 as u64,
            NumberType::U64 => 18_446_744_073_709_551_614,
            NumberType::F32 => u64::from(FLOAT),
            NumberType::F64 => f64::from(f32::from_bits(FLOAT)).to_bits(),
        };
        let mut bytes = value.to_le_bytes();
        bytes[self.size()..].fill(0);
        bytes
    }
}

/// A type of numbers, and their byte order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct NumberFormat {
    /// Type of the number.
    pub kind: NumberType,
    /// Big endian; else little endian.
    pub big_endian: bool,
}

/// Converts numbers of a log to those of a dataset, as PnetCDF does
/// (`docs/formats/pnetcdf-burst-buffer.md`, 2.7):
///
/// * same type: the same bits, also those of NaN;
/// * integer to integer: the value, or `fill` where the type cannot represent it;
/// * floating-point number to integer: truncated, or `fill` where it is above or below the limits of the type as
///   doubles; NaN becomes what the instructions of x86-64 make of it;
/// * to a shorter floating-point number: rounded to nearest, or `fill` beyond the largest one;
/// * to a longer one: the value, or `fill` for infinity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct NumberConversion {
    /// Format of the numbers in the log.
    pub from: NumberFormat,
    /// Format of the numbers in the dataset.
    pub to: NumberFormat,
    /// Replacement for a number that the dataset's type cannot represent: the first bytes, as many as the type has, in
    /// its byte order.
    pub fill: [u8; 8],
}

/// Runs `$body` for each type of numbers; `$type` is its Rust type.
macro_rules! of_kind {
    ($kind:expr, $type:ident => $body:expr) => {
        of_kind!($kind, $type => $body; I8 i8, U8 u8, I16 i16, U16 u16, I32 i32, U32 u32, I64 i64, U64 u64, F32 f32, F64 f64)
    };
    ($kind:expr, $type:ident => $body:expr; $($name:ident $rust:ty),*) => {
        match $kind {
            $(NumberType::$name => {
                type $type = $rust;
                $body
            })*
        }
    };
}

impl NumberConversion {
    /// Converts all numbers of `from`. Both slices hold the same number of them.
    pub fn convert(&self, from: &[u8], to: &mut [u8]) {
        let orders = (self.from.big_endian, self.to.big_endian);
        if self.from.kind == self.to.kind {
            return match (self.to.kind.size(), orders.0 == orders.1) {
                (2, false) => swap::<u16>(from, to),
                (4, false) => swap::<u32>(from, to),
                (8, false) => swap::<u64>(from, to),
                _ => to.copy_from_slice(from),
            };
        }
        of_kind!(self.from.kind, From => of_kind!(self.to.kind, To => match orders {
            (false, false) => each::<From, To, false, false>(from, to, &self.fill),
            (false, true) => each::<From, To, false, true>(from, to, &self.fill),
            (true, false) => each::<From, To, true, false>(from, to, &self.fill),
            (true, true) => each::<From, To, true, true>(from, to, &self.fill),
        }))
    }
}

/// Swaps the byte order.
fn swap<N: RawNumber>(from: &[u8], to: &mut [u8]) {
    for (from, to) in from.chunks_exact(N::SIZE).zip(to.chunks_exact_mut(N::SIZE)) {
        N::read::<true>(from).write::<false>(to);
    }
}

/// Converts numbers in a loop of its own for each pair of types and of byte orders, so that the loop does not branch on
/// them.
fn each<F, T, const FROM_BIG: bool, const TO_BIG: bool>(from: &[u8], to: &mut [u8], fill: &[u8; 8])
where
    F: RawNumber + Become<T>,
    T: RawNumber,
{
    let fill = T::read::<TO_BIG>(&fill[..T::SIZE]);
    for (from, to) in from.chunks_exact(F::SIZE).zip(to.chunks_exact_mut(T::SIZE)) {
        let number = F::read::<FROM_BIG>(from).fit().unwrap_or(fill);
        number.write::<TO_BIG>(to);
    }
}

/// A number with a binary form.
trait RawNumber: Copy {
    const SIZE: usize;
    /// `bytes` has exactly [`Self::SIZE`] bytes.
    fn read<const BIG: bool>(bytes: &[u8]) -> Self;
    fn write<const BIG: bool>(self, bytes: &mut [u8]);
}

/// A number that converts to another type.
trait Become<T> {
    /// The converted number; `None` where the type cannot represent it.
    fn fit(self) -> Option<T>;
}

macro_rules! stored {
    ($($type:ty)*) => { $(
        impl RawNumber for $type {
            const SIZE: usize = size_of::<Self>();

            fn read<const BIG: bool>(bytes: &[u8]) -> Self {
                let mut own = [0; size_of::<Self>()];
                own.copy_from_slice(bytes);
                if BIG { Self::from_be_bytes(own) } else { Self::from_le_bytes(own) }
            }

            fn write<const BIG: bool>(self, bytes: &mut [u8]) {
                let own = if BIG { self.to_be_bytes() } else { self.to_le_bytes() };
                bytes.copy_from_slice(&own);
            }
        }
    )* };
}

stored!(i8 u8 i16 u16 i32 u32 i64 u64 f32 f64);

/// Conversions from an integer to integers, and to floating-point numbers.
macro_rules! integer {
    ($($from:ty)*) => { $(
        integer!($from => i8 u8 i16 u16 i32 u32 i64 u64);
        integer!($from as f32 f64);
    )* };
    ($from:ty => $($to:ty)*) => { $(
        impl Become<$to> for $from {
            fn fit(self) -> Option<$to> {
                <$to>::try_from(self).ok()
            }
        }
    )* };
    ($from:ty as $($to:ty)*) => { $(
        impl Become<$to> for $from {
            fn fit(self) -> Option<$to> {
                Some(self as $to)
            }
        }
    )* };
}

integer!(i8 u8 i16 u16 i32 u32 i64 u64);

/// Conversions from floating-point numbers to an integer. Two numbers pass the range test although the type cannot
/// represent them: NaN, and the limit of a type whose largest number is rounded up as a double. They become `$nan` and
/// `$past`, as with the instructions that compilers use on x86-64.
macro_rules! truncated {
    ($($to:ty: $nan:expr, $past:expr;)*) => { $(
        impl Become<$to> for f64 {
            fn fit(self) -> Option<$to> {
                const MOST: f64 = <$to>::MAX as f64;
                const LEAST: f64 = <$to>::MIN as f64;
                let is_past = size_of::<$to>() == 8 && self == MOST;
                match self {
                    _ if self.is_nan() => Some($nan),
                    _ if !(LEAST..=MOST).contains(&self) => None,
                    _ if is_past => Some($past),
                    _ => Some(self as $to),
                }
            }
        }

        impl Become<$to> for f32 {
            fn fit(self) -> Option<$to> {
                f64::from(self).fit()
            }
        }
    )* };
}

truncated! {
    // The instruction converts to 32 bits, or to 64 for the longer types; the lower bits are taken.
    i8: 0, i8::MAX;
    u8: 0, u8::MAX;
    i16: 0, i16::MAX;
    u16: 0, u16::MAX;
    i32: i32::MIN, i32::MAX;
    u32: 0, u32::MAX;
    i64: i64::MIN, i64::MIN;
    u64: 1 << 63, 0;
}

impl Become<f32> for f64 {
    fn fit(self) -> Option<f32> {
        if self.is_nan() {
            // The bits are swapped one by one, because the language does not define the result of a cast of NaN.
            let bits = self.to_bits();
            let sign = (bits >> 32) as u32 & 1 << 31;
            let rest = (bits >> 29) as u32 & 0x003f_ffff;
            return Some(f32::from_bits(sign | 0x7fc0_0000 | rest));
        }
        (self.abs() <= f64::from(f32::MAX)).then_some(self as f32)
    }
}

impl Become<f64> for f32 {
    fn fit(self) -> Option<f64> {
        if self.is_nan() {
            let bits = u64::from(self.to_bits());
            let sign = (bits & 1 << 31) << 32;
            let rest = (bits & 0x003f_ffff) << 29;
            return Some(f64::from_bits(sign | 0x7ff8_0000_0000_0000 | rest));
        }
        self.is_finite().then_some(f64::from(self))
    }
}

impl Become<f32> for f32 {
    fn fit(self) -> Option<f32> {
        Some(self)
    }
}

impl Become<f64> for f64 {
    fn fit(self) -> Option<f64> {
        Some(self)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const KINDS: [NumberType; 10] = [
        NumberType::I8,
        NumberType::U8,
        NumberType::I16,
        NumberType::U16,
        NumberType::I32,
        NumberType::U32,
        NumberType::I64,
        NumberType::U64,
        NumberType::F32,
        NumberType::F64,
    ];

    /// A number of any type: an integer, or a floating-point number as a double and as its bits.
    #[derive(Debug, Clone, Copy)]
    enum Any {
        Integer(i128),
        Float(f64, u64),
    }

    fn read(number: NumberFormat, bytes: &[u8]) -> Any {
        let mut own = bytes.to_vec();
        if number.big_endian {
            own.reverse();
        }
        let is_negative = own.last().is_some_and(|b| b & 0x80 != 0);
        own.resize(8, 0);
        let bits = u64::from_le_bytes(own.try_into().unwrap());
        match number.kind {
            NumberType::F32 => Any::Float(f64::from(f32::from_bits(bits as u32)), bits),
            NumberType::F64 => Any::Float(f64::from_bits(bits), bits),
            NumberType::I8 | NumberType::I16 | NumberType::I32 | NumberType::I64 if is_negative => {
                Any::Integer(i128::from(bits) - (1 << (8 * number.kind.size())))
            }
            _ => Any::Integer(i128::from(bits)),
        }
    }

    fn limits(kind: NumberType) -> Option<(i128, i128)> {
        let bits = 8 * kind.size() as u32;
        match kind {
            NumberType::F32 | NumberType::F64 => None,
            NumberType::I8 | NumberType::I16 | NumberType::I32 | NumberType::I64 => {
                Some((-(1 << (bits - 1)), (1 << (bits - 1)) - 1))
            }
            _ => Some((0, (1 << bits) - 1)),
        }
    }

    /// The rules of section 2.7, spelled out. `None` is the fill value; the bits are in little endian.
    fn model(from: NumberType, to: NumberType, number: Any) -> Option<u64> {
        match (number, limits(to)) {
            (Any::Float(_, bits), _) if from == to => Some(bits),
            (Any::Integer(n), Some((least, most))) => {
                (least..=most).contains(&n).then_some(n as u64)
            }
            (Any::Integer(n), None) if to == NumberType::F32 => {
                Some(u64::from((n as f32).to_bits()))
            }
            (Any::Integer(n), None) => Some((n as f64).to_bits()),
            (Any::Float(f, _), Some((least, most))) => {
                if f > most as f64 || f < least as f64 {
                    return None;
                }
                if to == NumberType::U64 {
                    // Two conversions to 64 signed bits; one of them of the number less 2^63.
                    return Some(if f >= 2f64.powi(63) {
                        machine(f - 2f64.powi(63), 64) ^ 1 << 63
                    } else {
                        machine(f, 64)
                    });
                }
                let width = if matches!(to, NumberType::U32 | NumberType::I64) {
                    64
                } else {
                    32
                };
                Some(machine(f, width))
            }
            (Any::Float(f, _), None) if f.is_nan() => None,
            (Any::Float(f, _), None) if to == NumberType::F32 => {
                (f.abs() <= f64::from(f32::MAX)).then(|| u64::from((f as f32).to_bits()))
            }
            (Any::Float(f, _), None) => f.is_finite().then(|| f.to_bits()),
        }
    }

    /// `cvttsd2si`: NaN, and numbers that are too large, become the least number.
    fn machine(f: f64, width: u32) -> u64 {
        let limit = 2f64.powi(width as i32 - 1);
        if f.trunc() < limit && f.trunc() >= -limit {
            f as i64 as u64
        } else {
            (-(1i128 << (width - 1))) as u64
        }
    }

    fn is_nan(kind: NumberType, number: Any) -> bool {
        matches!((kind, number), (NumberType::F32 | NumberType::F64, Any::Float(f, _)) if f.is_nan())
    }

    fn check(from: NumberFormat, to: NumberFormat, bytes: &[u8]) {
        let fill = [1, 2, 3, 4, 5, 6, 7, 8];
        let conversion = NumberConversion { from, to, fill };
        let (size, to_size) = (from.kind.size(), to.kind.size());
        let numbers = bytes.len() / size;
        let mut converted = vec![0; numbers * to_size];
        conversion.convert(&bytes[..numbers * size], &mut converted);
        for (from_bytes, to_bytes) in bytes.chunks_exact(size).zip(converted.chunks(to_size)) {
            let number = read(from, from_bytes);
            let said = format!("{from:?} to {to:?}: {number:?} gave {to_bytes:?}");
            if from.kind != to.kind
                && is_nan(from.kind, number)
                && is_nan(to.kind, read(to, to_bytes))
            {
                continue;
            }
            let expected = match model(from.kind, to.kind, number) {
                None => fill[..to_size].to_vec(),
                Some(bits) => {
                    let mut bytes = bits.to_le_bytes()[..to_size].to_vec();
                    if to.big_endian {
                        bytes.reverse();
                    }
                    bytes
                }
            };
            assert_eq!(to_bytes, expected, "{said}");
        }
    }

    fn all_pairs(mut test: impl FnMut(NumberFormat, NumberFormat)) {
        for from in KINDS {
            for to in KINDS {
                for orders in 0..4 {
                    let (from_big, to_big) = (orders & 1 != 0, orders & 2 != 0);
                    let number = |kind, big_endian| NumberFormat { kind, big_endian };
                    test(number(from, from_big), number(to, to_big));
                }
            }
        }
    }

    /// The bytes of `value` in this format.
    fn spell(number: NumberFormat, value: f64) -> Vec<u8> {
        let mut bytes = match number.kind {
            NumberType::F32 => (value as f32).to_le_bytes().to_vec(),
            NumberType::F64 => value.to_le_bytes().to_vec(),
            kind => (value as i128).to_le_bytes()[..kind.size()].to_vec(),
        };
        if number.big_endian {
            bytes.reverse();
        }
        bytes
    }

    #[test]
    fn special_values() {
        let mut values = vec![
            0.0,
            -0.0,
            f64::NAN,
            f64::INFINITY,
            f64::MAX,
            f64::MIN_POSITIVE,
        ];
        values.extend([
            f64::from(f32::MAX),
            3.402_823_5e38,
            3.402_823_6e38,
            1e39,
            0.5,
            0.99,
        ]);
        for bits in [7, 8, 15, 16, 31, 32, 63, 64] {
            let limit = 2f64.powi(bits);
            values.extend([limit, limit - 1.0, limit - 0.5, limit + 1.0, limit + 0.5]);
            values.extend([limit.next_down(), limit.next_up()]);
        }
        values.extend(values.clone().iter().map(|v| -v));
        all_pairs(|from, to| {
            let bytes: Vec<u8> = values.iter().flat_map(|v| spell(from, *v)).collect();
            check(from, to, &bytes);
        });
    }

    fn one(from: NumberType, to: NumberType, bytes: &[u8]) -> Vec<u8> {
        let number = |kind| NumberFormat {
            kind,
            big_endian: false,
        };
        let conversion = NumberConversion {
            from: number(from),
            to: number(to),
            fill: [0x11; 8],
        };
        let mut converted = vec![0; to.size()];
        conversion.convert(bytes, &mut converted);
        converted
    }

    #[test]
    fn not_a_number() {
        let signalling = f64::from_bits(0xfff0_0000_4000_0001).to_le_bytes();
        assert_eq!(
            one(NumberType::F64, NumberType::F64, &signalling),
            signalling
        );
        let float = one(NumberType::F64, NumberType::F32, &signalling);
        assert_eq!(float, 0xffc0_0002u32.to_le_bytes());
        let back = one(NumberType::F32, NumberType::F64, &float);
        assert_eq!(back, 0xfff8_0000_4000_0000u64.to_le_bytes());
        assert_eq!(
            one(NumberType::F64, NumberType::I32, &signalling),
            i32::MIN.to_le_bytes()
        );
        assert_eq!(one(NumberType::F64, NumberType::I16, &signalling), [0, 0]);
        assert_eq!(
            one(NumberType::F32, NumberType::U64, &float),
            (1u64 << 63).to_le_bytes()
        );
    }

    #[test]
    fn examples_by_hand() {
        let fill = |n: usize| vec![0x11; n];
        assert_eq!(
            one(NumberType::I16, NumberType::U8, &(-1i16).to_le_bytes()),
            fill(1)
        );
        assert_eq!(
            one(NumberType::I16, NumberType::U8, &255i16.to_le_bytes()),
            [255]
        );
        assert_eq!(one(NumberType::U8, NumberType::I8, &[200]), fill(1));
        assert_eq!(
            one(NumberType::F64, NumberType::I32, &(-2.9f64).to_le_bytes()),
            (-2i32).to_le_bytes()
        );
        // Past the limit by less than one: the test comes before the truncation.
        assert_eq!(
            one(NumberType::F64, NumberType::U8, &255.5f64.to_le_bytes()),
            fill(1)
        );
        assert_eq!(
            one(NumberType::F32, NumberType::U16, &(-0.5f32).to_le_bytes()),
            fill(2)
        );
        assert_eq!(
            one(NumberType::F64, NumberType::F32, &1e39f64.to_le_bytes()),
            fill(4)
        );
        assert_eq!(
            one(
                NumberType::F32,
                NumberType::F64,
                &f32::INFINITY.to_le_bytes()
            ),
            fill(8)
        );
        assert_eq!(
            one(
                NumberType::F64,
                NumberType::I64,
                &2f64.powi(63).to_le_bytes()
            ),
            i64::MIN.to_le_bytes()
        );
        assert_eq!(
            one(
                NumberType::I32,
                NumberType::F32,
                &16_777_217i32.to_le_bytes()
            ),
            16_777_216f32.to_le_bytes()
        );
    }

    proptest! {
        #[test]
        fn agrees_with_the_model(bytes in prop::collection::vec(any::<u8>(), 64)) {
            all_pairs(|from, to| check(from, to, &bytes));
        }

        #[test]
        fn agrees_with_the_model_on_common_numbers(values in prop::collection::vec(-70000.0..70000f64, 9)) {
            all_pairs(|from, to| {
                let bytes: Vec<u8> = values.iter().flat_map(|v| spell(from, *v)).collect();
                check(from, to, &bytes);
            });
        }
    }
}
