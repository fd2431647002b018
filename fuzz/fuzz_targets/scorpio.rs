#![no_main]

h5logfs_fuzz::fuzz!("scorpio");
