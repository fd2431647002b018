"""Groups of a log as netCDF-4 has them: dimensions, variables and attributes. Names and values equal those of h5netcdf."""

from __future__ import annotations

import warnings
from collections import Counter, deque
from functools import cached_property
from typing import Any, NamedTuple, Optional

import numpy as np

from . import _types
from ._arrays import Array, Attributes, Group as _LogGroup
from ._log import Log

# Attributes with which netCDF-4 and HDF5 store dimensions and the kind of a file.
HIDDEN = {
    "CLASS",
    "DIMENSION_LIST",
    "NAME",
    "REFERENCE_LIST",
    "_NCProperties",
    "_Netcdf4Coordinates",
    "_Netcdf4Dimid",
    "_nc3_strict",
}
_NO_VARIABLE = "This is a netCDF dimension but not a netCDF variable"
_NO_COORDINATE = "_nc4_non_coord_"
_PLAIN = {"integer", "float", "text", "variable_text", "enumeration", "opaque"}
# Deflate, shuffle, fletcher32 and szip.
_FILTERS = {1, 2, 3, 4}
# The largest number of paths of a group. Links in all directions could make any number of paths.
_MOST_PATHS = 64


class NotNetcdf(Exception):
    """Something that netCDF-4 cannot represent. The text names it."""


class Dimension(NamedTuple):
    """A dimension of a group."""

    size: int
    is_unlimited: bool
    number: int
    """The number that `_Netcdf4Coordinates` refers to."""
    is_phony: bool = False
    """Whether the name is made up because the file has none."""
    is_label: bool = False
    """Whether the name is the label of dimensions without scales."""


class Variable(NamedTuple):
    """A variable of a group."""

    array: Array
    dimensions: tuple[str, ...]
    shape: tuple[int, ...]
    """The sizes of the dimensions. Along an unlimited dimension the array may be shorter: the rest was never written."""
    attributes: dict[str, Any]
    type_name: Optional[str]
    """The name of the type, if it is an enumeration that the file names."""


class File:
    """The groups of a log. `phony_dims` decides the names of dimensions without a name: "access" counts in the order in which
    groups are requested, "sort" in that of the file."""

    def __init__(self, log: Log, phony_dims: str) -> None:
        if phony_dims not in ("access", "sort"):
            raise ValueError(f"unknown value {phony_dims!r} for phony_dims: it is 'access' or 'sort'")
        self.is_sorted = phony_dims == "sort"
        self.labelled = 0
        self.phony = 0
        self._items: dict[str, tuple[Array, Attributes]] = {}
        self._log_path = log.path
        root = log["/"]
        assert isinstance(root, _LogGroup)
        self.root = Group(self, root, None)
        if self.is_sorted:
            self.below(self.root)

    def group(self, path: str) -> Group:
        """The group at a path. Raises OSError where there is none, as opening a missing file does."""
        group = self.root
        for name in path.strip("/").split("/"):
            if name:
                found = group.child(name)
                if found is None:
                    raise OSError(f"group not found: {path}")
                group = found
        return group

    def below(self, group: Group) -> list[Group]:
        """A group and all groups below it, parents first. Links back to an enclosing group are left out, with a warning."""
        inside = self._inside(group)
        groups, waiting = [], [group]
        while waiting:
            group = waiting.pop()
            groups.append(group)
            waiting += reversed(inside[group.path])
        return groups

    def _inside(self, group: Group) -> dict[str, list[Group]]:
        """The subgroups of each group, by the group's path. Where several paths lead to a group, the shortest ones are used."""
        inside: dict[str, list[Group]] = {}
        left_out = []
        waiting, paths = deque([group]), Counter[int]()
        while waiting:
            group = waiting.popleft()
            followed = inside[group.path] = []
            for name in group.children:
                address = group.address_of(name)
                if group.is_inside(address) or paths[address] == _MOST_PATHS:
                    left_out.append(group._joined(name))
                    continue
                paths[address] += 1
                child = group.child(name)
                assert child is not None
                followed.append(child)
            waiting += followed
        if left_out:
            some = ", ".join(left_out[:3]) + (", ..." if len(left_out) > 3 else "")
            reason = f"they lead back to a group that they are in, or {_MOST_PATHS} other paths lead there"
            warnings.warn(f"{self._log_path}: {len(left_out)} links are left out ({some}): {reason}", stacklevel=4)
        return inside

    def item(self, array: Array) -> tuple[Array, Attributes]:
        """An array with its attributes, which are read once."""
        return self._items.setdefault(array.path, (array, array.attrs))

    def at(self, path: str, group: _LogGroup) -> tuple[Array, Attributes]:
        """The array at a path."""
        if path not in self._items:
            array = group[path]
            if not isinstance(array, Array):
                raise NotNetcdf(f"{path} is not a dataset, but a dimension refers to it")
            self.item(array)
        return self._items[path]


class Group:
    """A group as netCDF-4 sees it."""

    def __init__(self, file: File, group: _LogGroup, parent: Optional[Group]) -> None:
        self.path = group.path
        self.children: dict[str, Optional[Group]] = {}
        self.dimensions: dict[str, Dimension] = {}
        self._file, self._group, self._parent = file, group, parent
        self._enumerations: dict[str, Any] = {} if parent is None else dict(parent._enumerations)
        self._arrays: dict[str, tuple[Array, Attributes]] = {}
        self._scales: dict[str, list[list[str]]] = {}
        self._labels: dict[str, list[Optional[str]]] = {}
        self._refused: Optional[Exception] = None
        phony: Counter[int] = Counter()
        members = list(group._members())
        self._members = set(members)
        for name, kind in members:
            if kind == "group":
                self.children[name] = None
            elif kind == "datatype":
                self._add_type(name)
            elif kind == "dataset":
                phony |= self._add_array(name)
            else:
                self._refused = NotNetcdf(f"the link {self._joined(name)} leads out of the file")
        self._add_phony(phony)

    @cached_property
    def address(self) -> int:
        """The address of the object, which all links to it share."""
        return self.address_of("")

    def address_of(self, name: str) -> int:
        """The address of the object that a link in this group leads to, without reading the object."""
        found = self._group._objects.native.address(self._joined(name))
        return -1 if found is None else found

    def is_inside(self, address: int) -> bool:
        """Whether this group, or one that its path leads through, is at an address."""
        group: Optional[Group] = self
        while group is not None and group.address != address:
            group = group._parent
        return group is not None

    def child(self, name: str) -> Optional[Group]:
        """A subgroup; None if there is none of this name."""
        if name not in self.children:
            return None
        found = self.children[name]
        if found is None:
            below = self._group[name]
            assert isinstance(below, _LogGroup)
            found = self.children[name] = Group(self._file, below, self)
        return found

    def attributes(self) -> dict[str, Any]:
        """The attributes of the group."""
        return _attributes(self._group.attrs, self.path)

    def variables(self) -> dict[str, Variable]:
        """The variables of the group."""
        if self._refused is not None:
            raise self._refused
        return {name.replace(_NO_COORDINATE, ""): self._variable(name) for name in self._arrays}

    def arrays(self) -> dict[str, tuple[Array, tuple[str, ...]]]:
        """All datasets of the group that are more than dimensions, whatever their type, with the names of their dimensions."""
        return {
            name.replace(_NO_COORDINATE, ""): (array, self._names(name, array, attributes))
            for name, (array, attributes) in self._arrays.items()
        }

    # --- what the group holds ---

    def _add_type(self, name: str) -> None:
        described = self._group._objects.native.datatype(self._joined(name))
        if described[0] == "enumeration":
            self._enumerations[name] = described

    def _add_array(self, name: str) -> Counter[int]:
        """Adds a dataset. Returns the sizes of its dimensions that have no name."""
        array, attributes = self._file.item(self._group[name])
        if array._shape is None:
            self._refused = NotNetcdf(f"the dataset {array.path} has no dataspace")
            return Counter()
        is_scale = attributes.get("CLASS") == "DIMENSION_SCALE"
        if is_scale:
            self.dimensions[name] = self._dimension(array, attributes)
        if not (is_scale and _NO_VARIABLE in str(attributes.get("NAME", ""))):
            self._arrays[name] = (array, attributes)
        return Counter() if is_scale else self._attached(name, array, attributes)

    def _attached(self, name: str, array: Array, attributes: Attributes) -> Counter[int]:
        """Records the scales of each dimension of a dataset. Returns its sides if it has no scale at all."""
        if not array.ndim:
            return Counter()
        listed = attributes.elements("DIMENSION_LIST")
        scales = [[path for path in each if path is not None] for each in ([] if listed is None else listed)]
        if not any(scales):
            labels = self._labels[name] = self._labelled(array, attributes)
            return Counter(side for side, label in zip(array.shape, labels) if label is None)
        if len(scales) != array.ndim or not all(scales):
            self._refused = ValueError(f"{array.path}: some of the dimensions have scales, and others have none")
            return Counter(array.shape)
        self._scales[name] = scales
        return Counter()

    def _labelled(self, array: Array, attributes: Attributes) -> list[Optional[str]]:
        """A name, or None, for each dimension of a dataset without scales. The name is the dimension's label, as ADIOS2 steps
        have, unless another dimension has this label and another size."""
        labels = attributes.elements("DIMENSION_LABELS")
        texts = ["" if label is None else str(label) for label in ([] if labels is None else np.ravel(labels).tolist())]
        found: list[Optional[str]] = [None] * array.ndim
        if len(texts) != array.ndim or array.maxshape is None:
            return found
        for axis, label in enumerate(texts):
            if not label or "/" in label or label in found or not self._may_be(label, array.shape[axis]):
                continue
            new = Dimension(array.shape[axis], array.maxshape[axis] is None, 0, True, True)
            if self.dimensions.setdefault(label, new) == new:
                found[axis] = label
        return found

    def _may_be(self, dimension: str, size: int) -> bool:
        """Whether a dimension may have this name: xarray takes a variable of the same name for the values along the
        dimension."""
        if (dimension, "dataset") not in self._members:
            return True
        return self._file.item(self._group[dimension])[0]._shape == (size,)

    def _dimension(self, array: Array, attributes: Attributes) -> Dimension:
        if not array.ndim:
            raise NotNetcdf(f"the dimension scale {array.path} has no extent")
        own = self._file.labelled
        self._file.labelled += 1
        number = attributes.elements("_Netcdf4Dimid")
        is_unlimited = array.maxshape == (None,)
        size = array.shape[0]
        users = attributes.elements("REFERENCE_LIST") if is_unlimited else None
        for address, axis in [] if users is None else np.atleast_1d(users).tolist():
            path = self._group._objects.path_of(address)
            if path is not None:
                size = max(size, self._file.at(path, self._group)[0].shape[axis])
        return Dimension(size, is_unlimited, own if number is None else int(np.ravel(number)[0]))

    def _add_phony(self, wanted: Counter[int]) -> None:
        """Makes up as many dimensions of each size as a variable needs beyond the named ones."""
        named = [each for each in self.dimensions.values() if not each.is_label]
        there = Counter(dimension.size for dimension in named if not dimension.is_unlimited)
        for size, count in wanted.items():
            for _ in range(there[size], count):
                number = self._file.phony + (self._file.labelled if self._file.is_sorted else 0)
                self.dimensions[f"phony_dim_{number}"] = Dimension(size, False, 0, True)
                self._file.phony += 1

    # --- variables ---

    def _variable(self, name: str) -> Variable:
        array, attributes = self._arrays[name]
        if not is_netcdf(array._described):
            raise NotNetcdf(f"the dataset {array.path} has the type {array._described[0]}")
        if any(number not in _FILTERS for number, _ in array.filters):
            raise NotNetcdf(f"the dataset {array.path} has a filter that netCDF-4 programs may not have")
        dimensions = self._names(name, array, attributes)
        shape = tuple(self._dimension_of(each, array).size for each in dimensions)
        if len(shape) != array.ndim or any(side < there for side, there in zip(shape, array.shape)):
            raise NotNetcdf(f"the dataset {array.path} does not have the shape of its dimensions")
        named = [each for each, described in self._enumerations.items() if described == array._described]
        return Variable(array, dimensions, shape, _attributes(attributes, array.path), next(iter(named), None))

    def _names(self, name: str, array: Array, attributes: Attributes) -> tuple[str, ...]:
        coordinates = attributes.elements("_Netcdf4Coordinates")
        if coordinates is not None and attributes.get("CLASS") == "DIMENSION_SCALE":
            by_number = self._by_number()
            if any(number not in by_number for number in np.ravel(coordinates).tolist()):
                raise NotNetcdf(f"the dataset {array.path} has a dimension that no group has")
            return tuple(by_number[number] for number in np.ravel(coordinates).tolist())
        if name in self._scales:
            # netCDF programs use the last of several scales.
            return tuple(scales[-1].rpartition("/")[2] for scales in self._scales[name])
        if self._has(name):
            return (name,)
        labels = self._labels.get(name, [None] * array.ndim)
        sides = [side for side, label in zip(array.shape, labels) if label is None]
        unlabelled: list[str] = []
        for side in sides:
            others = self.dimensions.items()
            same = [each for each, dimension in others if dimension.size == side and not dimension.is_label]
            unlabelled.append(same[sides[: len(unlabelled)].count(side)])
        rest = iter(unlabelled)
        return tuple(next(rest) if label is None else label for label in labels)

    def _by_number(self) -> dict[int, str]:
        found = {} if self._parent is None else self._parent._by_number()
        for name, dimension in self.dimensions.items():
            found[dimension.number if not dimension.is_phony else -1] = name
        return found

    def _has(self, dimension: str) -> bool:
        return dimension in self.dimensions or (self._parent is not None and self._parent._has(dimension))

    def _dimension_of(self, name: str, array: Array) -> Dimension:
        group: Optional[Group] = self
        while group is not None:
            if name in group.dimensions:
                return group.dimensions[name]
            group = group._parent
        raise NotNetcdf(f"the dataset {array.path} has a dimension {name} that no group above it has")

    def _joined(self, name: str) -> str:
        return f"{self.path.rstrip('/')}/{name}"


def is_netcdf(described: _types.Described) -> bool:
    """Whether netCDF-4 has this type for a variable or an attribute."""
    kind = described[0]
    if kind == "variable_list":
        return is_netcdf(described[2])
    if kind == "compound":
        return all(_is_member(member) for _, _, member in described[2])
    # netCDF-4 has no long double, but its Python programs accept it.
    return kind in _PLAIN or (kind == "extended" and _types.is_number(described))


def _is_member(described: _types.Described) -> bool:
    if described[0] != "array":
        return is_netcdf(described)
    # h5netcdf turns arrays of characters into texts.
    return is_netcdf(described[2]) and described[2][0] != "text"


def _attributes(attributes: Attributes, path: str) -> dict[str, Any]:
    found = {}
    for name in attributes:
        if name in HIDDEN:
            continue
        if not is_netcdf(attributes.described(name)):
            raise NotNetcdf(f"the attribute {name} of {path} has the type {attributes.described(name)[0]}")
        found[name] = _value(attributes, name)
    return found


def _value(attributes: Attributes, name: str) -> Any:
    """The value of an attribute as netCDF programs return it: a single element is not an array, and arrays of texts are
    lists."""
    described = attributes.described(name)
    value = attributes.elements(name)
    is_character = described[0] == "text" and described[1] == 1
    if value is None:
        return b"" if is_character else np.array([], _types.dtype(described))
    if is_character:
        value = attributes.stored(name)
        value = value.tolist() if value.ndim else value[()]
    elif described[0] == "text":
        encoding = "utf-8" if described[2] else "ascii"
        texts = [_types.cut(each, described[3]).decode(encoding, "surrogateescape") for each in attributes.stored(name).flat]
        value = texts if isinstance(value, np.ndarray) else texts[0]
    elif described[0] == "variable_text" and isinstance(value, np.ndarray):
        value = value.tolist()
    return value[0] if isinstance(value, (list, np.ndarray)) and len(value) == 1 else value
