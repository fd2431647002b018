"""mypy's view of the installed package, from its own environment: scripts/setup.sh types."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT

TYPES = ROOT / ".venv-types"
CONFIG = ROOT / "crates" / "python" / "pyproject.toml"

pytestmark = pytest.mark.skipif(not (TYPES / "bin" / "mypy").exists(), reason="there is no mypy: scripts/setup.sh types")


def mypy(cache: Path, *arguments: str | Path) -> str:
    """The output of mypy for a program that uses the installed package."""
    command = [TYPES / "bin" / "mypy", "--python-executable", sys.executable, "--config-file", CONFIG, "--cache-dir", cache]
    outcome = subprocess.run([*command, *arguments], cwd=cache, capture_output=True, text=True)
    assert not outcome.stderr, outcome.stderr
    return outcome.stdout


def test_the_package_is_right_for_mypy(tmp_path: Path) -> None:
    said = mypy(tmp_path, "--package", "h5logfs")
    assert re.fullmatch(r"Success: no issues found in \d\d source files\n", said), said


def test_the_stubs_are_those_of_the_native_module(tmp_path: Path) -> None:
    (packages,) = TYPES.glob("lib/python3*/site-packages")
    environment = {**os.environ, "PYTHONPATH": str(packages)}
    command = [sys.executable, "-m", "mypy.stubtest", "h5logfs._native"]
    outcome = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr


PROGRAM = """
from __future__ import annotations

from datetime import datetime
from pathlib import Path

import h5logfs


def newest(path: Path) -> datetime | None:
    log = h5logfs.Log(path, threads=2)
    log.refresh()
    return None if log.flush is None else log.flush.time


def largest(log: h5logfs.Log) -> int:
    return max(array.nbytes for array in log.arrays().values())


def head(path: str) -> bytes:
    with h5logfs.open(path, cache_size="1M") as file:
        return file.read_at(0, 8)


def shapes(path: str) -> list[tuple[int, ...]]:
    return [array.shape for log in h5logfs.follow(path, timeout=1) for array in log.arrays().values()]


async def flushes(path: str) -> list[int]:
    return [log.flush.number async for log in h5logfs.follow(path) if log.flush]


def fault(path: str) -> str | None:
    try:
        return None if h5logfs.inspect(path).datasets else "empty"
    except h5logfs.LogError as error:
        return error.strerror


h5logfs.Log("run.h5").flush.number  # union-attr
h5logfs.Log("run.h5", threads="2")  # arg-type
h5logfs.Log("run.h5")[3]  # index
h5logfs.open(1.5)  # arg-type
h5logfs.open("run.h5").read_at("0", 8)  # arg-type
for log in h5logfs.follow("run.h5", timeout="1"):  # arg-type
    print(log.nothing)  # attr-defined
"""


def test_programs_are_told_of_wrong_uses_and_of_no_others(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    said = mypy(tmp_path, "program.py")
    found = re.findall(r"^program\.py:(\d+): error: .* \[([a-z-]+)\]$", said, re.MULTILINE)
    lines = enumerate(PROGRAM.splitlines(), 1)
    assert found == [(str(number), line.split("  # ")[1]) for number, line in lines if "  # " in line], said


def test_samples_of_the_documents_are_right_for_mypy(tmp_path: Path) -> None:
    blocks = [block for page in (ROOT / "docs").glob("*.md") for block in re.findall(r"```python\n(.*?)```", page.read_text(), re.S)]
    samples = [block for block in blocks if "h5logfs" in block]
    for number, sample in enumerate(samples):
        (tmp_path / f"sample{number}.py").write_text(sample)
    said = mypy(tmp_path, *[f"sample{number}.py" for number in range(len(samples))])
    assert len(samples) > 5 and said.startswith("Success"), said
