"""Arrays without HDF5, compared with what h5py reads of the log's canonical file."""

from __future__ import annotations

import random
from pathlib import Path

import h5logfs
import h5py
import numpy as np
import pytest
from conftest import ROOT, logs, options_of


def plain(value):
    """A value of h5py in the form of this package: texts as str, references as 0 or not."""
    if isinstance(value, bytes):
        return value.split(b"\0", 1)[0].decode("utf-8", "surrogateescape")
    if isinstance(value, np.ndarray) and value.dtype.kind == "S":
        return np.array([plain(each) for each in value.reshape(-1).tolist()], object).reshape(value.shape)
    if isinstance(value, np.ndarray) and value.dtype.kind == "O":
        found = np.empty(value.shape, object)
        found.reshape(-1)[:] = [plain(each) for each in value.reshape(-1)]
        return found
    return value


def same(ours, theirs):
    """Whether two values are equal, to the last bit."""
    ours, theirs = plain(ours), plain(theirs)
    if isinstance(theirs, (h5py.Reference, h5py.RegionReference)):
        return True
    ours, theirs = np.asarray(ours), np.asarray(theirs)
    if ours.shape != theirs.shape:
        return False
    if theirs.dtype.kind == "O":
        return all(same(a, b) for a, b in zip(ours.reshape(-1), theirs.reshape(-1)))
    if h5py.check_ref_dtype(theirs.dtype):
        return True
    return ours.dtype == theirs.dtype and ours.tobytes() == theirs.tobytes()


def random_part(rng, side):
    """A part of an index that h5py takes, too: lists must ascend, and steps be positive."""
    kind = rng.choice(["all", "slice", "slice", "number", "list"])
    if side == 0 or kind == "all":
        return slice(None)
    if kind == "number":
        return rng.randrange(-side, side)
    if kind == "slice":
        start = rng.randrange(side)
        return slice(start, rng.randrange(start, side + 1), rng.choice([1, 1, 2, 7]))
    return sorted(rng.sample(range(side), rng.randrange(1, min(side, 9) + 1)))


def random_key(rng, shape):
    if shape and rng.random() < 0.15 and 0 < np.prod(shape) < 100_000:
        return np.array([rng.random() < 0.1 for _ in range(int(np.prod(shape)))]).reshape(shape)
    parts = [random_part(rng, side) for side in shape]
    lists = [place for place, part in enumerate(parts) if isinstance(part, list)]
    for place in lists[1:]:
        parts[place] = slice(None)
    return tuple(parts)


def outcome(read):
    """The result of a read, or its failure."""
    try:
        return read()
    except OSError:
        return OSError


@pytest.mark.parametrize("log", logs(), ids=lambda log: str(log.relative_to(ROOT)))
def test_every_selection_is_what_h5py_reads(log: Path) -> None:
    options = options_of(log)
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    try:
        mine = h5logfs.Log(log, **options)
        canonical = h5py.File(h5logfs.open(log, **options))
    except (OSError, ValueError):
        return

    def compare(name, theirs):
        if isinstance(theirs, h5py.Datatype):
            return
        ours = mine[name]
        assert list(ours.attrs) == list(theirs.attrs), name
        for key in theirs.attrs:
            value = theirs.attrs[key]
            if isinstance(value, h5py.Empty):
                assert ours.attrs[key] == value, (name, key)
            elif not refers(theirs.attrs.get_id(key).dtype):
                assert same(ours.attrs[key], value), (name, key, ours.attrs[key], value)
        if isinstance(theirs, h5py.Group):
            assert list(ours) == [n for n in theirs if isinstance(theirs.get(n), (h5py.Group, h5py.Dataset))], name
            items = [(each, repr(item)) for each, item in ours.items()]
            assert items == [(each, repr(ours[each])) for each in ours], name
            assert [repr(item) for item in ours.values()] == [item for _, item in items], name
        else:
            compare_elements(name, ours, theirs)

    def compare_elements(name, ours, theirs):
        if theirs.shape is None:
            assert (ours.shape, ours.size, ours.ndim, ours.nbytes) == (None, None, 0, 0), name
            assert ours[()] == ours[...] == theirs[()], name
            return
        assert (ours.shape, ours.chunks, ours.maxshape) == (theirs.shape, theirs.chunks, theirs.maxshape), name
        if theirs.dtype.kind != "O":
            assert same(ours.fillvalue, theirs.fillvalue), name
        keys = [...] + [random_key(rng, theirs.shape) for _ in range(12)]
        for key in keys:
            threads = rng.choice([1, 2, 3])
            wanted = outcome(lambda: theirs[key])
            found = outcome(lambda: ours.read(key, threads=threads))
            if wanted is OSError or refers(theirs.dtype):
                # HDF5 reads whole chunks, and so fails where neighbouring elements are damaged.
                continue
            assert found is not OSError, (name, key)
            # h5py picks along each dimension, numpy by its own rules.
            if isinstance(key, tuple):
                assert same(ours.oindex[key], wanted), (name, key)
            whole = outcome(lambda: theirs[...])
            assert same(found, wanted if whole is OSError else whole[key]), (name, key)

    with canonical:
        compare("/", canonical)
        canonical.visititems(compare)


def refers(dtype):
    """Whether elements are references, or lists or structures of them. Here they are numbers, in h5py objects."""
    if dtype.names:
        return any(refers(dtype[name]) for name in dtype.names)
    listed = h5py.check_vlen_dtype(dtype)
    return bool(h5py.check_ref_dtype(dtype)) or isinstance(listed, np.dtype) and refers(listed)
