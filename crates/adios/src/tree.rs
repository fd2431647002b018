//! The HDF5 objects of a directory.
