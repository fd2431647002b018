"""Logs as binary files."""

from __future__ import annotations

import errno
import io
import os
from typing import TYPE_CHECKING, Any, Optional, Union

from . import _native, _options

if TYPE_CHECKING:
    from typing_extensions import Buffer

Path = Union[str, "os.PathLike[str]"]


def open(path: Path, **options: Any) -> LogFile:
    """Opens a log as a read-only binary file: the bytes of its canonical HDF5 file.

    A file that is not a log reads as its own bytes, as in a mount; `LogFile.is_log` tells. The options are those of a
    mount: `cache_size` and `index_memory` (bytes, or "1G"), `chunk`, `index_dir` (a directory for the results of scans,
    or "none"), `burst_dir` (a directory or a list of them), …

    Raises FileNotFoundError, PermissionError and the like for errors of the system; LogError for a log that cannot be
    presented; ValueError for an unknown option or an invalid value.
    """
    return LogFile(path, **options)


def is_log(path: Path, **options: Any) -> bool:
    """Whether the file is a log, even a damaged one. Takes the options of `open`, and raises what it raises."""
    return _native.is_log(_fspath(path), _options.text(options))


class LogFile(io.RawIOBase):
    """A log, or a plain file, open for reading as bytes. Made by `h5logfs.open`.

    Offsets and sizes are in bytes. Several threads may use one object. They share its position: each `read` gets
    different bytes. `read_at` and `readinto_at` leave the position alone. No read holds the interpreter's lock. A
    pickled LogFile opens the same path with the same options and position where it is unpickled.

    A read raises LogError where the log is damaged, or has changed since it was opened. The text names file, dataset,
    place and reason.
    """

    def __init__(self, path: Path, **options: Any) -> None:
        super().__init__()
        self._file: Optional[_native.OpenFile] = None
        self._name = _fspath(path)
        # A process that unpickles this may have another working directory.
        self._absolute = os.path.abspath(self._name)
        self._options = dict(options)
        self._file = _native.open(self._name, _options.text(options))

    @property
    def name(self) -> str:
        """The path as it was given."""
        return self._name

    @property
    def mode(self) -> str:
        """The mode, always "rb"."""
        return "rb"

    @property
    def is_log(self) -> bool:
        """Whether this is a log, read as its canonical HDF5 file. Otherwise the bytes are those of the file."""
        return self._open_file().is_log

    @property
    def size(self) -> int:
        """Length in bytes."""
        return self._open_file().size()

    @property
    def options(self) -> dict[str, Any]:
        """The options that the file was opened with."""
        return dict(self._options)

    def readable(self) -> bool:
        self._open_file()
        return True

    def seekable(self) -> bool:
        self._open_file()
        return True

    def tell(self) -> int:
        return self._open_file().position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        file = self._open_file()
        if whence == io.SEEK_SET:
            position = offset
        elif whence == io.SEEK_CUR:
            position = file.position + offset
        elif whence == io.SEEK_END:
            position = file.size() + offset
        else:
            raise ValueError(f"whence is {whence}, not SEEK_SET, SEEK_CUR or SEEK_END")
        if not 0 <= position < 1 << 63:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), self._name)
        file.position = position
        return position

    def read(self, size: Optional[int] = -1) -> bytes:
        """Reads up to `size` bytes at the position, or all the rest. Fewer than `size` only at the end of the file."""
        if size is None or size < 0:
            return self.readall()
        return self._open_file().read(size)

    def readall(self) -> bytes:
        file = self._open_file()
        return file.read(max(file.size() - file.position, 0))

    def readinto(self, buffer: Buffer) -> int:
        """Fills `buffer` from the position. Returns the number of bytes: less than the buffer's only at the end of the file."""
        return self._open_file().readinto(buffer)

    def write(self, buffer: Buffer) -> int:
        """Fails: logs are read-only."""
        self._open_file()
        raise io.UnsupportedOperation("write")

    def read_at(self, offset: int, size: int) -> bytes:
        """Reads up to `size` bytes at `offset`. Fewer only at the end of the file. The position stays."""
        _check_range(offset, size)
        return self._open_file().read_at(offset, size)

    def readinto_at(self, offset: int, buffer: Buffer) -> int:
        """Fills `buffer` from `offset`. Returns the number of bytes: less than the buffer's only at the end of the file. The
        position stays."""
        _check_range(offset, 0)
        return self._open_file().readinto_at(offset, buffer)

    def close(self) -> None:
        # A read in another thread ends before the file is closed.
        self._file = None
        super().close()

    def _again(self) -> LogFile:
        """A second handle of the same state, with its own position."""
        again = LogFile.__new__(LogFile)
        io.RawIOBase.__init__(again)
        again._name, again._absolute, again._options = self._name, self._absolute, self._options
        again._file = self._open_file().again()
        return again

    def __reduce__(self) -> Any:
        file = self._open_file()
        return _reopened, (self._absolute, self._name, self._options, file.position)

    def __repr__(self) -> str:
        file = self._file
        if file is None:
            return f"<h5logfs.LogFile closed {self._name!r}>"
        kind = "log" if file.is_log else "plain file"
        # h5py takes this text for the name of the file, and the part after the last slash for its short name.
        return f"<h5logfs.LogFile {kind}, {file.size()} bytes, {self._name!r}>"

    def _repr_html_(self) -> str:
        """The content of the file, as a table for notebooks."""
        from ._html import of_file

        return of_file(self)

    def _open_file(self) -> _native.OpenFile:
        file = self._file
        if file is None:
            raise ValueError("I/O operation on closed file")
        return file


def _reopened(absolute: str, name: str, options: dict[str, Any], position: int) -> LogFile:
    file = LogFile(absolute, **options)
    file._name = name
    file.seek(position)
    return file


def _check_range(offset: int, size: int) -> None:
    if offset < 0 or size < 0:
        raise ValueError(f"offset {offset} and size {size}: neither may be negative")


def _fspath(path: Path) -> str:
    return os.fsdecode(os.fspath(path))
