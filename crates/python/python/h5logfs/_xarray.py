"""The xarray engine "h5logfs"."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Optional

import numpy as np
from xarray import Variable
from xarray.backends import AbstractDataStore, BackendArray, BackendEntrypoint, StoreBackendEntrypoint
from xarray.core import indexing

from . import _netcdf
from ._arrays import Array
from ._file import is_log
from ._file import open as open_log
from ._h5py import register_driver
from ._log import Log, NotALog
from ._netcdf import NotNetcdf

if TYPE_CHECKING:
    import h5netcdf
    from xarray import Dataset, DataTree
    from xarray.backends import H5NetCDFStore

# xarray arguments that control how values are decoded.
_DECODING = {
    "mask_and_scale",
    "decode_times",
    "concat_characters",
    "decode_coords",
    "drop_variables",
    "use_cftime",
    "decode_timedelta",
}
# HDF5 filter numbers.
_DEFLATE, _SHUFFLE, _FLETCHER32 = 1, 2, 3


class LogBackendEntrypoint(BackendEntrypoint):
    """Opens logs as datasets: `xarray.open_dataset(path, engine="h5logfs", chunks={})`. `h5logfs.Log` reads the
    elements: with several threads, without HDF5 and its lock.

    Arguments besides those of xarray are `group`, `phony_dims` ("access" or "sort": how dimensions without a name are
    named), `decode_vlen_strings`, `threads` (number of threads that read an array; 0 for one per core), and the options
    of `h5logfs.open`. A log with types that netCDF-4 lacks, such as references, is read with h5netcdf if it is
    installed, and so is a file that is not a log.

    A process that receives a lazy array of the dataset, such as a dask worker, opens the log by its path.
    """

    description = "Open log-layout files of HPC programs as the HDF5 or netCDF-4 files that they stand for"
    open_dataset_parameters = ("filename_or_obj", "group", "phony_dims", "decode_vlen_strings", "threads", *sorted(_DECODING))
    supports_groups = True

    def guess_can_open(self, filename_or_obj: Any) -> bool:
        """Whether this is the path of a log. The content of the file decides, not its name."""
        if not isinstance(filename_or_obj, (str, os.PathLike)):
            return False
        try:
            return is_log(filename_or_obj)
        except OSError:
            return False

    def open_dataset(
        self,
        filename_or_obj: Any,
        *,
        group: Optional[str] = None,
        phony_dims: str = "access",
        decode_vlen_strings: bool = True,
        threads: int = 0,
        drop_variables: Optional[Iterable[str]] = None,
        **arguments: Any,
    ) -> Dataset:
        """Opens one group of a log. Raises what `h5logfs.open` raises."""
        decoding, options = _split(arguments)
        source = _Source(filename_or_obj, phony_dims, decode_vlen_strings, threads, options)
        return _decoded(source.store(group or "/"), drop_variables=drop_variables, **decoding)

    def open_groups_as_dict(
        self,
        filename_or_obj: Any,
        *,
        group: Optional[str] = None,
        phony_dims: str = "access",
        decode_vlen_strings: bool = True,
        threads: int = 0,
        drop_variables: Optional[Iterable[str]] = None,
        **arguments: Any,
    ) -> dict[str, Dataset]:
        """Opens a group and all groups below it, by path."""
        decoding, options = _split(arguments)
        source = _Source(filename_or_obj, phony_dims, decode_vlen_strings, threads, options)
        root = "/" + (group or "").strip("/")
        groups = {}
        for path, store in source.stores_below(root):
            relative = path[len(root) :].strip("/") if group else path.strip("/")
            groups[f"/{relative}"] = _decoded(store, drop_variables=drop_variables, **decoding)
        return groups

    def open_datatree(self, filename_or_obj: Any, **arguments: Any) -> DataTree:
        """Opens all groups, or `group` and those below it, as one tree."""
        from xarray import DataTree

        groups = self.open_groups_as_dict(filename_or_obj, **arguments)
        tree = DataTree.from_dict(groups)
        for path, dataset in groups.items():
            tree[path].set_close(dataset._close)
        return tree


def _split(arguments: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Splits the arguments into those for decoding and the options of the log."""
    decoding = {name: value for name, value in arguments.items() if name in _DECODING}
    options = {name: value for name, value in arguments.items() if name not in _DECODING}
    # xarray looks up open files by these options, which must be hashable.
    return decoding, {name: tuple(value) if isinstance(value, list) else value for name, value in options.items()}


class _Source:
    """A log, or another file, whose groups are opened."""

    def __init__(
        self, filename: Any, phony_dims: str, decode_vlen_strings: bool, threads: int, options: dict[str, Any]
    ) -> None:
        if not isinstance(filename, (str, os.PathLike)):
            raise TypeError(f"{filename!r}: the engine h5logfs opens paths; h5netcdf opens file objects of h5logfs.open")
        # A worker may have another working directory.
        self._path = os.path.abspath(os.fspath(filename))
        self._phony_dims = phony_dims
        self._decode_vlen_strings = decode_vlen_strings
        self._options = options
        self._log: Optional[Log] = None
        try:
            log = Log(self._path, threads=threads, **options)
        except NotALog:
            return
        # A settled log is an ordinary HDF5 file.
        if log._file.is_log:
            self._log = log

    def store(self, group: str) -> AbstractDataStore:
        """The group at a path."""
        if self._log is None:
            return self._of_h5netcdf(group)
        try:
            return self._loaded(_netcdf.File(self._log, self._phony_dims).group(group))
        except NotNetcdf as error:
            return self._without_types(group, error)

    def stores_below(self, root: str) -> list[tuple[str, AbstractDataStore]]:
        """A group and all groups below it by path, parents first."""
        if self._log is None:
            return self._below_of_h5netcdf(self._of_h5netcdf(root), root)
        try:
            file = _netcdf.File(self._log, self._phony_dims)
            return [(group.path, self._loaded(group)) for group in file.below(file.group(root))]
        except NotNetcdf as error:
            return self._below_of_h5netcdf(self._without_types(root, error), root)

    def _loaded(self, group: _netcdf.Group) -> _Group:
        return _Group(self._path, group, self._decode_vlen_strings)

    # --- with h5netcdf ---

    def _without_types(self, group: str, error: NotNetcdf) -> H5NetCDFStore:
        try:
            return self._of_h5netcdf(group)
        except ImportError:
            raise ImportError(f"{self._path}: {error}, which needs h5netcdf to be opened") from None

    def _below_of_h5netcdf(self, store: H5NetCDFStore, root: str) -> list[tuple[str, AbstractDataStore]]:
        paths = _paths_below(store.ds, root)
        return [(path, type(store)(store._manager, group=path, mode="r", lock=store.lock)) for path in paths]

    def _of_h5netcdf(self, group: str) -> H5NetCDFStore:
        import h5netcdf  # noqa: F401
        from xarray.backends import CachingFileManager, H5NetCDFStore

        manager = CachingFileManager(
            _open_h5netcdf,
            self._path,
            mode="r",
            kwargs={
                "options": tuple(sorted(self._options.items())),
                "phony_dims": self._phony_dims,
                "decode_vlen_strings": self._decode_vlen_strings,
            },
        )
        return H5NetCDFStore(manager, group=group, mode="r")


class _Group(AbstractDataStore):
    """A group of a log in the form that xarray expects."""

    def __init__(self, path: str, group: _netcdf.Group, decode_vlen_strings: bool) -> None:
        self._path = path
        self._decode_vlen_strings = decode_vlen_strings
        self._attributes = {name: _text(value, name, path) for name, value in group.attributes().items()}
        self._variables = {name: self._variable(variable) for name, variable in group.variables().items()}
        self._dimensions = group.dimensions

    def get_variables(self) -> dict[str, Variable]:
        """The variables. Their elements are read when they are used."""
        return self._variables

    def get_attrs(self) -> dict[str, Any]:
        """The attributes of the group."""
        return self._attributes

    def get_dimensions(self) -> dict[str, int]:
        """The sizes of the dimensions."""
        return {name: dimension.size for name, dimension in self._dimensions.items()}

    def get_encoding(self) -> dict[str, Any]:
        """Further properties that xarray keeps of a dataset."""
        return {"unlimited_dims": {name for name, dimension in self._dimensions.items() if dimension.is_unlimited}}

    def _variable(self, variable: _netcdf.Variable) -> Variable:
        array = variable.array
        attributes = {name: _text(value, name, array.path) for name, value in variable.attributes.items()}
        elements = _Elements(array, variable.shape, self._decode_vlen_strings)
        encoding = {**_encoding(variable), "source": self._path, "original_shape": variable.shape}
        return Variable(variable.dimensions, indexing.LazilyIndexedArray(elements), attributes, encoding)


class _Elements(BackendArray):
    """The elements of a variable."""

    def __init__(self, array: Array, shape: tuple[int, ...], decode_vlen_strings: bool) -> None:
        self._array = array
        self._is_encoded = array._described[0] == "variable_text" and not decode_vlen_strings
        self.shape = shape
        is_text = array._described[0] == "variable_text"
        # xarray recognises texts among objects by this metadata.
        self.dtype = np.dtype("O", metadata={"element_type": str}) if is_text else array.dtype

    def __getitem__(self, key: indexing.ExplicitIndexer) -> Any:
        is_whole = self.shape == self._array.shape
        if isinstance(key, indexing.VectorizedIndexer) and is_whole and not any(isinstance(k, slice) for k in key.tuple):
            return self._as_asked(self._array.read(key.tuple))
        return indexing.explicit_indexing_adapter(key, self.shape, indexing.IndexingSupport.OUTER, self._outer)

    def _outer(self, key: tuple[Any, ...]) -> Any:
        whole = self.shape == self._array.shape
        return self._as_asked(self._array.oindex[key] if whole else self._padded(key))

    def _padded(self, key: tuple[Any, ...]) -> Any:
        """Reads where a dimension extends past the written part of the array."""
        parts = [np.arange(side)[part] for part, side in zip(key, self.shape)]
        each = [np.atleast_1d(part) for part in parts]
        inside = [part < side for part, side in zip(each, self._array.shape)]
        found = np.full([part.size for part in each], self._array.fillvalue, self._array.dtype)
        there = self._array.oindex[tuple(part[are] for part, are in zip(each, inside))]
        found[np.ix_(*[are.nonzero()[0] for are in inside])] = there
        return found.reshape([side for part in parts for side in part.shape])

    def _as_asked(self, found: Any) -> Any:
        if not self._is_encoded:
            return found
        texts = np.asarray(found, object)
        encoded = np.empty(texts.shape, object)
        encoded.reshape(-1)[:] = [text.encode("utf-8", "surrogateescape") for text in texts.reshape(-1)]
        return encoded


def _encoding(variable: _netcdf.Variable) -> dict[str, Any]:
    """How a variable is stored, in the terms of netCDF4 and h5netcdf."""
    array = variable.array
    dtype: Any = str if array._described[0] == "variable_text" else array.dtype
    if variable.type_name is not None and array.dtype.metadata is not None:
        dtype = np.dtype(array.dtype, metadata={**array.dtype.metadata, "enum_name": variable.type_name})
    chunks = array.chunks if array.ndim else None
    filters = dict(array.filters)
    encoding = {
        "dtype": dtype,
        "contiguous": chunks is None,
        "chunksizes": chunks,
        "zlib": _DEFLATE in filters,
        "szip": False,
        "bzip2": False,
        "blosc": False,
        "zstd": False,
        "shuffle": _SHUFFLE in filters,
        "fletcher32": _FLETCHER32 in filters,
    }
    if chunks is not None:
        encoding["preferred_chunks"] = dict(zip(variable.dimensions, chunks))
    if _DEFLATE in filters:
        encoding["complevel"] = filters[_DEFLATE][0]
    return encoding


def _text(value: Any, name: str, path: str) -> Any:
    """An attribute. Bytes become text unless they stand for elements."""
    if not isinstance(value, bytes) or name in ("_FillValue", "missing_value"):
        return value
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        message = f"{path}: the attribute {name} is not UTF-8 text, and stays bytes"
        warnings.warn(message, UnicodeWarning, stacklevel=2)
        return value


def _open_h5netcdf(
    path: str, mode: str, *, options: tuple[tuple[str, Any], ...], **arguments: Any
) -> h5netcdf.File:
    import h5netcdf

    chosen = dict(options)
    # Opening the log first raises the errors of h5logfs, before HDF5 replaces them by its own.
    file = open_log(path, **chosen)
    if not file.is_log:
        file.close()
        return h5netcdf.File(path, mode, **arguments)
    if register_driver():
        file.close()
        return h5netcdf.File(path, mode, driver="h5logfs", **chosen, **arguments)
    return h5netcdf.File(file, mode, **arguments)


def _decoded(store: AbstractDataStore, **decoding: Any) -> Dataset:
    try:
        return StoreBackendEntrypoint().open_dataset(store, **decoding)
    except BaseException:
        store.close()  # type: ignore[no-untyped-call]
        raise


def _paths_below(group: Any, path: str) -> list[str]:
    """The paths of a group and of all groups below it, parents first."""
    return _paths_within(group, path, ())


def _paths_within(group: Any, path: str, above: tuple[Any, ...]) -> list[str]:
    import h5py

    found = h5py.h5o.get_info(group._h5group.id)
    own = (found.fileno, found.addr)
    if own in above:
        # The link leads back to an enclosing group.
        return []
    paths = [path]
    for name, below in group.groups.items():
        paths += _paths_within(below, f"{path.rstrip('/')}/{name}", (*above, own))
    return paths
