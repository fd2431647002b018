"""Logs as files of fsspec: `h5logfs:///path/to/log.h5` is the canonical file of the log at that path."""

from __future__ import annotations

import os
from typing import Any, Optional

from fsspec.implementations.local import LocalFileSystem
from fsspec.spec import AbstractFileSystem

from . import _native
from ._file import LogFile, open


class LogFileSystem(AbstractFileSystem):  # type: ignore[misc]
    """The local files, where each log is its canonical HDF5 file, as in a mount. It is read-only.

    Storage options are the options of `h5logfs.open`:
    `fsspec.open("h5logfs:///run42/output.h5", cache_size="1G")`. References that kerchunk makes of such a file hold
    where this package is installed and the log has the same path.
    """

    protocol = "h5logfs"
    root_marker = "/"

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        # The other arguments are fsspec's own.
        self._options = {k: v for k, v in options.items() if k not in _OF_FSSPEC}
        self._local = LocalFileSystem()

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(each) for each in path]
        text = os.fspath(path)
        for prefix in (f"{cls.protocol}://", f"{cls.protocol}:"):
            if text.startswith(prefix):
                text = text[len(prefix) :]
                break
        return os.path.abspath(os.path.expanduser(text))

    def info(self, path: Any, **kwargs: Any) -> dict[str, Any]:
        """As of `LocalFileSystem`, with the size of the canonical file in bytes."""
        path = self._strip_protocol(path)
        try:
            return self._sized(self._local.info(path))
        except FileNotFoundError:
            # No file has the name of what a set of netCDF files makes up.
            with open(path, **self._options) as file:
                return {"name": path, "type": "file", "size": file.size}

    def ls(self, path: Any, detail: bool = True, **kwargs: Any) -> list[Any]:
        path = self._strip_protocol(path)
        found = self._local.ls(path, detail=True)
        joined = self._joined(path) if os.path.isdir(path) else {}
        infos = [{**info, **joined.pop(info["name"])} if info["name"] in joined else self._sized(info) for info in found]
        infos.extend(info for info in joined.values() if "name" in info)
        return infos if detail else [info["name"] for info in infos]

    def _joined(self, directory: str) -> dict[str, dict[str, Any]]:
        """The files that sets of netCDF files make up, by their paths and by those of their members, which lead to them."""
        found: dict[str, dict[str, Any]] = {}
        for name, members in _native.sets_in(directory):
            path = os.path.join(directory, name)
            try:
                info = self.info(path)
            except OSError:
                continue  # The members are listed as they are.
            found[path] = info
            for member in members:
                found[os.path.join(directory, member)] = {"size": info["size"]}
        return found

    def _sized(self, info: dict[str, Any]) -> dict[str, Any]:
        if info["type"] == "file":
            try:
                with open(info["name"], **self._options) as file:
                    info["size"] = file.size
            except OSError:
                pass  # A log that cannot be presented has its own size, as in a mount.
        return info

    def _open(self, path: str, mode: str = "rb", block_size: Optional[int] = None, **_: Any) -> LogFile:
        if mode != "rb":
            raise OSError(f"{path}: h5logfs is read-only, and mode {mode!r} writes")
        return open(path, **self._options)

    def cat_file(self, path: str, start: Optional[int] = None, end: Optional[int] = None, **_: Any) -> bytes:
        with open(self._strip_protocol(path), **self._options) as file:
            begin, stop, _step = slice(start, end).indices(file.size)
            return file.read_at(begin, max(stop - begin, 0))


_OF_FSSPEC = {
    "asynchronous",
    "loop",
    "batch_size",
    "use_listings_cache",
    "listings_expiry_time",
    "max_paths",
    "skip_instance_cache",
}
