//! The header of a netCDF classic file, and its presentation.

use h5logfs_log::netcdf::header::Header;

use super::Seeds;
use super::reading::read;
use super::samples::SAMPLES;
use super::test_dir::TestDir;

pub fn run(bytes: &[u8]) {
    let test_dir = TestDir::new();
    test_dir.write("file.nc", bytes);
    test_dir.write("longer.nc", &[bytes, &[0xff; 64]].concat());
    let header = Header::read(&test_dir.open("file.nc"));
    if let Ok(header) = &header {
        let longer = Header::read(&test_dir.open("longer.nc"));
        assert_eq!(longer.ok().as_ref(), Some(header));
        assert!(header.record_size() <= i64::MAX as u64);
        header.records_in(bytes.len() as u64);
        for (variable, described) in header.variables.iter().zip(header.described()) {
            assert!(header.bytes(variable) <= i64::MAX as u64);
            assert_eq!(header.dims(variable), described.dims);
        }
    }
    // A file with an unreadable header is no log; the mount passes it through.
    let scanned = test_dir.scan("file.nc");
    assert!(header.is_ok() || scanned.is_err());
    if let Ok(view) = scanned.and_then(|snapshot| test_dir.view(snapshot)) {
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
