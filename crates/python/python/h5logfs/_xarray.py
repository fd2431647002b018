"""The engine "h5logfs" of xarray."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Optional

from xarray.backends import BackendEntrypoint, CachingFileManager, H5NetCDFStore, StoreBackendEntrypoint

from ._file import is_log
from ._file import open as open_log
from ._h5py import register_driver

if TYPE_CHECKING:
    import h5netcdf
    from xarray import Dataset, DataTree

# Arguments of xarray that say how values are decoded.
_DECODING = {
    "mask_and_scale",
    "decode_times",
    "concat_characters",
    "decode_coords",
    "drop_variables",
    "use_cftime",
    "decode_timedelta",
}


class LogBackendEntrypoint(BackendEntrypoint):
    """Opens logs as datasets, with h5netcdf: `xarray.open_dataset(path, engine="h5logfs", chunks={})`.

    Arguments besides those of xarray are `group`, `phony_dims` ("access" or "sort": how dimensions without a name are
    named), `decode_vlen_strings`, and the options of `h5logfs.open`. A file that is no log is read as it is.

    A process that gets a lazy array of the dataset, such as a worker of dask, opens the log by its path.
    """

    description = "Open log-layout files of HPC programs as the HDF5 or netCDF-4 files that they stand for"
    open_dataset_parameters = ("filename_or_obj", "group", "phony_dims", "decode_vlen_strings", *sorted(_DECODING))
    supports_groups = True

    def guess_can_open(self, filename_or_obj: Any) -> bool:
        """Whether it is the path of a log. The content of the file decides, not its name."""
        if not isinstance(filename_or_obj, (str, os.PathLike)) or not os.path.isfile(filename_or_obj):
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
        drop_variables: Optional[Iterable[str]] = None,
        **arguments: Any,
    ) -> Dataset:
        """Opens one group of a log. Raises what `h5logfs.open` raises."""
        decoding, options = _split(arguments)
        store = _store(filename_or_obj, group, phony_dims, decode_vlen_strings, options)
        return _decoded(store, drop_variables=drop_variables, **decoding)

    def open_groups_as_dict(
        self,
        filename_or_obj: Any,
        *,
        group: Optional[str] = None,
        phony_dims: str = "access",
        decode_vlen_strings: bool = True,
        drop_variables: Optional[Iterable[str]] = None,
        **arguments: Any,
    ) -> dict[str, Dataset]:
        """Opens a group and all groups below it, each with its path."""
        decoding, options = _split(arguments)
        store = _store(filename_or_obj, group, phony_dims, decode_vlen_strings, options)
        root = "/" + (group or "").strip("/")
        groups = {}
        for path in _paths_below(store.ds, root):
            relative = path[len(root) :].strip("/") if group else path.strip("/")
            below = H5NetCDFStore(store._manager, group=path, mode="r", lock=store.lock)
            groups[f"/{relative}"] = _decoded(below, drop_variables=drop_variables, **decoding)
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
    """How values are decoded, and the options of the log."""
    decoding = {name: value for name, value in arguments.items() if name in _DECODING}
    options = {name: value for name, value in arguments.items() if name not in _DECODING}
    # Open files are known by what they were opened with, which has to have a hash.
    return decoding, {name: tuple(value) if isinstance(value, list) else value for name, value in options.items()}


def _store(
    filename: Any, group: Optional[str], phony_dims: str, decode_vlen_strings: bool, options: dict[str, Any]
) -> H5NetCDFStore:
    if not isinstance(filename, (str, os.PathLike)):
        raise TypeError(f"{filename!r}: the engine h5logfs opens paths; h5netcdf opens file objects of h5logfs.open")
    # A worker may have another working directory.
    path = os.path.abspath(os.fspath(filename))
    manager = CachingFileManager(
        _open_h5netcdf,
        path,
        mode="r",
        kwargs={
            "options": tuple(sorted(options.items())),
            "phony_dims": phony_dims,
            "decode_vlen_strings": decode_vlen_strings,
        },
    )
    return H5NetCDFStore(manager, group=group, mode="r")


def _open_h5netcdf(
    path: str, mode: str, *, options: tuple[tuple[str, Any], ...], **arguments: Any
) -> h5netcdf.File:
    import h5netcdf

    chosen = dict(options)
    # Errors of the log are those of h5logfs, before HDF5 makes its own of them.
    file = open_log(path, **chosen)
    if not file.is_log:
        file.close()
        return h5netcdf.File(path, mode, **arguments)
    if register_driver():
        file.close()
        return h5netcdf.File(path, mode, driver="h5logfs", **chosen, **arguments)
    return h5netcdf.File(file, mode, **arguments)


def _decoded(store: H5NetCDFStore, **decoding: Any) -> Dataset:
    try:
        with store._manager.acquire_context():
            return StoreBackendEntrypoint().open_dataset(store, **decoding)
    except BaseException:
        store.close()
        raise


def _paths_below(group: Any, path: str) -> list[str]:
    """The paths of a group and of all groups in it, each before those in it."""
    paths = [path]
    for name, below in group.groups.items():
        paths += _paths_below(below, f"{path.rstrip('/')}/{name}")
    return paths
