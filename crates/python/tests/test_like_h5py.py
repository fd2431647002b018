"""What users of h5py do with a file, done with a `Log`. Both read what one program wrote: h5py a native file, the `Log` a
log of the package's connector."""

from __future__ import annotations

import warnings
from pathlib import Path

import h5py
import numpy as np
import pytest
from test_connector import written

import h5logfs

PROGRAM = """
with h5py.File('run.h5', 'w') as f:
    for name in 'zebra', 'apple', 'Mango':
        f.attrs[name] = 1
    f.attrs['long'] = np.longdouble(1) / 3
    f.attrs['moment'] = np.array(['2020-01-01'], 'M8[s]').astype(h5py.opaque_dtype('M8[s]'))
    f.attrs['nothing'] = h5py.Empty('f4')
    T = f.create_dataset('g/T', data=np.arange(60.).reshape(3, 4, 5), chunks=(1, 2, 5), compression='gzip',
                         compression_opts=3, shuffle=True, fletcher32=True, fillvalue=-1.)
    ordered = f.create_dataset('g/ordered', data=np.arange(3), track_order=True)
    for name in 'zebra', 'apple', 'Mango':
        ordered.attrs[name] = 1
    f['time'] = np.arange(3.)
    f['time'].make_scale('time')
    T.dims[0].attach_scale(f['time'])
    T.dims[0].label, T.dims[2].label = 'steps', 'x'
    f['long'] = np.arange(6, dtype=np.longdouble).reshape(2, 3) / 7
    f.create_dataset('filled', (4,), np.longdouble, fillvalue=np.longdouble(1) / 3)
    f['moments'] = np.array(['2020-01-01', '2021-02-03T04:05:06'], 'M8[ns]').astype(h5py.opaque_dtype('M8[ns]'))
    points = np.zeros(4, [('a', 'i4'), ('b', 'f8'), ('c', 'S3')])
    points['a'], points['b'], points['c'] = range(4), .5, b'xyz'
    f['points'], f['point'] = points, points[2]
    f['text'], f['number'] = 'h\u00e9llo', 3.25
    f['numbers'] = np.array([-300.7, 1e30, -1e30, 2.5])
    f['large'] = np.array([2**64 - 1, 0, 2**63], 'u8')
    f['names'] = np.array([b'ab', b'hello', b''], 'S5')
    f.create_dataset('null', data=h5py.Empty('f4'))
    refs = f.create_dataset('refs', (3,), dtype=h5py.ref_dtype)
    refs[0], refs[1] = T.ref, f['g'].ref
    f['hard'], f['type'] = f['g/T'], np.dtype('f8')
    f['soft'], f['dangling'] = h5py.SoftLink('/g/T'), h5py.SoftLink('/nowhere')
    f['outside'], f['through'] = h5py.ExternalLink('other.h5', '/x'), h5py.SoftLink('/outside/y')
"""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory):
    """The log, and the file of h5py."""
    native, logs = written(tmp_path_factory.mktemp("run"), PROGRAM)
    with h5logfs.Log(logs / "run.h5") as log, h5py.File(native / "run.h5") as file:
        yield log, file


# Each gives the same of a log as of a file of h5py.
ALIKE = """
list(f.attrs), list(f["g/ordered"].attrs)
f.attrs["long"], f.attrs["long"].dtype
f.attrs["moment"], f.attrs["moment"].dtype
f.attrs["nothing"]
f["long"][...], f["long"].dtype, f["filled"][...], f["filled"].fillvalue
f["moments"][...], f["moments"].dtype, f["moments"].fillvalue
type(f["number"][()]), type(f["number"][...]), f["number"][...]
f["points"]["a"], f["points"]["a", 1:3], f["points"]["a", "b"], f["points"].fields("b")[1:3], f["points"].fields(["c", "a"])[0]
f["point"]["a"], f["point"][()], f["point"][...]
f["numbers"].astype("i2")[:3], f["numbers"].astype("f4")[1:], f["numbers"].astype("i4").shape
f["large"].astype("i4")[:], f["large"].astype("f4")[:], f["g/T"].astype("i8")[1, ..., 2]
f["names"].asstr()[:], f["names"].asstr()[1]
f["null"].shape, f["null"].size, f["null"].ndim, f["null"].nbytes, f["null"].maxshape, f["null"].chunks, f["null"].dtype
f["null"][()], f["null"][...]
f["g/T"].name, f["g/T"].parent.name, f["g"].parent.name, f.name, f.parent.name
f["g/T"].compression, f["g/T"].compression_opts, f["g/T"].shuffle, f["g/T"].fletcher32, f["g/T"].scaleoffset
f["number"].compression, f["number"].compression_opts, f["number"].shuffle
len(f["g/T"].dims), [d.label for d in f["g/T"].dims], [len(d) for d in f["g/T"].dims]
list(f["g/T"].dims[0].keys()), f["g/T"].dims[0][0].name, f["g/T"].dims[0]["time"][:], f["time"].is_scale, f["g/T"].is_scale
f[f["refs"][0]][1, 2, 3], sorted(f[f["refs"][1]])
[name in f for name in ("g", "g/T", "/g/T", "soft", "dangling", "outside", "type", "nowhere", "g/none", "g/T/x", "/")]
f.get("outside"), f.get("dangling"), f.get("nowhere"), f.get("outside/x", 5), f.get("through")
f[b"g/T"].shape, b"g" in f
"""


def plain(value):
    """A value in a form that compares."""
    if isinstance(value, (h5py.Empty, h5logfs.Empty)):
        return "empty", value.dtype
    if isinstance(value, (np.ndarray, np.generic)):
        return type(value), value.shape, value.dtype, value.tolist()
    return [plain(each) for each in value] if isinstance(value, (list, tuple)) or hasattr(value, "keys") else value


@pytest.mark.parametrize("code", ALIKE.strip().splitlines())
def test_a_log_answers_as_a_file_of_h5py(files, code: str) -> None:
    log, file = files
    assert plain(eval(code, {"f": log})) == plain(eval(code, {"f": file}))


# Each raises the same error.
WRONG = ["f[3]", "f[None]", "f['outside']", "f['dangling']", "f['nowhere']", "f['points']['d']", "f['number']['a']", "f[f['refs'][2]]"]
WRONG += ["len(f['null'])", "f['null'][0]", "list(f['null'])", "np.asarray(f['null'])", "f['number'].asstr()"]


@pytest.mark.parametrize("code", WRONG)
def test_a_log_refuses_what_h5py_refuses(files, code: str) -> None:
    log, file = files
    with pytest.raises(Exception) as theirs:
        eval(code, {"f": file, "np": np})
    with pytest.raises(theirs.type):
        eval(code, {"f": log, "np": np})


def test_scalars_are_those_of_numpy_and_texts_are_str(files) -> None:
    log, _ = files
    T, in_memory = log["g/T"], log["g/T"][...]
    for key in [(0, 1, 2), (0, 1, 2, ...), (..., 0, 1, 2), (-1, -1, -1)]:
        assert type(T[key]) is type(in_memory[key]) and T[key] == in_memory[key]
    assert log["text"][()] == "h\u00e9llo"
    assert log["text"][...].shape == () and log["text"][...].dtype == object


def test_a_walk_visits_each_object_once_as_that_of_h5py(files) -> None:
    log, file = files
    ours, theirs = [], []
    log.visit(ours.append)
    file.visititems(lambda name, item: theirs.append(name) if not isinstance(item, h5py.Datatype) else None)
    assert ours == theirs and "hard" not in ours[ours.index("g/T") :]
    assert log["g"].visititems(lambda name, item: item.shape if name == "T" else None) == (3, 4, 5)


def test_notebooks_complete_names_and_show_what_there_is(files) -> None:
    log, _ = files
    assert log._ipython_key_completions_() == list(log) and "T" in log["g"]._ipython_key_completions_()
    assert log["points"]._ipython_key_completions_() == ["a", "b", "c"]
    shown = log._repr_html_()
    assert "g/" in shown and "points" in shown and "zebra" in shown
    assert "3 × 4 × 5" in log["g"]._repr_html_()
    array = log["g/T"]._repr_html_()
    assert "shuffle, deflate" in array and "<svg" in array and "steps" in array
    assert "no dataspace" in log["null"]._repr_html_()


@pytest.mark.parametrize("threads", [-1, "2", 1.5, True, None, 1 << 40])
def test_wrong_threads_are_refused_at_once(files, threads) -> None:
    log, _ = files
    refused = [lambda: h5logfs.Log(log.path, threads=threads), lambda: h5logfs.ZarrStore(log.path, threads=threads)]
    if threads is not None:
        refused.append(lambda: log["number"].read(threads=threads))
    for act in refused:
        with pytest.raises((TypeError, ValueError), match="threads="):
            act()
    xarray = pytest.importorskip("xarray")
    with warnings.catch_warnings(), pytest.raises((TypeError, ValueError), match="threads="):
        xarray.open_dataset(log.path, engine="h5logfs", backend_kwargs={"threads": threads})
