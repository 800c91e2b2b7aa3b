"""Compressed bytes, told by their magic bytes and expanded as they are read.

In: what opens a packed stream. Out: `Decompressed`, a stream. Errors: `SourceError` where the data is damaged or cut
off, `LimitExceeded` where it expands beyond all measure; what stands before is good.
"""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Callable
from typing import Any, Protocol, cast

from diagnose.dataclass import dataclass, replace
from diagnose.errors import SourceError
from diagnose.sources.streams import READ_BYTES, Budget, ByteStream


class Decoder(Protocol):
    """What bz2, lzma and zstd decompressors have in common."""

    @property
    def eof(self) -> bool:
        """Whether a whole member has been read."""
        ...

    @property
    def needs_input(self) -> bool:
        """Whether more packed bytes must come before more output can."""
        ...

    @property
    def unused_data(self) -> bytes:
        """What followed the member."""
        ...

    def decompress(self, data: bytes, max_length: int = -1) -> bytes:
        """Return up to `max_length` bytes."""
        ...


class _Gzip:
    """zlib in the shape of the other decompressors; gives what stands before an error before it raises it."""

    def __init__(self) -> None:
        self._object = zlib.decompressobj(wbits=31)
        self._pending = b""
        self._error: Exception | None = None

    @property
    def eof(self) -> bool:
        return bool(self._object.eof)

    @property
    def needs_input(self) -> bool:
        return not self._pending and self._error is None

    @property
    def unused_data(self) -> bytes:
        return bytes(self._object.unused_data)

    def decompress(self, data: bytes, max_length: int = -1) -> bytes:
        if self._error is not None:
            raise zlib.error(str(self._error))
        if self._pending:
            data = self._pending + data
        before = self._object.copy()
        try:
            out = self._object.decompress(data, max_length)
        except zlib.error as error:
            self._error = error
            return self._until_error(before, data, max_length)
        self._pending = self._object.unconsumed_tail
        return out

    def _until_error(self, decoder: Any, data: bytes, max_length: int) -> bytes:
        # The failed call threw its output away: the same again in single bytes, to keep all that is good.
        parts: list[bytes] = []
        size = 0
        with contextlib.suppress(zlib.error):
            for index in range(len(data)):
                parts.append(decoder.decompress(data[index : index + 1]))
                size += len(parts[-1])
                if size > max_length:
                    break
        return b"".join(parts)[:max_length]


class _FastGzip:
    """isal in the shape of the other decompressors. It throws away what stands before an error."""

    def __init__(self) -> None:
        from isal import isal_zlib

        self._object = isal_zlib.decompressobj(wbits=31)
        self._error = cast("type[Exception]", isal_zlib.error)  # the stubs call it an instance
        self._pending = b""

    @property
    def eof(self) -> bool:
        return bool(self._object.eof)

    @property
    def needs_input(self) -> bool:
        return not self._pending

    @property
    def unused_data(self) -> bytes:
        return bytes(self._object.unused_data)

    def decompress(self, data: bytes, max_length: int = -1) -> bytes:
        try:
            out: bytes = self._object.decompress(self._pending + data, max_length)
        except self._error as error:
            raise zlib.error(str(error)) from error
        self._pending = bytes(self._object.unconsumed_tail)
        return out


def _fast_gzip() -> Decoder:
    try:
        return _FastGzip()
    except ImportError:
        return _Gzip()


def _zstd_module() -> Any:
    try:
        from compression import zstd  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        from backports import zstd
    return zstd


def _zstd() -> Decoder:
    decoder: Decoder = _zstd_module().ZstdDecompressor()
    return decoder


def _xz() -> Decoder:
    import lzma

    return lzma.LZMADecompressor(lzma.FORMAT_AUTO, memlimit=512 * 1024 * 1024)


def _bzip2() -> Decoder:
    import bz2

    return bz2.BZ2Decompressor()


@dataclass(frozen=True, slots=True)
class Codec:
    """A compression: how its members start and what reads them."""

    name: str
    magics: tuple[bytes, ...]
    decoder: Callable[[], Decoder]
    # What reads the data again, slower, where the fast decoder has thrown good bytes away before an error.
    careful: Callable[[], Decoder] | None = None

    def starts(self, data: bytes) -> bool:
        """Say whether `data` starts a member."""
        return data.startswith(self.magics)


_SKIPPABLE = tuple(bytes((0x50 + low, 0x2A, 0x4D, 0x18)) for low in range(16))
CODECS = (
    Codec("gzip", (b"\x1f\x8b\x08",), _fast_gzip, _Gzip),
    Codec("zstd", (b"\x28\xb5\x2f\xfd", *_SKIPPABLE), _zstd),
    Codec("xz", (b"\xfd7zXZ\x00",), _xz),
    Codec("bzip2", tuple(b"BZh%d1AY&SY" % level for level in range(1, 10)), _bzip2),
    Codec("bzip2", tuple(b"BZh%d\x17rE8P\x90" % level for level in range(1, 10)), _bzip2),
)


def codec_of(head: bytes) -> Codec | None:
    """Return the compression whose magic bytes `head` starts with."""
    return next((codec for codec in CODECS if codec.starts(head)), None)


class Decompressed:
    """What a compressed stream holds: all members; padding and garbage after the last whole one are left out."""

    def __init__(self, reopen: Callable[[], ByteStream], codec: Codec, name: str, budget: Budget) -> None:
        self._reopen, self._codec, self._name, self._budget = reopen, codec, name, budget
        self._packed = reopen()
        self._decoder: Decoder | None = None
        self._ahead = b""
        self._in = self._out = 0
        self._members = 0
        self._ended = False

    def read(self, size: int, /) -> bytes:
        """Return up to `size` bytes."""
        while not self._ended:
            try:
                data = self._step(size)
            except SourceError:
                self._ended = True
                raise
            except Exception as error:  # each library has its own, and those who do not use it do not load it
                if isinstance(self._decoder, _FastGzip) and self._codec.careful is not None:
                    self._again(self._codec.careful)
                    continue
                self._ended = True
                raise self._damaged(str(error)) from error
            if data:
                self._out += len(data)
                self._budget.use(self._name, self._out, self._in)
                return data
        return b""

    def _again(self, careful: Callable[[], Decoder]) -> None:
        """Start over with another decoder, and go on where the first one stopped."""
        self._packed.close()
        self._packed = self._reopen()
        self._codec = replace(self._codec, decoder=careful, careful=None)
        self._decoder, self._ahead = None, b""
        self._in = self._members = 0
        done = self._out
        while done > 0 and not self._ended:
            done -= len(self._step(min(done, READ_BYTES)))

    def _fill(self, at_least: int = 1) -> bool:
        while len(self._ahead) < at_least:
            data = self._packed.read(READ_BYTES)
            if not data:
                return False
            self._in += len(data)
            self._ahead += data
        return True

    def _step(self, size: int) -> bytes:
        if self._decoder is None:
            self._start_member()
            if self._decoder is None:
                return b""
        decoder = self._decoder
        data = b""
        cut = False
        if decoder.needs_input:
            cut = not self._fill()
            data, self._ahead = self._ahead, b""
        out = decoder.decompress(data, size)
        # Without input a decoder may still hold output back: cut off is only what gives nothing more.
        if cut and not out and not decoder.eof:
            self._ended = True
            raise self._damaged("it is cut off")
        if decoder.eof:
            self._members += 1
            self._ahead = decoder.unused_data + self._ahead
            self._decoder = None
        return out

    def _start_member(self) -> None:
        while self._members and self._fill() and not self._ahead.strip(b"\0"):
            self._ahead = b""  # padding, as tapes and preallocated files have
        if self._members:
            self._ahead = self._ahead.lstrip(b"\0")
        self._fill(16)
        if self._ahead and (not self._members or self._codec.starts(self._ahead)):
            self._decoder = self._codec.decoder()
        else:
            self._ended = True

    def _damaged(self, why: str) -> SourceError:
        return SourceError(
            f"{self._name}: the {self._codec.name} data is damaged or incomplete after {self._out} expanded bytes "
            f"({why}); what stands before that was used"
        )

    def close(self) -> None:
        """Close the packed stream."""
        self._ended = True
        self._packed.close()


def packed(data: bytes) -> bytes:
    """The bytes as one zstd frame."""
    return bytes(_zstd_module().compress(data, 1))


class Packing:
    """A stream, compressed as it is read. Where it breaks off, what stands before is whole and `error` says why."""

    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream
        self._encoder = _zstd_module().ZstdCompressor(level=1)
        self._ended = False
        self.size = 0
        self.error: SourceError | None = None

    def read(self, size: int, /) -> bytes:
        """Return some bytes; nothing at the end only."""
        out = b""
        while not out and not self._ended:
            try:
                data = self._stream.read(size)
            except SourceError as error:
                data, self.error = b"", error
            self.size += len(data)
            if data:
                out = self._encoder.compress(data)
            else:
                self._ended = True
                out = self._encoder.flush()
        return out

    def close(self) -> None:
        """Close the stream behind."""
        self._stream.close()


class Unpacking:
    """What `Packing` has made, as it was."""

    def __init__(self, stream: ByteStream) -> None:
        self._stream, self._decoder = stream, _zstd()

    def read(self, size: int, /) -> bytes:
        """Return up to `size` bytes."""
        while not self._decoder.eof:
            data = self._stream.read(READ_BYTES) if self._decoder.needs_input else b""
            out = self._decoder.decompress(data, size)
            if out:
                return out
            if not data and self._decoder.needs_input:
                break
        return b""

    def close(self) -> None:
        """Close the stream behind."""
        self._stream.close()
