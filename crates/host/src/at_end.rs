//! What is done when a block ends, also by a panic or by an exception of the program.

/// Calls a function when it is dropped.
pub struct AtEnd<F: FnMut()>(
    /// The function.
    pub F,
);

impl<F: FnMut()> Drop for AtEnd<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}
