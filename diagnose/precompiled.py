"""Regular expressions that stay compiled from one run to the next, as Python keeps compiled modules.

In: a pattern and flags. Out: what `re.compile` gives, from the code of an earlier run where there is one: compiling the
patterns that a small log asks for takes longer than to read it. `recall` fetches the codes of earlier runs, `keep` adds
those of this one. `re` checks each code before it uses it, and whatever is amiss the pattern is compiled as usual.
"""

from __future__ import annotations

import re
import sys
from re import _compiler  # type: ignore[attr-defined] # what makes codes of patterns has no public name
from typing import Any, AnyStr

from diagnose import cache

Key = tuple[str | bytes, int]
Code = tuple[int, bytes, int, dict[str, int], tuple[str | None, ...]]

_known: dict[Key, Code] = {}
_made: dict[Key, Code] = {}


def compile(pattern: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:  # noqa: A001 - as in `re`
    """Stands for `re.compile`."""
    key = (pattern, int(flags))
    try:
        if key not in _known:
            _known[key] = _made[key] = _code(pattern, int(flags))
        all_flags, code, groups, numbers, names = _known[key]
        compiled: re.Pattern[AnyStr] = _compiler._sre.compile(  # noqa: SLF001 - see above
            pattern, all_flags, memoryview(code).cast("I").tolist(), groups, numbers, names
        )
    except Exception:  # noqa: BLE001 - another Python may do all this differently; and wrong patterns are told properly
        return re.compile(pattern, flags)
    return compiled


def recall() -> None:
    """Fetches what earlier runs have compiled."""
    _known.update(cache.codes(_name()))


def keep() -> None:
    """Keeps what this run has compiled, if anything, for later ones."""
    if _made:
        cache.keep_codes(_name(), _known, _made)


def _name() -> str:
    """The file of codes that this Python understands."""
    stated = (sys.version, _compiler.MAGIC, _compiler._sre.CODESIZE, sys.byteorder, sys.maxsize)  # noqa: SLF001
    return cache.name_of("patterns", [repr(stated).encode()])


def _code(pattern: Any, flags: int) -> Code:
    """What `re` makes of a pattern before it hands it to its engine."""
    parsed = _compiler._parser.parse(pattern, flags)  # noqa: SLF001
    code = _compiler._code(parsed, flags)  # noqa: SLF001
    numbers = parsed.state.groupdict
    names: list[str | None] = [None] * parsed.state.groups
    for name, number in numbers.items():
        names[number] = name
    words = b"".join([word.to_bytes(4, sys.byteorder) for word in code])
    return flags | parsed.state.flags, words, parsed.state.groups - 1, numbers, tuple(names)
