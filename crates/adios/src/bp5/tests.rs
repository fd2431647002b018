use proptest::prelude::*;

use super::testing::{self, Array, Content, Directory, Put, Struct, Writer};
use crate::directory::{self, Needed};
use crate::model::{Attribute, Block, File, Kind, Place, Step, Type, Value, Variable};
use crate::tree::{Loss, Presence, Summary};

fn open(written: &Directory) -> crate::Result<directory::Directory> {
    directory::Directory::open(written.files())
}

/// All steps of the directory.
fn steps(written: &Directory) -> Vec<Step> {
    let read = open(written).unwrap();
    let step = |step| read.step(written.files(), step, &|_| true).unwrap();
    (0..read.steps()).map(step).collect()
}

/// Bytes in hexadecimal. `*n` repeats the byte before it, `n` in all.
fn bytes(text: &str) -> Vec<u8> {
    let mut all = Vec::new();
    for word in text.split_whitespace() {
        match word.strip_prefix('*') {
            Some(times) => {
                let last = *all.last().unwrap();
                all.extend(vec![last; times.parse::<usize>().unwrap() - 1]);
            }
            None => all.push(u8::from_str_radix(word, 16).unwrap()),
        }
    }
    all
}

/// The worked example of section 3.10, byte by byte.
fn example() -> Directory {
    let mut of = Directory::new(false, false);
    of.index.extend(bytes(
        "77  20 00 *7  01 00 *7  01 00 *7  01 00 *7  00 *8
         73  20 00 *7  00 *8  50 01 00 *6  00 *8  00 *8",
    ));
    of.metadata = bytes(
        "48 01 00 *6  d0 00 *7  68 00 *7
         02 00 00 9a 3f 0c 33 cd ce e9 e0 4a  b8 00 *7  00 *4
         01 00 *7  88 00 *7  10 00 *7  00 *40
         01 00 *7  01 00 *7  01 00 *7  90 00 *7  98 00 *7  a0 00 *7  a8 00 *7  b0 00 *7
         07 00 *7  03 00 *7  03 00 *7  03 00 *7  00 *8  00 *8  01 00 00 00 03 00 00 00
         02 00 00 8d 72 b6 d6 7f 54 03 22 61  4a 00 *7  00 *4
         00 *8  00 *8  01 00 *7  20 00 *7  38 00 *7  01 00 *7  40 00 *7
         3e 78 2f 75 00 *4  48 00 *7  6d 00 *7",
    );
    let field = |name: &str, ty: &str, size, offset| (name.into(), ty.into(), size, offset);
    let top = Struct {
        name: "MetaData".into(),
        fields: vec![
            field("BitFieldCount", "integer", 8, 0),
            field("BitField", "integer[BitFieldCount]", 8, 8),
            field("DataBlockSize", "integer", 8, 16),
            field("BPG_4_3_x", "MetaArrayMM4", 0x40, 0x40),
            field("BPg_n", "integer", 2, 0x80),
        ],
        len: 0x82,
    };
    let array = Struct {
        name: "MetaArrayMM4".into(),
        fields: vec![
            field("Dims", "integer", 8, 0),
            field("BlockCount", "integer", 8, 8),
            field("DBCount", "integer", 8, 16),
            field("Shape", "integer[Dims]", 8, 24),
            field("Count", "integer[DBCount]", 8, 32),
            field("Offset", "integer[DBCount]", 8, 40),
            field("DataBlockLocation", "integer[BlockCount]", 8, 48),
            field("MinMax", "char[8][BlockCount]", 1, 56),
        ],
        len: 0x40,
    };
    let id = |text| bytes(text).try_into().unwrap();
    of.format_as(id("02 00 00 9a 3f 0c 33 cd ce e9 e0 4a"), &[top, array]);
    let attributes = testing::attribute_structs();
    of.format_as(id("02 00 00 8d 72 b6 d6 7f 54 03 22 61"), &attributes);
    of
}

#[test]
fn the_worked_example() {
    let example = example();
    assert_eq!((example.index.len(), example.metadata.len()), (146, 336));
    assert_eq!(example.formats.len() % 4, 0);
    let block = |file, offset, len| Block {
        writer: 0,
        place: Place { file, offset, len },
        has_operator: false,
    };
    let x = Variable {
        name: "x".into(),
        kind: Kind::GlobalArray,
        ty: Type::I32,
        shape: vec![3],
        rank: 1,
        blocks: vec![block(File::Data(0), 0, 12)],
        starts: vec![0],
        counts: vec![3],
        texts: Vec::new(),
    };
    let n = Variable {
        name: "n".into(),
        kind: Kind::GlobalValue,
        ty: Type::I16,
        shape: Vec::new(),
        rank: 0,
        blocks: vec![block(File::Metadata, 0xb0, 2)],
        starts: Vec::new(),
        counts: Vec::new(),
        texts: Vec::new(),
    };
    let attribute = Attribute {
        name: "x/u".into(),
        value: Value::Text("m".into()),
    };
    let step = Step {
        variables: vec![x, n],
        attributes: vec![attribute],
        problems: Vec::new(),
    };
    assert_eq!(steps(&example), [step]);
}

#[test]
fn variables_that_nobody_asks_for_are_left_out() {
    let example = example();
    let read = open(&example).unwrap();
    let step = read.step(example.files(), 0, &|name| name == "n").unwrap();
    let names: Vec<_> = step
        .variables
        .iter()
        .map(|variable| &*variable.name)
        .collect();
    assert_eq!(names, ["n"]);
}

#[test]
fn a_step_whose_record_is_damaged_keeps_its_number() {
    let mut of = Directory::new(false, false);
    of.map(&[0]);
    let mut records = Vec::new();
    for number in 0..3 {
        records.push(of.index.len());
        of.step(&[Writer {
            puts: vec![value("v", Kind::GlobalValue, number)],
            ..Writer::default()
        }]);
    }
    let sound = steps(&of);
    of.index[records[1]] = b'x';
    let damaged = steps(&of);
    assert_eq!(damaged.len(), 3);
    assert_eq!((&damaged[0], &damaged[2]), (&sound[0], &sound[2]));
    assert!(damaged[1].variables.is_empty() && damaged[1].problems[0].contains("unknown type"));
    // Other attributes are skipped.
    let mut of = example();
    let sound = steps(&of);
    of.record(b'x', &[7, 7, 7]);
    assert_eq!(steps(&of), sound);
}

fn put(name: &str, kind: Kind, content: Content) -> Put {
    Put {
        name: name.into(),
        kind,
        content,
    }
}

/// A one-dimensional array of bytes whose blocks have a start, a count and a location.
fn array(name: &str, kind: Kind, shape: u64, blocks: &[(u64, u64, u64)]) -> Put {
    let block = |(start, count, location): &(u64, u64, u64)| testing::Block {
        start: vec![*start],
        count: vec![*count],
        location: *location,
        stored: *count,
    };
    let array = Array {
        ty: 5,
        size: 1,
        has_operator: false,
        shape: vec![shape],
        blocks: blocks.iter().map(block).collect(),
    };
    put(name, kind, Content::Array(array))
}

fn value(name: &str, kind: Kind, byte: u8) -> Put {
    put(
        name,
        kind,
        Content::Value {
            ty: 1,
            bytes: vec![byte],
        },
    )
}

fn writer(puts: Vec<Put>) -> Writer {
    Writer {
        puts,
        ..Writer::default()
    }
}

#[test]
fn a_damaged_variable_alone_is_missing() {
    let sound = || value("sound", Kind::LocalValue, 1);
    for (bad, reason) in [
        (
            array("bad", Kind::GlobalArray, 4, &[(0, u64::MAX, 0)]),
            "too large",
        ),
        (
            array("bad", Kind::GlobalArray, 4, &[(u64::MAX, 1, 0)]),
            "too large",
        ),
        (
            array("bad", Kind::GlobalArray, u64::MAX, &[(0, 1, 0)]),
            "not a valid extent",
        ),
        (
            array("bad", Kind::GlobalArray, 4, &[(0, 1, u64::MAX)]),
            "not stored",
        ),
        (
            array("bad", Kind::GlobalArray, 4, &[(0, 4, u64::MAX - 1)]),
            "outside of the writer's data",
        ),
        (
            array("bad", Kind::JoinedArray, 4, &[(0, 1, 0)]),
            "not joined",
        ),
    ] {
        let mut written = Directory::new(false, false);
        written.map(&[0, 0]);
        written.step(&[writer(vec![bad, sound()]), writer(vec![sound()])]);
        let [step] = &steps(&written)[..] else {
            panic!("one step");
        };
        assert_eq!(step.variables.len(), 1);
        assert_eq!(step.variables[0].shape, [2]);
        assert!(step.problems[0].contains(reason), "{:?}", step.problems);
        assert!(step.problems[0].contains("\"bad\" of writer 0"));
    }
}

#[test]
fn writers_that_disagree_about_a_variable() {
    let mut written = Directory::new(false, false);
    written.map(&[0, 0]);
    written.step(&[
        writer(vec![
            value("x", Kind::GlobalValue, 1),
            value("y", Kind::LocalValue, 1),
        ]),
        writer(vec![
            value("x", Kind::LocalValue, 1),
            value("y", Kind::LocalValue, 1),
        ]),
    ]);
    let step = &steps(&written)[0];
    assert_eq!((step.variables.len(), &*step.variables[0].name), (1, "y"));
    assert!(
        step.problems[0].contains("another kind"),
        "{:?}",
        step.problems
    );
}

/// Writers may describe a variable in two formats, in any order of ranks.
#[test]
fn writers_with_the_same_variable_in_two_formats() {
    let x = || value("x", Kind::LocalValue, 1);
    let silent = Writer {
        absent: vec![x()],
        ..Writer::default()
    };
    let mut written = Directory::new(false, false);
    written.map(&[0, 0, 0]);
    written.step(&[
        silent,
        writer(vec![x(), value("y", Kind::LocalValue, 2)]),
        writer(vec![x()]),
    ]);
    let step = &steps(&written)[0];
    let blocks = step.variables.iter();
    let blocks = blocks.map(|variable| (&*variable.name, variable.blocks.len()));
    assert_eq!(blocks.collect::<Vec<_>>(), [("x", 2), ("y", 1)]);
}

#[test]
fn a_record_that_nobody_understands_hides_all_variables_of_the_step() {
    let mut written = Directory::new(false, false);
    written.map(&[0, 0]);
    for _ in 0..2 {
        written.step(&[
            writer(vec![value("x", Kind::LocalValue, 1)]),
            writer(vec![value("x", Kind::LocalValue, 1)]),
        ]);
    }
    // Offset of the id of the second writer's record, in the first step.
    let first = 8 * 5 + 24 + 40;
    written.metadata[first + 3] ^= 1;
    let read = steps(&written);
    assert_eq!((read[0].variables.len(), read[0].problems.len()), (0, 1));
    assert!(read[0].problems[0].starts_with("writer 1: mmd.0 has no format"));
    assert_eq!((read[1].variables.len(), read[1].problems.len()), (1, 0));
}

#[test]
fn what_is_not_complete_ends_the_list_of_steps() {
    let mut written = Directory::new(false, false);
    written.map(&[0]);
    for _ in 0..3 {
        written.step(&[writer(vec![value("x", Kind::GlobalValue, 1)])]);
    }
    let whole = written.clone();
    written.index.pop();
    let read = open(&written).unwrap();
    assert_eq!((read.steps(), read.problems().len()), (2, 1));
    // An active writer has not finished its last record.
    written.index[39] = 1;
    let read = open(&written).unwrap();
    assert_eq!(
        (read.steps(), read.problems().len(), read.is_active()),
        (2, 0, true)
    );

    let mut written = whole;
    written.metadata.pop();
    let read = open(&written).unwrap();
    assert_eq!(read.steps(), 2);
    assert!(read.problems()[0].starts_with("step 2 and those after it"));
}

#[test]
fn steps_after_a_new_writer_map_have_its_writers() {
    let mut written = Directory::new(false, false);
    written.step(&[writer(Vec::new())]);
    for files in [&[7][..], &[7, 9]] {
        written.map(files);
        let block = |at| writer(vec![array("x", Kind::LocalArray, 0, &[(0, 1, at)])]);
        let writers: Vec<_> = (0..files.len()).map(|at| block(at as u64)).collect();
        written.step(&writers);
    }
    assert_eq!(open(&written).unwrap().writers(), 2);
    let read = steps(&written);
    assert_eq!(
        read[0].problems,
        ["md.idx: no writer map comes before the step"]
    );
    let files = |step: &Step| -> Vec<_> {
        let blocks = &step.variables[0].blocks;
        blocks.iter().map(|block| block.place.file).collect()
    };
    assert_eq!(files(&read[1]), [File::Data(7)]);
    assert_eq!(files(&read[2]), [File::Data(7), File::Data(9)]);
}

#[test]
fn a_bad_attribute_alone_is_missing() {
    let attribute =
        |name: &str, ty, len| testing::Attribute::Numbers(name.into(), ty, true, vec![0; len]);
    let mut written = Directory::new(false, false);
    written.map(&[0, 0]);
    let bad = Writer {
        attributes: vec![
            attribute("short", 4, 7),
            attribute("good", 4, 8),
            attribute("strange", 17, 8),
            testing::Attribute::Texts("two".into(), true, vec!["a".into(), "b".into()]),
        ],
        ..Writer::default()
    };
    written.step(&[Writer::default(), bad]);
    let step = &steps(&written)[0];
    assert_eq!(
        (step.attributes.len(), &*step.attributes[0].name),
        (1, "good")
    );
    let named = ["\"short\"", "\"strange\"", "\"two\""];
    for (problem, name) in step.problems.iter().zip(named) {
        let words = format!("writer 1: attribute {name}: ");
        assert!(problem.starts_with(&words), "{problem}");
    }
    assert_eq!(step.problems.len(), named.len());
}

#[test]
fn a_record_that_is_too_long_for_its_step_names_its_writer() {
    let mut written = Directory::new(false, false);
    written.map(&[0, 0]);
    let one = || Writer {
        attributes: vec![testing::Attribute::Numbers("a".into(), 4, true, vec![0; 8])],
        ..writer(vec![value("x", Kind::LocalValue, 1)])
    };
    written.step(&[one(), one()]);
    // The sizes of the records of variables come first, each by writer, then those of attributes.
    for (size, words) in [
        (1, "md.0: writer 1: its record of variables should have "),
        (3, "md.0: writer 1: its record of attributes should have "),
    ] {
        let mut damaged = written.clone();
        damaged.metadata[8 + 8 * size + 5] = 1;
        let step = &steps(&damaged)[0];
        assert!(
            step.problems[0].starts_with(words) && step.problems.len() == 1,
            "{:?}",
            step.problems
        );
    }
}

/// Overlapping arrays would turn a few bytes into any number of blocks.
#[test]
fn fields_that_lie_on_each_other_are_damage() {
    let mut written = Directory::new(false, false);
    written.map(&[0]);
    let blocks = [(0, 1, 0); 40];
    let arrays = |shift| {
        (0..3).map(move |number| array(&format!("x{number}"), Kind::LocalArray, shift, &blocks))
    };
    written.step(&[writer(arrays(0).collect())]);
    assert_eq!(steps(&written)[0].problems, [""; 0]);
    // Every pointer of the second and third array is replaced by that of the first.
    let base = 8 * 3 + 24;
    let first = written.metadata[base + 24..][..56].to_vec();
    for number in 1..3 {
        written.metadata[base + 24 + 56 * number..][..56].copy_from_slice(&first);
    }
    written.metadata[8 * 3 + 12..][..8].copy_from_slice(&1900u64.to_le_bytes());
    let step = &steps(&written)[0];
    assert!(
        step.problems
            .iter()
            .any(|problem| problem.contains("lie on each other")),
        "{step:?}"
    );
}

#[test]
fn hostile_bytes_give_an_answer_or_a_fault() {
    let mut damaged = 0;
    let mut read = |written: &Directory| {
        let Ok(read) = open(written) else {
            return;
        };
        for step in 0..read.steps() {
            let step = read.step(written.files(), step, &|_| true);
            damaged += step.is_ok_and(|step| !step.problems.is_empty()) as usize;
        }
    };
    // The second directory has many formats of the same kind.
    for (sound, files) in [(example(), 3), (random(3, 4, 1).0, 2)] {
        for file in 0..files {
            let mut written = sound.clone();
            let len = written.file(file).len();
            for at in 0..len {
                for mask in [1, 0xff] {
                    written.file(file)[at] ^= mask;
                    read(&written);
                    written.file(file)[at] ^= mask;
                }
            }
            while written.file(file).pop().is_some() {
                read(&written);
            }
        }
    }
    assert!(damaged > 100);
}

/// A random directory of at most `variables` variables and `maps` writer maps, and the steps that it describes.
fn random(seed: u64, variables: u64, maps: u64) -> (Directory, Vec<Step>) {
    let mut dice = Dice(seed);
    let is_column_major = dice.roll(3) == 0;
    let mut written = Directory::new(dice.roll(2) == 1, is_column_major);
    let mut meaning = Vec::new();
    let variables: Vec<_> = (0..1 + dice.roll(variables))
        .map(|number| dice.variable(number))
        .collect();
    for _ in 0..maps {
        let files: Vec<u64> = (0..1 + dice.roll(3)).map(|_| dice.roll(5)).collect();
        written.map(&files);
        for _ in 0..dice.roll(3) {
            let flushes = dice.roll(3);
            let writers: Vec<_> = files
                .iter()
                .map(|_| dice.writer(&variables, flushes))
                .collect();
            written.step(&writers);
            meaning.push(expected(&writers, &files, is_column_major));
        }
    }
    (written, meaning)
}

/// The step that results from the writers' data by the rules of section 3. Values in `md.0` have place 0.
fn expected(writers: &[Writer], files: &[u64], is_column_major: bool) -> Step {
    let mut step = Step::default();
    let row = |row: &[u64]| {
        let mut row = row.to_vec();
        if is_column_major {
            row.reverse();
        }
        row
    };
    for (rank, (writer, file)) in writers.iter().zip(files).enumerate() {
        for put in &writer.puts {
            let mut names = step.variables.iter();
            let known = names.position(|known| *known.name == *put.name);
            let is_known = known.is_some();
            let known = known.unwrap_or_else(|| {
                step.variables.push(declared(put, &row));
                step.variables.len() - 1
            });
            let variable = &mut step.variables[known];
            let block_of = |file, offset, len, has_operator| Block {
                writer: rank as u32,
                place: Place { file, offset, len },
                has_operator,
            };
            let mut value = |len: usize| {
                let value = block_of(File::Metadata, 0, len as u64, false);
                variable.blocks.push(value);
            };
            match &put.content {
                _ if put.kind == Kind::GlobalValue && is_known => {}
                Content::Value { bytes, .. } => value(bytes.len()),
                Content::Text(text) => {
                    value(text.len());
                    variable.texts.push(text.clone());
                }
                Content::Array(array) => {
                    for block in &array.blocks {
                        let count = row(&block.count);
                        let mut start = row(&block.start);
                        if put.kind != Kind::GlobalArray {
                            start.fill(0);
                        }
                        if put.kind == Kind::JoinedArray {
                            let joined = row(&array.shape).iter().position(|n| *n == u64::MAX - 1);
                            let joined = joined.unwrap();
                            start[joined] = variable.shape[joined];
                            variable.shape[joined] += count[joined];
                        }
                        if count.contains(&0) {
                            continue;
                        }
                        let plain = count.iter().product::<u64>() * array.size;
                        let len = if array.has_operator {
                            block.stored
                        } else {
                            plain
                        };
                        let offset = writer.position(block.location);
                        let file = File::Data(*file as u32);
                        let stored = block_of(file, offset, len, array.has_operator);
                        variable.blocks.push(stored);
                        variable.starts.extend(start);
                        variable.counts.extend(count);
                    }
                }
            }
            if put.kind == Kind::LocalValue {
                variable.shape = vec![variable.blocks.len() as u64];
            }
        }
        step.attributes.extend(writer.attributes.iter().map(meant));
    }
    step
}

/// A variable without blocks, from the first writer that has it.
fn declared(put: &Put, row: &dyn Fn(&[u64]) -> Vec<u64>) -> Variable {
    let (ty, shape, rank) = match &put.content {
        Content::Value { ty, .. } => (type_of(*ty), Vec::new(), 0),
        Content::Text(_) => (Type::Text, Vec::new(), 0),
        Content::Array(array) => {
            let mut shape = row(&array.shape);
            let rank = shape.len();
            if put.kind == Kind::LocalArray {
                shape.clear();
            }
            let joined = shape.iter().position(|extent| *extent == u64::MAX - 1);
            if let Some(joined) = joined {
                shape[joined] = 0;
            }
            (type_of(array.ty), shape, rank)
        }
    };
    Variable {
        name: put.name.as_str().into(),
        kind: put.kind,
        ty,
        shape,
        rank,
        blocks: Vec::new(),
        starts: Vec::new(),
        counts: Vec::new(),
        texts: Vec::new(),
    }
}

fn meant(attribute: &testing::Attribute) -> Attribute {
    let (name, value) = match attribute.clone() {
        testing::Attribute::Numbers(name, ty, is_single, bytes) => {
            let ty = type_of(ty);
            let numbers = Value::Numbers {
                ty,
                is_single,
                bytes,
            };
            (name, numbers)
        }
        testing::Attribute::Texts(name, true, texts) => (name, Value::Text(texts[0].clone())),
        testing::Attribute::Texts(name, false, texts) => (name, Value::Texts(texts)),
    };
    Attribute { name, value }
}

const TYPES: [(u32, Type, u64); 6] = [
    (1, Type::I8, 1),
    (6, Type::U16, 2),
    (9, Type::F32, 4),
    (10, Type::F64, 8),
    (11, Type::LongDouble, 16),
    (13, Type::Complex64, 16),
];

fn type_of(number: u32) -> Type {
    let found = TYPES.iter().find(|(known, ..)| *known == number);
    found.unwrap().1.clone()
}

/// Random numbers.
struct Dice(u64);

impl Dice {
    /// A number below `sides`.
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }

    fn bytes(&mut self, len: u64) -> Vec<u8> {
        (0..len).map(|_| self.roll(256) as u8).collect()
    }

    fn text(&mut self) -> String {
        "häßlich"[..[0, 1, 3, 5][self.roll(4) as usize]].into()
    }

    /// A variable without values.
    fn variable(&mut self, number: u64) -> Put {
        let name = format!("v/{}{number}", self.text());
        let (ty, _, size) = &TYPES[self.roll(TYPES.len() as u64) as usize];
        let kinds = [
            Kind::GlobalValue,
            Kind::LocalValue,
            Kind::GlobalArray,
            Kind::LocalArray,
            Kind::JoinedArray,
        ];
        let kind = kinds[self.roll(5) as usize];
        let is_value = matches!(kind, Kind::GlobalValue | Kind::LocalValue);
        let content = match is_value.then(|| self.roll(4)) {
            Some(0) => Content::Text(String::new()),
            Some(_) => Content::Value {
                ty: *ty,
                bytes: vec![0; *size as usize],
            },
            None => Content::Array(Array {
                ty: *ty,
                size: *size,
                has_operator: self.roll(3) == 0,
                shape: vec![9; 1 + self.roll(3) as usize],
                blocks: Vec::new(),
            }),
        };
        put(&name, kind, content)
    }

    fn writer(&mut self, variables: &[Put], flushes: u64) -> Writer {
        let mut writer = Writer {
            flushes: (0..flushes)
                .map(|_| (self.roll(1 << 40), self.roll(900)))
                .collect(),
            last: self.roll(1 << 40),
            ..Writer::default()
        };
        for variable in variables {
            match self.roll(4) {
                0 => writer.absent.push(variable.clone()),
                1 => {}
                _ => {
                    let put = self.values(variable, &writer);
                    writer.puts.push(put);
                }
            }
        }
        for number in 0..self.roll(4) {
            let name = format!("{}{number}", self.text());
            let (ty, _, size) = &TYPES[self.roll(TYPES.len() as u64) as usize];
            let (count, is_single) = (self.roll(3), self.roll(2) == 0);
            let count = if is_single { 1 } else { count };
            writer.attributes.push(match self.roll(2) {
                0 => testing::Attribute::Numbers(name, *ty, is_single, self.bytes(size * count)),
                _ => {
                    let texts = (0..count).map(|_| self.text()).collect();
                    testing::Attribute::Texts(name, is_single, texts)
                }
            });
        }
        // Lists of numbers come before lists of texts.
        writer
            .attributes
            .sort_by_key(|attribute| matches!(attribute, testing::Attribute::Texts(..)));
        writer
    }

    /// A variable with random values.
    fn values(&mut self, variable: &Put, writer: &Writer) -> Put {
        let mut put = variable.clone();
        match &mut put.content {
            Content::Value { bytes, .. } => *bytes = self.bytes(bytes.len() as u64),
            Content::Text(text) => *text = self.text(),
            Content::Array(array) => {
                let rank = array.shape.len();
                array
                    .shape
                    .iter_mut()
                    .for_each(|extent| *extent = self.roll(9));
                if put.kind == Kind::JoinedArray {
                    array.shape[rank / 2] = u64::MAX - 1;
                }
                for _ in 0..self.roll(4) {
                    array.blocks.push(testing::Block {
                        start: (0..rank).map(|_| self.roll(9)).collect(),
                        count: (0..rank).map(|_| self.roll(4)).collect(),
                        location: 0,
                        stored: self.roll(3),
                    });
                }
                for block in &mut array.blocks {
                    let plain = block.count.iter().product::<u64>() * array.size;
                    let len = if array.has_operator {
                        block.stored
                    } else {
                        plain
                    };
                    block.location = writer.location(self.roll(3) as usize, self.roll(99), len);
                }
            }
        }
        put
    }
}

impl Writer {
    /// A location, in the data of the writer, for `len` bytes: in a flush with room for them, or after all flushes.
    fn location(&self, flush: usize, within: u64, len: u64) -> u64 {
        let before = |flush: usize| {
            self.flushes[..flush]
                .iter()
                .map(|(_, size)| size)
                .sum::<u64>()
        };
        match self.flushes.get(flush) {
            Some((_, size)) if len > 0 && within + len <= *size => before(flush) + within,
            _ => before(self.flushes.len()) + within,
        }
    }

    /// The position of a location in the file.
    fn position(&self, mut location: u64) -> u64 {
        for (at, size) in &self.flushes {
            if location < *size {
                return at + location;
            }
            location -= size;
        }
        self.last + location
    }
}

proptest! {
    #[test]
    fn random_directories_mean_what_was_put(seed in any::<u64>()) {
        let (written, expected) = random(seed, 70, 3);
        let mut read = steps(&written);
        for (read, expected) in read.iter_mut().zip(&expected) {
            for (variable, expected) in read.variables.iter_mut().zip(&expected.variables) {
                for (number, block) in variable.blocks.iter_mut().enumerate() {
                    if block.place.file == File::Metadata {
                        let bytes = &written.metadata[block.place.offset as usize..][..block.place.len as usize];
                        if variable.ty == Type::Text {
                            prop_assert_eq!(bytes, expected.texts[number].as_bytes());
                        }
                        block.place.offset = 0;
                    }
                }
            }
        }
        prop_assert_eq!(read, expected);
    }

    #[test]
    fn outlines_decide_the_same_objects(seed in any::<u64>(), end in 0_u64..1 << 40) {
        let (written, _) = random(seed, 70, 3);
        let read = open(&written).unwrap();
        let mut section = Vec::new();
        let mut tree = |is_outline: bool| {
            let mut summary = Summary::new(written.is_big_endian, false);
            for number in 0..read.steps() {
                let presence = |place: &Place| match place.end() {
                    Some(own) if own <= end => Presence::There,
                    _ => Presence::Lost(Loss::Cut(end)),
                };
                let files = written.files();
                if is_outline {
                    let step = read.outline_for(&summary, files, number, &mut section, &presence);
                    match step.unwrap() {
                        Needed::Outline(step) => summary.add_complete(number as u64, &step),
                        Needed::All(step) => summary.add(number as u64, &step, &presence),
                    }
                } else {
                    let step = read.step(files, number, &|_| true);
                    summary.add(number as u64, &step.unwrap(), &presence);
                }
            }
            summary.finish()
        };
        prop_assert_eq!(tree(true), tree(false));
    }
}

/// The real directories have no problem except where they were cut.
#[test]
fn real_directories_have_no_problems() {
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/corpus-adios");
    let mut count = 0;
    for entry in std::fs::read_dir(corpus).unwrap() {
        let path = entry.unwrap().path();
        let Ok(formats) = std::fs::read(path.join("mmd.0")) else {
            continue;
        };
        let read = |name| std::fs::read(path.join(name)).unwrap();
        let written = Directory {
            index: read("md.idx"),
            metadata: read("md.0"),
            formats,
            is_big_endian: false,
        };
        let is_cut = path.ends_with("b5_cut_md.bp");
        let directory = open(&written).unwrap();
        assert_eq!(directory.problems().len(), usize::from(is_cut), "{path:?}");
        for step in steps(&written) {
            assert_eq!(step.problems, [""; 0], "{path:?}");
        }
        count += 1;
    }
    assert!(count > 30);
}
