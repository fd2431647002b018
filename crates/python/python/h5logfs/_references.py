"""Kerchunk references into the files of a log."""

from __future__ import annotations

import base64
import json
import math
import os
import warnings
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Optional, Union

from ._file import Path

if TYPE_CHECKING:
    import numpy as np

    from ._zarr import Array, Url

INLINE_THRESHOLD = 4 << 20
# The attribute of the root that names lost data.
INCOMPLETE = "_h5logfs_incomplete"


class References(dict[str, Any]):
    """References of kerchunk, version 1: a dictionary that `json.dump` writes, and fsspec, zarr and xarray read.

        references = h5logfs.references("run42/output.h5", url="s3://bucket/run42")
        xarray.open_dataset(references, engine="kerchunk", chunks={})
    """

    def to_parquet(
        self,
        url: Union[str, os.PathLike[str]],
        *,
        record_size: int = 100_000,
        storage_options: Optional[dict[str, Any]] = None,
    ) -> None:
        """Writes the references as a directory of Parquet files, which readers load in parts. `record_size` is the
        number of references in a file. Existing references are replaced. Needs pyarrow; fsspec reads the files with
        fastparquet. Where the log has groups, fsspec (seen in 2026.9) needs the protocol of the URLs, for example
        `storage_options={"remote_protocol": "file"}`.

        Raises FileExistsError where `url` holds something else than references; ValueError for a group or dataset whose
        name begins with .z, which fsspec could not tell from metadata.
        """
        from fsspec.core import url_to_fs

        from . import _parquet

        fs, root = url_to_fs(os.fspath(url), **(storage_options or {}))
        _parquet.write(self["refs"], fs, root.rstrip("/"), record_size)


def references(
    path: Path,
    *,
    url: Url = None,
    inline_threshold: int = INLINE_THRESHOLD,
    drop_variables: Iterable[str] = (),
    **options: Any,
) -> References:
    """Kerchunk references to the chunks of a log in the log's own files. Readers of Zarr use them on any machine,
    without h5logfs.

    `url` replaces the directory of the log in the references, for example by "s3://bucket/run42"; it can be a function
    from the absolute path of a file to its URL. The default is absolute paths. Data that is not in one piece in the log
    becomes part of the references, up to `inline_threshold` bytes per dataset. `drop_variables` lists paths of groups
    or datasets to leave out. Other options are those of `h5logfs.open`; `chunk` sets the shape of chunks that the log
    does not define itself.

    Groups and datasets are Zarr arrays of version 2, in xarray's dialect: dimension scales name the dimensions, and
    `_FillValue` is the fill value. Elements keep the byte order that they have in the log. Links to other files are
    left out.

    Warns where the log has lost data, which the references lack.

    Raises LogError, with the name of the dataset, for one that cannot be referenced; ValueError for a file that is not
    a log; and what `h5logfs.open` raises. The references describe the log as it is now. A log that is written again
    needs new ones.
    """
    from . import _zarr

    tree = _zarr.read(
        path,
        url=url,
        inline_threshold=inline_threshold,
        drop_variables=drop_variables,
        format=2,
        options=options,
    )
    if lost := tree.groups.get("", {}).get(INCOMPLETE):
        message = f"{os.fspath(path)} has lost data, which the references lack: {lost}"
        warnings.warn(message, stacklevel=2)
    refs: dict[str, Any] = {}
    for name, attributes in tree.groups.items():
        below = f"{name}/" if name else ""
        refs[f"{below}.zgroup"] = _json({"zarr_format": 2})
        refs[f"{below}.zattrs"] = _json(attributes)
    for name, array in tree.arrays.items():
        refs[f"{name}/.zarray"] = _json(_metadata(array))
        refs[f"{name}/.zattrs"] = _json({**array.attributes, "_ARRAY_DIMENSIONS": array.dimensions})
        for position, piece in array.pieces.items():
            key = ".".join(map(str, position)) or "0"
            refs[f"{name}/{key}"] = _encoded(piece) if isinstance(piece, bytes) else list(piece)
    return References(version=1, refs=refs)


def _metadata(array: Array) -> dict[str, Any]:
    return {
        "zarr_format": 2,
        "shape": list(array.shape),
        "chunks": list(array.chunks),
        "dtype": "|O" if array.dtype is None else _type(array.dtype),
        "fill_value": _fill(array.fill),
        "order": "C",
        "filters": array.filters or None,
        "compressor": None,
    }


def _type(dtype: np.dtype[Any]) -> Any:
    if dtype.names is None:
        return dtype.str
    return [[name, dtype[name].str] for name in dtype.names]


def _fill(value: Any) -> Any:
    if value is None:
        return None
    value = value.item() if hasattr(value, "item") else value
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
    return value


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def _encoded(data: bytes) -> str:
    return "base64:" + base64.b64encode(data).decode("ascii")
