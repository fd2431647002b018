"""Running jobs as datasets of xarray."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Optional

import xarray

from ._file import Path
from ._log import Log, follow as _follow
from ._native import LogError


def follow(
    path: Path, *, timeout: Optional[float] = None, new_steps: bool = False, **arguments: Any
) -> Iterator[xarray.Dataset]:
    """Follows a log that a job writes: the dataset as it is, then one for each flush, and the last one when the log is closed. No
    values are read before they are used.

    `new_steps`: of each later dataset only the part that the one before did not have along its unlimited dimensions. A flush without
    such a part is left out. `timeout`: as for `h5logfs.follow`. Other arguments are those of
    `xarray.open_dataset(path, engine="h5logfs")`.
    """
    had: dict[Any, int] = {}
    for log in _follow(path, timeout=timeout):
        dataset = _of(log, arguments)
        if dataset is None:
            continue
        sizes = {name: dataset.sizes[name] for name in dataset.encoding.get("unlimited_dims", ())}
        new = {name: slice(had[name], size) for name, size in sizes.items() if new_steps and had.get(name, 0) > 0}
        is_first, had = not had, sizes
        if new_steps and not is_first and not any(part.stop > part.start for part in new.values()):
            dataset.close()
            continue
        yield dataset.isel(new)


def _of(log: Log, arguments: dict[str, Any]) -> Optional[xarray.Dataset]:
    """The dataset of one state. None where the job has closed the log meanwhile: then the closed log follows."""
    if log.flush is None:
        return xarray.open_dataset(log.path, engine="h5logfs", **arguments)
    try:
        return xarray.open_dataset(log.path, engine="h5logfs", at_flush=log.flush.number, **arguments)
    except (LogError, OSError):
        if not log.refresh():
            raise
        return None
