"""The content of the wheel, which needs nothing else."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
import sysconfig
from importlib import metadata
from pathlib import Path

import pytest
from conftest import CORPUS, ROOT, program

import h5logfs

PACKAGE = Path(h5logfs.__file__).parent
# Libraries that every Linux with the GNU C library has.
OF_THE_SYSTEM = {"linux-vdso.so.1", "libc.so.6", "libm.so.6", "libgcc_s.so.1", "libpthread.so.0", "libdl.so.2"}


def run(*command: str | Path, **environment: str) -> str:
    """Runs a command without our environment variables."""
    outcome = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert outcome.returncode == 0, outcome.stderr
    return outcome.stdout


def test_the_package_that_is_tested_is_the_installed_one() -> None:
    assert ROOT / "crates" not in PACKAGE.parents


def test_version_is_that_of_the_program() -> None:
    version = program("--version").stdout.decode().split()
    assert version == ["h5logfs", h5logfs.__version__]
    assert metadata.version("h5logfs") == h5logfs.__version__


def test_wheel_is_for_python_3_9_and_later() -> None:
    wheel = metadata.distribution("h5logfs").read_text("WHEEL")
    assert wheel is not None
    tags = [line.split(": ")[1] for line in wheel.splitlines() if line.startswith("Tag: ")]
    assert tags and all(tag.startswith("cp39-abi3-manylinux_2_") for tag in tags)
    assert metadata.metadata("h5logfs")["Requires-Python"] == ">=3.9"


BINARIES = ["bin/h5logfs", "_native.abi3.so", "plugins/libh5logfs_driver.so", "plugins/libh5logfs_connector.so"]


@pytest.mark.parametrize("file", BINARIES)
def test_binaries_need_only_libraries_of_the_system(file: str) -> None:
    needed = {line.split()[0] for line in run("/usr/bin/ldd", PACKAGE / file).splitlines()}
    assert {name for name in needed if "/" not in name} <= OF_THE_SYSTEM


def test_a_log_reads_without_the_environment() -> None:
    code = "import h5logfs, sys; print(len(h5logfs.open(sys.argv[1]).read()))"
    size = run(sys.executable, "-c", code, CORPUS / "tiny.log.h5", HOME="/nonexistent", PATH="/nonexistent")
    assert int(size) > 0


def test_no_other_package_is_needed() -> None:
    code = """
import sys
for name in ["h5py", "numpy", "xarray", "fsspec", "typing_extensions"]:
    sys.modules[name] = None
import h5logfs
file = h5logfs.open(sys.argv[1])
print(file.is_log, len(h5logfs.inspect(sys.argv[1]).datasets), len(file._repr_html_()) > 100)
"""
    assert run(sys.executable, "-c", code, CORPUS / "records.log.h5") == "True 5 True\n"


def test_module_and_script_are_the_program() -> None:
    script = Path(sysconfig.get_path("scripts")) / "h5logfs"
    help_text = run(PACKAGE / "bin" / "h5logfs", "--help")
    assert "inspect" in help_text
    assert run(script, "--help") == run(sys.executable, "-m", "h5logfs", "--help") == help_text


def test_a_program_that_is_named_is_used(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text("#!/bin/sh\necho the other one\n")
    other.chmod(0o755)
    assert run(sys.executable, "-m", "h5logfs", H5LOGFS_PROGRAM=str(other)) == "the other one\n"


def test_public_items_have_docs() -> None:
    for name in h5logfs.__all__:
        if name != "__version__":
            assert inspect.getdoc(getattr(h5logfs, name)), name


def test_importing_writes_nothing_and_imports_little() -> None:
    code = "import sys, h5logfs; print([m for m in ('h5py', 'numpy', 'fsspec', 'xarray') if m in sys.modules])"
    assert run(sys.executable, "-c", code, PATH=os.defpath) == "[]\n"
