"""Indexing as in numpy: what to read for an index, and what to pick from it."""

from __future__ import annotations

import operator
from typing import Any, NamedTuple, Optional, Union

import numpy as np

Selection = Union[None, list[Any], tuple[int, bytes]]


class Plan(NamedTuple):
    """How an index is answered."""

    selection: Selection
    """What is read, in the form that the native module takes."""
    shape: tuple[int, ...]
    """The shape of what is read."""
    pick: Optional[tuple[Any, ...]] = None
    """The index that picks the answer from what is read; None if all of it is the answer."""
    drop: tuple[int, ...] = ()
    """Dimensions of length one that the answer lacks."""
    is_scalar: bool = True
    """Whether an answer without dimensions is a scalar. With an ellipsis in the index it is an array, as in numpy."""

    def apply(self, array: np.ndarray[Any, Any]) -> Any:
        """The answer, given what was read."""
        found = array if self.pick is None else array[(*self.pick, ...)]
        if self.drop:
            found = found.squeeze(self.drop)
        return found[()] if self.is_scalar and found.ndim == 0 else found


# Points are read one by one where the box of all combinations of their coordinates has this many times as many
# elements.
_SPARSE = 8


def plan(key: Any, shape: tuple[int, ...]) -> Plan:
    """A plan for `array[key]`. Raises IndexError as numpy does."""
    items = _items(key, shape)
    is_scalar = not _has_ellipsis(key)
    arrays = [item for item in items if isinstance(item, np.ndarray)]
    if len(arrays) == len(items) == len(shape) and len(items) > 1:
        points = list(np.broadcast_arrays(*arrays))
        if points[0].size * _SPARSE < np.prod([np.unique(array).size for array in arrays], dtype=float):
            return _of_points(points)._replace(is_scalar=is_scalar)
    return _of_box(items, shape)._replace(is_scalar=is_scalar)


def outer(key: Any, shape: tuple[int, ...]) -> Plan:
    """A plan for an index whose parts pick along one dimension each, like zarr's `array.oindex[key]`."""
    items = _items(key, shape)
    if any(isinstance(item, np.ndarray) and item.ndim != 1 or item is None for item in items):
        raise IndexError("an outer index takes integers, slices, and lists of one dimension")
    found = _of_box(items, shape)._replace(is_scalar=not _has_ellipsis(key))
    if not any(isinstance(item, np.ndarray) for item in items):
        return found
    assert found.pick is not None
    each = [np.arange(side)[part] for part, side in zip(found.pick, found.shape)]
    drop = tuple(place for place, part in enumerate(each) if part.ndim == 0)
    return found._replace(pick=np.ix_(*[np.atleast_1d(part) for part in each]), drop=drop)


def names_in(key: Any) -> tuple[list[str], Any]:
    """The names of members in an index, and the index without them. All elements are meant where nothing else is."""
    if isinstance(key, str):
        return [key], ()
    if isinstance(key, list) and key and all(isinstance(part, str) for part in key):
        return key, ()
    if not isinstance(key, tuple):
        return [], key
    names = [part for part in key if isinstance(part, str)]
    return names, tuple(part for part in key if not isinstance(part, str)) if names else key


def _has_ellipsis(key: Any) -> bool:
    return any(part is Ellipsis for part in (key if isinstance(key, tuple) else (key,)))


def _items(key: Any, shape: tuple[int, ...]) -> list[Any]:
    """The parts of an index: integers, slices, None, and arrays of integers in place of lists and masks. Dimensions that the
    index does not name get slices."""
    parts = [_part(part) for part in (key if isinstance(key, tuple) else (key,))]
    used = sum(_dimensions(part) for part in parts)
    if used > len(shape):
        raise IndexError(f"too many indices: the array has {len(shape)} dimensions, {used} were indexed")
    ellipses = [place for place, part in enumerate(parts) if part is Ellipsis]
    if len(ellipses) > 1:
        raise IndexError("an index can only have a single ellipsis ('...')")
    at = ellipses[0] if ellipses else len(parts)
    parts[at : at + 1] = [slice(None)] * (len(shape) - used)
    items: list[Any] = []
    dimension = 0
    for part in parts:
        sides = shape[dimension : dimension + _dimensions(part)]
        if isinstance(part, int):
            items.append(_wrapped(part, sides[0], dimension))
        elif not isinstance(part, np.ndarray):
            items.append(part)
        elif part.dtype == bool:
            if part.shape != sides:
                raise IndexError(f"a mask of shape {part.shape} for dimensions of {sides}")
            items += part.nonzero()
        else:
            items.append(_wrapped_all(part, sides[0], dimension))
        dimension += len(sides)
    return items


def _part(part: Any) -> Any:
    """A part of an index: a slice, None, an ellipsis, an integer, or an array of integers or bools."""
    if part is None or part is Ellipsis or isinstance(part, slice):
        return part
    if not isinstance(part, (bool, np.bool_, np.ndarray, list)):
        try:
            return operator.index(part)
        except TypeError:
            pass
    array = np.asarray(part)
    if array.size == 0 and array.dtype != bool:
        array = array.astype(np.int64)
    if array.dtype.kind in "iu":
        return int(array) if array.ndim == 0 else array.astype(np.int64)
    if array.dtype == bool and array.ndim > 0:
        return array
    raise IndexError(
        "only integers, slices (`:`), ellipsis (`...`), None and integer or boolean arrays are valid indices"
    )


def _dimensions(part: Any) -> int:
    """The number of array dimensions that a part of an index covers."""
    if part is None or part is Ellipsis:
        return 0
    return part.ndim if isinstance(part, np.ndarray) and part.dtype == bool else 1


def _wrapped(index: int, side: int, dimension: int) -> int:
    if not -side <= index < side:
        raise IndexError(f"index {index} is out of bounds for axis {dimension} with size {side}")
    return index % side


def _wrapped_all(indices: np.ndarray[Any, Any], side: int, dimension: int) -> np.ndarray[Any, Any]:
    if indices.size and not (-side <= indices.min() and indices.max() < side):
        wrong = indices[(indices < -side) | (indices >= side)][0]
        raise IndexError(f"index {wrong} is out of bounds for axis {dimension} with size {side}")
    return np.where(indices < 0, indices + side, indices)


def _of_box(items: list[Any], shape: tuple[int, ...]) -> Plan:
    """A plan that reads all combinations of the indices in each part. numpy picks the answer from them; with slices only, all
    of it is the answer."""
    axes: list[Any] = []
    sides: list[int] = []
    pick: list[Any] = []
    is_all = True
    dimension = 0
    for item in items:
        if item is None:
            pick.append(None)
            is_all = False
            continue
        side = shape[dimension]
        dimension += 1
        if isinstance(item, int):
            axes.append((item, 1, 1))
            sides.append(1)
            pick.append(0)
            is_all = False
        elif isinstance(item, slice):
            start, stop, step = item.indices(side)
            count = len(range(start, stop, step))
            forward = slice(None)
            if step < 0 and count:
                start, step = start + (count - 1) * step, -step
                forward = slice(None, None, -1)
                is_all = False
            axes.append((start if count else 0, count, abs(step)))
            sides.append(count)
            pick.append(forward)
        else:
            unique, inverse = np.unique(item, return_inverse=True)
            axes.append(unique.astype(np.uint64).tobytes())
            sides.append(unique.size)
            pick.append(inverse.reshape(item.shape))
            is_all = False
    return Plan(axes, tuple(sides), None if is_all else tuple(pick))


def _of_points(points: list[np.ndarray[Any, Any]]) -> Plan:
    coordinates = np.stack([each.reshape(-1) for each in points], axis=-1).astype(np.uint64)
    shape = points[0].shape
    back = None if len(shape) == 1 else (np.arange(coordinates.shape[0]).reshape(shape),)
    return Plan((len(points), coordinates.tobytes()), (coordinates.shape[0],), back)
