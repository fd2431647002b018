"""Logs that h5py writes through the package's connector, with features that only h5py's HDF5 or only the package's has. Each
program also runs natively; the log must read like that file."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import program

import h5logfs

h5py = pytest.importorskip("h5py")
if h5py.version.hdf5_version_tuple < (1, 14, 0):
    pytest.skip("this HDF5 loads no connectors of today", allow_module_level=True)


def run_program(directory: Path, code: str, connector: dict[str, str]) -> Path:
    """Runs a program in its own directory."""
    directory.mkdir()
    environment = {**os.environ, "HDF5_PLUGIN_PATH": h5logfs.plugin_path(), **connector}
    code = "import h5py, numpy as np\n" + code
    ran = subprocess.run([sys.executable, "-c", code], cwd=directory, env=environment, capture_output=True, text=True)
    assert (ran.returncode, ran.stderr) == (0, "")
    return directory


def logged(tmp_path: Path, code: str) -> Path:
    """The directory with the logs that a program writes. All are closed."""
    directory = run_program(tmp_path / "logs", code, {"HDF5_VOL_CONNECTOR": "h5logfs"})
    assert not list(directory.glob("*journal*")), "a log is not closed"
    return directory


def written(tmp_path: Path, code: str) -> tuple[Path, Path]:
    """The directories with the files that a program writes natively, and with its logs."""
    return run_program(tmp_path / "native", code, {}), logged(tmp_path, code)


def same(found: Any, wanted: Any) -> bool:
    found, wanted = np.asarray(found), np.asarray(wanted)
    if wanted.dtype.kind == "O":
        texts = [each.decode() if isinstance(each, bytes) else each for each in wanted.ravel()]
        return found.shape == wanted.shape and found.ravel().tolist() == texts
    return found.dtype == wanted.dtype and np.array_equal(found, wanted, equal_nan=wanted.dtype.kind == "f")


def run(*arguments: str | Path) -> None:
    ran = program(*arguments)
    assert ran.returncode == 0, ran.stderr.decode()


SZIP = """
with h5py.File('szip.h5', 'w') as f:
    for dtype in ('u1', '<i2', '>i4', '<f4', '<f8'):
        for method in ('nn', 'ec'):
            for pixels in (4, 16, 32):
                data = (np.cumsum(np.arange(3000) % 7 - 3) % 100).reshape(50, 60).astype(dtype)
                f.create_dataset(f'{dtype[-2:]}/{method}/{pixels}', data=data, chunks=(17, 60), compression='szip',
                                 compression_opts=(method, pixels), shuffle=pixels == 16, fletcher32=pixels == 4)
    f['y'] = np.arange(5)
"""


def test_szip_is_kept_and_undone(tmp_path: Path) -> None:
    if not h5py.h5z.filter_avail(h5py.h5z.FILTER_SZIP):
        pytest.skip("this HDF5 has no szip")
    native, logs = written(tmp_path, SZIP)
    path = logs / "szip.h5"
    wanted: dict[str, np.ndarray] = {}
    chunks: dict[str, list[Any]] = {}
    with h5py.File(native / "szip.h5") as file:
        file.visititems(lambda name, item: wanted.update({name: item[()]}) if isinstance(item, h5py.Dataset) else None)
        for name in wanted:
            if name != "y":
                chunks[name] = [file[name].id.read_direct_chunk((row, 0)) for row in range(0, 50, 17)]
    assert len(wanted) == 31
    log = h5logfs.Log(path)
    assert all(same(log[name][:], values) for name, values in wanted.items())
    assert same(log["f8/nn/16"][3:40:5, 7:9], wanted["f8/nn/16"][3:40:5, 7:9])
    run("export", path, tmp_path / "export.h5")
    run("compact", path, tmp_path / "compact.h5")
    run("check", path)
    run("settle", path)
    for made in [tmp_path / "export.h5", tmp_path / "compact.h5", path]:
        with h5py.File(made) as file:
            assert all(same(file[name][()], values) for name, values in wanted.items())
            for name, stored in chunks.items():
                assert [file[name].id.read_direct_chunk((row, 0)) for row in range(0, 50, 17)] == stored


def test_szip_is_read_by_zarr_and_xarray(tmp_path: Path) -> None:
    zarr = pytest.importorskip("zarr", minversion="3")
    xarray = pytest.importorskip("xarray")
    if not h5py.h5z.filter_avail(h5py.h5z.FILTER_SZIP):
        pytest.skip("this HDF5 has no szip")
    native, logs = written(tmp_path, SZIP)
    group = zarr.open_group(h5logfs.ZarrStore(logs / "szip.h5"), mode="r")
    dataset = xarray.open_dataset(logs / "szip.h5", engine="h5logfs", group="f8/ec")
    with h5py.File(native / "szip.h5") as file:
        assert same(group["i2/nn/32"][:], file["i2/nn/32"][()])
        assert same(dataset["32"].values, file["f8/ec/32"][()])


UNLOGGED = """
with h5py.File('unlogged.h5', 'w') as f:
    texts = f.create_dataset('texts', (1 << 24,), h5py.string_dtype(), chunks=(4096,), compression='gzip')
    texts[1 << 20] = 'hello'
    references = f.create_dataset('references', (1 << 22,), h5py.ref_dtype, chunks=(4096,))
    f['y'] = np.arange(5)
    references[5000] = f['y'].ref
    rough = f.create_dataset('rough', (8,), 'f4', chunks=(4,), fillvalue=np.nan, scaleoffset=2)
    rough[:4] = [1.25, 5.5, 3, 4]
    bits = h5py.h5t.STD_I32LE.copy()
    bits.set_precision(17)
    creation = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    creation.set_chunk((1 << 16,))
    creation.set_filter(h5py.h5z.FILTER_NBIT)
    made = h5py.h5d.create(f.id, b'bits', bits, h5py.h5s.create_simple((1 << 24,)), creation)
    h5py.Dataset(made)[70000:70010] = np.arange(10)
"""


def test_chunks_that_were_never_written_are_not_made(tmp_path: Path) -> None:
    native, logs = written(tmp_path, UNLOGGED)
    path = logs / "unlogged.h5"
    sizes = [(directory / "unlogged.h5").stat().st_size for directory in (native, logs)]
    assert sizes[1] < sizes[0] + (1 << 20), sizes
    run("export", path, tmp_path / "export.h5")
    with h5logfs.File(path) as file, h5py.File(tmp_path / "export.h5") as export, h5py.File(native / "unlogged.h5") as wanted:
        for found in (file, export):
            for name in ("texts", "references", "rough", "bits"):
                assert found[name].id.get_num_chunks() == wanted[name].id.get_num_chunks() == 1, name
            assert found["texts"][1 << 20] == b"hello" and found["texts"][17] == b""
            assert found[found["references"][5000]].name == "/y" and not found["references"][0]
            assert same(found["rough"][:], wanted["rough"][:])
            assert same(found["bits"][69990:70020], wanted["bits"][69990:70020])


LARGE = """
with h5py.File('large.h5', 'w') as f:
    f['texts'] = np.full(1 << 20, 'x' * 40, dtype=h5py.string_dtype())
    f.create_dataset('named', data=np.arange(10)).attrs['note'] = 'small'
    f['y'] = np.arange(5.)
"""


def test_what_is_too_large_is_unreadable_by_itself(tmp_path: Path) -> None:
    logs = logged(tmp_path, LARGE)
    path = logs / "large.h5"
    log = h5logfs.Log(path, index_memory="32M")
    assert log["y"][:].tolist() == [0, 1, 2, 3, 4] and log["named"].attrs["note"] == "small"
    with pytest.raises(OSError, match="/texts.*index_memory"):
        log["texts"][:]
    assert h5logfs.Log(path)["texts"][-1] == "x" * 40
    with h5logfs.File(path, index_memory="32M") as file:
        assert file["y"][()].tolist() == [0, 1, 2, 3, 4]
        with pytest.raises(OSError, match="index_memory"):
            file["texts"][0]


BIG_CHUNK = """
with h5py.File('big.h5', 'w') as f:
    x = f.create_dataset('x', (6 << 30,), 'u1', chunks=(1 << 32,))
    x[5 << 30:(5 << 30) + 3] = [1, 2, 3]
    assert x.chunks == (1 << 32,)
    g = f.create_dataset('g', (6 << 28, 4), 'f4', chunks=(1 << 29, 4), compression='gzip')
    g[1 << 28] = 7
    f['y'] = np.arange(5.)
"""


@pytest.mark.skipif(h5py.version.hdf5_version_tuple < (2, 0, 0), reason="this HDF5 has no chunks of 4 GiB")
def test_chunks_of_4_gib_are_shown_as_smaller_ones(tmp_path: Path) -> None:
    logs = logged(tmp_path, BIG_CHUNK)
    path = logs / "big.h5"
    with h5logfs.File(path) as file:
        assert file["x"][(5 << 30) - 1 : (5 << 30) + 4].tolist() == [0, 1, 2, 3, 0]
        assert file["y"][-1] == 4 and np.prod(file["x"].chunks) < 1 << 32 and np.prod(file["g"].chunks) < 1 << 28
    log = h5logfs.Log(path)
    assert log["x"][5 << 30 : (5 << 30) + 4].tolist() == [1, 2, 3, 0] and log["g"][1 << 28].tolist() == [7] * 4
    run("check", path)


LINKS = """
for kind in ('soft_self', 'soft_up', 'hard_up', 'soft_sibling', 'two', 'all'):
    with h5py.File(kind + '.h5', 'w') as f:
        f['a/x'] = np.arange(3)
        if kind == 'soft_self': f['a/me'] = h5py.SoftLink('/a')
        if kind == 'soft_up': f['a/b/up'] = h5py.SoftLink('/a')
        if kind == 'hard_up': f['a/b/up'] = f['a']
        if kind == 'soft_sibling': f['z'] = h5py.SoftLink('/a')
        if kind == 'two': f['a/to_b'] = h5py.SoftLink('/b'); f['b/to_a'] = h5py.SoftLink('/a')
        if kind == 'all':
            for one in range(6):
                for other in range(6):
                    f[f'g{one}/to{other}'] = h5py.SoftLink(f'/g{other}')
                f[f'g{one}/x'] = [one]
"""

# The listed groups, and the number of links left out.
FOUND = {
    "soft_self": (["a"], 1),
    "soft_up": (["a", "a/b"], 1),
    "hard_up": (["a", "a/b"], 1),
    "soft_sibling": (["a", "z"], 0),
    "two": (["a", "a/to_b", "b", "b/to_a"], 2),
}


def test_links_that_lead_back_are_left_out(tmp_path: Path) -> None:
    zarr = pytest.importorskip("zarr", minversion="3")
    xarray = pytest.importorskip("xarray")
    logs = logged(tmp_path, LINKS)
    for kind, (groups, left_out) in FOUND.items():
        path = logs / f"{kind}.h5"
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            group = zarr.open_group(h5logfs.ZarrStore(path), mode="r")
            assert group["a/x"][:].tolist() == [0, 1, 2]
            found = sorted(name for name, item in group.members(max_depth=None) if isinstance(item, zarr.Group))
        assert found == groups, kind
        told = [str(each.message) for each in caught if "lead back" in str(each.message)]
        assert [f": {left_out} links are left out" in each for each in told] == [True] * bool(left_out), kind
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = xarray.open_datatree(path, engine="h5logfs")
        assert sorted(each.path.strip("/") for each in tree.subtree) == ["", *groups], kind
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        group = zarr.open_group(h5logfs.ZarrStore(logs / "all.h5"), mode="r")
        assert all(group[f"g{one}/x"][0] == one for one in range(6))
        assert all(group[f"g3/to{one}/x"][0] == one for one in range(6) if one != 3)
    assert any("64 other paths" in str(each.message) for each in caught)


LONG_DOUBLE = """
with h5py.File('long.h5', 'w') as f:
    f['x'] = np.arange(6, dtype='g').reshape(2, 3) / 3
    f.attrs['scale'] = np.longdouble(1) / 3
    f['pair'] = np.array([(1, 0.1)], dtype=[('n', 'i4'), ('v', 'g')])
    f['z'] = np.array([1 + 2j], 'G') / 3
"""


@pytest.mark.skipif(np.finfo(np.longdouble).nmant != 63, reason="long doubles are others here")
def test_long_doubles_are_those_of_numpy(tmp_path: Path) -> None:
    native, logs = written(tmp_path, LONG_DOUBLE)
    log = h5logfs.Log(logs / "long.h5")
    with h5py.File(native / "long.h5") as file:
        for name in ("x", "pair", "z"):
            assert same(log[name][()], file[name][()]), name
        assert log.attrs["scale"] == file.attrs["scale"] and type(log.attrs["scale"]) is np.longdouble
    xarray = pytest.importorskip("xarray")
    assert xarray.open_dataset(logs / "long.h5", engine="h5logfs", drop_variables=["pair", "z"])["x"].dtype == np.longdouble


VIRTUAL = """
U = h5py.h5s.UNLIMITED
data = np.arange(60, dtype='i4').reshape(6, 10)
with h5py.File('one.h5', 'w') as f:
    f['d'] = data
    f['big'] = data.astype('>i8') * 1000
    f['texts'] = np.array(['a', 'bb', '', 'dddd'], dtype=h5py.string_dtype())
    f.create_dataset('grow', data=data, maxshape=(None, 10), chunks=(2, 5))
    f.create_dataset('packed', data=data, chunks=(4, 4), compression='gzip', shuffle=True)
for n in range(3):
    with h5py.File(f'part{n}.h5', 'w') as f:
        f['d'] = data[n]
with h5py.File('v.h5', 'w') as f:
    f['own'] = data + 100
    def make(name, shape, dtype, *mapped, maxshape=None, fill=-1):
        layout = h5py.VirtualLayout(shape, dtype, maxshape=maxshape)
        for key, source in mapped:
            layout[key] = source
        f.create_virtual_dataset(name, layout, fillvalue=fill)
    def source(file, name, shape, dtype='i4', maxshape=None):
        return h5py.VirtualSource(file, name, shape, dtype, maxshape=maxshape)
    d, own = source('one.h5', 'd', (6, 10)), source('.', 'own', (6, 10))
    make('whole', (6, 10), 'i4', (slice(None), d))
    make('stacked', (3, 6, 10), 'i4', (0, d), (2, own))
    make('beside', (6, 22), 'i4', (np.s_[:, :10], d), (np.s_[:, 12:], own))
    make('steps', (20, 20), 'i4', (np.s_[1:19:3, ::2], d))
    make('picked', (3, 5), 'i4', (slice(None), d[::2, 1:10:2]))
    make('turned', (60,), 'i4', (slice(None), d))
    make('folded', (4, 15), 'i4', (slice(None), own))
    make('row', (10,), 'i4', (slice(None), d[3]))
    make('over', (6, 10), 'i4', (slice(None), d), (np.s_[2:4, 3:], own[2:4, 3:]))
    make('packed', (6, 10), 'i4', (slice(None), source('one.h5', 'packed', (6, 10))))
    make('other', (6, 10), 'f4', (slice(None), source('one.h5', 'big', (6, 10), 'i8')))
    make('missing', (8, 10), 'i4', (np.s_[:4], source('none.h5', 'd', (4, 10))), (np.s_[4:6], d[:2]),
         (np.s_[6:], source('one.h5', 'none', (2, 10))))
    layout = h5py.VirtualLayout((6, 10), 'i4', maxshape=(None, 10))
    layout[:U] = source('one.h5', 'grow', (6, 10), maxshape=(None, 10))[:U]
    f.create_virtual_dataset('grows', layout, fillvalue=-1)
    layout = h5py.VirtualLayout((4,), h5py.string_dtype())
    layout[:] = h5py.VirtualSource('one.h5', 'texts', (4,), h5py.string_dtype())
    f.create_virtual_dataset('texts', layout)
    # Blocks of which each has a file, by its number: h5py has no words for that.
    space = h5py.h5s.create_simple((3, 10), (U, 10))
    space.select_hyperslab((0, 0), (U, 1), (1, 1), (1, 10))
    creation = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    creation.set_virtual(space, b'part%b.h5', b'd', h5py.h5s.create_simple((10,)))
    h5py.h5d.create(f.id, b'numbered', h5py.h5t.STD_I32LE, h5py.h5s.create_simple((3, 10), (U, 10)), creation)
    # Blocks that are no grid, and elements in another order of blocks.
    space, other = h5py.h5s.create_simple((6, 10)), h5py.h5s.create_simple((6, 10))
    for selected, places in ((space, [(0, 0, 2, 3), (3, 4, 1, 6)]), (other, [(1, 1, 3, 2), (5, 0, 1, 6)])):
        selected.select_none()
        for y, x, height, width in places:
            selected.select_hyperslab((y, x), (1, 1), (1, 1), (height, width), op=h5py.h5s.SELECT_OR)
    creation = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    creation.set_virtual(space, b'one.h5', b'd', other)
    creation.set_fill_value(np.array(-5, 'i4'))
    h5py.h5d.create(f.id, b'blocks', h5py.h5t.STD_I32LE, h5py.h5s.create_simple((6, 10)), creation)
    make('again', (6, 10), 'i4', (slice(None), source('.', 'beside', (6, 22))[:, 5:15]))
"""


def test_virtual_datasets_are_read_through_their_sources(tmp_path: Path) -> None:
    native, logs = written(tmp_path, VIRTUAL)
    wanted = {}
    with h5py.File(native / "v.h5") as file:
        wanted = {name: item[()] for name, item in file.items()}
    assert len(wanted) == 18
    mixed = tmp_path / "mixed"
    mixed.mkdir()
    # The sources are logs, plain files, or a mix.
    for name in ("v.h5", "part1.h5"):
        (mixed / name).write_bytes((logs / name).read_bytes())
    for name in ("one.h5", "part0.h5", "part2.h5"):
        (mixed / name).write_bytes((native / name).read_bytes())
    for where in (logs, mixed):
        log = h5logfs.Log(where / "v.h5")
        for name, values in wanted.items():
            assert log[name].shape == values.shape, name
            assert same(log[name][()], values), name
        assert same(log["steps"][3:12, 1:17:3], wanted["steps"][3:12, 1:17:3])
        assert same(log["folded"][1:3, ::4], wanted["folded"][1:3, ::4])
        assert same(log["numbered"][2, [1, 5]], wanted["numbered"][2, [1, 5]])
        assert same(log["blocks"][2:5, 3:], wanted["blocks"][2:5, 3:])
    (mixed / "one.h5").write_bytes(b"no HDF5")
    with pytest.raises(OSError, match="one.h5"):
        h5logfs.Log(mixed / "v.h5")["whole"][:]
    assert h5logfs.Log(mixed / "v.h5")["own"][0, 0] == 100


def test_virtual_datasets_are_read_by_zarr_and_xarray(tmp_path: Path) -> None:
    zarr = pytest.importorskip("zarr", minversion="3")
    xarray = pytest.importorskip("xarray")
    native, logs = written(tmp_path, VIRTUAL)
    group = zarr.open_group(h5logfs.ZarrStore(logs / "v.h5"), mode="r")
    dataset = xarray.open_dataset(logs / "v.h5", engine="h5logfs")
    with h5py.File(native / "v.h5") as file:
        for name in ("whole", "stacked", "steps", "grows", "numbered"):
            assert same(group[name][()], file[name][()]), name
            assert same(dataset[name].values, file[name][()]), name


GROWS = """
import sys
with h5py.File('source.h5', 'a') as f:
    if 'd' not in f:
        f.create_dataset('d', (0, 3), 'i4', maxshape=(None, 3), chunks=(2, 3))
    d = f['d']
    d.resize(d.shape[0] + 5, 0)
    d[-5:] = np.arange(15).reshape(5, 3)
import os
if not os.path.exists('v.h5'):
    with h5py.File('v.h5', 'w') as f:
        U = h5py.h5s.UNLIMITED
        layout = h5py.VirtualLayout((1, 3), 'i4', maxshape=(None, 3))
        layout[:U] = h5py.VirtualSource('source.h5', 'd', (1, 3), maxshape=(None, 3))[:U]
        f.create_virtual_dataset('v', layout)
"""


def test_a_virtual_dataset_grows_with_its_source(tmp_path: Path) -> None:
    native, logs = written(tmp_path, GROWS + GROWS)
    run("export", logs / "v.h5", tmp_path / "one.h5")
    run("export", logs / "v.h5", tmp_path / "other.h5")
    assert (tmp_path / "one.h5").read_bytes() == (tmp_path / "other.h5").read_bytes()
    with h5py.File(native / "v.h5") as file:
        wanted = file["v"][()]
    log = h5logfs.Log(logs / "v.h5")
    assert wanted.shape == log["v"].shape == (10, 3) and same(log["v"][()], wanted)


def test_a_virtual_dataset_is_made_of_a_few_others(tmp_path: Path) -> None:
    code = """
with h5py.File('chain.h5', 'w') as f:
    f['v0'] = [1, 2, 3]
    for n in range(1, 12):
        layout = h5py.VirtualLayout((3,), 'i8')
        layout[:] = h5py.VirtualSource('.', f'v{n - 1}', (3,))
        f.create_virtual_dataset(f'v{n}', layout)
"""
    logs = logged(tmp_path, code)
    log = h5logfs.Log(logs / "chain.h5")
    assert log["v5"][:].tolist() == [1, 2, 3]
    with pytest.raises(OSError, match="made of others"):
        log["v11"][:]


def test_the_store_lists_what_it_can_read(tmp_path: Path) -> None:
    zarr = pytest.importorskip("zarr", minversion="3")
    logs = logged(tmp_path, UNLOGGED)
    with pytest.warns(UserWarning, match="rough is left out: its chunks went through filter 6"):
        group = zarr.open_group(h5logfs.ZarrStore(logs / "unlogged.h5"), mode="r")
        assert sorted(group.array_keys()) == ["texts", "y"]
    assert group["y"][:].tolist() == [0, 1, 2, 3, 4]
