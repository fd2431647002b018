//! An HDF5 file driver that is loaded at run time: it shows logs as their canonical HDF5 files.
