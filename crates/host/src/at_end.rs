//! Actions at the end of a block, even if it ends by a panic or by an exception of the program.

/// Calls a function on drop.
pub struct AtEnd<F: FnMut()>(
    /// The function.
    pub F,
);

impl<F: FnMut()> Drop for AtEnd<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}
