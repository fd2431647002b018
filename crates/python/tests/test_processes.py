"""Reads in other processes: forked with an open file, or given one by pickle."""

from __future__ import annotations

import hashlib
import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

import h5logfs


def digest_of(file: h5logfs.LogFile) -> str:
    return hashlib.sha256(file.read_at(0, file.size)).hexdigest()


@pytest.mark.parametrize("method", ["spawn", "fork", "forkserver"])
def test_other_processes_read_what_this_one_reads(method: str, log: Path, canonical: bytes) -> None:
    expected = hashlib.sha256(canonical).hexdigest()
    context = multiprocessing.get_context(method)
    with h5logfs.open(log) as file:
        assert digest_of(file) == expected
        with ProcessPoolExecutor(2, mp_context=context) as pool:
            assert set(pool.map(digest_of, [file] * 4)) == {expected}
        assert digest_of(file) == expected


def test_a_forked_process_reads_an_open_file(log: Path, canonical: bytes) -> None:
    with h5logfs.open(log) as file:
        file.read(1000)
        child = os.fork()
        if child == 0:
            same = file.read() == canonical[1000:] and h5logfs.open(log).read() == canonical
            os._exit(0 if same else 1)
        assert file.read() == canonical[1000:]
        _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
