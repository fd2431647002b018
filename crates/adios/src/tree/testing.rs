//! Steps made by hand, and trees as lines of text.

use super::{Content, Loss, Presence, Summary, Tree};
use crate::model::{Attribute, Block, File, Kind, Place, Step, Type, Value, Variable};

/// A variable whose only block is all of it.
pub fn variable(name: &str, kind: Kind, ty: Type, shape: &[u64]) -> Variable {
    let rank = if kind == Kind::LocalValue {
        0
    } else {
        shape.len()
    };
    Variable {
        name: name.into(),
        kind,
        ty,
        shape: shape.to_vec(),
        rank,
        blocks: vec![block(0)],
        starts: vec![0; rank],
        counts: shape[..rank].to_vec(),
        texts: Vec::new(),
    }
}

pub fn global(name: &str, shape: &[u64]) -> Variable {
    variable(name, Kind::GlobalArray, Type::F64, shape)
}

pub fn value(name: &str) -> Variable {
    variable(name, Kind::GlobalValue, Type::I32, &[])
}

/// A one-dimensional local array with blocks of these numbers of elements.
pub fn local(name: &str, counts: &[u64]) -> Variable {
    Variable {
        rank: 1,
        blocks: vec![block(0); counts.len()],
        starts: vec![0; counts.len()],
        counts: counts.to_vec(),
        ..variable(name, Kind::LocalArray, Type::I16, &[])
    }
}

pub fn texts(name: &str, kind: Kind, texts: &[&str]) -> Variable {
    let shape = [texts.len() as u64];
    let shape = if kind == Kind::GlobalValue {
        &[][..]
    } else {
        &shape
    };
    Variable {
        texts: texts.iter().map(|text| (*text).to_owned()).collect(),
        ..variable(name, kind, Type::Text, shape)
    }
}

/// The variable with bytes that [`tree_of`] treats as lost.
pub fn missing(variable: Variable) -> Variable {
    Variable {
        blocks: vec![block(u64::MAX)],
        ..variable
    }
}

/// The variable with two blocks. [`tree_of`] treats the bytes of the second one as lost.
pub fn half_missing(variable: Variable) -> Variable {
    let of = |numbers: &[u64]| [numbers, numbers].concat();
    Variable {
        blocks: vec![block(0), block(u64::MAX)],
        starts: of(&variable.starts),
        counts: of(&variable.counts),
        ..variable
    }
}

/// The variable with bytes that [`tree_of`] treats as still to come.
pub fn awaited(variable: Variable) -> Variable {
    Variable {
        blocks: vec![block(AWAITED)],
        ..variable
    }
}

/// The offset of bytes that are still to come.
const AWAITED: u64 = 1 << 40;

fn block(offset: u64) -> Block {
    let file = File::Data(0);
    Block {
        writer: 0,
        place: Place {
            file,
            offset,
            len: 8,
        },
        has_operator: false,
    }
}

pub fn text(name: &str, value: &str) -> Attribute {
    let value = Value::Text(value.to_owned());
    let name = name.to_owned();
    Attribute { name, value }
}

/// An attribute of one `uint64`.
pub fn number(name: &str, value: u64) -> Attribute {
    let bytes = value.to_le_bytes().to_vec();
    let name = name.to_owned();
    Attribute {
        name,
        value: Value::Numbers {
            ty: Type::U64,
            is_single: true,
            bytes,
        },
    }
}

pub fn step(variables: Vec<Variable>) -> Step {
    with_attributes(variables, Vec::new())
}

pub fn with_attributes(variables: Vec<Variable>, attributes: Vec<Attribute>) -> Step {
    Step {
        variables,
        attributes,
        problems: Vec::new(),
    }
}

pub fn tree_of(steps: &[Step]) -> Tree {
    tree(steps, false)
}

pub fn flattened(steps: &[Step]) -> Tree {
    tree(steps, true)
}

fn tree(steps: &[Step], is_flattened: bool) -> Tree {
    let mut summary = Summary::new(false, is_flattened);
    for (number, step) in (0..).zip(steps) {
        summary.add(number, step, &|place| match place.end() {
            None => Presence::Lost(Loss::Cut(100)),
            Some(end) if end > AWAITED => Presence::Awaited,
            Some(_) => Presence::There,
        });
    }
    summary.finish()
}

/// Objects and attributes as lines: `/group`, `/dataset F64[2, 3]`, `/object@attribute=value`. A `*` marks a first
/// dimension that counts steps.
pub fn lines(tree: &Tree) -> Vec<String> {
    let mut lines = Vec::new();
    for object in &tree.objects {
        let path = &object.path;
        lines.push(match &object.dataset {
            None => path.clone(),
            Some(dataset) => {
                let grows = if dataset.has_steps { "*" } else { "" };
                format!("{path} {:?}{:?}{grows}", dataset.ty, dataset.shape)
            }
        });
        let attributes = object.attributes.iter();
        lines.extend(attributes.map(|(name, content)| format!("{path}@{name}={}", shown(content))));
    }
    assert_eq!(lines.remove(0), "/");
    lines
}

fn shown(content: &Content) -> String {
    match content {
        Content::Steps(steps) => format!("{:?}", steps.iter().collect::<Vec<_>>()),
        Content::Boolean(value) => value.to_string(),
        Content::Value(value) => match &**value {
            Value::Text(text) => text.clone(),
            Value::Texts(texts) => format!("{texts:?}"),
            Value::Numbers { bytes, .. } => bytes.first().map_or(String::new(), u8::to_string),
        },
    }
}
