#!/usr/bin/env python3
"""opened.py WAY LIBRARY PATH…: prints the version of a libhdf5, opens files with it, twice each, and prints a line for each:
the content of its root group and the bytes of the dataset /d, or why it cannot be opened.

WAY default: by the default property list. listed: by a list that names the connector, after a query whether the file is
accessible; and then once more by the default one. Needs only ctypes.
"""
import ctypes
import os
import sys

import libhdf5

I = ctypes.c_int64
POINTER = ctypes.c_void_p


MEMBER = ctypes.CFUNCTYPE(ctypes.c_int, I, ctypes.c_char_p, POINTER, POINTER)


def load(path):
    lib = libhdf5.load(path)
    for name, result, arguments in (
        ("H5Dopen2", I, [I, ctypes.c_char_p, I]),
        ("H5Dread", ctypes.c_int, [I, I, I, I, I, POINTER]),
        ("H5Dclose", ctypes.c_int, [I]),
    ):
        function = getattr(lib, name)
        function.restype, function.argtypes = result, arguments
    lib.H5Eset_auto2(0, None, None)
    return lib


def members(lib, file):
    names = []

    @MEMBER
    def member(_group, name, _info, _data):
        names.append(name.decode())
        return 0
    # HDF5 1.10 has one function of this name, later versions two with numbers.
    iterate = getattr(lib, "H5Literate2", None) or lib.H5Literate
    iterate.argtypes = [I, ctypes.c_int, ctypes.c_int, POINTER, MEMBER, POINTER]
    if iterate(file, 0, 0, None, member, None) < 0:
        return libhdf5.reason(lib)
    if "d" not in names:
        return " ".join(names)
    dataset = lib.H5Dopen2(file, b"d", 0)
    room = ctypes.create_string_buffer(64)
    byte = I.in_dll(lib, "H5T_NATIVE_UCHAR_g").value
    read = lib.H5Dread(dataset, byte, 0, 0, 0, room)
    said = room.value.decode() if read >= 0 else libhdf5.reason(lib)
    lib.H5Dclose(dataset)
    return " ".join(names) + f" ({said})"


def opened(lib, path, fapl):
    file = lib.H5Fopen(path.encode(), 0, fapl)
    if file < 0:
        return "refused: " + libhdf5.reason(lib)
    said = members(lib, file)
    if lib.H5Fclose(file) < 0:
        said += ", not closed: " + libhdf5.reason(lib)
    return said


def connector_list(lib):
    """A file access property list that names the connector."""
    lib.H5Pcreate.restype, lib.H5Pcreate.argtypes = I, [I]
    lib.H5VLregister_connector_by_name.restype = I
    lib.H5VLregister_connector_by_name.argtypes = [ctypes.c_char_p, I]
    lib.H5Pset_vol.argtypes = [I, I, POINTER]
    lib.H5Fis_accessible.argtypes = [ctypes.c_char_p, I]
    fapl = lib.H5Pcreate(I.in_dll(lib, "H5P_CLS_FILE_ACCESS_ID_g").value)
    if lib.H5Pset_vol(fapl, lib.H5VLregister_connector_by_name(b"h5logfs", 0), None) < 0:
        raise SystemExit(f"no connector: {libhdf5.reason(lib)}")
    return fapl


def main(way, library, *paths):
    lib = load(library)
    version = (ctypes.c_uint * 3)()
    lib.H5get_libversion(*(ctypes.byref(version, at * ctypes.sizeof(ctypes.c_uint)) for at in range(3)))
    print(*version, sep=".", flush=True)
    fapl = connector_list(lib) if way == "listed" else 0
    for path in paths:
        if way == "listed":
            lib.H5Fis_accessible(path.encode(), fapl)
            first, again = opened(lib, path, fapl), opened(lib, path, 0)
        else:
            first, again = opened(lib, path, 0), opened(lib, path, 0)
        print(os.path.basename(path), first if first == again else f"{first}; then {again}", sep=": ", flush=True)
    if lib.H5close() < 0:
        raise SystemExit("the library does not end")


main(*sys.argv[1:])
