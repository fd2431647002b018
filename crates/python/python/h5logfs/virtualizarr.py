"""A VirtualiZarr parser for logs: `virtualizarr.open_virtual_dataset(url, registry, parser=LogParser())`."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Optional
from urllib.parse import unquote, urlparse

import numpy as np

from . import _zarr
from ._references import INLINE_THRESHOLD
from ._zarr import Array, Piece, Tree, Url

if TYPE_CHECKING:
    from obspec_utils.registry import ObjectStoreRegistry
    from virtualizarr.manifests import ManifestArray, ManifestGroup, ManifestStore

__all__ = ["LogParser"]

_numbers = itertools.count()


class LogParser:
    """Makes virtual datasets of logs. Their chunks lie in the log's own files, so programs read the result without
    h5logfs.

        registry = ObjectStoreRegistry({"file://": obstore.store.LocalStore()})
        virtual = virtualizarr.open_virtual_dataset("file:///data/run42/output.h5", registry, parser=LogParser())
        virtual.vz.to_kerchunk("output.json", format="json")

    The log must be a local file: a path, or a URL that begins with "file://". `group` is the group to open, and the
    other parameters are those of `h5logfs.references`.

    VirtualiZarr has no place for bytes that lie in no file. Where the chunks of a variable are not in one piece in the
    log, an in-memory store that is added to the registry holds them. Name such a variable in `loadable_variables`
    before the virtual dataset is stored; otherwise readers of the stored dataset fail.
    """

    def __init__(
        self,
        group: Optional[str] = None,
        *,
        url: Url = None,
        inline_threshold: int = INLINE_THRESHOLD,
        drop_variables: Iterable[str] = (),
        **options: Any,
    ) -> None:
        self.group = group
        self.url = url
        self.inline_threshold = inline_threshold
        self.drop_variables = [drop_variables] if isinstance(drop_variables, str) else list(drop_variables)
        self.options = options

    def __call__(self, url: str, registry: ObjectStoreRegistry[Any]) -> ManifestStore:
        """Describes the log at `url`. Raises what `h5logfs.references` raises; ValueError for a URL that is not local, and
        for a missing group."""
        from virtualizarr.manifests import ManifestStore

        tree = _zarr.read(
            _local_path(url),
            url=_file_url if self.url is None else self.url,
            inline_threshold=self.inline_threshold,
            drop_variables=self.drop_variables,
            format=3,
            options=self.options,
        )
        group = (self.group or "").strip("/")
        if group not in tree.groups:
            raise ValueError(f"{url}: there is no group /{group}")
        return ManifestStore(group=_group(tree, group, _Inlined(registry)), registry=registry)


class _Inlined:
    """Bytes in memory that pieces can refer to."""

    def __init__(self, registry: ObjectStoreRegistry[Any]) -> None:
        self.registry = registry
        self.store: Any = None
        self.root = ""
        self.count = 0

    def put(self, data: bytes) -> Piece:
        from obstore.store import MemoryStore

        if self.store is None:
            self.store = MemoryStore()
            self.root = f"memory://h5logfs-{os.getpid()}-{next(_numbers)}"
            self.registry.register(self.root, self.store)
        name = str(self.count)
        self.count += 1
        self.store.put(name, data)
        return Piece(f"{self.root}/{name}", 0, len(data))


def _group(tree: Tree, path: str, inlined: _Inlined) -> ManifestGroup:
    from virtualizarr.manifests import ManifestGroup

    def children(paths: Iterable[str]) -> list[tuple[str, str]]:
        below = ((child, child.rpartition("/")) for child in paths if child)
        return [(name, child) for child, (parent, _, name) in below if parent == path]

    return ManifestGroup(
        arrays={name: _array(tree.arrays[child], inlined) for name, child in children(tree.arrays)},
        groups={name: _group(tree, child, inlined) for name, child in children(tree.groups)},
        attributes=tree.groups[path],
    )


def _array(array: Array, inlined: _Inlined) -> ManifestArray:
    from virtualizarr.codecs import zarr_codec_config_to_v3
    from virtualizarr.manifests import ManifestArray
    from virtualizarr.manifests.utils import create_v3_array_metadata
    from virtualizarr.parsers.utils import encode_cf_fill_value

    attributes = dict(array.attributes)
    if array.dtype is not None and isinstance(attributes.get("_FillValue"), (int, float)):
        attributes["_FillValue"] = encode_cf_fill_value(attributes["_FillValue"], array.dtype)
    metadata = create_v3_array_metadata(
        shape=array.shape,
        data_type=np.dtype(np.dtypes.StringDType()) if array.dtype is None else array.dtype,
        chunk_shape=array.chunks,
        fill_value=array.fill,
        codecs=[zarr_codec_config_to_v3(codec) for codec in array.filters],
        dimension_names=tuple(array.dimensions),
        attributes=attributes,
    )
    return ManifestArray(metadata=metadata, chunkmanifest=_manifest(array, inlined))


def _manifest(array: Array, inlined: _Inlined) -> Any:
    from virtualizarr.manifests import ChunkManifest

    grid = tuple(-(-side // chunk) for side, chunk in zip(array.shape, array.chunks))
    if not array.pieces:
        return ChunkManifest(entries={}, shape=grid)
    paths = np.full(grid, "", dtype=np.dtypes.StringDType())
    offsets, lengths = np.zeros(grid, np.uint64), np.zeros(grid, np.uint64)
    for position, piece in array.pieces.items():
        at = position if grid else ()
        paths[at], offsets[at], lengths[at] = inlined.put(piece) if isinstance(piece, bytes) else piece
    return ChunkManifest.from_arrays(paths=paths, offsets=offsets, lengths=lengths)


def _local_path(url: str) -> str:
    parts = urlparse(url)
    if parts.scheme in ("", "file"):
        return unquote(parts.path) if parts.scheme else url
    raise ValueError(f"{url}: a log has to be a local file to be described; `url` says where its readers find it")


def _file_url(path: str) -> str:
    return f"file://{path}"
