"""Where vectors of incidents are kept and searched: Chroma in this process, a Chroma server, or plain numpy.

In: ids with vectors of length 1. Out: the nearest ids with their cosine. All behind the one protocol `Vectors`. Several
processes on one embedded Chroma directory corrupt it silently, so whoever opens it holds `OwnerLock` first.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import quote, urlsplit

from diagnose.errors import OutageError, UsageError
from diagnose.sources.places import check_address
from diagnose.store.patience import within

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Vectors32 = NDArray[np.float32]

_PUT_AT_ONCE: Final = 500
_GET_AT_ONCE: Final = 5_000
_SECONDS: Final = 10.0  # that a server may take for an answer


class Vectors(Protocol):
    """Vectors by id."""

    def put(self, ids: Sequence[str], vectors: Vectors32, labels: Sequence[str]) -> None:
        """Adds vectors, or replaces those of the same ids."""
        ...

    def remove(self, ids: Sequence[str]) -> None:
        """Removes vectors; ids that are not there do not matter."""
        ...

    def nearest(self, vector: Vectors32, count: int) -> list[tuple[str, float]]:
        """The nearest ids with their cosine, best first."""
        ...

    def ids(self) -> set[str]:
        """All ids."""
        ...

    def close(self) -> None:
        """Lets go of what it holds."""
        ...


class NumpyVectors:
    """All vectors in memory: a tenth of the time of anything else up to ten thousand, and sound with many readers."""

    def __init__(self) -> None:
        import numpy as np

        self._rows: dict[str, Vectors32] = {}
        self._ids: list[str] = []
        self._matrix: Vectors32 = np.empty((0, 0), np.float32)
        self._stale = False

    def put(self, ids: Sequence[str], vectors: Vectors32, labels: Sequence[str] = ()) -> None:
        """Adds vectors, or replaces those of the same ids."""
        self._rows.update(zip(ids, vectors, strict=True))
        self._stale = True

    def remove(self, ids: Sequence[str]) -> None:
        """Removes vectors."""
        for name in ids:
            self._stale = self._rows.pop(name, None) is not None or self._stale

    def nearest(self, vector: Vectors32, count: int) -> list[tuple[str, float]]:
        """The nearest ids with their cosine, best first."""
        import numpy as np

        if self._stale:
            # An endpoint may serve another model under the same name: what does not compare is left out.
            self._ids = [name for name, row in self._rows.items() if len(row) == len(vector)]
            rows = [self._rows[name] for name in self._ids]
            self._matrix = np.stack(rows) if rows else np.empty((0, 0), np.float32)
            self._stale = False
        if not self._ids or self._matrix.shape[1] != len(vector):
            return []
        similar = self._matrix @ vector
        best = np.argsort(-similar, kind="stable")[:count]
        return [(self._ids[place], float(similar[place])) for place in best]

    def ids(self) -> set[str]:
        """All ids."""
        return set(self._rows)

    def close(self) -> None:
        """Nothing is held open."""


@contextlib.contextmanager
def _told() -> Iterator[None]:
    """Turns whatever Chroma raises into one line that says what to do."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 - Chroma raises whatever its parts do
        why = type(error).__name__
        if "Invalid" in why:
            raise UsageError(
                f"the vector store refused the vectors ({why}): they are of another model than those that it holds; "
                "delete the directory of the index (DIAGNOSE_INDEX) and run: diagnose index rebuild"
            ) from None
        raise OutageError(
            f"the vector store {'took too long' if 'Timeout' in why else 'failed'} ({why}); see whether its server or "
            "its disk is well, or run: diagnose index rebuild"
        ) from None


class ChromaVectors:
    """A collection of Chroma. No text is handed to it: ids, vectors and error types only."""

    def __init__(self, client: Any, collection: str) -> None:
        self._client = client
        self._name = collection
        with _told():
            self._collection = client.get_or_create_collection(
                collection, embedding_function=None, configuration={"hnsw": {"space": "cosine"}}
            )

    @property
    def collection(self) -> Any:
        """Chroma's own object, for LlamaIndex."""
        return self._collection

    def put(self, ids: Sequence[str], vectors: Vectors32, labels: Sequence[str]) -> None:
        """Adds vectors, or replaces those of the same ids."""
        for start in range(0, len(ids), _PUT_AT_ONCE):
            part = slice(start, start + _PUT_AT_ONCE)
            with _told():
                self._collection.upsert(
                    ids=list(ids[part]),
                    embeddings=vectors[part],
                    metadatas=[{"error_type": label} for label in labels[part]],
                )

    def remove(self, ids: Sequence[str]) -> None:
        """Removes vectors."""
        for start in range(0, len(ids), _PUT_AT_ONCE):
            with _told():
                self._collection.delete(ids=list(ids[start : start + _PUT_AT_ONCE]))

    def nearest(self, vector: Vectors32, count: int) -> list[tuple[str, float]]:
        """The nearest ids with their cosine, best first."""
        with _told():
            there = self._collection.count()
            if not there:
                return []
            found = self._collection.query(
                query_embeddings=[vector], n_results=min(count, there), include=["distances"]
            )
        return [(name, 1.0 - float(far)) for name, far in zip(found["ids"][0], found["distances"][0], strict=True)]

    def ids(self) -> set[str]:
        """All ids, fetched in parts."""
        found: set[str] = set()
        while True:
            with _told():
                part = self._collection.get(include=[], limit=_GET_AT_ONCE, offset=len(found))["ids"]
            if not part:
                return found
            before = len(found)
            found.update(part)
            if len(found) == before:
                return found

    def drop_others(self, prefix: str) -> None:
        """Drops the collections of earlier rebuilds."""
        with _told():
            for other in self._client.list_collections():
                if other.name.startswith(prefix) and other.name != self._name:
                    self._client.delete_collection(other.name)

    def close(self) -> None:
        """Stops what this process runs of Chroma."""
        closed(self._client)


def embedded_client(path: str) -> Any:
    """Chroma in this process; the caller holds the directory's `OwnerLock`."""
    import chromadb

    os.makedirs(path, mode=0o700, exist_ok=True)
    _check(os.path.join(path, "chroma.sqlite3"))
    try:
        return chromadb.PersistentClient(path, settings=_settings())
    except Exception as error:  # noqa: BLE001 - Chroma raises whatever its parts do
        why = type(error).__name__
        raise UsageError(
            f"the vector store {path} cannot be opened ({why}); delete it and run: diagnose index rebuild"
        ) from None


def _check(path: str) -> None:
    """Raises `UsageError` where Chroma's file is damaged: some damage ends the whole process inside of Chroma."""
    if not os.path.exists(path):
        return
    try:
        with contextlib.closing(sqlite3.connect(f"file:{quote(path)}?mode=ro", uri=True)) as database:
            database.execute("select name, tbl_name, sql from sqlite_master").fetchall()
            said = database.execute("pragma quick_check(1)").fetchone()[0]
    except sqlite3.OperationalError as error:  # a full disk, or no right to it: the file may be well
        raise UsageError(
            f"the vector store {os.path.dirname(path)} cannot be read ({error}); free the disk, mend its rights, "
            "or delete it and run: diagnose index rebuild"
        ) from None
    except (sqlite3.Error, UnicodeDecodeError) as error:
        said = type(error).__name__
    if said != "ok":
        raise UsageError(
            f"the vector store {os.path.dirname(path)} is damaged; delete it and run: diagnose index rebuild"
        )


def server_client(address: str, token: str | None = None) -> Any:
    """A Chroma server. Raises `UsageError` where the address is none, `OutageError` where nothing answers in time."""
    check_address("DIAGNOSE_CHROMA_URL", address, "http://chroma:8000", "DIAGNOSE_CHROMA_TOKEN_FILE")
    parts = urlsplit(address)
    host = parts.hostname or ""
    port = parts.port or (443 if parts.scheme == "https" else 8000)
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        _answers(parts.scheme, host, port, headers)
        import chromadb

        secure = parts.scheme == "https"
        client = within(
            3 * _SECONDS,  # of several requests, for which the client itself has no time limit
            lambda: chromadb.HttpClient(host=host, port=port, ssl=secure, headers=headers, settings=_settings()),
        )
    except Exception as error:  # noqa: BLE001 - Chroma raises whatever its parts do
        raise OutageError(
            f"no Chroma server answers at {host}:{port} ({type(error).__name__}); start it with "
            "`chroma run`, or unset DIAGNOSE_CHROMA_URL"
        ) from None
    for session in _sessions(client):
        session.timeout = _SECONDS
    return client


def _answers(scheme: str, host: str, port: int, headers: Mapping[str, str]) -> None:
    """Asks whether it is there: Chroma's own client would wait for ever."""
    from http.client import HTTPConnection, HTTPSConnection

    connection = (HTTPSConnection if scheme == "https" else HTTPConnection)(host, port, timeout=_SECONDS)
    try:
        connection.request("GET", "/api/v2/heartbeat", headers=dict(headers))
        status = connection.getresponse().status
    finally:
        connection.close()
    if status != HTTPStatus.OK:
        raise ConnectionError(f"HTTP {status}")


def closed(client: Any) -> None:
    """Stops what this process runs of Chroma, and closes its connections, which it leaves open."""
    sessions = _sessions(client)
    with contextlib.suppress(Exception):
        client.close()
    for session in sessions:
        session.close()


def _sessions(client: Any) -> list[Any]:
    """The HTTP sessions of a client, which has one for tenants beside its own; none of an embedded one."""
    parts = (client, getattr(client, "_admin_client", None))
    found = [getattr(getattr(part, "_server", None), "_session", None) for part in parts]
    return [session for session in found if session is not None]


def _settings() -> Any:
    from chromadb.config import Settings

    return Settings(anonymized_telemetry=False, allow_reset=False)


class OwnerLock:
    """Says which one process may write an index directory. The system lets go of it when the process ends, however."""

    def __init__(self, folder: str) -> None:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        self._path = os.path.join(folder, "owner.lock")
        self._file: int | None = None

    def take(self) -> bool:
        """Takes the lock; says no where another process has it."""
        file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(file)
            return False
        os.ftruncate(file, 0)
        os.pwrite(file, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
        self._file = file
        return True

    def holder(self) -> str:
        """Who has it, in words."""
        with contextlib.suppress(OSError), open(self._path, encoding="utf-8", errors="replace") as file:
            if said := file.read(200).strip():
                return said
        return "another process"

    def release(self) -> None:
        """Lets go of it."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


def put_all(vectors: Vectors, entries: Iterable[tuple[str, Vectors32, str]]) -> None:
    """Puts many vectors, in parts."""
    import numpy as np

    part: list[tuple[str, Vectors32, str]] = []

    def put() -> None:
        if part:
            ids, rows, labels = zip(*part, strict=True)
            vectors.put(ids, np.stack(rows), labels)
            part.clear()

    for entry in entries:
        if part and len(part[-1][1]) != len(entry[1]):
            put()
        part.append(entry)
        if len(part) >= _PUT_AT_ONCE:
            put()
    put()
