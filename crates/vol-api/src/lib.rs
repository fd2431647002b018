//! Functions for programs that were ported to the HDF5 Log VOL connector: `H5Dwrite_n`, `H5Dread_n`, and property list
//! functions, with the names and meanings of its documentation. `include/h5logfs_vol_api.h` declares them.
//!
//! The library is not linked to libhdf5: it uses that of the program. If a dataset belongs to a log that the VOL connector
//! writes, a list of blocks goes to the connector as it is, by an optional operation of HDF5. Any other dataset is written
//! and read by one `H5Dwrite` or `H5Dread` of the union of the blocks.
//!
//! | module | contents |
//! |---|---|
//! | `library` | the libhdf5 of the program |
//! | `rows` | the rows of blocks, in the order of a union |
//! | `blocks` | a list of blocks that a program gives |
//! | `native` | a list of blocks, by functions that HDF5 has |
//! | `transfer` | `H5Dwrite_n`, `H5Dread_n` |
//! | `properties` | properties of lists |
//! | `register` | the connector, for programs that register one |

#![warn(missing_docs)]

mod blocks;
mod library;
mod native;
pub mod properties;
pub mod register;
mod rows;
pub mod transfer;
