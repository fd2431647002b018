//! Elements whose values tell the flush that wrote them.

/// Elements of each rank in a row. The extents of ranks share pages.
pub const WIDTH: u64 = 700;

/// Element `column` after flush `flush`; never zero.
pub fn element(flush: u64, column: u64) -> f64 {
    (flush * 1_000_000 + column) as f64
}

/// The flushes of a replacement log count from here, or from a multiple of this.
pub const ANOTHER: u64 = 1000;

/// The attribute of the root group that a flush creates. Its value is the number of the flush.
pub fn attribute(flush: u64) -> String {
    format!("flush {flush}")
}
