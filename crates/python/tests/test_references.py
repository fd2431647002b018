"""References to the chunks of logs: all that readers of Zarr see through them is what the logs hold."""

from __future__ import annotations

import gzip
import json
import os
import shutil
from pathlib import Path

import h5py
import numpy as np
import pytest

import h5logfs

zarr = pytest.importorskip("zarr")
fsspec = pytest.importorskip("fsspec")

TESTS = Path(__file__).resolve().parents[3] / "tests"
CORPUS = TESTS / "corpus"
PNETCDF = TESTS / "corpus-pnetcdf"
# In those that are damaged, the writer lost data before it was logged.
CASES = sorted(
    log.name[: -len(".log.h5")]
    for log in CORPUS.glob("*.log.h5")
    if log.with_name(log.name.replace(".log.", ".expected.")).exists() and not log.name.startswith("damaged_")
)
NETCDF_CASES = sorted(case.parent.name for case in PNETCDF.glob("*/case.json"))

# What no Zarr array can hold, and the reason that is given.
REFUSED = {
    "fill": {"fill_cmp": "no Zarr array has elements of the type"},
    "objref_dset": {"refs": "no Zarr array has elements of the type"},
    "zero_scalar": {"scalar_cmp": "no Zarr array has elements of the type"},
    "types_misc": {
        "compound": "no Zarr array has elements of the type",
        "nested_compound": "no Zarr array has elements of the type",
    },
}


def log(case: str) -> Path:
    return CORPUS / f"{case}.log.h5"


def group_of(references: object) -> zarr.Group:
    """The root group, as any reader of Zarr opens it."""
    fs = fsspec.filesystem(
        "reference",
        fo=references,
        asynchronous=True,
        remote_protocol="file",
        remote_options={"asynchronous": True},
    )
    return zarr.open_group(zarr.storage.FsspecStore(fs, read_only=True, path=""), mode="r", zarr_format=2)


def elements(dataset: h5py.Dataset) -> np.ndarray:
    if isinstance(dataset.id.get_type(), h5py.h5t.TypeOpaqueID):
        values = np.empty(dataset.shape, dataset.dtype)
        dataset.id.read(h5py.h5s.ALL, h5py.h5s.ALL, values, mtype=dataset.id.get_type())
        return values
    info = h5py.check_string_dtype(dataset.dtype)
    return np.asarray(dataset.asstr()[()] if info is not None and info.length is None else dataset[()])


def same(got: np.ndarray, expected: np.ndarray) -> bool:
    if got.shape != expected.shape:
        return False
    if expected.dtype.kind in "OT":
        return bool((got.astype(object) == expected.astype(object)).all())
    return got.astype(expected.dtype).tobytes() == expected.tobytes()


def compare(group: zarr.Group, expected: h5py.File, left_out: set[str]) -> int:
    """Compares all datasets. Returns how many there are."""
    found = 0

    def visit(path: str, dataset: object) -> None:
        nonlocal found
        if not isinstance(dataset, h5py.Dataset) or path in left_out or dataset.shape is None:
            return
        if dataset.attrs.get("NAME", b"").startswith(b"This is a netCDF dimension but not"):
            return
        array = group[path.replace("_nc4_non_coord_", "")]
        assert same(np.asarray(array[...]), elements(dataset)), path
        found += 1

    expected.visititems(visit)
    return found


@pytest.mark.parametrize("case", CASES)
def test_arrays_are_what_the_log_holds(case: str) -> None:
    refused = REFUSED.get(case, {})
    references = h5logfs.references(log(case), drop_variables=refused)
    with h5py.File(CORPUS / f"{case}.expected.h5", "r") as expected:
        compare(group_of(references), expected, set(refused))


@pytest.mark.parametrize(("case", "name"), [(case, name) for case in REFUSED for name in REFUSED[case]])
def test_what_cannot_be_referenced_is_named(case: str, name: str) -> None:
    others = [other for other in REFUSED[case] if other != name]
    with pytest.raises(h5logfs.LogError, match=f"dataset /{name} .*{REFUSED[case][name]}"):
        h5logfs.references(log(case), drop_variables=others)


def test_chunks_of_the_corpus_that_lie_in_one_piece_are_referenced() -> None:
    counts = {"referenced": 0, "inlined": 0}
    for case in CASES:
        refs = h5logfs.references(log(case), drop_variables=REFUSED.get(case, {}))["refs"]
        for key, value in refs.items():
            if not key.rpartition("/")[2].startswith("."):
                counts["inlined" if isinstance(value, str) else "referenced"] += 1
    assert counts["referenced"] >= 15, counts


def lay_out(case: str, directory: Path) -> Path:
    """Puts a netCDF file and its logs there, as the job left them: the file is older than the logs."""
    for source in (PNETCDF / case).glob("file.nc*"):
        target = directory / source.name
        if source.suffix == ".gz":
            with gzip.open(source) as packed, open(target.with_suffix(""), "wb") as unpacked:
                shutil.copyfileobj(packed, unpacked)
        else:
            shutil.copyfile(source, target)
    now = (directory / "file.nc").stat().st_mtime
    for path in directory.glob("file.nc*"):
        numbers = [int(part) for part in path.name.replace(".", "_").split("_") if part.isdigit()]
        age = 100 if path.name == "file.nc" else 50 - min(sum(numbers), 40)
        os.utime(path, (now - age, now - age))
    return directory / "file.nc"


@pytest.mark.parametrize("case", [case for case in NETCDF_CASES if (PNETCDF / case / "file.nc").exists()])
def test_arrays_are_what_a_netcdf_log_holds(case: str, tmp_path: Path) -> None:
    file = lay_out(case, tmp_path)
    try:
        opened = h5logfs.open(file)
    except h5logfs.LogError as error:
        with pytest.raises(h5logfs.LogError):
            h5logfs.references(file)
        assert "file.nc" in str(error)
        return
    if not opened.is_log:
        with pytest.raises(ValueError, match="no log"):
            h5logfs.references(file)
        return
    view = h5py.File(opened, "r")
    with view:
        left_out: set[str] = set()
        while True:
            try:
                references = h5logfs.references(file, drop_variables=left_out)
                break
            except h5logfs.LogError as error:
                # Its elements have to be unreadable in the view as well.
                name = str(error).partition("dataset /")[2].partition(":")[0].split(" ")[0]
                with pytest.raises(OSError):
                    view[name][()]
                left_out.add(name)
        compare(group_of(references), view, left_out)


def test_a_base_of_the_other_byte_order_is_referenced_in_it(tmp_path: Path) -> None:
    file = lay_out("append-cdf2-np4", tmp_path)
    refs = h5logfs.references(file)["refs"]
    types = {json.loads(value)["dtype"][0] for key, value in refs.items() if key.endswith(".zarray")}
    assert ">" in types


def test_urls_replace_the_directory() -> None:
    def urls(**arguments: object) -> set[str]:
        refs = h5logfs.references(log("records"), **arguments)["refs"]
        return {value[0] for value in refs.values() if isinstance(value, list)}

    files = urls()
    assert files and all(os.path.isfile(file) for file in files)
    moved = {f"s3://bucket/run/{os.path.relpath(file, CORPUS)}" for file in files}
    assert urls(url="s3://bucket/run") == moved == urls(url="s3://bucket/run/")
    assert urls(url=lambda path: f"http://host{path}") == {f"http://host{file}" for file in files}


def test_the_threshold_bounds_what_is_inlined() -> None:
    with pytest.raises(h5logfs.LogError, match=r"dataset /.* bytes are more than the inline_threshold of 0"):
        h5logfs.references(log("strided"), inline_threshold=0)


def test_a_plain_file_is_refused() -> None:
    with pytest.raises(ValueError, match="no log"):
        h5logfs.references(CORPUS / "nd.expected.h5")


def test_parquet_holds_the_same(tmp_path: Path) -> None:
    pytest.importorskip("fastparquet")
    pytest.importorskip("kerchunk")
    target = tmp_path / "refs.parq"
    h5logfs.references(log("nd")).to_parquet(target)
    with h5py.File(CORPUS / "nd.expected.h5", "r") as expected:
        assert compare(group_of(str(target)), expected, set()) > 3


def test_json_holds_the_same(tmp_path: Path) -> None:
    target = tmp_path / "refs.json"
    target.write_text(json.dumps(h5logfs.references(log("records"))))
    with h5py.File(CORPUS / "records.expected.h5", "r") as expected:
        assert compare(group_of(str(target)), expected, set()) > 3


@pytest.mark.parametrize("case", CASES)
def test_virtual_datasets_are_what_the_log_holds(case: str) -> None:
    pytest.importorskip("virtualizarr")
    from obspec_utils.registry import ObjectStoreRegistry
    from obstore.store import LocalStore

    from h5logfs.virtualizarr import LogParser

    registry = ObjectStoreRegistry({"file://": LocalStore()})
    refused = REFUSED.get(case, {})
    store = LogParser(drop_variables=refused)(f"file://{log(case)}", registry)
    group = zarr.open_group(store, mode="r", zarr_format=3)
    with h5py.File(CORPUS / f"{case}.expected.h5", "r") as expected:
        compare(group, expected, set(refused))


def test_virtual_datasets_become_references_that_need_no_h5logfs(tmp_path: Path) -> None:
    virtualizarr = pytest.importorskip("virtualizarr")
    xarray = pytest.importorskip("xarray")
    from obspec_utils.registry import ObjectStoreRegistry
    from obstore.store import LocalStore

    from h5logfs.virtualizarr import LogParser

    path = log("netcdf4_wrf")
    registry = ObjectStoreRegistry({"file://": LocalStore()})
    with xarray.open_dataset(path, engine="h5logfs") as expected:
        with virtualizarr.open_virtual_dataset(
            f"file://{path}", registry, parser=LogParser(), loadable_variables=list(expected.variables)
        ) as virtual:
            xarray.testing.assert_identical(virtual.load(), expected.load())
