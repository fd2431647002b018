//! Metadata of BP5 (section 3).
