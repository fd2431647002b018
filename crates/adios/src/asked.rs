//! What a reader of a step wants of it.

/// What is read of a step.
#[derive(Clone, Copy)]
pub enum Asked<'a> {
    /// The variables of these names, and the attributes.
    Some(&'a dyn Fn(&str) -> bool),
    /// This variable.
    One(&'a str),
}

impl Asked<'_> {
    /// Whether a variable is read.
    pub fn has(&self, name: &str) -> bool {
        match self {
            Asked::Some(has) => has(name),
            Asked::One(one) => name == *one,
        }
    }

    /// Whether attributes are read.
    pub fn has_attributes(&self) -> bool {
        matches!(self, Asked::Some(_))
    }
}
