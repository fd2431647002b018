"""Kerchunk references as Parquet files, for fsspec's LazyReferenceMapper. The metadata is one JSON file. Each array has a
file for every `record_size` chunks, with a row per chunk in row-major order."""

from __future__ import annotations

import json
import math
from base64 import b64decode
from collections.abc import Mapping
from typing import Any, Optional

_METADATA = ".zmetadata"
_BASE64 = "base64:"


def write(references: Mapping[str, Any], fs: Any, root: str, record_size: int) -> None:
    """Writes references of version 1 below `root`, a path of the fsspec file system. Replaces existing references, and raises
    FileExistsError where `root` holds something else."""
    metadata: dict[str, Any] = {}
    #: Chunks by row, by array and number of the file.
    records: dict[tuple[str, int], dict[int, Any]] = {}
    for key, value in references.items():
        array, _, name = key.rpartition("/")
        if f"/{array}".find("/.z") >= 0:
            raise ValueError(f"{array}: Parquet references cannot have a group or an array whose name begins with .z")
        if name.startswith(".z"):
            metadata[key] = json.loads(value)
            continue
        record, row = divmod(_number(name, metadata[f"{array}/.zarray"]), record_size)
        records.setdefault((array, record), {})[row] = value
    _make_room(fs, root)
    for (array, record), chunks in records.items():
        fs.makedirs(f"{root}/{array}", exist_ok=True)
        rows = min(record_size, _count(metadata[f"{array}/.zarray"]) - record * record_size)
        with fs.open(f"{root}/{array}/refs.{record}.parq", "wb") as file:
            _write_record(file, [chunks.get(row) for row in range(rows)])
    # Without this file there are no references, so it is written last.
    fs.pipe(f"{root}/{_METADATA}", json.dumps({"metadata": metadata, "record_size": record_size}).encode())


def _write_record(file: Any, chunks: list[Any]) -> None:
    """Writes one file. `None` in `chunks` is a chunk that was never written."""
    import pyarrow
    from pyarrow import parquet

    # fsspec expects None for a missing URL, but pandas 3 turns missing text into NaN. It leaves unknown types alone.
    # Other readers see text.
    url = pyarrow.opaque(pyarrow.string(), "url", "h5logfs")
    number = pyarrow.int64()
    places = [chunk if isinstance(chunk, list) else (None, 0, 0) for chunk in chunks]
    urls = pyarrow.array([place[0] for place in places], pyarrow.string())
    columns = {
        pyarrow.field("path", url): pyarrow.ExtensionArray.from_storage(url, urls),
        pyarrow.field("offset", number, nullable=False): pyarrow.array([place[1] for place in places], number),
        pyarrow.field("size", number, nullable=False): pyarrow.array([place[2] for place in places], number),
        pyarrow.field("raw", pyarrow.binary()): pyarrow.array([_inlined(chunk) for chunk in chunks], pyarrow.binary()),
    }
    table = pyarrow.Table.from_arrays(list(columns.values()), schema=pyarrow.schema(list(columns)))
    # Without statistics, readers assume that numbers may be missing, and turn them into floating-point numbers.
    parquet.write_table(table, file, compression="zstd", write_statistics=["offset", "size"])


def _inlined(chunk: Any) -> Optional[bytes]:
    if not isinstance(chunk, str):
        return None
    data = b64decode(chunk[len(_BASE64) :])
    # Readers decode data that begins like this.
    return chunk.encode() if data.startswith(_BASE64.encode()) else data


def _grid(array: dict[str, Any]) -> list[int]:
    return [-(-side // chunk) for side, chunk in zip(array["shape"], array["chunks"])]


def _count(array: dict[str, Any]) -> int:
    return math.prod(_grid(array))


def _number(key: str, array: dict[str, Any]) -> int:
    """The number of a chunk in row-major order."""
    number = 0
    # The key of an array without dimensions is "0".
    for position, across in zip(key.split("."), _grid(array) or [1]):
        number = number * across + int(position)
    return number


def _make_room(fs: Any, root: str) -> None:
    if fs.exists(root):
        if not fs.exists(f"{root}/{_METADATA}") and (fs.isfile(root) or fs.ls(root, detail=False)):
            raise FileExistsError(f"{root} exists, and is not a directory of references")
        fs.rm(root, recursive=True)
    fs.makedirs(root, exist_ok=True)
