//! The first 64 bytes of `md.idx` (section 1.1).

/// Which format a directory has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// BP4.
    Bp4,
    /// BP5.
    Bp5,
}
