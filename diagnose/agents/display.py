"""Log text as a model is shown it: data on lines of its own, which cannot be taken for anything else.

In: redacted text, or a quote that a model gave back. Out: the same on one line, with control and invisible characters
as escapes and the marks by which models tell speakers apart made harmless. Both sides of a comparison come through
here, so that a quote of what was shown is found again.
"""

from __future__ import annotations

import re
from typing import Final

from diagnose.sources.printable import printable

SHOWN_CHARS: Final = 600
# Marks of chat templates: a tokenizer may take them for its own, wherever they stand.
_TURNS = re.compile(
    r"<(?=\||/?s>|</?SYS>|/?(?:start|end)_of_turn>|/?think>|/?tool_call>|bos>|eos>|/?log\b|｜)|\[(?=/?(?:INST|"
    r"TOOL)[\] _])",
    re.IGNORECASE,
)
_SPACE = re.compile(r"\s+")
_PLACEHOLDER = re.compile(r"<([a-z]{1,16})-[0-9]{1,9}>")


def shown(text: str) -> str:
    """One line of a log."""
    if len(text) > SHOWN_CHARS:
        text = f"{text[: SHOWN_CHARS * 3 // 4]} ... {text[-SHOWN_CHARS // 5 :]}"
    flat = printable(_SPACE.sub(" ", text).strip())
    return _TURNS.sub(lambda match: "‹" if match[0] == "<" else "⁅", flat)


def without_numbers(text: str) -> str:
    """Words from another diagnosis: its `<host-1>` is not ours, and must not be restored to one of ours."""
    return _PLACEHOLDER.sub(r"(\1)", text)
