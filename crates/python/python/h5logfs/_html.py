"""Tables for notebooks."""

from __future__ import annotations

import itertools
from html import escape
from typing import TYPE_CHECKING, Any, Dict, Iterable, List, Optional, Sequence, Tuple

from ._file import LogFile
from ._inspect import Dataset, Inspection, inspect

if TYPE_CHECKING:
    from ._arrays import Array, Attributes, Group

# Limit of the rows: more are of no use in a notebook.
_MOST_ROWS = 200
# Limit of the characters of an attribute.
_LONGEST_TEXT = 200
# Sides of drawings, in pixels.
_LONGEST_SIDE, _SHORTEST_SIDE = 180.0, 12.0

_FILTERS = {1: "deflate", 2: "shuffle", 3: "fletcher32", 4: "szip", 5: "nbit", 6: "scaleoffset", 32000: "lzf"}


def of_file(file: LogFile) -> str:
    """A file, open or closed."""
    if file.closed or not file.is_log:
        return of_text(repr(file))
    try:
        return of_inspection(inspect(file._absolute, **file.options))
    except OSError as error:
        return f"<div>{escape(repr(file))}</div>{_notes('cannot be inspected', [str(error)])}"


def of_text(text: str) -> str:
    """A line of text."""
    return f"<div>{escape(text)}</div>"


def of_group(title: str, group: Group) -> str:
    """The groups and arrays in a group, and its attributes."""
    shown = itertools.islice(group.items(), _MOST_ROWS)
    rows = [_cells(_member(name, item)) for name, item in shown]
    left = len(group) - len(rows)
    more = of_text(f"… and {left} more") if left else ""
    table = _framed(["name", "type", "shape", "chunk", "size"], rows) if rows else of_text("nothing in it")
    return f"<div><div><b>{escape(title)}</b></div>{table}{more}{_attributes(group.attrs)}</div>"


def of_array(array: Array) -> str:
    """The properties of an array, its chunks as a drawing, and its attributes. No element is read."""
    filters = [_FILTERS.get(number, str(number)) for number, _ in array.filters]
    rows = [
        ["type", str(array.dtype)],
        ["shape", "no dataspace" if array.shape is None else _shape(array.shape, array.maxshape)],
        ["chunk", "none" if array.chunks is None else _shape(array.chunks)],
        ["filters", ", ".join(filters) or "none"],
        ["size", _size(array.nbytes)],
    ]
    table = f"<table><tbody>{''.join(map(_cells, rows))}</tbody></table>"
    drawing = _drawing(array.shape, array.chunks) if array.shape else ""
    return f"<div><div><b>{escape(repr(array))}</b></div>{table}{drawing}{_attributes(array.attrs)}</div>"


def _member(name: str, item: Any) -> List[str]:
    if hasattr(item, "visititems"):
        return [f"{name}/", "group", f"{len(item)} members", "", ""]
    shape = "no dataspace" if item.shape is None else _shape(item.shape, item.maxshape)
    chunk = "" if item.chunks is None else _shape(item.chunks)
    return [name, str(item.dtype), shape, chunk, _size(item.nbytes)]


def _attributes(attributes: Attributes) -> str:
    rows = [_cells([name, _short(attributes[name])]) for name in list(attributes)[:_MOST_ROWS]]
    return f"<details><summary>{len(attributes)} attributes</summary>{_framed(['name', 'value'], rows)}</details>"


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= _LONGEST_TEXT else text[:_LONGEST_TEXT] + "…"


def _cells(cells: Sequence[str]) -> str:
    return "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>"


def _framed(titles: Sequence[str], rows: Sequence[str]) -> str:
    head = "".join(f"<th>{title}</th>" for title in titles)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


def _drawing(shape: Sequence[int], chunk: Optional[Sequence[int]]) -> str:
    """The last two dimensions as a rectangle with the lines between chunks; a third one as its depth."""
    sides = [1, 1, *shape][-2:]
    height, width = _in_proportion(sides)
    chunks = [1, 1, *(chunk or shape)][-2:]
    depth = 14 if len(shape) > 2 and shape[-3] > 1 else 0
    lines = [(x, 0.0, x, height) for x in _between(sides[1], chunks[1], width)]
    lines += [(0.0, y, width, y) for y in _between(sides[0], chunks[0], height)]
    if depth:
        lines += [(0, 0, depth, -depth), (width, 0, width + depth, -depth), (width, height, width + depth, height - depth)]
        lines += [(depth, -depth, width + depth, -depth), (width + depth, -depth, width + depth, height - depth)]
    drawn = "".join(f'<path d="M{a:.1f} {b:.1f}L{c:.1f} {d:.1f}"/>' for a, b, c, d in lines)
    box = f"-1 {-depth - 1} {width + depth + 2:.0f} {height + depth + 2:.0f}"
    size = f'width="{width + depth + 2:.0f}" height="{height + depth + 2:.0f}"'
    title = escape(f"{_shape(shape)}, in chunks of {_shape(chunk)}" if chunk else _shape(shape))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" viewBox="{box}" {size} fill="none" stroke="currentColor">'
        f'<title>{title}</title><rect width="{width:.1f}" height="{height:.1f}"/>{drawn}</svg>'
    )


def _in_proportion(sides: Sequence[int]) -> Tuple[float, float]:
    """Height and width of a drawing. Neither is so small that it cannot be seen."""
    longest = max(*sides, 1)
    height, width = (max(_SHORTEST_SIDE, _LONGEST_SIDE * side / longest) for side in sides)
    return height, width


def _between(side: int, chunk: int, length: float) -> List[float]:
    """Where lines between chunks are; none where they would be too close."""
    count = -(-side // max(chunk, 1))
    if count < 2 or length / count < 3:
        return []
    return [length * number * chunk / side for number in range(1, count)]


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
    return _framed(titles, [_rows(dataset) for dataset in datasets])


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
    faults = (f'<tr><td></td><td colspan="7">{_notes("fault", [fault])}</td></tr>' for fault in dataset.faults)
    return _cells(cells) + "".join(faults)


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
