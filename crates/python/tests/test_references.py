"""References to the chunks of logs: readers of Zarr see exactly what the logs hold."""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import h5logfs
from h5logfs import _zarr

pytest.importorskip("numcodecs")
zarr = pytest.importorskip("zarr")
fsspec = pytest.importorskip("fsspec")

from conftest import BURST_DIRS, CORPUS, PNETCDF  # noqa: E402
from log_writer import DEFLATE, FLETCHER32, SHUFFLE, Dataset, write  # noqa: E402

# The writer of the damaged cases lost data before it was logged.
CASES = sorted(
    log.name[: -len(".log.h5")]
    for log in CORPUS.glob("*.log.h5")
    if log.with_name(log.name.replace(".log.", ".expected.")).exists() and not log.name.startswith("damaged_")
)
NETCDF_CASES = sorted(case.parent.name for case in PNETCDF.glob("*/case.json"))

# A type that no Zarr array can hold.
NO_TYPE = "no Zarr array has elements of the type"
REFUSED = {
    "fill": ["fill_cmp"],
    "objref_dset": ["refs"],
    "zero_scalar": ["scalar_cmp"],
    "types_misc": ["compound", "nested_compound"],
}


def log(case: str) -> Path:
    return CORPUS / f"{case}.log.h5"


# --- how readers of Zarr open a log ---


def group_of(references: object) -> zarr.Group:
    """The root group, as any Zarr reader opens it."""
    fs = fsspec.filesystem(
        "reference",
        fo=references,
        asynchronous=True,
        remote_protocol="file",
        remote_options={"asynchronous": True},
    )
    return zarr.open_group(zarr.storage.FsspecStore(fs, read_only=True, path=""), mode="r", zarr_format=2)


def from_dictionary(path: Path, scratch: Path, **arguments: Any) -> zarr.Group:
    return group_of(h5logfs.references(path, **arguments))


def from_json(path: Path, scratch: Path, **arguments: Any) -> zarr.Group:
    target = scratch / "references.json"
    target.write_text(json.dumps(h5logfs.references(path, **arguments)))
    return group_of(str(target))


def from_parquet(path: Path, scratch: Path, **arguments: Any) -> zarr.Group:
    pytest.importorskip("fastparquet")
    pytest.importorskip("pyarrow")
    target = scratch / "references.parq"
    # Files of few chunks, so that most arrays have several.
    h5logfs.references(path, **arguments).to_parquet(target, record_size=3)
    return group_of(str(target))


def from_virtualizarr(path: Path, scratch: Path, **arguments: Any) -> zarr.Group:
    pytest.importorskip("virtualizarr")
    from h5logfs.virtualizarr import LogParser

    store = LogParser(**arguments)(f"file://{path}", registry())
    return zarr.open_group(store, mode="r", zarr_format=3)


def registry() -> Any:
    from obspec_utils.registry import ObjectStoreRegistry
    from obstore.store import LocalStore

    return ObjectStoreRegistry({"file://": LocalStore()})


WAYS = [from_dictionary, from_json, from_parquet, from_virtualizarr]


# --- what readers must see ---


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


def objects(file: h5py.File, left_out: Iterable[str] = ()) -> dict[str, Any]:
    """The groups and datasets that Zarr readers must see, by their names there."""
    found: dict[str, Any] = {"": file}

    def visit(path: str, item: Any) -> None:
        is_dataset = isinstance(item, h5py.Dataset)
        is_no_variable = item.attrs.get("NAME", b"").startswith(b"This is a netCDF dimension but not")
        is_left_out = path in left_out or is_no_variable or isinstance(item, h5py.Datatype)
        if not is_left_out and not (is_dataset and item.shape is None):
            found[path.replace("_nc4_non_coord_", "")] = item

    file.visititems(visit)
    return found


def compare(group: zarr.Group, expected: h5py.File, left_out: Iterable[str] = ()) -> int:
    """Compares all datasets. Returns their number."""
    items = objects(expected, left_out).items()
    datasets = {path: item for path, item in items if isinstance(item, h5py.Dataset)}
    for path, dataset in datasets.items():
        assert same(np.asarray(group[path][...]), elements(dataset)), path
    return len(datasets)


def shown(value: Any, file: h5py.File) -> Any:
    """The value of an attribute in Zarr."""
    if isinstance(value, h5py.Empty):
        return "" if value.dtype.kind in "SO" else None
    if isinstance(value, h5py.Reference):
        return file[value].name
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, (np.ndarray, np.void)):
        value = value.tolist()
    if isinstance(value, (list, tuple)):
        parts = [shown(part, file) for part in value]
        return parts[0] if len(parts) == 1 and isinstance(value, list) else parts
    return value.item() if isinstance(value, np.generic) else value


def attributes(item: Any) -> dict[str, Any]:
    hidden = {"DIMENSION_LIST", "REFERENCE_LIST", "_Netcdf4Dimid", "_Netcdf4Coordinates"}
    hidden |= {"_NCProperties", "_nc3_strict"} if item.name == "/" else set()
    hidden |= {"CLASS", "NAME"} if isinstance(item, h5py.Dataset) and item.is_scale else set()
    return {name: shown(value, item.file) for name, value in item.attrs.items() if name not in hidden}


# --- the corpus ---


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("case", CASES)
def test_arrays_are_what_the_log_holds(case: str, way: Any, tmp_path: Path) -> None:
    refused = REFUSED.get(case, [])
    group = way(log(case), tmp_path, drop_variables=refused)
    with h5py.File(CORPUS / f"{case}.expected.h5", "r") as expected:
        compare(group, expected, refused)


@pytest.mark.parametrize("case", CASES)
def test_attributes_are_those_of_the_log(case: str) -> None:
    refused = REFUSED.get(case, [])
    group = group_of(h5logfs.references(log(case), drop_variables=refused))
    with h5py.File(CORPUS / f"{case}.expected.h5", "r") as expected:
        for path, item in objects(expected, refused).items():
            found = group[path] if path else group
            attrs = dict(found.attrs)
            dimensions = attrs.pop("_ARRAY_DIMENSIONS", [])
            wanted = attributes(item)
            if isinstance(item, h5py.Dataset):
                assert len(dimensions) == found.ndim, path
                if "_FillValue" not in attrs and "_FillValue" in wanted:
                    attrs["_FillValue"] = found.fill_value.item()
            assert attrs == wanted, path


@pytest.mark.parametrize(("case", "name"), [(case, name) for case in REFUSED for name in REFUSED[case]])
def test_what_cannot_be_referenced_is_named(case: str, name: str) -> None:
    others = [other for other in REFUSED[case] if other != name]
    with pytest.raises(h5logfs.LogError, match=f"dataset /{name} .*{NO_TYPE}"):
        h5logfs.references(log(case), drop_variables=others)


def test_urls_replace_the_directory() -> None:
    def urls(**arguments: Any) -> set[str]:
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
    with pytest.raises(ValueError, match="not a log"):
        h5logfs.references(CORPUS / "nd.expected.h5")


# --- netCDF files with logs ---


def lay_out(case: str, directory: Path) -> Path:
    """Copies a netCDF file and its logs as the job left them: the file is older than the logs."""
    shutil.copytree(PNETCDF / case, directory, dirs_exist_ok=True)
    for packed in directory.rglob("*.gz"):
        with gzip.open(packed) as source, open(packed.with_suffix(""), "wb") as target:
            shutil.copyfileobj(source, target)
    now = (directory / "file.nc").stat().st_mtime
    for path in directory.rglob("file.nc*"):
        numbers = [int(part) for part in path.name.replace(".", "_").split("_") if part.isdigit()]
        age = 100 if path.name == "file.nc" else 50 - min(sum(numbers), 40)
        os.utime(path, (now - age, now - age))
    return directory / "file.nc"


# Files, and datasets, whose data is lost.
NETCDF_REFUSED = {
    "badmagic-cdf1-np1": "lacks the magic bytes",
    "cuthead-cdf1-np1": "60 bytes are too few for the header",
    "emptyfile-cdf1-np1": "the file is empty",
}
NETCDF_LOST = {
    "badrange-cdf1-np1": ("vchar", "entry 1 at byte 200: has 7 elements from"),
    "badvarid-cdf1-np1": ("r", "entry 2 at byte 240 is of variable 9"),
    "cutdata-cdf1-np1": ("r", "its payload ends at 88"),
}
NETCDF_WHOLE = [case for case in NETCDF_CASES if case not in NETCDF_REFUSED and case != "nofile-cdf1-np1"]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("case", NETCDF_WHOLE)
def test_arrays_are_what_a_netcdf_log_holds(case: str, way: Any, tmp_path: Path) -> None:
    file = lay_out(case, tmp_path)
    options = {"burst_dir": str(tmp_path / BURST_DIRS[case])} if case in BURST_DIRS else {}
    name, reason = NETCDF_LOST.get(case, (None, ""))
    lost = [] if name is None else [name]
    if lost:
        with pytest.raises(h5logfs.LogError, match=f"dataset /{name}: .*{reason}"):
            way(file, tmp_path, **options)
    group = way(file, tmp_path, drop_variables=lost, **options)
    with h5py.File(h5logfs.open(file, **options), "r") as view:
        assert compare(group, view, lost) + len(lost) > 0


@pytest.mark.parametrize("case", NETCDF_REFUSED)
def test_a_netcdf_file_that_is_lost_is_refused(case: str, tmp_path: Path) -> None:
    with pytest.raises(h5logfs.LogError, match=NETCDF_REFUSED[case]):
        h5logfs.references(lay_out(case, tmp_path))


def test_a_netcdf_file_without_its_logs_is_refused(tmp_path: Path) -> None:
    file = lay_out("dirname-cdf2-np4", tmp_path)
    shutil.rmtree(tmp_path / "bb")
    with pytest.raises(ValueError, match="not a log"):
        h5logfs.references(file)


def test_a_base_of_the_other_byte_order_is_referenced_in_it(tmp_path: Path) -> None:
    file = lay_out("append-cdf2-np4", tmp_path)
    refs = h5logfs.references(file)["refs"]
    types = {json.loads(value)["dtype"][0] for key, value in refs.items() if key.endswith(".zarray")}
    assert ">" in types


# --- logs of large tiles ---

KIB, MIB = 1 << 10, 1 << 20


def smooth(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Distinct values that compress well."""
    return np.arange(np.prod(shape)).reshape(shape).astype(dtype)


# Tiles of 80 KiB, except at an edge.
LARGE = {
    "tiles": Dataset(smooth((1600, 2048), "<f4"), (80, 256), chunk=(80, 256)),
    "big_endian": Dataset(smooth((1600, 1024), ">f4"), (80, 256), chunk=(80, 256)),
    # The last row of tiles is shorter than the chunk, which includes the bytes after it.
    "edge": Dataset(smooth((250, 256), "<f4"), (80, 256), chunk=(80, 256)),
    "own_filters": Dataset(
        smooth((1630, 1024), "<f4"),
        (80, 256),
        chunk=(80, 256),
        filters=[(SHUFFLE, [4]), (DEFLATE, [1]), (FLETCHER32, [])],
    ),
    "deflated": Dataset(smooth((1600, 1024), "<i4"), (80, 256), chunk=(80, 256), is_deflated=True),
    # Two chunks span two tiles each, with other rows.
    "divided": Dataset(smooth((160, 256), "<f4"), (40, 128), chunk=(80, 256)),
    "sparse": Dataset(
        smooth((1600, 1024), "<f4"), (80, 256), chunk=(80, 256), left_out=frozenset(range(0, 80, 2))
    ),
    "one_piece": Dataset(smooth((3000, 1024), "<f8"), (3000, 1024), chunk=(3000, 1024)),
}
# Number of referenced chunks, and of inlined ones.
REFERENCED = {
    "tiles": (160, 0),
    "big_endian": (80, 0),
    "edge": (4, 0),
    "own_filters": (80, 4),
    "deflated": (80, 0),
    "divided": (0, 2),
    "sparse": (40, 0),
    # 24 MB, in pieces of at most 16 MB.
    "one_piece": (2, 0),
}
for row, column in (divmod(n, 4) for n in LARGE["sparse"].left_out):
    LARGE["sparse"].values[80 * row : 80 * row + 80, 256 * column : 256 * column + 256] = 0


@pytest.fixture(scope="module", params=[0, 3], ids=["one file", "subfiles"])
def large(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    """A log, and its number of subfiles."""
    path = tmp_path_factory.mktemp("large") / "large.h5"
    write(path, LARGE, request.param)
    return path, request.param


@pytest.mark.parametrize("way", WAYS)
def test_large_tiles_are_what_the_log_holds(large: tuple[Path, int], way: Any, tmp_path: Path) -> None:
    group = way(large[0], tmp_path)
    for name, dataset in LARGE.items():
        assert same(np.asarray(group[name][...]), dataset.values), name
    with h5py.File(h5logfs.open(large[0]), "r") as view:
        assert compare(group, view) == len(LARGE)


def test_large_tiles_are_referenced_in_the_files_of_the_log(large: tuple[Path, int]) -> None:
    path, subfiles = large
    references = h5logfs.references(path)["refs"]
    chunks = {key.split("/")[0]: [] for key in references if "/" in key}
    for key, value in references.items():
        name, _, position = key.partition("/")
        if position and not position.startswith("."):
            chunks[name].append(value)
    counts = {}
    for name, values in chunks.items():
        referenced = [value for value in values if isinstance(value, list)]
        counts[name] = (len(referenced), len(values) - len(referenced))
    assert counts == REFERENCED
    files = {value[0] for values in chunks.values() for value in values if isinstance(value, list)}
    assert files == {str(path)} if not subfiles else {f"{path}.subfiles/{path.name}.{n}" for n in range(subfiles)}


# --- VirtualiZarr and xarray ---


@pytest.mark.parametrize("form", ["dictionary", "json", "parquet"])
def test_xarray_reads_references(large: tuple[Path, int], form: str, tmp_path: Path) -> None:
    xarray = pytest.importorskip("xarray")
    references = h5logfs.references(large[0])
    target = str(tmp_path / f"references.{form}")
    if form == "json":
        Path(target).write_text(json.dumps(references))
    elif form == "parquet":
        references.to_parquet(target)
    with xarray.open_dataset(references if form == "dictionary" else target, engine="kerchunk", chunks={}) as read:
        for name, dataset in LARGE.items():
            assert same(read[name].values, dataset.values), name


@pytest.mark.parametrize("form", ["json", "parquet"])
def test_stored_virtual_datasets_are_read_without_h5logfs(large: tuple[Path, int], form: str, tmp_path: Path) -> None:
    virtualizarr = pytest.importorskip("virtualizarr")
    xarray = pytest.importorskip("xarray")
    from h5logfs.virtualizarr import LogParser

    target = str(tmp_path / f"virtual.{form}")
    inlined = [name for name, (_, inlined) in REFERENCED.items() if inlined]
    # With pandas 3 and pyarrow, fsspec cannot read kerchunk Parquet with inlined or unwritten chunks.
    left_out = ["sparse", *inlined] if form == "parquet" else []
    with virtualizarr.open_virtual_dataset(
        f"file://{large[0]}",
        registry(),
        parser=LogParser(drop_variables=left_out),
        loadable_variables=[name for name in inlined if name not in left_out],
    ) as virtual:
        virtual.vz.to_kerchunk(target, format=form)
    # VirtualiZarr stores a fill value for each array: zero where it knows no other.
    with xarray.open_dataset(target, engine="kerchunk", chunks={}, mask_and_scale=False) as read:
        for name in LARGE.keys() - set(left_out):
            assert same(read[name].values, LARGE[name].values), name
    with xarray.open_dataset(target, engine="kerchunk", chunks={}) as read:
        assert same(read["tiles"].values, LARGE["tiles"].values)


def test_loaded_virtual_datasets_are_those_of_the_engine() -> None:
    virtualizarr = pytest.importorskip("virtualizarr")
    xarray = pytest.importorskip("xarray")
    from h5logfs.virtualizarr import LogParser

    path = log("netcdf4_wrf")
    with xarray.open_dataset(path, engine="h5logfs") as expected:
        with virtualizarr.open_virtual_dataset(
            f"file://{path}", registry(), parser=LogParser(), loadable_variables=list(expected.variables)
        ) as virtual:
            xarray.testing.assert_identical(virtual.load(), expected.load())


def test_parquet_replaces_references_only(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    target = tmp_path / "references.parq"
    for case in ("nd", "records"):
        h5logfs.references(log(case)).to_parquet(target)
    with h5py.File(CORPUS / "records.expected.h5", "r") as expected:
        assert compare(group_of(str(target)), expected) > 3
    with pytest.raises(FileExistsError, match=re.escape(str(tmp_path))):
        h5logfs.references(log("nd")).to_parquet(tmp_path)
    assert target.exists()


@pytest.mark.parametrize("dtype, fill", [("<i2", -9), ("?", True), ("<f4", float("nan"))])
def test_an_inlined_chunk_has_fill_values_past_the_edge(dtype: str, fill: Any, tmp_path: Path) -> None:
    with h5py.File(tmp_path / "edge.h5", "w") as file:
        values = np.zeros((10, 2), dtype)
        dataset = file.create_dataset("d", data=values, chunks=(4, 2), fillvalue=fill)
        grid = _zarr._Grid(dataset.shape, dataset.chunks)
        chunk = np.frombuffer(_zarr._elements(dataset, grid, 2, dataset.dtype), dtype).reshape(4, 2)
    assert same(chunk[:2], values[8:])
    assert same(chunk[2:], np.full((2, 2), fill, dtype))


def test_lost_data_are_told(tmp_path: Path) -> None:
    run = tmp_path / "run.bp"
    shutil.copytree(CORPUS.parent / "corpus-adios" / "b5_cut_data.bp", run)
    with pytest.warns(UserWarning, match="(?s)has lost data, which the references lack: .*data.0 ends at byte"):
        h5logfs.references(run)
