"""Fixtures of all tests of the package. They test the installed package, as scripts/python.sh does."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

import h5logfs

ROOT = Path(__file__).resolve().parents[3]
CORPUS = ROOT / "tests" / "corpus"
PNETCDF = ROOT / "tests" / "corpus-pnetcdf"
SAMPLE = ROOT / "examples" / "sample"

# Options for logs that lie elsewhere, by the directory of the case.
BURST_DIRS = {"dirname-cdf2-np4": "bb"}


def logs() -> list[Path]:
    """All files of the corpora and the samples that may be logs, including damaged ones."""
    found = [*CORPUS.glob("*.log.h5"), *PNETCDF.glob("*/file.nc"), *SAMPLE.glob("*.h5"), *SAMPLE.glob("**/*.nc")]
    assert len(found) > 100
    return sorted(found)


def options_of(log: Path) -> dict[str, str]:
    burst_dir = BURST_DIRS.get(log.parent.name)
    return {} if burst_dir is None else {"burst_dir": str(log.parent / burst_dir)}


def program(*arguments: str | Path) -> subprocess.CompletedProcess[bytes]:
    """Runs the program of the package."""
    path = Path(h5logfs.__file__).parent / "bin" / "h5logfs"
    return subprocess.run([path, *arguments], capture_output=True)


@pytest.fixture(scope="session", autouse=True)
def no_index_of_the_user(tmp_path_factory: pytest.TempPathFactory) -> None:
    os.environ["XDG_CACHE_HOME"] = str(tmp_path_factory.mktemp("cache"))


@pytest.fixture
def log() -> Path:
    """A log with several datasets, one of which is partly unwritten."""
    return CORPUS / "records.log.h5"


@pytest.fixture
def canonical(log: Path, tmp_path: Path) -> bytes:
    """The bytes of the canonical file of `log`."""
    assert program("export", log, tmp_path / "canonical.h5").returncode == 0
    return (tmp_path / "canonical.h5").read_bytes()


@pytest.fixture
def copy(log: Path, tmp_path: Path) -> Path:
    """A copy of `log` that a test may change."""
    return Path(shutil.copy(log, tmp_path / "copy.h5"))


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    """A file that is not a log."""
    path = tmp_path / "plain.bin"
    path.write_bytes(bytes(range(256)) * 40)
    return path
