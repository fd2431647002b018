"""A log as a zarr store."""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import math
import os
import struct
import threading
import warnings
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Any, Optional, Union

import numpy as np
from zarr.abc.store import ByteRequest, OffsetByteRequest, RangeByteRequest, Store, SuffixByteRequest
from zarr.core.buffer import Buffer, BufferPrototype
from zarr.dtype import parse_dtype

from . import _netcdf, _options, _types
from ._arrays import Array, Attributes
from ._file import Path
from ._log import Log
from ._zarr import LARGEST_PIECE, TAKEN, packed_type, plain, vlen_utf8

_METADATA = "zarr.json"
Values = Union[bytes, np.ndarray[Any, Any]]


class ZarrStore(Store):
    """A log as a read-only store of zarr 3, which reads it in this process: `zarr.open(h5logfs.ZarrStore(path))`,
    `xarray.open_zarr(h5logfs.ZarrStore(path), consolidated=False)`.

    Groups and arrays have the names, attributes and dimensions that netCDF programs see. Chunks are those of the log,
    without filters, and are assembled from its records on request. A dataset without chunks is divided along its first
    dimension. A dataset that cannot be a Zarr array, such as one of references, is left out with a warning.

    `threads`: number of threads that make one chunk; zarr requests several chunks at once. Other options are those of
    `h5logfs.open`. The first use raises what `h5logfs.Log` raises.
    """

    supports_writes = False
    supports_deletes = False
    supports_listing = True
    supports_consolidated_metadata = False

    def __init__(self, path: Path, *, threads: int = 1, **options: Any) -> None:
        super().__init__(read_only=True)
        # Other processes may have another working directory.
        self._path = os.path.abspath(os.fsdecode(os.fspath(path)))
        self._options = {**options, "threads": _options.threads(threads)}
        self._opening = threading.Lock()
        self._log: Optional[Log] = None
        self._found: Optional[_Tree] = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ZarrStore) and (self._path, self._options) == (other._path, other._options)

    __hash__ = None  # type: ignore[assignment]

    def __str__(self) -> str:
        return f"h5logfs://{self._path}"

    def __repr__(self) -> str:
        return f"h5logfs.ZarrStore({self._path!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (self._path, self._options)

    def with_read_only(self, read_only: bool = False) -> ZarrStore:
        """The store itself; ValueError for a writable one."""
        if not read_only:
            raise ValueError(f"{self._path}: the store of a log is read-only")
        return _again(self._path, self._options)

    def close(self) -> None:
        """Closes the files of the log. Values that are read later open them again."""
        if self._log is not None:
            self._log._state.known.release()
        super().close()

    async def get(
        self, key: str, prototype: BufferPrototype, byte_range: Optional[ByteRequest] = None
    ) -> Optional[Buffer]:
        """The value of a key, or a part of it; None if there is none."""
        await self._ensure_open()
        return await asyncio.to_thread(self.get_sync, key, prototype=prototype, byte_range=byte_range)

    def get_sync(
        self, key: str, *, prototype: Optional[BufferPrototype] = None, byte_range: Optional[ByteRequest] = None
    ) -> Optional[Buffer]:
        """Like `get`, but not async."""
        from zarr.core.buffer import default_buffer_prototype

        value = self._tree().value(key)
        if value is None:
            return None
        array = np.frombuffer(value, np.uint8) if isinstance(value, bytes) else value
        buffer = (prototype or default_buffer_prototype()).buffer
        return buffer.from_array_like(array[_part(byte_range, array.size)])

    async def get_partial_values(
        self, prototype: BufferPrototype, key_ranges: Iterable[tuple[str, Optional[ByteRequest]]]
    ) -> list[Optional[Buffer]]:
        """Parts of values."""
        return list(await asyncio.gather(*[self.get(key, prototype, part) for key, part in key_ranges]))

    async def exists(self, key: str) -> bool:
        """Whether a key has a value."""
        await self._ensure_open()
        return await asyncio.to_thread(lambda: self._tree().size(key)) is not None

    async def getsize(self, key: str) -> int:
        """Bytes of a value. FileNotFoundError if there is none."""
        await self._ensure_open()
        size = await asyncio.to_thread(lambda: self._tree().size(key))
        if size is None:
            raise FileNotFoundError(key)
        return size

    async def list(self) -> AsyncIterator[str]:
        """All keys."""
        async for key in self.list_prefix(""):
            yield key

    async def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        """The keys with this prefix."""
        await self._ensure_open()
        tree = await asyncio.to_thread(self._tree)
        for key in tree.keys(prefix):
            yield key

    async def list_dir(self, prefix: str) -> AsyncIterator[str]:
        """The names directly below a path."""
        await self._ensure_open()
        tree = await asyncio.to_thread(self._tree)
        for name in tree.names(prefix.strip("/")):
            yield name

    async def set(self, key: str, value: Buffer) -> None:
        """Raises ValueError."""
        self._check_writable()

    async def delete(self, key: str) -> None:
        """Raises ValueError."""
        self._check_writable()

    def _tree(self) -> _Tree:
        with self._opening:
            if self._found is None:
                self._log = Log(self._path, **self._options)
                self._found = _Tree(self._log)
            return self._found


def _again(path: str, options: dict[str, Any]) -> ZarrStore:
    return ZarrStore(path, **options)


def _part(asked: Optional[ByteRequest], size: int) -> slice:
    if asked is None:
        return slice(None)
    if isinstance(asked, RangeByteRequest):
        return slice(asked.start, asked.end)
    if isinstance(asked, OffsetByteRequest):
        return slice(asked.offset, None)
    if isinstance(asked, SuffixByteRequest):
        return slice(max(0, size - asked.suffix), None)
    raise ValueError(f"Unexpected byte_range, got {asked}.")


class _Tree:
    """The values of a log by key."""

    def __init__(self, log: Log) -> None:
        file = _netcdf.File(log, "access")
        self._metadata: dict[str, bytes] = {}
        self._arrays: dict[str, _Chunks] = {}
        self._below: dict[str, list[str]] = {}
        for group in file.below(file.root):
            attributes = _attributes(group._group.attrs, None)
            self._put(group.path, {"node_type": "group", "attributes": attributes})
            for name, (array, dimensions) in group.arrays().items():
                self._put_array(f"{group.path.rstrip('/')}/{name}", name, array, dimensions)

    def value(self, key: str) -> Optional[Values]:
        """The value of a key; None if there is none."""
        found = self._metadata.get(key)
        if found is not None:
            return found
        chunk = self._chunk(key)
        return None if chunk is None else chunk[0].chunk(chunk[1])

    def size(self, key: str) -> Optional[int]:
        """Bytes of a key's value; None if there is none."""
        found = self._metadata.get(key)
        if found is not None:
            return len(found)
        chunk = self._chunk(key)
        return None if chunk is None else chunk[0].size(chunk[1])

    def keys(self, prefix: str) -> Iterator[str]:
        """The keys with this prefix."""
        for key in self._metadata:
            if key.startswith(prefix):
                yield key
            path = key[: -len(_METADATA)]
            if path.rstrip("/") in self._arrays and (path.startswith(prefix) or prefix.startswith(path)):
                yield from (each for each in self._arrays[path.rstrip("/")].keys(path) if each.startswith(prefix))

    def names(self, path: str) -> Iterator[str]:
        """The names directly below a path."""
        if (f"{path}/" if path else "") + _METADATA in self._metadata:
            yield _METADATA
        yield from self._below.get(path, [])
        if path in self._arrays:
            yield "c"
            return
        group, _, inside = f"{path}/".rpartition("/c/")
        if group in self._arrays:
            yield from self._arrays[group].names(inside)

    def _put(self, path: str, metadata: dict[str, Any]) -> None:
        path = path.strip("/")
        key = f"{path}/{_METADATA}" if path else _METADATA
        self._metadata[key] = json.dumps({"zarr_format": 3, **metadata}, separators=(",", ":")).encode()
        if path:
            above, _, name = path.rpartition("/")
            self._below.setdefault(above, []).append(name)

    def _put_array(self, path: str, name: str, array: Array, dimensions: tuple[str, ...]) -> None:
        reason = "Zarr stores use its name for something else" if name in TAKEN else _refusal(array)
        if reason is not None:
            warnings.warn(f"{array._objects.state.path}: dataset {array.path} is left out: {reason}", stacklevel=2)
            return
        self._arrays[path.strip("/")] = chunks = _Chunks(array)
        self._put(path, chunks.metadata(dimensions))

    def _chunk(self, key: str) -> Optional[tuple[_Chunks, tuple[int, ...]]]:
        path, _, inside = f"{key}/".rpartition("/c/")
        found = self._arrays.get(path)
        position = None if found is None else found.position(inside)
        return None if found is None or position is None else (found, position)


class _Chunks:
    """The chunks of an array."""

    def __init__(self, array: Array) -> None:
        self._array = array
        base, self._inner = array.dtype.subdtype or (array.dtype, ())
        self._is_text = array._described[0] == "variable_text"
        self._dtype = None if self._is_text else packed_type(base)
        self._shape = tuple(max(1, side) for side in array.shape)
        self._chunk = array.chunks if array.chunks and not self._is_text else self._divided()
        self._across = [-(-side // part) for side, part in zip(array.shape, self._chunk)]

    def metadata(self, dimensions: tuple[str, ...]) -> dict[str, Any]:
        """The Zarr 3 metadata."""
        with warnings.catch_warnings():
            # Zarr has no final specification of fixed-length texts and structures, and warns.
            warnings.simplefilter("ignore")
            kind = parse_dtype(str if self._dtype is None else self._dtype, zarr_format=3)
            fill = "" if self._dtype is None else kind.to_json_scalar(self._fill(), zarr_format=3)
            data_type = kind.to_json(zarr_format=3)
        names = list(dimensions) + [f"element_dim_{n}" for n in range(len(self._inner))]
        endian = "big" if self._dtype is not None and self._dtype.byteorder == ">" else "little"
        bytes_codec = {"name": "bytes", "configuration": {"endian": endian}}
        return {
            "node_type": "array",
            "shape": [*self._array.shape, *self._inner],
            "data_type": data_type,
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [*self._chunk, *self._inner]}},
            "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
            "fill_value": fill,
            "codecs": [{"name": "vlen-utf8"} if self._is_text else bytes_codec],
            "attributes": _attributes(self._array.attrs, self._dtype),
            "dimension_names": names,
        }

    def position(self, inside: str) -> Optional[tuple[int, ...]]:
        """The position of a chunk in the grid, from the part of its key after "c/"; None if there is no such chunk."""
        parts = [part for part in inside.split("/") if part]
        within = tuple(self._within(part, side) for part, side in zip(parts, self._sides()))
        return None if len(parts) != len(self._sides()) or None in within else self._outer(within)

    def keys(self, path: str) -> Iterator[str]:
        """The keys of all chunks."""
        for position in itertools.product(*map(range, self._sides())):
            yield "/".join([f"{path}c", *map(str, position)])

    def names(self, inside: str) -> Iterator[str]:
        """The names directly below a part of a key."""
        parts = [part for part in inside.split("/") if part]
        sides = self._sides()
        if len(parts) < len(sides) and None not in [self._within(part, side) for part, side in zip(parts, sides)]:
            yield from map(str, range(sides[len(parts)]))

    def size(self, position: tuple[int, ...]) -> int:
        """Bytes of a chunk."""
        if self._dtype is None:
            return len(self.chunk(position))
        return math.prod(self._chunk + self._inner) * self._dtype.itemsize

    def chunk(self, position: tuple[int, ...]) -> Values:
        """The elements of a chunk, with the fill value past the edge of the array."""
        sides = zip(position, self._chunk, self._array.shape)
        region = tuple(slice(at * part, min((at + 1) * part, side)) for at, part, side in sides)
        if self._dtype is None:
            texts = np.asarray(self._array[region], object).reshape(-1)
            return vlen_utf8([text.encode("utf-8", "surrogateescape") for text in texts])
        inside: Any = (*(slice(0, part.stop - part.start) for part in region), ...)
        whole = np.empty(self._chunk + self._inner, self._dtype)
        if whole[inside].shape != whole.shape:
            whole[...] = self._fill()
        self._array.read_direct(whole[inside], region)
        return whole.reshape(-1).view(np.uint8)

    def _sides(self) -> list[int]:
        # A chunk has all of an element that is an array.
        return [*self._across, *[1] * len(self._inner)]

    def _outer(self, position: tuple[Optional[int], ...]) -> tuple[int, ...]:
        return tuple(at for at in position[: len(self._across)] if at is not None)

    @staticmethod
    def _within(part: str, side: int) -> Optional[int]:
        at = int(part) if part.isascii() and part.isdecimal() else side
        return at if at < side and str(at) == part else None

    def _divided(self) -> tuple[int, ...]:
        """The chunk shape of a dataset without chunks: all of it, or several rows where that would be too long."""
        if self._is_text or not self._shape:
            return self._shape
        row = math.prod(self._shape[1:]) * self._array.dtype.itemsize
        return (min(self._shape[0], max(1, LARGEST_PIECE // max(1, row))), *self._shape[1:])

    def _fill(self) -> Any:
        assert self._dtype is not None
        if self._inner or self._dtype.names is not None:
            return np.zeros((), self._dtype)[()]
        return np.asarray(self._array.fillvalue).astype(self._dtype)[()]


def _refusal(array: Array) -> Optional[str]:
    """Why the dataset cannot be a Zarr array; None if it can."""
    if array._shape is None:
        return "it has no extent"
    unreadable = array._native.refusal()
    if unreadable is not None or array._described[0] == "variable_text":
        return unreadable
    base = (array.dtype.subdtype or (array.dtype, ()))[0]
    if not _has_elements(array._described) or packed_type(base) is None:
        return f"no Zarr array has elements of the type {array._described[0]}"
    return None


def _has_elements(described: _types.Described) -> bool:
    """Whether the bytes of an element are complete, and not a place in the file."""
    if described[0] == "compound":
        return all(_has_elements(member) for _, _, member in described[2])
    if described[0] == "array":
        return _has_elements(described[2])
    return described[0] not in ("reference", "variable_text", "variable_list", "other", "time")


def _attributes(attributes: Attributes, dtype: Optional[np.dtype[Any]]) -> dict[str, Any]:
    found = {name: plain(attributes.elements(name)) for name in attributes if name not in _netcdf.HIDDEN}
    if dtype is not None and "_FillValue" in found:
        found["_FillValue"] = _encoded_fill(found["_FillValue"], dtype)
    return found


def _encoded_fill(value: Any, dtype: np.dtype[Any]) -> Any:
    """The attribute `_FillValue` as xarray encodes it in Zarr 3."""
    if dtype.kind == "f" and isinstance(value, (int, float)):
        return base64.standard_b64encode(struct.pack("<d", value)).decode()
    if dtype.kind == "S" and isinstance(value, str):
        return base64.standard_b64encode(value.encode("utf-8", "surrogateescape")).decode()
    return value
