//! netCDF classic files, presented as netCDF-4.

pub mod image;
