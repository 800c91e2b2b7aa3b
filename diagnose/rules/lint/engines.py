"""The regular expression engines that a pattern must agree with.

In: patterns. Out: the pattern as the engine compiles it, and what RE2 says of it where RE2 is installed.
"""

from __future__ import annotations

from functools import cache
from types import ModuleType

import regex

from diagnose.rules.prove import too_repetitive, why_not_compiled


@cache
def re2_module() -> ModuleType | None:
    """RE2, where it is installed."""
    try:
        import re2
    except ImportError:
        return None
    return re2  # type: ignore[no-any-return]


def re2_refuses(pattern: str) -> str | None:
    """Why RE2 does not take a pattern; None when it does or is not there."""
    re2 = re2_module()
    if re2 is None:
        return None
    options = re2.Options()
    options.log_errors = False
    try:
        re2.compile(pattern, options)
    except re2.error as error:
        reason = error.args[0] if error.args else "refused"
        return reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
    return None


def re2_whole(pattern: bytes, line: bytes) -> bool:
    """Whether RE2 matches a raw line from end to end, in time linear in its length; no where it cannot be asked."""
    re2 = re2_module()
    if re2 is None:
        return False
    options = re2.Options()
    options.log_errors = False
    options.encoding = re2.Options.Encoding.LATIN1
    try:
        return re2.compile(pattern, options).fullmatch(line) is not None
    except re2.error:
        return False


@cache
def compiled(pattern: str) -> regex.Pattern[str] | str:
    """The pattern as the engine compiles it, or why it does not compile."""
    return too_repetitive(pattern) or why_not_compiled(pattern) or regex.compile(pattern, regex.ASCII)
