"""Descriptors: logs are closed when they are told to, and many open ones keep few files open."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest

import h5logfs
import log_writer

LIMIT, LOGS = 128, 60


def descriptors() -> int:
    """The number of open files of logs and of the index directory."""
    places = tempfile.gettempdir(), os.environ["XDG_CACHE_HOME"]
    return sum(os.path.realpath(f"/proc/self/fd/{number}").startswith(places) for number in os.listdir("/proc/self/fd"))


def make(path: Path, first: float = 0) -> Path:
    """A log with the netCDF variable `x`: the numbers from `first` on."""
    log_writer.write(path, {"x": log_writer.Dataset(np.arange(64.0) + first, (16,), (32,))})
    return path


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with more logs than the limits of the tests let a process open."""
    directory = tmp_path_factory.mktemp("many")
    first = make(directory / "0.h5")
    for number in range(1, LOGS):
        shutil.copyfile(first, directory / f"{number}.h5")
    return directory


def test_a_log_is_closed_with_its_block(tmp_path: Path) -> None:
    path = make(tmp_path / "run.h5")
    before = descriptors()
    with h5logfs.Log(path) as log:
        x, opened = log["x"], log.open()
        assert x[3] == 3 and descriptors() > before and log
    assert not log and "not open" in repr(log) and log.closed and x.shape == (64,)
    for act in (lambda: x[3], lambda: log["x"], lambda: list(log), lambda: x.attrs, log.refresh, log.open):
        with pytest.raises(ValueError, match="was closed"):
            act()
    log.close()
    assert opened.read(8) == b"\x89HDF\r\n\x1a\n"
    opened.close()
    del opened, x
    assert descriptors() == before


def test_a_log_that_nobody_has_is_closed_at_once(tmp_path: Path) -> None:
    path = make(tmp_path / "run.h5")
    before = descriptors()
    x = h5logfs.Log(path)["x"]
    assert x[3] == 3 and descriptors() > before
    del x
    assert descriptors() == before


# Limits and the list of open files are those of a process.
MANY = """
import gc, os, resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[1]), int(sys.argv[1])))
gc.disable()
import numpy, h5logfs
files = sorted(os.scandir(sys.argv[2]), key=lambda file: int(file.name.split(".")[0]))
before = len(os.listdir("/proc/self/fd"))
logs = [h5logfs.Log(file.path) for file in files]
arrays = [log["x"] for log in logs]
for _ in range(2):
    assert all(array[5] == 5 for array in arrays)
assert len(os.listdir("/proc/self/fd")) - before <= int(sys.argv[1]) // 4 + 1
for log in logs:
    log.close()
print(len(os.listdir("/proc/self/fd")) - before)
"""


def test_many_logs_keep_a_quarter_of_the_descriptors(many: Path) -> None:
    ran = subprocess.run([sys.executable, "-c", MANY, str(LIMIT), many], capture_output=True, text=True)
    assert (ran.stdout, ran.stderr) == ("0\n", "")


DATASETS = """
import os, resource, sys, glob
resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[1]), int(sys.argv[1])))
import xarray, dask
dask.config.set(scheduler="threads", num_workers=2)
count = lambda: len([fd for fd in os.listdir("/proc/self/fd") if os.path.realpath(f"/proc/self/fd/{fd}").startswith(sys.argv[2])])
files = glob.glob(sys.argv[2] + "/*.h5")
arguments = {"engine": "h5logfs", "combine": "nested", "concat_dim": "run", "chunks": {}, "backend_kwargs": {"phony_dims": "sort"}}
runs = xarray.open_mfdataset(files, **arguments)
assert runs.x.sum() == len(files) * sum(range(64))
assert 0 < count() <= int(sys.argv[1]) // 4
runs.close()
assert count() == 0
assert runs.x[7, 5] == 5
"""


def test_the_engine_opens_many_logs_and_closes_them(many: Path) -> None:
    pytest.importorskip("xarray")
    pytest.importorskip("dask")
    ran = subprocess.run([sys.executable, "-c", DATASETS, str(LIMIT), os.path.realpath(many)], capture_output=True, text=True)
    assert (ran.returncode, ran.stderr) == (0, "")


def test_a_store_closes_its_log(tmp_path: Path) -> None:
    zarr = pytest.importorskip("zarr", minversion="3")
    path = make(tmp_path / "run.h5")
    before = descriptors()
    store = h5logfs.ZarrStore(path)
    group = zarr.open_group(store, mode="r")
    assert group["x"][5] == 5
    store.close()
    assert descriptors() == before and group["x"][5] == 5


def test_a_file_that_was_replaced_while_it_was_closed_is_an_error(tmp_path: Path) -> None:
    path = make(tmp_path / "run.h5")
    x = h5logfs.Log(path)["x"]
    assert x[5] == 5
    x._objects.state.known.release()
    make(tmp_path / "other.h5", first=100).replace(path)
    with pytest.raises(h5logfs.LogError, match="changed since it was opened"):
        x[5]
    again = h5logfs.Log(path)["x"]
    again._objects.state.known.release()
    tmp_path.joinpath("run.h5").rename(tmp_path / "moved.h5")
    with pytest.raises(FileNotFoundError):
        again[5]
