"""The xarray engine "h5logfs", and dask on threads, processes and a cluster."""

from __future__ import annotations

import io
import pickle
import random
import shutil
import sys
import threading
from pathlib import Path

import h5py
import numpy as np
import pytest

import h5logfs
from conftest import ROOT, logs, options_of

xarray = pytest.importorskip("xarray")
pytest.importorskip("h5netcdf")

CORPUS = Path(__file__).resolve().parents[3] / "tests" / "corpus"
LOG = CORPUS / "netcdf4_wrf.log.h5"
EXPECTED = CORPUS / "netcdf4_wrf.expected.h5"
WITHOUT_DIMENSIONS = CORPUS / "groups_attrs.log.h5"


@pytest.fixture
def expected():
    with xarray.open_dataset(EXPECTED, engine="h5netcdf") as dataset:
        yield dataset.load()


def same_dtype(ours, theirs) -> bool:
    """Whether two types are equal, including the names of their values. h5py's notes about texts do not count."""
    if ours is str or theirs is str:
        return ours is theirs
    kept = [{key: value for key, value in (dtype.metadata or {}).items() if "enum" in key} for dtype in (ours, theirs)]
    return ours == theirs and kept[0] == kept[1]


def assert_same(ours, theirs) -> None:
    """Asserts that datasets are equal, to the last element and attribute, with equal encodings."""
    assert list(ours.variables) == list(theirs.variables)
    assert ours.encoding["unlimited_dims"] == theirs.encoding["unlimited_dims"]
    for name in ours.variables:
        mine, wanted = dict(ours[name].encoding), dict(theirs[name].encoding)
        mine.pop("source"), wanted.pop("source")
        assert same_dtype(mine.pop("dtype"), wanted.pop("dtype")), name
        np.testing.assert_equal(mine, wanted)
        assert list(ours[name].attrs) == list(theirs[name].attrs)
        assert ours[name].dtype == theirs[name].dtype
    # References of two open files are never equal.
    references = [name for name, variable in theirs.variables.items() if h5py.check_ref_dtype(variable.encoding["dtype"])]
    xarray.testing.assert_identical(ours.drop_vars(references), theirs.drop_vars(references))


@pytest.mark.parametrize("log", logs(), ids=lambda log: str(log.relative_to(ROOT)))
def test_every_log_is_the_dataset_that_h5netcdf_makes_of_its_file(log: Path) -> None:
    options = options_of(log)
    arguments = {"engine": "h5netcdf", "phony_dims": random.choice(["access", "sort"]), "decode_times": False}
    print(arguments)
    try:
        groups = xarray.open_groups(h5logfs.open(log, **options), **arguments)
        groups = {path: group.load() for path, group in groups.items()}
    except (OSError, ValueError, KeyError, AttributeError, TypeError):
        return
    for group in groups.values():
        group.close()
    arguments["engine"] = "h5logfs"
    found = xarray.open_groups(log, **arguments, **options)
    assert list(found) == list(groups)
    for path, group in groups.items():
        assert_same(found[path].load(), group)
    for group in found.values():
        group.close()


def test_hardly_a_log_needs_h5netcdf(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "h5netcdf", None)
    refused = set()
    for log in logs():
        try:
            if h5logfs.is_log(log, **options_of(log)):
                xarray.open_groups(log, engine="h5logfs", decode_times=False, **options_of(log))
        except ImportError:
            refused.add(log.name.split(".")[0])
        except (OSError, ValueError):
            pass
    assert refused == {"links", "objref", "objref_dset", "types_misc"}


@pytest.fixture
def runs(tmp_path: Path) -> list[Path]:
    """Logs of several runs."""
    copies = [tmp_path / f"run{number}" for number in range(4)]
    return [Path(shutil.copyfile(LOG, copy)) for copy in copies]


def test_a_dataset_is_what_the_log_holds(expected) -> None:
    with xarray.open_dataset(LOG, engine="h5logfs") as dataset:
        xarray.testing.assert_identical(dataset.load(), expected)


def test_options_reach_the_log_and_unknown_ones_are_refused() -> None:
    with pytest.raises(ValueError, match="no_such_option"):
        xarray.open_dataset(LOG, engine="h5logfs", backend_kwargs={"no_such_option": 1})


def test_values_are_decoded_as_asked(expected) -> None:
    arguments = {"decode_times": False, "mask_and_scale": False, "drop_variables": [next(iter(expected.data_vars))]}
    with xarray.open_dataset(EXPECTED, engine="h5netcdf", **arguments) as raw:
        with xarray.open_dataset(LOG, engine="h5logfs", **arguments) as dataset:
            xarray.testing.assert_identical(dataset, raw)


def test_the_content_tells_a_log_whatever_its_name_is(runs: list[Path]) -> None:
    backend = xarray.backends.list_engines()["h5logfs"]
    assert all(backend.guess_can_open(run) for run in runs)
    assert not backend.guess_can_open(EXPECTED)
    assert not backend.guess_can_open(runs[0].parent)
    assert not backend.guess_can_open("http://example.org/run")


def test_a_plain_file_is_read_as_it_is(expected) -> None:
    with xarray.open_dataset(EXPECTED, engine="h5logfs") as dataset:
        xarray.testing.assert_identical(dataset, expected)


def test_groups_are_opened_alone_and_as_a_tree() -> None:
    groups = []
    with h5py.File(h5logfs.open(WITHOUT_DIMENSIONS)) as file:
        file.visititems(lambda path, item: groups.append(path) if isinstance(item, h5py.Group) else None)
        tree = xarray.open_datatree(WITHOUT_DIMENSIONS, engine="h5logfs")
        with tree:
            assert sorted(f"/{group}" for group in groups) == sorted(set(tree.groups) - {"/"})
            for group in groups:
                names = {name for name, item in file[group].items() if isinstance(item, h5py.Dataset)}
                with xarray.open_dataset(WITHOUT_DIMENSIONS, engine="h5logfs", group=group) as dataset:
                    assert set(dataset.variables) == names
                    assert set(tree[group].to_dataset(inherit=False).variables) == names


def test_an_error_of_the_log_names_it(tmp_path: Path) -> None:
    with pytest.raises(h5logfs.LogError, match="truncated"):
        xarray.open_dataset(CORPUS / "truncated.log.h5", engine="h5logfs")
    with pytest.raises(FileNotFoundError):
        xarray.open_dataset(tmp_path / "missing", engine="h5logfs")


def test_a_pickled_dataset_opens_the_log_by_its_path(expected, monkeypatch, tmp_path: Path) -> None:
    monkeypatch.chdir(CORPUS)
    with xarray.open_dataset(LOG.name, engine="h5logfs", chunks={}) as dataset:
        copied = pickle.dumps(dataset)
    monkeypatch.chdir(tmp_path)
    with pickle.loads(copied) as again:
        xarray.testing.assert_identical(again.load(), expected)


def means(runs: list[Path]):
    """The mean of all numbers of some runs, computed by dask."""
    dataset = xarray.open_mfdataset(
        runs, engine="h5logfs", combine="nested", concat_dim="run", chunks={}, data_vars="all", coords="minimal",
        compat="override", join="override",
    )
    numbers = dataset[[name for name, variable in dataset.data_vars.items() if variable.dtype.kind in "if"]]
    return numbers.mean()


@pytest.mark.parametrize("scheduler", ["synchronous", "threads", "processes"])
def test_dask_reads_many_logs(scheduler: str, runs: list[Path], expected) -> None:
    dask = pytest.importorskip("dask")
    with dask.config.set(scheduler=scheduler, num_workers=2):
        found = means(runs).compute()
    assert_means(found, expected)


def test_a_cluster_of_two_processes_reads_many_logs(runs: list[Path], expected) -> None:
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
    ) as cluster, distributed.Client(cluster) as client:
        found = means(runs).compute()
        workers = {worker for worker in client.run(lambda: None)}
    assert len(workers) == 2
    assert_means(found, expected)


def assert_means(found, expected) -> None:
    assert len(found.data_vars) > 2
    for name, mean in found.data_vars.items():
        np.testing.assert_allclose(mean, expected[name].mean(), rtol=1e-6)


def test_a_file_in_several_parts_is_read_as_the_file_that_they_make_up():
    parts = CORPUS.parent / "corpus-striped" / "contig_2" / "data.h5"
    with xarray.open_dataset(CORPUS.parent / "corpus-striped" / "contig_2.expected.h5", engine="h5netcdf", phony_dims="sort") as plain:
        with xarray.open_dataset(parts, engine="h5logfs", phony_dims="sort") as dataset:
            assert len(dataset.variables) > 0
            xarray.testing.assert_identical(dataset.load(), plain.load())


def test_the_engine_takes_the_arguments_of_h5netcdf(expected) -> None:
    class Counted:
        """A lock that counts its uses."""

        used = 0

        def __enter__(self):
            self.used += 1

        def __exit__(self, *_):
            pass

    lock = Counted()
    arguments = {"format": "NETCDF4", "storage_options": {}, "lock": lock}
    with xarray.open_dataset(LOG, engine="h5logfs", **arguments) as dataset:
        xarray.testing.assert_identical(dataset.load(), expected)
    assert lock.used >= len(expected.data_vars)
    for lock in (False, None, threading.Lock()):
        xarray.open_dataset(LOG, engine="h5logfs", lock=lock, format=None, storage_options=None, phony_dims=None).close()
    with pytest.raises(ValueError, match="invalid format"):
        xarray.open_dataset(LOG, engine="h5logfs", format="NETCDF3")


@pytest.mark.parametrize("log", [LOG, EXPECTED], ids=["log", "plain"])
def test_file_objects_are_read(log: Path, expected) -> None:
    def fsspec_file():
        return pytest.importorskip("fsspec").open(log).open()

    makes = [lambda: h5logfs.open(log), lambda: open(log, "rb"), fsspec_file]
    if log == EXPECTED:
        makes += [lambda: io.BytesIO(log.read_bytes()), lambda: log.read_bytes()]
    for make in makes:
        with xarray.open_dataset(make(), engine="h5logfs") as dataset:
            xarray.testing.assert_identical(dataset.load(), expected)
    backend = xarray.backends.list_engines()["h5logfs"]
    assert backend.guess_can_open(h5logfs.open(log)) == (log == LOG)
    with pytest.raises(ValueError, match="no_such_option"):
        xarray.open_dataset(io.BytesIO(b""), engine="h5logfs", backend_kwargs={"no_such_option": 1})


def test_a_plain_file_among_logs_is_opened_too(runs: list[Path], expected) -> None:
    with xarray.open_mfdataset(
        [*runs, EXPECTED], engine="h5logfs", combine="nested", concat_dim="run", data_vars="all", coords="minimal",
        compat="override", join="override",
    ) as dataset:
        assert dataset.sizes["run"] == 5
        name = next(name for name, variable in expected.data_vars.items() if variable.dtype.kind == "f")
        for number in range(5):
            np.testing.assert_array_equal(dataset[name][number], expected[name])
