"""Writes like Fortran programs, with the first index fastest: the part of the Python bindings that adios.py needs, over
ADIOS2's C interface, which alone sets the order. Dimensions are given as in numpy, and passed in reverse."""
import ctypes
import os

import adios2
import numpy as np

COLUMN_MAJOR = 1
TYPES = {"f4": 1, "f8": 2, "c8": 3, "c16": 4, "i1": 5, "i2": 6, "i4": 7, "i8": 8, "u1": 9, "u2": 10, "u4": 11, "u8": 12}
TEXT = 0
#: Values of adios2_c_types.h.
MODES = {adios2.bindings.Mode.Write: 1, adios2.bindings.Mode.Append: 3}
SYNC = 5

_library = ctypes.CDLL(os.path.join(os.path.dirname(adios2.__file__), "libadios2_c.so"))


def call(name, *arguments, gives=ctypes.c_int):
    """Calls a function. Objects of the library are pointers. Raises RuntimeError on failure."""
    function = getattr(_library, f"adios2_{name}")
    function.restype = gives
    got = function(*arguments)
    if (gives is ctypes.c_int and got) or (gives is ctypes.c_void_p and not got):
        raise RuntimeError(f"adios2_{name} failed")
    return None if gives is ctypes.c_int else ctypes.c_void_p(got)


def dims(sides):
    """Sizes in Fortran order; None for a value."""
    sides = [int(side) for side in reversed(sides)]
    return (ctypes.c_size_t * len(sides))(*sides) if sides else None


def type_of(values):
    return TYPES[values.dtype.str[1:]]


def pointer(values):
    return values.ctypes.data_as(ctypes.c_void_p)


class ADIOS:
    def __init__(self):
        self.handle = call("init_serial", gives=ctypes.c_void_p)

    def DeclareIO(self, name):
        return IO(call("declare_io_order", self.handle, name.encode(), COLUMN_MAJOR, gives=ctypes.c_void_p))


class IO:
    def __init__(self, handle):
        self.handle = handle

    def SetEngine(self, name):
        call("set_engine", self.handle, name.encode())

    def Open(self, path, mode):
        return Engine(call("open", self.handle, path.encode(), MODES[mode], gives=ctypes.c_void_p))

    def DefineAttribute(self, name, value, *_):
        if isinstance(value, str):
            call("define_attribute", self.handle, name.encode(), TEXT, value.encode(), gives=ctypes.c_void_p)
        elif isinstance(value, list):
            texts = (ctypes.c_char_p * len(value))(*(text.encode() for text in value))
            call("define_attribute_array", self.handle, name.encode(), TEXT, texts, ctypes.c_size_t(len(value)),
                 gives=ctypes.c_void_p)
        else:
            call("define_attribute_array", self.handle, name.encode(), type_of(value), pointer(value),
                 ctypes.c_size_t(len(value)), gives=ctypes.c_void_p)

    def DefineVariable(self, name, values=None, shape=(), start=(), count=(), _constant=False):
        kind = TEXT if values is None else type_of(values)
        number = max(len(shape), len(count))
        return Variable(call("define_variable", self.handle, name.encode(), kind, ctypes.c_size_t(number), dims(shape),
                             dims(start), dims(count), 0, gives=ctypes.c_void_p))


class Variable:
    def __init__(self, handle):
        self.handle = handle

    def SetShape(self, shape):
        call("set_shape", self.handle, ctypes.c_size_t(len(shape)), dims(shape))

    def SetSelection(self, selection):
        start, count = selection
        call("set_selection", self.handle, ctypes.c_size_t(len(count)), dims(start), dims(count))


class Engine:
    def __init__(self, handle):
        self.handle = handle

    def BeginStep(self):
        call("begin_step", self.handle, 0, ctypes.c_float(-1), ctypes.byref(ctypes.c_int()))

    def Put(self, variable, values, _mode=None):
        data = values.encode() if isinstance(values, str) else pointer(np.ascontiguousarray(values))
        call("put", self.handle, variable.handle, data, SYNC)

    def PerformDataWrite(self):
        call("perform_data_write", self.handle)

    def EndStep(self):
        call("end_step", self.handle)

    def Close(self):
        call("close", self.handle)
