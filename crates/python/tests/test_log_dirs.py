"""Logs that are directories: the names that the package accepts for them."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from conftest import ROOT

import h5logfs

CORPUS = ROOT / "tests" / "corpus-adios"

NAMES = ("run.bp", "run.bp/", "run.bp/md.idx", "link.bp")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A directory with the log `run.bp` and a link to it."""
    shutil.copytree(CORPUS / "b5_steps.bp", tmp_path / "run.bp")
    (tmp_path / "link.bp").symlink_to("run.bp")
    return tmp_path


def named(place: Path, name: str) -> str:
    # A Path has no trailing slash.
    return os.path.join(place, name)


def test_each_name_leads_to_the_log(place: Path) -> None:
    content = h5logfs.open(place / "run.bp").read()
    assert b"\x89HDF\r\n\x1a\n" in content[:4096]
    for name in (*NAMES, "run.bp.h5"):
        path = named(place, name)
        assert h5logfs.is_log(path)
        with h5logfs.open(path) as file:
            assert file.is_log and file.name == path and file.read() == content
        log = h5logfs.Log(path)
        assert log.path == path and len(log) > 0 and not log.refresh()


def test_h5py_opens_each_name(place: Path) -> None:
    h5py = pytest.importorskip("h5py")
    for name in NAMES:
        with h5logfs.File(named(place, name)) as file:
            assert isinstance(file, h5py.File) and len(file) > 0
        with pytest.raises(OSError, match="read-only"):
            h5logfs.File(named(place, name), "r+")


@pytest.fixture
def of_scorpio(tmp_path: Path) -> Path:
    """A directory with logs of SCORPIO: `link.nc` leads into its directory, `moved.nc` nowhere, and `none.nc` is not there."""
    for name in ("link.nc", "moved.nc", "none.nc"):
        shutil.copytree(ROOT / "tests" / "corpus-scorpio" / "basic_r1.nc.bp", tmp_path / f"{name}.bp")
    (tmp_path / "link.nc").symlink_to("link.nc.bp/md.0")
    (tmp_path / "moved.nc").symlink_to("run/moved.nc.bp/md.0")
    return tmp_path


@pytest.mark.parametrize("meant", ["link.nc", "moved.nc", "none.nc"])
def test_scorpio_names_the_file_that_was_meant(of_scorpio: Path, meant: str) -> None:
    content = h5logfs.open(of_scorpio / f"{meant}.bp").read()
    for ending in ("", ".bp", ".bp/", ".bp/md.idx", ".bp.h5"):
        path = named(of_scorpio, meant + ending)
        assert h5logfs.is_log(path)
        with h5logfs.open(path) as file:
            assert file.name == path and file.read() == content
        assert len(h5logfs.Log(path)) > 0
        assert len(h5logfs.inspect(path).datasets) > 0


@pytest.mark.parametrize("meant", ["link.nc", "moved.nc", "none.nc"])
def test_h5py_and_xarray_open_what_scorpio_meant(of_scorpio: Path, meant: str) -> None:
    h5py = pytest.importorskip("h5py")
    xarray = pytest.importorskip("xarray")
    for ending in ("", ".bp", ".bp/", ".bp/md.idx", ".bp.h5"):
        path = named(of_scorpio, meant + ending)
        with h5logfs.File(path) as file:
            assert isinstance(file, h5py.File) and len(file) > 0
        with xarray.open_datatree(path, engine="h5logfs") as tree:
            assert len(tree.children) + len(tree.variables) > 0
        guess = xarray.backends.list_engines()["h5logfs"].guess_can_open
        assert guess(path)


def test_no_mode_writes_into_a_directory_of_scorpio(of_scorpio: Path) -> None:
    h5py = pytest.importorskip("h5py")
    metadata = of_scorpio / "link.nc.bp" / "md.0"
    before = metadata.read_bytes()
    for mode in ("r+", "a", "w", "x"):
        with pytest.raises(OSError):
            h5logfs.File(of_scorpio / "link.nc", mode)
    assert metadata.read_bytes() == before
    # A file of this name counts from then on.
    with h5logfs.File(of_scorpio / "none.nc", "w") as file:
        file["own"] = 1
    with h5logfs.File(of_scorpio / "none.nc") as file:
        assert list(file) == ["own"]
    assert not h5logfs.is_log(of_scorpio / "none.nc")
    with pytest.raises(FileNotFoundError):
        h5logfs.File(of_scorpio / "other.nc")


def test_xarray_knows_the_directory(place: Path) -> None:
    xarray = pytest.importorskip("xarray")
    assert "h5logfs" in xarray.backends.list_engines()
    for name in NAMES:
        with xarray.open_dataset(named(place, name)) as dataset:
            assert len(dataset.variables) > 0


def test_steps_are_a_dimension() -> None:
    xarray = pytest.importorskip("xarray")
    with xarray.open_datatree(CORPUS / "b5_steps.bp", engine="h5logfs") as tree:
        assert tree["fields/rho"].dims[0] == "step"
        assert tree["fields/rho"].isel(step=-1).shape == (5, 3)
        assert {tree["time"].dims, tree["note"].dims} == {("step",)}
        assert dict(tree.sizes)["step"] == 4
    # Variables that some steps lack have fewer steps.
    with xarray.open_dataset(CORPUS / "b5_absent.bp", engine="h5logfs") as dataset:
        dims = {name: variable.dims[0] for name, variable in dataset.variables.items() if variable.ndim}
        assert len(set(dims.values())) == len(set(dataset.sizes[dim] for dim in dims.values())) > 1


@pytest.mark.parametrize("threads", [1, 2])
def test_arrays_of_zfp_are_what_adios2_reads(threads: int) -> None:
    h5py = pytest.importorskip("h5py")
    logs = sorted(CORPUS.glob("*_zfp_*.bp"))
    assert len(logs) == 12
    for path in logs:
        log = h5logfs.Log(path, threads=threads)
        with h5py.File(path.with_name(f"{path.stem}.expected.h5")) as expected:
            found = []
            expected.visititems(lambda name, item: found.append(name) if isinstance(item, h5py.Dataset) else None)
            for name in found:
                wanted, got = expected[name][()], log[name][:]
                assert (got.dtype, got.tobytes()) == (wanted.dtype, wanted.tobytes()), f"{path.name}: {name}"
                # A part of a block.
                part = (slice(1, 2),) * wanted.ndim if min(wanted.shape) > 1 else ...
                assert log[name][part].tobytes() == wanted[part].tobytes(), f"{path.name}: {name}"


@pytest.mark.parametrize("name", ["b5_steps", "b4_mpi_agg2", "b5_bzip2", "openpmd_b5_group"])
def test_references_give_what_the_directory_holds(name: str) -> None:
    h5py = pytest.importorskip("h5py")
    references_of = pytest.importorskip("test_references")
    log = CORPUS / f"{name}.bp"
    references = h5logfs.references(log)
    files = {Path(chunk[0]).name for chunk in references["refs"].values() if isinstance(chunk, list)}
    # Values are stored in the metadata.
    assert "data.0" in files and files <= {"md.0", *(path.name for path in log.glob("data.*"))}
    group = references_of.group_of(references)
    compared = 0
    with h5py.File(CORPUS / f"{name}.expected.h5") as expected:

        def compare(path: str, item: object) -> None:
            nonlocal compared
            if isinstance(item, h5py.Dataset) and item.dtype.kind in "iuf":
                np.testing.assert_array_equal(group[path][...], item[()])
                compared += 1

        expected.visititems(compare)
    assert compared > 2


def test_other_directories_are_no_logs(place: Path) -> None:
    (place / "run.bp" / "md.idx").unlink()
    assert not h5logfs.is_log(place / "run.bp")
    with pytest.raises(IsADirectoryError):
        h5logfs.open(place / "run.bp")
    with pytest.raises(FileNotFoundError):
        h5logfs.open(place / "run.bp.h5")
