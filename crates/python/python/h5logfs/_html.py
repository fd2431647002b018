"""Tables for notebooks."""

from __future__ import annotations

from html import escape
from typing import Any, Dict, Iterable, List, Optional, Sequence

from ._file import LogFile
from ._inspect import Dataset, Inspection, inspect

# Limit of the rows: more are of no use in a notebook.
_MOST_ROWS = 200

_FILTERS = {1: "deflate", 2: "shuffle", 3: "fletcher32", 4: "szip", 5: "nbit", 6: "scaleoffset"}


def of_file(file: LogFile) -> str:
    """A file, open or closed."""
    if file.closed or not file.is_log:
        return f"<div>{escape(repr(file))}</div>"
    try:
        return of_inspection(inspect(file._absolute, **file.options))
    except OSError as error:
        return f"<div>{escape(repr(file))}</div>{_notes('cannot be inspected', [str(error)])}"


def of_inspection(log: Inspection) -> str:
    """The content of a log."""
    files = len(set(log.sources))
    others = f", with {files - 1} more files" if files > 1 else ""
    size = f"as HDF5 {_size(log.canonical_bytes)}, {_size(log.metadata_bytes)} of them metadata"
    state = ["it is not closed; " + _unclosed(log.unclosed)] if log.unclosed else []
    shown = log.datasets[:_MOST_ROWS]
    left = len(log.datasets) - len(shown)
    return "".join(
        [
            "<div>",
            f"<div><b>{escape(log.file)}</b>: {escape(log.layout)} log{others}; {size}</div>",
            _notes("missing", log.losses),
            _notes("note", [*log.warnings, *state]),
            _notes("fault", log.complaints),
            _table(shown),
            f"<div>… and {left} more datasets</div>" if left else "",
            "</div>",
        ]
    )


def _unclosed(unclosed: Dict[str, Any]) -> str:
    flush = f"the last complete flush is {unclosed.get('flush')}"
    return {
        "running": f"its job is running; {flush}",
        "ended": f"its job has ended; {flush}",
    }.get(str(unclosed.get("state")), flush)


def _notes(kind: str, texts: Iterable[str]) -> str:
    return "".join(f"<div><b>{kind}</b>: {escape(text)}</div>" for text in texts)


def _table(datasets: Sequence[Dataset]) -> str:
    titles = ["dataset", "type", "shape", "chunk", "filters", "records", "logged", "covered"]
    head = "".join(f"<th>{title}</th>" for title in titles)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(map(_rows, datasets))}</tbody></table>"


def _rows(dataset: Dataset) -> str:
    """A row for a dataset, and one for each of its faults."""
    logged = dataset.logged
    cells = [
        dataset.name,
        dataset.datatype,
        _shape(dataset.shape, dataset.max_shape),
        "" if dataset.chunk is None else _shape(dataset.chunk),
        ", ".join(_FILTERS.get(number, str(number)) for number in dataset.filters),
        "" if logged is None else f"{logged.records:,}",
        "not logged" if logged is None else _size(logged.bytes),
        "" if logged is None or logged.covered is None else f"{100 * logged.covered:.1f} %",
    ]
    row = "".join(f"<td>{escape(cell)}</td>" for cell in cells)
    faults = (f'<tr><td></td><td colspan="7">{_notes("fault", [fault])}</td></tr>' for fault in dataset.faults)
    return f"<tr>{row}</tr>{''.join(faults)}"


def _shape(shape: Sequence[int], most: Optional[Sequence[Optional[int]]] = None) -> str:
    limits: List[Optional[int]] = list(most) if most is not None else list(shape)
    sizes = (f"{size} (unlimited)" if limit is None else str(size) for size, limit in zip(shape, limits))
    return " × ".join(sizes) or "scalar"


def _size(size: int) -> str:
    """A number of bytes for people."""
    if size < 1024:
        return f"{size} bytes"
    value, units = size / 1024, iter("KMGTPE")
    unit = next(units)
    while value >= 1024:
        value, unit = value / 1024, next(units)
    return f"{value:.1f} {unit}iB"
