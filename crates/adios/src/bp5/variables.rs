//! The variables of one step, combined from the metadata of every writer (section 3.6).

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::RandomState;

use super::blocks::{Blocks, Writer};
use super::ffs::Id;
use super::fields::{Fields, VariableField};
use super::record::Record;
use crate::Result;
use crate::asked::Asked;
use crate::model::Variable;

/// Collects the variables of one step, writer by writer in the order of ranks.
pub(super) struct Variables<'a> {
    is_column_major: bool,
    asked: Asked<'a>,
    /// The result for each name. It is filled once there are several formats, or a name occurs twice.
    by_name: HashMap<&'a str, Known, RandomState>,
    is_by_name: bool,
    /// The result for each field of each format: a name is looked up once, not once per writer.
    by_format: HashMap<Id, Vec<Option<Known>>>,
    gathered: Vec<Gathered<'a>>,
    problems: Vec<String>,
}

/// The result of looking up a name.
#[derive(Debug, Clone, Copy)]
enum Known {
    NotAsked,
    /// Index among the gathered variables.
    Number(usize),
}

/// A variable, from the writers read so far.
struct Gathered<'a> {
    name: &'a Arc<str>,
    /// The blocks; `None` after a writer has described the variable in a way that cannot be understood.
    blocks: Option<Blocks>,
}

impl<'a> Variables<'a> {
    /// An empty collection. The dimensions of a column-major writer are reversed.
    pub fn new(is_column_major: bool, asked: Asked<'a>) -> Self {
        Variables {
            is_column_major,
            asked,
            by_name: HashMap::default(),
            is_by_name: matches!(asked, Asked::One(_)),
            by_format: HashMap::new(),
            gathered: Vec::new(),
            problems: Vec::new(),
        }
    }

    /// Adds one writer. Fails where the meaning of its record is unknown.
    pub fn add(
        &mut self,
        writer: &Writer<'_>,
        id: &Id,
        fields: &'a Fields,
        record: &Record<'_>,
    ) -> Result<()> {
        let words = record.number(0, fields.bit_words)?;
        let bits = record.target(record.number(0, fields.bits)?, words, 8)?;
        if let Asked::One(name) = self.asked {
            for number in fields.numbers_of(name) {
                let field = &fields.variables[number];
                let word = bits.u64s().nth(number / 64).unwrap_or(0);
                if word >> (number % 64) & 1 != 0
                    && let Known::Number(variable) = self.find(&field.name)
                {
                    self.add_to(variable, writer, fields, field, record);
                }
            }
            return Ok(());
        }
        let known = self.by_format.remove(id);
        let mut known = known.unwrap_or_else(|| {
            self.is_by_name |= !(self.by_format.is_empty() && fields.has_own_names());
            vec![None; fields.variables.len()]
        });
        for (word, bits) in bits.u64s().enumerate() {
            let mut bits = bits;
            while bits != 0 {
                let number = 64 * word + bits.trailing_zeros() as usize;
                bits &= bits - 1;
                let field = fields.variables.get(number);
                let field = field.ok_or_else(|| format!("bit {number} belongs to no variable"))?;
                let known = known[number].get_or_insert_with(|| self.find(&field.name));
                if let Known::Number(variable) = *known {
                    self.add_to(variable, writer, fields, field, record);
                }
            }
        }
        self.by_format.insert(*id, known);
        Ok(())
    }

    fn find(&mut self, name: &'a Arc<str>) -> Known {
        if self.is_by_name {
            if self.by_name.is_empty() {
                let gathered = self.gathered.iter().map(|gathered| &**gathered.name);
                self.by_name.extend(gathered.zip((0..).map(Known::Number)));
            }
            if let Some(known) = self.by_name.get(&**name) {
                return *known;
            }
        }
        let known = if self.asked.has(name) {
            self.gathered.push(Gathered {
                name,
                blocks: Some(Blocks::default()),
            });
            Known::Number(self.gathered.len() - 1)
        } else {
            Known::NotAsked
        };
        if self.is_by_name {
            self.by_name.insert(name, known);
        }
        known
    }

    fn add_to(
        &mut self,
        variable: usize,
        writer: &Writer<'_>,
        fields: &Fields,
        field: &VariableField,
        record: &Record<'_>,
    ) {
        let Gathered { name, blocks } = &mut self.gathered[variable];
        let Some(known) = blocks else {
            return;
        };
        let added = match &field.described {
            Ok(described) => known.add(
                writer,
                fields,
                described,
                record,
                self.is_column_major,
                self.asked.is_outline(),
            ),
            Err(reason) => Err(reason.as_str().into()),
        };
        if let Err(fault) = added {
            let rank = writer.rank;
            self.problems
                .push(format!("variable {name:?} of writer {rank}: {fault}"));
            *blocks = None;
        }
    }

    /// The variables that every writer describes correctly, and the problems of the others.
    pub fn finish(self) -> (Vec<Variable>, Vec<String>) {
        let all = self.gathered.into_iter();
        let whole = all.filter_map(|Gathered { name, blocks }| blocks?.finish(name));
        (whole.collect(), self.problems)
    }
}
