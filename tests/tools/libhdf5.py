"""Functions of a libhdf5 that h5py does not offer. The process needs no h5py.

`lib` is h5py's own library, which is loaded at its first use.
"""
import ctypes
import glob
import importlib.util
import os

I = ctypes.c_int64


class Error(ctypes.Structure):
    """H5E_error2_t."""
    _fields_ = [("cls", I), ("major", I), ("minor", I), ("line", ctypes.c_uint),
                ("func", ctypes.c_char_p), ("file", ctypes.c_char_p), ("desc", ctypes.c_char_p)]


VISIT = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_uint, ctypes.POINTER(Error), ctypes.c_void_p)


def load(path):
    """The library at a path, with the types of some functions."""
    library = ctypes.CDLL(path)
    text = ctypes.c_char_p
    for name, arguments in (
        ("H5Pcreate", [I]),
        ("H5Pclose", [I]),
        ("H5Fopen", [text, ctypes.c_uint, I]),
        ("H5Fcreate", [text, ctypes.c_uint, I, I]),
        ("H5Fclose", [I]),
        ("H5Fget_vfd_handle", [I, I, ctypes.c_void_p]),
        ("H5Eset_auto2", [I, ctypes.c_void_p, ctypes.c_void_p]),
        ("H5Ewalk2", [I, ctypes.c_int, VISIT, ctypes.c_void_p]),
    ):
        function = getattr(library, name)
        function.argtypes = arguments
        function.restype = I if name in ("H5Pcreate", "H5Fopen", "H5Fcreate") else ctypes.c_int
    # Older versions lack them.
    for name, arguments in (("H5Pset_driver_by_name", [I, text, text]), ("H5Fdelete", [text, I])):
        if hasattr(library, name):
            getattr(library, name).argtypes = arguments
    if library.H5open() < 0:
        raise SystemExit("the library does not start")
    return library


def __getattr__(name):
    if name != "lib":
        raise AttributeError(name)
    # It has its own name, and lies beside h5py.
    packages = os.path.dirname(os.path.dirname(importlib.util.find_spec("h5py").origin))
    (path,) = glob.glob(os.path.join(packages, "h5py.libs", "libhdf5-*.so*"))
    globals()["lib"] = load(path)
    return globals()["lib"]


def own():
    """h5py's library."""
    return globals().get("lib") or __getattr__("lib")


def access_list():
    """A new file access property list."""
    return own().H5Pcreate(I.in_dll(own(), "H5P_CLS_FILE_ACCESS_ID_g").value)


def errors(library=None):
    """The error stack, innermost first."""
    said = []

    @VISIT
    def visit(_number, error, _data):
        said.append((error.contents.desc or b"").decode(errors="replace"))
        return 0
    (library or own()).H5Ewalk2(0, 0, visit, None)
    return said


def reason(library):
    """The innermost message of the error stack, in one line."""
    said = errors(library)
    return said[0].replace("\n", " ") if said else "nothing on the error stack"
