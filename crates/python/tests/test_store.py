"""Logs as zarr stores: zarr's own tests of stores, and what zarr reads of all logs."""

from __future__ import annotations

import asyncio
import json
import pickle
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

import h5logfs
from conftest import CORPUS, ROOT, logs, options_of

zarr = pytest.importorskip("zarr", minversion="3")
pytest.importorskip("pytest_asyncio")
from zarr.core.buffer import cpu, default_buffer_prototype  # noqa: E402
from zarr.testing.store import StoreTests  # noqa: E402

LOG = CORPUS / "netcdf4_wrf.log.h5"


class Memory:
    """Values in place of those of a log."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}

    def value(self, key):
        return self.values.get(key)

    def size(self, key):
        return len(self.values[key]) if key in self.values else None

    def keys(self, prefix):
        return (key for key in self.values if key.startswith(prefix))

    def names(self, path):
        below = (key[len(path) :].lstrip("/") for key in self.values if not path or key.startswith(f"{path}/"))
        return dict.fromkeys(key.split("/")[0] for key in below)


class MemoryStore(h5logfs.ZarrStore):
    """A store with values in memory, which tests set directly."""

    def __init__(self, path, **options) -> None:
        super().__init__(path, **options)
        self._found = Memory()

    async def _set_many(self, values):
        self._found.values.update({key: value.to_bytes() for key, value in values})


class TestStore(StoreTests[MemoryStore, cpu.Buffer]):
    """zarr's own tests of stores. Tests of writing are replaced by one that nothing is written."""

    store_cls = MemoryStore
    buffer_cls = cpu.Buffer

    async def set(self, store, key, value):
        store._found.values[key] = value.to_bytes()

    async def get(self, store, key):
        return self.buffer_cls.from_bytes(store._found.values[key])

    @pytest.fixture
    def store_kwargs(self):
        return {"path": LOG}

    @pytest.fixture
    def store(self, store_kwargs):
        return asyncio.run(self.store_cls.open(**store_kwargs))

    @pytest.fixture
    def store_not_open(self, store_kwargs):
        return self.store_cls(**store_kwargs)

    def test_store_repr(self, store) -> None:
        assert repr(store) == f"h5logfs.ZarrStore({str(LOG)!r})"

    def test_store_supports_writes(self, store) -> None:
        assert not store.supports_writes and not store.supports_deletes

    def test_store_supports_listing(self, store) -> None:
        assert store.supports_listing

    def test_store_read_only(self, store) -> None:
        assert store.read_only
        with pytest.raises(AttributeError):
            store.read_only = False

    async def test_read_only_store_raises(self, store) -> None:
        value = self.buffer_cls.from_bytes(b"bar")
        for write in [store.set("foo", value), store.delete("foo"), store.set_if_not_exists("foo", value)]:
            with pytest.raises(ValueError, match="store was opened in read-only mode"):
                await write
        for remove in [store.delete_dir("foo"), store.clear()]:
            with pytest.raises(NotImplementedError):
                await remove

    async def test_with_read_only_store(self, store) -> None:
        assert store.with_read_only(read_only=True).read_only
        with pytest.raises(ValueError, match="read-only"):
            store.with_read_only(read_only=False)

    async def test_serializable_store(self) -> None:
        store = h5logfs.ZarrStore(LOG)
        again = pickle.loads(pickle.dumps(store))
        assert again == store and again.read_only
        key = "zarr.json"
        assert (await again.get(key, default_buffer_prototype())).to_bytes() == (
            await store.get(key, default_buffer_prototype())
        ).to_bytes()

    async def test_exists(self, store) -> None:
        assert not await store.exists("foo")
        await self.set(store, "foo/zarr.json", self.buffer_cls.from_bytes(b"bar"))
        assert await store.exists("foo/zarr.json")

    # These tests write.
    test_store_open_read_only = None
    test_set = None
    test_set_not_open = None
    test_set_many = None
    test_set_if_not_exists = None
    test_delete = None
    test_delete_dir = None
    test_delete_nonexistent_key_does_not_raise = None
    test_clear = None


@pytest.mark.parametrize("log", logs(), ids=lambda log: str(log.relative_to(ROOT)))
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_zarr_reads_what_the_log_holds(log: Path) -> None:
    options = options_of(log)
    try:
        mine = h5logfs.Log(log, **options)
        with warnings.catch_warnings():
            # Warnings about what is left out, and about types without a specification.
            warnings.simplefilter("ignore")
            members = dict(zarr.open(h5logfs.ZarrStore(log, **options)).members(max_depth=None))
    except (OSError, ValueError):
        return
    arrays = {}
    _collect(mine["/"], arrays)
    for path, array in arrays.items():
        if path not in members:
            assert array._shape is None or array.dtype.kind in "OuVf", path
            continue
        try:
            wanted = np.asarray(array[...])
        except OSError:
            with pytest.raises(h5logfs.LogError):
                members[path][...]
            continue
        found = np.asarray(members[path][...])
        assert found.shape == wanted.shape, path
        if wanted.dtype.kind == "O":
            assert found.tolist() == wanted.tolist(), path
        else:
            np.testing.assert_array_equal(found, wanted, path)


def _collect(group, arrays) -> None:
    arrays.update({array.path.strip("/"): array for array in group.arrays().values()})
    for below in group.groups().values():
        _collect(below, arrays)


def test_chunks_are_those_of_the_log_assembled_ones_too() -> None:
    log = h5logfs.Log(CORPUS / "overlap.log.h5")
    root = zarr.open(h5logfs.ZarrStore(CORPUS / "overlap.log.h5"))
    assert {name: array.chunks for name, array in root.arrays()} == {
        name: array.chunks for name, array in log.arrays().items()
    }


def test_xarray_reads_the_store_as_the_log() -> None:
    xarray = pytest.importorskip("xarray")
    with xarray.open_dataset(LOG, engine="h5logfs") as wanted:
        with xarray.open_zarr(h5logfs.ZarrStore(LOG), consolidated=False) as found:
            assert found.sizes == wanted.sizes
            xarray.testing.assert_equal(found.load(), wanted.load())
            for name, variable in wanted.variables.items():
                assert list(found[name].attrs) == list(variable.attrs)


def test_what_no_array_of_zarr_can_be_is_left_out_with_a_warning() -> None:
    with pytest.warns(UserWarning, match="dataset /refs is left out: .* reference"):
        root = zarr.open(h5logfs.ZarrStore(CORPUS / "objref_dset.log.h5"))
    assert "refs" not in root and "target" in root


def test_an_error_names_the_log() -> None:
    with pytest.raises(h5logfs.LogError, match="truncated"):
        zarr.open(h5logfs.ZarrStore(CORPUS / "truncated.log.h5"))


def test_keys_that_are_none_have_no_value() -> None:
    store = h5logfs.ZarrStore(LOG)
    group = zarr.open(store)
    name, array = next((name, array) for name, array in group.arrays() if array.ndim)
    first = "/".join([name, "c", *["0"] * array.ndim])
    beyond = "/".join([name, "c", *map(str, array.cdata_shape)])
    wrong = [f"{name}/c", f"{first}/0", beyond, f"{name}/c/-1", first.replace("/0", "/00"), f"{name}/d/0", "c/0", f"/{first}"]
    assert store.get_sync(first) is not None
    assert [key for key in wrong if store.get_sync(key) is not None] == []
    listed = [key for key in asyncio.run(_all(store.list_prefix(f"{name}/c")))]
    assert len(listed) == array.nchunks and first in listed
    assert json.loads(store.get_sync("zarr.json").to_bytes())["node_type"] == "group"


async def _all(names):
    return [name async for name in names]


WITHOUT_H5PY = """
import sys
for name in ["h5py", "h5netcdf", "netCDF4"]:
    sys.modules[name] = None
import h5logfs, zarr
group = zarr.open_group(h5logfs.ZarrStore(sys.argv[1]), mode="r")
for name, array in sorted(group.arrays()):
    print(name, array.shape, array[...].tobytes().hex())
"""


def test_the_store_needs_no_h5py() -> None:
    command = [sys.executable, "-c", WITHOUT_H5PY, CORPUS / "records.log.h5"]
    found = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    log = h5logfs.Log(CORPUS / "records.log.h5")
    assert found == [f"{name} {log[name].shape} {log[name][...].tobytes().hex()}" for name in sorted(log)]
