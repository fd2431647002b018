"""Writes logs in the Log VOL layout, as `docs/formats/logvol.md` and `logvol-extensions.md` describe it."""

from __future__ import annotations

import itertools
import struct
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import h5py
import numcodecs
import numpy as np
from h5py import h5a, h5d, h5p, h5s, h5t

DEFLATE, SHUFFLE, FLETCHER32 = 1, 2, 3
_SUBFILED = 0x200


@dataclass
class Dataset:
    """The content of a dataset, and its form in the log: each tile is a record."""

    values: np.ndarray
    tile: tuple[int, ...]
    #: Shape of the chunks in the view. None: not recorded.
    chunk: tuple[int, ...] | None = None
    #: The filters of the dataset, with their parameters.
    filters: list[tuple[int, list[int]]] = field(default_factory=list)
    #: Whether records are deflated, which the dataset does not say.
    is_deflated: bool = False
    #: Numbers of tiles that are never written.
    left_out: frozenset[int] = frozenset()

    def stored(self, tile: np.ndarray) -> bytes:
        data = np.ascontiguousarray(tile).tobytes()
        if self.is_deflated:
            return zlib.compress(data, 1)
        for number, _ in self.filters:
            data = _FILTERS[number](data, self.values.dtype.itemsize)
        return data


class _Record(NamedTuple):
    dataset: int
    start: tuple[int, ...]
    count: tuple[int, ...]
    data: bytes


def write(path: Path, datasets: dict[str, Dataset], subfiles: int = 0) -> None:
    """Writes a log with this number of subfiles. 0: the log itself has the records."""
    records = [r for number, dataset in enumerate(datasets.values()) for r in _records(number, dataset)]
    with h5py.File(path, "w") as file:
        for number, (name, dataset) in enumerate(datasets.items()):
            _anchor(file, name, number, dataset)
        if not subfiles:
            _put_log(file, len(datasets), records)
            return
        _attribute(file.id, "_int_att", [len(datasets), 0, 0, _SUBFILED, subfiles], h5t.STD_I32LE)
    directory = Path(f"{path}.subfiles")
    directory.mkdir()
    for n in range(subfiles):
        with h5py.File(directory / f"{path.name}.{n}", "w") as subfile:
            _put_log(subfile, len(datasets), records[n::subfiles])


def _records(number: int, dataset: Dataset) -> Iterator[_Record]:
    starts = itertools.product(*(range(0, *sides) for sides in zip(dataset.values.shape, dataset.tile)))
    for n, start in enumerate(starts):
        tile = dataset.values[tuple(slice(s, s + side) for s, side in zip(start, dataset.tile))]
        if n not in dataset.left_out:
            yield _Record(number, start, tile.shape, dataset.stored(tile))


def _anchor(file: h5py.File, name: str, number: int, dataset: Dataset) -> None:
    datatype = h5t.py_create(dataset.values.dtype, logical=True)
    anchor = h5d.create(file.id, name.encode(), datatype, h5s.create(h5s.NULL))
    shape = dataset.values.shape
    for attribute in ("_dims", "_mdims"):
        _attribute(anchor, attribute, shape, h5t.STD_I64LE)
    _attribute(anchor, "_ID", [number], h5t.STD_I32LE)
    if dataset.chunk is not None:
        _attribute(anchor, "_h5logfs_chunk", dataset.chunk, h5t.STD_I64LE)
    if dataset.filters:
        words = [[number, 0, len(values), *values] for number, values in dataset.filters]
        _attribute(anchor, "_h5logfs_filters", sum(words, []), h5t.STD_U32LE)


def _put_log(file: h5py.File, datasets: int, records: list[_Record]) -> None:
    """Writes `_int_att` and `/_LOG`, with one `_ld` and one `_md` of one process."""
    _attribute(file.id, "_int_att", [datasets, 1, 1, 0, 1], h5t.STD_I32LE)
    log = file.create_group("_LOG")
    at = _bytes(log, "_ld_0", b"".join(record.data for record in records))
    entries = []
    for record in records:
        coordinates = np.array([record.start, record.count], "<i8").tobytes()
        header = struct.pack("<iiiqq", 28 + len(coordinates), record.dataset, 0, at, len(record.data))
        entries.append(header + coordinates)
        at += len(record.data)
    section = b"".join(entries)
    _bytes(log, "_md_0", struct.pack("<qq", 1, 16 + len(section)) + section)


def _bytes(group: h5py.Group, name: str, data: bytes) -> int:
    """A dataset of these bytes. Returns their offset in the file."""
    creation = h5p.create(h5p.DATASET_CREATE)
    creation.set_layout(h5d.CONTIGUOUS)
    creation.set_alloc_time(h5d.ALLOC_TIME_EARLY)
    dataset = h5d.create(group.id, name.encode(), h5t.STD_B8LE, h5s.create_simple((len(data),)), creation)
    dataset.write(h5s.ALL, h5s.ALL, np.frombuffer(data, np.uint8), mtype=h5t.STD_B8LE)
    return dataset.get_offset()


def _attribute(item: h5py.h5g.GroupID | h5d.DatasetID, name: str, values: Iterable[int], datatype: h5t.TypeID) -> None:
    array = np.array(list(values), datatype.dtype)
    attribute = h5a.create(item, name.encode(), datatype, h5s.create_simple(array.shape))
    attribute.write(array)


_FILTERS = {
    DEFLATE: lambda data, _: zlib.compress(data, 1),
    SHUFFLE: lambda data, size: bytes(numcodecs.Shuffle(size).encode(data)),
    FLETCHER32: lambda data, _: bytes(numcodecs.Fletcher32().encode(data)),
}
