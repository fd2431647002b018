"""Arrays in programs: many threads with little memory, forks, pickle, damaged logs, progress and Ctrl-C."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import random
import signal
import subprocess
import sys
import threading
import warnings
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import h5logfs
import log_writer
from conftest import CORPUS, ROOT

LOG = CORPUS / "netcdf4_wrf.log.h5"
FORKS = 10_000 if "H5LOGFS_TEST_ALL" in os.environ else 300


def make(path: Path, values: np.ndarray, tile: tuple[int, ...], chunk: tuple[int, ...]) -> Path:
    """A log with one dataset `x` of deflated records."""
    log_writer.write(path, {"x": log_writer.Dataset(values, tile, chunk, is_deflated=True)})
    return path


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log whose chunks take more than the smallest cache: four records make one."""
    values = np.arange(12 << 20, dtype="<i4").reshape(48, 512, 512) // 1000
    return make(tmp_path_factory.mktemp("large") / "large.h5", values, (8, 256, 256), (8, 512, 512))


WITH_LITTLE_MEMORY = """
import sys, numpy as np, xarray, dask
dask.config.set(scheduler="threads", num_workers=8)
dataset = xarray.open_dataset(sys.argv[1], engine="h5logfs", phony_dims="sort", chunks={},
                              cache_size="16M", index_memory="16M", threads=2)
x = dataset["x"]
wanted = np.arange(12 << 20, dtype="<i4").reshape(48, 512, 512) // 1000
assert x.data.npartitions == 6
assert (x[:, ::2].sum() == wanted[:, ::2].sum(dtype=np.int64)).compute()
assert (x.max(x.dims[1:]).compute() == wanted.max((1, 2))).all()
"""


def test_dask_reads_one_log_by_eight_threads_with_little_memory(large: Path) -> None:
    pytest.importorskip("dask")
    pytest.importorskip("xarray")
    # Memory limits apply to a process.
    subprocess.run([sys.executable, "-c", WITH_LITTLE_MEMORY, large], check=True)


def test_forked_processes_read_while_threads_read() -> None:
    log = h5logfs.Log(LOG)
    name, array = next((name, array) for name, array in log.arrays().items() if array.ndim > 2)
    wanted = array[...].tobytes()
    ended = threading.Event()
    wrong = []

    def read() -> None:
        while not ended.is_set():
            if array[...].tobytes() != wanted:
                wrong.append(name)

    threads = [threading.Thread(target=read) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        with warnings.catch_warnings():
            # Python warns that a process with threads is forked.
            warnings.simplefilter("ignore", DeprecationWarning)
            for _ in range(FORKS):
                assert forked(lambda: array[...].tobytes() == wanted)
    finally:
        ended.set()
        for thread in threads:
            thread.join()
    assert not wrong


def forked(works) -> bool:
    """Whether `works` succeeds in a forked process, within a minute."""
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(60)
        os._exit(0 if works() else 1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def total(array: h5logfs.Array, rows: slice) -> float:
    return float(array[rows].sum(dtype=float))


@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_other_processes_get_arrays(method: str, large: Path) -> None:
    array = h5logfs.Log(large)["x"]
    parts = [slice(start, start + 12) for start in range(0, 48, 12)]
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context(method)) as pool:
        found = list(pool.map(total, [array] * 4, parts))
    assert found == [total(array, part) for part in parts]


def test_pickled_objects_of_one_log_share_what_is_open() -> None:
    log = h5logfs.Log(LOG, cache_size="32M")
    again = pickle.loads(pickle.dumps(log))
    assert list(again) == list(log) and again.attrs.keys() == log.attrs.keys()
    arrays = list(log.arrays().values())
    copies = [pickle.loads(pickle.dumps(array)) for array in arrays]
    assert [copy.path for copy in copies] == [array.path for array in arrays]
    assert len({id(copy._objects) for copy in copies}) == 1
    assert all(np.array_equal(copy[...], array[...]) for copy, array in zip(copies, arrays))
    group = pickle.loads(pickle.dumps(h5logfs.Log(CORPUS / "groups_attrs.log.h5")["/"]))
    assert list(group) == list(h5logfs.Log(CORPUS / "groups_attrs.log.h5"))


def test_a_log_that_was_replaced_is_opened_again(tmp_path: Path) -> None:
    one, other = np.arange(100, dtype="<f8"), np.arange(100, dtype="<f8") * 2
    path = make(tmp_path / "run.h5", one, (10,), (50,))
    pickled = pickle.dumps(h5logfs.Log(path)["x"])
    first = pickle.loads(pickled)
    np.testing.assert_array_equal(first, one)
    make(tmp_path / "new.h5", other, (10,), (50,)).replace(path)
    np.testing.assert_array_equal(pickle.loads(pickled), other)


def test_damage_is_an_error_that_names_the_place_and_never_a_wrong_number(tmp_path: Path) -> None:
    values = np.random.default_rng(1).integers(0, 1000, (64, 64)).astype("<i4")
    path = make(tmp_path / "good.h5", values, (8, 64), (16, 64))
    whole = path.read_bytes()
    # All records are contiguous.
    streams = [log_writer.zlib.compress(values[row : row + 8].tobytes(), 1) for row in range(0, 64, 8)]
    begin = whole.index(streams[0])
    end = begin + sum(map(len, streams))
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    damaged = tmp_path / "damaged.h5"
    failed = 0
    for _ in range(60):
        at = rng.randrange(begin, end)
        damaged.write_bytes(whole[:at] + bytes([whole[at] ^ (1 << rng.randrange(8))]) + whole[at + 1 :])
        array = h5logfs.Log(damaged)["x"]
        for row in range(0, 64, 16):
            try:
                found = array[row : row + 16]
            except h5logfs.LogError as error:
                failed += 1
                assert str(damaged) in str(error) and f"/x: chunk [{row // 16}, 0]" in str(error)
            else:
                np.testing.assert_array_equal(found, values[row : row + 16])
    # Some bits of a deflate stream have no effect.
    assert failed >= 40


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log whose dataset takes a while to read."""
    values = np.zeros((256, 1 << 17), "<i4")
    return make(tmp_path_factory.mktemp("slow") / "slow.h5", values, (8, 1 << 17), (16, 1 << 17))


def test_a_long_read_tells_how_far_it_is(slow: Path) -> None:
    array = h5logfs.Log(slow)["x"]
    told: list[int] = []
    array.read(threads=1, progress=told.append)
    assert told and told == sorted(told) and 0 < told[0] <= told[-1] <= array.nbytes


def test_a_bar_shows_how_far_a_read_is(slow: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("tqdm")
    h5logfs.Log(slow)["x"].read(slice(64), progress=True)
    assert "100%" in capsys.readouterr().err


def test_what_progress_raises_ends_the_read(slow: Path) -> None:
    def stop(done: int) -> None:
        raise RuntimeError("enough")

    array = h5logfs.Log(slow)["x"]
    with pytest.raises(RuntimeError, match="enough"):
        array.read(threads=2, progress=stop)
    assert not array[:8].any()


def test_a_fork_waits_for_the_read_and_the_read_for_no_fork(slow: Path) -> None:
    array = h5logfs.Log(slow)["x"]
    begun = threading.Event()
    reader = threading.Thread(target=lambda: array.read(threads=2, progress=lambda done: begun.set()))
    reader.start()
    assert begun.wait(60)
    # The read reports its progress while this thread has the interpreter's lock, and waits for the read.
    assert forked(lambda: not array[:8].any())
    reader.join()


INTERRUPTED = """
import signal, sys, h5logfs
# Tests that run in the background of a shell ignore the signal, and so would this.
signal.signal(signal.SIGINT, signal.default_int_handler)
array = h5logfs.Log(sys.argv[1])["x"]
def told(done):
    print(done, flush=True)
try:
    while True:
        array.read(threads=int(sys.argv[2]), progress=told)
except KeyboardInterrupt:
    assert not array[:8].any()
    print("interrupted")
"""


@pytest.mark.parametrize("threads", [1, 2])
def test_ctrl_c_ends_a_read(threads: int, slow: Path) -> None:
    command = [sys.executable, "-c", INTERRUPTED, str(slow), str(threads)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as reader:
        assert reader.stdout is not None
        assert int(reader.stdout.readline()) > 0
        reader.send_signal(signal.SIGINT)
        rest = reader.stdout.read()
    assert reader.returncode == 0 and rest.endswith("interrupted\n")


INTERRUPTED_INSIDE = """
import signal, sys, time, h5logfs
array = h5logfs.Log(sys.argv[1])["x"]
key = slice(None, None, 2), slice(None, None, 3), slice(None, None, 5)
wanted = array[key]
begin = time.monotonic()
array[key]
whole = time.monotonic() - begin
def interrupt(*_):
    raise KeyboardInterrupt
signal.signal(signal.SIGALRM, interrupt)
signal.setitimer(signal.ITIMER_REAL, whole / 10)
begin = time.monotonic()
try:
    array[key]
except KeyboardInterrupt:
    print(whole > 2 * (time.monotonic() - begin - 0.1), wanted.nbytes < 4 << 20, (array[key] == wanted).all())
"""


def test_ctrl_c_ends_a_read_of_little_that_takes_long(tmp_path: Path) -> None:
    values = np.arange(1 << 23, dtype="<i4").reshape(128, 256, 256)
    log_writer.write(tmp_path / "small.h5", {"x": log_writer.Dataset(values, (1, 4, 32), (16, 256, 256))})
    ran = subprocess.run([sys.executable, "-c", INTERRUPTED_INSIDE, tmp_path / "small.h5"], capture_output=True, text=True)
    assert (ran.stdout, ran.stderr) == ("True True True\n", "")


def test_the_example_of_batches_runs(large: Path) -> None:
    example = ROOT / "examples" / "python" / "batches.py"
    found = subprocess.run([sys.executable, example, large, "x", "16"], capture_output=True, text=True, check=True)
    assert found.stdout.splitlines()[-1].startswith("48 samples in 3 batches")
