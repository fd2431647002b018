use proptest::prelude::*;

use super::*;
use crate::source_dir::SourceDir;

fn read(bytes: &[u8]) -> std::result::Result<Header, String> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.nc");
    std::fs::write(&path, bytes).unwrap();
    let (dir, name) = SourceDir::of_file(&path).unwrap();
    let file = SourceFile::open(&dir, &name).unwrap();
    Header::read(&file).map_err(|e| e.to_string())
}

/// Writes headers with counts of the version's width.
struct Writer {
    version: u8,
    bytes: Vec<u8>,
}

impl Writer {
    fn new(version: u8, records: u64) -> Self {
        let bytes = vec![b'C', b'D', b'F', version];
        Writer { version, bytes }.count(records)
    }

    fn count(mut self, count: u64) -> Self {
        let bytes = count.to_be_bytes();
        let from = if self.version == 5 { 0 } else { 4 };
        self.bytes.extend(&bytes[from..]);
        self
    }

    fn word(mut self, word: u32) -> Self {
        self.bytes.extend(word.to_be_bytes());
        self
    }

    fn list(self, tag: u32, count: u64) -> Self {
        self.word(tag).count(count)
    }

    fn padded(mut self, bytes: &[u8]) -> Self {
        self.bytes.extend(bytes);
        while !self.bytes.len().is_multiple_of(4) {
            self.bytes.push(0);
        }
        self
    }

    fn name(self, name: &str) -> Self {
        self.count(name.len() as u64).padded(name.as_bytes())
    }

    fn dimension(self, name: &str, len: u64) -> Self {
        self.name(name).count(len)
    }

    fn attribute(self, name: &str, kind: u32, len: u64, values: &[u8]) -> Self {
        self.name(name).word(kind).count(len).padded(values)
    }

    /// A variable up to its attributes.
    fn variable(self, name: &str, dimensions: &[u64]) -> Self {
        let named = self.name(name).count(dimensions.len() as u64);
        dimensions.iter().fold(named, |writer, d| writer.count(*d))
    }

    /// The rest of a variable without attributes.
    fn bare(self, kind: u32, begin: u64) -> Self {
        self.list(0, 0).typed(kind, begin)
    }

    fn typed(self, kind: u32, begin: u64) -> Self {
        let mut typed = self.word(kind).count(0);
        let begin = begin.to_be_bytes();
        let from = if typed.version == 1 { 4 } else { 0 };
        typed.bytes.extend(&begin[from..]);
        typed
    }
}

/// A header with all features, in any version.
fn sample(version: u8) -> Vec<u8> {
    Writer::new(version, 3)
        .list(10, 3)
        .dimension("time", 0)
        .dimension("x", 5)
        .dimension("y", 2)
        .list(12, 2)
        .attribute("title", 2, 5, b"hello")
        .attribute("none", 4, 0, b"")
        .list(11, 4)
        .variable("time", &[0])
        .bare(6, 512)
        .variable("grid", &[2, 1])
        .list(12, 1)
        .attribute("_FillValue", 3, 1, &[0xff, 0xfe])
        .typed(3, 480)
        .variable("text", &[0, 1])
        .bare(2, 520)
        .variable("one", &[])
        .bare(5, 504)
        .bytes
}

#[test]
fn the_bytes_of_a_small_file_are_read() {
    // The example of the format specification: one dimension and one variable.
    #[rustfmt::skip]
    let bytes = [
        b'C', b'D', b'F', 1,  0, 0, 0, 0,
        0, 0, 0, 10,  0, 0, 0, 1,
        0, 0, 0, 3,  b'd', b'i', b'm', 0,  0, 0, 0, 5,
        0, 0, 0, 0,  0, 0, 0, 0,
        0, 0, 0, 11,  0, 0, 0, 1,
        0, 0, 0, 2,  b'v', b'x', 0, 0,  0, 0, 0, 1,  0, 0, 0, 0,
        0, 0, 0, 0,  0, 0, 0, 0,
        0, 0, 0, 3,  0, 0, 0, 12,  0, 0, 0, 80,
    ];
    let header = read(&bytes).unwrap();
    assert_eq!((header.version, header.records), (1, Some(0)));
    assert_eq!(header.dimensions[0].name, b"dim");
    let variable = &header.variables[0];
    assert_eq!(variable.name, b"vx");
    assert_eq!(variable.kind, Type::Number(NumberType::I16));
    assert_eq!((variable.begin, header.bytes(variable)), (80, 10));
    assert_eq!((header.record_size(), header.records_in(90)), (0, 0));
}

#[test]
fn all_versions_say_the_same() {
    for version in [1, 2, 5] {
        let header = read(&sample(version)).unwrap();
        assert_eq!((header.version, header.records), (version, Some(3)));
        let names: Vec<_> = header.variables.iter().map(|v| v.name.as_slice()).collect();
        assert_eq!(names, [&b"time"[..], b"grid", b"text", b"one"]);
        assert_eq!(header.attributes[0].values, b"hello");
        assert_eq!((header.attributes[1].len, header.attributes.len()), (0, 2));

        let bytes = header.variables.iter().map(|v| header.bytes(v));
        assert_eq!(bytes.collect::<Vec<_>>(), [8, 20, 5, 4]);
        let records = header.variables.iter().map(|v| header.is_record(v));
        assert_eq!(records.collect::<Vec<_>>(), [true, false, true, false]);
        assert_eq!(header.dims(&header.variables[2]), [0, 5]);
        // A record has 8 bytes, and 5 bytes padded to 8.
        assert_eq!(header.record_size(), 16);

        let described = header.described();
        assert_eq!(described[1].fill, [0xfe, 0xff, 0, 0, 0, 0, 0, 0]);
        assert_eq!(described[1].dims, [2, 5]);
        assert_eq!(
            (described[2].is_text, described[2].kind),
            (true, NumberType::U8)
        );
        assert_eq!(described[3].begin, 504);
        assert_eq!(described[3].fill[..4], 0x7cf0_0000u32.to_le_bytes());
    }
}

#[test]
fn default_fill_values_are_those_of_the_format() {
    let of = |kind: NumberType| Type::Number(kind).default_fill();
    assert_eq!(of(NumberType::I8), [0x81, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(of(NumberType::U8), [255, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(
        i16::from_le_bytes([of(NumberType::I16)[0], of(NumberType::I16)[1]]),
        -32767
    );
    assert_eq!(of(NumberType::U16), [255, 255, 0, 0, 0, 0, 0, 0]);
    assert_eq!(of(NumberType::I32)[..4], (-2147483647i32).to_le_bytes());
    assert_eq!(of(NumberType::U32), [255, 255, 255, 255, 0, 0, 0, 0]);
    assert_eq!(
        i64::from_le_bytes(of(NumberType::I64)),
        -9223372036854775806
    );
    assert_eq!(
        u64::from_le_bytes(of(NumberType::U64)),
        18446744073709551614
    );
    assert_eq!(
        f64::from_le_bytes(of(NumberType::F64)),
        9.969209968386869e36
    );
    assert_eq!(Type::Char.default_fill(), [0; 8]);
}

#[test]
fn fill_values_of_another_type_or_number_do_not_count() {
    for (kind, len, value) in [(4, 1, &[0, 0, 0, 7][..]), (3, 2, &[0, 7, 0, 7])] {
        let bytes = Writer::new(1, 0).list(0, 0).list(0, 0).list(11, 1);
        let bytes = bytes.variable("v", &[]).list(12, 1);
        let bytes = bytes.attribute("_FillValue", kind, len, value).typed(3, 99);
        let header = read(&bytes.bytes).unwrap();
        let fill = header.fill_of(&header.variables[0]);
        assert_eq!(fill[..2], (-32767i16).to_le_bytes());
    }
}

#[test]
fn a_record_variable_that_is_alone_is_not_padded() {
    let alone = Writer::new(2, 7).list(10, 2).dimension("t", 0);
    let alone = alone.dimension("x", 3).list(0, 0).list(11, 2);
    let alone = alone.variable("fixed", &[1]).bare(6, 200);
    let alone = alone.variable("v", &[0, 1]).bare(1, 300).bytes;
    assert_eq!(read(&alone).unwrap().record_size(), 3);
}

#[test]
fn records_of_a_stream_are_counted_by_the_length() {
    let all_ones = [
        (1, u64::from(u32::MAX)),
        (2, u64::from(u32::MAX)),
        (5, u64::MAX),
    ];
    for (version, records) in all_ones {
        let mut bytes = sample(version);
        let width = if version == 5 { 8 } else { 4 };
        bytes[4..4 + width].copy_from_slice(&records.to_be_bytes()[8 - width..]);
        let header = read(&bytes).unwrap();
        assert_eq!(header.records, None);
        // Records begin at 512 and have 16 bytes each.
        assert_eq!(header.records_in(512 + 5 * 16 + 15), 5);
        assert_eq!(header.records_in(100), 0);
    }
    // The header states the number.
    assert_eq!(read(&sample(1)).unwrap().records_in(0), 3);
    // In CDF-5, 2^32 - 1 is an ordinary number.
    let many = Writer::new(5, u64::from(u32::MAX));
    let many = many.list(0, 0).list(0, 0).list(0, 0).bytes;
    assert_eq!(read(&many).unwrap().records, Some(u64::from(u32::MAX)));
}

#[test]
fn dimensions_past_2_to_the_32_are_read() {
    let large = Writer::new(5, 0).list(10, 1).dimension("x", 5 << 32);
    let large = large.list(0, 0).list(11, 1).variable("v", &[0]);
    let header = read(&large.bare(11, 512).bytes).unwrap();
    assert_eq!(header.bytes(&header.variables[0]), 40 << 32);
    let large = Writer::new(2, 0).list(10, 1).dimension("x", 0xffff_fffc);
    let header = read(&large.list(0, 0).list(0, 0).bytes).unwrap();
    assert_eq!(header.dimensions[0].len, 0xffff_fffc);
}

#[test]
fn every_byte_of_a_header_is_needed() {
    for version in [1, 2, 5] {
        let whole = sample(version);
        for len in 0..whole.len() {
            let error = read(&whole[..len]).unwrap_err();
            let cut = error.contains("not complete") || error.contains("bytes are left");
            assert!(cut || len == 0, "{len}: {error}");
        }
        assert!(read(&[]).unwrap_err().contains("empty"));
    }
}

#[test]
fn what_cannot_be_is_refused_with_its_byte() {
    let one = |version| Writer::new(version, 0).list(10, 1).dimension("x", 5);
    let two = |version| {
        let two = Writer::new(version, 0).list(10, 2);
        two.dimension("t", 0).dimension("x", 5).list(0, 0)
    };
    let cases = [
        (b"CDF\x03....".to_vec(), 0, "not the magic"),
        (b"\x89HDF\r\n\x1a\n".to_vec(), 0, "not the magic"),
        (Writer::new(1, 0).list(11, 0).bytes, 8, "tag 11"),
        (Writer::new(1, 0).list(0, 1).bytes, 8, "tag 0 and count 1"),
        (Writer::new(1, 0).list(10, 9999).bytes, 8, "9999 dimensions"),
        (Writer::new(5, 0).list(10, 1 << 63).bytes, 16, "negative"),
        (Writer::new(5, 1 << 63).list(0, 0).bytes, 4, "negative"),
        (
            Writer::new(1, 0).list(10, 1).dimension("", 5).bytes,
            16,
            "name",
        ),
        (
            Writer::new(1, 0).list(10, 1).dimension("a\0b", 5).bytes,
            16,
            "name",
        ),
        (
            Writer::new(1, 0).list(10, 1).count(1 << 31).bytes,
            20,
            "complete",
        ),
        (
            Writer::new(1, 0)
                .list(10, 2)
                .dimension("t", 0)
                .dimension("s", 0)
                .bytes,
            36,
            "second record dimension",
        ),
        (
            Writer::new(1, 0)
                .list(10, 2)
                .dimension("x", 2)
                .dimension("x", 3)
                .bytes,
            28,
            "second dimension \"x\"",
        ),
        (
            one(1)
                .list(12, 2)
                .attribute("a", 4, 0, b"")
                .attribute("a", 2, 0, b"")
                .bytes,
            52,
            "second attribute",
        ),
        (
            one(5).list(12, 1).attribute("a", 6, 1 << 61, b"").bytes,
            72,
            "values",
        ),
        (
            one(1).list(12, 1).attribute("a", 12, 1, b"....").bytes,
            44,
            "unknown type 12",
        ),
        (
            one(1).list(12, 1).attribute("a", 0, 1, b"....").bytes,
            44,
            "unknown type 0",
        ),
        (
            one(2).list(12, 1).attribute("a", 7, 1, b"....").bytes,
            44,
            "CDF-5 only",
        ),
        (
            two(1)
                .list(11, 2)
                .variable("v", &[])
                .bare(4, 9)
                .variable("v", &[])
                .bare(4, 9)
                .bytes,
            88,
            "second variable",
        ),
        (
            two(1).list(11, 1).variable("v", &[2]).bytes,
            68,
            "dimension 2 of 2",
        ),
        (
            two(1).list(11, 1).variable("v", &[1, 0]).bytes,
            72,
            "not the first",
        ),
        (
            two(1).list(11, 1).variable("v", &[0, 0]).bytes,
            72,
            "not the first",
        ),
        (
            two(1).list(11, 1).variable("v", &[1; 33]).bytes,
            64,
            "33 dimensions",
        ),
        (
            two(1).list(11, 1).variable("v", &[]).bare(11, 9).bytes,
            76,
            "CDF-5 only",
        ),
        (
            two(1).list(11, 1).variable("v", &[]).bare(4, 1 << 31).bytes,
            84,
            "negative offset",
        ),
        (
            two(2).list(11, 1).variable("v", &[]).bare(4, 1 << 63).bytes,
            84,
            "negative offset",
        ),
        (
            two(1).list(11, 1).variable("v", &[1; 32]).bare(4, 9).bytes,
            56,
            "2^63",
        ),
        (
            two(2)
                .list(11, 1)
                .variable("v", &[])
                .bare(4, i64::MAX as u64)
                .bytes,
            56,
            "2^63",
        ),
    ];
    for (bytes, at, text) in cases {
        let error = read(&bytes).unwrap_err();
        assert!(error.contains(text), "{error}: not {text}");
        assert!(
            error.contains(&format!("byte {at}:")),
            "{error}: not at {at}"
        );
        assert!(error.contains("a.nc"), "{error}");
    }
}

#[test]
fn records_that_cannot_be_added_up_are_refused() {
    let mut wide = Writer::new(5, 0).list(10, 2).dimension("t", 0);
    wide = wide.dimension("x", 1 << 60).list(0, 0).list(11, 8);
    for name in ["a", "b", "c", "d", "e", "f", "g", "h"] {
        wide = wide.variable(name, &[0, 1]).bare(5, 9);
    }
    assert!(read(&wide.bytes).unwrap_err().contains("records of 2^63"));
}

#[test]
fn headers_of_any_reasonable_length_are_read() {
    // The header is longer than one read, in one item and in many items.
    let mut long = Writer::new(2, 0).list(0, 0).list(12, 20_001);
    long = long.attribute("text", 2, 3 << 20, &vec![b'x'; 3 << 20]);
    for number in 0..20_000u32 {
        long = long.attribute(&format!("a{number}"), 4, 1, &number.to_be_bytes());
    }
    let header = read(&long.list(0, 0).bytes).unwrap();
    assert_eq!(header.attributes[0].values.len(), 3 << 20);
    for (number, attribute) in (0u32..).zip(&header.attributes[1..]) {
        assert_eq!(attribute.values, number.to_be_bytes());
    }
}

#[test]
fn headers_without_end_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.nc");
    let begin = Writer::new(2, 0).list(0, 0).list(12, 1).name("a");
    std::fs::write(&path, begin.word(2).count(0xfff0_0000).bytes).unwrap();
    // A hole takes no space.
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    file.set_len(8 << 30).unwrap();
    let (dir, name) = SourceDir::of_file(&path).unwrap();
    let file = SourceFile::open(&dir, &name).unwrap();
    let error = Header::read(&file).unwrap_err().to_string();
    assert!(error.contains("more than 64 MiB"), "{error}");
    assert!(file.bytes_read() < 1 << 20);
}

/// Uses all parts of a header.
fn use_all(header: &Header) {
    let _ = (header.described(), header.record_size());
    let _ = header.records_in(1 << 40);
    for variable in &header.variables {
        let _ = (header.dims(variable), header.bytes(variable));
    }
}

proptest! {
    #[test]
    fn damaged_headers_are_read_or_refused(
        version in prop::sample::select(vec![1u8, 2, 5]),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let mut bytes = sample(version);
        for (at, to) in changes {
            let at = at.index(bytes.len());
            bytes[at] = to;
        }
        if let Ok(header) = read(&bytes) {
            use_all(&header);
        }
    }

    #[test]
    fn any_bytes_are_read_or_refused(
        version in prop::sample::select(vec![1u8, 2, 5]),
        words in prop::collection::vec(prop_oneof![0..16u32, any::<u32>()], 0..60),
    ) {
        let mut bytes = vec![b'C', b'D', b'F', version];
        bytes.extend(words.into_iter().flat_map(u32::to_be_bytes));
        if let Ok(header) = read(&bytes) {
            use_all(&header);
        }
    }
}
