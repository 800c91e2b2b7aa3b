"""Bodies that were compressed for the wire, as they were.

In: bytes and the name of their encoding. Out: bytes, bounded. Errors: `StreamError`, in one line.
"""

from __future__ import annotations

from typing import Final

from diagnose.service.streams import BadEncoding, ChunkTooLarge, StreamError
from diagnose.sources.packed import CODECS, Codec

ENCODINGS: Final = ("identity", "gzip", "zstd")
_STEP: Final = 256 * 1024
_MEMBERS: Final = 8


def expanded(data: bytes, encoding: str, most: int) -> bytes:
    """The bytes that `data` was before it was encoded, at most `most`."""
    if encoding in ("", "identity"):
        return data
    codec = next((codec for codec in CODECS if codec.name == encoding and encoding in ENCODINGS), None)
    if codec is None:
        raise BadEncoding(f"Content-Encoding {encoding[:40]!r} is not known here; send one of {', '.join(ENCODINGS)}")
    try:
        return _expanded(data, codec, most)
    except StreamError:
        raise
    except Exception as error:  # each library has its own
        raise BadEncoding(f"the {encoding} data of the chunk is damaged ({error}); send it again") from error


def _expanded(data: bytes, codec: Codec, most: int) -> bytes:
    out: list[bytes] = []
    size = 0
    for _ in range(_MEMBERS):
        decoder = codec.decoder()
        while not decoder.eof:
            made = decoder.decompress(data, _STEP)
            data = b""
            size += len(made)
            out.append(made)
            if size > most:
                raise ChunkTooLarge(f"a chunk may have {most} bytes at most, expanded; send smaller ones")
            if not made and decoder.needs_input and not decoder.eof:
                raise BadEncoding(f"the {codec.name} data of the chunk is cut off; send it again")
        data = decoder.unused_data
        if not data:
            return b"".join(out)
    raise BadEncoding(f"the {codec.name} data of the chunk has more than {_MEMBERS} members; send it in one")
