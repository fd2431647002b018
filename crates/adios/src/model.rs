//! What a step of either version holds, as plain data.
//!
//! Dimensions are in the order of a row-major reader: those of a column-major writer are reversed already, and the bytes of
//! its blocks are the same.

use std::sync::Arc;

/// What the processes that wrote put into one step: one pair of BeginStep and EndStep.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Step {
    /// Those that are present, in the order in which the metadata names them; each name once.
    pub variables: Vec<Variable>,
    /// Those that are new or have changed in this step, in the order in which they were written. The same name may come
    /// again: the later value counts.
    pub attributes: Vec<Attribute>,
    /// What is wrong with the metadata of the step: a text names the writer or the variable, and the reason. Variables that it
    /// concerns are not in `variables`.
    pub problems: Vec<String>,
}

/// One variable in one step.
#[derive(Debug, Clone, PartialEq)]
pub struct Variable {
    /// The whole name, as the writer gave it.
    pub name: Arc<str>,
    /// How its blocks make it up.
    pub kind: Kind,
    /// Type of its elements.
    pub ty: Type,
    /// Extent of a global or joined array; of local values the number of those that there are; empty for a global value and for
    /// local arrays.
    pub shape: Vec<u64>,
    /// Number of dimensions of its blocks: 0 for values.
    pub rank: usize,
    /// In the order in which they apply: by writer, then in the order of its puts. Blocks without elements are left out. A
    /// global value has one. In an outline all blocks of a writer may be one, which has the bytes until their last end.
    pub blocks: Vec<Block>,
    /// Where each block begins: `rank` numbers a block, 0 for local arrays. Blocks of joined arrays have their place in the whole.
    /// None in an outline.
    pub starts: Vec<u64>,
    /// How many elements each block has along each dimension: `rank` numbers a block. In an outline only those of local arrays.
    pub counts: Vec<u64>,
    /// Of type [`Type::Text`]: the text of each block.
    pub texts: Vec<String>,
}

/// How the blocks of a variable make it up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// One value for all writers.
    GlobalValue,
    /// Blocks with a place each in one array.
    GlobalArray,
    /// A value for each writer that has it, in the order of ranks.
    LocalValue,
    /// Blocks without a place.
    LocalArray,
    /// Blocks that follow each other along one dimension.
    JoinedArray,
}

/// One block, as it is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Block {
    /// The rank that wrote it; 0 in BP4, whose metadata do not tell.
    pub writer: u32,
    /// Where its bytes are.
    pub place: Place,
    /// The bytes that are stored there are those of an operator (section 5): not the elements themselves.
    pub has_operator: bool,
}

/// Where bytes are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Which file.
    pub file: File,
    /// Where they begin.
    pub offset: u64,
    /// How many are stored.
    pub len: u64,
}

/// A file of the directory that has bytes of elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum File {
    /// `md.0`: values lie in the metadata.
    Metadata,
    /// `data.N`.
    Data(u32),
}

/// Type of elements, in the byte order of the directory.
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
    /// 80 bits of an x87 in 16 bytes.
    LongDouble,
    /// Real part, imaginary part: `F32` each.
    Complex32,
    /// Real part, imaginary part: `F64` each.
    Complex64,
    /// Text of any length.
    Text,
    /// A character, which is a signed byte.
    Char,
    /// Members at offsets of the writer's memory.
    Struct(Arc<StructType>),
}

/// A type of several members.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct StructType {
    /// Bytes from one element to the next.
    pub size: u32,
    /// In the order of the writer.
    pub members: Vec<Member>,
}

/// A member of a [`StructType`].
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Member {
    /// Its name.
    pub name: String,
    /// Where it begins in an element.
    pub offset: u32,
    /// No text and no struct.
    pub ty: Type,
    /// Elements of an array in place; `None` for a single one.
    pub count: Option<u32>,
}

/// An attribute, as one step sets it.
#[derive(Debug, Clone, PartialEq)]
pub struct Attribute {
    /// The whole name, as the writer gave it.
    pub name: String,
    /// Its value.
    pub value: Value,
}

/// The value of an attribute.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// Numbers, or structs of two for complex ones, in the byte order of the directory.
    Numbers {
        /// Type of each; no text and no struct.
        ty: Type,
        /// One value rather than an array of one.
        is_single: bool,
        /// The values, one after the other.
        bytes: Vec<u8>,
    },
    /// One text.
    Text(String),
    /// An array of texts.
    Texts(Vec<String>),
}

impl Type {
    /// Bytes of one element; 0 of text, which has any number.
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

    /// Bytes of one element of a dataset of this type: padding behind a struct is not shown.
    pub fn shown_size(&self) -> u64 {
        match self {
            Type::Struct(of) => of.value_size(),
            other => other.size(),
        }
    }
}

impl StructType {
    /// Bytes of an element until the end of its last member. What is behind it is there for the compiler only.
    pub fn value_size(&self) -> u64 {
        let ends = self.members.iter().map(Member::end);
        ends.max().unwrap_or(0).min(self.size.into())
    }
}

impl Member {
    /// Where it ends in an element.
    fn end(&self) -> u64 {
        let len = self
            .ty
            .size()
            .saturating_mul(self.count.unwrap_or(1).into());
        len.saturating_add(self.offset.into())
    }
}

impl Place {
    /// Where they end; `None` where no file is so long.
    pub fn end(&self) -> Option<u64> {
        self.offset.checked_add(self.len)
    }
}

impl Variable {
    /// Where a block begins.
    pub fn start(&self, block: usize) -> &[u64] {
        &self.starts[block * self.rank..][..self.rank]
    }

    /// How many elements a block has along each dimension.
    pub fn count(&self, block: usize) -> &[u64] {
        &self.counts[block * self.rank..][..self.rank]
    }
}
