//! The value of an attribute, and the types that convert to it: numbers, booleans, texts, and lists of these.

use serde::{Deserialize, Serialize};

use super::datatype::Datatype;
use super::hex;
use super::limits::{LARGEST_VALUE, LONGEST_NAME};
use h5logfs_common::fault::Fault;
use h5logfs_hdf5_format::MAX_RANK;

/// The most bytes of an attribute message.
const LARGEST_ATTRIBUTE: u64 = 65_000;

/// The value of an attribute. A number, a boolean or a text converts to a scalar; a slice, an array or a `Vec` of
/// them to a list.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Value {
    /// Elements of fixed size; a scalar if there are no dimensions.
    Elements {
        /// Type of an element.
        datatype: Datatype,
        /// Extent; empty for a scalar.
        dims: Vec<u64>,
        /// The elements as stored in a file.
        #[serde(with = "hex")]
        bytes: Vec<u8>,
    },
    /// A scalar text of variable length.
    Text(String),
    /// A list of texts of variable length.
    Texts(Vec<String>),
}

impl Value {
    /// Fails with the reason where no attribute can hold the value.
    pub(super) fn check(&self) -> Result<(), Fault> {
        let bytes = match self {
            Value::Elements {
                datatype,
                dims,
                bytes,
            } => {
                datatype.check()?;
                let wanted = dims
                    .iter()
                    .try_fold(u64::from(datatype.size()), |n, d| n.checked_mul(*d));
                if dims.len() > MAX_RANK {
                    let number = dims.len();
                    return Err(format!("{number} dimensions; HDF5 has {MAX_RANK} at most").into());
                }
                if wanted != Some(bytes.len() as u64) {
                    let wanted = wanted.map_or("more than 2^64".into(), |n| n.to_string());
                    return Err(format!(
                        "the value has {} bytes; the shape {dims:?} of {} needs {wanted}",
                        bytes.len(),
                        datatype.short()
                    )
                    .into());
                }
                bytes.len() as u64
            }
            Value::Text(text) => text.len() as u64,
            // The header holds the length and place of each text.
            Value::Texts(texts) => texts.iter().map(|t| t.len() as u64 + 16).sum(),
        };
        // An attribute is one message of at most 64 KiB.
        let described = match self {
            Value::Elements { datatype, dims, .. } => {
                datatype.message_size() + 16 * dims.len() as u64
            }
            Value::Text(_) | Value::Texts(_) => 64,
        };
        let texts = match self {
            Value::Text(text) => std::slice::from_ref(text),
            Value::Texts(texts) => texts,
            Value::Elements { .. } => &[],
        };
        if texts.iter().any(|t| t.contains('\0')) {
            return Err("the text has a zero byte, where HDF5 would end it".into());
        }
        if bytes > LARGEST_VALUE {
            return Err(format!(
                "the value has {bytes} bytes; {LARGEST_VALUE} are possible: use a dataset"
            )
            .into());
        }
        if bytes + described + LONGEST_NAME as u64 <= LARGEST_ATTRIBUTE {
            Ok(())
        } else {
            Err("datatype and value together are larger than 64 KiB: use a dataset".into())
        }
    }
}

/// An element type of attributes, alone or in a list.
pub trait Item: Sized {
    /// A scalar.
    fn scalar(&self) -> Value;
    /// A list.
    fn list(items: &[Self]) -> Value;
}

impl<T: Item> From<T> for Value {
    fn from(item: T) -> Self {
        item.scalar()
    }
}

impl<T: Item> From<&[T]> for Value {
    fn from(items: &[T]) -> Self {
        T::list(items)
    }
}

impl<T: Item> From<Vec<T>> for Value {
    fn from(items: Vec<T>) -> Self {
        T::list(&items)
    }
}

impl<T: Item> From<&Vec<T>> for Value {
    fn from(items: &Vec<T>) -> Self {
        T::list(items)
    }
}

impl<T: Item, const N: usize> From<[T; N]> for Value {
    fn from(items: [T; N]) -> Self {
        T::list(&items)
    }
}

impl<T: Item, const N: usize> From<&[T; N]> for Value {
    fn from(items: &[T; N]) -> Self {
        T::list(items)
    }
}

macro_rules! texts {
    ($($text:ty),*) => {$(
        impl Item for $text {
            fn scalar(&self) -> Value {
                Value::Text((*self).to_string())
            }

            fn list(items: &[Self]) -> Value {
                Value::Texts(items.iter().map(|t| (*t).to_string()).collect())
            }
        }
    )*};
}

texts! { &str, String, &String }

macro_rules! elements {
    ($($element:ty: $datatype:expr, $bytes:expr;)*) => {$(
        impl Item for $element {
            fn scalar(&self) -> Value {
                Value::Elements {
                    datatype: $datatype,
                    dims: Vec::new(),
                    bytes: $bytes(self).to_vec(),
                }
            }

            fn list(items: &[Self]) -> Value {
                Value::Elements {
                    datatype: $datatype,
                    dims: vec![items.len() as u64],
                    bytes: items.iter().flat_map($bytes).collect(),
                }
            }
        }
    )*};
}

elements! {
    i8: Datatype::integer(1, true), |v: &i8| v.to_ne_bytes();
    u8: Datatype::integer(1, false), |v: &u8| v.to_ne_bytes();
    i16: Datatype::integer(2, true), |v: &i16| v.to_ne_bytes();
    u16: Datatype::integer(2, false), |v: &u16| v.to_ne_bytes();
    i32: Datatype::integer(4, true), |v: &i32| v.to_ne_bytes();
    u32: Datatype::integer(4, false), |v: &u32| v.to_ne_bytes();
    i64: Datatype::integer(8, true), |v: &i64| v.to_ne_bytes();
    u64: Datatype::integer(8, false), |v: &u64| v.to_ne_bytes();
    f32: Datatype::float(4), |v: &f32| v.to_ne_bytes();
    f64: Datatype::float(8), |v: &f64| v.to_ne_bytes();
    bool: Datatype::boolean(), |v: &bool| [u8::from(*v)];
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(datatype: Datatype, bytes: &[u8], count: u64) -> Value {
        Value::Elements {
            datatype,
            dims: vec![count],
            bytes: bytes.to_vec(),
        }
    }

    /// Equal values in different containers become the same attribute.
    #[test]
    fn lists_of_all_kinds_are_values() {
        let numbers: Vec<u16> = vec![1, 2];
        let wanted = list(
            Datatype::integer(2, false),
            &[1u16.to_ne_bytes(), 2u16.to_ne_bytes()].concat(),
            2,
        );
        assert_eq!(Value::from(&numbers), wanted);
        assert_eq!(Value::from(&numbers[..]), wanted);
        assert_eq!(Value::from(numbers), wanted);
        assert_eq!(Value::from([1u16, 2]), wanted);
        assert_eq!(Value::from(&[1u16, 2]), wanted);

        let texts = Value::Texts(vec!["a".into(), "b".into()]);
        let owned = ["a", "b"].map(String::from);
        assert_eq!(Value::from(["a", "b"]), texts);
        assert_eq!(Value::from(vec!["a", "b"]), texts);
        assert_eq!(Value::from(&["a", "b"][..]), texts);
        assert_eq!(Value::from(&owned), texts);
        assert_eq!(Value::from(owned.to_vec()), texts);
        assert_eq!(Value::from(&owned[0]), Value::from("a"));
        assert_eq!(Value::from(owned[0].clone()), Value::Text("a".into()));
    }

    #[test]
    fn literals_need_no_types() {
        assert_eq!(Value::from(vec![1.0, 2.0]), Value::from([1f64, 2.0]));
        assert_eq!(Value::from([1, 2, 3]), Value::from([1i32, 2, 3]));
        let empty = Vec::<f64>::new();
        assert_eq!(Value::from(empty), list(Datatype::float(8), &[], 0));
    }

    #[test]
    fn booleans_are_what_h5py_takes_for_them() {
        let wanted = list(Datatype::boolean(), &[1, 0], 2);
        assert_eq!(Value::from([true, false]), wanted);
        assert_eq!(wanted.check(), Ok(()));
    }
}
