//! What is read of a step.

/// What is read of a step.
#[derive(Clone, Copy)]
pub enum Asked<'a> {
    /// The variables of these names, and the attributes.
    Some(&'a dyn Fn(&str) -> bool),
    /// All variables, with what decides the objects, and the attributes. Blocks of global arrays may be merged.
    Outline,
    /// This variable.
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
