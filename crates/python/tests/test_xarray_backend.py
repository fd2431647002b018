"""xarray's own tests of netCDF-4 backends, run with the engine "h5logfs" on logs.

h5netcdf writes the datasets. Before the engine opens such a file, the file becomes a log whose datasets were all
written past the log.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import h5py
import pytest

import h5logfs
import log_writer

xarray = pytest.importorskip("xarray")
pytest.importorskip("h5netcdf")
backends = pytest.importorskip("xarray.tests.test_backends")


# Fixtures of these tests.
from xarray.tests.conftest import time_unit, use_dask  # noqa: E402, F401

pytestmark = pytest.mark.skipif("H5LOGFS_TEST_ALL" not in os.environ, reason="takes a while (H5LOGFS_TEST_ALL=1 runs it)")


def make_log(path) -> None:
    """Turns an HDF5 file into a log without records."""
    if isinstance(path, (str, Path)) and h5py.is_hdf5(path) and not h5logfs.is_log(path):
        with h5py.File(path, "r+") as file:
            log_writer._put_log(file, 0, [])


class TestEngine(backends.TestH5NetCDFData):
    engine = "h5logfs"

    # These tests write with the engine, which is read-only.
    test_create_default_indexes = None
    # This test counts the warnings of the writing engine.
    test_encoding_enum__no_fill_value = None
    # No log has the filter lzf, nor such a name.
    test_compression_encoding_h5py = None
    test_dump_encodings_h5py = None
    test_roundtrip_None_variable = None

    def save(self, dataset, path, **kwargs):
        return dataset.to_netcdf(path, engine="h5netcdf", format=self.file_format, **kwargs)

    @contextlib.contextmanager
    def open(self, path, **kwargs):
        make_log(path)
        with xarray.open_dataset(path, engine=self.engine, **kwargs) as dataset:
            yield dataset
