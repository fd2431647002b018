"""The program h5logfs, which scans logs in its own process, and the HDF5 plug-ins."""

from __future__ import annotations

import os
from pathlib import Path

_HERE = Path(__file__).resolve().parent
_BUNDLED = _HERE / "bin" / "h5logfs"
_VARIABLE = "H5LOGFS_PROGRAM"

PLUGIN_DIRECTORY = _HERE / "plugins"
DRIVER = PLUGIN_DIRECTORY / "libh5logfs_driver.so"


def plugin_path() -> str:
    """The directory with this package's HDF5 plug-ins, for the environment variable HDF5_PLUGIN_PATH of programs that use the
    file driver (HDF5_DRIVER=h5logfs) or the VOL connector (HDF5_VOL_CONNECTOR=h5logfs)."""
    return str(PLUGIN_DIRECTORY)


def program() -> str:
    """The path of the program: that in the environment variable H5LOGFS_PROGRAM, or else this package's own.
    FileNotFoundError if there is none."""
    named = os.environ.get(_VARIABLE)
    if named:
        return named
    if _BUNDLED.is_file():
        return str(_BUNDLED)
    raise FileNotFoundError(f"{_BUNDLED}: this package has been built without the program; {_VARIABLE} can name one")
