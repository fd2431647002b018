"""The content of a log as plain data: the JSON of `h5logfs inspect --json`, with types."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
from dataclasses import dataclass
from typing import Any, Dict, List, Optional, Tuple, Type, TypeVar

from . import _native, _options
from ._file import Path, _fspath
from ._program import program


@dataclass(frozen=True)
class Record:
    """One logged write."""

    source: int
    """Index into `Inspection.sources` of the file that has the bytes."""
    offset: int
    """Offset in that file, in bytes."""
    stored: int
    """Number of stored bytes."""
    encoding: str
    """"raw", "deflate", "filtered", …"""
    blocks: List[Tuple[List[int], List[int]]]
    """Start and count of each hyperslab that was written."""
    fault: Optional[str] = None
    """Why the record cannot be read."""


@dataclass(frozen=True)
class Logged:
    """The records of one dataset."""

    records: int
    blocks: int
    """Number of hyperslabs of all records."""
    bytes: int
    """Number of stored bytes of all records."""
    base: Optional[int] = None
    """Bytes of the plain array in the file, if there is one. Records override it."""
    covered: Optional[float] = None
    """Fraction of the elements, from 0 to 1, that records have written. None if it was not counted."""
    list: Optional[List[Record]] = None
    """The records, if `inspect` was asked for them."""


@dataclass(frozen=True)
class Dataset:
    """A dataset of the canonical file."""

    name: str
    """The path from the root group."""
    datatype: str
    shape: Tuple[int, ...]
    max_shape: Tuple[Optional[int], ...]
    """The largest extent; None for an unlimited dimension."""
    chunk: Optional[Tuple[int, ...]]
    """The shape of a chunk; None for contiguous storage."""
    filters: Tuple[int, ...]
    """HDF5 filter numbers in pipeline order."""
    logged: Optional[Logged] = None
    """None for a dataset that was never logged."""
    faults: Tuple[str, ...] = ()
    """Why the dataset, or a part of it, cannot be read."""


@dataclass(frozen=True)
class Inspection:
    """The content of a log. A notebook shows it as a table."""

    file: str
    layout: str
    """The name of the log layout."""
    sources: Tuple[str, ...]
    """The files that hold the bytes of the log, one per source."""
    canonical_bytes: int
    """Length of the canonical file."""
    metadata_bytes: int
    """Bytes of metadata at the start of the canonical file."""
    datasets: Tuple[Dataset, ...]
    losses: Tuple[str, ...] = ()
    """Missing parts of the log."""
    warnings: Tuple[str, ...] = ()
    complaints: Tuple[str, ...] = ()
    """Faults of the log that leave every dataset readable."""
    unclosed: Optional[Dict[str, Any]] = None
    """None for a closed log. Otherwise "flush", the number of the last complete flush; "state" of the job: "running", "ended"
    or "unknown"; "unflushed", the unflushed data, if there are any; "job" with "host", "pid", "user", "batch" and "since"
    (seconds since 1970), as far as they are known."""

    def dataset(self, name: str) -> Dataset:
        """The dataset at this path. KeyError if there is none."""
        for dataset in self.datasets:
            if dataset.name.lstrip("/") == name.lstrip("/"):
                return dataset
        raise KeyError(f"{self.file} has no dataset {name}")

    def _repr_html_(self) -> str:
        from ._html import of_inspection

        return of_inspection(self)


def inspect(path: Path, *, records: bool = False, **options: Any) -> Inspection:
    """Describes the content of a log: datasets, records, how much of each dataset they cover, and what is missing or
    damaged. With `records`, each record is listed, too. Takes the options of `open`.

    Raises LogError for a file that is not a log or cannot be presented, FileNotFoundError and the like for errors of
    the system, ValueError for an unknown option.
    """
    path = _fspath(path)
    _native.check_options(_options.text(options))
    try:
        with open(path, "rb"):
            pass  # System errors are raised unchanged.
    except (FileNotFoundError, IsADirectoryError):
        # A log that is a directory has names without a file.
        if not _native.is_log(path, _options.text(options)):
            raise
    command = [program(), "inspect", "--json", *(["--records"] if records else []), *_arguments(options), "--", path]
    outcome = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True)
    if outcome.returncode != 0:
        raise _native.LogError(_complaint(outcome.stderr) or f"{path}: h5logfs inspect failed: {outcome.returncode}")
    return _inspection(json.loads(outcome.stdout))


def _complaint(stderr: bytes) -> str:
    """The program's last message, which says why it failed."""
    _, _, last = ("\n" + os.fsdecode(stderr)).rpartition("\nh5logfs: ")
    return last.strip()


# The options of `open` that the program takes as arguments of their own. Options of layouts go into `-o`, and other
# options only concern what is kept for later scans.
_OWN_ARGUMENTS = ("cache_size", "index_memory", "chunk", "scan_memory", "scan_cpu")
_LAYOUT_OPTIONS = ("burst_dir", "subfile_dir", "netcdf", "incomplete_attribute")


def _arguments(options: Dict[str, Any]) -> List[str]:
    arguments = []
    for name, value in _options.pairs(options):
        if name in _OWN_ARGUMENTS:
            arguments += [f"--{name.replace('_', '-')}={value}"]
        elif name in _LAYOUT_OPTIONS:
            arguments += ["-o", f"{name}={value}"]
    return arguments


def _inspection(data: Dict[str, Any]) -> Inspection:
    datasets = tuple(map(_dataset, data["datasets"]))
    return _made(Inspection, {**data, "datasets": datasets})


def _dataset(data: Dict[str, Any]) -> Dataset:
    logged = data.get("logged")
    return _made(Dataset, {**data, "logged": None if logged is None else _logged(logged)})


def _logged(data: Dict[str, Any]) -> Logged:
    records = data.get("list")
    return _made(Logged, {**data, "list": None if records is None else [_record(record) for record in records]})


def _record(data: Dict[str, Any]) -> Record:
    return _made(Record, {**data, "blocks": [(start, count) for start, count in data["blocks"]]})


_T = TypeVar("_T")


def _made(kind: Type[_T], data: Dict[str, Any]) -> _T:
    """An instance of a data class from the members that the class knows: a newer program may report more."""
    fields = {field.name: str(field.type) for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    known = {name: value for name, value in data.items() if name in fields}
    for name, value in known.items():
        if isinstance(value, list) and "Tuple" in fields[name]:
            known[name] = tuple(value)
    return kind(**known)
