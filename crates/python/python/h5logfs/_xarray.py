"""The xarray engine "h5logfs"."""

from __future__ import annotations

import io
import os
import warnings
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple, Optional

import numpy as np
from xarray import Variable
from xarray.backends import AbstractDataStore, BackendArray, BackendEntrypoint, StoreBackendEntrypoint
from xarray.core import indexing
from xarray.core.utils import is_remote_uri

from . import _netcdf, _options
from ._arrays import Array
from ._file import LogFile, is_log
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
    named), `decode_vlen_strings`, `lock` (held while values are read; none is needed), `format` and `storage_options` as
    for the engine h5netcdf, `threads` (number of threads that read an array; 0 for one per core), and the options of
    `h5logfs.open`. A log with types that netCDF-4 lacks, such as references, is read with h5netcdf if it is installed,
    and so is a file that is not a log, a file object, or a URL. A file object of `h5logfs.open`, or of a local log, is
    read by its path.

    Any number of datasets may be open: see `h5logfs.Log`. `Dataset.close` closes the files. Values that are used later
    open them again, as with the other engines.

    A process that receives a lazy array of the dataset, such as a dask worker, opens the log by its path.
    """

    description = "Open log-layout files of HPC programs as the HDF5 or netCDF-4 files that they stand for"
    open_dataset_parameters = (
        "filename_or_obj",
        "group",
        "phony_dims",
        "decode_vlen_strings",
        "lock",
        "format",
        "storage_options",
        "threads",
        *sorted(_DECODING),
    )
    supports_groups = True

    def guess_can_open(self, filename_or_obj: Any) -> bool:
        """Whether this is the path of a log, or a file object of `h5logfs.open` for one. The content of the file decides, not
        its name."""
        if isinstance(filename_or_obj, LogFile):
            return not filename_or_obj.closed and filename_or_obj.is_log
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
        phony_dims: Optional[str] = "access",
        decode_vlen_strings: bool = True,
        lock: Any = None,
        format: Optional[str] = "NETCDF4",
        storage_options: Optional[dict[str, Any]] = None,
        threads: int = 0,
        drop_variables: Optional[Iterable[str]] = None,
        **arguments: Any,
    ) -> Dataset:
        """Opens one group of a log. Raises what `h5logfs.open` raises."""
        decoding, options = _split(arguments)
        how = _How(phony_dims or "access", decode_vlen_strings, lock or None, format, storage_options)
        source = _Source(filename_or_obj, how, threads, options)
        return _decoded(source.store(group or "/"), drop_variables=drop_variables, **decoding)

    def open_groups_as_dict(
        self,
        filename_or_obj: Any,
        *,
        group: Optional[str] = None,
        phony_dims: Optional[str] = "access",
        decode_vlen_strings: bool = True,
        lock: Any = None,
        format: Optional[str] = "NETCDF4",
        storage_options: Optional[dict[str, Any]] = None,
        threads: int = 0,
        drop_variables: Optional[Iterable[str]] = None,
        **arguments: Any,
    ) -> dict[str, Dataset]:
        """Opens a group and all groups below it, by path."""
        decoding, options = _split(arguments)
        how = _How(phony_dims or "access", decode_vlen_strings, lock or None, format, storage_options)
        source = _Source(filename_or_obj, how, threads, options)
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


class _How(NamedTuple):
    """How groups are shown and read."""

    phony_dims: str
    decode_vlen_strings: bool
    lock: Optional[AbstractContextManager[Any]]
    format: Optional[str]
    storage_options: Optional[dict[str, Any]]


class _Source:
    """A log, or another file, whose groups are opened."""

    def __init__(self, filename: Any, how: _How, threads: int, options: dict[str, Any]) -> None:
        if how.format not in (None, "NETCDF4", "NETCDF4_CLASSIC"):
            raise ValueError(f"invalid format for the engine h5logfs: {how.format}")
        self._how = how
        self._log: Optional[Log] = None
        path, found = _path_of(filename)
        self._options = {**found, **options}
        # h5netcdf opens what is no path. A worker may have another working directory.
        self._other = None if path is not None else filename
        if isinstance(filename, (bytes, memoryview)):
            self._other = io.BytesIO(filename)
        self._path = f"{filename!r:.200}" if path is None else os.path.abspath(path)
        if path is None:
            self._check_no_options(options, threads)
            return
        try:
            log = Log(self._path, threads=threads, **self._options)
        except NotALog:
            return
        # A settled log is an ordinary HDF5 file.
        if log._state.file.is_log:
            self._log = log
        else:
            log.close()

    def _check_no_options(self, options: dict[str, Any], threads: int) -> None:
        _options.threads(threads)
        if options:
            raise ValueError(f"{', '.join(options)}: these are options of logs, and {self._path} is no path of one")

    def store(self, group: str) -> AbstractDataStore:
        """The group at a path."""
        if self._log is None:
            return self._of_h5netcdf(group)
        try:
            return self._loaded(self._log, _netcdf.File(self._log, self._how.phony_dims).group(group))
        except NotNetcdf as error:
            self._log.close()
            return self._without_types(group, error)

    def stores_below(self, root: str) -> list[tuple[str, AbstractDataStore]]:
        """A group and all groups below it by path, parents first."""
        if self._log is None:
            return self._below_of_h5netcdf(self._of_h5netcdf(root), root)
        try:
            file = _netcdf.File(self._log, self._how.phony_dims)
            return [(group.path, self._loaded(self._log, group)) for group in file.below(file.group(root))]
        except NotNetcdf as error:
            self._log.close()
            return self._below_of_h5netcdf(self._without_types(root, error), root)

    def _loaded(self, log: Log, group: _netcdf.Group) -> _Group:
        return _Group(log, self._path, group, self._how)

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

        how = self._how
        if self._other is not None:
            # Older versions of xarray have no such argument.
            further = {"storage_options": how.storage_options} if how.storage_options else {}
            store: H5NetCDFStore = H5NetCDFStore.open(
                self._other,
                format=how.format,
                group=group,
                lock=how.lock,
                phony_dims=how.phony_dims,
                decode_vlen_strings=how.decode_vlen_strings,
                **further,
            )
            return store
        manager = CachingFileManager(
            _open_h5netcdf,
            self._path,
            mode="r",
            kwargs={
                "options": tuple(sorted(self._options.items())),
                "phony_dims": how.phony_dims,
                "decode_vlen_strings": how.decode_vlen_strings,
            },
        )
        return H5NetCDFStore(manager, group=group, mode="r", **({} if how.lock is None else {"lock": how.lock}))


def _path_of(source: Any) -> tuple[Optional[str], dict[str, Any]]:
    """The path of a local file, and the options of the log if it is open already. None for anything else, such as bytes or a
    URL."""
    if isinstance(source, LogFile):
        return source._absolute, source.options
    if isinstance(source, (str, os.PathLike)):
        path = os.fspath(source)
        return (None if isinstance(path, str) and is_remote_uri(path) else path), {}
    name = getattr(source, "name", None)
    if not isinstance(name, str):
        return None, {}
    try:
        # A file object without a descriptor may have any name.
        is_local = os.path.samestat(os.fstat(source.fileno()), os.stat(name))
        return (name if is_local and is_log(name) else None), {}
    except (AttributeError, OSError, ValueError):
        return None, {}


class _Group(AbstractDataStore):
    """A group of a log in the form that xarray expects."""

    def __init__(self, log: Log, path: str, group: _netcdf.Group, how: _How) -> None:
        self._log = log
        self._path = path
        self._how = how
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

    def close(self) -> None:
        """Closes the files until values are read again."""
        self._log._state.known.release()

    def _variable(self, variable: _netcdf.Variable) -> Variable:
        array = variable.array
        attributes = {name: _text(value, name, array.path) for name, value in variable.attributes.items()}
        elements = _Elements(array, variable.shape, self._how)
        encoding = {**_encoding(variable), "source": self._path, "original_shape": variable.shape}
        return Variable(variable.dimensions, indexing.LazilyIndexedArray(elements), attributes, encoding)


class _Elements(BackendArray):
    """The elements of a variable."""

    def __init__(self, array: Array, shape: tuple[int, ...], how: _How) -> None:
        self._array = array
        self._lock = how.lock
        self.shape = shape
        is_text = array._described[0] == "variable_text"
        self._is_encoded = is_text and not how.decode_vlen_strings
        # xarray recognises texts among objects by this metadata.
        self.dtype = np.dtype("O", metadata={"element_type": str}) if is_text else array.dtype

    def __getitem__(self, key: indexing.ExplicitIndexer) -> Any:
        with self._lock or nullcontext():
            return self._read(key)

    def _read(self, key: indexing.ExplicitIndexer) -> Any:
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
        if isinstance(found, str):
            # numpy would make an array of characters of it.
            found = np.array(found, object)
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
