"""Readers take the file object: h5py, pyfive, h5netcdf, and what comes through fsspec."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
from conftest import CORPUS, PNETCDF

import h5logfs

h5py = pytest.importorskip("h5py")
np = pytest.importorskip("numpy")


def arrays(group: Any) -> dict[str, Any]:
    """All numeric datasets."""
    found = {}

    def visit(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset) and item.dtype.kind in "iuf":
            found[name] = item[()]

    group.visititems(visit)
    return found


@pytest.fixture
def expected() -> dict[str, Any]:
    with h5py.File(CORPUS / "records.expected.h5") as file:
        return arrays(file)


def check(found: dict[str, Any], expected: dict[str, Any]) -> None:
    assert found.keys() == expected.keys() and len(found) >= 4
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array)


def test_h5py(log: Path, expected: dict[str, Any]) -> None:
    with h5logfs.open(log) as file, h5py.File(file) as reader:
        check(arrays(reader), expected)
        assert Path(reader.filename.split("'")[1]) == log


def test_pyfive(log: Path, expected: dict[str, Any]) -> None:
    pyfive = pytest.importorskip("pyfive")
    with h5logfs.open(log) as file, pyfive.File(file) as reader:
        check({name: reader[name][()] for name in expected}, expected)


def test_h5netcdf() -> None:
    h5netcdf = pytest.importorskip("h5netcdf")
    with (
        h5logfs.open(CORPUS / "netcdf4_wrf.log.h5") as file,
        h5netcdf.File(file, "r") as reader,
        h5netcdf.File(CORPUS / "netcdf4_wrf.expected.h5", "r") as native,
    ):
        assert set(reader.dimensions) == set(native.dimensions) and reader.variables
        for name, variable in native.variables.items():
            np.testing.assert_array_equal(reader[name][...], variable[...])


def test_a_damaged_dataset_is_an_exception_of_h5py() -> None:
    with h5logfs.open(CORPUS / "damaged_vlen.log.h5") as file, h5py.File(file) as reader:
        with pytest.raises(OSError, match="variable-length elements were logged as pointers"):
            reader["vl"][()]
        assert arrays(reader).keys() or reader.keys()


def test_fsspec_opens_logs(log: Path, expected: dict[str, Any], canonical: bytes) -> None:
    fsspec = pytest.importorskip("fsspec")
    with fsspec.open(f"h5logfs://{log}") as file, h5py.File(file) as reader:
        check(arrays(reader), expected)
    system, path = fsspec.url_to_fs(f"h5logfs://{log}", cache_size="64M")
    assert path == str(log) and system.size(path) == len(canonical)
    assert system.cat(path) == canonical and system.cat_file(path, 5, 50) == canonical[5:50]
    assert system.cat_file(path, -5) == canonical[-5:]
    assert system.cat_ranges([path] * 2, [0, 8], [8, 9]) == [canonical[:8], canonical[8:9]]
    assert pickle.loads(pickle.dumps(system)).cat_file(path, 0, 8) == canonical[:8]


def test_fsspec_is_read_only_and_lists_sizes(copy: Path, canonical: bytes) -> None:
    fsspec = pytest.importorskip("fsspec")
    system = fsspec.filesystem("h5logfs")
    (listed,) = (info for info in system.ls(copy.parent, detail=True) if info["name"] == str(copy))
    assert listed["size"] == len(canonical) and listed["type"] == "file"
    assert str(copy) in system.glob(f"{copy.parent}/*.h5")
    for write in (
        lambda: system.open(str(copy), "wb"),
        lambda: system.rm(str(copy)),
        lambda: system.pipe_file(str(copy), b"x"),
        lambda: system.mv(str(copy), str(copy) + "2"),
    ):
        with pytest.raises((OSError, NotImplementedError)):
            write()
    assert h5logfs.is_log(copy)
    system.get(str(copy), str(copy.with_name("got.h5")))
    assert copy.with_name("got.h5").read_bytes() == canonical


def test_kerchunk_and_zarr_through_fsspec() -> None:
    """References into the canonical file, which zarr reads through the file system."""
    hdf = pytest.importorskip("kerchunk.hdf")
    xarray = pytest.importorskip("xarray")
    pytest.importorskip("zarr")
    log = CORPUS / "netcdf4_wrf.log.h5"
    url = f"h5logfs://{log}"
    with h5logfs.open(log) as file:
        references = hdf.SingleHdf5ToZarr(file, url, inline_threshold=0).translate()
    assert any(isinstance(value, list) and value[0] == url for value in references["refs"].values())
    options = {"fo": references, "remote_protocol": "h5logfs"}
    with (
        xarray.open_dataset(
            "reference://", engine="zarr", backend_kwargs={"consolidated": False, "storage_options": options}
        ) as dataset,
        xarray.open_dataset(log.with_name("netcdf4_wrf.expected.h5"), engine="h5netcdf") as expected,
    ):
        assert dataset.data_vars.keys() == expected.data_vars.keys()
        for name, variable in expected.data_vars.items():
            if variable.dtype.kind in "iuf":
                np.testing.assert_array_equal(dataset[name].values, variable.values)


def test_a_netcdf_file_without_logs_is_what_it_is(tmp_path: Path) -> None:
    alone = tmp_path / "file.nc"
    alone.write_bytes((PNETCDF / "records-cdf1-np1" / "expected.nc").read_bytes())
    with h5logfs.open(alone) as file:
        assert not file.is_log and file.read() == alone.read_bytes()
    with h5logfs.open(alone, netcdf="hdf5") as file, h5py.File(file) as reader:
        assert reader.keys()
