//! Heaps: `local` for names of old groups, `global` for values of variable length, `fractal` for links and attributes
//! of large objects.

mod fractal;
mod global;
mod local;

pub use fractal::FractalHeap;
pub use global::GlobalHeaps;
pub use local::LocalHeap;
