"""Reads log-layout files of HPC programs as HDF5 files, without a mount.

A log is what a parallel program leaves that appends its data to a log instead of writing an ordinary HDF5 or netCDF
file. Here it reads as the canonical, chunked HDF5 file that the program meant. Nothing is converted or copied.

    import h5logfs, h5py

    with h5logfs.File("run42/output.h5") as file:           # an h5py.File
        print(file["T"][-1].mean())

    with h5py.File(h5logfs.open("run42/output.h5")) as file:    # the same through a file object
        ...

    h5logfs.inspect("run42/output.h5")                      # what the log holds; a table in a notebook

    log = h5logfs.Log("run42/output.h5")                    # arrays of numpy, read by all cores, without HDF5
    log["T"][-1].mean(), log["T"].attrs["units"]

    for log in h5logfs.follow("run42/output.h5"):           # each flush of a job that runs
        print(log.flush.number, log.file()["T"].shape)

    xarray.open_dataset("run42/output.h5", engine="h5logfs", chunks={})
    xarray.open_zarr(h5logfs.ZarrStore("run42/output.h5"), consolidated=False)
    h5logfs.references("run42/output.h5")                   # for readers of Zarr, which need no h5logfs

`open` and `inspect` need nothing but this package; `File` and `references` need h5py, the arrays of a `Log` need numpy, and
`ZarrStore` needs zarr.
"""

from typing import TYPE_CHECKING, Any

from ._file import LogFile, is_log, open
from ._h5py import File, register_driver
from ._inspect import Inspection, inspect
from ._log import Flush, Follower, Log, follow
from ._native import LogError, __version__
from ._program import plugin_path
from ._references import References, references

if TYPE_CHECKING:
    from ._arrays import Array, Attributes, Group
    from ._store import ZarrStore
    from ._types import Empty

__all__ = [
    "Array",
    "Attributes",
    "Empty",
    "File",
    "Flush",
    "Follower",
    "Group",
    "Inspection",
    "Log",
    "LogError",
    "LogFile",
    "References",
    "ZarrStore",
    "follow",
    "inspect",
    "is_log",
    "open",
    "plugin_path",
    "references",
    "register_driver",
    "__version__",
]


def __getattr__(name: str) -> Any:
    if name in ("Array", "Attributes", "Group"):
        # Arrays need numpy; the rest of the package does not.
        from . import _arrays

        found: Any = getattr(_arrays, name)
    elif name == "Empty":
        from . import _types

        found = _types.Empty
    elif name == "ZarrStore":
        # The store needs zarr.
        from . import _store

        found = _store.ZarrStore
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # The next access finds the name in the module.
    globals()[name] = found
    return found
