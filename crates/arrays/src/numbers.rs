//! Elements of any number type as `f64`: also of types that no Rust number has, such as `long double` and half floats.

use bytemuck::allocation::try_zeroed_vec;

use super::dataset::{Dataset, number_format};
use super::reading::Reading;
use super::scales::number;
use super::selection::Selection;
use h5logfs_common::error::Result;
use h5logfs_common::fault::Shortage;
use h5logfs_hdf5_format::{Class, Datatype};

/// Whether elements of this type are numbers.
pub(crate) fn are_numbers(datatype: &Datatype) -> bool {
    match &datatype.class {
        Class::Integer { .. } | Class::Float { .. } | Class::Bitfield { .. } => true,
        Class::Enumeration { base, .. } => are_numbers(base),
        _ => false,
    }
}

impl Dataset {
    /// Whether the elements are numbers of any kind, which [`Dataset::read_numbers`] reads.
    pub fn has_numbers(&self) -> bool {
        are_numbers(&self.info().datatype)
    }

    /// Whether the elements are floating-point numbers of 4 bytes.
    pub fn has_singles(&self) -> bool {
        let datatype = &self.info().datatype;
        matches!(datatype.class, Class::Float { .. }) && datatype.size == 4
    }

    /// Reads a selection as `f64` into memory of the caller, in row-major order. Integers of more than 53 bits are
    /// rounded. Fails where elements are not numbers.
    pub fn read_numbers(
        &self,
        selection: &Selection,
        reading: Reading<'_>,
        out: &mut [f64],
    ) -> Result<()> {
        let datatype = &self.info().datatype;
        if number_format(datatype).is_some() {
            return self.read_into(selection, reading, out);
        }
        if !self.has_numbers() {
            return Err(self.failed("its elements are not numbers".into()));
        }
        let bytes = out.len().saturating_mul(datatype.size as usize);
        let short = |()| {
            let bytes = bytes as u64;
            self.failed(Shortage::System { bytes }.into())
        };
        let mut elements: Vec<u8> = try_zeroed_vec(bytes).map_err(short)?;
        self.read_bytes(selection, reading, &mut elements)?;
        self.log().with(self.path(), |objects| {
            // A value takes more memory than a number, so these are decoded a few at a time.
            let some = elements.chunks(1024 * datatype.size.max(1) as usize);
            for (elements, out) in some.zip(out.chunks_mut(1024)) {
                let values = objects.values(datatype, elements)?;
                for (value, out) in values.iter().zip(out) {
                    *out = number(value).unwrap_or(f64::NAN);
                }
            }
            Ok(())
        })
    }

    /// The fill value as a number; `None` where elements are no numbers, or the dataset has no fill value of its own.
    pub fn fill_number(&self) -> Result<Option<f64>> {
        let Some(fill) = self.info().fill.as_deref() else {
            return Ok(None);
        };
        if !self.has_numbers() {
            return Ok(None);
        }
        self.log().with(self.path(), |objects| {
            let values = objects.values(&self.info().datatype, fill)?;
            Ok(values.first().and_then(number))
        })
    }
}
