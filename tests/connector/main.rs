//! The VOL connector, in programs with HDF5 1.14 and later: h5py and netCDF4 of the current Python, programs of C.
//! Programs that fork, reap children, unload libraries or end without a close are in `driver/hosts.rs`.
//!
//! | module | subject |
//! |---|---|
//! | `passing` | files that are no logs: programs see the same as without the connector |
//! | `reading` | reading logs |
//! | `keeping` | logs survive programs that make, write or delete other files |
//! | `files` | queries about a log being written; files that do not become logs |
//! | `appending` | reopened logs |
//! | `plugins` | the plug-in that serves each program |
//! | `versions` | each HDF5 version's view of files, even if nobody has named a plug-in |
//! | `options` | options and their errors |
//! | `conversions` | functions of the program that use the log within a call |
//! | `exceptions` | functions of the program that throw |
//! | `elements` | places of elements, and unwritten elements |
//! | `elsewhere` | links and virtual datasets that lead to other files |
//! | `environment` | HDF5's variables in the commands |
//! | `errors` | error messages |
//! | `alike` | programs that get the same answers for a log as for a file |
//! | `refusals` | refusals to several ranks, and errors on one rank |
//! | `forks` | programs that fork while they write a log |
//! | `suite` | the test suites of h5py, h5netcdf and PyTables |
//! | `ported` | programs ported to the Log VOL |
//! | `programs` | Python, netCDF and Fortran programs |
//! | `random` | random HDF5 programs in C |
//! | `names` | long names, paths that disappear, a user's files with names like ours |
//! | `kill` | killed programs |
//! | `automatic` | programs that never flush |
//! | `ends` | all ways to end without a close |
//! | `unflushed` | programs killed before they flush |
//! | `unseen` | logs that another process closes or reopens because it does not see the writer |
//! | `flushes` | each flush of a log, as the file was then |
//! | `settling` | closes that make ordinary files from logs |

#[path = "../common/mod.rs"]
mod common;

mod alike;
mod appending;
mod automatic;
mod both;
mod conversions;
mod doctor;
mod elements;
mod elsewhere;
mod ends;
mod environment;
mod errors;
mod exceptions;
mod files;
mod flushes;
mod forks;
mod keeping;
mod kill;
mod names;
mod neighbours;
mod options;
mod passing;
mod plugins;
mod ported;
mod programs;
mod random;
mod reading;
mod refusals;
mod settling;
mod suite;
mod unflushed;
mod unseen;
mod versions;
