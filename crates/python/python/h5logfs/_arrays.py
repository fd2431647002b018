"""Groups and arrays of a log, read without HDF5."""

from __future__ import annotations

import threading
import weakref
from collections.abc import ItemsView, Iterator, Mapping, ValuesView
from functools import cached_property
from typing import TYPE_CHECKING, Any, Callable, Optional, Union

import numpy as np

from . import _indexing, _native, _types

if TYPE_CHECKING:
    from ._log import Log

# A function that is called with the number of bytes read.
Progress = Callable[[int], Any]


class Attributes(Mapping[str, Any]):
    """The attributes of an object: numpy numbers and arrays, `str`, arrays of `str`, or None for an attribute without
    elements. A reference is the path of its object, or None where it leads nowhere."""

    def __init__(self, log: _Objects, path: str) -> None:
        self._log = log
        found = log.native.attributes(path)
        self._found = {name: (described, shape, elements) for name, described, shape, elements in found}

    def __getitem__(self, name: str) -> Any:
        described, shape, elements = self._found[name]
        if shape is None:
            return None
        if _types.is_variable(described):
            array = self._of_values(described, tuple(shape), elements)
        else:
            array = self.stored(name)
            if described[0] == "text":
                array = _types.decoded(array, described[3])
        if described[0] == "reference":
            array = self._paths(array)
        return array[()] if array.ndim == 0 else array

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)

    def __repr__(self) -> str:
        return f"<h5logfs.Attributes {dict(self)!r}>"

    def described(self, name: str) -> _types.Described:
        """The file's type, as the native module describes it."""
        found: _types.Described = self._found[name][0]
        return found

    def stored(self, name: str) -> np.ndarray[Any, Any]:
        """The elements as the file stores them. Not for variable-length types, nor where there are no elements."""
        described, shape, elements = self._found[name]
        own = _types.dtype(described)
        return np.frombuffer(elements, own).reshape(tuple(shape) + own.shape)

    def _of_values(self, described: _types.Described, shape: tuple[int, ...], values: Any) -> np.ndarray[Any, Any]:
        array = _types.from_values(described, values, shape)
        if described[0] == "variable_list" and described[2][0] == "reference":
            lists = np.empty(array.shape, object)
            lists.reshape(-1)[:] = [self._paths(each) for each in array.reshape(-1)]
            return lists
        return array

    def _paths(self, addresses: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        paths = np.empty(addresses.shape, object)
        paths.reshape(-1)[:] = [self._log.path_of(int(address)) for address in addresses.reshape(-1)]
        return paths


class _Objects:
    """State shared by the groups and arrays of one state of a log."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.native = _native.Objects(log._native())
        self._paths: Optional[dict[int, str]] = None

    def path_of(self, address: int) -> Optional[str]:
        """A path of the object with this address."""
        if self._paths is None:
            self._paths = {}
            self._walk("/")
        return self._paths.get(address)

    def _walk(self, group: str) -> None:
        assert self._paths is not None
        below = []
        for name, _, link, target, kind in self.native.links(group):
            if link == "hard" and isinstance(target, int) and target not in self._paths:
                path = _joined(group, name)
                self._paths[target] = path
                if kind == "group":
                    below.append(path)
        for path in below:
            self._walk(path)

    def object(self, path: str) -> Union[Group, Array]:
        found = self.native.object(path)
        if found == "group":
            return Group(self, path)
        if isinstance(found, str):
            raise KeyError(path)
        return Array(self, path, found)


class Group(Mapping[str, "Union[Group, Array]"]):
    """A group: a mapping from names to groups and arrays. `group["a/b"]` follows a path."""

    def __init__(self, objects: _Objects, path: str) -> None:
        self._objects = objects
        self._path = path

    @property
    def path(self) -> str:
        """The path in the log."""
        return self._path

    @property
    def attrs(self) -> Attributes:
        """The attributes."""
        return Attributes(self._objects, self._path)

    def groups(self) -> dict[str, Group]:
        """The groups in the group."""
        return {name: item for name, item in self.items() if isinstance(item, Group)}

    def arrays(self) -> dict[str, Array]:
        """The arrays in the group."""
        return {name: item for name, item in self.items() if isinstance(item, Array)}

    def items(self) -> ItemsView[str, Union[Group, Array]]:
        """The groups and arrays in the group, by name."""
        return _Items(self)

    def values(self) -> ValuesView[Union[Group, Array]]:
        """The groups and arrays in the group."""
        return _Values(self)

    def __getitem__(self, path: str) -> Union[Group, Array]:
        return self._objects.object(_joined(self._path, path))

    def __iter__(self) -> Iterator[str]:
        for name, kind in self._members():
            if kind in ("group", "dataset"):
                yield name

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __contains__(self, path: object) -> bool:
        return isinstance(path, str) and self._objects.native.kind(_joined(self._path, path)) in ("group", "dataset")

    def _all(self) -> Iterator[tuple[str, Union[Group, Array]]]:
        """The content of `items`, without a walk from the root group to each."""
        objects, prefix = self._objects, self._path.rstrip("/") + "/"
        for name, found in objects.native.members(self._path):
            path = prefix + name
            yield name, Group(objects, path) if found is None else Array(objects, path, found)

    def _members(self) -> Iterator[tuple[str, str]]:
        """The targets of the links in order: name, and "group", "dataset", "datatype", or "outside" for another file.
        Dangling links are left out."""
        links = self._objects.native.links(self._path)
        if all(link[1] is not None for link in links):
            links = sorted(links, key=lambda link: link[1] or 0)
        for name, _, link, _, kind in links:
            if link == "soft":
                kind = self._objects.native.kind(_joined(self._path, name))
            elif link != "hard":
                kind = "outside"
            if kind is not None:
                yield name, kind

    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return f"<h5logfs.Group {self._path!r} of {self._objects.log.path!r}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (*self._objects.log._place(), self._path)


class _Items(ItemsView[str, Union[Group, "Array"]]):
    _mapping: Group

    def __iter__(self) -> Iterator[tuple[str, Union[Group, Array]]]:
        return self._mapping._all()


class _Values(ValuesView[Union[Group, "Array"]]):
    _mapping: Group

    def __iter__(self) -> Iterator[Union[Group, Array]]:
        return (item for _, item in self._mapping._all())


class Array:
    """A dataset of a log. `array[...]` indexes as numpy does and reads with all cores, into memory, without HDF5 and
    without the interpreter's lock. Texts of variable length are `str` objects; other elements and types are those of
    h5py.

    Raises `LogError` where elements cannot be read.
    """

    def __init__(self, objects: _Objects, path: str, native: _native.Elements) -> None:
        self._objects = objects
        self._path = path
        self._native = native

    # A walk through all arrays needs none of these.

    @cached_property
    def _described(self) -> _types.Described:
        return self._native.datatype

    @cached_property
    def _element(self) -> np.dtype[Any]:
        return _types.dtype(self._described)

    @cached_property
    def _shape(self) -> Optional[tuple[int, ...]]:
        shape = self._native.shape
        return None if shape is None else tuple(shape)

    @property
    def _is_padded(self) -> bool:
        """Whether texts are padded with spaces."""
        return self._described[0] == "text" and bool(self._described[3])

    @property
    def path(self) -> str:
        """The path in the log."""
        return self._path

    @property
    def shape(self) -> tuple[int, ...]:
        """The extent. Raises ValueError for a dataset without a dataspace."""
        if self._shape is None:
            raise ValueError(f"{self._path}: a dataset without a dataspace has no shape")
        return self._shape

    @property
    def maxshape(self) -> Optional[tuple[Optional[int], ...]]:
        """The largest extent; None along an unlimited dimension."""
        found = self._native.maxshape
        return None if found is None else tuple(found)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the elements."""
        return self._element

    @property
    def chunks(self) -> Optional[tuple[int, ...]]:
        """The shape of a chunk; None without chunks."""
        found = self._native.chunks
        return None if found is None else tuple(found)

    @property
    def filters(self) -> list[tuple[int, list[int]]]:
        """The filter pipeline of the chunks: HDF5 numbers and parameters."""
        return [(number, list(values)) for number, values in self._native.filters]

    @property
    def fillvalue(self) -> Any:
        """The value of unwritten elements."""
        return _types.fill_value(self._described, self._native.fill_value)

    @property
    def attrs(self) -> Attributes:
        """The attributes."""
        return Attributes(self._objects, self._path)

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self.size * self._element.itemsize

    @property
    def oindex(self) -> _Outer:
        """`array.oindex[...]`: each part of the index picks along its own dimension."""
        return _Outer(self)

    def __getitem__(self, key: Any) -> Any:
        return self.read(key)

    def read(self, key: Any = ..., *, threads: Optional[int] = None, progress: Union[bool, Progress, None] = None) -> Any:
        """Reads `array[key]`. `threads` defaults to that of the log. `progress`: True shows a bar (with tqdm); a function is
        called with the number of bytes read, several times a second and at the end."""
        return self._read(_indexing.plan(key, self.shape), threads, progress)

    def read_direct(
        self,
        out: np.ndarray[Any, Any],
        key: Any = ...,
        *,
        threads: Optional[int] = None,
        progress: Union[bool, Progress, None] = None,
    ) -> None:
        """Reads `array[key]` into `out`, an array of the same shape. There is no copy if `out` is contiguous and of the same
        type, and the index consists of forward slices. After a failure the content of `out` is arbitrary."""
        found = _indexing.plan(key, self.shape)
        same = out.dtype == self._element and out.flags.c_contiguous
        same = same and not (self._element.hasobject or self._is_padded)
        if found.pick is None and same and out.shape == found.shape + self._element.shape:
            self._fill(found.selection, out, threads, progress)
            return
        out[...] = self._read(found, threads, progress)

    def __array__(self, dtype: Any = None, copy: Optional[bool] = None) -> np.ndarray[Any, Any]:
        if copy is False:
            raise ValueError("the elements of a log are in no array yet: an array of them is a copy")
        found = np.asarray(self[...])
        return found if dtype is None else found.astype(dtype, copy=False)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("a scalar has no length")
        return self.shape[0]

    def __iter__(self) -> Iterator[Any]:
        for row in range(len(self)):
            yield self[row]

    def __repr__(self) -> str:
        shape = self._shape if self._shape is not None else "no dataspace"
        return f"<h5logfs.Array {self._path!r} of {self._objects.log.path!r}, {shape}, {self._element}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (*self._objects.log._place(), self._path)

    def _read(self, found: _indexing.Plan, threads: Optional[int], progress: Union[bool, Progress, None]) -> Any:
        if 0 in found.shape:
            return found.apply(np.empty(found.shape, self._element))
        if _types.is_variable(self._described):
            array = _types.from_values(self._described, self._native.values(), self.shape)
            return found.apply(_chosen(array, found))
        array = np.empty(found.shape, self._element)
        self._fill(found.selection, array, threads, progress)
        if self._is_padded:
            # HDF5 pads elements in memory like this.
            array = np.char.rstrip(array, b" ").astype(self._element)
        answer = found.apply(array)
        return answer[()] if isinstance(answer, np.ndarray) and answer.ndim == 0 else answer

    def _fill(
        self,
        selection: _indexing.Selection,
        out: np.ndarray[Any, Any],
        threads: Optional[int],
        progress: Union[bool, Progress, None],
    ) -> None:
        threads = self._objects.log.threads if threads is None else threads
        if progress is not True:
            self._native.read(selection, out, threads, progress or None)
            return
        from tqdm.auto import tqdm

        with tqdm(total=out.nbytes, unit="B", unit_scale=True, desc=self._path) as bar:
            self._native.read(selection, out, threads, lambda done: bar.update(done - bar.n))
            bar.update(out.nbytes - bar.n)


class _Outer:
    def __init__(self, array: Array) -> None:
        self._array = array

    def __getitem__(self, key: Any) -> Any:
        return self._array._read(_indexing.outer(key, self._array.shape), None, None)


def _chosen(array: np.ndarray[Any, Any], found: _indexing.Plan) -> np.ndarray[Any, Any]:
    """What the native module would have read, taken from all elements."""
    if found.selection is None:
        return array
    if isinstance(found.selection, tuple):
        rank, coordinates = found.selection
        points = np.frombuffer(coordinates, np.uint64).reshape(-1, rank).astype(np.int64)
        return array[tuple(points.T)]
    for dimension, axis in enumerate(found.selection):
        if isinstance(axis, bytes):
            indices = np.frombuffer(axis, np.uint64).astype(np.int64)
        else:
            start, count, step = axis
            indices = start + step * np.arange(count)
        array = array.take(indices, dimension)
    return array


def root(log: Log) -> Group:
    """The root group of a log."""
    return Group(_Objects(log), "/")


def _joined(group: str, path: str) -> str:
    return path if path.startswith("/") else f"{group.rstrip('/')}/{path}"


# Arrays of one log that arrive in this process one by one, as those of a dataset do, share the open log.
_shared: weakref.WeakValueDictionary[tuple[Any, ...], Log] = weakref.WeakValueDictionary()
_sharing = threading.Lock()


def _again(path: str, options: dict[str, Any], inside: str) -> Union[Group, Array]:
    """Opens an object that another process has pickled."""
    from ._log import Log

    key = (path, *sorted((name, repr(value)) for name, value in options.items()))
    with _sharing:
        log = _shared.get(key)
        if log is None or log._changes.look():
            log = _shared[key] = Log(path, **options)
    return log[inside]
