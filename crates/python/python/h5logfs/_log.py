"""Logs as states: each flush of a running job leaves one."""

from __future__ import annotations

import asyncio
import os
import time as clock
from collections.abc import ItemsView, Iterator, Mapping, ValuesView
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, NamedTuple, Optional, Union

from . import _native
from ._file import LogFile, Path, _fspath

if TYPE_CHECKING:
    import h5py

    from ._arrays import Array, Attributes, Group

# A signal, as of Ctrl-C, waits for no longer.
_STEP = 0.2
# How often a follower looks at a log that changes meanwhile, as the program does.
_ATTEMPTS = 10


class Flush(NamedTuple):
    """A flush of a log that is not closed."""

    number: int
    """From 1."""
    time: Optional[datetime]
    """When it was complete, by the clock of the job, in UTC; None where the journal does not say."""
    automatic: bool
    """Whether the program has not asked for it, so that it need not be a state that the program means."""


def _flush(found: Optional[tuple[int, Optional[int], bool]]) -> Optional[Flush]:
    if found is None:
        return None
    number, milliseconds, automatic = found
    try:
        time = None if milliseconds is None else _EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        # A journal may tell any time.
        time = None
    return Flush(number, time, automatic)


def _without_moment(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name not in ("at_flush", "at_time")}


_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


class NotALog(ValueError):
    """A file that is no log."""


class Log(Mapping[str, "Union[Group, Array]"]):
    """One state of a log: the newest flush, until `refresh` goes on to a newer one. It is the root group of what the log holds:
    `log["group/T"][-1]` reads, with all cores and without HDF5. See `Group` and `Array`.

    What was opened of a state stays readable while the job goes on, and when it has closed the log. A log that was settled, as at its
    close, is an ordinary HDF5 file: the last state, which is closed. So is a netCDF file whose burst-buffer logs are gone: it is shown
    as netCDF-4 then, as the logs were.

    `threads`: how many read an array; by default as many as there are cores that the process may use. Else it takes the options of
    `h5logfs.open`. Raises what that raises, and ValueError for a file that is no log.
    """

    def __init__(self, path: Path, *, threads: int = 0, **options: Any) -> None:
        self._path = _fspath(path)
        self._threads = threads
        self._options = dict(options)
        self._changes = _native.Changes(self._path)
        self._file = self._opened()
        self._root: Optional[Group] = None

    @property
    def path(self) -> str:
        """The path, as it was given."""
        return self._path

    @property
    def flush(self) -> Optional[Flush]:
        """The flush that left this state; None for a closed log, and for one that does not number its flushes."""
        return _flush(self._native().flush)

    @property
    def closed(self) -> bool:
        """Whether the log is closed: no flush follows, unless a job opens it again."""
        return self._native().is_closed

    def refresh(self) -> bool:
        """Goes on to the newest state. Returns whether it is another one. Costs two system calls where nothing has changed."""
        if not self._changes.look():
            return False
        file = self._opened()
        if file._open_file().is_same(self._native()):
            return False
        self._file, self._root = file, None
        return True

    def at(self, flush: Optional[int] = None, time: Union[datetime, str, None] = None) -> Log:
        """The log as this flush left it, or as the last flush left it that was complete at this time. A time without a zone is
        one of this place. Raises LogError where the log has no such flush; a closed log has only its last one."""
        if (flush is None) == (time is None):
            raise TypeError("either a flush or a time")
        options = {**_without_moment(self._options), "threads": self._threads}
        if flush is not None:
            return Log(self._path, **options, at_flush=flush)
        return Log(self._path, **options, at_time=time.isoformat() if isinstance(time, datetime) else time)

    def open(self) -> LogFile:
        """This state as a binary file: the bytes of its canonical HDF5 file."""
        file, flush = self._file._again(), self.flush
        if flush is not None:
            # Where it is unpickled, there may be newer ones.
            file._options = {**_without_moment(file._options), "at_flush": flush.number}
        return file

    def file(self, **options: Any) -> h5py.File:
        """This state as an `h5py.File`. Takes the arguments of that."""
        import h5py

        return h5py.File(self.open(), "r", **options)

    @property
    def threads(self) -> int:
        """How many read an array; 0 stands for all cores."""
        return self._threads

    @property
    def attrs(self) -> Attributes:
        """The attributes of the root group."""
        return self._group().attrs

    def groups(self) -> dict[str, Group]:
        """The groups in the root group."""
        return self._group().groups()

    def arrays(self) -> dict[str, Array]:
        """The arrays in the root group."""
        return self._group().arrays()

    def items(self) -> ItemsView[str, Union[Group, Array]]:
        """The names in the root group, each with its group or array."""
        return self._group().items()

    def values(self) -> ValuesView[Union[Group, Array]]:
        """The groups and arrays in the root group."""
        return self._group().values()

    def __getitem__(self, path: str) -> Union[Group, Array]:
        return self._group()[path]

    def __iter__(self) -> Iterator[str]:
        return iter(self._group())

    def __len__(self) -> int:
        return len(self._group())

    def __contains__(self, path: object) -> bool:
        return path in self._group()

    def __bool__(self) -> bool:
        return True

    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def __reduce__(self) -> tuple[Any, ...]:
        path, options = self._place()
        return _opened_again, (path, options)

    def __repr__(self) -> str:
        flush = self.flush
        unclosed = "not closed" if flush is None else f"flush {flush.number}"
        state = "closed" if self.closed else unclosed
        return f"<h5logfs.Log {self._path!r}, {state}>"

    def _group(self) -> Group:
        if self._root is None:
            # Only arrays need numpy.
            from ._arrays import root

            self._root = root(self)
        return self._root

    def _place(self) -> tuple[str, dict[str, Any]]:
        """What another process opens to have the same state, wherever that runs."""
        options, flush = _without_moment(self._file.options), self.flush
        if flush is not None:
            options["at_flush"] = flush.number
        return os.path.abspath(self._path), {**options, "threads": self._threads}

    def _opened(self) -> LogFile:
        file = LogFile(self._path, **self._options)
        if not file.is_log and self._changes.lies_beside:
            # The file beside which the log lay has its data now.
            file.close()
            file = LogFile(self._path, **{**self._options, "netcdf": "hdf5"})
        native = file._open_file()
        if not native.is_log and not native.is_settled():
            file.close()
            raise NotALog(f"{self._path}: not a log")
        self._changes.learn(native)
        return file

    def _newest(self) -> Log:
        """The newest state, on its own."""
        newest = Log.__new__(Log)
        newest._path, newest._threads, newest._options = self._path, self._threads, self._options
        newest._changes = _native.Changes(self._path)
        newest._changes.learn(self._native())
        newest._file, newest._root = newest._opened(), None
        return newest

    def _native(self) -> _native.OpenFile:
        return self._file._open_file()


def _opened_again(path: str, options: dict[str, Any]) -> Log:
    return Log(path, **options)


class Follower:
    """The states of a log, each as a `Log`, for `for` and `async for`: the present one, then one for each flush, or the newest
    of several that have come meanwhile. It ends behind the closed log. `h5logfs.follow` makes it."""

    def __init__(self, path: Path, timeout: Optional[float], options: dict[str, Any]) -> None:
        # Another working directory may come while it waits.
        self._path = os.path.abspath(_fspath(path))
        self._timeout = timeout
        self._options = options
        self._changes = _native.Changes(self._path)
        self._last: Optional[Log] = None

    def __iter__(self) -> Follower:
        return self

    def __next__(self) -> Log:
        last, begin = self._last, clock.monotonic()
        if last is None:
            return self._told(Log(self._path, **self._options))
        if last.closed:
            raise StopIteration
        while True:
            newer = self._newer(last)
            if newer is not None:
                return self._told(newer)
            self._check(begin)

    def __aiter__(self) -> Follower:
        return self

    async def __anext__(self) -> Log:
        last, begin = self._last, clock.monotonic()
        if last is None:
            return self._told(await asyncio.to_thread(Log, self._path, **self._options))
        if last.closed:
            raise StopAsyncIteration
        while True:
            newer = await asyncio.to_thread(self._newer, last)
            if newer is not None:
                return self._told(newer)
            self._check(begin)

    def _told(self, log: Log) -> Log:
        self._last = log
        self._changes.learn(log._native())
        return log

    def _newer(self, last: Log) -> Optional[Log]:
        """Waits for a moment."""
        if not self._changes.wait(_STEP):
            return None
        newer = self._newest(last)
        return None if newer._native().is_same(last._native()) else newer

    def _newest(self, last: Log) -> Log:
        """The newest state. Looks again where that fails and the log changes meanwhile."""
        for _ in range(_ATTEMPTS - 1):
            try:
                return last._newest()
            except (OSError, ValueError):
                # A log that is being closed or replaced may be neither the one nor the other.
                if not self._changes.wait(_STEP):
                    raise
        return last._newest()

    def _check(self, begin: float) -> None:
        if self._timeout is not None and clock.monotonic() - begin >= self._timeout:
            raise TimeoutError(f"{self._path}: no flush for {self._timeout} seconds")


def follow(path: Path, *, timeout: Optional[float] = None, **options: Any) -> Follower:
    """Follows a log that a job writes: `for log in h5logfs.follow(path)`, or `async for`. See `Follower`.

    `timeout`: TimeoutError where no flush comes for so many seconds, as when the job has died. Takes the options of `open`.
    """
    return Follower(path, timeout, options)
