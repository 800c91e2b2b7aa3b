"""Everything that will be read for one job.

In: paths as typed and standard input. Out: a `SourceSet`: inputs that open when asked, with what their names say, and
in words what is not read. Errors: `SourceError` when nothing at all can be read.
"""

# Paths are texts of any bytes here, and pathlib would normalise what people typed.

from __future__ import annotations

import codecs
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import BinaryIO

from diagnose.clock import Clock
from diagnose.dataclass import dataclass, replace
from diagnose.errors import SourceError
from diagnose.models import Input, Kept, LogSource, SourceKind, SourceSet, Told
from diagnose.settings import Limits
from diagnose.sources.archives import is_tar, is_zip, tar_members
from diagnose.sources.ending import Ending
from diagnose.sources.kept import KEPT_LOOKED_BYTES, is_kept, kept_head
from diagnose.sources.names import facts_of
from diagnose.sources.otherjobs import Claim, claim_of, of_other_jobs
from diagnose.sources.packed import Decompressed, codec_of
from diagnose.sources.printable import natural_key, printable
from diagnose.sources.settle import Named, named, settle
from diagnose.sources.sniff import content_of
from diagnose.sources.streams import (
    HEAD_BYTES,
    Budget,
    ByteStream,
    Once,
    Origin,
    Pipe,
    Skipping,
    Spool,
    file_origin,
    read_error,
    read_head,
)
from diagnose.sources.text import encoding_of, utf8_blocks, why_binary
from diagnose.sources.walk import Found, Left, Role, find

# A kernel log is believed by a name that could mean something else if this share of its lines looks like one.
_SOME_KERNEL = 0.2
# Zip files that are something else: what PyTorch, NumPy and Java make of the format.
_ZIP_NO_ARCHIVE = (".pt", ".pth", ".ckpt", ".bin", ".npz", ".whl", ".jar", ".egg", ".model", ".keras", ".docx", ".xlsx")


def collect(
    paths: Sequence[str],
    *,
    kernel_logs: Sequence[str] = (),
    scheduler_records: Sequence[str] = (),
    stdin: BinaryIO | None = None,
    limits: Limits,
    clock: Clock | None = None,
    on_wait: Callable[[str], None] | None = None,
    told: Mapping[str, Told] | None = None,
) -> SourceSet:
    """Return what is to be read: files, globs, folders, archives, and standard input for `-`.

    The set does not depend on the order of arguments; a file given twice is read once. Raises `SourceError` when
    nothing can be read; what cannot be read among good files is listed in `not_read`. `on_wait` is told, once each,
    what is being waited for. `told` is what somebody says of files, by their paths as given.
    """
    left = Left()
    arguments: list[tuple[str, Role]] = [(os.fspath(path), "job") for path in paths]
    arguments += [(os.fspath(path), "kernel") for path in kernel_logs]
    arguments += [(os.fspath(path), "scheduler") for path in scheduler_records]
    if not arguments:
        raise SourceError("no input: give log files or folders, or - for standard input")
    clock = clock or Clock(limits.seconds)
    collector = _Collector(limits, left, clock, on_wait or (lambda _what: None))
    for found in find(arguments, limits, left):
        collector.file(found, stdin)
    if not collector.readable:
        said = "\n".join(f"  {sentence}" for sentence in left.sentences())
        raise SourceError(
            "nothing to read"
            + (f":\n{said}\n" if said else "; ")
            + "give the job's log files or the folder they are in"
        )
    aside = of_other_jobs([(one.claim, one.named.kind, one.given) for one in collector.readable])
    for place, why in aside.items():
        left.add(collector.readable[place].named.name, why)
    readables = [readable for place, readable in enumerate(collector.readable) if place not in aside]
    _name_apart(readables)
    sources = settle([readable.named for readable in readables])
    if told:
        sources = [_as_told(source, told.get(one.path)) for source, one in zip(sources, readables, strict=True)]
    inputs = tuple(
        Input(
            source,
            readable.text.blocks,
            readable.size,
            readable.text.left_out,
            readable.window,
            readable.grown,
            readable.kept,
        )
        for source, readable in zip(sources, readables, strict=True)
    )
    return SourceSet(inputs, left.sentences())


@dataclass(frozen=True, slots=True)
class _Readable:
    """An input before it is settled; `given` where somebody named its file, `claim` whose log it says it is.

    `path` is its file as people gave it.
    """

    named: Named
    text: _Text | _Beginning
    size: int | None
    window: Callable[[int], Iterator[bytes]] | None = None
    claim: Claim | None = None
    given: bool = True
    grown: Callable[[], int] = lambda: 0
    kept: Kept | None = None
    kept_name: str = ""
    path: str = ""


def _name_apart(readables: list[_Readable]) -> None:
    """Calls kept logs by their own files' names where what they say they are called is taken: names tell inputs."""
    if not any(readable.kept_name for readable in readables):
        return
    taken: dict[str, int] = {}
    for readable in readables:
        taken[readable.named.name] = taken.get(readable.named.name, 0) + 1
    for place, readable in enumerate(readables):
        if readable.kept_name and taken[readable.named.name] > 1:
            readables[place] = replace(readable, named=replace(readable.named, name=readable.kept_name))


def _as_told(source: LogSource, told: Told | None) -> LogSource:
    """A source with what somebody says of it, which goes before what its name lets one guess."""
    if told is None:
        return source
    return replace(
        source,
        host=source.host if told.host is None else told.host,
        rank=source.rank if told.rank is None else told.rank,
    )


@dataclass(frozen=True, slots=True)
class _Candidate:
    """Bytes on their way to becoming an input: below how many archives and compressions they lie.

    `path` is as people typed it and `place` the same from the root on; both are empty for a pipe.
    """

    name: str
    path: str
    place: str
    origin: Origin
    role: Role
    named: bool
    size: int | None
    archives: int = 0
    layers: int = 0


class _Collector:
    def __init__(self, limits: Limits, left: Left, clock: Clock, on_wait: Callable[[str], None]) -> None:
        self.readable: list[_Readable] = []
        self._limits = limits
        self._left = left
        self._clock, self._on_wait = clock, on_wait
        self._budget = Budget(limits, clock)
        self._spool = Spool(clock)

    def file(self, found: Found, stdin: BinaryIO | None) -> None:
        """Add the inputs of one file; what cannot be read is recorded."""
        if self._clock.listing_over and self.readable:
            self._left.add(found.name, f"{self._clock} left no time to look at it; give fewer inputs")
            return
        try:
            file = (found.path, found.name, found.size or 0)
            origin = (
                self._pipe(found, stdin)
                if found.pipe
                else file_origin(*file, named=found.named, roots=self._limits.roots)
            )
            path = "" if found.pipe else found.path
            self._add(
                _Candidate(
                    found.name, path, path and os.path.abspath(path), origin, found.role, found.named, found.size
                )
            )
        except SourceError as error:
            self._left.add_error(error)

    def _pipe(self, found: Found, stdin: BinaryIO | None) -> Origin:
        file: BinaryIO | Pipe | None
        try:
            file = stdin if found.name == "-" else Pipe(found.path)
        except (OSError, ValueError) as error:
            raise read_error(found.name, error) from error
        if file is None:
            raise SourceError("-: there is no standard input; give a file")
        once = Once(file, found.name, self._limits, self._clock, self._on_wait)
        head = once.peek(HEAD_BYTES)
        if codec_of(head) or is_zip(head) or is_tar(head) or is_kept(head):
            # Packed bytes must be read more than once; text goes straight through.
            origin = self._spool.store(once, found.name)
            if origin is None:
                raise SourceError(f"{found.name}: too large to unpack from a pipe; save it to a file and give that")
            return origin
        return Origin(lambda: _Peeked(once, head), None)

    def _add(self, candidate: _Candidate) -> None:
        head, error = self._head(candidate.origin)
        if error is not None and not head:
            raise error
        codec = codec_of(head)
        if codec is not None:
            if candidate.layers >= self._limits.archive_depth:
                self._left.add(
                    candidate.name, f"compressed more than {self._limits.archive_depth} times over; not read"
                )
                return
            origin, name, budget = candidate.origin, candidate.name, self._budget
            unpacked = Origin(lambda: Decompressed(origin.open, codec, name, budget))
            self._add(_deeper(candidate, unpacked, layers=candidate.layers + 1))
        elif is_tar(head) or is_zip(head):
            self._archive(candidate, head)
        elif is_kept(head):
            self._kept(candidate)
        else:
            self._text(candidate, head)

    def _head(self, origin: Origin) -> tuple[bytes, SourceError | None]:
        stream = origin.open()
        if isinstance(stream, _Peeked):
            return stream.head, None
        try:
            return read_head(stream)
        finally:
            stream.close()

    def _archive(self, candidate: _Candidate, head: bytes) -> None:
        name = candidate.name
        if candidate.archives >= self._limits.archive_depth:
            self._left.add(name, f"an archive more than {self._limits.archive_depth} archives deep; unpack it")
            return
        if is_tar(head):
            members = tar_members(candidate.origin, name, self._limits, self._spool)
        elif name.lower().endswith(_ZIP_NO_ARCHIVE):
            self._left.add(name, "not a log: weights, data or a package")
            return
        else:
            origin = candidate.origin
            if origin.at is None:
                stream = origin.open()
                try:
                    origin = self._spool.store(stream, name) or origin
                finally:
                    stream.close()
            from diagnose.sources.zips import zip_members

            members = zip_members(origin, name, self._limits, self._budget)
        inside: list[_Candidate] = []
        try:
            for member in members:
                if len(inside) + len(self.readable) >= self._limits.files:
                    self._left.add(name, f"more than {self._limits.files} files; the rest was not read")
                    break
                path = f"{candidate.path or name}!{member.name}"
                shown = f"{name}!{printable(member.name.removeprefix('./'))}"
                if member.why_not is not None:
                    self._left.add(shown, member.why_not)
                    continue
                inside.append(
                    _Candidate(
                        shown,
                        path,
                        f"{candidate.place or name}!{member.name}",
                        member.origin,
                        candidate.role,
                        named=False,
                        size=member.origin.size,
                        archives=candidate.archives + 1,
                    )
                )
                if self._clock.listing_over:
                    self._left.add(name, f"{self._clock} left no time for members after these; unpack it")
                    break
        except SourceError as error:
            self._left.add_error(error)
        for member_candidate in sorted(inside, key=lambda member: natural_key(member.name)):
            if self._clock.short:
                self._left.add(member_candidate.name, f"{self._clock} left no time to look at it; unpack it")
                continue
            try:
                self._add(member_candidate)
            except SourceError as error:
                self._left.add_error(error)

    def _kept(self, candidate: _Candidate) -> None:
        """Add a kept log, as the log it was made of; of a short one that log lies behind its first line."""
        origin = candidate.origin
        stream = origin.open()
        try:
            data, _ = read_head(stream, KEPT_LOOKED_BYTES)
        finally:
            stream.close()
        head = kept_head(data, candidate.name)
        folder, slash, _ = candidate.name.rpartition("/")
        path, line, _ = candidate.path.rpartition("/")
        place, root, _ = candidate.place.rpartition("/")
        start = head.start or head.head_start

        def behind() -> ByteStream:
            return Skipping(origin.open(), start, self._limits.expanded_bytes)

        as_log = replace(
            candidate,
            name=f"{folder}{slash}{printable(head.name)}",
            path=f"{path}{line}{head.name}" if candidate.path else "",
            place=f"{place}{root}{head.name}" if candidate.place else "",
            origin=Origin(behind),
        )
        if not head.start:
            self._text(as_log, head.head[:HEAD_BYTES], kept_name=candidate.name)
            return

        def records() -> Iterator[bytes]:
            stream = behind()
            try:
                while data := stream.read(self._limits.block_bytes):
                    yield data
            finally:
                stream.close()

        if encoding_of(head.head) is not None or head.head.startswith(codecs.BOM_UTF8):
            raise SourceError(f"{candidate.name}: a kept log of a text that is never kept; give the log itself")
        kept = Kept(head.guard, head.kind, records)
        self._text(as_log, head.head[:HEAD_BYTES], kept, _Beginning(head.head), candidate.name)

    def _text(
        self,
        candidate: _Candidate,
        head: bytes,
        kept: Kept | None = None,
        beginning: _Beginning | None = None,
        kept_name: str = "",
    ) -> None:
        if why := why_binary(head, candidate.name):
            self._left.add(candidate.name, f"not read: {why}")
            return
        text = b"".join(utf8_blocks(_Head(head), encoding_of(head), HEAD_BYTES))[: HEAD_BYTES * 2]
        content = content_of(text)
        facts = facts_of(candidate.path or candidate.name, candidate.place)
        kind = _kind(candidate.role, facts.kind, facts.kind_guess, content.kind, content.kernel_share)
        if not candidate.named and kind == "job" and _is_settings(candidate.name, settings=content.settings):
            self._left.add(candidate.name, "by its content settings, not a log; name the file to read it")
            return
        self.readable.append(
            _Readable(
                named(candidate.name, kind, facts, text, content.host if kind == "kernel" else None),
                beginning
                or _Text(candidate.name, candidate.origin, encoding_of(head), self._limits.block_bytes, self._clock),
                candidate.size,
                _window(candidate.origin, head, self._limits.block_bytes),
                claim_of(candidate.path or candidate.name, text),
                candidate.named,
                partial(_grown, candidate.path, candidate.size or 0) if candidate.origin.at else lambda: 0,
                kept=kept,
                kept_name=kept_name,
                path=candidate.path,
            )
        )


def kind_of(path: str, head: bytes, role: Role = "job") -> SourceKind | None:
    """The kind that an input of this name with these first bytes is taken to be; None where it is no plain text."""
    if why_binary(head, path) or encoding_of(head) is not None or head.startswith(codecs.BOM_UTF8):
        return None
    facts, content = facts_of(path, os.path.abspath(path)), content_of(head[:HEAD_BYTES])
    return _kind(role, facts.kind, facts.kind_guess, content.kind, content.kernel_share)


def _kind(
    role: Role, by_name: SourceKind | None, guess: SourceKind | None, by_content: SourceKind | None, share: float
) -> SourceKind:
    if role != "job":
        return role
    if by_content is not None:
        return by_content
    if by_name is not None:
        return by_name
    if guess == "kernel" and share >= _SOME_KERNEL:
        return "kernel"
    return "job"


def _is_settings(name: str, *, settings: bool) -> bool:
    base = name.lower().rpartition("/")[2].rpartition("!")[2]
    if base.endswith((".yaml", ".yml")):
        return True
    return settings and base.endswith(".json") and "error" not in base


def _deeper(candidate: _Candidate, origin: Origin, layers: int) -> _Candidate:
    return _Candidate(
        candidate.name,
        candidate.path,
        candidate.place,
        origin,
        candidate.role,
        candidate.named,
        candidate.size,
        candidate.archives,
        layers,
    )


def _grown(path: str, size: int) -> int:
    """How many bytes a file has more than when it was found."""
    try:
        return max(0, os.stat(path).st_size - size) if size else 0
    except (OSError, ValueError):  # a member of an archive, or gone meanwhile
        return 0


def _window(origin: Origin, head: bytes, block_bytes: int) -> Callable[[int], Iterator[bytes]] | None:
    """What reads the text from any byte on, where it lies in a file as it is to be read."""
    at, size = origin.at, origin.size or 0
    if at is None or encoding_of(head) is not None or head.startswith(codecs.BOM_UTF8):
        return None

    def blocks(start: int) -> Iterator[bytes]:
        stream = at(start, max(0, size - start))
        try:
            while data := stream.read(block_bytes):
                yield data
        finally:
            stream.close()

    return blocks


class _Text:
    """The blocks of one input, and what was left out of them."""

    def __init__(self, name: str, origin: Origin, encoding: str | None, block_bytes: int, clock: Clock) -> None:
        self._name, self._origin, self._encoding, self._block_bytes = name, origin, encoding, block_bytes
        self._clock = clock
        self._left_out = 0

    def blocks(self) -> Iterator[bytes]:
        """Yield the text as UTF-8; without its middle where time is short."""
        stream = Ending(self._origin.open(), self._name, self._encoding, self._clock)
        try:
            for block in utf8_blocks(stream, self._encoding, self._block_bytes):
                self._left_out = stream.left_out
                yield block
        finally:
            stream.close()

    def left_out(self) -> int:
        """How many bytes the last block does not follow upon."""
        return self._left_out


class _Beginning:
    """The first bytes of a log whose lines are elsewhere."""

    def __init__(self, head: bytes) -> None:
        self._head = head

    def blocks(self) -> Iterator[bytes]:
        """Yield them."""
        yield self._head

    def left_out(self) -> int:
        """Nothing is left out between blocks."""
        return 0


class _Head:
    """The head as a stream of its own."""

    def __init__(self, head: bytes) -> None:
        self._head = head

    def read(self, size: int, /) -> bytes:
        data, self._head = self._head[:size], self._head[size:]
        return data

    def close(self) -> None:
        """Hold nothing."""


class _Peeked:
    """A pipe whose head is known and not taken: what is opened to look at it stays unread."""

    def __init__(self, once: Once, head: bytes) -> None:
        self.head = head
        self._once = once
        self._stream: ByteStream | None = None

    def read(self, size: int, /) -> bytes:
        if self._stream is None:
            self._stream = self._once.open()
        return self._stream.read(size)

    def close(self) -> None:
        """Close what was opened."""
        if self._stream is not None:
            self._stream.close()
