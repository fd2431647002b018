//! The header of a netCDF classic file, and what is made of it.

use h5logfs_core::log::netcdf::header::Header;

use super::Seeds;
use super::reading::read;
use super::samples::SAMPLES;
use super::site::Site;

pub fn run(bytes: &[u8]) {
    let site = Site::new();
    site.write("file.nc", bytes);
    site.write("longer.nc", &[bytes, &[0xff; 64]].concat());
    let header = Header::read(&site.open("file.nc"));
    if let Ok(header) = &header {
        let longer = Header::read(&site.open("longer.nc"));
        assert_eq!(longer.ok().as_ref(), Some(header));
        assert!(header.record_size() <= i64::MAX as u64);
        header.records_in(bytes.len() as u64);
        for (variable, described) in header.variables.iter().zip(header.described()) {
            assert!(header.bytes(variable) <= i64::MAX as u64);
            assert_eq!(header.dims(variable), described.dims);
        }
    }
    // What cannot be read is no file of ours, and passed through.
    let scanned = site.scan("file.nc");
    assert!(header.is_ok() || scanned.is_err());
    if let Ok(view) = scanned.and_then(|snapshot| site.view(snapshot)) {
        read(&view);
    }
}

pub fn seeds() -> Seeds {
    let files = SAMPLES.iter().map(|scanned| &scanned.sample);
    let masters = files.filter(|sample| sample.files[0].0 == "file.nc");
    masters
        .map(|sample| (sample.name.to_owned(), sample.files[0].1.clone()))
        .collect()
}
