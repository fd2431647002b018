"""A log as Zarr groups and arrays, whose chunks lie in the files of the log."""

from __future__ import annotations

import itertools
import math
import os
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Callable, NamedTuple, Optional, Union

import numpy as np

from . import _native
from ._file import LogFile, Path, open
from ._native import LogError

if TYPE_CHECKING:
    import h5py

Url = Union[None, str, Callable[[str], str]]

# Largest chunk, in bytes, into which a contiguous dataset is divided along its first dimension.
LARGEST_PIECE = 16 << 20
# Names that mean something else in a Zarr store, or lead out of it.
TAKEN = {".zarray", ".zattrs", ".zgroup", ".zmetadata", "zarr.json", ".", ".."}
# Attributes with which netCDF-4 and HDF5 store dimensions. They become dimension names.
_OF_DIMENSIONS = {"DIMENSION_LIST", "REFERENCE_LIST", "_Netcdf4Dimid", "_Netcdf4Coordinates"}
_OF_SCALES = {"CLASS", "NAME"}
_OF_FILES = {"_NCProperties", "_nc3_strict"}
_NO_VARIABLE = b"This is a netCDF dimension but not a netCDF variable"
_NO_COORDINATE = "_nc4_non_coord_"
_DEFLATE, _SHUFFLE, _FLETCHER32 = 1, 2, 3


class Piece(NamedTuple):
    """A range of bytes of a file."""

    url: str
    offset: int
    length: int


@dataclass
class Array:
    """A dataset as a Zarr array."""

    shape: tuple[int, ...]
    #: Shape of a chunk.
    chunks: tuple[int, ...]
    #: Type of the elements in the chunks; None for text of variable length.
    dtype: Optional[np.dtype[Any]]
    #: Configurations of numcodecs, in pipeline order.
    filters: list[dict[str, Any]]
    #: The fill value. With None, unwritten elements read as zeros.
    fill: Any
    attributes: dict[str, Any]
    dimensions: list[str]
    #: Chunks by position in the grid. Missing chunks were never written.
    pieces: dict[tuple[int, ...], Union[Piece, bytes]] = field(default_factory=dict)


@dataclass
class Tree:
    """All groups and arrays by path, without a slash at either end. The root's path is empty."""

    groups: dict[str, dict[str, Any]] = field(default_factory=dict)
    arrays: dict[str, Array] = field(default_factory=dict)


def read(
    path: Path,
    *,
    url: Url,
    inline_threshold: int,
    drop_variables: Iterable[str],
    format: int,
    options: dict[str, Any],
) -> Tree:
    """Describes the log at `path` for readers of Zarr `format` 2 or 3.

    Raises LogError for what cannot be described, ValueError for a file that is not a log, and what `open` raises.
    """
    if isinstance(drop_variables, str):
        drop_variables = [drop_variables]
    with open(path, **options) as file:
        if not file.is_log:
            raise ValueError(f"{file.name}: the file is not a log; kerchunk and VirtualiZarr make references of HDF5 files")
        return _Reader(file, url, inline_threshold, set(drop_variables), format).tree()


class _Reader:
    def __init__(self, file: LogFile, url: Url, inline_threshold: int, dropped: set[str], format: int) -> None:
        self.file = file
        self.native = file._open_file()
        self.urls = [_url_of(source, file.name, url) for source in _native.source_files(self.native)]
        self.objects = _native.Objects(self.native)
        self.known: dict[int, Optional[_native.Placed]] = {}
        self.inline_threshold = inline_threshold
        self.dropped = {name.strip("/") for name in dropped}
        self.format = format
        self.dimensions = _Dimensions()
        self.result = Tree()

    def tree(self) -> Tree:
        import h5py

        with h5py.File(self.file, "r") as canonical:
            number = _info(canonical).fileno
            for path, item in _objects(canonical, number):
                if path.strip("/") in self.dropped:
                    continue
                if isinstance(item, h5py.Group):
                    self.result.groups[path] = self._attributes(item, path, set())
                elif not _is_no_variable(item):
                    self.result.arrays[_shown(path)] = self._array(item, path)
        return self.result

    def refuse(self, path: str, reason: str) -> LogError:
        return LogError(
            f"{self.file.name}: dataset /{path} cannot be referenced: {reason} (drop_variables={[path]!r} leaves it out)"
        )

    def _array(self, dataset: h5py.Dataset, path: str) -> Array:
        if path.rpartition("/")[2] in TAKEN:
            raise self.refuse(path, "Zarr stores use its name for something else")
        if dataset.shape is None:
            raise self.refuse(path, "it has no extent, as no Zarr array can be")
        hidden = _OF_SCALES if dataset.is_scale else set()
        array = Array(
            shape=dataset.shape,
            chunks=tuple(max(1, side) for side in dataset.shape),
            dtype=None,
            filters=[],
            fill=None,
            attributes=self._attributes(dataset, path, hidden),
            dimensions=self.dimensions.of(dataset, path),
        )
        if _is_text(dataset):
            self._put_text(array, dataset, path)
        else:
            self._put_elements(array, dataset, path)
        return array

    # --- elements ---

    def _put_text(self, array: Array, dataset: h5py.Dataset, path: str) -> None:
        array.filters = [{"id": "vlen-utf8"}]
        if 0 in array.shape:
            return
        placed = self._placed(dataset)
        if placed is not None:
            placed.references()
        texts = np.asarray(dataset.asstr(errors="surrogateescape")[()], dtype=object).ravel()
        encoded = vlen_utf8([text.encode("utf-8", "surrogateescape") for text in texts])
        self._check_inlined(path, len(encoded), "its elements are text of variable length")
        array.pieces[(0,) * len(array.shape)] = encoded

    def _put_elements(self, array: Array, dataset: h5py.Dataset, path: str) -> None:
        base, inner = dataset.dtype.subdtype or (dataset.dtype, ())
        packed = packed_type(base)
        if packed is None:
            raise self.refuse(path, f"no Zarr array has elements of the type {dataset.dtype}")
        placed = self._placed(dataset)
        filters: list[tuple[int, list[int]]] = []
        chunk = array.chunks
        pieces: list[tuple[int, Any]] = [(0, None)]
        if placed is not None:
            chunk, filters = tuple(placed.chunk), placed.filters
            pieces = placed.references()
        if 0 in dataset.shape:
            chunk, pieces = array.chunks, []
        has_known_bytes = packed == base and _has_type_of_file(dataset)
        if not has_known_bytes:
            pieces = [(at, None) for at, _ in pieces]
        forms = Counter(piece[3] for _, piece in pieces if piece is not None)
        form = forms.most_common(1)[0][0] if forms else "elements"
        grid = _Grid(dataset.shape, chunk)
        if len(pieces) == grid.count == 1:
            grid, pieces = _divided(grid, pieces)
        array.dtype = packed.newbyteorder() if form == "swapped" else packed
        array.shape, array.chunks = dataset.shape + inner, grid.chunk + inner
        array.dimensions += [f"element_dim_{n}" for n in range(len(inner))]
        array.filters = _codecs(form, filters, packed.itemsize)
        is_fill_seen = len(pieces) < grid.count
        fill = self._fill(dataset, path, inner, is_fill_seen, has_known_bytes)
        array.fill = _zarr3_fill(array, fill, is_fill_seen) if self.format == 3 else _zarr2_fill(array, fill)
        reason = "" if has_known_bytes else "its elements are stored in a way that Zarr does not know"
        if is_fill_seen and not _is_same(array.fill, fill):
            written = {at for at, _ in pieces}
            pieces = pieces + [(at, None) for at in range(grid.count) if at not in written]
            reason = reason or "parts that were never written have a fill value that is not its _FillValue"
        self._put_pieces(array, dataset, path, grid, form, pieces, has_known_bytes, reason)

    def _fill(
        self, dataset: h5py.Dataset, path: str, inner: tuple[int, ...], is_seen: bool, has_known_bytes: bool
    ) -> Any:
        """The value of unwritten elements; None for zeros. It matters only where it `is_seen`. The dataset's own fill value
        can be another one, as for a netCDF file written without fill values."""
        placed = self._placed(dataset)
        if placed is None or not any(placed.fill):
            return None
        if inner:
            if is_seen:
                raise self.refuse(path, "parts that were never written have an array as their fill value")
            return None
        return np.frombuffer(placed.fill, dataset.dtype)[0] if has_known_bytes else dataset.fillvalue

    def _put_pieces(
        self,
        array: Array,
        dataset: h5py.Dataset,
        path: str,
        grid: _Grid,
        form: str,
        pieces: list[tuple[int, Any]],
        has_known_bytes: bool,
        reason: str,
    ) -> None:
        """Adds the chunks. `reason`: why they are inlined, where this is not because of their places."""
        inner = (0,) * (len(array.chunks) - len(grid.chunk))
        inlined = []
        for chunk, piece in pieces:
            if piece is None or piece[3] != form:
                inlined.append(chunk)
                continue
            source, offset, length, _ = piece
            array.pieces[grid.position(chunk) + inner] = Piece(self.urls[source], offset, length)
        if not inlined:
            return
        assert array.dtype is not None
        reason = reason or f"{len(inlined)} of its {grid.count} chunks do not lie in the log in one piece"
        self._check_inlined(path, len(inlined) * math.prod(array.chunks) * array.dtype.itemsize, reason)
        placed = self._placed(dataset) if has_known_bytes else None
        for chunk in inlined:
            if placed is not None:
                made = placed.chunk_bytes(chunk, form == "filtered")
                made = _swapped(made, array.dtype) if form == "swapped" else made
            else:
                try:
                    made = _elements(dataset, grid, chunk, array.dtype)
                except (OSError, TypeError, ValueError) as error:
                    raise self.refuse(path, f"h5py cannot read it ({error})") from error
            array.pieces[grid.position(chunk) + inner] = zlib.compress(made) if form == "deflated" else made

    def _check_inlined(self, path: str, size: int, reason: str) -> None:
        if size > self.inline_threshold:
            raise self.refuse(
                path,
                f"{reason}, and {size} bytes are more than the inline_threshold of {self.inline_threshold}",
            )

    def _placed(self, dataset: h5py.Dataset) -> Optional[_native.Placed]:
        """Where the elements lie; None if they lie in metadata."""
        address = _info(dataset).addr
        if address not in self.known:
            self.known = {address: _native.Placed.at(self.objects, address)}
        return self.known[address]

    # --- attributes ---

    def _attributes(self, item: Any, path: str, hidden: set[str]) -> dict[str, Any]:
        hidden = hidden | _OF_DIMENSIONS | (set() if path else _OF_FILES)
        names = [name for name in item.attrs if name not in hidden]
        return {name: _plain(_attribute(item, name), item) for name in names}


# --- the grid of a dataset ---


class _Grid:
    """Chunks of a dataset, numbered in row-major order."""

    def __init__(self, shape: tuple[int, ...], chunk: tuple[int, ...]) -> None:
        self.shape, self.chunk = shape, chunk
        self.across = [-(-side // part) for side, part in zip(shape, chunk)]
        self.count = math.prod(self.across)

    def position(self, number: int) -> tuple[int, ...]:
        position = []
        for across in reversed(self.across):
            number, at = divmod(number, across)
            position.append(at)
        return tuple(reversed(position))

    def region(self, number: int) -> tuple[slice, ...]:
        """The elements of a chunk that lie in the dataset."""
        sides = zip(self.position(number), self.chunk, self.shape)
        return tuple(slice(at * part, min((at + 1) * part, side)) for at, part, side in sides)


def _divided(grid: _Grid, pieces: list[tuple[int, Any]]) -> tuple[_Grid, list[tuple[int, Any]]]:
    """A long piece of a dataset, split into pieces of equal length along its first dimension."""
    ((_, piece),) = pieces
    if not grid.shape or piece is None or piece[3] not in ("elements", "swapped") or grid.chunk != grid.shape:
        return grid, pieces
    source, offset, length, form = piece
    if length <= LARGEST_PIECE:
        return grid, pieces
    row = length // grid.shape[0]
    rows = max((n for n in _divisors(grid.shape[0]) if n * row <= LARGEST_PIECE), default=1)
    divided = _Grid(grid.shape, (rows,) + grid.chunk[1:])
    step = rows * row
    return divided, [(n, (source, offset + n * step, step, form)) for n in range(divided.count)]


def _divisors(number: int) -> Iterator[int]:
    for n in range(1, math.isqrt(number) + 1):
        if number % n == 0:
            yield n
            yield number // n


def _elements(dataset: h5py.Dataset, grid: _Grid, chunk: int, dtype: np.dtype[Any]) -> bytes:
    """The elements of a chunk, with the fill value past the edge of the dataset."""
    inside = np.asarray(dataset[grid.region(chunk)])
    inner = inside.shape[len(grid.shape):]
    whole = np.full(grid.chunk + inner, dataset.fillvalue, dtype)
    whole[tuple(slice(0, side) for side in inside.shape)] = inside
    return whole.tobytes()


def _swapped(elements: bytes, dtype: np.dtype[Any]) -> bytes:
    """Elements of the opposite byte order, converted to that of `dtype`."""
    return np.frombuffer(elements, dtype.newbyteorder()).astype(dtype).tobytes()


# --- types and values ---


def _is_text(dataset: h5py.Dataset) -> bool:
    import h5py

    info = h5py.check_string_dtype(dataset.dtype)
    return info is not None and info.length is None


def packed_type(dtype: np.dtype[Any]) -> Optional[np.dtype[Any]]:
    """The type of the elements in a Zarr array; None if there is none."""
    if dtype.kind in "biufc":
        # h5py puts the meaning of an enumeration there.
        plain = np.dtype(dtype.str)
        return plain if plain.kind not in "fc" or plain.str[1:] in ("f2", "f4", "f8", "c8", "c16") else None
    if dtype.kind == "S" or (dtype.kind == "V" and dtype.names is None and dtype.subdtype is None):
        return np.dtype(dtype.str) if dtype.itemsize else None
    if dtype.names is None:
        return None
    members = []
    for name in dtype.names:
        member = dtype.fields[name][0]  # type: ignore[index]
        packed = packed_type(member)
        if packed is None or packed.names is not None:
            return None
        members.append((name, packed))
    return np.dtype(members)


def _has_type_of_file(dataset: h5py.Dataset) -> bool:
    """Whether the elements have the same bytes in the file as in memory."""
    import h5py

    stored = dataset.id.get_type()
    if isinstance(stored, h5py.h5t.TypeOpaqueID):
        return True
    return bool(stored.equal(h5py.h5t.py_create(dataset.dtype, logical=True)))


def _codecs(form: str, filters: list[tuple[int, list[int]]], itemsize: int) -> list[dict[str, Any]]:
    if form == "deflated":
        return [{"id": "zlib", "level": 1}]
    if form != "filtered":
        return []
    known: dict[int, Callable[[list[int]], dict[str, Any]]] = {
        _DEFLATE: lambda values: {"id": "zlib", "level": min(values[0], 9) if values else 6},
        _SHUFFLE: lambda values: {"id": "shuffle", "elementsize": values[0] if values else itemsize},
        _FLETCHER32: lambda values: {"id": "fletcher32"},
    }
    return [known[number](values) for number, values in filters]


def _zarr2_fill(array: Array, fill: Any) -> Any:
    """The fill value of a Zarr 2 array; None for none. xarray takes it for `_FillValue` and masks elements that equal it. So
    it comes from this attribute, and never from the dataset."""
    assert array.dtype is not None
    if array.dtype.kind not in "iuf":
        return None
    if "_FillValue" not in array.attributes:
        return fill if fill != fill else None
    declared = _declared_fill(array)
    if declared is not None:
        del array.attributes["_FillValue"]
    return declared


def _zarr3_fill(array: Array, fill: Any, is_seen: bool) -> Any:
    """The fill value of a Zarr 3 array. VirtualiZarr passes it on to kerchunk in Zarr 2, where xarray masks elements that
    equal it. So where no chunk needs it, it is a value that xarray masks anyway."""
    assert array.dtype is not None
    if is_seen or array.dtype.kind not in "iuf":
        return fill
    declared = _declared_fill(array)
    if declared is None and array.dtype.kind == "f":
        return array.dtype.type("nan")
    return fill if declared is None else declared


def _declared_fill(array: Array) -> Any:
    """The attribute `_FillValue`, if the array can hold its value."""
    declared = array.attributes.get("_FillValue")
    if not isinstance(declared, (int, float)):
        return None
    try:
        value = np.asarray(declared).astype(array.dtype)[()]
    except (OverflowError, ValueError):
        return None
    return None if value != declared and declared == declared else value


def _is_same(shown: Any, fill: Any) -> bool:
    """Whether two fill values are equal. None stands for zeros."""
    shown, fill = 0 if shown is None else shown, 0 if fill is None else fill
    return bool(shown == fill or (shown != shown and fill != fill))


def _plain(value: Any, item: Any) -> Any:
    """The value of an attribute in JSON. `item` is the h5py object that has it."""
    import h5py

    if isinstance(value, h5py.Empty):
        return "" if value.dtype.kind in "SO" else None
    if isinstance(value, h5py.Reference):
        name = h5py.h5r.get_name(value, item.file.id) if value else None
        return plain(name or b"")
    return plain(value, lambda part: _plain(part, item))


def plain(value: Any, part: Optional[Callable[[Any], Any]] = None) -> Any:
    """A value in JSON. `part` converts the parts of lists and structures."""
    part = part or plain
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, (np.ndarray, np.generic)):
        if value.dtype.names is not None:
            return part(value.tolist())
        if value.dtype.kind == "V":
            return value.tobytes().hex()
        if value.dtype.char in "gG":
            # Python's own numbers are shorter.
            value = value.astype(complex if value.dtype.char == "G" else float)
        # netCDF programs take an array of one element for a number.
        return part(value.item() if value.size == 1 else value.tolist())
    if isinstance(value, (list, tuple)):
        return [part(each) for each in value]
    if isinstance(value, complex):
        return [value.real, value.imag]
    if isinstance(value, (str, int, float, bool)) or value is None:
        return value
    return str(value)


def _attribute(item: Any, name: str) -> Any:
    try:
        return item.attrs[name]
    except (OSError, TypeError, ValueError) as error:
        # h5py has no numpy type for the value.
        return f"<{error}>"


def vlen_utf8(texts: list[bytes]) -> bytes:
    """Texts in the encoding of numcodecs' vlen-utf8."""
    sizes = [len(texts).to_bytes(4, "little")]
    parts = ((len(text).to_bytes(4, "little"), text) for text in texts)
    return b"".join(itertools.chain(sizes, itertools.chain.from_iterable(parts)))


# --- objects ---


def _objects(root: h5py.File, number: int) -> Iterator[tuple[str, Any]]:
    """All groups and datasets of a file with their paths. A dataset has all of its paths, a group only the first. Links to
    other files, and to nothing, are left out."""
    import h5py

    seen = {_info(root).addr}
    waiting: list[tuple[str, Any]] = [("", root)]
    while waiting:
        path, group = waiting.pop()
        yield path, group
        for name in group:
            if isinstance(group.get(name, getlink=True), h5py.ExternalLink):
                continue
            try:
                item = group[name]
            except (KeyError, OSError):
                continue
            info = _info(item)
            below = f"{path}/{name}" if path else name
            if info.fileno != number:
                continue
            if isinstance(item, h5py.Dataset):
                yield below, item
            elif isinstance(item, h5py.Group) and info.addr not in seen:
                seen.add(info.addr)
                waiting.append((below, item))


def _info(item: Any) -> Any:
    import h5py

    return h5py.h5o.get_info(item.id)


def _is_no_variable(dataset: h5py.Dataset) -> bool:
    """Whether the dataset only stands for a netCDF dimension."""
    name = dataset.attrs.get("NAME", b"") if dataset.is_scale else b""
    return (name.encode() if isinstance(name, str) else bytes(name)).startswith(_NO_VARIABLE)


def _shown(path: str) -> str:
    """The name shown for a variable. The file uses another name where a variable has the name of a dimension without being
    its coordinate."""
    group, slash, name = path.rpartition("/")
    return group + slash + name.removeprefix(_NO_COORDINATE)


class _Dimensions:
    """Names of dimensions: those of the scales, or made-up ones, as in netCDF programs."""

    def __init__(self) -> None:
        self.made_up: dict[tuple[int, int], str] = {}

    def of(self, dataset: h5py.Dataset, path: str) -> list[str]:
        rank = len(dataset.shape)
        if dataset.is_scale:
            return self._of_scale(dataset, path, rank)
        names: list[str] = []
        for n in range(rank):
            scales = dataset.dims[n]
            names.append(_base(scales[0].name) if len(scales) else self._made_up(dataset.shape[n], names))
        return names

    def _of_scale(self, dataset: h5py.Dataset, path: str, rank: int) -> list[str]:
        own = _base(path)
        if rank < 2:
            return [own] * rank
        numbers = dataset.attrs.get("_Netcdf4Coordinates")
        by_number = _scales_by_number(dataset.parent)
        if numbers is not None and all(int(number) in by_number for number in numbers):
            return [by_number[int(number)] for number in numbers]
        return [own] + [self._made_up(side, [own]) for side in dataset.shape[1:]]

    def _made_up(self, side: int, before: list[str]) -> str:
        """The made-up name of the n-th dimension of a given length. It is the same in all datasets."""
        same = sum(self.made_up.get((side, n)) in before for n in range(len(before)))
        return self.made_up.setdefault((side, same), f"phony_dim_{len(self.made_up)}")


def _scales_by_number(group: h5py.Group) -> dict[int, str]:
    """The netCDF-4 dimensions defined in a group or above it."""
    import h5py

    found: dict[int, str] = {}
    while True:
        for name in group:
            item = group.get(name)
            if isinstance(item, h5py.Dataset) and "_Netcdf4Dimid" in item.attrs:
                found.setdefault(int(item.attrs["_Netcdf4Dimid"]), name)
        if group.name == "/":
            return found
        group = group.parent


def _base(path: str) -> str:
    return path.rpartition("/")[2]


# --- places ---


def _url_of(source: str, log: str, url: Url) -> str:
    """The URL at which readers find a file of the log."""
    source = os.path.abspath(source)
    if url is None:
        return source
    if callable(url):
        return url(source)
    relative = os.path.relpath(source, os.path.dirname(os.path.abspath(log)))
    if relative.split(os.sep)[0] == os.pardir:
        raise LogError(
            f"{log}: its file {source} lies in another directory, which {url} does not stand for; let url be a function "
            "from paths to URLs"
        )
    return f"{url.rstrip('/')}/{relative}"
