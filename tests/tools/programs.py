#!/usr/bin/env python3
"""programs.py WAY FILE: an ordinary Python program that writes FILE, reopens it, and appends to it.

WAY: h5py, netcdf4 (netCDF4), xarray-netcdf4, xarray-h5netcdf, h5netcdf.
"""
import sys

import numpy as np


def h5py_program(path):
    import h5py

    with h5py.File(path, "w") as f:
        group = f.create_group("measured")
        rows = group.create_dataset("rows", (0, 8), "f4", maxshape=(None, 8), chunks=(4, 8), compression="gzip", shuffle=True)
        f.create_dataset("names", data=["a", "bc", "déf"])
        f["grid"] = np.arange(60, dtype=">i2").reshape(3, 4, 5)
        f["link"] = h5py.SoftLink("/measured/rows")
        f.create_dataset("refs", data=[group.ref, rows.ref], dtype=h5py.ref_dtype)
        group.attrs["unit"] = "m/s"
        for step in range(10):
            rows.resize(step + 1, 0)
            rows[step] = np.arange(8) + step
            if step % 3 == 0:
                f.flush()
        assert (rows[2:5, 3] == [5, 6, 7]).all()
    with h5py.File(path, "r+") as f:
        rows = f["measured/rows"]
        rows.resize(12, 0)
        rows[10:] = -1
        rows[0, ::2] = 100
        f["grid"][1, 2] = 7
        f.move("names", "measured/names")
        f["measured"].attrs["steps"] = np.int64(12)
    with h5py.File(path) as f:
        assert f["measured/rows"].shape == (12, 8) and f[f["refs"][0]] == f["measured"]


def netcdf4_program(path):
    import netCDF4

    with netCDF4.Dataset(path, "w") as f:
        f.createDimension("time", None)
        f.createDimension("x", 6)
        time = f.createVariable("time", "f8", ("time",))
        wind = f.createVariable("wind", "i2", ("time", "x"), zlib=True, complevel=4, shuffle=True, fill_value=-999)
        wind.scale_factor, wind.units = 0.5, "m/s"
        group = f.createGroup("stations")
        group.createDimension("station", 3)
        names = group.createVariable("name", str, ("station",))
        names[:] = np.array(["Oslo", "Bergen", "Vardø"], object)
        state = group.createEnumType("u1", "state_t", {"off": 0, "on": 1})
        group.createVariable("state", state, ("station",), fill_value=0)[:] = [0, 1, 1]
        for step in range(4):
            time[step] = step * 0.25
            wind[step] = np.arange(6) + step
            f.sync()
        assert (wind[1:3, 2] == [3.0, 4.0]).all(), wind[1:3, 2]
        f.title = "weather"
    with netCDF4.Dataset(path, "a") as f:
        f["time"][4:6] = [1.0, 1.25]
        f["wind"][5, 1:4] = [9, 9, 9]
        f.createVariable("late", "f4", ("x",))[:] = 3
        f.renameVariable("late", "later")
        f.history = "appended"
    with netCDF4.Dataset(path) as f:
        assert f["wind"].shape == (6, 6) and f["wind"][4].mask.all()


def dataset():
    import xarray

    return xarray.Dataset(
        {
            "temperature": (("time", "x"), np.arange(20.0).reshape(4, 5), {"units": "K"}),
            "name": ("x", np.array(["a", "bb", "ccc", "", "é"], object)),
            "flag": ("x", np.array([True, False, True, True, False])),
        },
        coords={"time": np.datetime64("2026-01-01", "ns") + np.arange(4) * np.timedelta64(1, "h"), "x": np.arange(5)},
        attrs={"title": "xarray"},
    )


def xarray_program(path, engine):
    import xarray

    made = dataset()
    encoding = {"temperature": {"zlib": True, "chunksizes": (2, 5), "_FillValue": -1.0}}
    made.to_netcdf(path, engine=engine, unlimited_dims=["time"], encoding=encoding)
    made[["temperature"]].rename(temperature="again").to_netcdf(path, mode="a", engine=engine)
    made.to_netcdf(path, mode="a", engine=engine, group="inner/most")
    with xarray.open_dataset(path, engine=engine) as f:
        assert f.temperature.identical(made.temperature) and (f.again == made.temperature).all()


def h5netcdf_program(path):
    import h5netcdf

    with h5netcdf.File(path, "w") as f:
        f.dimensions = {"x": 5, "time": None}
        v = f.create_variable("hello", ("x",), float)
        v[:] = np.ones(5)
        v.attrs["foo"] = 3.5
        t = f.create_variable("/grouped/data", ("time", "x"), "i4", chunks=(2, 5), fletcher32=True)
        f.resize_dimension("time", 3)
        t[:3] = np.arange(15).reshape(3, 5)
    with h5netcdf.File(path, "a") as f:
        f.resize_dimension("time", 4)
        f["/grouped/data"][3] = 9
        f.attrs["more"] = "text"


WAYS = {
    "h5py": h5py_program,
    "netcdf4": netcdf4_program,
    "xarray-netcdf4": lambda path: xarray_program(path, "netcdf4"),
    "xarray-h5netcdf": lambda path: xarray_program(path, "h5netcdf"),
    "h5netcdf": h5netcdf_program,
}

if __name__ == "__main__":
    WAYS[sys.argv[1]](sys.argv[2])
