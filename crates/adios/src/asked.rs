//! Requests: the parts of a step to read.

/// The parts of a step to read.
#[derive(Clone, Copy)]
pub enum Asked<'a> {
    /// The variables of these names, and the attributes.
    Some(&'a dyn Fn(&str) -> bool),
    /// All variables and the attributes, without the details that do not affect the objects. Blocks of global arrays
    /// may be merged.
    Outline,
    /// The variable of this name.
    One(&'a str),
}

impl Asked<'_> {
    /// Whether a variable is read.
    pub fn has(&self, name: &str) -> bool {
        match self {
            Asked::Some(has) => has(name),
            Asked::Outline => true,
            Asked::One(one) => name == *one,
        }
    }

    /// Whether blocks may be merged.
    pub fn is_outline(&self) -> bool {
        matches!(self, Asked::Outline)
    }

    /// Whether attributes are read.
    pub fn has_attributes(&self) -> bool {
        !matches!(self, Asked::One(_))
    }
}
