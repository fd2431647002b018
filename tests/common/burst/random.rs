//! Random netCDF files with random logs, equal for equal seeds.

use super::log::{Channel, Entry, Generation, Job, Memory, Request, Side, Value, elements};
use super::{Attribute, Classic, Type, Variable};
use crate::common::numbers::Numbers;

/// Upper bound of the record numbers written.
const RECORDS: u64 = 6;

// --- the netCDF file -----------------------------------------------------------------------------

fn attribute(numbers: &mut Numbers, name: String, version: u8) -> Attribute {
    let kind = numbers.pick(Type::of_version(version));
    let len = numbers.pick(&[0, 1, 1, 2, 3, 5, 9]);
    let values = match kind {
        Type::Char => {
            let texts = ["", "a", "two words", "größer ", "m s-1", "\"quoted\""];
            numbers.pick(&texts).as_bytes().to_vec()
        }
        Type::Float => (0..len)
            .flat_map(|n| (n as f32 - 1.1).to_be_bytes())
            .collect(),
        Type::Double => (0..len)
            .flat_map(|n| (1.0 / (n as f64 + 3.0)).to_be_bytes())
            .collect(),
        _ => numbers.bytes(len * kind.size()),
    };
    Attribute { name, kind, values }
}

fn attributes(numbers: &mut Numbers, version: u8) -> Vec<Attribute> {
    let names = ["long_name", "a1", "größe", "Z"];
    let number = numbers.below(names.len() as u64 + 1) as usize;
    let names = names[..number].iter();
    names
        .map(|name| attribute(numbers, (*name).into(), version))
        .collect()
}

fn classic(numbers: &mut Numbers) -> Classic {
    let version = numbers.pick(&[1, 2, 5]);
    let number = numbers.below(4) as usize;
    let mut dimensions: Vec<(String, u64)> = (0..number)
        .map(|n| {
            (
                format!("{}{n}", ["x", "long dimension ", "é"][n % 3]),
                numbers.within(1, 6),
            )
        })
        .collect();
    let has_records = numbers.below(4) > 0;
    if has_records {
        let at = numbers.below(dimensions.len() as u64 + 1) as usize;
        dimensions.insert(at, ("time".into(), 0));
    }
    let mut classic = Classic {
        version,
        dimensions,
        attributes: attributes(numbers, version),
        variables: Vec::new(),
        records: Some(if has_records { numbers.below(4) } else { 0 }),
    };
    for number in 0..numbers.within(1, 6) as usize {
        let variable = variable(numbers, &classic, number);
        classic.variables.push(variable);
    }
    if numbers.one_in(4) {
        // A single record variable is not padded.
        let mut number = 0;
        let alone = classic.clone();
        classic.variables.retain(|v| {
            number += u32::from(alone.is_record(v));
            !alone.is_record(v) || number == 1
        });
    }
    let gap = numbers.pick(&[0, 4, 100, 512]);
    classic.place(|| if numbers.one_in(2) { gap } else { 0 });
    if classic.first_record().is_none() {
        classic.records = Some(0);
    } else if numbers.one_in(12) {
        classic.records = None;
    }
    classic
}

fn variable(numbers: &mut Numbers, classic: &Classic, number: usize) -> Variable {
    let names = &classic.dimensions;
    let is_record = |n: &usize| names[*n].1 == 0;
    let all = 0..names.len();
    let fixed: Vec<usize> = all.clone().filter(|n| !is_record(n)).collect();
    let mut dimensions: Vec<usize> = all
        .clone()
        .filter(|n| is_record(n) && numbers.one_in(2))
        .collect();
    if !fixed.is_empty() {
        let rank = numbers.below(4);
        dimensions.extend((0..rank).map(|_| numbers.pick(&fixed)));
    }
    // A dimension rarely occurs twice.
    if !numbers.one_in(8) {
        let mut seen = Vec::new();
        dimensions.retain(|n| {
            !seen.contains(n) && {
                seen.push(*n);
                true
            }
        });
    }
    let kind = numbers.pick(Type::of_version(classic.version));
    let mut name = format!("v{number}");
    if !names.is_empty() && numbers.one_in(3) {
        let of = numbers.pick(&all.collect::<Vec<_>>());
        let is_free = classic.variables.iter().all(|v| v.name != names[of].0);
        // A coordinate variable, mostly one-dimensional; rarely a variable that only has such a name.
        if is_free && !numbers.one_in(6) {
            (name, dimensions) = (names[of].0.clone(), vec![of]);
        } else if is_free {
            name = names[of].0.clone();
        }
    }
    let mut attributes = attributes(numbers, classic.version);
    if kind != Type::Char && numbers.one_in(3) {
        let values = match kind {
            Type::Float => (-99.5_f32).to_be_bytes().to_vec(),
            Type::Double => 1e30_f64.to_be_bytes().to_vec(),
            _ => numbers.bytes(kind.size()),
        };
        let name = "_FillValue".into();
        attributes.insert(0, Attribute { name, kind, values });
    }
    Variable {
        name,
        dimensions,
        attributes,
        kind,
        begin: 0,
    }
}

/// A netCDF file as a program may leave it: complete, truncated, only a header, or with more records than the header
/// says.
fn base(numbers: &mut Numbers, classic: &Classic) -> Vec<u8> {
    let mut bytes = classic.header(classic.records);
    let header = bytes.len() as u64;
    let records = classic.records.unwrap_or(3);
    let end = classic.end(records);
    let end = match numbers.below(4) {
        0 => end,
        1 => numbers.within(header, end),
        2 => header,
        _ => classic.end(records + 2),
    };
    // Bytes between variables are unused.
    let more = end.saturating_sub(header) as usize;
    let more = numbers.bytes(more);
    bytes.extend(more);
    bytes
}

// --- its logs ------------------------------------------------------------------------------------

/// A value in memory whose conversion the format page defines.
fn value(numbers: &mut Numbers, memory: Memory, to: Type) -> Value {
    if memory == Memory::Text {
        return Value::Text(numbers.next() as u8);
    }
    if let Some((least, greatest)) = memory.range() {
        let others = [i128::from(numbers.next() as i8), least, greatest];
        // Values at the limits of other types, and beyond them.
        let (low, high) = numbers
            .pick(Type::of_version(5))
            .range()
            .unwrap_or((0, 1 << 24));
        let edges = [
            low - 1,
            low,
            high,
            high + 1,
            i128::from(numbers.next() as i64),
        ];
        let number = numbers.pick(&[&others[..], &others, &edges].concat());
        return Value::Integer(number.clamp(least, greatest));
    }
    let real = real(numbers, to);
    match memory {
        Memory::Float if to == Type::Float && real.is_nan() => {
            Value::Single(0x7fc0_0000 | numbers.next() as u32)
        }
        Memory::Float => Value::Single((real as f32).to_bits()),
        _ if to == Type::Double && real.is_nan() => Value::Double(0x7ff8 << 48 | numbers.next()),
        _ => Value::Double(real.to_bits()),
    }
}

fn real(numbers: &mut Numbers, to: Type) -> f64 {
    let small = f64::from(numbers.next() as i16) / 8.0;
    let specials = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY];
    let others = [
        -0.0,
        5e-324,
        1e-40,
        1e30,
        -1e300,
        f64::from(f32::MAX),
        3.4028235e38,
        3.5e38,
    ];
    let Some((least, greatest)) = to.range() else {
        return numbers.pick(&[&[small; 6], &specials[..], &others].concat());
    };
    // NaN has no meaning as an integer; nor has a value that only seems to fit 64 bits.
    let edge = numbers.pick(&[least, greatest]) as f64;
    let near = edge + numbers.pick(&[-1.5, -1.0, -0.5, 0.0, 0.5, 1.0, 1.5]);
    let near = if edge.abs() < 1e18 { near } else { edge / 2.0 };
    numbers.pick(&[
        small,
        small,
        near,
        near,
        f64::INFINITY,
        -1e30,
        1e30,
        0.9,
        -0.9,
    ])
}

fn side(numbers: &mut Numbers, len: u64, stride: u64) -> Side {
    let start = numbers.below(len);
    let most = (len - 1 - start) / stride + 1;
    let count = if numbers.one_in(3) {
        most
    } else {
        numbers.within(1, most)
    };
    (start, count, stride)
}

fn entry(numbers: &mut Numbers, classic: &Classic) -> Entry {
    let number = numbers.below(classic.variables.len() as u64) as usize;
    let variable = &classic.variables[number];
    let extent = classic.extent(variable, RECORDS);
    let request = match numbers.below(4) {
        2 => Request::Vars,
        3 if !extent.is_empty() => Request::Varn {
            counted: numbers.below(3) > 0,
        },
        _ => Request::Vara,
    };
    let number_of_pieces = match request {
        Request::Varn { .. } => numbers.within(1, 4),
        _ => 1,
    };
    let piece = |numbers: &mut Numbers| -> Vec<Side> {
        let sides = extent.iter().map(|len| match request {
            Request::Vara | Request::Varn { counted: true } => side(numbers, *len, 1),
            Request::Vars => {
                let stride = numbers.within(1, 4);
                side(numbers, *len, stride)
            }
            Request::Varn { counted: false } => (numbers.below(*len), 1, 1),
        });
        let mut sides: Vec<Side> = sides.collect();
        // No elements, at any place (2.3).
        if request == (Request::Varn { counted: true }) && numbers.one_in(6) {
            let of = numbers.below(sides.len() as u64) as usize;
            sides[of] = (numbers.below(1000), 0, 1);
            if classic.is_record(variable) {
                sides[0].0 = numbers.below(1000);
            }
        }
        sides
    };
    let pieces: Vec<_> = (0..number_of_pieces).map(|_| piece(numbers)).collect();
    let memory = match variable.kind {
        Type::Char => Memory::Text,
        kind if numbers.one_in(2) => same_kind(numbers, kind),
        // The conversion of these types is special.
        Type::Byte if numbers.one_in(3) => Memory::UChar,
        _ if numbers.one_in(3) => numbers.pick(&[Memory::Float, Memory::Double]),
        _ => numbers.pick(&Memory::NUMBERS),
    };
    let total: u64 = pieces.iter().map(|piece| elements(piece)).sum();
    let values = (0..total)
        .map(|_| value(numbers, memory, variable.kind))
        .collect();
    Entry {
        variable: number,
        request,
        pieces,
        memory,
        values,
    }
}

/// The memory type that equals a variable's type.
fn same_kind(numbers: &mut Numbers, kind: Type) -> Memory {
    match kind {
        Type::Byte => Memory::SChar,
        Type::Char => Memory::Text,
        Type::Short => Memory::Short,
        Type::Int => numbers.pick(&[Memory::Int, Memory::ShortLong]),
        Type::Float => Memory::Float,
        Type::Double => Memory::Double,
        Type::UByte => Memory::UChar,
        Type::UShort => Memory::UShort,
        Type::UInt => Memory::UInt,
        Type::Int64 => numbers.pick(&[Memory::LongLong, Memory::Long]),
        Type::UInt64 => Memory::ULongLong,
    }
}

fn entries(numbers: &mut Numbers, classic: &Classic, most: u64) -> Vec<Entry> {
    let number = numbers.below(most + 1);
    (0..number).map(|_| entry(numbers, classic)).collect()
}

/// A channel whose counts are in one of the states of 2.2 and 2.6.
fn channel(numbers: &mut Numbers, classic: &Classic, rank: u64) -> Channel {
    let mut channel = Channel::new(rank, entries(numbers, classic, 6));
    match numbers.below(8) {
        0 => channel.uncounted = vec![entry(numbers, classic)],
        1 => {
            channel.uncounted = vec![entry(numbers, classic)];
            // An entry has at least 40 bytes.
            channel.torn = numbers.within(1, 39);
        }
        2 => channel.stale = entries(numbers, classic, 9),
        3 => {
            channel.entries.clear();
            channel.fresh = true;
            channel.stale = if numbers.one_in(2) {
                entries(numbers, classic, 4)
            } else {
                Vec::new()
            };
        }
        4 => channel.redefined = true,
        _ => {}
    }
    channel
}

/// A job with at least one generation of logs.
pub fn job(numbers: &mut Numbers) -> Job {
    let classic = classic(numbers);
    let base = base(numbers, &classic);
    let number = numbers.within(1, 3);
    // Later generations may be older. Those of equal age apply by number.
    let generations = (0..number).map(|n| {
        let ranks = numbers.within(1, 4);
        let mut nodes: Vec<Vec<Channel>> = Vec::new();
        let are_shared = numbers.one_in(4);
        for rank in 0..ranks {
            let channel = channel(numbers, &classic, rank);
            match nodes.last_mut() {
                Some(node) if are_shared && numbers.below(3) > 0 => node.push(channel),
                _ => nodes.push(vec![channel]),
            }
        }
        Generation {
            number: n as u32,
            age: 1000 * numbers.within(1, 3),
            big_endian: numbers.one_in(3),
            nodes,
        }
    });
    let generations = generations.collect();
    Job {
        classic,
        base,
        generations,
    }
}
