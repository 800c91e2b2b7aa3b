"""The index finds past incidents, follows the database, goes on after a kill, and has one owner."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("numpy")
pytest.importorskip("chromadb")

from diagnose.errors import UsageError
from diagnose.store.embeddings import HashedWords
from diagnose.store.index import IncidentIndex, Place
from diagnose.store.vectors import OwnerLock
from tests.remembered import Remembered
from tests.stores import chroma_server

# Chroma opens files and threads that it closes when it pleases.
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

OOM = "[rank{n}]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {n}.00 GiB"
ECC = "NVRM: Xid (PCI:0000:{n}d:00): 95, pid={n}1, Uncontained ECC error"
DISK = "OSError: [Errno 28] No space left on device: '/data/run{n}/x.pt'"


def same(text: str) -> str:
    return text


@pytest.fixture
def memory() -> Remembered:
    found = Remembered()
    for n in range(1, 5):
        found.put(f"oom-{n}", "OutOfMemoryError", OOM.format(n=n), job="fix_and_resubmit", recovered=True)
        found.put(f"ecc-{n}", "ECCError", ECC.format(n=n))
        found.put(f"disk-{n}", "DiskFull", DISK.format(n=n))
    return found


@pytest.fixture(params=["chroma", "numpy"])
def opened(request: pytest.FixtureRequest, tmp_path: Path, memory: Remembered) -> Iterator[Callable[[], IncidentIndex]]:
    made: list[IncidentIndex] = []

    def open_it() -> IncidentIndex:
        made.append(IncidentIndex(Place(str(tmp_path / "index"), request.param), memory, HashedWords(), same))
        return made[-1]

    yield open_it
    for index in made:
        index.close()


def test_similar_incidents_come_with_verdict_and_outcome(opened: Callable[[], IncidentIndex]) -> None:
    index = opened()
    assert index.sync() == 12
    found = index.similar("[rank7]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 9.50 GiB", 3)
    assert [each.error_type for each in found] == ["OutOfMemoryError"] * 3
    assert found[0].recovered is True
    assert found[0].job == "fix_and_resubmit"
    assert 0.5 < found[0].similarity <= 1
    assert index.similar("", 3) == ()
    assert index.similar("something else entirely", 3) == ()


def test_it_follows_the_database(opened: Callable[[], IncidentIndex], memory: Remembered) -> None:
    index = opened()
    index.sync()
    assert index.check().sound
    memory.put("oom-1", "HostOutOfMemory", OOM.format(n=1))
    memory.put("new", "ECCError", ECC.format(n=9))
    memory.put("guess", "ECCError", ECC.format(n=8), confirmed=False, decided_by="failure_agent")
    memory.drop("disk-1")
    difference = index.check()
    assert difference.missing == ("new",)
    assert difference.left_over == ("disk-1",)
    assert index.sync() == 3
    assert index.check().sound
    assert index.sync() == 0
    assert "disk-1" not in {each.id for each in index.similar(DISK.format(n=1), 12)}
    memory.put("new", "ECCError", ECC.format(n=9), confirmed=False)
    index.sync()
    assert "new" not in {each.id for each in index.similar(ECC.format(n=9), 12)}


def test_a_rebuild_goes_on_where_it_was_stopped(opened: Callable[[], IncidentIndex], memory: Remembered) -> None:
    for n in range(200):
        memory.put(f"more-{n}", "ECCError", f"{ECC.format(n=n)} word{'x' * n}")
    index = opened()
    index.sync()

    class Killed(Exception):
        pass

    def kill(taken: int) -> None:
        if taken >= 128:
            raise Killed

    with pytest.raises(Killed):
        index.rebuild(tell=kill)
    assert index.similar(OOM.format(n=1), 1)[0].error_type == "OutOfMemoryError"  # the old entries still serve
    index.close()
    again = opened()
    assert again.rebuild() == 212 - 128
    assert again.check().sound
    assert again.similar(OOM.format(n=1), 1)[0].error_type == "OutOfMemoryError"


def test_what_is_damaged_is_found_and_mended(opened: Callable[[], IncidentIndex]) -> None:
    index = opened()
    index.sync()
    vectors = index._open_vectors()
    assert vectors is not None
    vectors.remove(["oom-1", "oom-2"])
    assert index.check().without_vector == ("oom-1", "oom-2")
    index.rebuild()
    assert index.check().sound


def _hold(folder: str, ready: multiprocessing.Queue) -> None:
    lock = OwnerLock(folder)
    ready.put(lock.take())
    time.sleep(60)


def test_a_second_process_may_read_but_not_write(tmp_path: Path, memory: Remembered) -> None:
    folder = str(tmp_path / "index")
    first = IncidentIndex(Place(folder), memory, HashedWords(), same)
    first.sync()
    second = IncidentIndex(Place(folder), memory, HashedWords(), same)  # flock tells descriptors apart, not processes
    assert first.owned
    assert not second.owned
    assert second.sync() == 0
    with pytest.raises(UsageError, match=rf"in use by process {os.getpid()} on .*DIAGNOSE_CHROMA_URL"):
        second.rebuild()
    assert second.similar(OOM.format(n=3), 1)[0].error_type == "OutOfMemoryError"
    memory.put("late", "ECCError", "NVRM: Xid 48 double bit")
    first.sync()
    assert second.similar("NVRM: Xid 48 double bit", 1)[0].id == "late"
    first.close()
    second.close()


def test_an_owner_that_was_killed_owns_nothing(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    ready = context.Queue()
    holder = context.Process(target=_hold, args=(str(tmp_path), ready), daemon=True)
    holder.start()
    assert ready.get(timeout=60)
    lock = OwnerLock(str(tmp_path))
    assert not lock.take()
    assert lock.holder().startswith(f"process {holder.pid} on ")
    os.kill(holder.pid or 0, signal.SIGKILL)
    holder.join(10)
    assert lock.take()
    lock.release()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server that tests share."""
    with chroma_server(tmp_path_factory.mktemp("chroma")) as (address, _):
        yield address


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[tuple[str, int]]:
    """A server of one test's own."""
    with chroma_server(tmp_path / "chroma") as made:
        yield made


@pytest.mark.enable_socket
@pytest.mark.allow_hosts(["127.0.0.1"])
def test_several_processes_share_a_server(server: str, tmp_path: Path, memory: Remembered) -> None:
    one = IncidentIndex(Place(str(tmp_path / "one"), server=server), memory, HashedWords(), same)
    other = IncidentIndex(Place(str(tmp_path / "one"), server=server), memory, HashedWords(), same)
    one.sync()
    memory.put("late", "ECCError", "NVRM: Xid 48 double bit")
    assert other.sync() == 1
    assert one.similar("NVRM: Xid 48 double bit", 1)[0].id == "late"
    assert one.check().sound
    assert one.rebuild() == 13
    assert other.check().sound
    one.close()
    other.close()


@pytest.mark.enable_socket
@pytest.mark.allow_hosts(["127.0.0.1"])
def test_a_server_that_stops_answering_is_told(
    tmp_path: Path, memory: Remembered, monkeypatch: pytest.MonkeyPatch, own_server: tuple[str, int]
) -> None:
    from diagnose.store import vectors

    address, process = own_server
    index = IncidentIndex(Place(str(tmp_path / "one"), server=address), memory, HashedWords(), same)
    index.sync()
    assert index.similar("NVRM: Xid 48 double bit", 1)
    for session in vectors._sessions(index._client):
        session.timeout = 0.5
    monkeypatch.setattr(vectors, "_SECONDS", 0.5)
    os.kill(process, signal.SIGSTOP)
    try:
        with pytest.raises(UsageError, match=r"the vector store took too long \(ReadTimeout\)"):
            index.similar("NVRM: Xid 48 double bit", 1)
        memory.put("late", "ECCError", "NVRM: Xid 48 double bit")
        with pytest.raises(UsageError, match="the vector store took too long"):
            index.sync()
        other = IncidentIndex(Place(str(tmp_path / "two"), server=address), memory, HashedWords(), same)
        with pytest.raises(UsageError, match=r"no Chroma server answers at .* \(TimeoutError\)"):
            other.sync()
        other.close()
    finally:
        os.kill(process, signal.SIGCONT)
    for session in vectors._sessions(index._client):
        session.timeout = 10.0
    assert index.sync() == 1
    assert index.check().sound
    index.close()


@pytest.mark.enable_socket
@pytest.mark.allow_hosts(["127.0.0.1"])
def test_a_server_that_does_not_answer_is_told(tmp_path: Path, memory: Remembered) -> None:
    index = IncidentIndex(Place(str(tmp_path), server="http://127.0.0.1:9"), memory, HashedWords(), same)
    with pytest.raises(UsageError, match=r"no Chroma server answers at 127\.0\.0\.1:9"):
        index.sync()
    index.close()
    index = IncidentIndex(Place(str(tmp_path), server="nonsense"), memory, HashedWords(), same)
    with pytest.raises(UsageError, match="DIAGNOSE_CHROMA_URL is no address"):
        index.sync()
    index.close()
