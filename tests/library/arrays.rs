//! Arrays straight from logs, compared with libhdf5 on the canonical file.

use std::path::{Path, PathBuf};

use h5logfs_arrays::objects::Class;
use h5logfs_arrays::{Axis, Dataset, Element, Log, Options, Reading, Selection};
use hdf5::H5Type;

use crate::common::PROGRAM;

#[allow(dead_code)]
#[path = "../../crates/arrays/examples/read_dataset.rs"]
mod example;

fn corpus(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/corpus")
        .join(name)
}

fn options() -> Options {
    let mut options = Options::parse("index_dir=none".as_ref()).unwrap();
    options.scans.program = PROGRAM.into();
    options
}

/// Whether all elements of a dataset, read as this number type, equal libhdf5's conversion.
fn is_converted_alike<T: Element + H5Type + PartialEq>(
    ours: &Dataset,
    theirs: &hdf5::Dataset,
) -> bool {
    let found = ours.read::<T>(&Selection::All).unwrap();
    let wanted = theirs.read_dyn::<T>().unwrap();
    assert_eq!(found.shape(), wanted.shape());
    // Between integers of one size and different byte order libhdf5 only swaps bytes, so a negative number becomes a
    // large one.
    if let Class::Integer {
        big_endian: true, ..
    } = ours.info().datatype.class
        && ours.info().datatype.size as usize == size_of::<T>()
    {
        return true;
    }
    let bits = |number: &T| bytemuck::bytes_of(number).to_vec();
    found.iter().map(bits).eq(wanted.iter().map(bits))
}

#[test]
fn numbers_are_converted_as_libhdf5_does_it() {
    let mut compared = 0;
    for name in ["convert", "types_1d", "types_be", "records"] {
        let log = Log::open(corpus(&format!("{name}.log.h5")), &options()).unwrap();
        let expected = hdf5::File::open(corpus(&format!("{name}.expected.h5"))).unwrap();
        for theirs in expected.datasets().unwrap() {
            let ours = log.dataset(&theirs.name()).unwrap();
            if !ours.info().datatype.is_plain_number() || ours.info().datatype.size == 2 {
                continue;
            }
            compared += 1;
            macro_rules! alike {
                ($($own:ty)*) => { $(
                    let alike = is_converted_alike::<$own>(&ours, &theirs);
                    assert!(alike, "{} as {}", theirs.name(), stringify!($own));
                )* };
            }
            alike!(i8 u8 i16 u16 i32 u32 i64 u64 f32 f64);
        }
    }
    assert!(compared > 10, "{compared}");
}

#[test]
fn selections_are_read_into_memory_of_the_caller() {
    let log = Log::open(corpus("convert.log.h5"), &options()).unwrap();
    let dataset = log.dataset("/f64_to_f32").unwrap();
    assert_eq!(dataset.shape(), [10, 8]);
    let all = dataset.read::<f32>(&Selection::All).unwrap();
    let axes = vec![
        Axis::List(vec![7, 0, 7]),
        Axis::Range {
            start: 1,
            count: 3,
            step: 2,
        },
    ];
    let mut some = [0f32; 9];
    dataset
        .read_into(&Selection::Axes(axes), Reading::of(2), &mut some)
        .unwrap();
    let wanted = [7, 0, 7].map(|row| [1, 3, 5].map(|column| all[[row, column]]));
    assert_eq!(some.as_slice(), wanted.as_flattened());
    let mut wrong = [0f32; 8];
    let error = dataset.read_into(
        &Selection::hyperslab(&[9, 0], &[2, 4]),
        Reading::of(1),
        &mut wrong,
    );
    let error = error.unwrap_err().to_string();
    assert!(
        error.contains("/f64_to_f32: index 10 of a dimension of 10"),
        "{error}"
    );
}

#[test]
fn the_example_lists_and_prints_datasets() {
    let output = |dataset: Option<&str>| {
        let mut out = Vec::new();
        example::run(&corpus("convert.log.h5"), dataset, &options(), &mut out).unwrap();
        String::from_utf8(out).unwrap()
    };
    let list = output(None);
    assert!(list.contains("/f64_to_f32: [10, 8]\n"), "{list}");
    let numbers = output(Some("/f64_to_f32"));
    assert!(numbers.starts_with("[10, 8], mean Some("), "{numbers}");
    assert_eq!(numbers.lines().count(), 11);
}
