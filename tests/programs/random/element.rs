//! Element types: those that Rust has, and those that only a datatype describes. The datatype of each Rust type is
//! written out here again, to test the crate's own answer.

use std::mem::{offset_of, size_of};

use h5logfs_writer::{
    Batch, Dataset, DatasetSpec, Datatype, Fault, Result, Selection, Value, Writer, array_value,
};
use hdf5::H5Type;
use hdf5::types::{FixedAscii, FixedUnicode};
use serde::{Serialize, Serializer};

use crate::rng::Random;

/// Values come from bytes, never from their names.
#[allow(dead_code)]
#[derive(H5Type, Clone, Copy)]
#[repr(i16)]
pub enum Colour {
    Red = -300,
    Green = 0,
    Blue = 7,
}

/// A struct with gaps after `id` and `kind`.
#[derive(H5Type, Clone, Copy)]
#[repr(C)]
pub struct Event {
    id: u8,
    energy: f64,
    kind: Colour,
    hits: [u32; 2],
    good: bool,
}

#[derive(H5Type, Clone, Copy)]
#[repr(C)]
pub struct Track {
    first: Event,
    name: FixedAscii<5>,
    rest: [Event; 2],
    slope: f32,
}

/// Bytes of elements, aligned so that they can be viewed as elements.
#[derive(Debug, Clone, PartialEq)]
pub struct Bytes {
    words: Vec<u64>,
    len: usize,
}

impl Bytes {
    pub fn new(bytes: &[u8]) -> Self {
        let word = |part: &[u8]| {
            let mut word = [0; 8];
            word[..part.len()].copy_from_slice(part);
            u64::from_ne_bytes(word)
        };
        Bytes {
            words: bytes.chunks(8).map(word).collect(),
            len: bytes.len(),
        }
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn as_ptr(&self) -> *const u8 {
        self.words.as_ptr().cast()
    }

    pub fn as_bytes(&self) -> &[u8] {
        // SAFETY: the words hold this many bytes.
        unsafe { std::slice::from_raw_parts(self.as_ptr(), self.len) }
    }

    /// # Safety
    /// They are bytes of values of `T`.
    pub unsafe fn values<T>(&self) -> &[T] {
        assert!(align_of::<T>() <= align_of::<u64>());
        // SAFETY: as the caller says, and words are well aligned for it.
        unsafe { std::slice::from_raw_parts(self.as_ptr().cast(), self.len / size_of::<T>()) }
    }
}

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let digits: String = self.as_bytes().iter().map(|b| format!("{b:02x}")).collect();
        to.serialize_str(&digits)
    }
}

/// A target of writes: a writer, or a batch of it.
pub trait Sink<'d> {
    fn put<T: H5Type>(&mut self, to: Dataset, at: Selection<'_>, data: &'d [T]) -> Result<()>;

    /// # Safety
    /// As of [`Writer::write_raw`] and [`Batch::write_raw`].
    unsafe fn put_raw(
        &mut self,
        to: Dataset,
        at: Selection<'_>,
        data: *const u8,
        count: usize,
    ) -> Result<()>;

    fn add_rows<T: H5Type>(&mut self, to: Dataset, rows: &'d [T]) -> Result<()>;

    /// # Safety
    /// As of [`Writer::append_raw`] and [`Batch::append_raw`].
    unsafe fn add_raw_rows(&mut self, to: Dataset, data: *const u8, count: usize) -> Result<()>;
}

impl<'d> Sink<'d> for Writer {
    fn put<T: H5Type>(&mut self, to: Dataset, at: Selection<'_>, data: &'d [T]) -> Result<()> {
        self.write(to, at, data)
    }

    unsafe fn put_raw(
        &mut self,
        to: Dataset,
        at: Selection<'_>,
        data: *const u8,
        count: usize,
    ) -> Result<()> {
        // SAFETY: as the caller says.
        unsafe { self.write_raw(to, at, data, count) }
    }

    fn add_rows<T: H5Type>(&mut self, to: Dataset, rows: &'d [T]) -> Result<()> {
        self.append(to, rows)
    }

    unsafe fn add_raw_rows(&mut self, to: Dataset, data: *const u8, count: usize) -> Result<()> {
        // SAFETY: as the caller says.
        unsafe { self.append_raw(to, data, count) }
    }
}

impl<'d> Sink<'d> for Batch<'_, 'd> {
    fn put<T: H5Type>(&mut self, to: Dataset, at: Selection<'_>, data: &'d [T]) -> Result<()> {
        self.write(to, at, data)
    }

    unsafe fn put_raw(
        &mut self,
        to: Dataset,
        at: Selection<'_>,
        data: *const u8,
        count: usize,
    ) -> Result<()> {
        // SAFETY: as the caller says.
        unsafe { self.write_raw(to, at, data, count) }
    }

    fn add_rows<T: H5Type>(&mut self, to: Dataset, rows: &'d [T]) -> Result<()> {
        self.append(to, rows)
    }

    unsafe fn add_raw_rows(&mut self, to: Dataset, data: *const u8, count: usize) -> Result<()> {
        // SAFETY: as the caller says.
        unsafe { self.append_raw(to, data, count) }
    }
}

macro_rules! native {
    ($($name:ident: $rust:ty = $datatype:expr;)*) => {
        /// A type that Rust has.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Native { $($name),* }

        impl Native {
            pub const ALL: &'static [Native] = &[$(Native::$name),*];

            pub fn datatype(self) -> Datatype {
                match self { $(Native::$name => $datatype),* }
            }

            fn open(self, file: &mut Writer, path: &str) -> Result<Dataset> {
                match self { $(Native::$name => file.open_dataset::<$rust>(path)),* }
            }

            fn spec(self, dims: &[u64]) -> DatasetSpec {
                match self { $(Native::$name => DatasetSpec::new::<$rust>(dims)),* }
            }

            /// An attribute's value.
            pub fn value(self, data: &Bytes, dims: &[u64]) -> Result<Value, Fault> {
                match self {
                    // SAFETY: the elements were drawn with this type.
                    $(Native::$name => array_value(unsafe { data.values::<$rust>() }, dims)),*
                }
            }

            fn fill(self, spec: DatasetSpec, value: &Bytes) -> DatasetSpec {
                match self {
                    // SAFETY: an element was drawn as one of this type.
                    $(Native::$name => spec.fill(unsafe { value.values::<$rust>() }[0])),*
                }
            }

            fn put<'d>(
                self,
                sink: &mut impl Sink<'d>,
                to: Dataset,
                at: Selection<'_>,
                data: &'d Bytes,
            ) -> Result<()> {
                match self {
                    // SAFETY: the elements were drawn as ones of this type.
                    $(Native::$name => sink.put(to, at, unsafe { data.values::<$rust>() })),*
                }
            }

            fn append<'d>(
                self,
                sink: &mut impl Sink<'d>,
                to: Dataset,
                rows: &'d Bytes,
            ) -> Result<()> {
                match self {
                    // SAFETY: the elements were drawn as ones of this type.
                    $(Native::$name => sink.add_rows(to, unsafe { rows.values::<$rust>() })),*
                }
            }
        }
    };
}

native! {
    I8: i8 = integer(1, true);
    U8: u8 = integer(1, false);
    I16: i16 = integer(2, true);
    U16: u16 = integer(2, false);
    I32: i32 = integer(4, true);
    U32: u32 = integer(4, false);
    I64: i64 = integer(8, true);
    U64: u64 = integer(8, false);
    F32: f32 = float(4);
    F64: f64 = float(8);
    Bool: bool = boolean();
    Colours: Colour = colour();
    Events: Event = event();
    Tracks: Track = track();
    Triples: [f32; 3] = array(float(4), &[3]);
    Ascii: FixedAscii<7> = text(7, false);
    Unicode: FixedUnicode<9> = text(9, true);
}

fn integer(size: u32, signed: bool) -> Datatype {
    Datatype::Integer {
        size,
        signed,
        big_endian: cfg!(target_endian = "big"),
    }
}

fn float(size: u32) -> Datatype {
    Datatype::Float {
        size,
        big_endian: cfg!(target_endian = "big"),
    }
}

fn text(size: u32, utf8: bool) -> Datatype {
    Datatype::Text { size, utf8 }
}

fn array(base: Datatype, dims: &[u32]) -> Datatype {
    Datatype::Array {
        base: Box::new(base),
        dims: dims.to_vec(),
    }
}

fn enumeration(base: Datatype, members: &[(&str, i64)]) -> Datatype {
    let members = members.iter().map(|(name, v)| ((*name).to_owned(), *v));
    Datatype::Enumeration {
        base: Box::new(base),
        members: members.collect(),
    }
}

fn boolean() -> Datatype {
    enumeration(integer(1, true), &[("FALSE", 0), ("TRUE", 1)])
}

fn colour() -> Datatype {
    let members = [("Red", -300), ("Green", 0), ("Blue", 7)];
    enumeration(integer(2, true), &members)
}

fn compound(size: usize, members: &[(&str, usize, Datatype)]) -> Datatype {
    let member = |(name, offset, datatype): &(&str, usize, Datatype)| {
        ((*name).to_owned(), *offset as u32, datatype.clone())
    };
    Datatype::compound(size as u32, members.iter().map(member))
}

fn event() -> Datatype {
    let members = [
        ("id", offset_of!(Event, id), integer(1, false)),
        ("energy", offset_of!(Event, energy), float(8)),
        ("kind", offset_of!(Event, kind), colour()),
        (
            "hits",
            offset_of!(Event, hits),
            array(integer(4, false), &[2]),
        ),
        ("good", offset_of!(Event, good), boolean()),
    ];
    compound(size_of::<Event>(), &members)
}

fn track() -> Datatype {
    let members = [
        ("first", offset_of!(Track, first), event()),
        ("name", offset_of!(Track, name), text(5, false)),
        ("rest", offset_of!(Track, rest), array(event(), &[2])),
        ("slope", offset_of!(Track, slope), float(4)),
    ];
    compound(size_of::<Track>(), &members)
}

/// The type of a dataset's elements.
#[derive(Debug, Clone, PartialEq)]
pub enum Element {
    Native(Native),
    Described(Datatype),
}

impl Element {
    pub fn draw(random: &mut Random) -> Self {
        if random.percent(50) {
            Element::Native(*random.pick(Native::ALL))
        } else {
            Element::Described(described(random))
        }
    }

    /// The type in the program's memory.
    pub fn datatype(&self) -> Datatype {
        match self {
            Element::Native(native) => native.datatype(),
            Element::Described(datatype) => datatype.clone(),
        }
    }

    /// Finds a dataset of this type again.
    pub fn open(&self, file: &mut Writer, path: &str) -> Result<Dataset> {
        match self {
            Element::Native(native) => native.open(file, path),
            Element::Described(datatype) => file.open_dataset_as(path, datatype.clone()),
        }
    }

    pub fn spec(&self, dims: &[u64]) -> DatasetSpec {
        match self {
            Element::Native(native) => native.spec(dims),
            Element::Described(datatype) => DatasetSpec::of(datatype.clone(), dims),
        }
    }

    pub fn fill(&self, spec: DatasetSpec, value: &Bytes) -> DatasetSpec {
        match self {
            Element::Native(native) => native.fill(spec, value),
            Element::Described(_) => spec.fill_bytes(value.as_bytes()),
        }
    }

    pub fn put<'d>(
        &self,
        sink: &mut impl Sink<'d>,
        to: Dataset,
        at: Selection<'_>,
        data: &'d Bytes,
    ) -> Result<()> {
        match self {
            Element::Native(native) => native.put(sink, to, at, data),
            Element::Described(datatype) => {
                let count = data.len() / datatype.size() as usize;
                // SAFETY: the elements were drawn as ones of this type, and do not change.
                unsafe { sink.put_raw(to, at, data.as_ptr(), count) }
            }
        }
    }

    pub fn append<'d>(&self, sink: &mut impl Sink<'d>, to: Dataset, rows: &'d Bytes) -> Result<()> {
        match self {
            Element::Native(native) => native.append(sink, to, rows),
            Element::Described(datatype) => {
                let count = rows.len() / datatype.size() as usize;
                // SAFETY: the elements were drawn as ones of this type, and do not change.
                unsafe { sink.add_raw_rows(to, rows.as_ptr(), count) }
            }
        }
    }
}

/// Types that Rust lacks: the other byte order, opaque bytes, members in any order.
fn described(random: &mut Random) -> Datatype {
    let big_endian = random.percent(50);
    let size = *random.pick(&[1u32, 2, 4, 8]);
    let signed = random.percent(50);
    match random.below(9) {
        0 | 1 => Datatype::Integer {
            size,
            signed,
            big_endian,
        },
        2 => Datatype::Float {
            size: size.max(4),
            big_endian,
        },
        3 => Datatype::Bitfield { size, big_endian },
        4 => Datatype::Opaque {
            size: random.between(1, 20) as u32,
            tag: (*random.pick(&["", "a tag", "bytes of something"])).to_owned(),
        },
        5 => text(random.between(1, 20) as u32, signed),
        6 => {
            let base = Datatype::Integer {
                size,
                signed: true,
                big_endian,
            };
            let members = [("none", 0), ("minus", -5), ("most", 127), ("größte", 1)];
            enumeration(base, &members[..random.between(1, 4) as usize])
        }
        7 => {
            let sides = random.between(1, 2);
            let dims: Vec<u32> = (0..sides).map(|_| random.between(1, 4) as u32).collect();
            array(described_simple(random), &dims)
        }
        _ => described_compound(random),
    }
}

fn described_simple(random: &mut Random) -> Datatype {
    loop {
        let datatype = described(random);
        if datatype.size() <= 64 {
            return datatype;
        }
    }
}

/// Members with gaps between them, in another order than their offsets.
fn described_compound(random: &mut Random) -> Datatype {
    let mut at = random.below(4) as usize;
    let mut members = Vec::new();
    for name in ["x", "_y", "température", "w"] {
        let member = described_simple(random);
        let size = member.size() as usize;
        members.push((name, at, member));
        at += size + random.below(4) as usize;
        if random.percent(30) {
            break;
        }
    }
    for i in 1..members.len() {
        members.swap(i, random.below(i as u64 + 1) as usize);
    }
    compound(at, &members)
}

/// Bytes of `count` elements as in a program's memory. `alphabet` is the number of different byte values in numbers,
/// so that some data deflates well.
pub fn draw_elements(datatype: &Datatype, count: u64, alphabet: u64, random: &mut Random) -> Bytes {
    let size = datatype.size() as usize;
    let mut bytes = vec![0; size * count as usize];
    for element in bytes.chunks_exact_mut(size) {
        draw_element(datatype, alphabet, random, element);
    }
    Bytes::new(&bytes)
}

fn draw_element(datatype: &Datatype, alphabet: u64, random: &mut Random, out: &mut [u8]) {
    match datatype {
        Datatype::Text { utf8, .. } => {
            let text = if *utf8 {
                *random.pick(&["", "naïve", "温度", "x", "ж12"])
            } else {
                *random.pick(&["", "a", "ascii", "long text"])
            };
            let mut len = text.len().min(out.len());
            while !text.is_char_boundary(len) {
                len -= 1;
            }
            out[..len].copy_from_slice(&text.as_bytes()[..len]);
        }
        Datatype::Enumeration { base, members } => {
            let value = random.pick(members).1;
            let big_endian = matches!(
                **base,
                Datatype::Integer {
                    big_endian: true,
                    ..
                }
            );
            if big_endian {
                out.copy_from_slice(&value.to_be_bytes()[8 - out.len()..])
            } else {
                out.copy_from_slice(&value.to_le_bytes()[..out.len()])
            }
        }
        Datatype::Compound { members, .. } => {
            // Gaps must not show in the file.
            out.fill(0xa5);
            for member in members {
                let (at, size) = (member.offset as usize, member.datatype.size() as usize);
                let place = &mut out[at..at + size];
                place.fill(0);
                draw_element(&member.datatype, alphabet, random, place);
            }
        }
        Datatype::Array { base, .. } => {
            for element in out.chunks_exact_mut(base.size() as usize) {
                draw_element(base, alphabet, random, element);
            }
        }
        _ => out.fill_with(|| random.below(alphabet) as u8),
    }
}
