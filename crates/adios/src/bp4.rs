//! Metadata of BP4 (section 4).
