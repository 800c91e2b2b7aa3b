"""What is text, and text as UTF-8.

In: the first bytes of an input, then all of them. Out: a reason why it is not read, or a stream of UTF-8 (NUL bytes,
`\\r` and undecodable bytes stay as they are in what was not UTF-16 or UTF-32).
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator

from diagnose.sources.streams import ByteStream

# Magic bytes of what is no log, what it is, and what to do where something can be done.
_BINARY = (
    (b"\x7fELF", "a program or core file"),
    (b"SQLite format 3\0", "a SQLite database"),
    (b"\x89PNG", "an image"),
    (b"\xff\xd8\xff", "an image"),
    (b"GIF8", "an image"),
    (b"%PDF-", "a PDF document"),
    (b"\x93NUMPY", "a NumPy array"),
    (b"\x89HDF", "an HDF5 file"),
    (b"PAR1", "a Parquet file"),
    (b"ARROW1", "an Arrow file"),
    (b"LPKSHHRH", "a binary journal; export it with `journalctl --file FILE -o short-iso-precise`"),
    (b"\x04\x22\x4d\x18", "lz4 data; decompress it with `lz4 -d`"),
    (b"\x1f\x9d", "compress data; decompress it with `uncompress`"),
    (b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive; unpack it and give the folder"),
    (b"Rar!\x1a\x07", "a RAR archive; unpack it and give the folder"),
    (b"MZ\x90\0", "a Windows program"),
    (b"\xca\xfe\xba\xbe", "a compiled class"),
    (b"\xd4\xc3\xb2\xa1", "a packet capture"),
    (b"\xa1\xb2\xc3\xd4", "a packet capture"),
    (b"KDUMP   ", "a kernel crash dump; give its vmcore-dmesg.txt"),
    (b"!<arch>\n", "a library"),
)
_UTF16_SHARE = 0.4
# Control characters that no text has; \a \b \t \n \v \f \r and ESC do occur in logs, NUL is judged apart.
_CONTROL = bytes(code for code in range(1, 32) if code not in b"\a\b\t\n\v\f\r\x1b") + b"\x7f"
_CONTROL_SHARE = 0.02


def encoding_of(head: bytes) -> str | None:
    """Return the wide encoding of a text by its mark, or by where its NULs stand; None for all that is read as is."""
    if head.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)) and len(head) >= 8:
        return "utf-32"
    sample = head[:4096]
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) and (b"\0" in sample or len(head) < 64):
        return "utf-16"  # a text without one ASCII character is none: its ends of lines would be
    half = len(sample) // 2
    if half < 8:
        return None
    even, odd = sample[: 2 * half : 2].count(0), sample[1 : 2 * half : 2].count(0)
    if odd > half * _UTF16_SHARE and even < half * 0.02:
        return "utf-16-le"
    if even > half * _UTF16_SHARE and odd < half * 0.02:
        return "utf-16-be"
    return None


def why_binary(head: bytes, name: str = "") -> str | None:
    """Return what the bytes are when they are no text, with what to do about it; None for text."""
    for magic, what in _BINARY:
        if head.startswith(magic):
            return what
    if head[:1] == b"\x80" and head[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05"):
        if "nccl_trace" in name or "flight_recorder" in name:
            return "a pickled NCCL flight recorder dump, which is not loaded; print it with torchfrtrace and give that"
        return "a pickle, which is never loaded"
    if encoding := encoding_of(head):
        text = head[: len(head) // 4 * 4].decode(encoding, "replace").encode("utf-8")
        return "binary data" if _looks_binary(text) or text.count(b"\xef\xbf\xbd") > len(text) * 0.1 else None
    return "binary data" if _looks_binary(head) else None


def _looks_binary(data: bytes) -> bool:
    # NULs say nothing: a host that crashes leaves blocks of them in its logs.
    seen = len(data) - data.count(0)
    control = seen - len(data.translate(None, _CONTROL + b"\0"))
    return control > max(4, seen * _CONTROL_SHARE)


def utf8_blocks(stream: ByteStream, encoding: str | None, block_bytes: int) -> Iterator[bytes]:
    """Yield the stream as UTF-8 in blocks of about `block_bytes`, never twice as large, without a byte-order mark.

    `encoding` is what `encoding_of` says of its first bytes. An error of the stream is raised after all that stood
    before it.
    """
    return _reblocked(_decoded(stream, encoding, block_bytes), block_bytes)


def _decoded(stream: ByteStream, encoding: str | None, block_bytes: int) -> Iterator[bytes]:
    if encoding is None:
        data = stream.read(block_bytes)
        while data and len(data) < 3 and (more := stream.read(block_bytes - len(data) or 1)):
            data += more
        data = data.removeprefix(codecs.BOM_UTF8)
        while data:
            yield data
            data = stream.read(block_bytes)
        return
    decoder = codecs.getincrementaldecoder(encoding)("replace")
    while data := stream.read(block_bytes):
        if text := decoder.decode(data):
            yield text.encode("utf-8", "replace")
    if text := decoder.decode(b"", final=True):
        yield text.encode("utf-8", "replace")


def _reblocked(chunks: Iterator[bytes], block_bytes: int) -> Iterator[bytes]:
    waiting: list[bytes] = []
    size = 0
    try:
        for chunk in chunks:
            if not waiting and block_bytes // 2 < len(chunk) <= block_bytes:
                yield chunk  # the common case, without a copy
                continue
            waiting.append(chunk)
            size += len(chunk)
            if size >= block_bytes:
                joined = b"".join(waiting)
                waiting, size = [], 0
                for start in range(0, len(joined), block_bytes):
                    yield joined[start : start + block_bytes]
    except Exception:
        if waiting:
            yield b"".join(waiting)
        raise
    if waiting:
        yield b"".join(waiting)
