//! The daemon: mounts that start, serve, survive and end, what users may read through them, and how administrators
//! set them up.

#[path = "../common/mod.rs"]
mod common;

mod admin {
    mod booted;
    mod container;
    mod install;
    mod mounting;
    mod setup;
    mod systemd;
}
mod check;
mod daemon;
mod doctor;
mod export;
mod flushes;
mod follow;
mod killed;
mod log_dirs;
mod ls;
mod mirror;
mod namespaces;
mod netcdf;
mod passthrough;
mod permissions;
mod plot;
mod recover;
mod report;
mod scorpio_names;
mod shown;
mod stats;
mod striped;
mod survival;
mod tiles_names;
mod unclosed;
mod workers;
mod xattrs;
