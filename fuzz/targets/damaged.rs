//! Logs with damage in the parts that libhdf5 does not read.

use std::ops::Range;

use super::Seeds;
use super::input::{Input, Output};
use super::reading::read;
use super::samples::{OwnRange, SAMPLES, Scanned};
use super::test_dir::TestDir;
use super::unclosed;

const MOST_EDITS: usize = 64;

/// The input is the number of a sample, whether to correct the checksums, and edits.
pub fn run(bytes: &[u8]) {
    let mut input = Input(bytes);
    let scanned = &SAMPLES[usize::from(input.u8()) % SAMPLES.len()];
    let mend = input.u8() & 1 != 0;
    let edits: Vec<Edit> = Edit::all(input).collect();
    let mut files: Vec<Vec<u8>> = scanned.sample.files.iter().map(|f| f.1.clone()).collect();
    for edit in &edits {
        damage(scanned, &mut files, edit);
    }
    if mend && scanned.sample.name == "unclosed" {
        unclosed::mend_data(&mut files[0]);
        files[1] = unclosed::mend_journal(&files[1]);
    }
    let test_dir = TestDir::new();
    for ((name, _), bytes) in scanned.sample.files.iter().zip(&files) {
        test_dir.write(name, bytes);
    }
    let snapshot = if scanned.own.is_empty() {
        test_dir.scan(scanned.sample.files[0].0)
    } else {
        let mut snapshot = scanned.snapshot.clone();
        test_dir.adopt(&mut snapshot);
        Ok(snapshot)
    };
    let view = snapshot.and_then(|snapshot| test_dir.view(snapshot));
    match view {
        Ok(view) => {
            let all = read(&view);
            assert!(
                all || !edits.is_empty(),
                "{} is not good",
                scanned.sample.name
            );
        }
        Err(e) => assert!(!edits.is_empty(), "{}: {e}", scanned.sample.name),
    }
}

/// Applies an edit at its position in the ranges that libhdf5 does not read.
fn damage(scanned: &Scanned, files: &mut [Vec<u8>], edit: &Edit) {
    let ranges: Vec<OwnRange> = if scanned.own.is_empty() {
        let lens = files.iter().map(|f| f.len() as u64).enumerate();
        lens.map(|(file, len)| OwnRange {
            file,
            offset: 0,
            len,
        })
        .collect()
    } else {
        scanned.own.clone()
    };
    let total: u64 = ranges.iter().map(|range| range.len).sum();
    let mut at = u64::from(edit.at).checked_rem(total).unwrap_or(0);
    for OwnRange { file, offset, len } in ranges {
        if at < len {
            let file = &mut files[file];
            let range = offset as usize..(offset + len).min(file.len() as u64) as usize;
            edit.apply_in(file, range, at as usize);
            return;
        }
        at -= len;
    }
}

/// A change of some bytes.
pub struct Edit {
    at: u32,
    change: Change,
}

enum Change {
    Bytes(Vec<u8>),
    Flip(u8),
    /// Copies bytes from another offset: the offset, and the number of bytes.
    Copy(u32, u8),
    /// The end of the file.
    Cut,
}

/// Numbers at the limits of types and ranges.
const NUMBERS: [i64; 12] = [
    0,
    1,
    -1,
    2,
    i64::MAX,
    i64::MIN,
    i32::MAX as i64,
    i32::MIN as i64,
    1 << 31,
    1 << 32,
    1 << 40,
    u32::MAX as i64,
];

impl Edit {
    pub fn all(mut input: Input<'_>) -> impl Iterator<Item = Edit> {
        let next = move || (!input.0.is_empty()).then(|| Edit::next(&mut input));
        std::iter::from_fn(next).take(MOST_EDITS)
    }

    fn next(input: &mut Input<'_>) -> Edit {
        let kind = input.u8();
        let at = input.u32();
        let mut number = || NUMBERS[usize::from(input.u8()) % NUMBERS.len()];
        let change = match kind % 8 {
            0 => Change::Bytes(vec![input.u8()]),
            1 => Change::Flip(input.u8()),
            2 => Change::Bytes((number() as i32).to_le_bytes().into()),
            3 => Change::Bytes(number().to_le_bytes().into()),
            4 => Change::Bytes(number().to_be_bytes().into()),
            5 => Change::Copy(input.u32(), input.u8()),
            6 => Change::Cut,
            _ => Change::Bytes(input.u64().to_le_bytes().into()),
        };
        Edit { at, change }
    }

    /// Applies the edit to a file.
    pub fn apply(&self, file: &mut Vec<u8>) {
        let len = file.len();
        let at = (self.at as usize).checked_rem(len);
        self.apply_in(file, 0..len, at.unwrap_or(0));
    }

    /// Applies the edit within a range of a file, at the offset `at` of the range. A cut removes everything after it.
    fn apply_in(&self, file: &mut Vec<u8>, range: Range<usize>, at: usize) {
        if let Change::Cut = self.change {
            file.truncate(range.start + at);
            return;
        }
        let Some(part) = file.get_mut(range) else {
            return;
        };
        let (len, at) = (part.len(), at.min(part.len()));
        let put = |part: &mut [u8], bytes: &[u8]| {
            let room = bytes.len().min(len - at);
            part[at..at + room].copy_from_slice(&bytes[..room]);
        };
        match &self.change {
            Change::Bytes(bytes) => put(part, bytes),
            Change::Flip(bit) => part[at..]
                .iter_mut()
                .take(1)
                .for_each(|b| *b ^= 1 << (bit % 8)),
            Change::Copy(from, number) => {
                let from = (*from as usize).checked_rem(len).unwrap_or(0);
                let end = len.min(from + usize::from(*number));
                let bytes = part[from..end].to_vec();
                put(part, &bytes);
            }
            Change::Cut => {}
        }
    }
}

pub fn seeds() -> Seeds {
    let mut seeds = Seeds::new();
    for (number, scanned) in SAMPLES.iter().enumerate() {
        let named = |what: &str| format!("{}-{what}", scanned.sample.name);
        let seed = |mend: usize| Output::default().u8(number).u8(mend);
        seeds.push((named("good"), seed(0).0));
        seeds.push((named("number"), seed(1).put(&[3, 20, 0, 0, 0, 4]).0));
        seeds.push((named("cut"), seed(1).put(&[6, 200, 0, 0, 0]).0));
    }
    seeds
}
