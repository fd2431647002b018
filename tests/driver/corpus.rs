//! Logs of every layout, read by their own paths: each equals what the program meant.

use std::path::Path;

use crate::common::PROGRAM;
use crate::common::driver::Driver;
use crate::common::metadata_image::Made;
use crate::common::pnetcdf::{Case, ELSEWHERE, case, compare, lay_out};
use crate::common::readers::{
    Python, check_all, corpus, netcdf_reads, read_as_expected, said, whole_corpus,
};
use crate::common::striped::CASES;
use crate::common::unclosed::Log;
use h5logfs_catalog::direct::{self, Close, Options};
use serde_json::Value;

fn reads_as_expected(corpus: &Path) {
    if let Some(python) = Driver::new().python() {
        read_as_expected(&python, corpus);
    }
}

#[test]
fn the_small_cases_read_as_expected() {
    reads_as_expected(&corpus());
}

#[test]
fn the_whole_corpus_reads_as_expected() {
    if let Some(corpus) = whole_corpus() {
        reads_as_expected(&corpus);
    }
}

/// netCDF-C looks at the first bytes itself: it uses the driver if these are HDF5's.
#[test]
fn netcdf_reads_logs_that_begin_as_hdf5() {
    let driver = Driver::new();
    let Some(python) = driver.python() else {
        return;
    };
    netcdf_reads(&python, &corpus());
}

fn netcdf_files_read_as_expected(cases: &[Case], dir: &Path, options: &str) {
    let driver = Driver::new();
    let Some(python) = driver.python() else {
        return;
    };
    let python = python.with_variables(vec![("HDF5_DRIVER_CONFIG", options.into())]);
    let jobs = cases.iter().map(|case| {
        let mut job = case.job(&dir.join(&case.name).join("file.nc"));
        job["expect"] = "same".into();
        job
    });
    let output = compare(&python, "h5py", &jobs.collect::<Vec<Value>>());
    assert!(output.status.success(), "{}", said(&output));
}

/// Including those with lost entries, which an attribute reports.
#[test]
fn netcdf_files_with_logs_read_as_expected() {
    let incomplete = ["cutmeta-cdf1-np1", "badcount-cdf1-np1"];
    let mut cases = Case::all();
    cases.retain(|case| case.expect == "same" || incomplete.contains(&case.name.as_str()));
    cases.retain(|case| case.name != ELSEWHERE);
    let dir = lay_out(&cases);
    netcdf_files_read_as_expected(&cases, dir.path(), "incomplete_attribute=off");
}

#[test]
fn a_netcdf_file_with_logs_elsewhere_reads_as_expected() {
    let cases = [case(ELSEWHERE)];
    let dir = lay_out(&cases);
    let logs = dir.path().join(ELSEWHERE).join("bb");
    let options = format!("burst_dir={}", logs.display());
    netcdf_files_read_as_expected(&cases, dir.path(), &options);
}

/// HDF5 files in several parts: each equals the single file, to its last byte.
#[test]
fn files_in_several_parts_read_as_expected() {
    let driver = Driver::new();
    let (Some(python), Some(plain)) = (driver.python(), Python::new()) else {
        return;
    };
    let read = "
import hashlib, sys, h5py
def plain(value):
    return [plain(part) for part in value] if hasattr(value, '__len__') and not isinstance(value, (str, bytes)) else value
def show(name, object):
    value = repr(plain(object[()])) if isinstance(object, h5py.Dataset) else ''
    attributes = sorted((k, repr(plain(v))) for k, v in object.attrs.items())
    print(name, attributes, len(value), hashlib.sha256(value.encode()).hexdigest())
with h5py.File(sys.argv[1], 'r') as f:
    show('/', f)
    f.visititems(show)
";
    check_all(CASES.iter().collect(), |case| {
        let python = python.with_variables(vec![("HDF5_DRIVER_CONFIG", case.options().into())]);
        let shown = python.run(read, &[&case.path()]);
        let expected = plain.run(read, &[&case.expected()]);
        if shown == expected && shown.len() > 100 {
            return Ok(());
        }
        Err(format!("{}: {shown}", case.name))
    });
}

#[test]
fn classic_logs_read_as_expected() {
    let driver = Driver::new();
    let (Some(python), Some(plain)) = (driver.python(), Python::new()) else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let at = |name: String| dir.path().join(name);
    let mut make = plain.tool("classic.py");
    for seed in 0..8 {
        make.arg(seed.to_string());
        make.args([at(format!("{seed}.log.h5")), at(format!("{seed}.h5"))]);
    }
    let made = make.output().unwrap();
    assert!(made.status.success(), "{}", said(&made));
    check_all((0..8).collect(), |seed| {
        python.same(&at(format!("{seed}.log.h5")), &at(format!("{seed}.h5")))
    });
}

/// A log that a job still writes: each open sees what is there by then.
#[test]
fn a_log_that_grows_reads_as_far_as_it_was_written() {
    let driver = Driver::new();
    let Some(python) = driver.python() else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log.h5");
    let mut log = Log::usual(&path);
    let read = || {
        let code = "
import h5py, sys
with h5py.File(sys.argv[1]) as f:
    print(bytes(f['d'][...]))
";
        python.run(code, &[&path])
    };
    assert_eq!(read(), "b'aabbaacc'\n");
    log.commit();
    assert_eq!(
        read(),
        "b'xxxxxxxxyyyy\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00'\n"
    );
}

/// Before and after the close.
#[test]
fn a_log_of_an_hdf5_program_reads_as_meant() {
    let driver = Driver::new();
    let (Some(python), Some(maker)) = (driver.python(), Python::new()) else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let made = Made::by(&maker, dir.path(), "v110");
    let path = dir.path().join("log.h5");
    drop(made.log(&path));
    python.same_with(&[], &path, &made.native).unwrap();
    let mut options = Options::parse("index_dir=none".as_ref()).unwrap();
    options.scans.program = PROGRAM.into();
    direct::close_log(&path, Close::default(), &options).unwrap();
    python.same_with(&[], &path, &made.native).unwrap();
}
