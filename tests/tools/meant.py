#!/usr/bin/env python3
"""meant.py PROGRAM.json GOT EXPECTED ...: is each GOT the file EXPECTED that serial.py made from a program?

Compares like h5same, and also chunk shapes and filters where the program sets them: a log of our writer records both.
"""
import argparse
import ctypes
import json
import sys

import h5py
import numpy as np
from h5py import h5s, h5t

import h5same
from serial import LIBRARY


def fill_value(dataset):
    """The unconverted fill value: h5py has no conversion for bitfields."""
    datatype, creation = dataset.id.get_type(), dataset.id.get_create_plist()
    value = ctypes.create_string_buffer(datatype.get_size())
    hid = ctypes.c_int64
    assert LIBRARY.H5Pget_fill_value(hid(creation.id), hid(datatype.id), value) >= 0
    return value.raw


class Comparer(h5same.Comparer):
    def __init__(self, got, expected, program, opts):
        super().__init__(got, expected, opts)
        steps = [next(iter(s.items())) for r in program["rounds"] for s in r["steps"]]
        self.chunks = {of["path"]: of["chunk"] for kind, of in steps if kind == "dataset"}

    @staticmethod
    def slab(d, s):
        """The elements of a slab unconverted, whatever their type: bytes in a last dimension."""
        datatype = d.id.get_type()
        size, space = datatype.get_size(), d.id.get_space()
        if s == ():
            shape, memory = d.shape, space
        else:
            shape = (len(range(*s[0].indices(d.shape[0]))),) + d.shape[1:]
            space.select_hyperslab((s[0].start,) + (0,) * (len(shape) - 1), shape)
            memory = h5s.create_simple(shape)
        out = np.zeros(shape + (size,), np.uint8)
        if out.size:
            d.id.read(memory, space, out, mtype=datatype)
        return out

    @staticmethod
    def attribute(on, name):
        """The unconverted value; the characters of a text."""
        stored = on.attrs.get_id(name)
        datatype = stored.get_type()
        if isinstance(datatype, h5t.TypeStringID) and datatype.is_variable_str():
            value = on.attrs[name]
            return value if isinstance(value, str) else list(value)
        out = np.zeros(stored.shape + (datatype.get_size(),), np.uint8)
        if out.size:
            stored.read(out, mtype=datatype)
        return out.tobytes()

    def attributes(self, where, g, e):
        if not self.same(where, "set of attributes", set(g.attrs), set(e.attrs)):
            return
        for name in sorted(e.attrs):
            at, gi, ei = f"{where}@{name}", g.attrs.get_id(name), e.attrs.get_id(name)
            if self.same_type(at, gi.get_type(), ei.get_type()) & self.same(at, "shape", gi.shape, ei.shape):
                self.same(at, "value", self.attribute(g, name), self.attribute(e, name))

    def dataset(self, where, g, e):
        ok = self.same_type(where, g.id.get_type(), e.id.get_type())
        ok &= self.same(where, "shape", g.shape, e.shape)
        self.same(where, "maxshape", g.maxshape, e.maxshape)
        gp, ep = g.id.get_create_plist(), e.id.get_create_plist()
        self.same(where, "filters", self.filters(gp), self.filters(ep))
        self.same(where, "fill value defined", gp.fill_value_defined(), ep.fill_value_defined())
        if ok:
            self.same(where, "fill value", fill_value(g), fill_value(e))
        if self.chunks[where]:
            self.same(where, "chunks", g.chunks, tuple(self.chunks[where]))
        if ok:
            self.data(where, g, e)


def main():
    names, bad = sys.argv[1:], 0
    opts = argparse.Namespace(as_logged=False, chunks=False, plist=False, no_data=False, most=20)
    for program, got, expected in zip(names[::3], names[1::3], names[2::3]):
        try:
            with open(program) as text, h5py.File(got, "r") as g, h5py.File(expected, "r") as e:
                comparer = Comparer(g, e, json.load(text), opts)
                root = h5py.h5o.get_info(e.id).addr
                comparer.group("/", g, e, {root: (h5py.h5o.get_info(g.id).addr, "/")})
                differences = comparer.diffs
        except OSError as error:
            print(f"cannot compare: {error}")
            differences = 1
        if differences:
            print(f"{got}: {differences} differences from {expected}")
            bad += 1
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
