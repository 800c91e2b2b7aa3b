"""Bytes of one line in; text that can be shown and searched out: UTF-8, no escapes, no control characters but tab."""

from __future__ import annotations

from collections.abc import Sequence

from diagnose.patterns import Lazy

# CSI, then OSC and the string controls with their terminators, then two-character escapes. An unterminated string
# control loses only its introducer: what follows may be the line we are looking for.
_ESCAPE = Lazy(
    r"\x1b\[[0-?]*[ -/]*[@-~]"
    r"|\x1b\][^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)"
    r"|\x1b[PX^_][^\x1b\x9c]*(?:\x1b\\|\x9c)"
    r"|\x9b[0-?]*[ -/]*[@-~]"
    r"|\x1b[ -/]*[0-~]?"
)
# Colours whose ESC was lost on the way (copied from a web page, escaped by syslog as #033 or ^[).
_BARE_COLOUR = Lazy(r"(?:#033|\^\[)?\[[0-9]{1,3}(?:;[0-9]{1,3}){0,4}m|(?:#033|\^\[)\[[0-9;]{0,12}[mK]")
_RESETS = ("[0m", "[39m", "#033[", "^[[")

# Removed: C0 but tab, DEL, C1, BOM and zero-width marks, direction overrides, lone surrogates.
_REMOVED: dict[int, str | None] = dict.fromkeys(
    [
        *(c for c in range(0x20) if c != 0x09),
        *range(0x7F, 0xA0),
        0x200B,
        0x200E,
        0x200F,
        *range(0x202A, 0x202F),
        *range(0x2066, 0x206A),
        0xFEFF,
        *range(0xD800, 0xE000),
    ]
)
# Line separators inside a line would make two lines of it for whoever splits the report.
_REMOVED.update({0x0B: " ", 0x0C: " ", 0x85: " ", 0x2028: " ", 0x2029: " "})


def decode(raw: bytes) -> str:
    """The text of one raw line; bytes that are not UTF-8 become U+FFFD."""
    return clean(raw.decode("utf-8", "replace"))


def decode_all(raws: Sequence[bytes]) -> list[str]:
    """The texts of raw lines, which hold no line ends: what `decode` gives of each, mostly with one look at all."""
    joined = b"\n".join(raws).decode("utf-8", "replace")
    texts = joined.split("\n")
    if len(texts) != len(raws):
        return list(map(decode, raws))
    if joined.replace("\n", "").isprintable() and not any(reset in joined for reset in _RESETS):
        return texts
    return list(map(clean, texts))


def clean(text: str) -> str:
    """`text` without escapes, control characters and colour codes; tabs stay."""
    # One quick loop in C; False for tabs too, which the table leaves alone.
    if not text.isprintable():
        if "\x1b" in text or "\x9b" in text:
            text = _ESCAPE.sub("", text)
        text = text.translate(_REMOVED)
    if "[" in text:
        for reset in _RESETS:
            if reset in text:
                return _BARE_COLOUR.sub("", text)
    return text
