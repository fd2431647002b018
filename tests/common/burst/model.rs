//! The content of a netCDF file and its logs, computed naively: entries are written into the file's bytes, element by
//! element, in the order in which they apply (section 6).

use super::log::{Entry, Job, Memory, Side, Value, elements};
use super::{Classic, Type, Variable};

/// A value as an element of a variable, in big-endian (2.7).
pub fn convert(value: Value, memory: Memory, (to, version): (Type, u8), fill: &[u8]) -> Vec<u8> {
    let in_range = |real: f64, (least, greatest): (i128, i128)| {
        let is_out = real > greatest as f64 || real < least as f64;
        (!is_out).then(|| to.integer(real.trunc() as i128))
    };
    let converted = match (value, to, to.range()) {
        (Value::Text(code), ..) => Some(vec![code]),
        (Value::Integer(number), Type::Byte, _) if memory == Memory::UChar && version < 5 => {
            Some(vec![number as u8])
        }
        (Value::Integer(number), _, Some((least, greatest))) => (least..=greatest)
            .contains(&number)
            .then(|| to.integer(number)),
        (Value::Integer(number), Type::Float, _) => Some((number as f32).to_be_bytes().to_vec()),
        (Value::Integer(number), ..) => Some((number as f64).to_be_bytes().to_vec()),
        (Value::Single(bits), _, Some(range)) => in_range(f64::from(f32::from_bits(bits)), range),
        (Value::Double(bits), _, Some(range)) => in_range(f64::from_bits(bits), range),
        // NaNs keep every bit.
        (Value::Single(bits), Type::Float, _) => Some(bits.to_be_bytes().to_vec()),
        (Value::Double(bits), Type::Double, _) => Some(bits.to_be_bytes().to_vec()),
        (Value::Single(bits), ..) => {
            let real = f32::from_bits(bits);
            (!real.is_infinite()).then(|| f64::from(real).to_be_bytes().to_vec())
        }
        (Value::Double(bits), ..) => {
            let real = f64::from_bits(bits);
            let fits = real.is_nan() || real.abs() <= f64::from(f32::MAX);
            fits.then(|| (real as f32).to_be_bytes().to_vec())
        }
    };
    converted.unwrap_or_else(|| fill.to_vec())
}

/// The replacement of values that a variable cannot represent, in big-endian.
pub fn fill_of(variable: &Variable) -> Vec<u8> {
    let mut own = variable
        .attributes
        .iter()
        .filter(|a| a.name == "_FillValue");
    own.next()
        .map_or_else(|| variable.kind.default_fill(), |a| a.values.clone())
}

/// The file with everything applied.
#[derive(Debug, Clone)]
pub struct Model {
    pub classic: Classic,
    pub records: u64,
    /// The whole file.
    pub bytes: Vec<u8>,
}

impl Model {
    pub fn of(job: &Job) -> Self {
        let classic = job.classic.clone();
        let records = classic.records.unwrap_or_else(|| {
            let start = classic.first_record().unwrap();
            (job.base.len() as u64).saturating_sub(start) / classic.record_size()
        });
        let mut model = Model {
            classic,
            records,
            bytes: job.base.clone(),
        };
        let mut generations: Vec<_> = job.generations.iter().collect();
        generations.sort_by_key(|g| (std::cmp::Reverse(g.age), g.number));
        for generation in generations {
            for channel in generation.channels() {
                channel.entries.iter().for_each(|entry| model.apply(entry));
            }
        }
        let end = model.classic.end(model.records) as usize;
        model.grow(end);
        let header = model.classic.header(Some(model.records));
        model.bytes[..header.len()].copy_from_slice(&header);
        model
    }

    fn grow(&mut self, len: usize) {
        self.bytes.resize(self.bytes.len().max(len), 0);
    }

    fn apply(&mut self, entry: &Entry) {
        let variable = self.classic.variables[entry.variable].clone();
        let fill = fill_of(&variable);
        let to = (variable.kind, self.classic.version);
        let mut values = entry.values.iter();
        for piece in &entry.pieces {
            for at in places(piece) {
                let value = values.next().unwrap();
                let element = convert(*value, entry.memory, to, &fill);
                let offset = self.classic.offset(&variable, &at) as usize;
                self.grow(offset + element.len());
                self.bytes[offset..offset + element.len()].copy_from_slice(&element);
                if self.classic.is_record(&variable) {
                    self.records = self.records.max(at[0] + 1);
                }
            }
        }
        assert!(values.next().is_none());
    }

    pub fn extent(&self, variable: &Variable) -> Vec<u64> {
        self.classic.extent(variable, self.records)
    }

    /// All elements of a variable in little-endian.
    pub fn contents(&self, variable: &Variable) -> Vec<u8> {
        let extent = self.extent(variable);
        let whole: Vec<Side> = extent.iter().map(|n| (0, *n, 1)).collect();
        let size = variable.kind.size();
        let element = |at: Vec<u64>| {
            let offset = self.classic.offset(variable, &at) as usize;
            self.bytes[offset..offset + size].iter().rev().copied()
        };
        places(&whole).flat_map(element).collect()
    }
}

/// The elements of a piece, in order.
fn places(piece: &[Side]) -> impl Iterator<Item = Vec<u64>> {
    (0..elements(piece)).map(move |mut number| {
        let mut at = vec![0; piece.len()];
        for (at, (start, count, stride)) in at.iter_mut().zip(piece).rev() {
            *at = start + number % count * stride;
            number /= count;
        }
        at
    })
}
