"""What the index holds of each incident, in one SQLite file: its terms, its vector, how far the database is read.

In: entries, batch by batch. Out: the same after a kill at any point, since a batch and how far it reached are one
transaction. One file serves readers of other processes while its owner writes.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from diagnose.dataclass import dataclass
from diagnose.errors import UsageError
from diagnose.sources.printable import printable

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

FORMAT: Final = "1"
_SCHEMA: Final = """
create table if not exists facts (name text primary key, value text not null) without rowid;
create table if not exists entries (
  id text primary key, label text not null, digest text not null, generation integer not null,
  numbers blob not null, weights blob not null, vector blob not null
) without rowid;
create index if not exists entries_by_digest on entries (digest);
"""
# The driver fails over its own words for what it found, too: they quote the file.
_DAMAGED: Final = (sqlite3.Error, UnicodeDecodeError)
_WAIT: Final = 10.0  # seconds for another process to finish its batch


@dataclass(frozen=True, slots=True)
class Entry:
    """One incident in the index. `digest` is that of the text it was made of, with the embedder's name."""

    id: str
    label: str
    digest: str
    numbers: NDArray[np.uint32]
    weights: NDArray[np.float32]
    vector: NDArray[np.float32]


class Entries:
    """The entries of one index directory. Raises `UsageError` where the file cannot be used."""

    def __init__(self, path: str, *, readonly: bool = False) -> None:
        self._path = path
        self._readonly = readonly
        try:
            if readonly and not os.path.exists(path):
                raise UsageError(f"{path} does not exist yet; run: diagnose index rebuild")
            name = f"file:{_quoted(path)}?mode={'ro' if readonly else 'rwc'}"
            self._database = sqlite3.connect(
                name, uri=True, timeout=_WAIT, isolation_level=None, check_same_thread=False
            )
            if not readonly:
                self._database.execute("pragma journal_mode=wal")
                self._database.executescript(_SCHEMA)
            found = self.fact("format")
            if not readonly and not found:
                self.put_facts({"format": FORMAT})
        except _DAMAGED as error:
            raise _unusable(path, error) from None
        if found not in ("", FORMAT):
            raise UsageError(f"{path} was made by another version of diagnose; run: diagnose index rebuild")

    def fact(self, name: str) -> str:
        """What is noted under a name; nothing where nothing is."""
        row = self._one("select value from facts where name = ?", name)
        return str(row[0]) if row else ""

    def number(self, name: str) -> int:
        """The number noted under a name; 0 where there is none."""
        found = self.fact(name)
        if found and not (found.isascii() and found.isdigit() and len(found) < 19):
            raise _unusable(self._path, ValueError(f"{name} is no number"))
        return int(found or 0)

    def put_facts(self, facts: dict[str, str]) -> None:
        """Notes facts."""
        with self._writing():
            self._note(facts)

    def _note(self, facts: dict[str, str]) -> None:
        self._database.executemany("insert or replace into facts values (?, ?)", list(facts.items()))

    def put(self, entries: Sequence[Entry], generation: int, facts: dict[str, str]) -> None:
        """Adds or replaces entries, and notes how far the database is read, all or nothing."""
        rows = [
            (
                each.id,
                each.label,
                each.digest,
                generation,
                each.numbers.tobytes(),
                each.weights.tobytes(),
                each.vector.tobytes(),
            )
            for each in entries
        ]
        with self._writing():
            self._database.executemany("insert or replace into entries values (?, ?, ?, ?, ?, ?, ?)", rows)
            self._note(facts)

    def remove(self, ids: Iterable[str], facts: dict[str, str]) -> None:
        """Removes entries, and notes facts."""
        with self._writing():
            self._database.executemany("delete from entries where id = ?", [(name,) for name in ids])
            self._note(facts)

    def remove_older(self, generation: int, facts: dict[str, str]) -> None:
        """Removes what a rebuild has not met again, and notes facts."""
        with self._writing():
            self._database.execute("delete from entries where generation < ?", (generation,))
            self._note(facts)

    def digests(self) -> dict[str, str]:
        """The digest of each entry by id."""
        return dict(self._all("select id, digest from entries"))

    def vector_of(self, digest: str) -> bytes | None:
        """The vector of a text that was embedded before, whichever incident had it."""
        row = self._one("select vector from entries where digest = ? limit 1", digest)
        return row[0] if row else None

    def __iter__(self) -> Iterator[Entry]:
        import numpy as np

        asked = "select id, label, digest, numbers, weights, vector from entries order by id"
        for name, label, digest, numbers, weights, vector in self._all(asked):
            try:
                arrays = (
                    np.frombuffer(numbers, np.uint32),
                    np.frombuffer(weights, np.float32),
                    np.frombuffer(vector, np.float32),
                )
            except (ValueError, TypeError) as error:
                raise _unusable(self._path, error) from None
            if len(arrays[0]) != len(arrays[1]):
                raise _unusable(self._path, ValueError("the words of an incident lack their weights"))
            yield Entry(name, label, digest, *arrays)

    def __len__(self) -> int:
        return int(self._one("select count(*) from entries")[0])

    def changes(self) -> tuple[int, int]:
        """Something that differs after any change, by this process or another."""
        version = self._one("pragma data_version")[0]
        return int(version), self._database.total_changes

    def _all(self, asked: str, *values: str) -> Iterator[Any]:
        """The rows that are asked for. What a damaged file makes of that is told like all else."""
        try:
            yield from self._database.execute(asked, values)
        except _DAMAGED as error:
            raise _unusable(self._path, error) from None

    def _one(self, asked: str, *values: str) -> Any:
        return next(self._all(asked, *values), None)

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            self._database.execute("begin immediate")
            try:
                yield
            except BaseException:
                self._database.execute("rollback")
                raise
            self._database.execute("commit")
        except _DAMAGED as error:
            with contextlib.suppress(sqlite3.Error):
                self._database.execute("rollback")
            raise _unusable(self._path, error) from None

    def close(self) -> None:
        """Lets go of the file."""
        self._database.close()


def _quoted(path: str) -> str:
    from urllib.parse import quote

    return quote(os.fsencode(os.path.abspath(path)))  # names of files are bytes


def _unusable(path: str, error: Exception) -> UsageError:
    return UsageError(
        f"the index {printable(path)} cannot be used: {_plain(error)}; free the disk, or delete it and run: "
        "diagnose index rebuild"
    )


def _plain(error: Exception) -> str:
    """What a damaged file made somebody say, as far as it is fit to be seen."""
    return "it is damaged" if isinstance(error, UnicodeDecodeError) else " ".join(printable(str(error)).split())[:200]
