"""The notebook that draws a running job, in Jupyter's kernel."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from conftest import ROOT, program
from test_log import Growing

nbclient = pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")
pytest.importorskip("matplotlib")

FLUSHES = 5


class Watched(nbclient.NotebookClient):
    """Signals each picture that a cell draws."""

    def process_message(self, message, cell, index):
        if message["msg_type"] in ("display_data", "update_display_data") and "image/png" in message["content"]["data"]:
            self.drawn.release()
        return super().process_message(message, cell, index)


def dataset(path: str, dims: list[int]) -> dict:
    layout = {"datatype": {"float": {"size": 8}}, "dims": dims, "max_dims": [None, *dims[1:]]}
    return {"path": path, "layout": layout}


def test_the_notebook_draws_each_flush_until_the_log_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import nbformat

    log = Growing(tmp_path / "heat.h5", [dataset("/temperature", [0, 8, 8]), dataset("/time", [0])])

    def flush(frames: int) -> None:
        log.flush_extents([[frames, 8, 8], [frames]], 1000 * frames)

    flush(1)
    notebook = nbformat.read(ROOT / "examples" / "notebooks" / "live.ipynb", as_version=4)
    monkeypatch.setenv("HEAT_LOG", str(log.path))
    client = Watched(notebook, timeout=120)
    client.drawn = threading.Semaphore(0)

    def job() -> None:
        # The empty figure, and the first frame.
        client.drawn.acquire()
        for frames in range(2, FLUSHES + 1):
            client.drawn.acquire()
            flush(frames)
        client.drawn.acquire()
        program("recover", log.path)

    writing = threading.Thread(target=job, daemon=True)
    writing.start()
    client.execute()
    writing.join(10)
    assert not writing.is_alive()
    (picture,) = notebook.cells[3].outputs
    assert "image/png" in picture["data"]
