"""HDF5 files in several parts: their datasets as arrays, and references into the parts."""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import h5logfs
from conftest import CORPUS

PARTS = CORPUS.parent / "corpus-striped"
# The file that a user opens, and the plain file with its content.
CASES = {
    "attrs_4/sub/run.h5": "attrs_4",
    "chunk_3_ioc1/data.h5": "chunk_3_ioc1",
    "extend_3/data.h5": "extend_3",
    "killed_flushed/data.h5": "killed_flushed",
    "one_subfile/data.h5": "one_subfile",
    "v220_zero_stub/data.h5": "v220_zero_stub",
    "family/fam_00000.h5": "fam",
    "family/famL_000.h5": "famL",
}
RANDOM = np.random.default_rng(39)


def stripe(flat: Path, stub: Path, size: int, count: int) -> list[Path]:
    """Writes a file with a superblock of version 0 as HDF5's subfiling driver would. Returns the paths of the subfiles."""
    contents = bytearray(flat.read_bytes())
    information = struct.pack("<IIiqqQ", 0xFED01331, 1, 1, size, count, 0)
    block = struct.pack("<II", 0, len(information)) + b"Subfilin" + information
    end = len(contents) + len(block)
    contents[40:56] = struct.pack("<QQ", end, len(contents))
    contents += block
    stub.write_bytes(contents[:96])
    name = f"{stub.name}.subfile_{stub.stat().st_ino}"
    subfiles = [stub.with_name(f"{name}_{number + 1}_of_{count}") for number in range(count)]
    stripes = [contents[at : at + size] for at in range(0, len(contents), size)]
    for number, path in enumerate(subfiles):
        path.write_bytes(b"".join(stripes[number::count]))
    stub.with_name(f"{name}.config").write_text(f"stripe_size={size}\naggregator_count=1\nsubfile_count={count}\n")
    return subfiles


def fill(file: h5py.File) -> None:
    """Datasets with each kind of storage, some of them written in part."""
    data = RANDOM.integers(0, 1000, (60, 45)).astype("<i4")
    file["contiguous"] = data
    file["swapped"] = data.astype(">f8")
    file["text"] = np.array(["one", "two", "a longer text"], dtype=h5py.string_dtype())
    file.create_dataset("unwritten", (5, 6), "<f4", fillvalue=2.5)
    for name, maxshape in {"fixed": None, "grows": (None, 45), "second": (60, None), "both": (None, None)}.items():
        for kind, options in {"plain": {}, "packed": {"compression": "gzip", "shuffle": True, "fletcher32": True}}.items():
            file.create_dataset(f"{name}/{kind}", data=data, chunks=(7, 11), maxshape=maxshape, **options)
    part = file.create_dataset("part", (500, 400), "<f8", chunks=(10, 20), fillvalue=-1.0, compression="gzip")
    part[123:130, 50:300] = 3.0
    file["scalar"] = 7
    file["other filter"] = file.create_dataset("lzf", data=data, chunks=(7, 11), compression="lzf")


@pytest.fixture(params=["earliest", "latest"])
def flat(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / "flat.h5"
    # The superblock stays, and new objects have the indexes of its version.
    h5py.File(path, "w", libver="earliest").close()
    with h5py.File(path, "a", libver=request.param) as file:
        fill(file)
    return path


def datasets(file: h5py.File) -> dict[str, h5py.Dataset]:
    found: dict[str, h5py.Dataset] = {}
    file.visititems(lambda name, item: found.update({name: item}) if isinstance(item, h5py.Dataset) else None)
    return found


def whole(dataset: h5py.Dataset) -> Any:
    return dataset.asstr()[()] if h5py.check_string_dtype(dataset.dtype) else dataset[()]


def selections(shape: tuple[int, ...]) -> list[Any]:
    ranges = [[slice(*sorted(RANDOM.integers(0, side + 1, 2)), step) for side in shape] for step in (1, 1, 1, 2, 3)]
    return [tuple(each) for each in ranges]


@pytest.mark.parametrize("entry", CASES)
def test_arrays_of_files_that_hdf5_has_written(entry: str) -> None:
    log = h5logfs.Log(PARTS / entry)
    with h5py.File(PARTS / f"{CASES[entry]}.expected.h5") as expected:
        found = datasets(expected)
        assert found
        for name, dataset in found.items():
            if dataset.dtype != object or h5py.check_string_dtype(dataset.dtype):
                np.testing.assert_array_equal(log[name][...], whole(dataset), name)


@pytest.mark.parametrize("size, count", [(4096, 3), (1000, 5), (1 << 20, 2)])
def test_arrays_of_any_storage(flat: Path, tmp_path: Path, size: int, count: int) -> None:
    stripe(flat, tmp_path / "data.h5", size, count)
    log = h5logfs.Log(tmp_path / "data.h5")
    with h5py.File(flat) as expected:
        for name, dataset in datasets(expected).items():
            if name in ("lzf", "other filter"):
                with pytest.raises(h5logfs.LogError, match="filter 32000 is none"):
                    log[name][...]
                continue
            np.testing.assert_array_equal(log[name][...], whole(dataset), name)
            if len(dataset.shape) == 2:
                for key in selections(dataset.shape):
                    np.testing.assert_array_equal(log[name][key], dataset[key], f"{name} {key}")


def test_what_a_missing_subfile_has_is_an_error(tmp_path: Path) -> None:
    data = np.arange(40_000, dtype="<i8").reshape(40, 1000)
    with h5py.File(tmp_path / "flat.h5", "w") as file:
        file["x"] = data
    subfiles = stripe(tmp_path / "flat.h5", tmp_path / "data.h5", 32_768, 3)
    os.remove(subfiles[2])
    array = h5logfs.Log(tmp_path / "data.h5")["x"]
    with pytest.raises(h5logfs.LogError, match=f"{subfiles[2].name}, which is missing"):
        array[...]
    rows = [row for row in range(40) if (row * 8000) // 32_768 % 3 != 2]
    read = 0
    for row in rows:
        try:
            np.testing.assert_array_equal(array[row], data[row])
            read += 1
        except h5logfs.LogError as error:
            assert subfiles[2].name in str(error)
    assert read > len(rows) // 2


# --- readers of Zarr ---


def test_references_lead_into_the_subfiles(flat: Path, tmp_path: Path) -> None:
    pytest.importorskip("numcodecs")
    zarr = pytest.importorskip("zarr")
    fsspec = pytest.importorskip("fsspec")
    subfiles = stripe(flat, tmp_path / "data.h5", 16_384, 3)
    references = h5logfs.references(tmp_path / "data.h5", drop_variables=["lzf", "other filter"])
    chunks = {key: value for key, value in references["refs"].items() if not key.rpartition("/")[2].startswith(".")}
    pieces = {key: value for key, value in chunks.items() if isinstance(value, list)}
    assert {value[0] for value in pieces.values()} == {str(path) for path in subfiles}
    # Most chunks lie in one stripe. Others are inlined.
    of_one = [key for key in chunks if key.startswith("grows/packed/")]
    assert len(of_one) == 45 and sum(key in pieces for key in of_one) > 30
    options = {"asynchronous": True}
    fs = fsspec.filesystem("reference", fo=references, remote_protocol="file", remote_options=options, **options)
    group = zarr.open_group(zarr.storage.FsspecStore(fs, read_only=True, path=""), mode="r", zarr_format=2)
    with h5py.File(flat) as expected:
        for name, dataset in datasets(expected).items():
            if name not in ("lzf", "other filter"):
                np.testing.assert_array_equal(np.asarray(group[name][...]), whole(dataset), name)


def test_what_is_larger_than_the_threshold_in_several_stripes_is_refused(flat: Path, tmp_path: Path) -> None:
    pytest.importorskip("zarr")
    stripe(flat, tmp_path / "data.h5", 1000, 3)
    with pytest.raises(h5logfs.LogError, match="dataset /contiguous .* do not lie in the log in one piece"):
        h5logfs.references(tmp_path / "data.h5", inline_threshold=1000, drop_variables=["lzf", "other filter", "both", "text"])
