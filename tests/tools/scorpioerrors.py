#!/usr/bin/env python3
"""scorpioerrors make DIR: writes SCORPIO directories with one fault each, DIR/FAULT.bp, after the table of errors of
docs/formats/scorpio-bp.md (section 8).
scorpioerrors check PROGRAM DIR SHOWN: does SHOWN/FAULT.bp, an HDF5 file, refuse what is faulty and show all else, and does
`check` of PROGRAM name it (`inspect`, where it is a note)?

Each directory has the darray `good` and the put_var `other`, which must be shown whatever `bad` is. Prints a line for each
difference; exit status 1 where something differs. Needs the packages adios2 and h5py.
"""
import os
import subprocess
import sys

import numpy as np

import scorpio

ROOT = scorpio.ROOT
#: Lengths of dimensions.
X, Y = 6, 2
#: What becomes of `bad`.
REFUSED, ABSENT = "refused", "absent"
DOUBLE_FILL = 9.969209968386869e36


class Directory:
    """What the only step has: values and lists of blocks, and attributes, by names without their root."""

    def __init__(self):
        self.found = {"info/nproc": np.array(2, "i4"), "info/block_nprocs": np.array(2, "i4"), "info/block_list": [ints(0, 1)],
                      "dim/x": np.array(X, "u8"), "dim/y": np.array(Y, "u8"), "dim/time": np.array(0, "u8")}
        self.attributes = {}
        self.map(512, [X], range(1, X + 1))
        self.define("good", 6, ["x"], "darray")
        self.darray("good", [(-1, -512, np.arange(X) + 0.5)])
        self.define("other", 4, ["x"], "put_var", 7)
        self.found["var/other"] = [put([1], [2], ints(7, 8))]

    def map(self, number, dimlen, entries):
        self.found[f"decomp/{number}"] = [np.array(entries, "i8")]
        self.found[f"track/num_decomp_block_writers/{number}"] = [ints(1)]
        self.attributes |= {f"decomp/{number}/piotype": ints(6), f"decomp/{number}/ndims": ints(len(dimlen)),
                            f"decomp/{number}/dimlen": ints(*dimlen)}

    def define(self, name, nctype, dims, ncop, adiostype=None):
        self.attributes |= {f"var/{name}/def/nctype": ints(nctype), f"var/{name}/def/ndims": ints(len(dims)),
                            f"var/{name}/def/dims": dims, f"var/{name}/def/ncop": ncop}
        if adiostype:
            self.attributes[f"var/{name}/def/adiostype"] = ints(adiostype)

    def darray(self, name, frames, fills=(), kind="f8"):
        """Frames are a number, the ID of a decomposition with its sign, and elements."""
        self.found[f"var/{name}"] = [np.asarray(values, kind) for _, _, values in frames]
        self.found[f"track/frame_id/{name}"] = [ints(*[number for number, _, _ in frames])]
        self.found[f"track/decomp_id/{name}"] = [ints(*[number for _, number, _ in frames])]
        self.found[f"track/num_data_block_writers/{name}"] = [ints(*[1] * len(frames))]
        if len(fills):
            self.found[f"track/fillval_id/{name}"] = [fills]

    def write(self, path):
        from adios2 import bindings as adios2

        adios = adios2.ADIOS()
        io = adios.DeclareIO("out")
        io.SetEngine("BP5")
        engine = io.Open(path, adios2.Mode.Write)
        engine.BeginStep()
        for name, value in self.attributes.items():
            name = ROOT + name
            io.DefineAttribute(name, value, "", "/") if isinstance(value, (str, list)) else io.DefineAttribute(name, value)
        for name, value in self.found.items():
            scorpio.put(adios2, io, engine, ROOT + name, value)
        engine.EndStep()
        engine.Close()


def ints(*values):
    return np.array(values, "i4")


def put(start, count, values):
    return np.concatenate([np.array(start + count, "i8").view("u1"), values.view("u1")])


# --- faults ---------------------------------------------------------------------------------------

def faults():
    """By name: the directory, what `bad` is (an array where it is shown), and words that `check` says."""
    found = {}
    values = np.arange(X) * 1.0

    def of(name, outcome, *words, nctype=6, dims=("x",), ncop="darray", adiostype=None):
        made = Directory()
        made.define("bad", nctype, list(dims), ncop, adiostype)
        found[name] = (made, outcome, ("bad",) + words)
        return made

    made = of("no_map", REFUSED, "999")
    made.darray("bad", [(-1, -999, values)])
    made = of("lengths", REFUSED, str(X + 1), str(X))
    made.darray("bad", [(-1, -512, np.arange(X + 1.0))])
    made = of("place_above", REFUSED, "513", str(X + 1))
    made.map(513, [X], [1, 2, 3, 4, 5, X + 1])
    made.darray("bad", [(-1, -513, values)])
    made = of("place_below", REFUSED, "513")
    made.map(513, [X], [-1, 0, 0, 4, 5, 3])
    made.darray("bad", [(-1, -513, values)])
    made = of("few_dimensions", REFUSED, dims=("y", "x"))
    made.darray("bad", [(-1, -512, values)])
    made = of("long_dimension", REFUSED, "513")
    made.map(513, [X + 1], range(1, X + 2))
    made.darray("bad", [(-1, -513, np.arange(X + 1.0))])
    # Nothing else of the variable is spoilt.
    made = of("frame_beyond", np.array([values, [DOUBLE_FILL] * X]), str(Y), dims=("y", "x"))
    made.darray("bad", [(0, -512, values), (Y, -512, values)])
    made = of("few_blocks", REFUSED, "1", "2", dims=("y", "x"))
    made.darray("bad", [(0, -512, values), (1, -512, values)])
    made.found["var/bad"].pop()
    # Its list of writers says that nobody wrote the second frame.
    made = of("no_writer", REFUSED, "0 elements", dims=("y", "x"))
    made.darray("bad", [(0, -512, values), (1, -512, values)])
    made.found["var/bad"].pop()
    made.found["track/num_data_block_writers/bad"] = [ints(1, 0)]
    made = of("no_elements", REFUSED, "2 frames", dims=("y", "x"))
    made.darray("bad", [(0, -512, values), (1, -512, values)])
    del made.found["var/bad"]
    made = of("negative_frame", REFUSED, "frame -5", dims=("y", "x"))
    made.darray("bad", [(0, -512, values), (-5, -512, values)])
    made = of("no_numbers", REFUSED, dims=("y", "x"))
    made.darray("bad", [(0, -512, values)])
    del made.found["track/frame_id/bad"]
    made = of("few_numbers", REFUSED, dims=("y", "x"))
    made.darray("bad", [(0, -512, values), (1, -512, values)])
    made.found["track/frame_id/bad"] = [ints(0)]
    made = of("few_fills", np.array([0, DOUBLE_FILL, 2, 3, 4, 5]))
    made.map(513, [X], [1, 0, 3, 4, 5, 6])
    made.darray("bad", [(-1, 513, values)])
    made = of("fills_of_doubles", np.array([0, -7, 2, 3, 4, 5], "i4"), nctype=4)
    # It is no fault of E3SM-IO.
    found["fills_of_doubles"] = (made, np.array([0, -7, 2, 3, 4, 5], "i4"), ())
    made.map(513, [X], [1, 0, 3, 4, 5, 6])
    made.darray("bad", [(-1, 513, values)], np.array([-7.0]), "i4")
    made = of("short_put", REFUSED, ncop="put_var", adiostype=2)
    made.found["var/bad"] = [np.zeros(15, "u1")]
    # Zeros in place of a lost page are no put of no elements.
    made = of("zero_head", REFUSED, "damaged", ncop="put_var", adiostype=2)
    made.found["var/bad"] = [put([0], [0], np.zeros(2))]
    made = of("records", np.array([3.5, DOUBLE_FILL, DOUBLE_FILL]), dims=("time",), ncop="put_var", adiostype=2)
    made.found["var/bad"] = [put([0], [3], np.array([3.5]))]
    made = of("other_type", REFUSED, ncop="put_var", adiostype=2)
    made.found["var/bad"] = [put([0], [2], np.array([1.0, 2.0])), put([2], [2], ints(3, 4))]
    made = of("put_beyond", REFUSED, "dimension", ncop="put_var", adiostype=2)
    made.found["var/bad"] = [put([X - 1], [2], np.array([1.0, 2.0]))]
    made = of("no_names", ABSENT)
    del made.attributes["var/bad/def/dims"]
    made = of("no_dimension", ABSENT, dims=("nowhere",))
    made = of("unknown_type", ABSENT, nctype=99)
    made = of("unlimited_last", REFUSED, dims=("x", "time"))
    made.darray("bad", [(0, -512, values)])
    made = of("type", REFUSED, nctype=5)
    made.darray("bad", [(-1, -512, values)])
    # HDF5 has no place for more than 2^63 bytes.
    made = of("huge_array", REFUSED, str(1 << 30), dims=("a", "b"))
    made.found |= {"dim/a": np.array(1 << 30, "u8"), "dim/b": np.array(1 << 30, "u8")}
    made.map(513, [1 << 30, 1 << 30], [1, 2, 3, 1 << 60, 5, 7 << 30])
    made.darray("bad", [(-1, -513, values)])
    made = of("far_record", REFUSED, dims=("time",), ncop="put_var", adiostype=2)
    made.found["var/bad"] = [put([1 << 61], [1], np.array([2.5]))]
    made = of("without_maps", REFUSED, "ADIOS_NO_DECOMPS")
    made.found["info/decomp_stored"] = np.array(0, "i4")
    del made.found["decomp/512"], made.found["track/num_decomp_block_writers/512"]
    made.darray("bad", [(-1, -512, values)])
    return found


def is_refused(dataset):
    try:
        # Of what no memory holds one element is enough.
        dataset[() if dataset.size < 1 << 20 else (0,) * dataset.ndim]
    except OSError:
        return True
    return False


def differences(program, path, shown, outcome, words):
    import h5py

    has_maps = "without_maps" not in path
    with h5py.File(shown, "r") as file:
        if has_maps and not np.array_equal(file["good"][()], np.arange(X) + 0.5):
            yield f"good is {file['good'][()]}"
        if not has_maps and not is_refused(file["good"]):
            yield "good is not refused"
        none = -2147483647
        if not np.array_equal(file["other"][()], [none, 7, 8, none, none, none]):
            yield f"other is {file['other'][()]}"
        if isinstance(outcome, np.ndarray):
            got = file["bad"][()] if "bad" in file else None
            if got is None or got.dtype != outcome.dtype or not np.array_equal(got, outcome):
                yield f"bad is {got}, expected {outcome}"
        elif "bad" in file and (outcome == ABSENT or not is_refused(file["bad"])):
            yield f"bad is not {outcome}"
    # A note is no fault.
    command = "inspect" if "few_fills" in path else "check"
    told = subprocess.run([program, command, path], capture_output=True, text=True)
    said = told.stdout + told.stderr
    if any(word not in said for word in words):
        yield f"{command} does not say {words}: {said}"


def main():
    command, *rest = sys.argv[1:]
    if command == "make":
        for name, (made, _, _) in faults().items():
            made.write(os.path.join(*rest, f"{name}.bp"))
        return 0
    program, directory, shown = rest
    count = 0
    for name, (_, outcome, words) in faults().items():
        try:
            path = os.path.join(directory, f"{name}.bp")
            found = list(differences(program, path, os.path.join(shown, f"{name}.bp"), outcome, words))
        except Exception as error:  # noqa: BLE001 - any failure to read is a difference
            found = [f"{type(error).__name__}: {error}"]
        for text in found:
            print(f"{name}: {text}")
        count += bool(found)
    return count > 0


if __name__ == "__main__":
    sys.exit(main())
