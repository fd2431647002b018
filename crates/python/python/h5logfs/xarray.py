"""Running jobs as xarray datasets."""

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
    """Follows a log that a job writes. Yields the dataset as it is, then one for each flush, and the last one when the
    log is closed. Values are read when they are used.

    `new_steps`: each later dataset is only the part by which dimensions have grown, or the whole dataset where a
    variable has grown along several. A flush without growth is skipped. `timeout`: as for `h5logfs.follow`. Other
    arguments are those of `xarray.open_dataset(path, engine="h5logfs")`.
    """
    had: Optional[dict[Any, int]] = None
    for log in _follow(path, timeout=timeout):
        dataset = _of(log, arguments)
        if dataset is None:
            continue
        before, had = had, dict(dataset.sizes)
        if not new_steps or before is None:
            yield dataset
            continue
        new = {name: slice(before[name], size) for name, size in had.items() if before.get(name, size) < size}
        if not new:
            dataset.close()
            continue
        along = (len(new.keys() & variable.dims) for variable in dataset.variables.values())
        if max(along) > 1:
            yield dataset
            continue
        part = dataset.isel(new)
        part.set_close(dataset.close)
        yield part


def _of(log: Log, arguments: dict[str, Any]) -> Optional[xarray.Dataset]:
    """The dataset of one state. None where the job has closed the log meanwhile: the closed log is the next state."""
    # The log's options decide how a file is shown that is no longer a log.
    options = {**arguments, **log._state.file.options}
    if log.closed:
        return xarray.open_dataset(log.path, engine="h5logfs", **options)
    if log.flush is not None:
        options["at_flush"] = log.flush.number
    try:
        return xarray.open_dataset(log.path, engine="h5logfs", **options)
    except (LogError, OSError):
        if not log.refresh():
            raise
        return None
