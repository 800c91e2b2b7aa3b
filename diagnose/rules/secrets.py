"""Keys, tokens and passwords do not leave a log through the report: reports go into tickets, chats and models.

In: a `Report`. Out: the same, with `***` where a secret stood. What a secret looks like is known by its own form
(`ghp_...`) or by the word before it (`password=`); a value alone is never taken for one, so that hashes, versions and
figures stay.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Mapping
from functools import cache, lru_cache
from typing import Any, cast

from diagnose.dataclass import fields, is_dataclass, replace
from diagnose.models import Report
from diagnose.patterns import Lazy

_HIDDEN = "***"
_PLAIN = frozenset({int, float, bool, type(None)})
# Nothing is looked for in texts without one of these.
_HINT = Lazy(
    r"://[^\s/]*@|pass(?:wo?r?d|phrase)|pwd|secret|token|api.?key|access.?key|private.?key|signature|credential|bearer|"
    r"authorization|cookie|sig=|gh[pousr]_|github_pat_|glpat-|hf_|xox|sk-|nvapi-|A[KS]IA|AIza|eyJ",
    re.IGNORECASE,
)
_VALUE = r"[^\s\"'`,;&<>()\[\]{}|\\]"
_KEY = r"(?<![A-Za-z])(?:[A-Za-z0-9]{1,30}[_-]){0,6}"
_EQUALS = r"[\"']?\s{0,3}(?:=|:(?!//))\s{0,3}[\"']?"
_FORMS: tuple[tuple[Lazy[str], str], ...] = (
    (Lazy(r"\b(?:gh[pousr]_|hf_)[A-Za-z0-9]{20,}"), _HIDDEN),
    (Lazy(r"\b(?:github_pat_|glpat-|nvapi-|sk-|xox[abeoprs]-)[\w-]{16,}"), _HIDDEN),
    (Lazy(r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"), _HIDDEN),
    (Lazy(r"\bAIza[\w-]{35}"), _HIDDEN),
    (Lazy(r"\beyJ[\w-]{8,}\.[\w-]{8,}(?:\.[\w-]{0,})?"), _HIDDEN),
    # The password of an address, and a token in its place.
    (Lazy(r"(://[^\s/:@\"']{0,128}):[^\s/@\"']{1,256}@"), rf"\1:{_HIDDEN}@"),
    (Lazy(r"(://)[\w-]{20,256}@"), rf"\1{_HIDDEN}@"),
    (Lazy(r"(\b(?:bearer|basic)\s{1,3})[\w.~+/=-]{12,}", re.IGNORECASE), rf"\1{_HIDDEN}"),
    (
        Lazy(r"((?:authorization|cookie)[\"']?\s?[:=]\s?[\"']?)(?!bearer|basic)[^\s\"']{8,}", re.IGNORECASE),
        rf"\1{_HIDDEN}",
    ),
    (
        Lazy(
            rf"({_KEY}(?:password|passwd|passphrase|pwd|(?:secret|private|api|access)[_-]?key|secret){_EQUALS})"
            rf"(?!\*|None\b|null\b|[Tt]rue\b|[Ff]alse\b|/){_VALUE}{{6,}}",
            re.IGNORECASE,
        ),
        rf"\1{_HIDDEN}",
    ),
    # In this trade a token is mostly a piece of text: only long values with figures and letters are secrets.
    (
        Lazy(
            rf"({_KEY}(?:token|signature|credential|sig){_EQUALS})"
            r"(?=[\w./+=%~-]{0,64}\d)(?=[\w./+=%~-]{0,64}[A-Za-z])[\w./+=%~-]{16,}",
            re.IGNORECASE,
        ),
        rf"\1{_HIDDEN}",
    ),
)


def without_secrets(report: Report) -> Report:
    """The report with every secret in its texts hidden; the same object where there is none."""
    return cast("Report", _cleaned(report))


@lru_cache(maxsize=10_000)
def hidden(text: str) -> str:
    """The text with secrets hidden."""
    if not _HINT.search(text):
        return text
    for form, instead in _FORMS:
        text = form.sub(instead, text)
    return text


def _cleaned(value: Any) -> Any:
    kind = type(value)
    if kind is str:
        if not value:
            return value
        shown = hidden(value)
        return value if shown == value else shown
    if kind is tuple or kind is frozenset or kind is list:
        if not value:
            return value
        items = [item if type(item) in _PLAIN else _cleaned(item) for item in value]
        return kind(items) if any(new is not old for new, old in zip(items, value, strict=True)) else value
    if isinstance(value, Mapping):
        made = {_cleaned(key): _cleaned(item) for key, item in value.items()}
        return made if made != value else value
    if is_dataclass(value) and not isinstance(value, type):
        changes: dict[str, Any] = {}
        for name in _names(cast("Hashable", kind)):
            before = getattr(value, name)
            if type(before) not in _PLAIN and (after := _cleaned(before)) is not before:
                changes[name] = after
        return cast("Callable[..., Any]", replace)(value, **changes) if changes else value
    return value


@cache
def _names(kind: Hashable) -> tuple[str, ...]:
    return tuple(field.name for field in fields(cast("Any", kind)))
