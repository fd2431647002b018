"""The file object: its position, its errors, its life."""

from __future__ import annotations

import errno
import io
import os
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from conftest import CORPUS, PNETCDF

import h5logfs


def test_it_is_a_raw_binary_file(log: Path) -> None:
    with h5logfs.open(log) as file:
        assert isinstance(file, (io.RawIOBase, h5logfs.LogFile))
        assert file.readable() and file.seekable() and not file.writable() and not file.isatty()
        assert (file.name, file.mode, file.is_log, file.closed) == (str(log), "rb", True, False)
        with pytest.raises(io.UnsupportedOperation):
            file.fileno()
        with pytest.raises(io.UnsupportedOperation):
            file.write(b"x")
        with pytest.raises(io.UnsupportedOperation):
            file.truncate(0)


def test_bytes_are_those_of_the_canonical_file(log: Path, canonical: bytes) -> None:
    with h5logfs.open(log) as file:
        assert file.size == len(canonical)
        assert file.read() == canonical
        assert file.read() == b"" and file.read(5) == b"" and file.readinto(bytearray(5)) == 0
        assert file.seek(0) == 0 and file.readall() == canonical
        assert file.seek(-10, os.SEEK_END) == len(canonical) - 10 and file.read(100) == canonical[-10:]
        file.seek(8)
        assert file.read(4) == canonical[8:12] and file.tell() == 12
        assert file.seek(4, os.SEEK_CUR) == 16 and file.read(0) == b"" and file.tell() == 16
        assert file.seek(len(canonical) + 5) and file.read(3) == b"" and file.readall() == b""


def test_readinto_fills_any_contiguous_memory(log: Path, canonical: bytes) -> None:
    numpy = pytest.importorskip("numpy")
    with h5logfs.open(log) as file:
        buffer = bytearray(100)
        assert file.readinto(buffer) == 100 and buffer == canonical[:100]
        assert file.readinto(memoryview(buffer)[10:20]) == 10 and buffer[10:20] == canonical[100:110]
        array = numpy.zeros((5, 4), "<u4")
        assert file.readinto(array) == 80 and array.tobytes() == canonical[110:190] and file.tell() == 190
        assert file.readinto(bytearray()) == 0
        large = bytearray(len(canonical) + 50)
        assert file.readinto_at(0, large) == len(canonical)
        assert large == canonical + bytes(50)
        for unfit in (b"read-only", memoryview(buffer)[::2], numpy.zeros((4, 4))[:, 0]):
            with pytest.raises((BufferError, ValueError)):
                file.readinto(unfit)
        with pytest.raises(TypeError):
            file.readinto("text")  # type: ignore[arg-type]
        assert file.tell() == 190


def test_reads_at_an_offset_leave_the_position(log: Path, canonical: bytes) -> None:
    with h5logfs.open(log) as file:
        file.seek(7)
        assert file.read_at(100, 50) == canonical[100:150]
        assert file.read_at(len(canonical) - 3, 50) == canonical[-3:]
        assert file.read_at(len(canonical) + 3, 50) == b"" and file.read_at(5, 0) == b""
        assert file.read_at(1 << 63, 1) == b""
        buffer = bytearray(20)
        assert file.readinto_at(len(canonical) - 7, buffer) == 7 and buffer[:7] == canonical[-7:]
        assert file.tell() == 7
        for offset, size in [(-1, 1), (0, -1)]:
            with pytest.raises(ValueError, match="negative"):
                file.read_at(offset, size)
        with pytest.raises(ValueError, match="negative"):
            file.readinto_at(-1, buffer)


def test_bad_positions_are_refused(log: Path) -> None:
    with h5logfs.open(log) as file:
        file.seek(3)
        for offset, whence in [(-1, os.SEEK_SET), (-4, os.SEEK_CUR), (1 << 63, os.SEEK_SET)]:
            with pytest.raises(OSError) as error:
                file.seek(offset, whence)
            assert error.value.errno == errno.EINVAL
        with pytest.raises(ValueError, match="whence"):
            file.seek(0, 17)
        assert file.tell() == 3


def test_buffered_reader_takes_it(log: Path, canonical: bytes) -> None:
    with io.BufferedReader(h5logfs.open(log), buffer_size=1000) as file:
        file.seek(500)
        assert file.read(3000) == canonical[500:3500]


def test_a_plain_file_reads_as_it_is(plain: Path) -> None:
    assert not h5logfs.is_log(plain)
    with h5logfs.open(plain) as file:
        assert not file.is_log and file.size == 256 * 40
        assert file.read(256) == bytes(range(256))
        buffer = bytearray(10)
        assert file.readinto(buffer) == 10 and buffer == bytes(range(10)) and file.tell() == 266
        with plain.open("ab") as writer:
            writer.write(b"more")
        assert file.size == 256 * 40 + 4 and file.read_at(256 * 40, 100) == b"more"


def test_is_log_tells_logs_apart() -> None:
    assert h5logfs.is_log(CORPUS / "tiny.log.h5")
    assert h5logfs.is_log(os.fsencode(CORPUS / "tiny.log.h5"))
    assert not h5logfs.is_log(CORPUS / "tiny.expected.h5")
    assert not h5logfs.is_log(CORPUS)
    assert h5logfs.is_log(PNETCDF / "append-cdf2-np4" / "file.nc")
    with pytest.raises(FileNotFoundError):
        h5logfs.is_log(CORPUS / "nothing")


def test_representation_tells_what_it_is(log: Path, plain: Path) -> None:
    file = h5logfs.open(log)
    assert repr(file) == f"<h5logfs.LogFile log, {file.size} bytes, {str(log)!r}>"
    file.close()
    assert repr(file) == f"<h5logfs.LogFile closed {str(log)!r}>"
    assert "plain file" in repr(h5logfs.open(plain))


def test_a_closed_file_refuses_everything(log: Path) -> None:
    file = h5logfs.open(log)
    file.close()
    file.close()
    assert file.closed and file.name == str(log)
    for use in (
        file.read,
        file.readall,
        file.tell,
        file.readable,
        file.seekable,
        file.flush,
        file.__enter__,
        lambda: file.seek(0),
        lambda: file.readinto(bytearray(1)),
        lambda: file.read_at(0, 1),
        lambda: file.readinto_at(0, bytearray(1)),
        lambda: file.size,
        lambda: file.is_log,
        lambda: pickle.dumps(file),
    ):
        with pytest.raises(ValueError, match="closed"):
            use()


def test_descriptors_are_given_back(log: Path) -> None:
    def descriptors() -> int:
        return len(os.listdir("/proc/self/fd"))

    h5logfs.open(log).close()
    before = descriptors()
    for _ in range(20):
        with h5logfs.open(log) as file:
            file.read(10)
    assert descriptors() <= before + 2


def test_errors_of_the_system_have_their_classes(log: Path, tmp_path: Path) -> None:
    missing = tmp_path / "nothing.h5"
    with pytest.raises(FileNotFoundError) as error:
        h5logfs.open(missing)
    assert (error.value.errno, error.value.filename) == (errno.ENOENT, str(missing))
    assert error.value.strerror == os.strerror(errno.ENOENT)
    with pytest.raises(IsADirectoryError):
        h5logfs.open(tmp_path)
    with pytest.raises(NotADirectoryError):
        h5logfs.open(log / "below")
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    with pytest.raises(OSError) as error:
        h5logfs.open(loop)
    assert error.value.errno == errno.ELOOP


@pytest.mark.skipif(os.geteuid() != 0, reason="drops rights, which only root can take back")
def test_a_file_without_rights_is_a_permission_error(plain: Path) -> None:
    plain.chmod(0)
    plain.parent.chmod(0o711)
    for above in plain.parents[1:3]:
        above.chmod(0o711)
    os.seteuid(65534)
    try:
        with pytest.raises(PermissionError):
            h5logfs.open(plain)
    finally:
        os.seteuid(0)


def test_damage_is_a_log_error_with_our_sentence() -> None:
    path = CORPUS / "damaged_vlen.log.h5"
    with h5logfs.open(path) as file:
        with pytest.raises(h5logfs.LogError, match="dataset /vl: chunk .*variable-length") as error:
            file.read()
        assert isinstance(error.value, OSError) and error.value.errno is None
        assert str(error.value).startswith(f"{path}: dataset /vl")
        # The other parts are readable, and the position is unchanged.
        assert file.tell() == 0 and file.read(8) == b"\x89HDF\r\n\x1a\n"
        with pytest.raises(h5logfs.LogError):
            file.readinto(bytearray(file.size))
        assert file.tell() == 8


def test_a_log_that_cannot_be_presented_is_a_log_error(copy: Path) -> None:
    whole = copy.read_bytes()
    copy.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(h5logfs.LogError, match="copy.h5: "):
        h5logfs.open(copy)
    assert h5logfs.is_log(copy)


def test_a_log_that_changes_is_a_log_error(copy: Path) -> None:
    with h5logfs.open(copy) as file:
        copy.write_bytes(copy.read_bytes()[:-1])
        with pytest.raises(h5logfs.LogError, match="changed since it was opened"):
            file.read()


def test_unknown_options_are_value_errors(log: Path) -> None:
    for use in (h5logfs.open, h5logfs.is_log, h5logfs.inspect):
        with pytest.raises(ValueError, match="cash_size"):
            use(log, cash_size="1G")
    with pytest.raises(ValueError, match="comma"):
        h5logfs.open(log, index_dir="a,b")
    with pytest.raises(TypeError, match="cache_size"):
        h5logfs.open(log, cache_size=1.5)


def test_options_change_what_is_read() -> None:
    log = CORPUS / "strided.log.h5"
    with h5logfs.open(log, chunk="4K") as small, h5logfs.open(log, chunk=1 << 16, cache_size="64M") as large:
        content = small.read()
        assert content != large.read()
        assert small.options == {"chunk": "4K"}
        assert pickle.loads(pickle.dumps(small)).read_at(0, len(content)) == content


def test_an_index_is_kept_where_it_is_asked_for(log: Path, tmp_path: Path, canonical: bytes) -> None:
    kept = tmp_path / "kept"
    assert h5logfs.open(log, index_dir=kept).read() == canonical
    assert any(path.is_file() for path in kept.rglob("*"))
    assert h5logfs.open(log, index_dir=kept).read() == canonical


def test_threads_share_a_file(log: Path, canonical: bytes) -> None:
    ranges = [(at, 1 + at % 977) for at in range(0, len(canonical), 211)]
    with h5logfs.open(log) as file, ThreadPoolExecutor(8) as pool:
        for _ in range(5):
            parts = list(pool.map(lambda r: file.read_at(*r), ranges))
            assert parts == [canonical[at : at + size] for at, size in ranges]


def test_threads_get_bytes_of_their_own_from_one_position(log: Path, canonical: bytes) -> None:
    """Each byte goes to one of the readers, in order for each of them."""
    taken: list[bytes] = []
    with h5logfs.open(log) as file:
        start = threading.Barrier(4)

        def reader() -> None:
            start.wait()
            while part := file.read(31):
                taken.append(part)

        threads = [threading.Thread(target=reader) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(taken) == sorted(canonical[at : at + 31] for at in range(0, len(canonical), 31))


def test_closing_while_a_thread_reads_is_no_error(log: Path, canonical: bytes) -> None:
    for _ in range(10):
        file = h5logfs.open(log)
        started = threading.Event()
        outcomes: list[object] = []

        def reader() -> None:
            try:
                while True:
                    outcomes.append(file.read_at(0, 1 << 20) == canonical)
                    started.set()
            except ValueError as error:
                outcomes.append(str(error))

        thread = threading.Thread(target=reader)
        thread.start()
        started.wait()
        file.close()
        thread.join()
        assert set(outcomes[:-1]) == {True} and "closed" in str(outcomes[-1])


def test_a_pickle_opens_the_same_file(log: Path, canonical: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(log.parent)
    with h5logfs.open(log.name) as file:
        file.seek(100)
        stored = pickle.dumps(file)
    monkeypatch.chdir("/")
    with pickle.loads(stored) as again:
        assert (again.name, again.tell(), again.read(50)) == (log.name, 100, canonical[100:150])
        assert again.options == {}
    monkeypatch.chdir(log.parent)
    os_error = pickle.loads(pickle.dumps(h5logfs.LogError("torn")))
    assert isinstance(os_error, h5logfs.LogError) and str(os_error) == "torn"
