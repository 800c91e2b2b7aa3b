"""The index of past incidents: found by the words of their error lines and by vectors, and made anew from the database.

In: the incidents of a memory, an embedder, a way to redact. Out: `SimilarIncident`s for a text, best first. The
database holds the truth: `sync` follows it, `rebuild` reads all of it again and goes on where it was stopped, `check`
compares. One process owns an index directory; others read what it wrote, with plain numpy.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

from diagnose.dataclass import dataclass
from diagnose.errors import UsageError
from diagnose.models import Incident, Incidents, SimilarIncident
from diagnose.store.embeddings import Embedder, cached
from diagnose.store.entries import Entries, Entry
from diagnose.store.lexical import LexicalIndex, Posting
from diagnose.store.linestore import LineStore
from diagnose.store.terms import read
from diagnose.store.vectors import (
    ChromaVectors,
    NumpyVectors,
    OwnerLock,
    Vectors,
    closed,
    embedded_client,
    put_all,
    server_client,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_VECTOR_SHARE: Final = 0.2  # what the cosine of vectors adds to that of terms; measured by benchmarks/retrieval.py
_CANDIDATES: Final = 200
_BATCH: Final = 64
_TERMS: Final = "2"  # of the way terms are made: a new way makes every entry stale
_COLLECTION: Final = "incidents-"
_TRUSTED: Final = frozenset({"rules", "person"})


@dataclass(frozen=True, slots=True)
class Place:
    """Where an index lies and what keeps its vectors: `server` is the address of a Chroma server, if there is one."""

    folder: str
    backend: str = "chroma"
    server: str | None = None
    token: str | None = None


@dataclass(frozen=True, slots=True)
class Checked:
    """How the index differs from the database, by ids; all empty where it does not."""

    incidents: int
    missing: tuple[str, ...] = ()
    stale: tuple[str, ...] = ()
    left_over: tuple[str, ...] = ()
    without_vector: tuple[str, ...] = ()
    vectors_left_over: tuple[str, ...] = ()

    @property
    def sound(self) -> bool:
        """Whether nothing differs."""
        return not (self.missing or self.stale or self.left_over or self.without_vector or self.vectors_left_over)


class IncidentIndex:
    """Finds the past incidents that read like a failure."""

    def __init__(self, place: Place, incidents: Incidents, embedder: Embedder, redact: Callable[[str], str]) -> None:
        self._place = place
        self._incidents = incidents
        self._embedder = embedder
        self._redact = redact
        self._model = sha256(f"{_TERMS} {embedder.name}".encode()).hexdigest()[:8]
        self._lock = OwnerLock(place.folder)
        self._held = place.server is None and self._lock.take()
        self._client: Any = None
        self._vectors: Vectors | None = None
        self._generation = -1
        self._lexical = LexicalIndex(())
        self._positions: dict[str, int] = {}
        self._seen: tuple[int, int] | None = None
        path = os.path.join(place.folder, "index.sqlite3")
        self._writes = self._held or place.server is not None
        self._entries = Entries(path, readonly=not self._writes) if self._writes or os.path.exists(path) else None

    @property
    def owned(self) -> bool:
        """Whether this process may change the index."""
        return self._writes

    def holder(self) -> str:
        """Who owns the index, in words."""
        return self._lock.holder()

    def __len__(self) -> int:
        return len(self._entries) if self._entries else 0

    def similar(self, text: str, count: int = 5) -> tuple[SimilarIncident, ...]:
        """The past incidents that read most like this text, best first; similarities are between 0 and 1."""
        import numpy as np

        self._load()
        if not self._lexical.ids:
            return ()
        text = self._redact(text)
        terms, short = read(text)
        alike = self._lexical.similarities(np.array(terms.numbers, np.uint32), np.array(terms.weights, np.float32))
        fused = self._fused(alike, short)
        best = np.argsort(-fused, kind="stable")[: max(count, 0)]
        names = [self._lexical.ids[place] for place in best if fused[place] > 0]
        found = {incident.id: incident for incident in self._incidents.many(names)}
        return tuple(
            _similar(found[name], float(fused[self._positions[name]]))
            for name in names
            if name in found and _usable(found[name])
        )

    def told(self, ids: Sequence[str]) -> dict[str, SimilarIncident]:
        """The usable ones of these incidents as the memory has them now, of no similarity."""
        return {each.id: _similar(each, 0.0) for each in self._incidents.many(ids) if _usable(each)}

    def vector(self, text: str) -> NDArray[np.float32]:
        """The vector by which incidents like this text are found."""
        _, short = read(self._redact(text))
        row: NDArray[np.float32] = self._embedder.embed([short])[0]
        return row

    @property
    def embedder(self) -> Embedder:
        """What makes vectors of texts."""
        return self._embedder

    @property
    def collection(self) -> Any:
        """Chroma's own object; None where the vectors are in no Chroma, or it is another process's."""
        vectors = self._open_vectors()
        return vectors.collection if isinstance(vectors, ChromaVectors) else None

    def bearing(self, text: str, ids: Sequence[str], count: int = 3) -> tuple[str, ...]:
        """The lines of a text that read most like what decided these incidents, in their order."""
        past = [incident.text for incident in self._incidents.many(ids)]
        return LineStore(text.split("\n")).bearing(past, count)

    def _fused(self, alike: NDArray[np.float32], short: str) -> NDArray[np.float32]:
        """Terms and vectors together."""
        import numpy as np

        near = self._near(self._embedder.embed([short])[0]) if short else []
        near = [(name, max(cosine, 0.0)) for name, cosine in near if name in self._positions]
        # How near those are that were not among the nearest is not known, but not nearer than these.
        farthest = near[-1][1] if len(near) < len(alike) and near else 0.0
        cosines = np.full(len(alike), farthest, np.float32)
        for name, cosine in near:
            cosines[self._positions[name]] = cosine
        fused: NDArray[np.float32] = np.where(alike > 0, (alike + _VECTOR_SHARE * cosines) / (1 + _VECTOR_SHARE), 0)
        return np.clip(fused, 0, 1)

    def _near(self, vector: NDArray[np.float32]) -> list[tuple[str, float]]:
        vectors = self._open_vectors()
        return vectors.nearest(vector, _CANDIDATES) if vectors else []

    def sync(self, *, seconds: float | None = None, tell: Callable[[int], None] | None = None) -> int:
        """Follows the database, for so many seconds at most; says how many incidents it took in.

        Another process that owns the index does it instead; then this one takes nothing in.
        """
        if not self._may_write():
            return 0
        try:
            return self._sync(seconds, tell)
        finally:
            self._done_writing()

    def rebuild(self, *, tell: Callable[[int], None] | None = None) -> int:
        """Reads the whole database again, or the rest of it where a rebuild was stopped; says how many it took in.

        Raises `UsageError` where another process owns the index.
        """
        if not self._may_write():
            raise UsageError(
                f"the index {self._place.folder} is in use by {self.holder()}; wait for it to end, or run a Chroma "
                "server and set DIAGNOSE_CHROMA_URL for all of them"
            )
        try:
            self._begin()
            return self._sync(None, tell)
        finally:
            self._done_writing()

    def check(self) -> Checked:
        """Compares the index with the database."""
        wanted = {
            incident.id: self._digest(self._redact(incident.text)) for incident in self._incidents if _usable(incident)
        }
        there = self._entries.digests() if self._entries else {}
        vectors = self._open_vectors()
        kept = vectors.ids() if vectors else set()
        return Checked(
            len(wanted),
            missing=tuple(sorted(wanted.keys() - there.keys())),
            stale=tuple(sorted(each for each in wanted.keys() & there.keys() if wanted[each] != there[each])),
            left_over=tuple(sorted(there.keys() - wanted.keys())),
            without_vector=tuple(sorted((wanted.keys() & there.keys()) - kept)),
            vectors_left_over=tuple(sorted(kept - there.keys())),
        )

    def close(self) -> None:
        """Lets go of the index, so that another process may own it."""
        if self._client is not None:
            closed(self._client)
        if self._entries is not None:
            self._entries.close()
        self._vectors = self._entries = self._client = None
        self._lock.release()

    def _may_write(self) -> bool:
        """Whether this process may write now: as the owner, or of a shared server's index for as long as it takes."""
        return self._held or (self._place.server is not None and self._lock.take())

    def _done_writing(self) -> None:
        if not self._held:
            self._lock.release()

    def _begin(self) -> None:
        """Starts a rebuild, unless one was begun and not finished."""
        entries = self._own()
        if not entries.fact("building") or entries.fact("model") != self._model:
            generation = entries.number("generation") + 1
            if entries.fact("building"):
                generation = entries.number("building") + 1
            entries.put_facts({"building": str(generation), "built": "0", "model": self._model})

    def _sync(self, seconds: float | None, tell: Callable[[int], None] | None) -> int:
        entries = self._own()
        until = float("inf") if seconds is None else time.monotonic() + seconds
        latest = self._incidents.revision()
        reached = entries.number("revision")
        if entries.fact("model") not in ("", self._model) or reached > latest or not entries.fact("generation"):
            self._begin()  # vectors of another model, or another database
        building = entries.fact("building")
        generation = entries.number("building" if building else "generation")
        progress = "built" if building else "revision"
        reached = entries.number(progress)
        if not building:
            removed = self._incidents.removed_since(reached)
            gone = [name for _, name in removed if self._incidents.get(name) is None]
            self._forget(gone)
        taken = 0
        for batch in _batches(self._incidents.changed_since(reached), latest):
            self._take(batch, generation, progress)
            taken += len(batch)
            if tell:
                tell(taken)
            if time.monotonic() > until:
                return taken
        facts = {"revision": str(latest), "generation": str(generation), "building": "", "model": self._model}
        if building:
            entries.remove_older(generation, facts)
            vectors = self._open_vectors()
            if isinstance(vectors, ChromaVectors):
                vectors.drop_others(_COLLECTION)
        else:
            entries.put_facts(facts)
        return taken

    def _take(self, batch: Sequence[Incident], generation: int, progress: str) -> None:
        """Takes a batch in: vectors first, so that what the entries name is always there."""
        import numpy as np

        entries = self._own()
        usable = [incident for incident in batch if _usable(incident)]
        texts = [self._redact(incident.text) for incident in usable]
        digests = [self._digest(text) for text in texts]
        known = {digest: entries.vector_of(digest) for digest in dict.fromkeys(digests)}
        said = [read(text) for text in texts]
        new = [short for (_, short), digest in zip(said, digests, strict=True) if known[digest] is None]
        rows = iter(cached(self._embedder.embed, new))
        made: list[Entry] = []
        for incident, (terms, _), digest in zip(usable, said, digests, strict=True):
            vector = known[digest]
            row = next(rows) if vector is None else np.frombuffer(vector, np.float32)
            numbers, weights = np.array(terms.numbers, np.uint32), np.array(terms.weights, np.float32)
            made.append(Entry(incident.id, incident.error_type or "", digest, numbers, weights, row))
        vectors = self._open_vectors()
        if vectors:
            put_all(vectors, ((each.id, each.vector, each.label) for each in made))
        entries.put(made, generation, {progress: str(max(incident.revision for incident in batch))})
        self._forget([incident.id for incident in batch if not _usable(incident)])

    def _forget(self, ids: Sequence[str]) -> None:
        if ids:
            if vectors := self._open_vectors():
                vectors.remove(ids)
            self._own().remove(ids, {})

    def _load(self) -> None:
        """Reads the entries, if they changed since they were read."""
        if self._entries is None:
            return
        now = self._entries.changes()
        if now == self._seen:
            return
        entries = list(self._entries)
        self._lexical = LexicalIndex([Posting(each.id, each.label, each.numbers, each.weights) for each in entries])
        self._positions = {name: place for place, name in enumerate(self._lexical.ids)}
        if not self._uses_chroma():
            vectors = NumpyVectors()
            put_all(
                vectors,
                ((each.id, each.vector, each.label) for each in entries if each.digest.startswith(self._model)),
            )
            self._vectors = vectors
        self._seen = now

    def _uses_chroma(self) -> bool:
        return self._place.server is not None or (self._place.backend == "chroma" and self._held)

    def _open_vectors(self) -> Vectors | None:
        """What keeps the vectors of the present generation."""
        if self._entries is None:
            return None
        if not self._uses_chroma():
            self._load()
            return self._vectors
        generation = self._entries.number("building") or self._entries.number("generation") or 1
        if self._vectors is None or generation != self._generation:
            if self._client is None:
                self._client = (
                    server_client(self._place.server, self._place.token)
                    if self._place.server
                    else embedded_client(os.path.join(self._place.folder, "chroma"))
                )
            self._vectors = ChromaVectors(self._client, f"{_COLLECTION}{generation}")
            self._generation = generation
        return self._vectors

    def _own(self) -> Entries:
        assert self._entries is not None  # whoever may write has opened them
        return self._entries

    def _digest(self, text: str) -> str:
        return self._model + sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:24]


def _usable(incident: Incident) -> bool:
    """Whether one may learn from it: what nobody confirmed and no rule decided would only repeat a guess."""
    trusted = incident.confirmed or incident.decided_by in _TRUSTED
    return trusted and incident.error_type is not None and bool(incident.text.strip())


def _similar(incident: Incident, similarity: float) -> SimilarIncident:
    return SimilarIncident(
        incident.id,
        incident.error_type or "",
        round(similarity, 3),
        recovered=incident.recovered,
        summary=incident.summary,
        attribution=incident.attribution,
        job=incident.job,
    )


def _batches(incidents: Iterator[Incident], latest: int) -> Iterator[list[Incident]]:
    """Incidents in parts, up to a revision: what is changed meanwhile comes next time."""
    batch: list[Incident] = []
    for incident in incidents:
        if incident.revision > latest:
            break
        batch.append(incident)
        if len(batch) >= _BATCH:
            yield batch
            batch = []
    if batch:
        yield batch
