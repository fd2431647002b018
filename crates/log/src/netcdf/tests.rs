//! Tests of logs of all kinds, from their bytes to the elements that a reader sees.

use proptest::prelude::*;

use super::testing::{LogBytes, ShownVariable, rewritten, shown, variable, with_logs};
use super::{Tables, Variable, summarize};
use crate::layout::Layout;
use crate::model::Logged;
use crate::numbers::NumberType;
use h5logfs_common::diagnostic::Severity;
use h5logfs_common::task::Task;

const VARA: i32 = -3;
const VARS: i32 = -4;
const SHORT: i32 = 4;

fn shorts(log: &LogBytes, values: &[i16]) -> Vec<u8> {
    let one = |value: &i16| {
        if log.big_endian {
            value.to_be_bytes()
        } else {
            value.to_le_bytes()
        }
    };
    values.iter().flat_map(one).collect()
}

fn show(master: &[u8], logs: &[LogBytes], variables: &[Variable], dims: &[u64]) -> ShownVariable {
    show_of(5, master, logs, variables, dims)
}

fn show_of(
    version: u8,
    master: &[u8],
    logs: &[LogBytes],
    variables: &[Variable],
    dims: &[u64],
) -> ShownVariable {
    let (_dir, sources, logs) = with_logs(master, logs);
    let tables = Tables {
        version,
        record_size: 4,
        variables: variables.to_vec(),
        logs,
    };
    assert_eq!(tables.check(sources.len()), Ok(()));
    shown(&sources, &tables, 0, dims)
}

fn values(shown: &ShownVariable) -> Vec<i16> {
    assert_eq!((&shown.lost, &shown.diagnostics), (&vec![], &vec![]));
    let numbers = shown.bytes.chunks_exact(2);
    numbers
        .map(|n| i16::from_le_bytes(n.try_into().unwrap()))
        .collect()
}

/// A variable of 3 × 4 shorts that several calls have written to.
#[test]
fn all_calls_in_both_byte_orders() {
    for big_endian in [false, true] {
        let mut log = LogBytes::new(big_endian);
        let payload = shorts(&log, &[1, 2, 3, 4]);
        log.put(VARA, SHORT, 0, 2, &[0, 1, 2, 2, 0, 0], &payload);
        let payload = shorts(&log, &[5, 6, 7, 8]);
        log.put(VARS, SHORT, 0, 2, &[0, 0, 2, 2, 2, 3], &payload);
        // Two elements, and two blocks with an empty one between, at an arbitrary place.
        let payload = shorts(&log, &[9, 10]);
        log.put(2, SHORT, 0, 2, &[1, 0, 1, 3], &payload);
        let payload = shorts(&log, &[11, 12, 13]);
        let words = [2, 1, 99, -7, 1, 2, 1, 2, 0, 1, 1, 1];
        log.put(3, SHORT, 0, 2, &words, &payload);
        log.put(1, SHORT, 0, 2, &[50, 50, 0, 9], &[]);
        let found = show(&[], &[log], &[variable(NumberType::I16, &[3, 4])], &[3, 4]);
        assert_eq!(values(&found), [5, 1, 2, 6, 9, 3, 13, 10, 7, 11, 12, 8]);
    }
}

#[test]
fn scalars_are_one_element() {
    let mut log = LogBytes::new(true);
    let payload = shorts(&log, &[7]);
    log.put(VARA, SHORT, 0, 0, &[], &payload);
    let scalar = variable(NumberType::I16, &[]);
    assert_eq!(
        values(&show(
            &[],
            &[log.clone()],
            std::slice::from_ref(&scalar),
            &[]
        )),
        [7]
    );
    let payload = shorts(&log, &[1, 2, 3]);
    log.put(3, SHORT, 0, 0, &[], &payload);
    assert_eq!(values(&show(&[], &[log], &[scalar], &[])), [3]);
}

#[test]
fn later_logs_override_earlier_ones_and_all_override_the_file() {
    let mut logs = [LogBytes::new(false), LogBytes::new(true)];
    for (log, value) in logs.iter_mut().zip([1, 2]) {
        let payload = shorts(log, &[value; 2]);
        log.put(VARA, SHORT, 0, 1, &[value.into(), 2, 0], &payload);
    }
    let file: Vec<u8> = [0, 0, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77].to_vec();
    let mut fixed = variable(NumberType::I16, &[5]);
    fixed.begin = 2;
    let found = show(&file, &logs, &[fixed], &[5]);
    // The file ends within the fourth element, after its first byte.
    assert_eq!(values(&found), [0x1122, 1, 2, 2, 0]);
}

#[test]
fn records_lie_at_distances_in_the_file() {
    let mut record = variable(NumberType::I16, &[0]);
    record.begin = 3;
    let file: Vec<u8> = (0..12).collect();
    let found = show(&file, &[], &[record.clone()], &[4]);
    assert_eq!(values(&found), [0x0304, 0x0708, 0x0b00, 0]);
    // At most as many records as the header states.
    assert_eq!(values(&show(&file, &[], &[record], &[1])), [0x0304]);
}

#[test]
fn values_are_converted() {
    let mut log = LogBytes::new(false);
    log.put(VARA, 3, 0, 1, &[0, 3, 0], &[1, 127, 200]);
    log.put(VARA, 13, 0, 1, &[3, 1, 0], &(-3i64).to_le_bytes());
    log.put(VARA, 13, 0, 1, &[4, 1, 0], &(-4i32).to_le_bytes());
    log.put(VARA, 9, 0, 1, &[5, 1, 0], &128f64.to_le_bytes());
    let bytes = variable(NumberType::I8, &[6]);
    let of = |version| {
        show_of(
            version,
            &[],
            &[log.clone()],
            std::slice::from_ref(&bytes),
            &[6],
        )
    };
    // CDF-1 and CDF-2 do not convert unsigned bytes.
    for (version, byte) in [(1, 200), (2, 200), (5, 0xee)] {
        let found = of(version);
        assert_eq!(found.bytes, [1, 127, byte, 0xfd, 0xfc, 0xee], "{version}");
        assert_eq!((found.lost.len(), found.diagnostics.len()), (0, 0));
    }
}

/// Each of these entries breaks one rule, so the whole variable cannot be trusted.
#[test]
fn entries_that_break_a_rule_are_faults_of_their_variable() {
    let bend = |bend: &dyn Fn(&mut LogBytes)| {
        let mut log = LogBytes::new(false);
        let payload = shorts(&log, &[1, 2]);
        log.put(VARS, SHORT, 0, 1, &[1, 2, 2], &payload);
        bend(&mut log);
        let variables = [
            variable(NumberType::I16, &[4]),
            variable(NumberType::I16, &[4]),
        ];
        let (_dir, sources, logs) = with_logs(&[], &[log]);
        let tables = Tables {
            version: 5,
            record_size: 0,
            variables: variables.to_vec(),
            logs,
        };
        let other = shown(&sources, &tables, 1, &[4]);
        assert_eq!(other.diagnostics.len(), 0, "{other:?}");
        shown(&sources, &tables, 0, &[4]).diagnostics.join(" and ")
    };
    let word = |n: i64| n.to_le_bytes();
    let int = |n: i32| n.to_le_bytes();
    assert_eq!(bend(&|_| ()), "");
    for (at, number, said) in [
        (12, int(12).to_vec(), "4 bytes for 2 values of type 12"),
        (12, int(0).to_vec(), "of type 0"),
        (12, int(14).to_vec(), "of type 14"),
        (12, int(1).to_vec(), "writes text to a variable of numbers"),
        (12, int(6).to_vec(), "4 bytes for 2 values of type 6"),
        (32, word(5).to_vec(), "5 bytes for 2 values"),
        (32, word(-4).to_vec(), "-4 bytes for 2 values"),
        (40, word(-1).to_vec(), "2 elements from -1"),
        (40, word(2).to_vec(), "in dimension 0, which has 4"),
        (40, word(i64::MAX).to_vec(), "in dimension 0"),
        (48, word(-1).to_vec(), "has a count below 0"),
        (48, word(i64::MAX).to_vec(), "in dimension 0"),
        (56, word(0).to_vec(), "with stride 0"),
        (56, word(i64::MAX).to_vec(), "in dimension 0"),
    ] {
        let fault = bend(&|log| log.bend(at, &number));
        assert!(fault.contains(said), "{at}, {number:?}: {fault}");
        assert!(fault.contains("file1: entry 0 at byte 112: "), "{fault}");
    }
    // The size fits the rank, but the rank does not fit the variable.
    let of_rank_2 = bend(&|log| log.put(VARA, SHORT, 0, 2, &[0, 0, 1, 1, 0, 0], &[1, 2]));
    assert!(
        of_rank_2.contains("entry 1 at byte 176: has rank 2"),
        "{of_rank_2}"
    );
}

#[test]
fn an_unknown_variable_is_a_fault_of_all() {
    for number in [-1, 1] {
        let mut log = LogBytes::new(false);
        log.put(VARA, SHORT, number, 1, &[0, 1, 0], &[1, 2]);
        let found = show(&[], &[log], &[variable(NumberType::I16, &[4])], &[4]);
        assert!(
            found.diagnostics[0].contains("which does not exist"),
            "{found:?}"
        );
    }
}

#[test]
fn payloads_that_cannot_be_had_are_faults_of_their_elements() {
    let mut log = LogBytes::new(false);
    log.put(VARA, SHORT, 0, 1, &[0, 2, 0], &[1, 0, 2, 0]);
    log.put(VARS, SHORT, 0, 1, &[1, 2, 2], &[3, 0, 4, 0]);
    let variables = [variable(NumberType::I16, &[4])];
    let found = show(&[], &[log.clone()], &variables, &[4]);
    assert_eq!(values(&found), [1, 3, 0, 4]);

    let mut cut = log.clone();
    cut.data.pop();
    let found = show(&[], &[cut], &variables, &[4]);
    assert_eq!(found.bytes, [1, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!((found.lost.len(), found.diagnostics.len()), (1, 0));
    let said = "file1: entry 1 at byte 176: its payload ends at 16, past the end of ";
    assert!(found.lost[0].contains(said), "{found:?}");

    for offset in [11i64, 13, 4, -4, i64::MAX] {
        let mut astray = log.clone();
        astray.bend(24, &offset.to_le_bytes());
        let found = show(&[], &[astray], &variables, &[4]);
        assert_eq!(
            (found.lost.len(), found.diagnostics.len()),
            (1, 0),
            "{offset}"
        );
    }

    let (_dir, sources, mut logs) = with_logs(&[], &[log]);
    logs[0].data = None;
    let tables = Tables {
        version: 1,
        record_size: 0,
        variables: variables.to_vec(),
        logs,
    };
    let found = shown(&sources, &tables, 0, &[4]);
    assert_eq!(found.lost.len(), 2);
    assert!(
        found.lost[0].contains("the data log is missing"),
        "{found:?}"
    );
    let lost = summarize(&sources, &tables).unwrap().diagnostics;
    assert_eq!(lost[0].severity, Severity::Lost);
    let said = lost[0].to_string();
    assert!(
        said.contains("missing, with the payloads of 2 entries"),
        "{said}"
    );
}

/// A strided request of few bytes that claims more blocks than any payload has.
#[test]
fn blocks_without_a_payload_are_not_made() {
    let mut log = LogBytes::new(false);
    let many = 1i64 << 40;
    log.put(VARS, SHORT, 0, 1, &[0, many, 2], &[]);
    log.bend(32, &(2 * many).to_le_bytes());
    let (_dir, sources, logs) = with_logs(&[], &[log]);
    let tables = Tables {
        version: 5,
        record_size: 0,
        variables: vec![variable(NumberType::I16, &[1 << 42])],
        logs,
    };
    let table = tables
        .read_tables(&Task::unlimited(), &sources, &[])
        .unwrap();
    let dims = [1 << 42];
    let dataset = Logged {
        id: 0,
        dims: &dims,
        element_size: 2,
        filtered: false,
    };
    let found = table
        .records(&Task::unlimited(), &sources, &dataset, &Default::default())
        .unwrap();
    let mut cells = Vec::new();
    let record = found.records.get(0, &mut cells);
    assert_eq!(
        (record.start, record.count),
        (&[0][..], &[2 * (1 << 40) - 1][..])
    );
    assert!(record.fault.is_some() && found.diagnostics.is_empty());
}

#[test]
fn records_are_counted_and_losses_told() {
    let mut log = LogBytes::new(false);
    log.put(VARA, SHORT, 0, 1, &[3, 2, 0], &[0; 4]);
    log.put(VARS, SHORT, 0, 1, &[1, 3, 4], &[0; 6]);
    // Neither an empty part nor an entry that breaks a rule makes records.
    log.put(2, SHORT, 0, 1, &[99, 2, 0, 1], &[0; 2]);
    log.put(VARA, 12, 0, 1, &[60, 1, 0], &[0; 2]);
    log.put(VARA, SHORT, 1, 1, &[3, 1, 0], &[0; 2]);
    let of = |version, log: &LogBytes, cut: usize| -> (u64, Vec<String>) {
        let (dir, mut sources, logs) = with_logs(&[], &[LogBytes::new(true), log.clone()]);
        let variables = vec![
            variable(NumberType::I16, &[0]),
            variable(NumberType::I16, &[4]),
        ];
        let tables = Tables {
            version,
            record_size: 2,
            variables,
            logs,
        };
        let whole = log.metadata();
        sources[3] = rewritten(&dir, 3, &whole[..whole.len() - cut]);
        let found = summarize(&sources, &tables).unwrap();
        let lost = found.diagnostics.iter();
        let lost = lost.filter(|d| d.severity == Severity::Lost);
        (found.records, lost.map(|d| d.to_string()).collect())
    };
    assert_eq!(of(1, &log, 0), (10, vec![]));
    let mut without = log.clone();
    without.data.truncate(20);
    let notes = of(1, &without, 0).1;
    assert!(
        notes[0].ends_with("payloads of 2 of 5 entries are not in the data log"),
        "{notes:?}"
    );
    let (records, notes) = of(1, &log, 60);
    assert_eq!((records, notes.len()), (10, 1));
    assert!(notes[0].contains("file3: entry 4 at byte 376"), "{notes:?}");
    assert!(
        notes[0].ends_with("the last 1 of 5 entries are lost"),
        "{notes:?}"
    );
    // The file has no room for five entries, however short they are.
    let (records, notes) = of(1, &log, 250);
    assert_eq!((records, notes.len()), (5, 1));
    assert!(notes[0].contains("4 are missing"), "{notes:?}");
    let most = i64::from(u32::MAX) - 1;
    for (version, first, expected) in [
        (1, most - 1, most as u64),
        (2, most, 10),
        (5, most, most as u64 + 1),
        (5, i64::MAX - 1, i64::MAX as u64),
        (5, i64::MAX, 10),
    ] {
        let mut log = log.clone();
        log.put(VARA, SHORT, 0, 1, &[first, 1, 0], &[0; 2]);
        assert_eq!(of(version, &log, 0).0, expected, "{version}, {first}");
    }
}

#[test]
fn single_blocks_may_tile() {
    let mut log = LogBytes::new(true);
    for at in [0, 4, 8] {
        log.put(VARA, SHORT, 0, 1, &[at, 4, 0], &[0; 8]);
        log.put(VARA, SHORT, 1, 1, &[at, 4, 0], &[0; 8]);
    }
    log.put(VARS, SHORT, 1, 1, &[0, 2, 2], &[0; 4]);
    let (_dir, sources, logs) = with_logs(&[], &[log.clone()]);
    let tables = Tables {
        version: 1,
        record_size: 0,
        variables: vec![variable(NumberType::I16, &[12]); 3],
        logs,
    };
    let found = tables.tilings(&sources);
    let tile = |id: i64| found.by_dataset.get(&id)?.tile(&[12]);
    assert_eq!((tile(0), tile(1), tile(2)), (Some(vec![4]), None, None));
    assert!(!found.has_unreadable);
    // An entry past the end of its dimension, and one for a missing variable.
    for (variable, start, tile) in [(1, 10, Some(vec![4])), (3, 0, None)] {
        let mut log = log.clone();
        log.put(VARA, SHORT, variable, 1, &[start, 4, 0], &[0; 8]);
        let (_dir, sources, _) = with_logs(&[], &[log]);
        let found = tables.tilings(&sources);
        let of_first = found.by_dataset.get(&0);
        assert_eq!(of_first.and_then(|tiling| tiling.tile(&[12])), tile);
        assert!(found.has_unreadable);
    }
}

/// A request to a variable of 4 × 5 × 6 shorts: start, count and stride of each dimension.
type Asked = Vec<(i64, i64, i64)>;
const DIMS: [u64; 3] = [4, 5, 6];

fn asked() -> impl Strategy<Value = Asked> {
    let side = |dim: i64| {
        (0..dim, 1..=dim, 1..4i64).prop_map(move |(start, count, stride)| {
            (start, count.min((dim - 1 - start) / stride + 1), stride)
        })
    };
    (side(4), side(5), side(6)).prop_map(|(a, b, c)| vec![a, b, c])
}

/// The elements of a request in order, as positions in the variable.
fn places(asked: &Asked) -> Vec<usize> {
    let mut places = vec![0];
    for ((start, count, stride), dim) in asked.iter().zip(DIMS) {
        let next =
            |at: usize| (0..*count).map(move |k| at * dim as usize + (start + k * stride) as usize);
        places = places.into_iter().flat_map(next).collect();
    }
    places
}

/// Boundary values.
const WORDS: [i64; 10] = [
    -1,
    0,
    1,
    2,
    4,
    1 << 31,
    1 << 32,
    1 << 62,
    i64::MAX,
    i64::MIN,
];

proptest! {
    #[test]
    fn agrees_with_a_model(
        writes in prop::collection::vec((prop::collection::vec(asked(), 1..4), 0..4), 0..12),
        big_endian: bool,
    ) {
        let mut log = LogBytes::new(big_endian);
        let (mut model, mut next) = (vec![0i16; 120], 1i16);
        for (mut parts, call) in writes {
            let is_vars = call == 1;
            if call < 2 {
                parts.truncate(1);
            }
            for (_, count, stride) in parts.iter_mut().flatten() {
                *stride = if is_vars { *stride } else { 1 };
                *count = if call == 3 { 1 } else { *count };
            }
            let mut values = Vec::new();
            for place in parts.iter().flat_map(places) {
                model[place] = next;
                values.push(next);
                next += 1;
            }
            let starts = parts.iter().flatten().map(|side| side.0);
            let counts = parts.iter().flatten().map(|side| side.1);
            let strides = parts.iter().flatten().map(|side| if is_vars { side.2 } else { 0 });
            let (call, words): (i32, Vec<i64>) = match call {
                0 => (VARA, starts.chain(counts).chain(strides).collect()),
                1 => (VARS, starts.chain(counts).chain(strides).collect()),
                2 => (parts.len() as i32, starts.chain(counts).collect()),
                _ => (parts.len() as i32, starts.collect()),
            };
            let payload = shorts(&log, &values);
            log.put(call, SHORT, 0, 3, &words, &payload);
        }
        let found = show(&[], &[log], &[variable(NumberType::I16, &DIMS)], &DIMS);
        prop_assert_eq!(values(&found), model);
    }

    /// The records of any metadata log stay within the variable and the data log, whatever its bytes are.
    #[test]
    fn damaged_logs_stay_within_bounds(
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        words in prop::collection::vec((0..5usize, 0..9usize, prop::sample::select(&WORDS[..])), 0..3),
        big_endian: bool,
    ) {
        let mut log = LogBytes::new(big_endian);
        log.put(VARA, SHORT, 0, 2, &[0, 1, 2, 2, 0, 0], &[0; 8]);
        log.put(VARS, 6, 1, 1, &[1, 3, 4], &[0; 12]);
        log.put(2, 13, 1, 1, &[5, 7, 2, 0], &[0; 8]);
        log.put(2, SHORT, 0, 2, &[0, 1, 2, 3], &[0; 4]);
        log.put(VARS, 9, 2, 0, &[], &[0; 8]);
        for (number, at, word) in words {
            let bytes = log.word(word);
            if let Some(there) = log.entries[number].get_mut(8 * at..8 * at + 8) {
                there.copy_from_slice(&bytes);
            }
        }
        let (dir, mut sources, logs) = with_logs(&[0; 64], &[log.clone()]);
        let mut bytes = log.metadata();
        for (at, byte) in damage {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        sources[1] = rewritten(&dir, 1, &bytes);
        let variables = vec![
            variable(NumberType::I16, &[3, 4]),
            variable(NumberType::I32, &[0]),
            variable(NumberType::F64, &[]),
        ];
        let tables = Tables {
            version: 2,
            record_size: 4,
            variables,
            logs,
        };
        let table = tables.read_tables(&Task::unlimited(), &sources, &[]).unwrap();
        let _ = tables.tilings(&sources);
        let records = summarize(&sources, &tables).map_or(10, |found| found.records);
        prop_assert!(records < u64::from(u32::MAX));
        for (id, variable) in tables.variables.iter().enumerate() {
            let mut dims = variable.dims.clone();
            if variable.is_record {
                dims[0] = records;
            }
            let dataset = Logged {
                id: id as i64,
                dims: &dims,
                element_size: variable.kind.size() as u64,
                filtered: false,
            };
            let found = table.records(&Task::unlimited(), &sources, &dataset, &Default::default()).unwrap();
            let mut cells = Vec::new();
            for number in 0..found.records.len() {
                let record = found.records.get(number, &mut cells);
                let bounds = record.bounds();
                prop_assert!(bounds.end.iter().zip(&dims).all(|(end, dim)| end <= dim));
                let end = record.stored.offset.saturating_add(record.stored.len);
                prop_assert!(record.fault.is_some() || end <= log.data.len() as u64);
                let element = record.conversion.map_or(dataset.element_size, |c| c.stored_size() as u64);
                prop_assert_eq!(record.elements() * element, record.stored.len);
            }
        }
    }
}
