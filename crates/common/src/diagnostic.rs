//! Findings about a log, in one form for every layer.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The severity of a finding, from the least to the most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Severity {
    /// A remark: the view differs from what the program wrote, or there is a doubt. No data are known to be missing.
    Note,
    /// The log contradicts itself, but every element can be read.
    Inconsistent,
    /// Data of the log are known to be missing. The view shows the rest.
    Lost,
    /// Elements cannot be read. Reading them fails with this reason.
    Unreadable,
}

/// A finding about a log.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Diagnostic {
    /// The severity.
    pub severity: Severity,
    /// The file, table or entry concerned; `None` for the log as a whole.
    pub place: Option<String>,
    /// The finding as text for a person.
    pub what: String,
    /// Whether the elements of a loss are counted elsewhere: by records that cannot be read, or in the list of what is left out.
    pub is_counted: bool,
}

impl Diagnostic {
    /// A finding about the log as a whole.
    pub fn new(severity: Severity, what: impl Into<String>) -> Self {
        Diagnostic {
            severity,
            place: None,
            what: what.into(),
            is_counted: false,
        }
    }

    /// A finding of [`Severity::Note`] about the log as a whole.
    pub fn note(what: impl Into<String>) -> Self {
        Self::new(Severity::Note, what)
    }

    /// A finding of [`Severity::Lost`] about the log as a whole.
    pub fn lost(what: impl Into<String>) -> Self {
        Self::new(Severity::Lost, what)
    }

    /// A finding of [`Severity::Unreadable`] about the log as a whole.
    pub fn unreadable(what: impl Into<String>) -> Self {
        Self::new(Severity::Unreadable, what)
    }

    /// This finding, about `place`.
    pub fn at(self, place: impl Into<String>) -> Self {
        Diagnostic {
            place: Some(place.into()),
            ..self
        }
    }

    /// This finding, whose lost elements are counted elsewhere.
    pub fn counted(self) -> Self {
        Diagnostic {
            is_counted: true,
            ..self
        }
    }

    /// Memory held, in bytes.
    pub fn bytes(&self) -> usize {
        size_of::<Self>() + self.place.as_ref().map_or(0, String::len) + self.what.len()
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(place) = &self.place {
            write!(f, "{place}: ")?;
        }
        f.write_str(&self.what)
    }
}
