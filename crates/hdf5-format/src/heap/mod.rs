//! Heaps: names of old groups (`local`), values of variable length (`global`), links and attributes of large objects
//! (`fractal`).

mod fractal;
mod global;
mod local;

pub use fractal::FractalHeap;
pub use global::GlobalHeaps;
pub use local::LocalHeap;
