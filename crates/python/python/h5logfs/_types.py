"""HDF5 datatypes as numpy types, and elements as numpy arrays.

The native module describes a datatype as nested tuples: the name of its class, the bytes of an element, and details.
"""

from __future__ import annotations

from typing import Any, Callable, Optional

import numpy as np

Described = tuple[Any, ...]


class Empty:
    """The content of a dataset or an attribute without a dataspace: a type without elements. It equals the
    `h5py.Empty` of the same type."""

    shape = None
    size = None

    def __init__(self, dtype: np.dtype[Any]) -> None:
        self.dtype = dtype

    def __eq__(self, other: object) -> bool:
        return getattr(other, "shape", ()) is None and bool(getattr(other, "dtype", None) == self.dtype)

    def __hash__(self) -> int:
        return hash(self.dtype)

    def __repr__(self) -> str:
        return f"h5logfs.Empty(dtype={self.dtype!r})"


def dtype(described: Described) -> np.dtype[Any]:
    """The numpy type. Elements of variable length are objects: `str`, or arrays."""
    kind, size = described[0], described[1]
    make = _MADE.get(kind)
    return make(described) if make else np.dtype(f"V{size}")


def is_text(described: Described) -> bool:
    """Whether an element is a text, of fixed or variable length."""
    return described[0] in ("text", "variable_text")


def is_variable(described: Described) -> bool:
    """Whether an element, or a part of it, has a variable length, so that its bytes are not all of it."""
    kind = described[0]
    if kind in ("variable_text", "variable_list"):
        return True
    if kind == "reference":
        return bool(described[2] == "region")
    if kind == "compound":
        return any(is_variable(member) for _, _, member in described[2])
    return kind == "array" and is_variable(described[2])


def from_values(described: Described, values: list[Any], shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """An array from the native module's plain values."""
    own = dtype(described)
    array = np.empty(len(values), own)
    for place, value in enumerate(values):
        array[place] = _converted(described, value)
    return array.reshape(shape + array.shape[1:])


def decoded(array: np.ndarray[Any, Any], padded: bool) -> np.ndarray[Any, Any]:
    """Texts of a fixed length as `str` objects, without padding."""
    texts = np.empty(array.shape, object)
    texts.reshape(-1)[:] = [_text(cut(each, padded)) for each in array.reshape(-1)]
    return texts


def cut(text: bytes, padded: bool) -> bytes:
    """A text of a fixed length without padding."""
    return (text.rstrip(b" ") if padded else text).split(b"\0", 1)[0]


def _text(text: bytes) -> str:
    return text.split(b"\0", 1)[0].decode("utf-8", "surrogateescape")


def _converted(described: Described, value: Any) -> Any:
    """A plain value as an element of an array of this type."""
    kind = described[0]
    if kind == "opaque":
        own = dtype(described)
        return value if own.kind == "V" else np.frombuffer(value, own)[0]
    if kind in ("text", "bitfield", "integer", "float", "extended", "enumeration"):
        return value
    if kind == "variable_text":
        return _text(value)
    if kind == "variable_list":
        return from_values(described[2], value, (len(value),))
    if kind == "compound":
        parts = tuple(_converted(member, part) for (_, _, member), part in zip(described[2], value))
        return complex(*parts) if _is_complex(described) else parts
    if kind == "array":
        return from_values(described[2], value, described[3])
    if kind == "reference":
        return value or 0
    if kind == "complex":
        return complex(*value)
    return np.void(value)


def _number(code: str) -> Callable[[Described], np.dtype[Any]]:
    return lambda described: np.dtype(f"{'>' if described[-1] else '<'}{code}{described[1]}")


def is_number(described: Described) -> bool:
    """Whether numpy has the number type of a description."""
    return dtype(described).kind != "V"


def _extended(described: Described) -> np.dtype[Any]:
    """The extended floats of an x87 as numpy's long double where that is the same type; else as bytes."""
    _, size, big = described
    own = np.dtype(np.longdouble)
    is_own = not big and own.itemsize == size and np.finfo(own).nmant == 63
    return own if is_own else np.dtype(f"V{size}")


def _opaque(described: Described) -> np.dtype[Any]:
    """Bytes, or the type of numpy that h5py has noted in the tag, as for `datetime64`."""
    _, size, tag = described
    marker, _, name = tag.partition(":")
    if marker == "NUMPY":
        found: np.dtype[Any]
        try:
            found = np.dtype(name)
        except (TypeError, ValueError, SyntaxError):
            found = np.dtype(object)
        if found.itemsize == size and not found.hasobject and found.subdtype is None and found.names is None:
            return np.dtype(found, metadata={"h5py_opaque": True})
    return np.dtype(f"V{size}")


def _integer(described: Described) -> np.dtype[Any]:
    _, size, signed, big = described
    return np.dtype(f"{'>' if big else '<'}{'i' if signed else 'u'}{size}")


def _enumeration(described: Described) -> np.dtype[Any]:
    _, _, base, members = described
    own = dtype(base)
    values = {name: int(np.frombuffer(value, own)[0]) for name, value in members}
    # h5py writes bool as this enumeration.
    if own.itemsize == 1 and values == {"FALSE": 0, "TRUE": 1}:
        return np.dtype(bool)
    # h5py looks for the names here.
    return np.dtype(own, metadata={"enum": values})


def _is_complex(described: Described) -> bool:
    """Whether a compound is what h5py writes for complex numbers."""
    parts = [(name, member[0], member[1], offset) for name, offset, member in described[2]]
    half = described[1] // 2
    kind = "float" if half in (4, 8) else "extended"
    if kind == "extended" and not is_number(described[2][0][2]):
        return False
    return parts == [("r", kind, half, 0), ("i", kind, half, half)]


def _compound(described: Described) -> np.dtype[Any]:
    _, size, members = described
    if _is_complex(described):
        return np.dtype(f"{dtype(members[0][2]).byteorder}c{size}")
    names = [name for name, _, _ in members]
    formats = [dtype(member) for _, _, member in members]
    if is_variable(described):
        # The size of an object differs from that of its reference in the file.
        return np.dtype(list(zip(names, formats)))
    offsets = [offset for _, offset, _ in members]
    return np.dtype({"names": names, "formats": formats, "offsets": offsets, "itemsize": size})


def _array(described: Described) -> np.dtype[Any]:
    return np.dtype((dtype(described[2]), described[3]))


def _complex(described: Described) -> np.dtype[Any]:
    base = dtype(described[2])
    return np.dtype(f"{base.byteorder}c{described[1]}") if base.itemsize in (4, 8) else np.dtype((base, 2))


_MADE: dict[str, Callable[[Described], np.dtype[Any]]] = {
    "integer": _integer,
    "float": _number("f"),
    "extended": _extended,
    "bitfield": _number("u"),
    "opaque": _opaque,
    "text": lambda described: np.dtype(f"S{described[1]}"),
    "variable_text": lambda _: np.dtype(object),
    "variable_list": lambda _: np.dtype(object),
    "reference": lambda described: np.dtype("<u8" if described[2] in ("object", "region") else f"V{described[1]}"),
    "enumeration": _enumeration,
    "compound": _compound,
    "array": _array,
    "complex": _complex,
}


def fill_value(described: Described, stored: Optional[bytes]) -> Any:
    """The fill value as an element of an array; HDF5's default if the file has none."""
    own = dtype(described)
    if is_variable(described):
        return "" if described[0] == "variable_text" else None
    if stored is None:
        return np.zeros((), own)[()]
    return np.frombuffer(stored, own, count=1)[0]
