//! The library by its public interface: scans, views, the index on disk. Python is needed only for comparisons with
//! its readers, and a mount by few tests.

#[path = "../common/mod.rs"]
mod common;

mod adios;
mod ahead;
mod arrays;
mod bombs;
mod classic;
mod closed;
mod compact;
mod corpus;
mod direct;
mod documents;
mod fuzz_regressions;
mod inspect;
mod kept;
mod layers;
mod logvol {
    mod btree;
    mod faults;
    mod gaps;
    mod many;
    mod properties;
    mod scan;
    mod tilings;
}
mod netcdf {
    mod catalog;
    mod encoder;
    mod hostile;
    mod model;
}
mod metadata_image;
mod objects;
mod plain;
mod references;
mod release;
mod settle;
mod striped;
mod tiles;
mod unflushed;
mod workers;
