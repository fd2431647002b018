//! netCDF files that SCORPIO, the I/O library of E3SM, has written as ADIOS2 directories. Section numbers in this module
//! refer to `docs/formats/scorpio-bp.md`.
//!
//! * `names` takes the names of variables and attributes apart.
//! * `types` has netCDF's types, and the types in memory.
//! * `values` reads small arrays.
//! * `definitions` collects dimensions, variables and attributes, step by step.
//! * `track` finds the frames of a variable in one step, and the blocks of each frame.
//! * `puts` reads what one process has written by start and count.
//! * `places` tells where the places of a decomposition map begin.

mod definitions;
mod names;
mod places;
mod puts;
#[cfg(test)]
mod tests;
mod track;
mod types;
mod values;

pub use definitions::{Definition, Definitions, Dimension, Way};
pub use names::{Named, PROCESSES, Track, data_of, map_of, map_writers_of, name_of, track_of};
pub use places::{Begin, Places};
pub use puts::{Put, PutError, Side};
pub use track::{Counted, Frame, Lists, count_off, frames_of, of_groups};
pub use types::{NcType, memory_type};
pub use values::{Values, numbers_of};

use crate::{Files, Result, first_step};

/// Whether a directory is of SCORPIO (section 1): its first step has the number of processes.
pub fn is_scorpio(files: Files<'_>) -> Result<bool> {
    Ok(first_step::has_variable(files, names::PROCESSES)? == Some(true))
}
