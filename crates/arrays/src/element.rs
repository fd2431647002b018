//! Rust numbers as elements, converted from the file's datatype as HDF5 does.

use bytemuck::Pod;
use h5logfs_log::numbers::{NumberFormat, NumberType};

/// A number type that datasets can be read as.
///
/// As in HDF5, a number beyond the limits of the type becomes the nearest limit, and fractions are cut off. A
/// floating-point number too large for a shorter type becomes infinite. NaN becomes integer 0, where HDF5 leaves the
/// result to the processor. HDF5 does not clip an integer of the same size and another byte order; this crate does.
pub trait Element: Pod + Send + Sync + private::Sealed {
    /// The type in native byte order.
    const FORMAT: NumberFormat;

    /// Converts the numbers of `from` to this type, as bytes in `to`.
    fn convert(format: NumberFormat, from: &[u8], to: &mut [u8]);
}

mod private {
    pub trait Sealed {}
}

/// A conversion from number type `F`.
trait CastFrom<F> {
    fn cast(from: F) -> Self;
}

/// To integers: clips to the nearest limit. `as` does this for floating-point numbers, and cuts off fractions.
macro_rules! to_integer {
    ($($to:ty)*) => { $(
        to_integer!($to; i8 i16 i32 i64 u8 u16 u32 u64);
        to_integer!($to as f32 f64);
    )* };
    ($to:ty; $($from:ty)*) => { $(
        impl CastFrom<$from> for $to {
            fn cast(from: $from) -> $to {
                <$to>::try_from(from).unwrap_or(if from > 0 { <$to>::MAX } else { <$to>::MIN })
            }
        }
    )* };
    ($to:ty as $($from:ty)*) => { $(
        impl CastFrom<$from> for $to {
            fn cast(from: $from) -> $to {
                from as $to
            }
        }
    )* };
}

to_integer!(i8 i16 i32 i64 u8 u16 u32 u64);

/// To floating-point numbers: rounds to nearest.
macro_rules! to_float {
    ($($to:ty)*) => { $( to_float!($to; i8 i16 i32 i64 u8 u16 u32 u64 f32 f64); )* };
    ($to:ty; $($from:ty)*) => { $(
        impl CastFrom<$from> for $to {
            fn cast(from: $from) -> $to {
                from as $to
            }
        }
    )* };
}

to_float!(f32 f64);

macro_rules! element {
    ($($name:ident $own:ty),*) => { $(
        impl private::Sealed for $own {}

        impl Element for $own {
            const FORMAT: NumberFormat = NumberFormat {
                kind: NumberType::$name,
                big_endian: cfg!(target_endian = "big"),
            };

            fn convert(format: NumberFormat, from: &[u8], to: &mut [u8]) {
                fn own<F>(from: F) -> [u8; size_of::<$own>()]
                where
                    $own: CastFrom<F>,
                {
                    <$own>::cast(from).to_ne_bytes()
                }
                let big = format.big_endian;
                match format.kind {
                    NumberType::I8 => each(big, from, to, |b| own(i8::from_le_bytes(b))),
                    NumberType::U8 => each(big, from, to, |b| own(u8::from_le_bytes(b))),
                    NumberType::I16 => each(big, from, to, |b| own(i16::from_le_bytes(b))),
                    NumberType::U16 => each(big, from, to, |b| own(u16::from_le_bytes(b))),
                    NumberType::I32 => each(big, from, to, |b| own(i32::from_le_bytes(b))),
                    NumberType::U32 => each(big, from, to, |b| own(u32::from_le_bytes(b))),
                    NumberType::I64 => each(big, from, to, |b| own(i64::from_le_bytes(b))),
                    NumberType::U64 => each(big, from, to, |b| own(u64::from_le_bytes(b))),
                    NumberType::F32 => each(big, from, to, |b| own(f32::from_le_bytes(b))),
                    NumberType::F64 => each(big, from, to, |b| own(f64::from_le_bytes(b))),
                }
            }
        }
    )* };
}

element!(I8 i8, U8 u8, I16 i16, U16 u16, I32 i32, U32 u32, I64 i64, U64 u64, F32 f32, F64 f64);

/// Converts each number. Each byte order has a loop of its own, which does not branch on it.
fn each<const FROM: usize, const TO: usize>(
    big_endian: bool,
    from: &[u8],
    to: &mut [u8],
    number: impl Fn([u8; FROM]) -> [u8; TO],
) {
    let pairs = from.as_chunks().0.iter().zip(to.as_chunks_mut().0);
    if big_endian {
        for (from, to) in pairs {
            let mut from: [u8; FROM] = *from;
            from.reverse();
            *to = number(from);
        }
    } else {
        for (from, to) in pairs {
            *to = number(*from);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn converted<T: Element>(
        kind: NumberType,
        big_endian: bool,
        from: &[u8],
        count: usize,
    ) -> Vec<T> {
        let mut to = vec![T::zeroed(); count];
        let bytes = bytemuck::cast_slice_mut(&mut to);
        T::convert(NumberFormat { kind, big_endian }, from, bytes);
        to
    }

    #[test]
    fn numbers_are_clipped_as_hdf5_does() {
        let doubles: Vec<u8> = [1e300, -1e300, 2.9, -2.9, f64::NAN, f64::INFINITY]
            .iter()
            .flat_map(|n: &f64| n.to_le_bytes())
            .collect();
        let (kind, big) = (NumberType::F64, false);
        assert_eq!(
            converted::<i8>(kind, big, &doubles, 6),
            [127, -128, 2, -2, 0, 127]
        );
        assert_eq!(
            converted::<u16>(kind, big, &doubles, 6),
            [u16::MAX, 0, 2, 0, 0, u16::MAX]
        );
        let single = converted::<f32>(kind, big, &doubles, 6);
        assert_eq!(&single[..4], &[f32::INFINITY, f32::NEG_INFINITY, 2.9, -2.9]);
        let shorts: Vec<u8> = [-300i16, 300, 5]
            .iter()
            .flat_map(|n| n.to_be_bytes())
            .collect();
        assert_eq!(
            converted::<i8>(NumberType::I16, true, &shorts, 3),
            [-128, 127, 5]
        );
        assert_eq!(
            converted::<u64>(NumberType::I16, true, &shorts, 3),
            [0, 300, 5]
        );
        assert_eq!(
            converted::<f64>(NumberType::I16, true, &shorts, 3),
            [-300.0, 300.0, 5.0]
        );
        assert_eq!(
            converted::<i64>(NumberType::U64, false, &[0xff; 8], 1),
            [i64::MAX]
        );
    }
}
