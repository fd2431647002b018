#!/usr/bin/env python3
"""damaged.py: what do readers see of damaged logs that they do not see of good ones?

Each line of standard input is a request in JSON, each line of standard output its answer, a list of differences:

* {"good": FILE, "bad": FILE}: two views. What could not be read of GOOD counts for nothing.
* {"good": FILE, "bad": FILE, "native": true}: two logs themselves, with all that libhdf5 knows of them but the
  bytes of the log: is there any difference?

A difference has `object`, and in `what`: `failed` (it cannot be read), `missing`, `extra`, `kind` (of a link or an
object), `attributes`, `incomplete` (BAD has the attribute that says what it lacks, which is no other difference), `type`, `shape`, or `data`, with the `elements` that differ, by their numbers in row-major
order, and in `values` those of them that are not zeros now. Where a dataset cannot be read as a whole it is read by the
indices of its first dimension: one difference says `failed`, another one what the others have.
"""
import json
import sys

import h5py
import numpy as np

#: The attribute of a root about missing parts.
INCOMPLETE = "_h5logfs_incomplete"
#: Limit of the indices read one by one.
MOST_INDICES = 64
#: Bytes of a dataset that are read: damage may enlarge it to any size.
MOST_BYTES = 16 << 20


def plain(file, value):
    """A value in a form comparable across files: references become paths."""
    if isinstance(value, h5py.RegionReference):
        return "region" if value else None
    if isinstance(value, h5py.Reference):
        return file[value].name if value else None
    if isinstance(value, h5py.Empty):
        return "empty"
    if isinstance(value, np.ndarray):
        if value.dtype.hasobject:
            return [plain(file, v) for v in value.reshape(-1)]
        return value.tobytes()
    if isinstance(value, np.void) and value.dtype.names:
        return [plain(file, value[n]) for n in value.dtype.names]
    if isinstance(value, np.generic):
        return value.tobytes()
    return value


def attributes(file, on):
    found = {}
    for name in on.attrs.keys():
        attribute = on.attrs.get_id(name)
        found[name] = (attribute.get_type().encode(), attribute.shape, plain(file, on.attrs[name]))
    return found


def count(shape):
    return int(np.prod(shape, dtype=np.int64))


def elements(dataset, at):
    """The elements of one index, or of all, unconverted where h5py allows it."""
    if dataset.dtype.kind == "V" and not dataset.dtype.names:
        # h5py has no conversion for opaque types with a tag.
        out = np.empty(dataset.shape, dataset.dtype)
        dataset.id.read(h5py.h5s.ALL, h5py.h5s.ALL, out, mtype=dataset.id.get_type())
        return out[at]
    return np.asarray(dataset[at])


class Dataset:
    def __init__(self, file, dataset, native):
        # In HDF5's encoding: numpy does not distinguish all types.
        self.type, self.shape, self.maximum = dataset.id.get_type().encode(), dataset.shape, dataset.maxshape
        self.whole, self.parts, self.layout = None, {}, None
        if native:
            self.layout = self.stored(file, dataset)
            if "_LOG" in dataset.name or dataset.name in ("/_metadata_log", "/_data_log"):
                return
        if dataset.shape is None:
            return
        if np.prod(dataset.shape, dtype=float) * dataset.dtype.itemsize > MOST_BYTES:
            # No good dataset is so large: there is nothing to compare.
            self.look_at_corners(dataset)
            return
        try:
            self.whole = self.comparable(file, elements(dataset, ()))
        except Exception:  # noqa: BLE001 - all that matters is that it is no value
            if dataset.shape and dataset.shape[0] <= MOST_INDICES and not native:
                self.by_indices(file, dataset)

    @staticmethod
    def stored(file, dataset):
        creation = dataset.id.get_create_plist()
        fill = np.zeros((), dataset.dtype)
        if not dataset.dtype.hasobject and creation.fill_value_defined() == h5py.h5d.FILL_VALUE_USER_DEFINED:
            creation.get_fill_value(fill)
        filters = [creation.get_filter(n) for n in range(creation.get_nfilters())]
        return repr(filters), dataset.id.get_offset(), dataset.chunks, plain(file, fill)

    @staticmethod
    def comparable(file, values):
        return plain(file, values) if values.dtype.hasobject else np.ascontiguousarray(values)

    @staticmethod
    def look_at_corners(dataset):
        for corner in ((0,) * len(dataset.shape), tuple(n - 1 for n in dataset.shape)):
            try:
                dataset[corner]
            except Exception:  # noqa: BLE001
                pass

    def by_indices(self, file, dataset):
        for index in range(dataset.shape[0]):
            try:
                self.parts[index] = self.comparable(file, elements(dataset, index))
            except Exception:  # noqa: BLE001
                pass


def read(path, native=False):
    """Everything readable of a file, by path; None for the unreadable."""
    found = {}
    try:
        file = h5py.File(path, "r")
    except Exception:  # noqa: BLE001
        return {"/": None}
    with file:
        walk(file, file, "/", found, {}, native)
    return found


def walk(file, group, where, found, seen, native):
    try:
        links = {name: group.get(name, getlink=True) for name in group.keys()}
        found[where] = ("group", attributes(file, group), None)
    except Exception:  # noqa: BLE001
        found[where] = None
        return
    for name, link in links.items():
        path = where.rstrip("/") + "/" + name
        found[path] = None
        if isinstance(link, h5py.SoftLink):
            found[path] = ("soft " + link.path, None, None)
            continue
        if isinstance(link, h5py.ExternalLink):
            found[path] = ("external " + link.filename + " " + link.path, None, None)
            continue
        try:
            item = group[name]
            # H5Oget_info would walk a whole chunk index, which damage may enlarge at will.
            key = h5py.h5g.get_objinfo(item.id).objno
        except Exception:  # noqa: BLE001
            continue
        if key in seen:
            found[path] = ("same as " + seen[key], None, None)
            continue
        seen[key] = path
        if isinstance(item, h5py.Group):
            walk(file, item, path, found, seen, native)
            continue
        try:
            if isinstance(item, h5py.Dataset):
                found[path] = ("dataset", attributes(file, item), Dataset(file, item, native))
            else:
                found[path] = ("type " + item.id.encode().hex(), attributes(file, item), None)
        except Exception:  # noqa: BLE001
            pass


def compare_data(path, good, bad):
    if good.type != bad.type or good.layout != bad.layout:
        yield {"object": path, "what": "type"}
    elif (good.shape, good.maximum) != (bad.shape, bad.maximum):
        yield {"object": path, "what": "shape"}
    elif good.whole is None:
        return
    elif bad.whole is not None:
        yield from differing(path, good.whole, bad.whole, 0, count(good.shape))
    else:
        yield {"object": path, "what": "failed"}
        for index, part in bad.parts.items():
            if isinstance(good.whole, np.ndarray):
                own = count(good.shape[1:])
                yield from differing(path, good.whole[index], part, index * own, own)


def differing(path, good, bad, first, number):
    """Differing elements, which may be arrays themselves."""
    if not isinstance(good, np.ndarray):
        numbers = [n for n, (g, b) in enumerate(zip(good, bad)) if g != b] if isinstance(good, list) else [0]
        if good != bad:
            yield {"object": path, "what": "data", "elements": numbers, "values": numbers}
        return
    if not number:
        return
    rows = [np.frombuffer(np.ascontiguousarray(v).tobytes(), "u1").reshape(number, -1) for v in (good, bad)]
    numbers = np.nonzero((rows[0] != rows[1]).any(axis=1))[0]
    if len(numbers):
        values = numbers[rows[1][numbers].any(axis=1)]
        yield {"object": path, "what": "data", "elements": [first + int(n) for n in numbers],
               "values": [first + int(n) for n in values]}


def others(attrs):
    return attrs and {name: value for name, value in attrs.items() if name != INCOMPLETE}


def compare(good, bad):
    if good.get("/") is None:
        return
    if bad.get("/") is None:
        yield {"object": "/", "what": "failed"}
        return
    for path, (kind, attrs, data) in ((p, v) for p, v in good.items() if v is not None):
        if path not in bad:
            yield {"object": path, "what": "missing"}
            continue
        if bad[path] is None:
            yield {"object": path, "what": "failed"}
            continue
        other_kind, other_attrs, other_data = bad[path]
        if kind != other_kind:
            yield {"object": path, "what": "kind"}
            continue
        if path == "/" and INCOMPLETE in other_attrs:
            yield {"object": path, "what": "incomplete"}
        if others(attrs) != others(other_attrs):
            yield {"object": path, "what": "attributes"}
        if data is not None:
            yield from compare_data(path, data, other_data)
    for path in bad.keys() - good.keys():
        yield {"object": path, "what": "extra"}


def main():
    known = {}
    for line in sys.stdin:
        request = json.loads(line)
        native = request.get("native", False)
        key = (request["good"], native)
        if key not in known:
            known = {key: read(*key)}
        differences = list(compare(known[key], read(request["bad"], native)))
        print(json.dumps(differences), flush=True)


if __name__ == "__main__":
    main()
