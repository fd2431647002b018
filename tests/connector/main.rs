//! The VOL connector, in programs with HDF5 1.14 and later: h5py and netCDF4 of the current Python, programs of C.
//!
//! | module | what it is about |
//! |---|---|
//! | `passing` | files that are no logs: programs see what they see without the connector |
//! | `reading` | logs that are read |
//! | `keeping` | logs that are not lost by a program that makes, writes or deletes a file |
//! | `files` | what is asked of a log that is written; files that become none |
//! | `appending` | logs that are opened again |
//! | `plugins` | which plug-in serves which program |
//! | `versions` | what versions of HDF5 make of files, also where nobody has named a plug-in |
//! | `options` | options, and what is wrong with them |
//! | `conversions` | functions of the program that use the log within a call |
//! | `exceptions` | functions of the program that throw |
//! | `elements` | what is told of elements: their places, and those that were never written |
//! | `elsewhere` | links and virtual datasets that lead to other files |
//! | `environment` | variables of HDF5, in the commands |
//! | `errors` | what a program is told |
//! | `alike` | programs that are told the same of a log as of a file |
//! | `refusals` | what several ranks are refused, and errors on one rank |
//! | `forks` | programs that fork while they write a log |
//! | `hosts` | programs that fork, reap children, unload libraries, end without a close |
//! | `suite` | the tests of h5py, h5netcdf and PyTables |
//! | `ported` | programs that were ported to the Log VOL |
//! | `programs` | programs of Python, netCDF and Fortran |
//! | `random` | random HDF5 programs of C |
//! | `names` | long names, paths that go, files of a user that have names of ours |
//! | `kill` | programs that are killed |
//! | `automatic` | programs that never flush |
//! | `ends` | programs that end without a close, in all ways |
//! | `unflushed` | programs that are killed before they flush |
//! | `unseen` | logs that another process closes or opens again, because it does not see that one writes them |
//! | `moments` | each flush of a log, as the file was at that moment |
//! | `settling` | closes that make ordinary files of logs |

#[path = "../common/mod.rs"]
mod common;

mod alike;
mod appending;
mod automatic;
mod conversions;
mod doctor;
mod elements;
mod elsewhere;
mod ends;
mod environment;
mod errors;
mod exceptions;
mod files;
mod forks;
mod hosts;
mod keeping;
mod kill;
mod moments;
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
