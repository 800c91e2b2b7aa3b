"""Which segments of a line are a progress bar's updates.

In: a segment between two `\\r`. Out: yes or no. A bar must look like one to its end: where a program's message follows
the bar on the same segment, the message counts and the segment is none. A bar that shows `nan` or `inf` is none either.
"""

from __future__ import annotations

import re
from typing import Final

from diagnose.patterns import Lazy

_BAR_BYTES = 1024
_COLOURS: Final = Lazy(rb"\x1b\[[\d;?]*[A-Za-z]")
_CLOCK = rb"(?:\d+ days?, )?(?:\d+:)?\d?\d:\d\d"
# tqdm: 31%|###  | 31/100 [00:12<01:10,  8.2it/s, loss=0.3] and, without a total, 31it [00:12, 8.2it/s]
_TQDM: Final = Lazy(rb"\[" + _CLOCK + rb"(?:<(?:" + _CLOCK + rb"|\?))?(?:, *[^\[\]]*)?\] *")
# rich, pip and Keras 3 draw with U+2501, U+2578 ...; Keras 2 with [=====>....]
_HEAVY = (b"\xe2\x94\x81", b"\xe2\x95\xb8", b"\xe2\x95\xba")
_RATE: Final = Lazy(rb"[\d.-]+ ?(?:it/s|s/it|[kKMG]?i?B/s|[mu\xc2\xb5]?s/(?:step|epoch))|\beta\b|\d:\d\d|\d%")
_KERAS: Final = Lazy(rb"\d+/(?:\d+|Unknown) \[[=>. ]+\](?: - [\w /:.,+()-]*)?")
# 45% [00:12] 12.3MB/s, curl- and wget-like
_PERCENT: Final = Lazy(
    rb"[^%]{0,200}\d%(?: *[|\[(][^\]|)]*[\]|)])?(?: +[\d.]+ ?[kKMG]?i?B?(?:/s)?)?(?: +(?:eta |in )?[\d:.hms]+)?"
)
_UNFIT: Final = Lazy(rb"[=: -](?:nan|inf)\b", re.IGNORECASE)


def is_bar(segment: bytes) -> bool:
    """Whether the segment is one update of a progress bar, or only moves the cursor."""
    if len(segment) > _BAR_BYTES:
        return False
    text = _COLOURS.sub(b"", segment) if b"\x1b" in segment else segment
    text = text.strip()
    if not text:
        return True
    if _UNFIT.search(text):
        return False
    if text.endswith(b"]"):
        start = text.rfind(b"[")
        return _TQDM.fullmatch(text, start) is not None
    if any(mark in text for mark in _HEAVY):
        return _RATE.search(text) is not None
    return _KERAS.fullmatch(text) is not None or _PERCENT.fullmatch(text) is not None
