"""The dimensions of a dataset, with their labels and scales, as h5py has them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Union, overload

import numpy as np

if TYPE_CHECKING:
    from ._arrays import Array


class Dimension(Mapping[str, Any]):
    """A dimension: a mapping from the names of its scales to them. A number picks a scale, too."""

    def __init__(self, label: str, scales: list[Array]) -> None:
        self._label, self._scales = label, scales

    @property
    def label(self) -> str:
        """The label; "" without one."""
        return self._label

    def __getitem__(self, key: Union[str, int]) -> Array:
        if isinstance(key, str):
            for name, scale in zip(self, self._scales):
                if name == key:
                    return scale
            raise KeyError(key)
        return self._scales[key]

    def __iter__(self) -> Iterator[str]:
        return (str(scale.attrs.get("NAME", "")) for scale in self._scales)

    def __len__(self) -> int:
        return len(self._scales)

    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return f"<h5logfs.Dimension {self._label!r} with the scales {list(self)}>"


class Dimensions(Sequence[Dimension]):
    """The dimensions of an array."""

    def __init__(self, array: Array) -> None:
        self._array = array

    @overload
    def __getitem__(self, number: int) -> Dimension: ...
    @overload
    def __getitem__(self, number: slice) -> Sequence[Dimension]: ...
    def __getitem__(self, number: Union[int, slice]) -> Union[Dimension, Sequence[Dimension]]:
        if isinstance(number, slice):
            return [self[each] for each in range(len(self))[number]]
        at = range(len(self))[number]
        attributes = self._array.attrs
        labels = _along(attributes.get("DIMENSION_LABELS"), at)
        paths = _along(attributes.get("DIMENSION_LIST"), at)
        scales = [self._array.parent[path] for path in ([] if paths is None else paths) if path is not None]
        return Dimension("" if labels is None else str(labels), scales)

    def __len__(self) -> int:
        return self._array.ndim

    def __repr__(self) -> str:
        return f"<h5logfs.Dimensions {[dimension.label for dimension in self]}>"


def _along(attribute: Any, dimension: int) -> Any:
    """The element of a dimension in an attribute with one for each."""
    if not isinstance(attribute, np.ndarray) or attribute.ndim != 1 or attribute.size <= dimension:
        return None
    return attribute[dimension]
