//! The netCDF-4 form of a file of netCDF's data model, in memory and without its elements
//! (`docs/formats/pnetcdf-burst-buffer.md`, section 9; `docs/formats/scorpio-bp.md`, section 12).
//!
//! * [`model`] is the file in netCDF's words, whatever layout it comes from.
//! * `image` makes the objects, with `names` and `attributes`.

mod attributes;
mod image;
pub mod model;
mod names;

pub use image::make;
