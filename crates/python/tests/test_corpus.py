"""The whole corpus: the file object has the bytes of `h5logfs export`."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from conftest import ROOT, logs, options_of, program

import h5logfs


@pytest.mark.parametrize("log", logs(), ids=lambda log: str(log.relative_to(ROOT)))
def test_bytes_are_those_of_the_export(log: Path, tmp_path: Path) -> None:
    options = options_of(log)
    given = [argument for name, value in options.items() for argument in ("--option", f"{name}={value}")]
    target = tmp_path / "canonical.h5"
    outcome = program("export", "--allow-incomplete", *given, log, target)
    if b"not a log file" in outcome.stderr:
        assert not h5logfs.is_log(log, **options)
        with h5logfs.open(log, **options) as file:
            assert file.read() == log.read_bytes()
    elif outcome.returncode != 0:
        with pytest.raises(h5logfs.LogError) as error:
            h5logfs.open(log, **options).read()
        # Both give the same reason.
        assert str(error.value).rsplit(": ", 1)[-1] in outcome.stderr.decode()
    else:
        with h5logfs.open(log, **options) as file:
            assert file.is_log
            assert hashlib.sha256(file.read()).digest() == hashlib.sha256(target.read_bytes()).digest()
