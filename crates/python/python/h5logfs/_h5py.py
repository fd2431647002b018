"""Logs as h5py files."""

from __future__ import annotations

import ctypes
import os
import sys
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from . import _native
from ._file import Path, _fspath, open
from ._options import text
from ._program import DRIVER, PLUGIN_DIRECTORY

if TYPE_CHECKING:
    import h5py

_NAME = "h5logfs"
_FIRST_WITH_DRIVERS = (1, 14, 0)


def File(path: Path, mode: str = "r", **options: Any) -> h5py.File:
    """Opens a log as an `h5py.File`. Takes the options of `h5logfs.open` and the keyword arguments of `h5py.File`.

    HDF5 1.14 and later read the log through the file driver, registered with h5py under the name "h5logfs". An older
    HDF5 reads it through a file object. h5py itself opens a file that is not a log, in any mode. A log is read-only:
    OSError for another mode than "r".

    Raises FileNotFoundError, PermissionError and the like for errors of the system; OSError for what cannot be opened
    as HDF5, with the reason; ValueError for an unknown option.
    """
    import h5py

    path = _fspath(path)
    ours, theirs = _split(options)
    settings = text(ours)
    _native.check_options(settings)
    if mode != "r" or "driver" in theirs:
        if os.path.exists(path) and _native.is_log(path, settings):
            raise OSError(_REFUSAL.format(path=path))
        return h5py.File(path, mode, **theirs)
    if not os.path.exists(path):
        # A log that is a directory has further names. For any other name this raises the error of the system, which not
        # every HDF5 driver reports.
        _native.is_log(path, settings)
    if register_driver():
        return h5py.File(path, "r", driver=_NAME, **ours, **theirs)
    file = open(path, **ours)
    if file.is_log:
        return h5py.File(file, "r", **theirs)
    file.close()
    return h5py.File(path, "r", **theirs)


_REFUSAL = (
    "{path}: this is a log, which is read-only: it is opened with mode 'r' and without another driver; `h5logfs export` "
    "makes an ordinary HDF5 file of it"
)


def register_driver() -> bool:
    """Registers the file driver with h5py, so that `h5py.File(path, driver="h5logfs", cache_size="1G")` works.

    Returns whether h5py's HDF5 can load file drivers. Version 1.14 and later can.
    """
    import h5py

    if not _can_load_drivers():
        return False
    if _NAME not in h5py.registered_drivers():
        h5py.h5pl.prepend(os.fsencode(PLUGIN_DIRECTORY))
        h5py.register_driver(_NAME, _set_driver)
    return True


def _split(options: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Splits the options into those of `h5logfs.open` and those of `h5py.File`."""
    import inspect

    import h5py

    theirs = inspect.signature(h5py.File.__init__).parameters
    return (
        {name: value for name, value in options.items() if name not in theirs},
        {name: value for name, value in options.items() if name in theirs},
    )


def _set_driver(fapl: h5py.h5p.PropFAID, **options: Any) -> None:
    """Sets the driver of a file access property list. h5py calls this."""
    status = _set_driver_by_name()(fapl.id, _NAME.encode(), os.fsencode(text(options)))
    if status < 0:
        raise OSError(f"{DRIVER}: HDF5 cannot load this file driver")


@lru_cache(maxsize=None)
def _can_load_drivers() -> bool:
    import h5py

    if h5py.version.hdf5_version_tuple < _FIRST_WITH_DRIVERS or not DRIVER.is_file():
        return False
    try:
        _set_driver_by_name()
    except (OSError, AttributeError):
        # Another operating system, or an HDF5 inside h5py's own modules that hides its functions.
        return False
    return True


@lru_cache(maxsize=None)
def _set_driver_by_name() -> Any:
    """`H5Pset_driver_by_name` of the HDF5 that h5py is linked to. A process may hold several copies of HDF5, so the function
    is looked up among the libraries of one of h5py's modules, and nothing is loaded."""
    module = sys.modules["h5py.h5p"].__file__
    # h5py, too, holds the interpreter's lock when it calls HDF5.
    function = ctypes.PyDLL(module, mode=os.RTLD_NOLOAD | os.RTLD_NOW).H5Pset_driver_by_name
    function.argtypes = [ctypes.c_int64, ctypes.c_char_p, ctypes.c_char_p]
    function.restype = ctypes.c_int
    return function
