"""The states of a log: each flush of a running job leaves one."""

from __future__ import annotations

import asyncio
import os
import time as clock
from collections.abc import Callable, ItemsView, Iterator, Mapping, ValuesView
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, NamedTuple, Optional, Union

from . import _native, _options
from ._file import LogFile, Path, _fspath

if TYPE_CHECKING:
    import h5py
    import numpy as np

    from ._arrays import Array, Attributes, Group

# The longest delay of a signal such as Ctrl-C, in seconds.
_STEP = 0.2
# How often a follower retries while the log changes, like the program.
_ATTEMPTS = 10


class Flush(NamedTuple):
    """A flush of an unclosed log."""

    number: int
    """The number, from 1."""
    time: Optional[datetime]
    """The completion time by the clock of the job, in UTC; None where the journal has none."""
    automatic: bool
    """Whether the flush was automatic: the program has not requested it, so its state may not be one that the program means."""


def _flush(found: Optional[tuple[int, Optional[int], bool]]) -> Optional[Flush]:
    if found is None:
        return None
    number, milliseconds, automatic = found
    try:
        time = None if milliseconds is None else _EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        # A damaged journal may hold any time.
        time = None
    return Flush(number, time, automatic)


def _without_moment(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name not in ("at_flush", "at_time")}


_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


class NotALog(ValueError):
    """The file is not a log."""


class State:
    """One state of a log, open. Its groups and arrays have it, so none of them needs the `Log`."""

    def __init__(self, path: str, file: LogFile, changes: _native.Changes, threads: int) -> None:
        self.path, self.file, self.changes, self.threads = path, file, changes, threads
        #: What is known of it stays known after `close`.
        self.known = file._open_file()

    @property
    def flush(self) -> Optional[Flush]:
        """The flush that left it."""
        return _flush(self.known.flush)

    def native(self) -> _native.OpenFile:
        """The file to read. ValueError after `close`."""
        if self.file.closed:
            raise ValueError(f"{self.path}: this Log was closed, and cannot be read any more")
        return self.known

    def place(self) -> tuple[str, dict[str, Any]]:
        """The path and options with which another process opens this state, whatever its working directory."""
        options, flush = _without_moment(self.file.options), self.flush
        if flush is not None:
            options["at_flush"] = flush.number
        return self.file._absolute, {**options, "threads": self.threads}

    def close(self) -> None:
        """Closes the files. Nothing of this state can be read any more."""
        if not self.file.closed:
            self.known.release()
            self.file.close()


class Log(Mapping[str, Any]):
    """One state of a log: the newest flush, until `refresh` moves on to a newer one. It is also the log's root group:
    `log["group/T"][-1]` reads with all cores and without HDF5. See `Group` and `Array`.

    Objects opened from a state stay readable while the job goes on, and after it has closed the log. A settled log is
    an ordinary HDF5 file: its last state, which is closed. A netCDF file whose burst-buffer logs are gone is shown as
    netCDF-4, as the logs were.

    `close`, or the end of a `with` block, closes the files. Any number of logs may be open: all of them keep at most a
    quarter of the descriptors of the process, and the least recently used files are closed until they are read again.
    A file that was replaced or deleted meanwhile then raises LogError.

    `threads`: number of threads that read an array; by default one per core that the process may use. The other options
    are those of `h5logfs.open`. Raises what `open` raises, and ValueError for a file that is not a log.
    """

    def __init__(self, path: Path, *, threads: int = 0, **options: Any) -> None:
        self._path = _fspath(path)
        self._threads = _options.threads(threads)
        self._options = dict(options)
        self._changes = _native.Changes(self._path)
        self._state = self._opened()
        self._root: Optional[Group] = None

    def close(self) -> None:
        """Closes the files of the log. Its groups and arrays can then be read no more; files from `open` and `file` can. A
        second call does nothing."""
        self._state.close()

    def __enter__(self) -> Log:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def path(self) -> str:
        """The path as it was given."""
        return self._path

    @property
    def flush(self) -> Optional[Flush]:
        """The flush that left this state; None for a closed log, and for one whose flushes have no numbers."""
        return self._state.flush

    @property
    def closed(self) -> bool:
        """Whether the log is closed: no flush follows, unless a job opens it again."""
        return self._state.known.is_closed

    def refresh(self) -> bool:
        """Moves on to the newest state. Returns whether the state has changed. Costs two system calls where nothing has
        changed."""
        own = self._state.native()
        if not self._changes.look():
            return False
        state = self._opened()
        if state.known.is_same(own):
            return False
        self._state, self._root = state, None
        return True

    def at(self, flush: Optional[int] = None, time: Union[datetime, str, None] = None) -> Log:
        """The log as a flush left it: flush number `flush`, or the last flush complete at `time`. A time without a zone is
        local time. Raises LogError where the log has no such flush; a closed log has only its last one."""
        if (flush is None) == (time is None):
            raise TypeError("either a flush or a time")
        options = {**_without_moment(self._options), "threads": self._threads}
        if flush is not None:
            return Log(self._path, **options, at_flush=flush)
        return Log(self._path, **options, at_time=time.isoformat() if isinstance(time, datetime) else time)

    def open(self) -> LogFile:
        """This state as a binary file: the bytes of its canonical HDF5 file."""
        # Raises after `close`.
        self._state.native()
        file, flush = self._state.file._again(), self.flush
        if flush is not None:
            # Newer flushes may exist where the file is unpickled.
            file._options = {**_without_moment(file._options), "at_flush": flush.number}
        return file

    def file(self, **options: Any) -> h5py.File:
        """This state as an `h5py.File`. Takes the arguments of `h5py.File`."""
        import h5py

        return h5py.File(self.open(), "r", **options)

    @property
    def threads(self) -> int:
        """The number of threads that read an array; 0 stands for all cores."""
        return self._threads

    @property
    def attrs(self) -> Attributes:
        """The attributes of the root group."""
        return self._group().attrs

    @property
    def name(self) -> str:
        """The path of the root group, "/"."""
        return "/"

    @property
    def parent(self) -> Group:
        """The root group itself, as in h5py."""
        return self._group()

    def groups(self) -> dict[str, Group]:
        """The groups in the root group."""
        return self._group().groups()

    def arrays(self) -> dict[str, Array]:
        """The arrays in the root group."""
        return self._group().arrays()

    def items(self) -> ItemsView[str, Union[Group, Array]]:
        """The groups and arrays in the root group, by name."""
        return self._group().items()

    def values(self) -> ValuesView[Union[Group, Array]]:
        """The groups and arrays in the root group."""
        return self._group().values()

    def visit(self, call: Callable[[str], Any]) -> Any:
        """`Group.visit` of the root group."""
        return self._group().visit(call)

    def visititems(self, call: Callable[[str, Any], Any]) -> Any:
        """`Group.visititems` of the root group."""
        return self._group().visititems(call)

    def __getitem__(self, key: Union[str, bytes, np.uint64]) -> Any:
        return self._group()[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._group())

    def __len__(self) -> int:
        return len(self._group())

    def __contains__(self, path: object) -> bool:
        return path in self._group()

    def __bool__(self) -> bool:
        """Whether the files are open."""
        return not self._state.file.closed

    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def __reduce__(self) -> tuple[Any, ...]:
        path, options = self._state.place()
        return _opened_again, (path, options)

    def __repr__(self) -> str:
        if not self:
            return f"<h5logfs.Log {self._path!r}, not open>"
        flush = self.flush
        unclosed = "not closed" if flush is None else f"flush {flush.number}"
        state = "closed" if self.closed else unclosed
        return f"<h5logfs.Log {self._path!r}, {state}>"

    def _ipython_key_completions_(self) -> list[str]:
        return list(self)

    def _repr_html_(self) -> str:
        """The groups and arrays, as a table for notebooks."""
        from ._html import of_group, of_text

        return of_group(repr(self), self._group()) if self else of_text(repr(self))

    def _group(self) -> Group:
        if self._root is None:
            # Only arrays need numpy.
            from ._arrays import root

            self._root = root(self._state)
        return self._root

    def _opened(self) -> State:
        file = LogFile(self._path, **self._options)
        if not file.is_log and self._changes.lies_beside:
            # The file beside which the log lay has the data now.
            file.close()
            file = LogFile(self._path, **{**self._options, "netcdf": "hdf5"})
        native = file._open_file()
        if not native.is_log and not native.is_settled():
            file.close()
            raise NotALog(f"{self._path}: not a log")
        self._changes.learn(native)
        return State(self._path, file, self._changes, self._threads)

    def _newest(self) -> Log:
        """The newest state as an object of its own."""
        newest = Log.__new__(Log)
        newest._path, newest._threads, newest._options = self._path, self._threads, self._options
        newest._changes = _native.Changes(self._path)
        newest._changes.learn(self._state.known)
        newest._state, newest._root = newest._opened(), None
        return newest


def _opened_again(path: str, options: dict[str, Any]) -> Log:
    return Log(path, **options)


class Follower:
    """The states of a log, each as a `Log`, for `for` and `async for`: first the present one, then one for each flush.
    Flushes that complete while the loop is busy yield only the newest of them. Iteration ends after the closed log. Made by
    `h5logfs.follow`."""

    def __init__(self, path: Path, timeout: Optional[float], options: dict[str, Any]) -> None:
        # The working directory may change during the wait.
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
        self._changes.learn(log._state.known)
        return log

    def _newer(self, last: Log) -> Optional[Log]:
        """Waits briefly."""
        if not self._changes.wait(_STEP):
            return None
        newer = self._newest(last)
        return None if newer._state.known.is_same(last._state.known) else newer

    def _newest(self, last: Log) -> Log:
        """The newest state. Retries after a failure while the log changes."""
        for _ in range(_ATTEMPTS - 1):
            try:
                return last._newest()
            except (OSError, ValueError):
                # A log that is being closed or replaced may be neither the old nor the new one.
                if not self._changes.wait(_STEP):
                    raise
        return last._newest()

    def _check(self, begin: float) -> None:
        if self._timeout is not None and clock.monotonic() - begin >= self._timeout:
            raise TimeoutError(f"{self._path}: no flush for {self._timeout} seconds")


def follow(path: Path, *, timeout: Optional[float] = None, **options: Any) -> Follower:
    """Follows a log that a job writes: `for log in h5logfs.follow(path)`, or `async for`. See `Follower`.

    `timeout`: TimeoutError after so many seconds without a flush, as when the job has died. Takes the options of
    `open`.
    """
    return Follower(path, timeout, options)
