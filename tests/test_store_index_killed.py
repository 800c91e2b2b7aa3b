"""An index whose owner is killed while it writes is whole after the next rebuild, and never wrong before."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from pathlib import Path

import pytest

pytest.importorskip("numpy")
pytest.importorskip("chromadb")

from diagnose.store.embeddings import HashedWords
from diagnose.store.index import IncidentIndex, Place
from tests.remembered import Remembered

pytestmark = pytest.mark.filterwarnings("ignore")


def filled() -> Remembered:
    memory = Remembered()
    for n in range(640):
        name = ("ECCError", "DiskFull", "KeyError")[n % 3]
        memory.put(f"i{n:03}", name, f"error: {name} word{'x' * (n % 29)} other{'y' * (n % 23)}")
    return memory


def _rebuild(folder: str) -> None:
    index = IncidentIndex(Place(folder), filled(), HashedWords(), lambda text: text)
    index.rebuild(tell=lambda _: time.sleep(0.05))
    index.close()


def test_kill_at_any_point_of_a_rebuild(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    folder = str(tmp_path / "index")
    database = os.path.join(folder, "index.sqlite3")
    for wait in (0.0, 0.12, 0.31):
        killed = context.Process(target=_rebuild, args=(folder,))
        killed.start()
        for _ in range(1200):  # until it writes
            if killed.exitcode is not None or (os.path.exists(database) and os.path.getsize(database)):
                break
            time.sleep(0.05)
        time.sleep(wait)
        os.kill(killed.pid or 0, signal.SIGKILL)
        killed.join(30)
    index = IncidentIndex(Place(folder), filled(), HashedWords(), lambda text: text)
    assert index.owned
    index.rebuild()
    assert len(index) == 640
    assert index.check().sound
    assert index.similar("error: DiskFull", 1)[0].error_type == "DiskFull"
    index.close()
