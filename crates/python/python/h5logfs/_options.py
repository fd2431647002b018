"""Options: keyword arguments in Python, and text as for `mount -o` in the native module."""

from __future__ import annotations

import operator
import os
from typing import Any, Iterable, Union

Value = Union[str, int, bool, "os.PathLike[str]", "Iterable[Union[str, os.PathLike[str]]]", None]


def text(options: dict[str, Any]) -> str:
    """`cache_size="1G", burst_dir=["a", "b"]` as `cache_size=1G,burst_dir=a,burst_dir=b`."""
    return ",".join(f"{name}={value}" for name, value in pairs(options))


def pairs(options: dict[str, Any]) -> list[tuple[str, str]]:
    """Pairs of an option and its value as text. A list makes a pair for each of its values, None makes none."""
    return [(name, single) for name, value in options.items() for single in _values(name, value)]


def threads(number: Any) -> int:
    """A number of threads, where 0 stands for one per core. TypeError or ValueError for anything else."""
    if isinstance(number, bool):
        raise TypeError(f"threads={number!r}: a whole number was expected")
    try:
        number = operator.index(number)
    except TypeError:
        raise TypeError(f"threads={number!r}: a whole number was expected") from None
    if not 0 <= number <= _MOST_THREADS:
        raise ValueError(f"threads={number}: a number from 0 (one per core) to {_MOST_THREADS} was expected")
    return int(number)


_MOST_THREADS = 1 << 16


def _values(name: str, value: Value) -> list[str]:
    if value is None:
        return []
    if isinstance(value, bool):
        return ["on" if value else "off"]
    if isinstance(value, int):
        return [str(value)]
    if isinstance(value, (str, os.PathLike)):
        return [_single(name, os.fspath(value))]
    if isinstance(value, (list, tuple)):
        return [_single(name, os.fspath(each)) for each in value]
    raise TypeError(f"{name}={value!r}: expected a text, a path, a whole number, or a list of texts or paths")


def _single(name: str, value: str) -> str:
    if not isinstance(value, str) or "," in value:
        raise ValueError(f"{name}={value!r}: a value is a text without a comma")
    return value
