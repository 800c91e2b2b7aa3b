"""A diagnosis rule written by code: the deciding line becomes a pattern, everything else follows from the label.

In: a `Case`, one of its lines, how closely to keep to its wording, and what may stand against it. Out: a
`DiagnosisRule` of status `experimental`, not yet checked. This is also what a model's rule is filled up with.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Final, Literal

from diagnose.dataclass import dataclass
from diagnose.learning.case import Case, CaseLine
from diagnose.models.rule import (
    CaptureType,
    DiagnosisExamples,
    DiagnosisRule,
    Edge,
    ErrorType,
    Expect,
    Match,
    NegativeExample,
    PositiveExample,
    RuleSet,
    Signature,
    Verdict,
)
from diagnose.rules.abstract import Token, invented, literals_of, tokens, words_of
from diagnose.rules.captures import RESERVED

AUTHOR: Final = "agent:template"
Wording = Literal["codes", "values", "core", "exact"]
WORDINGS: Final[tuple[Wording, ...]] = ("codes", "values", "core", "exact")
"""From what a person would write to what only the same program prints again."""
_BODY: Final = 240
_GROUPS: Final = 4
_KEYWORD: Final = 80
_TITLE: Final = 90
_TELLING: Final = 3  # so many words at least: fewer say the same of many things
_CLASS: Final = re.compile(r"(?:\w+\.)*\w*(?:error|exception|warning|interrupt|exit)")
_NAME: Final = re.compile(r"(?:^|[^\w.])([A-Za-z][A-Za-z_]{1,19})(?:[=:#]| ?= ?|: | #?)\Z")
# Numbers behind these words are no values of one run: they are what the line says.
_CODES: Final = re.compile(
    r"(?i)(?:^|[^a-z])(?:err|error|errno|code|status|xid|sxid|signal|exit|http|event|rc|ret|returned)[ =:#(]{1,3}\Z"
)
_TROUBLE: Final = re.compile(
    r"(?i)error|fail|fatal|abort|panic|cannot|unable|refus|invalid|denied|lost|missing|time(?:d )?-?out|kill|corrupt"
)
_TAGS: Final[Mapping[str, str]] = {
    "hardware": "gpu", "cuda": "cuda", "network": "network", "comm": "collective", "node": "node",
    "storage": "storage", "host": "memory", "scheduler": "scheduler", "framework": "exception", "data": "data",
    "anomaly": "numerics", "script": "exception",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Shape:
    """A pattern with what stands in it: its keyword, the types of its groups, what they capture in the line."""

    pattern: str
    keywords: tuple[str, ...]
    captures: Mapping[str, CaptureType]
    values: Mapping[str, int | str]


def draft(
    case: Case,
    line: CaseLine,
    wording: Wording,
    rule_set: RuleSet,
    *,
    redact: Callable[[str], str],
    negatives: Callable[[Shape], Sequence[NegativeExample]],
    taken: Collection[str] = (),
    explains: tuple[Edge, ...] = (),
    related: tuple[str, ...] = (),
    today: dt.date | None = None,
) -> DiagnosisRule | None:
    """The rule of one line; None where the line has too few words of its own."""
    body = redact(line.body)
    shape = shape_of(body, wording)
    if shape is None:
        return None
    text = invented(redact(line.text))
    entry = rule_set.taxonomy[case.error_type]
    meaning = meant(entry)
    attribution = case.attribution if case.attribution not in (None, entry.attribution) else None
    return DiagnosisRule(
        schema="diagnosis-rule/v1",
        id=free_id(case, shape, taken),
        title=_title(body, meaning),
        status="experimental",
        level="high",
        role="cause",
        error_type=case.error_type,
        description=(
            f"Proposed from the incident {_name(case.id)}, which no rule decided and a person labelled"
            f" {case.error_type}. The pattern is its deciding line with the values taken out."
        ),
        author=(AUTHOR,),
        created=(today or dt.datetime.now(dt.UTC).date()).isoformat(),
        tags=_tags(body, entry, rule_set),
        sources=(line.kind,),
        signatures={"main": Signature(shape.keywords, shape.pattern)},
        match=Match(any=("main",)),
        verdict=Verdict(
            cause=_title(body, meaning),
            hint="Read the lines around the evidence: this rule is new and rests on one failure.",
            attribution=attribution,
        ),
        examples=DiagnosisExamples(
            positive=(PositiveExample(f"{text}\n", Expect((1,), shape.values), line.kind),),
            negative=tuple(negatives(shape)),
        ),
        captures=shape.captures,
        explains=explains,
        related=related,
    )


def shape_of(body: str, wording: Wording) -> Shape | None:
    """The pattern of a line; None where nothing in it could be a keyword."""
    pieces = list(_cut(tokens(_core(body) if wording == "core" else body)))
    parts: list[Token | None] = []  # None: a group
    names: dict[str, tuple[CaptureType, int | str]] = {}
    order: list[str] = []
    for index, piece in enumerate(pieces):
        before = pieces[index - 1].text if index and pieces[index - 1].kind == "words" else ""
        code = piece.kind == "number" and wording != "values" and _CODES.search(before)
        if code or (piece.kind == "quoted" and wording == "exact"):
            parts.append(Token("words", piece.text))
        elif piece.kind == "number" and (name := _named(before, names)) and len(names) < _GROUPS:
            whole = piece.text.isdigit() and len(piece.text) <= 18
            kind: CaptureType = RESERVED.get(name, "int") if whole else "str"
            if name in RESERVED and not whole:
                parts.append(piece)
                continue
            names[name] = (kind, int(piece.text) if whole and kind in ("int", "rank") else piece.text)
            order.append(name)
            parts.append(None)
        else:
            parts.append(piece)
    merged = _merged(parts)
    if len(telling(body)) < _TELLING:
        return None
    literals = [part for part in literals_of([part for part in merged if part is not None]) if not part.isdigit()]
    if not literals:
        return None
    groups = iter(order)
    pattern = "".join(_group(next(groups), names) if part is None else part.pattern for part in merged)
    return Shape(
        pattern.strip(),
        (_keyword(literals[0]),),
        {name: kind for name, (kind, _) in names.items()},
        {name: value for name, (_, value) in names.items()},
    )


def telling(body: str) -> frozenset[str]:
    """The words of a line that say what happened: neither the class of an exception nor a value in quotes."""
    return frozenset(word for word in words_of(tokens(body)) if not _CLASS.fullmatch(word))


def _keyword(text: str) -> str:
    """A literal that is not too long, whole words where it has several."""
    short = text[:_KEYWORD]
    return (short.rpartition(" ")[0] if len(text) > _KEYWORD and " " in short[20:] else short).strip()


def _group(name: str, names: Mapping[str, tuple[CaptureType, int | str]]) -> str:
    whole = isinstance(names[name][1], int) or str(names[name][1]).isdigit()
    inner = r"\d{1,18}" if whole else r"\d[\d.eE+-]{0,30}"
    return f"(?P<{name}>{inner})"


def _named(before: str, names: Collection[str]) -> str | None:
    """What a number is called by the words before it; None where nothing names it, or twice."""
    found = _NAME.search(before)
    name = found[1].lower() if found else None
    return None if name is None or name in names or len(name) < 2 else name


def _merged(parts: Sequence[Token | None]) -> list[Token | None]:
    """The same with neighbouring words in one piece."""
    found: list[Token | None] = []
    for part in parts:
        last = found[-1] if found else None
        if part is not None and last is not None and part.kind == last.kind == "words":
            found[-1] = Token("words", last.text + part.text)
        else:
            found.append(part)
    return found


def _cut(pieces: Sequence[Token]) -> Iterator[Token]:
    """As many pieces as a pattern should have; a long last one is cut at a blank."""
    left = _BODY
    for piece in pieces:
        if len(piece.text) > left:
            if piece.kind == "words" and left > 20:
                yield Token("words", piece.text[:left].rpartition(" ")[0] or piece.text[:left])
            return
        left -= len(piece.text)
        yield piece


def _core(body: str) -> str:
    """The part of a line that says what went wrong: from the clause with the first word of trouble on."""
    found = _TROUBLE.search(body)
    if not found:
        return body
    start = max(body.rfind(mark, 0, found.start()) + len(mark) for mark in (": ", "; ", ". ", " - "))
    start = start if body[:start].strip() else 0
    return body[start:]


def meant(entry: ErrorType) -> str:
    """What an error type means, as the start of a sentence without marks that sentences read specially."""
    text = re.split(r"[:;]|, (?!and )", entry.meaning)[0]
    text = " ".join(re.sub(r"[\[\]{}()\"'`<>|]", " ", text).split()).strip(" .,;:-") or entry.name
    if not 12 <= len(text) <= 100:
        text = _words(entry.name)
    return text[0].upper() + text[1:]


def _words(name: str) -> str:
    """`NetworkError` as `network error`, and abbreviations as they are."""
    parts = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", " ", name).split()
    return " ".join(part if part.isupper() else part.lower() for part in parts)


def _title(body: str, meaning: str) -> str:
    plain = "".join(piece.text for piece in _cut(tokens(body)) if piece.kind == "words")
    parts = (part.rstrip("-/") for part in re.sub(r"[^\w .,:/-]", " ", plain).split())
    words = " ".join(part for part in parts if any(map(str.isalnum, part))).strip(" .,:/-")
    words = words if len(words) <= _TITLE else words[:_TITLE].rpartition(" ")[0].strip(" .,:/-")
    return f"{meaning[:80].strip()}: {words}" if words else meaning[:80]


def _name(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-.")[:60] or "incident"


def free_id(case: Case, shape: Shape, taken: Collection[str]) -> str:
    """An id of the error type and the line's own words that no rule has or had."""
    kind = _words(case.error_type).lower().replace(" ", "-")
    kind = re.sub(r"-(?:error|exception)\Z", "", kind)
    words = [word for word in re.findall(r"[a-z]{3,20}", shape.keywords[0].lower()) if word not in kind.split("-")]
    base = re.sub(r"[^a-z0-9]+", "-", "-".join((kind, *words[:4])))[:60].strip("-")
    name, number = base, 2
    while name in taken:
        name, number = f"{base}-{number}", number + 1
    return name


def _tags(body: str, entry: ErrorType, rule_set: RuleSet) -> tuple[str, ...]:
    """The family's tag and those whose own word stands in the line."""
    asked = re.findall(r"[a-z][a-z0-9-]{2,}", f"{_words(entry.name)} {body}".lower())
    known = [tag for tag in dict.fromkeys(asked) if tag in rule_set.tags]
    family = _TAGS.get(entry.family, entry.family)
    return tuple(known[:3]) or ((family,) if family in rule_set.tags else rule_set.tags[:1])
