//! The supported layouts.

use serde::{Deserialize, Serialize};

use crate::layout::Layout;
use crate::{adios, classic, logvol, netcdf, scorpio, striped, tiles};
use h5logfs_common::fault::Fault;

/// The places of a log's record tables and data, as the scan found them. Each layout has a variant.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Tables {
    /// The layout of the HDF5 Log VOL connector (`docs/formats/logvol.md`).
    LogVol(logvol::Tables),
    /// The classic layout (`docs/formats/logvol-classic.md`).
    Classic(classic::Tables),
    /// netCDF files with burst-buffer logs (`docs/formats/pnetcdf-burst-buffer.md`).
    Netcdf(netcdf::Tables),
    /// HDF5 files in several parts (`docs/formats/hdf5-subfiling.md`).
    Striped(striped::Tables),
    /// ADIOS2 directories (`docs/formats/adios-bp.md`).
    Adios(adios::Tables),
    /// netCDF files that SCORPIO wrote as ADIOS2 directories (`docs/formats/scorpio-bp.md`).
    Scorpio(scorpio::Tables),
    /// Sets of netCDF files, one for each process (`docs/formats/netcdf-tiles.md`).
    Tiles(tiles::Tables),
}

impl Default for Tables {
    fn default() -> Self {
        Tables::LogVol(logvol::Tables::default())
    }
}

impl Tables {
    /// The code that reads this layout.
    pub fn layout(&self) -> &dyn Layout {
        match self {
            Tables::LogVol(tables) => tables,
            Tables::Classic(tables) => tables,
            Tables::Netcdf(tables) => tables,
            Tables::Striped(tables) => tables,
            Tables::Adios(tables) => tables,
            Tables::Scorpio(tables) => tables,
            Tables::Tiles(tables) => tables,
        }
    }

    /// Fails with the reason where the tables name a source file past the `sources` that exist, or bytes that no file
    /// has.
    pub fn check(&self, sources: usize) -> Result<(), Fault> {
        match self {
            Tables::LogVol(tables) => tables.check(sources),
            Tables::Classic(tables) => tables.check(sources),
            Tables::Netcdf(tables) => tables.check(sources),
            Tables::Striped(tables) => tables.check(sources),
            Tables::Adios(tables) => tables.check(sources),
            Tables::Scorpio(tables) => tables.check(sources),
            Tables::Tiles(tables) => tables.check(sources),
        }
    }
}

impl From<striped::Tables> for Tables {
    fn from(tables: striped::Tables) -> Self {
        Tables::Striped(tables)
    }
}

impl From<scorpio::Tables> for Tables {
    fn from(tables: scorpio::Tables) -> Self {
        Tables::Scorpio(tables)
    }
}

impl From<tiles::Tables> for Tables {
    fn from(tables: tiles::Tables) -> Self {
        Tables::Tiles(tables)
    }
}
