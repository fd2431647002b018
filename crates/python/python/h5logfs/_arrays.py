"""Groups and arrays of a log, read without HDF5."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import ItemsView, Iterator, Mapping, ValuesView
from functools import cached_property
from typing import TYPE_CHECKING, Any, Callable, Optional, Union

import numpy as np

from . import _indexing, _native, _options, _types
from ._converted import Converted, cast, decode, fields_of
from ._dimensions import Dimensions

if TYPE_CHECKING:
    from ._log import State

# A function that is called with the number of bytes read.
Progress = Callable[[int], Any]
# What a group is indexed by.
Key = Union[str, bytes, np.uint64]
# HDF5 filter numbers.
_DEFLATE, _SHUFFLE, _FLETCHER32, _SZIP, _SCALEOFFSET, _LZF = 1, 2, 3, 4, 6, 32000
_COMPRESSIONS = {_DEFLATE: "gzip", _LZF: "lzf", _SZIP: "szip"}
# A bit of the options of szip.
_SZIP_ENTROPY = 4


class Attributes(Mapping[str, Any]):
    """The attributes of an object, in the order of h5py: numpy numbers and arrays, `str`, arrays of `str`, or `Empty`
    for an attribute without a dataspace. A reference is the path of its object, or None where it leads nowhere."""

    def __init__(self, log: _Objects, path: str) -> None:
        self._log = log
        found = log.native.attributes(path)
        self._found = {name: (described, shape, elements) for name, described, shape, elements in found}

    def __getitem__(self, name: str) -> Any:
        described, shape, elements = self._found[name]
        if shape is None:
            return _types.Empty(_types.dtype(described))
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

    def elements(self, name: str) -> Any:
        """The value of an attribute; None where there is no such attribute, or it has no dataspace."""
        found = self.get(name)
        return None if isinstance(found, _types.Empty) else found

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
    """What the groups and arrays of one state of a log share."""

    def __init__(self, state: State) -> None:
        self.state = state
        self._native = _native.Objects(state.native())
        self._paths: Optional[dict[int, str]] = None

    @property
    def native(self) -> _native.Objects:
        """The objects. ValueError after the log was closed."""
        self.state.native()
        return self._native

    def path_of(self, address: int) -> Optional[str]:
        """A path of the object with this address."""
        if self._paths is None:
            root = self.native.address("/")
            self._paths = {} if root is None else {root: "/"}
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
            raise KeyError(f"{path}: it is a named datatype")
        return Array(self, path, found)

    def referred(self, address: np.uint64) -> Union[Group, Array]:
        """The object that an object reference leads to."""
        if address == 0:
            raise ValueError(f"{self.state.path}: the reference leads nowhere")
        path = self.path_of(int(address))
        if path is None:
            raise KeyError(f"{self.state.path}: no object has the reference {address}")
        return self.object(path)


class _Node:
    """An object at a path."""

    _objects: _Objects
    _path: str

    @property
    def path(self) -> str:
        """The path in the log."""
        return self._path

    @property
    def name(self) -> str:
        """The path in the log, as h5py calls it."""
        return self._path

    @property
    def parent(self) -> Group:
        """The group of the object, by its path. That of the root group is the root group."""
        return Group(self._objects, self._path.rstrip("/").rpartition("/")[0] or "/")

    @property
    def attrs(self) -> Attributes:
        """The attributes."""
        return Attributes(self._objects, self._path)

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (*self._objects.state.place(), self._path)


class Group(_Node, Mapping[str, Any]):
    """A group: a mapping from names to groups and arrays. `group["a/b"]` follows a path; an object reference, which is an
    element of an array, leads to its object. `name in group` tells whether there is a link of this name, also one that
    leads nowhere or to another file, as in h5py."""

    def __init__(self, objects: _Objects, path: str) -> None:
        self._objects = objects
        self._path = path

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

    def visit(self, call: Callable[[str], Any]) -> Any:
        """Calls `call` with the path, from here, of each group and array below, by name. Stops where it returns something
        other than None, and returns that. Each object is visited once; soft and external links are not followed."""
        return self.visititems(lambda path, _: call(path))

    def visititems(self, call: Callable[[str, Any], Any]) -> Any:
        """`visit`, with the group or array as a second argument."""
        seen = {self._objects.native.address(self._path)}
        below = [self._links("")]
        while below:
            for path, address, kind in below[-1]:
                if address in seen or kind not in ("group", "dataset"):
                    continue
                seen.add(address)
                answer = call(path, self[path])
                if answer is not None:
                    return answer
                if kind == "group":
                    below.append(self._links(path))
                    break
            else:
                below.pop()
        return None

    def _links(self, path: str) -> Iterator[tuple[str, int, Optional[str]]]:
        """The hard links of a group at a path from here: path, address and kind of the object."""
        prefix = f"{path}/" if path else ""
        for name, _, link, target, kind in self._objects.native.links(_joined(self._path, path)):
            if link == "hard" and isinstance(target, int):
                yield prefix + name, target, kind

    def __getitem__(self, key: Key) -> Any:
        if isinstance(key, np.uint64):
            return self._objects.referred(key)
        return self._objects.object(self._inside(key))

    def __iter__(self) -> Iterator[str]:
        for name, kind in self._members():
            if kind in ("group", "dataset"):
                yield name

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __contains__(self, key: object) -> bool:
        if not isinstance(key, (str, bytes)):
            return False
        return self._objects.native.has_link(self._inside(key))

    def _inside(self, key: Union[str, bytes]) -> str:
        """The path in the log of what is at a path in the group."""
        if not isinstance(key, (str, bytes)):
            wanted = "a name, or an object reference of an array"
            raise TypeError(f"{self._path}: a group is indexed by {wanted}, not by {type(key).__name__}")
        return _joined(self._path, os.fsdecode(key))

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
        return f"<h5logfs.Group {self._path!r} of {self._objects.state.path!r}>"

    def _ipython_key_completions_(self) -> list[str]:
        return list(self)

    def _repr_html_(self) -> str:
        """The groups and arrays, as a table for notebooks."""
        from ._html import of_group

        return of_group(repr(self), self)


class _Items(ItemsView[str, Union[Group, "Array"]]):
    _mapping: Group

    def __iter__(self) -> Iterator[tuple[str, Union[Group, Array]]]:
        return self._mapping._all()


class _Values(ValuesView[Union[Group, "Array"]]):
    _mapping: Group

    def __iter__(self) -> Iterator[Union[Group, Array]]:
        return (item for _, item in self._mapping._all())


class Array(_Node):
    """A dataset of a log. `array[...]` indexes as numpy does and reads with all cores, into memory, without HDF5 and
    without the interpreter's lock. Texts of variable length are `str` objects; other elements and types are those of
    h5py. Names pick members of a compound type: `array["a"]`, `array["a", 2:4]`.

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
    def shape(self) -> Union[tuple[int, ...], Any]:
        """The extent; None for a dataset without a dataspace."""
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
    def compression(self) -> Optional[str]:
        """The compression of the chunks: "gzip", "lzf", "szip", or None without one of these."""
        found = dict(self.filters)
        return next((name for number, name in _COMPRESSIONS.items() if number in found), None)

    @property
    def compression_opts(self) -> Any:
        """The settings of the compression: for gzip its level."""
        found = dict(self.filters)
        number = next((number for number in _COMPRESSIONS if number in found), None)
        values = found.get(number, []) if number is not None else []
        if number == _DEFLATE:
            return values[0] if values else None
        if number == _SZIP and len(values) > 1:
            return "ec" if values[0] & _SZIP_ENTROPY else "nn", values[1]
        return tuple(values) or None

    @property
    def shuffle(self) -> bool:
        """Whether the chunks went through the shuffle filter."""
        return _SHUFFLE in dict(self.filters)

    @property
    def fletcher32(self) -> bool:
        """Whether the chunks have checksums."""
        return _FLETCHER32 in dict(self.filters)

    @property
    def scaleoffset(self) -> Optional[int]:
        """The setting of the filter scale-offset; None without it."""
        values = dict(self.filters).get(_SCALEOFFSET)
        return values[1] if values is not None and len(values) > 1 else None

    @property
    def dims(self) -> Dimensions:
        """The dimensions: `array.dims[0].label`, `array.dims[0][0]` is the first scale of a dimension."""
        return Dimensions(self)

    @property
    def is_scale(self) -> bool:
        """Whether this is a dimension scale."""
        return bool(self.attrs.get("CLASS") == "DIMENSION_SCALE")

    @property
    def fillvalue(self) -> Any:
        """The value of unwritten elements."""
        return _types.fill_value(self._described, self._native.fill_value)

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self._shape or ())

    @property
    def size(self) -> Union[int, Any]:
        """The number of elements; None for a dataset without a dataspace."""
        return None if self._shape is None else int(np.prod(self._shape, dtype=np.int64))

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return (self.size or 0) * self._element.itemsize

    @property
    def oindex(self) -> _Outer:
        """`array.oindex[...]`: each part of the index picks along its own dimension."""
        return _Outer(self)

    def astype(self, dtype: Any) -> Converted:
        """The numbers as another type: `array.astype("f4")[0]`. They are converted as HDF5 does."""
        to = np.dtype(dtype)
        return Converted(self, to, lambda found: cast(found, to))

    def asstr(self, encoding: str = "utf-8", errors: str = "strict") -> Converted:
        """Texts of a fixed length as `str`: `array.asstr()[0]`. Those of variable length are `str` anyway."""
        if not _types.is_text(self._described):
            raise TypeError(f"{self._path}: its elements are not texts")
        return Converted(self, np.dtype(object), lambda found: decode(found, encoding, errors))

    def fields(self, names: Union[str, list[str]]) -> Converted:
        """Members of a compound type: `array.fields("a")[0]`, `array.fields(["a", "b"])[:]`."""
        chosen = [names] if isinstance(names, str) else list(names)
        self._check_members(chosen)
        own = self._element[chosen[0]] if len(chosen) == 1 else np.dtype([(name, self._element[name]) for name in chosen])
        return Converted(self, own, lambda found: fields_of(found, chosen))

    def __getitem__(self, key: Any) -> Any:
        return self.read(key)

    def read(self, key: Any = ..., *, threads: Optional[int] = None, progress: Union[bool, Progress, None] = None) -> Any:
        """Reads `array[key]`. `threads` defaults to that of the log. `progress`: True shows a bar (with tqdm); a function is
        called with the number of bytes read, several times a second and at the end."""
        threads = None if threads is None else _options.threads(threads)
        names, key = _indexing.names_in(key)
        self._check_members(names)
        if self._shape is None:
            if key is Ellipsis or key == ():
                return _types.Empty(self._element)
            raise ValueError(f"{self._path}: a dataset without a dataspace has no elements")
        found = self._read(_indexing.plan(key, self._shape), threads, progress)
        return fields_of(found, names) if names else found

    def _check_members(self, names: list[str]) -> None:
        if names and self._element.names is None:
            raise ValueError(f"{self._path}: only a compound type has members, such as {names[0]!r}")
        for name in names:
            if name not in (self._element.names or ()):
                raise ValueError(f"{self._path}: the type has no member {name!r}")

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
        threads = None if threads is None else _options.threads(threads)
        if self._shape is None:
            raise ValueError(f"{self._path}: a dataset without a dataspace has no elements")
        found = _indexing.plan(key, self._shape)
        same = out.dtype == self._element and out.flags.c_contiguous
        same = same and not (self._element.hasobject or self._is_padded)
        if found.pick is None and same and out.shape == found.shape + self._element.shape:
            self._fill(found.selection, out, threads, progress)
            return
        out[...] = self._read(found, threads, progress)

    def __array__(self, dtype: Any = None, copy: Optional[bool] = None) -> np.ndarray[Any, Any]:
        if copy is False:
            raise ValueError("the elements of a log are in no array yet: an array of them is a copy")
        if self._shape is None:
            raise TypeError(f"{self._path}: a dataset without a dataspace is no array")
        found = np.asarray(self[...])
        return found if dtype is None else found.astype(dtype, copy=False)

    def __len__(self) -> int:
        if not self._shape:
            raise TypeError(f"{self._path}: a dataset without dimensions has no length")
        return self._shape[0]

    def __iter__(self) -> Iterator[Any]:
        for row in range(len(self)):
            yield self[row]

    def __repr__(self) -> str:
        shape = self._shape if self._shape is not None else "no dataspace"
        return f"<h5logfs.Array {self._path!r} of {self._objects.state.path!r}, {shape}, {self._element}>"

    def _ipython_key_completions_(self) -> list[str]:
        return list(self._element.names or ())

    def _repr_html_(self) -> str:
        """Type, extent, chunks and attributes, as a table for notebooks."""
        from ._html import of_array

        return of_array(self)

    def _read(self, found: _indexing.Plan, threads: Optional[int], progress: Union[bool, Progress, None]) -> Any:
        if 0 in found.shape:
            return found.apply(np.empty(found.shape, self._element))
        # Raises after the log was closed.
        self._objects.state.native()
        if _types.is_variable(self._described):
            array = _types.from_values(self._described, self._native.values(), self.shape)
            return found.apply(_chosen(array, found))
        array = np.empty(found.shape, self._element)
        self._fill(found.selection, array, threads, progress)
        if self._is_padded:
            # HDF5 pads elements in memory like this.
            array = np.char.rstrip(array, b" ").astype(self._element)
        return found.apply(array)

    def _fill(
        self,
        selection: _indexing.Selection,
        out: np.ndarray[Any, Any],
        threads: Optional[int],
        progress: Union[bool, Progress, None],
    ) -> None:
        self._objects.state.native()
        threads = self._objects.state.threads if threads is None else threads
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


def root(state: State) -> Group:
    """The root group of a log."""
    return Group(_Objects(state), "/")


def _joined(group: str, path: str) -> str:
    return path if path.startswith("/") else f"{group.rstrip('/')}/{path}"


# Arrays of one log that arrive in this process one by one, as those of a dataset do, share the open log.
_shared: weakref.WeakValueDictionary[tuple[Any, ...], _Objects] = weakref.WeakValueDictionary()
_sharing = threading.Lock()


def _again(path: str, options: dict[str, Any], inside: str) -> Union[Group, Array]:
    """Opens an object that another process has pickled."""
    from ._log import Log

    key = (path, *sorted((name, repr(value)) for name, value in options.items()))
    with _sharing:
        objects = _shared.get(key)
        if objects is None or objects.state.changes.look():
            objects = _shared[key] = Log(path, **options)._group()._objects
    return objects.object(inside)
