"""The content of a log, as data and as a table."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path

import pytest
from conftest import CORPUS, PNETCDF, logs, options_of, program

import h5logfs


def test_data_are_those_of_the_program(log: Path) -> None:
    told = json.loads(program("inspect", "--json", "--records", log).stdout)
    found = dataclasses.asdict(h5logfs.inspect(log, records=True))
    assert {name: value for name, value in plain(found).items() if name in told} == plain(told)


def plain(value: object) -> object:
    """A value with lists in place of tuples, without members that are None."""
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items() if v is not None or k == "chunk"}
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    return value


def test_members_have_types(log: Path) -> None:
    found = h5logfs.inspect(os.fsencode(log))
    assert (found.file, found.layout, found.unclosed) == (str(log), "Log VOL", None)
    field = found.dataset("field")
    assert field is found.dataset("/field")
    assert (field.shape, field.max_shape, field.chunk) == ((5, 8, 12), (None, 8, 12), (1, 8, 12))
    assert field.logged is not None and field.logged.covered == 1.0 and field.logged.list is None
    assert hash(field.shape) and field.faults == ()
    with pytest.raises(KeyError, match="nothing"):
        found.dataset("nothing")
    with h5logfs.open(log) as file:
        assert found.canonical_bytes == file.size
    listed = h5logfs.inspect(log, records=True).dataset("field").logged
    assert listed is not None and listed.list is not None and len(listed.list) == listed.records
    assert listed.list[0].encoding == "raw" and len(listed.list[0].blocks[0][0]) == 3


def test_options_reach_the_program() -> None:
    log = PNETCDF / "dirname-cdf2-np4" / "file.nc"
    with pytest.raises(h5logfs.LogError, match="not a log"):
        h5logfs.inspect(log)
    assert h5logfs.inspect(log, **options_of(log)).layout.startswith("PnetCDF")
    small = h5logfs.inspect(CORPUS / "strided.log.h5", chunk="4K", cache_size=1 << 25)
    assert small.datasets != h5logfs.inspect(CORPUS / "strided.log.h5", chunk="64K").datasets


def test_errors_are_those_of_open(plain_and_missing: tuple[Path, Path]) -> None:
    a_plain_file, missing = plain_and_missing
    with pytest.raises(h5logfs.LogError, match="plain.bin: not a log file"):
        h5logfs.inspect(a_plain_file)
    with pytest.raises(FileNotFoundError):
        h5logfs.inspect(missing)


@pytest.fixture
def plain_and_missing(plain: Path) -> tuple[Path, Path]:
    return plain, plain.with_name("missing")


def test_a_table_is_shown_in_notebooks(log: Path) -> None:
    table = h5logfs.inspect(log)._repr_html_()
    for text in (str(log), "Log VOL log", "/field", "5 (unlimited) × 8 × 12", "1 × 8 × 12", "30.4 %"):
        assert text in table
    assert table.count("<tr>") == 1 + 5 and len(table) < 4000
    with h5logfs.open(log) as file:
        assert file._repr_html_() == table
    assert file._repr_html_() == f"<div>{escaped(repr(file))}</div>"


def escaped(text: str) -> str:
    import html

    return html.escape(text)


def test_texts_of_a_file_are_escaped(tmp_path: Path, log: Path) -> None:
    name = tmp_path / "<script>alert(1)</script>".replace("/", "\u2215")
    name.write_bytes(log.read_bytes())
    table = h5logfs.inspect(name)._repr_html_()
    assert "<script" not in table and "&lt;script&gt;" in table
    hostile = dataclasses.replace(
        h5logfs.inspect(log),
        losses=("<i>loss</i>",),
        warnings=("<i>warning</i>",),
        complaints=("<i>complaint</i>",),
        datasets=(dataclasses.replace(h5logfs.inspect(log).datasets[0], name="<i>", datatype="<i>", faults=("<i>",)),),
    )
    assert "<i>" not in hostile._repr_html_()


def test_damage_and_losses_are_shown() -> None:
    damaged = h5logfs.inspect(CORPUS / "damaged_vlen.log.h5")
    (fault,) = damaged.dataset("vl").faults
    assert "variable-length" in fault
    assert "<b>fault</b>" in damaged._repr_html_()
    cut = h5logfs.inspect(PNETCDF / "cutmeta-cdf1-np1" / "file.nc")
    assert len(cut.losses) == 1 and "<b>missing</b>" in cut._repr_html_()


def test_every_log_can_be_shown() -> None:
    shown = 0
    for path in logs():
        try:
            file = h5logfs.open(path, **options_of(path))
        except h5logfs.LogError:
            continue
        with file:
            assert file._repr_html_().startswith("<div>")
            shown += file.is_log
    assert shown > 80
