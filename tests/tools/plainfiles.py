#!/usr/bin/env python3
"""plainfiles.py DIR: what HDF5 does with files that are no logs, line by line.

Works in the empty directory DIR. It prints the same with and without the file driver: everything that a program can see, except
the name of the driver.
"""
import ctypes
import fcntl
import hashlib
import io
import os
import re
import subprocess
import sys

import h5py
import numpy as np

import libhdf5


# Parts of messages that vary: times and addresses.
CHANGING = re.compile(r"time = .*?, (?=filename)|buf = 0x[0-9a-f]+, ", re.DOTALL)


def show(name, value):
    print(f"{name}: {value}", flush=True)


def tried(name, act):
    """The result, or the exception."""
    try:
        show(name, act())
    except Exception as e:  # noqa: BLE001 - the exception is what is asked for
        show(name, f"{type(e).__name__}({re.sub(CHANGING, '', str(e))})")


def state(path):
    with open(path, "rb") as f:
        content = f.read()
    return len(content), hashlib.sha256(content).hexdigest()


def fill(f):
    f["numbers"] = np.arange(5000.0)
    f.create_dataset("chunks", data=np.arange(90000).reshape(300, 300), chunks=(70, 50), compression="gzip")
    f.create_dataset("grown", (0, 7), "i4", maxshape=(None, 7), chunks=(16, 7))
    for n in range(40):
        f["grown"].resize(16 * (n + 1), 0)
        f["grown"][16 * n:] = n
    f["text"] = ["some", "text of", "any length"]
    f.attrs["note"] = "an attribute"
    f.create_group("group/below").attrs["x"] = np.ones(3000)
    del f["numbers"]
    f["other"] = np.arange(100)


def made():
    for libver in ("earliest", "v110", "latest"):
        for name, more in (("plain", {}), ("block", {"userblock_size": 1024}), ("paged", {"fs_strategy": "page"}),
                           ("aligned", {"alignment_threshold": 100, "alignment_interval": 4096})):
            path = f"{name}-{libver}.h5"
            with h5py.File(path, "w", libver=libver, **more) as f:
                fill(f)
                show(path, f.id.get_filesize())
            # libhdf5 writes uninitialized memory to the ends of pages.
            seen = os.path.getsize if name == "paged" else state
            show(path, seen(path))
            with h5py.File(path, "r+", libver=libver) as f:
                del f["chunks"]
                f["more"] = np.zeros(10)
            show(path + " again", seen(path))
            with h5py.File(path) as f:
                show(path, (f["grown"][...].sum(), list(f), f.userblock_size, f.id.get_filesize()))


def read():
    with h5py.File("plain-earliest.h5", "r+") as f:
        f["table"] = np.arange(250000).reshape(500, 500)
    with h5py.File("plain-earliest.h5", page_buf_size=0) as f:
        show("column", f["table"][:, 7].sum())
        show("points", f["table"][[3, 9, 400], 5].tolist())
        show("pieces", f["table"][1:400:3, 2:499:5].sum())
        handle = f.id.get_vfd_handle()
        show("handle", os.fstat(handle).st_ino == os.stat("plain-earliest.h5").st_ino)
    show("is_hdf5", [h5py.is_hdf5(p) for p in ("plain-earliest.h5", "block-latest.h5", "nothing", sys.argv[0], ".")])
    with h5py.File("paged-latest.h5", page_buf_size=1 << 20) as f:
        show("page buffer", f["grown"][...].sum())


def refused():
    with open("text", "w") as f:
        f.write("This is no HDF5 file.\n" * 100)
    open("empty", "w").close()
    with open("plain-latest.h5", "rb") as f, open("cut.h5", "wb") as to:
        to.write(f.read()[:-500])
    os.mkdir("directory")
    os.symlink("nowhere", "dangling")
    for path in ("nothing", "text", "empty", "cut.h5", "directory", "dangling", "nothing/below", "", "/dev/null",
                 "a" * 300, "plain-latest.h5/below"):
        # h5py asks for the driver's name in mode "a".
        for mode in ("r", "r+", "w-"):
            tried(f"open {path[:30]!r} {mode}", lambda: h5py.File(path, mode).close())
        for made in ("empty", "nothing"):
            if path == made and os.path.exists(made):
                show(made, os.path.getsize(made))
    for path in ("directory", "nothing/below", "dangling/below"):
        tried(f"create {path}", lambda: h5py.File(path, "w").close())
    show("text", state("text"))
    tried("replace text", lambda: h5py.File("text", "w").close())
    show("text", os.path.getsize("text"))
    with h5py.File("plain-latest.h5") as f:
        tried("write", lambda: f.create_group("x"))
        tried("truncate an open file", lambda: h5py.File("plain-latest.h5", "w"))
        tried("exclusive", lambda: h5py.File("plain-latest.h5", "x"))
        tried("write an open file", lambda: h5py.File("plain-latest.h5", "r+"))
        tried("still", lambda: list(f))


def same_file():
    os.link("plain-earliest.h5", "hard.h5")
    os.symlink("plain-earliest.h5", "soft.h5")
    number = lambda f: h5py.h5g.get_objinfo(f.id).fileno
    with h5py.File("plain-earliest.h5", "r+") as f, h5py.File("hard.h5", "r+") as g, h5py.File("soft.h5") as h:
        f["late"] = 7
        show("links", (g["late"][()], h["late"][()]))
        with h5py.File("plain-latest.h5") as other:
            show("numbers", (number(f)[0] == number(g)[0] == number(h)[0], number(f)[0] == number(other)[0]))
    os.remove("hard.h5")
    os.rename("soft.h5", "renamed.h5")
    with h5py.File("renamed.h5") as f:
        show("renamed", f["late"][()])


def locks():
    """A lock of another open file stops us, and ours stops others."""
    with open("plain-latest.h5", "rb") as other:
        for kind in (fcntl.LOCK_EX, fcntl.LOCK_SH):
            fcntl.flock(other, kind)
            for mode in ("r", "r+", "w"):
                for locking in (True, "best-effort", False):
                    if mode == "w" and not locking:
                        continue
                    path = "plain-latest.h5"
                    tried(f"locked {kind} {mode} {locking}",
                          lambda: h5py.File(path, mode, locking=locking, libver="latest").close())
            # libhdf5 truncates a file before it locks it.
            show("content", os.path.getsize("plain-latest.h5"))
            fcntl.flock(other, fcntl.LOCK_UN)
            with h5py.File("plain-latest.h5", "w", libver="latest") as f:
                fill(f)
        for mode in ("r", "r+"):
            with h5py.File("plain-latest.h5", mode, locking=True) as f:
                for kind in (fcntl.LOCK_EX, fcntl.LOCK_SH):
                    tried(f"lock while {mode}", lambda: fcntl.flock(other, kind | fcntl.LOCK_NB))
                    fcntl.flock(other, fcntl.LOCK_UN)
                show("file", f.mode)
    # Set by the environment, in separate processes.
    for value in ("TRUE", "FALSE", "BEST_EFFORT"):
        with open("plain-earliest.h5", "rb") as other:
            fcntl.flock(other, fcntl.LOCK_EX)
            code = "import h5py; h5py.File('plain-earliest.h5')"
            run = subprocess.run([sys.executable, "-c", code], env={**os.environ, "HDF5_USE_FILE_LOCKING": value},
                                 capture_output=True, text=True)
            show(f"HDF5_USE_FILE_LOCKING={value}", (run.returncode, run.stderr.splitlines()[-1:]))


def swmr():
    code = """
import sys, h5py
with h5py.File('swmr.h5', swmr=True) as f:
    d = f['d']
    for line in sys.stdin:
        d.refresh()
        print(d.shape, d[...].sum(), flush=True)
"""
    with h5py.File("swmr.h5", "w", libver="latest") as f:
        d = f.create_dataset("d", (0,), "i8", maxshape=(None,), chunks=(64,))
        f.swmr_mode = True
        reader = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for n in range(5):
            d.resize(100 * (n + 1), 0)
            d[100 * n:] = n
            d.flush()
            reader.stdin.write("\n")
            reader.stdin.flush()
            show("swmr", reader.stdout.readline().strip())
        tried("second writer", lambda: subprocess.run(
            [sys.executable, "-c", "import h5py; h5py.File('swmr.h5', 'r+')"], capture_output=True, text=True
        ).stderr.splitlines()[-1])
        reader.stdin.close()
        show("reader", reader.wait())
    show("swmr.h5", state("swmr.h5"))


def others():
    """Files that refer to files, and files by drivers that the program names."""
    with h5py.File("main.h5", "w") as f:
        f["link"] = h5py.ExternalLink("plain-earliest.h5", "/other")
        layout = h5py.VirtualLayout((2, 100), "i8")
        layout[0] = layout[1] = h5py.VirtualSource("plain-earliest.h5", "other", (100,))
        f.create_virtual_dataset("virtual", layout)
        f.create_dataset("outside", (10,), "i8", external=[("raw", 0, h5py.h5f.UNLIMITED)])[...] = range(10)
    with h5py.File("main.h5") as f:
        show("main", (f["link"][...].sum(), f["virtual"][...].sum(), f["outside"][...].sum()))
    show("raw", state("raw"))
    for driver, name, more in (("core", "core.h5", {}), ("stdio", "stdio.h5", {}), ("sec2", "sec2.h5", {}),
                               ("split", "split", {}), ("family", "family%d.h5", {"memb_size": 4096})):
        with h5py.File(name, "w", driver=driver, **more) as f:
            f["d"] = np.arange(3000)
        with h5py.File(name, driver=driver, **more) as f:
            show(driver, (f.driver, f["d"][...].sum()))
        with h5py.File(name, "r+", driver=driver, **more) as f:
            f["d"][0] = 7
            show(driver, f["d"][...].sum())
    memory = io.BytesIO()
    with h5py.File(memory, "w") as f:
        f["d"] = np.arange(10)
    show("memory", len(memory.getvalue()))
    show("files", sorted(p for p in os.listdir() if os.path.isfile(p)))


def deleted():
    lib = libhdf5.lib
    show("delete", (lib.H5Fdelete(b"main.h5", 0) >= 0, os.path.exists("main.h5")))
    show("delete text", (lib.H5Fdelete(b"empty", 0) >= 0, os.path.exists("empty")))
    show("delete nothing", lib.H5Fdelete(b"nothing", 0) >= 0)
    os.symlink("swmr.h5", "link.h5")
    show("delete a link", (lib.H5Fdelete(b"link.h5", 0) >= 0, os.path.lexists("link.h5"), os.path.exists("swmr.h5")))


def main():
    os.chdir(sys.argv[1])
    for part in (made, read, refused, same_file, locks, swmr, others, deleted):
        show("==", part.__name__)
        part()


if __name__ == "__main__":
    main()
