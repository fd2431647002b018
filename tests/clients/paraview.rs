//! The readers of ParaView. They belong to VTK, which has its own HDF5 and netCDF.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::common::connector::Connector;
use crate::common::readers::{Python, corpus, project, said};
use crate::common::{Mounted, User, can_mount};

/// The files are one of VTK's own kind written by the connector, an ADIOS2 series with an XDMF description, and a log
/// of a netCDF program.
#[test]
#[ignore = "needs VTK, which is large"]
fn the_readers_of_vtk_find_what_h5py_finds() {
    let (Some(vtk), true) = (Python::vtk(), can_mount(User::Caller)) else {
        return;
    };
    let connector = Connector::serial();
    let Some(writer) = connector.python() else {
        return;
    };
    let (source, expected) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut write = writer.tool("paraview.py");
    let written = write.arg("write").arg(source.path()).output().unwrap();
    assert!(written.status.success(), "{}", said(&written));
    let adios = project().join("tests/corpus-adios");
    let mut copy = Command::new("cp");
    copy.arg("-r").arg(adios.join("b5_steps.bp"));
    let copied = copy.arg(source.path().join("steps.bp")).output().unwrap();
    assert!(copied.status.success(), "{}", said(&copied));
    let weather = source.path().join("weather.nc");
    fs::copy(corpus().join("netcdf4_wrf.log.h5"), weather).unwrap();
    for (from, name) in [
        (adios, "b5_steps.expected.h5"),
        (corpus(), "netcdf4_wrf.expected.h5"),
    ] {
        fs::copy(from.join(name), expected.path().join(name)).unwrap();
    }

    let mounted = Mounted::new(source.path(), "");
    let length = |dir: &Path| fs::metadata(dir.join("image.vtkhdf")).unwrap().len();
    assert_ne!(
        length(source.path()),
        length(mounted.path()),
        "it is not a log"
    );
    let mut read = vtk.tool("paraview.py");
    read.arg("read").args([mounted.path(), expected.path()]);
    let found = read.output().unwrap();
    assert!(found.status.success(), "{}", said(&found));
}
