"""Parts and other forms of a dataset's elements, as h5py has them: `fields`, `astype`, `asstr`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Optional

import numpy as np
from numpy.lib.recfunctions import repack_fields

if TYPE_CHECKING:
    from ._arrays import Array


class Converted:
    """An array whose elements are converted when they are read."""

    def __init__(self, array: Array, dtype: np.dtype[Any], convert: Callable[[Any], Any]) -> None:
        self._array, self._dtype, self._convert = array, dtype, convert

    @property
    def shape(self) -> Any:
        """The extent."""
        return self._array.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the converted elements."""
        return self._dtype

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return self._array.ndim

    @property
    def size(self) -> Any:
        """The number of elements."""
        return self._array.size

    def __getitem__(self, key: Any) -> Any:
        return self._convert(self._array[key])

    def __array__(self, dtype: Any = None, copy: Optional[bool] = None) -> np.ndarray[Any, Any]:
        if copy is False:
            raise ValueError("the elements of a log are in no array yet: an array of them is a copy")
        found = np.asarray(self[...])
        return found if dtype is None else found.astype(dtype, copy=False)

    def __len__(self) -> int:
        return len(self._array)

    def __iter__(self) -> Iterator[Any]:
        for row in range(len(self)):
            yield self[row]


def fields_of(found: Any, names: list[str]) -> Any:
    """Members of elements: of one member its values, of several a structure of them."""
    if len(names) == 1:
        return found[names[0]]
    several = repack_fields(np.asarray(found)[names])
    return several[()] if several.ndim == 0 and not isinstance(found, np.ndarray) else several


def cast(found: Any, dtype: np.dtype[Any]) -> Any:
    """Numbers as another type, as HDF5 converts them: a number beyond the limits of an integer becomes the nearest limit, NaN
    becomes 0. What numpy has no numbers for is converted as by numpy."""
    array = np.asarray(found)
    if dtype.kind in "iu" and array.dtype.kind in "iuf":
        cast = _to_integer(array, dtype)
    else:
        cast = array.astype(dtype)
    return cast if isinstance(found, np.ndarray) else cast[()]


def _to_integer(array: np.ndarray[Any, Any], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    limits = np.iinfo(dtype)
    if array.dtype.kind != "f":
        own = np.iinfo(array.dtype)
        return array.clip(max(limits.min, own.min), min(limits.max, own.max)).astype(dtype)
    # A limit of 64 bits has no exact value in floating point: what reaches it is not converted, but replaced.
    low, high = array <= limits.min, array >= limits.max
    inside = np.where(low | high | np.isnan(array), 0, array).astype(dtype)
    return np.where(low, dtype.type(limits.min), np.where(high, dtype.type(limits.max), inside)).astype(dtype)


def decode(found: Any, encoding: str, errors: str) -> Any:
    """Texts of a fixed length as `str`."""
    if isinstance(found, bytes):
        return found.split(b"\0", 1)[0].decode(encoding, errors)
    array = np.asarray(found)
    if array.dtype.kind != "S":
        return found
    texts = np.empty(array.shape, object)
    texts.reshape(-1)[:] = [text.decode(encoding, errors) for text in array.reshape(-1).tolist()]
    return texts
