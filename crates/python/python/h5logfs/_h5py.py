"""Logs as h5py files."""

from __future__ import annotations

import ctypes
import os
import sys
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ._file import Path, is_log, open
from ._options import text
from ._program import DRIVER, PLUGIN_DIRECTORY

if TYPE_CHECKING:
    import h5py

_NAME = "h5logfs"
_FIRST_WITH_DRIVERS = (1, 14, 0)


def File(path: Path, mode: str = "r", **options: Any) -> h5py.File:
    """Opens a log as an `h5py.File`. Takes the options of `h5logfs.open` and the keyword arguments of `h5py.File`.

    HDF5 1.14 and later read the log through the file driver, which is registered with h5py under the name "h5logfs".
    An older HDF5 reads it through a file object. A file that is no log is opened by h5py alone, in any mode. A log is
    read-only: OSError for another mode than "r".

    Raises what `h5logfs.open` raises, and what h5py raises for a file that is not HDF5.
    """
    import h5py

    ours, theirs = _split(options)
    path = os.fsdecode(os.fspath(path))
    if not _leads_to_log(path, mode, ours):
        return h5py.File(path, mode, **theirs)
    if mode != "r":
        raise OSError(
            f"{path}: a log cannot be opened with mode {mode!r}: it is read-only; `h5logfs export` makes an ordinary "
            "HDF5 file of it"
        )
    if register_driver():
        return h5py.File(path, "r", driver=_NAME, **ours, **theirs)
    return h5py.File(open(path, **ours), "r", **theirs)


def register_driver() -> bool:
    """Registers the file driver with h5py, so that `h5py.File(path, driver="h5logfs", cache_size="1G")` works.

    Returns whether h5py's HDF5 is one that loads file drivers, which is version 1.14 or later.
    """
    import h5py

    if not _can_load_drivers():
        return False
    if _NAME not in h5py.registered_drivers():
        h5py.h5pl.prepend(os.fsencode(PLUGIN_DIRECTORY))
        h5py.register_driver(_NAME, _set_driver)
    return True


def _split(options: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The options of `h5logfs.open`, and those of `h5py.File`."""
    import inspect

    import h5py

    theirs = inspect.signature(h5py.File.__init__).parameters
    return (
        {name: value for name, value in options.items() if name not in theirs},
        {name: value for name, value in options.items() if name in theirs},
    )


def _leads_to_log(path: str, mode: str, options: dict[str, Any]) -> bool:
    # Without the look before, a file that is yet to be made is an error.
    return (mode == "r" or os.path.isfile(path)) and is_log(path, **options)


def _set_driver(fapl: h5py.h5p.PropFAID, **options: Any) -> None:
    """What h5py calls to set the driver of a file access property list."""
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
        # Another system, or an HDF5 that is part of h5py's own modules and hides its functions.
        return False
    return True


@lru_cache(maxsize=None)
def _set_driver_by_name() -> Any:
    """`H5Pset_driver_by_name` of the HDF5 that h5py is linked to: a process may hold several, so it is looked up among
    the libraries of one of h5py's modules, and none is loaded."""
    module = sys.modules["h5py.h5p"].__file__
    # It has the interpreter's lock, as h5py has when it calls HDF5.
    function = ctypes.PyDLL(module, mode=os.RTLD_NOLOAD | os.RTLD_NOW).H5Pset_driver_by_name
    function.argtypes = [ctypes.c_int64, ctypes.c_char_p, ctypes.c_char_p]
    function.restype = ctypes.c_int
    return function
