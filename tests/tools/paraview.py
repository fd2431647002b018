"""ParaView's readers: those of VTK, whose Python package has its own HDF5 and netCDF.

    paraview.py write DIR             h5py writes image.vtkhdf
    paraview.py read DIR EXPECTED     VTK reads the files of DIR, and finds what h5py finds in those of EXPECTED

DIR has image.vtkhdf, steps.bp.h5, which a description of XDMF leads to, and weather.nc. Exits with 1 where something differs.
"""

import sys
import tempfile
from pathlib import Path

import h5py
import numpy as np

SHAPE = (10, 12, 14)

XDMF = """<?xml version="1.0"?>
<Xdmf Version="2.0"><Domain><Grid GridType="Uniform">
  <Topology TopologyType="2DCoRectMesh" Dimensions="{rows} {columns}"/>
  <Geometry GeometryType="ORIGIN_DXDY">
    <DataItem Dimensions="2" Format="XML">0 0</DataItem><DataItem Dimensions="2" Format="XML">1 1</DataItem>
  </Geometry>
  <Attribute Name="rho" Center="Node">
    <DataItem ItemType="HyperSlab" Dimensions="{rows} {columns}">
      <DataItem Dimensions="3 3" Format="XML">{step} 0 0  1 1 1  1 {rows} {columns}</DataItem>
      <DataItem Dimensions="{steps} {rows} {columns}" NumberType="Float" Precision="8" Format="HDF">{path}:/fields/rho</DataItem>
    </DataItem>
  </Attribute>
</Grid></Domain></Xdmf>
"""


def image():
    return np.arange(np.prod(SHAPE), dtype="f8").reshape(SHAPE)


def write(directory):
    with h5py.File(directory / "image.vtkhdf", "w") as file:
        group = file.create_group("VTKHDF")
        group.attrs["Version"] = np.array([2, 1])
        group.attrs.create("Type", b"ImageData", dtype="S9")
        group.attrs["WholeExtent"] = [end for size in reversed(SHAPE) for end in (0, size - 1)]
        group.attrs["Origin"] = np.zeros(3)
        group.attrs["Spacing"] = np.ones(3)
        group.attrs["Direction"] = np.eye(3).ravel()
        group["PointData/T"] = image()


def values(found, name, of):
    """The array of a name, as numpy has it."""
    from vtk.util.numpy_support import vtk_to_numpy

    array = getattr(found, of)().GetArray(name)
    assert array is not None, f"there is no array {name}"
    return vtk_to_numpy(array)


def same(what, found, expected):
    np.testing.assert_array_equal(found, np.asarray(expected).ravel(), err_msg=what)
    print(f"{what}: {found.size} values")


def read(directory, expected):
    import vtk

    reader = vtk.vtkHDFReader()
    reader.SetFileName(str(directory / "image.vtkhdf"))
    reader.Update()
    same("VTKHDF", values(reader.GetOutput(), "T", "GetPointData"), image())

    with h5py.File(expected / "b5_steps.expected.h5") as file:
        rho = file["fields/rho"][:]
    steps, rows, columns = rho.shape
    with tempfile.NamedTemporaryFile("w", suffix=".xmf") as description:
        # A relative path would be relative to the description.
        path = (directory / "steps.bp.h5").resolve()
        description.write(XDMF.format(steps=steps, rows=rows, columns=columns, step=2, path=path))
        description.flush()
        reader = vtk.vtkXdmfReader()
        reader.SetFileName(description.name)
        reader.Update()
        found = reader.GetOutputDataObject(0)
    same("XDMF", values(found, "rho", "GetPointData"), rho[2])

    reader = vtk.vtkNetCDFCFReader()
    reader.SetFileName(str(directory / "weather.nc"))
    reader.UpdateMetaData()
    reader.SetDimensions("(level, south_north, west_east)")
    # The places of values do not matter here; filled ones would become NaN.
    reader.SphericalCoordinatesOff()
    reader.ReplaceFillValueWithNanOff()
    reader.Update()
    with h5py.File(expected / "netcdf4_wrf.expected.h5") as file:
        first = file["T"][0]
    found = reader.GetOutput()
    of = "GetPointData" if found.GetPointData().GetArray("T") else "GetCellData"
    same("netCDF", values(found, "T", of), first)


if __name__ == "__main__":
    command, *paths = sys.argv[1:]
    {"write": write, "read": read}[command](*map(Path, paths))
