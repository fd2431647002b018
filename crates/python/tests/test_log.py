"""Growing logs: their states, and followers."""

from __future__ import annotations

import asyncio
import json
import pickle
import shutil
import zlib
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path

import pytest
from conftest import PNETCDF, program

import h5logfs

FRONT = 8192
IDENTIFIER = b"0123456789abcdef"


BYTES = {"path": "/d", "layout": {"datatype": {"integer": {"size": 1, "signed": False}}, "dims": [0], "max_dims": [None]}}


class Growing:
    """A log that a job writes, with bytes in `/d` or other datasets. It is written byte by byte as `docs/formats/journal.md`
    says."""

    def __init__(self, path: Path, datasets: Sequence[dict] = (BYTES,)) -> None:
        self.path, self._said, self._flush, self._unwritten = path, 0, 0, ""
        data = bytearray(FRONT)
        line = b"h5logfs log that was not closed. Its journal lies beside it.  \n\n"
        data[: len(line)] = line
        data[8160:8192] = b"h5logfs-file-id\n" + IDENTIFIER
        self.data = data
        header = {"journal": 1, "file": IDENTIFIER.hex(), "writer": "a test", "ranks": 1, "subfiles": 0, "config": 10}
        self._line(header)
        for dataset in datasets:
            self._line({"define": {"dataset": dataset}})

    def _line(self, value: dict) -> None:
        text = json.dumps(value, separators=(",", ":"))
        self._said = zlib.crc32(text.encode(), self._said)
        self._unwritten += f"{self._said:08x} {text}\n"

    def flush(self, length: int, time: int) -> None:
        """A flush of definitions only: the dataset now has this length."""
        self.flush_extents([[length]], time)

    def flush_extents(self, extents: Sequence[list[int]], time: int) -> None:
        """A flush that changes the extents of several datasets. As with a real job, no file shrinks at any time."""
        self._flush += 1
        for number, dims in enumerate(extents):
            self._line({"define": {"extent": {"dataset": number, "dims": dims}}})
        self._line({"commit": {"flush": self._flush, "ends": [len(self.data)], "time": time}})
        if self._flush == 1:
            self.path.write_bytes(self.data)
        with open(f"{self.path}.h5logfs-journal", "a") as journal:
            journal.write(self._unwritten)
        self._unwritten = ""


@pytest.fixture
def growing(tmp_path: Path) -> Growing:
    """A log with one flush."""
    log = Growing(tmp_path / "run.h5")
    log.flush(3, 1500)
    return log


def length(log: h5logfs.Log) -> int:
    with log.file() as file:
        return len(file["d"])


def test_a_state_stays_until_it_is_refreshed(growing: Growing) -> None:
    log = h5logfs.Log(growing.path)
    first = log.file()
    assert log.flush == h5logfs.Flush(1, datetime(1970, 1, 1, 0, 0, 1, 500000, timezone.utc), False)
    assert not log.refresh() and not log.closed
    opened = log.open()
    growing.flush(5, 2500)
    assert length(log) == 3
    assert pickle.loads(pickle.dumps(opened)).read() == opened.read()
    assert log.refresh() and not log.refresh()
    assert (log.flush.number, length(log), len(first["d"])) == (2, 5, 3)
    assert length(log.at(flush=1)) == 3 and length(log.at(time="1970-01-01T00:00:02Z")) == 3
    assert length(log.at(time=datetime.fromtimestamp(2.6, timezone.utc))) == 5
    with pytest.raises(h5logfs.LogError, match="it has no flush 3: it has flushes 1 to 2"):
        log.at(flush=3)
    with pytest.raises(h5logfs.LogError, match="at that time it had no flush"):
        log.at(time="1970-01-01T00:00:01Z")
    assert program("recover", growing.path).returncode == 0
    assert log.refresh() and log.closed and log.flush is None
    assert (length(log), len(first["d"])) == (5, 3)
    with pytest.raises(h5logfs.LogError, match="only its last flush \\(2\\) is available"):
        log.at(flush=1)


def test_a_time_that_is_none_is_not_told(growing: Growing) -> None:
    growing.flush(5, 2**62)
    assert h5logfs.Log(growing.path).flush == h5logfs.Flush(2, None, False)


def test_a_file_that_is_no_log_has_no_states(plain: Path) -> None:
    with pytest.raises(ValueError, match="not a log"):
        h5logfs.Log(plain)


def test_a_follower_sees_each_flush_in_order_and_the_close(growing: Growing) -> None:
    follower = h5logfs.follow(growing.path, timeout=60)
    seen = [next(follower)]
    for number in range(2, 8):
        growing.flush(2 * number, 1000 * number)
        seen.append(next(follower))
    late = h5logfs.follow(growing.path, timeout=0.3)
    next(late)
    with pytest.raises(TimeoutError, match="no flush for 0.3 seconds"):
        next(late)
    assert program("recover", growing.path).returncode == 0
    seen.extend(follower)
    assert [log.flush and log.flush.number for log in seen] == [1, 2, 3, 4, 5, 6, 7, None]
    assert [length(log) for log in seen] == [3, 4, 6, 8, 10, 12, 14, 14]


def test_a_follower_looks_again_as_long_as_the_log_changes(growing: Growing, monkeypatch: pytest.MonkeyPatch) -> None:
    follower, newest = h5logfs.follow(growing.path, timeout=60), h5logfs.Log._newest
    next(follower)
    growing.flush(5, 2500)
    whole = growing.path.read_bytes()
    states = [whole[:length] for length in (64, 4096, len(whole))]
    failed = []

    def between_changes(log: h5logfs.Log) -> h5logfs.Log:
        try:
            return newest(log)
        except (OSError, ValueError) as error:
            failed.append(error)
            raise
        finally:
            if states:
                growing.path.write_bytes(states.pop(0))

    monkeypatch.setattr(h5logfs.Log, "_newest", between_changes)
    growing.path.write_bytes(b"")
    assert next(follower).flush == h5logfs.Flush(2, datetime(1970, 1, 1, 0, 0, 2, 500000, timezone.utc), False)
    assert len(failed) == 3
    # Damage that stays is reported.
    growing.path.write_bytes(b"")
    with pytest.raises(ValueError, match="not a log"):
        next(follower)


def test_a_follower_waits_in_an_event_loop(growing: Growing) -> None:
    async def lengths() -> list[int]:
        found = []
        async for log in h5logfs.follow(growing.path, timeout=60):
            found.append(length(log))
            if len(found) == 1:
                growing.flush(5, 2000)
            elif len(found) == 2:
                assert program("recover", growing.path).returncode == 0
        return found

    assert asyncio.run(lengths()) == [3, 5, 5]


def test_xarray_sees_only_new_steps(growing: Growing) -> None:
    pytest.importorskip("xarray")
    from h5logfs.xarray import follow

    sizes = []
    for dataset in follow(growing.path, timeout=60, new_steps=True, phony_dims="access"):
        with dataset:
            sizes.append(dataset["d"].size)
        if len(sizes) < 4:
            growing.flush(3 + 2 * len(sizes), 1000)
        else:
            assert program("recover", growing.path).returncode == 0
    assert sizes == [3, 2, 2, 2]


def settle(path: Path) -> None:
    """Closes the log and makes it an ordinary HDF5 file."""
    assert program("recover", path).returncode == 0
    assert program("settle", path).returncode == 0


def test_a_log_that_is_settled_is_the_last_state(growing: Growing) -> None:
    follower = h5logfs.follow(growing.path, timeout=60)
    log, first = h5logfs.Log(growing.path), next(follower)
    growing.flush(5, 2500)
    settle(growing.path)
    (last,) = follower
    assert last.closed and last.flush is None and (length(first), length(last)) == (3, 5)
    assert log.refresh() and log.closed and length(log) == 5
    with pytest.raises(h5logfs.LogError, match="it is settled"):
        log.at(flush=2)


def test_xarray_ends_behind_a_log_that_is_settled(growing: Growing) -> None:
    pytest.importorskip("xarray")
    from h5logfs.xarray import follow

    sizes = []
    for dataset in follow(growing.path, timeout=60, phony_dims="access"):
        with dataset:
            sizes.append(dataset["d"].size)
        if len(sizes) == 1:
            growing.flush(5, 2500)
            settle(growing.path)
    assert sizes == [3, 5]


def test_an_open_state_is_an_error_where_other_bytes_are_in_its_file(growing: Growing) -> None:
    first, second = h5logfs.Log(growing.path), h5logfs.Log(growing.path)
    growing.flush(5, 2500)
    aside = growing.path.rename(growing.path.with_name("aside.h5"))
    assert length(first) == 3
    aside.write_bytes(bytes(2 * aside.stat().st_size))
    with pytest.raises(h5logfs.LogError, match="changed since it was opened"):
        second.open().read()


class Buffered:
    """A netCDF file with PnetCDF burst-buffer logs, the last of which appears late."""

    def __init__(self, directory: Path) -> None:
        case = PNETCDF / "records-cdf2-np4"
        for file in case.glob("file.nc*"):
            shutil.copy(file, directory)
        self.path, self._expected = directory / "file.nc", case / "expected.nc"
        self._late = {file: file.read_bytes() for file in directory.glob("file.nc_0_3.*")}
        for file in self._late:
            file.unlink()

    def flush(self) -> None:
        for file, content in self._late.items():
            file.write_bytes(content)

    def close(self) -> None:
        """Closes as PnetCDF does: first the data is in the file, then the logs are removed."""
        shutil.copy(self._expected, self.path)
        for log in self.path.parent.glob("file.nc_*"):
            log.unlink()


def test_a_burst_buffer_is_closed_when_its_logs_are_gone(tmp_path: Path) -> None:
    job = Buffered(tmp_path)
    log = h5logfs.Log(job.path)
    assert not log.closed and log.flush is None and repr(log).endswith(", not closed>")
    follower = h5logfs.follow(job.path, timeout=60)
    states = [next(follower)]
    job.flush()
    states.append(next(follower))
    assert log.refresh() and not log.closed
    before = {path: array[...].tobytes() for path, array in log.arrays().items()}
    job.close()
    states.extend(follower)
    assert [state.closed for state in states] == [False, False, True]
    assert log.refresh() and log.closed and not log.refresh()
    for last in (log, states[-1], pickle.loads(pickle.dumps(log))):
        assert {path: array[...].tobytes() for path, array in last.arrays().items()} == before
    # Later readers find no log.
    with pytest.raises(ValueError, match="not a log"):
        h5logfs.Log(job.path)


def test_xarray_follows_a_burst_buffer(tmp_path: Path) -> None:
    pytest.importorskip("xarray")
    from h5logfs.xarray import follow

    job, states = Buffered(tmp_path), []
    acts = [job.flush, job.close]
    for dataset in follow(job.path, timeout=60):
        with dataset:
            states.append(dataset.load())
        if acts:
            acts.pop(0)()
    assert len(states) == 3 and not states[0].identical(states[1]) and states[1].identical(states[2])
