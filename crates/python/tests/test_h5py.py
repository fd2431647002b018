"""`h5logfs.File`: logs as h5py files."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import CORPUS

import h5logfs
from h5logfs import _h5py

h5py = pytest.importorskip("h5py")

BY_DRIVER = h5py.version.hdf5_version_tuple >= (1, 14, 0)


def test_a_log_is_an_h5py_file(log: Path) -> None:
    with h5logfs.File(log) as file, h5py.File(CORPUS / "records.expected.h5") as expected:
        assert type(file) is h5py.File and file.mode == "r"
        assert (file["field"][()] == expected["field"][()]).all()
        assert file.driver == ("unknown" if BY_DRIVER else "fileobj")
    assert _h5py.register_driver() == BY_DRIVER


def test_the_file_object_takes_the_place_of_the_driver(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_h5py, "_can_load_drivers", lambda: False)
    with h5logfs.File(log, rdcc_nbytes=1 << 20) as file:
        assert file.driver == "fileobj" and file["field"].shape == (5, 8, 12)


@pytest.mark.parametrize("mode", ["r+", "a", "w"])
def test_a_log_is_read_only(copy: Path, mode: str) -> None:
    before = copy.read_bytes()
    with pytest.raises(OSError, match="copy.h5: .*read-only.*h5logfs export"):
        h5logfs.File(copy, mode)
    assert copy.read_bytes() == before
    with pytest.raises(OSError, match="without another driver"):
        h5logfs.File(copy, driver="core")


def test_other_files_are_opened_in_any_mode(tmp_path: Path) -> None:
    path = tmp_path / "new.h5"
    with h5logfs.File(path, "w", libver="latest") as file:
        file["x"] = [1, 2, 3]
    with h5logfs.File(path, "r+") as file:
        file["y"] = 5
    with h5logfs.File(path, "r", driver="core") as file:
        assert file.driver == "core"
    with h5logfs.File(path) as file:
        assert file["x"][()].tolist() == [1, 2, 3] and file["y"][()] == 5
    with pytest.raises(FileNotFoundError):
        h5logfs.File(tmp_path / "nothing.h5")


def test_errors_of_a_log_have_our_sentence() -> None:
    with h5logfs.File(CORPUS / "damaged_vlen.log.h5") as file:
        with pytest.raises(OSError, match="variable-length elements were logged as pointers"):
            file["vl"][()]


def test_unknown_options_are_refused(log: Path) -> None:
    with pytest.raises(ValueError, match="cash_size"):
        h5logfs.File(log, cash_size="1G")


@pytest.mark.skipif(not BY_DRIVER, reason="this HDF5 loads no file drivers")
def test_the_driver_is_registered_under_its_name(log: Path) -> None:
    assert h5logfs.register_driver() and "h5logfs" in h5py.registered_drivers()
    with h5py.File(log, driver="h5logfs") as file:
        assert file["field"].shape == (5, 8, 12)


@pytest.mark.skipif(not BY_DRIVER, reason="this HDF5 loads no file drivers")
def test_another_libhdf5_in_the_process_is_no_obstacle(log: Path) -> None:
    pytest.importorskip("netCDF4")
    for first, second in [("h5py", "netCDF4"), ("netCDF4", "h5py")]:
        code = f"import {first}, {second}, h5logfs, sys; print(h5logfs.File(sys.argv[1])['field'].shape)"
        shown = subprocess.run([sys.executable, "-c", code, log], capture_output=True, text=True)
        assert (shown.stdout, shown.stderr) == ("(5, 8, 12)\n", "")


@pytest.mark.skipif(not BY_DRIVER, reason="this HDF5 loads no connectors of today")
@pytest.mark.parametrize("variable", ["HDF5_DRIVER", "HDF5_VOL_CONNECTOR"])
def test_programs_without_the_package_use_its_plug_ins(log: Path, variable: str) -> None:
    code = "import h5py, sys; print(h5py.File(sys.argv[1])['field'].shape)"
    environment = {**os.environ, "HDF5_PLUGIN_PATH": h5logfs.plugin_path(), variable: "h5logfs"}
    shown = subprocess.run([sys.executable, "-c", code, log], capture_output=True, text=True, env=environment)
    assert (shown.stdout, shown.stderr) == ("(5, 8, 12)\n", "")
