"""Functions of h5py's libhdf5 that h5py does not offer. The process needs no h5py."""
import ctypes
import glob
import importlib.util
import os


def loaded():
    """The library, which has its own name and lies beside h5py."""
    packages = os.path.dirname(os.path.dirname(importlib.util.find_spec("h5py").origin))
    (path,) = glob.glob(os.path.join(packages, "h5py.libs", "libhdf5-*.so*"))
    return ctypes.CDLL(path)


lib = loaded()
for name in ("H5Pcreate", "H5Fopen", "H5Fcreate"):
    getattr(lib, name).restype = ctypes.c_int64
lib.H5Pcreate.argtypes = [ctypes.c_int64]
lib.H5Pclose.argtypes = [ctypes.c_int64]
lib.H5Pset_driver_by_name.argtypes = [ctypes.c_int64, ctypes.c_char_p, ctypes.c_char_p]
lib.H5Fopen.argtypes = [ctypes.c_char_p, ctypes.c_uint, ctypes.c_int64]
lib.H5Fcreate.argtypes = [ctypes.c_char_p, ctypes.c_uint, ctypes.c_int64, ctypes.c_int64]
lib.H5Fdelete.argtypes = [ctypes.c_char_p, ctypes.c_int64]
lib.H5Fclose.argtypes = [ctypes.c_int64]
lib.H5Fget_vfd_handle.argtypes = [ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p]
lib.H5open()


def access_list():
    """A new file access property list."""
    return lib.H5Pcreate(ctypes.c_int64.in_dll(lib, "H5P_CLS_FILE_ACCESS_ID_g").value)


class Error(ctypes.Structure):
    """H5E_error2_t."""
    _fields_ = [("cls", ctypes.c_int64), ("major", ctypes.c_int64), ("minor", ctypes.c_int64), ("line", ctypes.c_uint),
                ("func", ctypes.c_char_p), ("file", ctypes.c_char_p), ("desc", ctypes.c_char_p)]


VISIT = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_uint, ctypes.POINTER(Error), ctypes.c_void_p)
lib.H5Eset_auto2.argtypes = [ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p]
lib.H5Ewalk2.argtypes = [ctypes.c_int64, ctypes.c_int, VISIT, ctypes.c_void_p]


def errors():
    """The error stack, innermost first."""
    said = []

    @VISIT
    def visit(_number, error, _data):
        said.append(error.contents.desc.decode())
        return 0
    lib.H5Ewalk2(0, 0, visit, None)
    return said
