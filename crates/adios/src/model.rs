//! The content of a step of either version, as plain data.
//!
//! Dimensions are in the order of a row-major reader. The dimensions of a column-major writer are reversed, which
//! leaves the bytes of its blocks unchanged.

use std::sync::Arc;

/// A step: everything that all writers put between BeginStep and EndStep.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Step {
    /// Variables present in the step, in the order of the metadata. Names are unique.
    pub variables: Vec<Variable>,
    /// Attributes that are new or changed in this step, in the order of writing. Where a name occurs again, the later
    /// value counts.
    pub attributes: Vec<Attribute>,
    /// Problems of the step's metadata. A text names the writer or the variable, and the reason. The variables
    /// concerned are not in `variables`.
    pub problems: Vec<String>,
}

/// A variable in one step.
#[derive(Debug, Clone, PartialEq)]
pub struct Variable {
    /// The full name as the writer gave it.
    pub name: Arc<str>,
    /// How the blocks make up the variable.
    pub kind: Kind,
    /// Element type.
    pub ty: Type,
    /// Extents of a global or joined array. The number of values for local values. Empty for a global value and for
    /// local arrays.
    pub shape: Vec<u64>,
    /// Number of dimensions of the blocks; 0 for values.
    pub rank: usize,
    /// Blocks in the order in which they apply: by writer, then in the order of its puts. Blocks without elements are
    /// left out. A global value has one block. In an outline, one block may stand for all blocks of a writer, up to
    /// their last end.
    pub blocks: Vec<Block>,
    /// Start of each block: `rank` numbers a block, 0 for local arrays. For a joined array, the start in the whole
    /// array. Empty in an outline.
    pub starts: Vec<u64>,
    /// Extents of each block: `rank` numbers a block. An outline has those of local arrays only.
    pub counts: Vec<u64>,
    /// The text of each block, if the type is [`Type::Text`].
    pub texts: Vec<String>,
}

/// How the blocks of a variable make up the whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// One value for all writers.
    GlobalValue,
    /// Blocks placed in one array.
    GlobalArray,
    /// One value per writer, in the order of ranks.
    LocalValue,
    /// Blocks without a common array.
    LocalArray,
    /// Blocks concatenated along one dimension.
    JoinedArray,
}

/// A stored block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Block {
    /// The rank that wrote the block; 0 for BP4, which does not record it.
    pub writer: u32,
    /// Place of the bytes.
    pub place: Place,
    /// The stored bytes are the output of an operator (section 5), not the elements.
    pub has_operator: bool,
}

/// A range of bytes in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The file.
    pub file: File,
    /// Offset of the first byte.
    pub offset: u64,
    /// Number of stored bytes.
    pub len: u64,
}

/// A file of the directory that holds elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum File {
    /// `md.0`, whose metadata include values.
    Metadata,
    /// `data.N`.
    Data(u32),
}

/// The name of the file in its directory (section 1).
impl std::fmt::Display for File {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            File::Metadata => f.write_str("md.0"),
            File::Data(number) => write!(f, "data.{number}"),
        }
    }
}

/// Element type, in the byte order of the directory.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Type {
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    F32,
    F64,
    /// An x87 float of 80 bits in 16 bytes.
    LongDouble,
    /// Real and imaginary part, each `F32`.
    Complex32,
    /// Real and imaginary part, each `F64`.
    Complex64,
    /// Text of any length.
    Text,
    /// A character, stored as a signed byte.
    Char,
    /// A struct with members at the offsets of the writer's memory.
    Struct(Arc<StructType>),
}

/// A type of several members.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct StructType {
    /// Bytes from one element to the next.
    pub size: u32,
    /// Members in the order of the writer.
    pub members: Vec<Member>,
}

/// A member of a [`StructType`].
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Member {
    /// Name of the member.
    pub name: String,
    /// Offset in an element.
    pub offset: u32,
    /// Type of the member, not a text or struct.
    pub ty: Type,
    /// Length of an array member; `None` for a single value.
    pub count: Option<u32>,
}

/// An attribute, as one step sets it.
#[derive(Debug, Clone, PartialEq)]
pub struct Attribute {
    /// The full name as the writer gave it.
    pub name: String,
    /// Its value.
    pub value: Value,
}

/// The value of an attribute.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// Numbers, or structs of two for complex numbers, in the byte order of the directory.
    Numbers {
        /// Type of each value, not a text or struct.
        ty: Type,
        /// A single value, not an array of one.
        is_single: bool,
        /// The values, one after the other.
        bytes: Vec<u8>,
    },
    /// A single text.
    Text(String),
    /// An array of texts.
    Texts(Vec<String>),
}

impl Type {
    /// Bytes of an element; 0 for text, whose length varies.
    pub fn size(&self) -> u64 {
        match self {
            Type::I8 | Type::U8 | Type::Char => 1,
            Type::I16 | Type::U16 => 2,
            Type::I32 | Type::U32 | Type::F32 => 4,
            Type::I64 | Type::U64 | Type::F64 | Type::Complex32 => 8,
            Type::LongDouble | Type::Complex64 => 16,
            Type::Text => 0,
            Type::Struct(of) => u64::from(of.size),
        }
    }

    /// Bytes of a dataset's element of this type, without padding after a struct.
    pub fn shown_size(&self) -> u64 {
        match self {
            Type::Struct(of) => of.value_size(),
            other => other.size(),
        }
    }
}

impl StructType {
    /// Bytes of an element up to the end of its last member. The rest is padding of the compiler.
    pub fn value_size(&self) -> u64 {
        let ends = self.members.iter().map(Member::end);
        ends.max().unwrap_or(0).min(self.size.into())
    }
}

impl Member {
    /// Offset of the end in an element.
    fn end(&self) -> u64 {
        let len = self
            .ty
            .size()
            .saturating_mul(self.count.unwrap_or(1).into());
        len.saturating_add(self.offset.into())
    }
}

impl Place {
    /// Offset of the end; `None` where it overflows.
    pub fn end(&self) -> Option<u64> {
        self.offset.checked_add(self.len)
    }
}

impl Step {
    /// Memory held, in bytes: about as much for short texts.
    pub fn bytes(&self) -> u64 {
        let texts = |texts: &[String]| -> usize {
            let each = texts.iter().map(|text| size_of::<String>() + text.len());
            each.sum()
        };
        let variables = self.variables.iter().map(|variable| {
            size_of::<Variable>()
                + variable.name.len()
                + variable.blocks.capacity() * size_of::<Block>()
                + (variable.shape.len() + variable.starts.capacity() + variable.counts.capacity())
                    * size_of::<u64>()
                + texts(&variable.texts)
        });
        let attributes = self.attributes.iter().map(|attribute| {
            let value = match &attribute.value {
                Value::Numbers { bytes, .. } => bytes.capacity(),
                Value::Text(text) => text.len(),
                Value::Texts(all) => texts(all),
            };
            size_of::<Attribute>() + attribute.name.len() + value
        });
        let bytes = variables.chain(attributes).sum::<usize>() + texts(&self.problems);
        bytes as u64
    }
}

impl Variable {
    /// Start of a block.
    pub fn start(&self, block: usize) -> &[u64] {
        &self.starts[block * self.rank..][..self.rank]
    }

    /// Extents of a block.
    pub fn count(&self, block: usize) -> &[u64] {
        &self.counts[block * self.rank..][..self.rank]
    }
}
