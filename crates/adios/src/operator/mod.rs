//! Blocks that were written with an operator (section 5).
