//! A file in netCDF's data model: dimensions, variables and attributes, without elements. Names are the bytes of the file,
//! usually UTF-8.

use h5logfs_log::netcdf::header::Type;

/// A file.
#[derive(Debug, Default)]
pub struct Model {
    /// Dimensions by number.
    pub dimensions: Vec<Dimension>,
    /// Global attributes.
    pub attributes: Vec<Attribute>,
    /// Variables by number. A dataset has the number of its variable.
    pub variables: Vec<Variable>,
    /// Byte order of numeric attributes.
    pub is_big_endian: bool,
    /// The file has nothing that netCDF's classic model lacks.
    pub is_classic: bool,
}

/// A dimension.
#[derive(Debug)]
pub struct Dimension {
    /// Its name.
    pub name: Vec<u8>,
    /// Its length; of an unlimited dimension that of today.
    pub len: u64,
    /// Its length may grow.
    pub is_unlimited: bool,
}

/// A variable.
#[derive(Debug)]
pub struct Variable {
    /// Its name.
    pub name: Vec<u8>,
    /// The numbers of its dimensions.
    pub dimensions: Vec<usize>,
    /// Its attributes.
    pub attributes: Vec<Attribute>,
    /// The type of its elements.
    pub kind: Type,
    /// Byte order of its elements.
    pub is_big_endian: bool,
    /// The fill value that the image tells its readers, little-endian, in the first bytes.
    pub fill: [u8; 8],
    /// The value of elements that nobody wrote, in the byte order of the variable, in the first bytes.
    pub unwritten: [u8; 8],
    /// Why no element of it can be read.
    pub unreadable: Option<String>,
}

/// An attribute.
#[derive(Debug)]
pub struct Attribute {
    /// Its name.
    pub name: Vec<u8>,
    /// Its value.
    pub value: Value,
}

/// The value of an attribute.
#[derive(Debug)]
pub enum Value {
    /// Numbers, or text as one value a character.
    Plain {
        /// The type of the values.
        kind: Type,
        /// Number of values.
        len: u64,
        /// Little-endian values.
        bytes: Vec<u8>,
    },
    /// Texts of netCDF-4's type string. None has a zero byte.
    Texts(Vec<Vec<u8>>),
}

impl Model {
    /// The extent of a variable.
    pub fn dims(&self, variable: &Variable) -> Vec<u64> {
        let dimensions = variable.dimensions.iter();
        dimensions.map(|d| self.dimensions[*d].len).collect()
    }

    /// The largest extent of a variable; `None` along an unlimited dimension.
    pub fn max_dims(&self, variable: &Variable) -> Vec<Option<u64>> {
        let dimensions = variable.dimensions.iter().map(|d| &self.dimensions[*d]);
        dimensions
            .map(|d| (!d.is_unlimited).then_some(d.len))
            .collect()
    }
}
