"""What a model's answer must stand up to before anybody sees it, and what past incidents say before it decides.

In: an answer, the lines that were shown, the closed list. Out: what is wrong with it in words that the model can mend
it by, and the lines it rests on. The model is not trusted with anything: quotes are looked up, lines that the job
outlived or that speak to the reader prove nothing, and what is quoted must speak of what is named.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final, Literal, cast

from diagnose.agents.addressing import addresses_the_reader
from diagnose.agents.answers import Json
from diagnose.agents.declined import DECLINED
from diagnose.agents.display import shown
from diagnose.agents.excerpt import ExcerptLine
from diagnose.agents.tools import Request
from diagnose.agents.words import stated, telling, told
from diagnose.dataclass import dataclass
from diagnose.models import Report
from diagnose.models.rule import AttributionName, ErrorType

CANNOT_TELL: Final = "cannot_tell"
_SHORTEST_QUOTE = 8
_BESIDE = 2  # lines around a quoted one that may say what it is about
_SUMMARY, _REASON = 400, 12
_SHINGLE = 8  # words in a row
# What has no place in a sentence about a cause: it could make somebody, or a terminal, do something.
_ACTIVE = re.compile(
    r"\w{2,12}://|\bwww\.|[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069]|`|\$\(|\$\{|&&|\|\||;\s*\w+ -|"
    r"\b(?:sudo|curl|wget|chmod|chown|mkfs|eval|scancel|scontrol|kubectl|nvidia-smi|pip install|rm -|dd if=|bash -|"
    r"sh -c|"
    r"python -c|powershell)|<script|\]\(|data:\w+/",
    re.IGNORECASE,
)
_MILD: Final = ("debug", "info", "warning", "notice")
# Types whose cause may stand long before the end: the work goes on, only worse.
_CREEPING: Final = frozenset({"TrainingAnomaly", "GPUThermalThrottle", "ClockSkewError"})


@dataclass(frozen=True, slots=True)
class Quote:
    """A line that a model names, and what it says stands there."""

    line: int
    text: str


@dataclass(frozen=True, slots=True)
class Claim:
    """A model's answer, in the types of this package."""

    label: str
    attribution: AttributionName
    reason: str
    quotes: tuple[Quote, ...]
    summary: str
    settle: str
    requests: tuple[Request, ...]

    @classmethod
    def of(cls, data: Json) -> Claim:
        """The claim that an answer makes which fits the schema."""
        return cls(
            str(data["label"]),
            cast("AttributionName", data["attribution"]),
            str(data["attribution_reason"]).strip(),
            tuple(Quote(int(each["line"]), str(each["quote"])) for each in data["evidence"]),
            str(data["root_cause"]).strip(),
            str(data["would_settle"]).strip(),
            tuple(
                Request(cast("Literal['grep', 'window']", each["tool"]), str(each["words"]), int(each["line"]))
                for each in data["read_more"]
            ),
        )


@dataclass(frozen=True, slots=True)
class Shown:
    """A line as the model has seen it.

    `outlived` says why it proves nothing, where the rules set it aside; `writer` stands before it.
    """

    id: int
    text: str
    of: ExcerptLine
    outlived: str = ""
    writer: str = ""


@dataclass(frozen=True, slots=True)
class Checked:
    """What became of a claim: why it does not stand, what is merely to be left out, and the lines it rests on."""

    problems: tuple[str, ...] = ()
    flaws: tuple[str, ...] = ()
    lines: tuple[Shown, ...] = ()
    leak: bool = False


def check(
    claim: Claim,
    lines: Sequence[Shown],
    labels: Mapping[str, ErrorType],
    instructions: str,
    *,
    went_on: bool = False,
) -> Checked:
    """All that is wrong with a claim. `went_on`: the last that was seen of the job is progress."""
    if _repeats(claim, instructions):
        return Checked(("it repeats the instructions, which it must not",), leak=True)
    if claim.label == CANNOT_TELL:
        return Checked()
    entry = labels.get(claim.label)
    if entry is None:
        return Checked((f"{shown(claim.label)[:60]} is not a label of the list",))
    problems: list[str] = []
    found: list[Shown] = []
    if not claim.quotes:
        problems.append("`evidence` is empty: quote the lines that prove the label, or answer `cannot_tell`")
    for number, quote in enumerate(claim.quotes, 1):
        line = _quoted(quote, lines)
        if line is None:
            problems.append(
                f"quote {number} does not stand in line {quote.line}, nor in any other line shown: copy it letter for "
                "letter, at least one whole message"
            )
        elif _speaks(line):
            problems.append(f"line {line.id} speaks to its reader, as no failing program does: it proves nothing")
        elif line not in found:
            found.append(line)
    if not problems:
        problems.extend(_proof(entry, found, lines, went_on=went_on))
    return Checked(tuple(problems), tuple(_flaws(claim, entry)), tuple(found))


def _quoted(quote: Quote, lines: Sequence[Shown]) -> Shown | None:
    """The line in which a quote stands: the one that is named, else the only one that holds it."""
    text = re.sub(r"^\[\d{1,6}\]\s?", "", shown(quote.text))
    if not text:
        return None
    holding = [each for each in lines if text == each.text or (len(text) >= _SHORTEST_QUOTE and text in each.text)]
    named = next((each for each in holding if each.id == quote.line), None)
    return named or (holding[0] if holding else None)


def set_aside(report: Report) -> Mapping[tuple[str, int], str]:
    """Lines that prove nothing, as the rules know, and why."""
    explanation = report.explanation
    known = [(each.finding, each.why) for each in explanation.excluded]
    known += [
        (finding, f"{finding.error_type} only follows from a failure")
        for finding in explanation.findings
        if finding.role == "teardown"
    ]
    return {
        (evidence.source, evidence.line): why
        for finding, why in known
        for evidence in finding.evidence
        if evidence.line is not None
    }


def speaking_of(
    entry: ErrorType,
    lines: Sequence[ExcerptLine],
    report: Report,
    no_proof: Mapping[tuple[str, int], str],
    *,
    went_on: bool,
) -> tuple[ExcerptLine, ...]:
    """The lines in which a log itself tells of such a failure, where others that read alike say that it was one.

    They sound like a failure and speak of it: none that its writer calls less, that the rules set aside or that speaks
    to its reader. What the rules set aside is not named again, nor what the job outlived.
    """
    if went_on and entry.name not in _CREEPING:
        return ()
    if any(each.finding.error_type == entry.name for each in report.explanation.excluded):
        return ()
    pattern = telling(entry)
    return tuple(
        each
        for each in lines
        if each.alarming
        and (each.line.level or "").lower() not in _MILD
        and (each.source, each.line.number) not in no_proof
        and pattern.search(told(each.line.text)) is not None
        and not addresses_the_reader(each.line.text)
    )


def _proof(entry: ErrorType, found: Sequence[Shown], lines: Sequence[Shown], *, went_on: bool) -> list[str]:
    """Why quotes that are there do not prove the label."""
    if all(each.outlived for each in found):
        return [f"line {each.id} is no cause: {each.outlived}" for each in found]
    if entry.name not in _CREEPING and went_on:
        return ["the last that is seen of the job is its work going on: nothing quoted stopped it"]
    pattern = telling(entry)
    near = [(each, _beside(each, lines)) for each in found if not each.outlived]
    alarming = [(quoted, group) for quoted, group in near if any(each.of.alarming for each in group)]
    if not alarming:
        return ["the lines quoted, and those beside them, tell of no failure: quote the line that does"]
    ending = stated(entry)
    if not any(_tells(pattern, quoted, group) for quoted, group in alarming) and not (
        ending
        and any(quoted.of.alarming for quoted, _ in alarming)
        and any(ending.search(each.of.line.text) and _grave(each) for each in lines if _may_say_the_end(each))
    ):
        return [f"the lines quoted say nothing of {entry.name}: quote those that do, or choose what they do speak of"]
    if not any(_grave(each) for each in lines):
        return ["no line shown is more than a warning, and the job may be well: answer `cannot_tell`"]
    return []


def _tells(pattern: re.Pattern[str], quoted: Shown, group: Sequence[Shown]) -> bool:
    """Whether a quote tells of a failure of this kind: it names the kind beside an alarm, or is one beside its name."""
    return pattern.search(told(quoted.of.line.text)) is not None or (
        quoted.of.alarming and any(pattern.search(told(each.of.line.text)) for each in group)
    )


def _beside(line: Shown, lines: Sequence[Shown]) -> list[Shown]:
    """A line with those right beside it, without any that speak to the reader."""
    return [
        each
        for each in lines
        if each.of.source == line.of.source
        and abs(each.of.order - line.of.order) <= _BESIDE
        and (each is line or not (each.outlived or _speaks(each)))
    ]


def _may_say_the_end(line: Shown) -> bool:
    """Whether a line may say how the job ended: also one that proves no cause, if anything says that it did end."""
    return line.outlived != DECLINED and not _speaks(line)


def _speaks(line: Shown) -> bool:
    return addresses_the_reader(line.of.line.text)


def _grave(line: Shown) -> bool:
    """Whether a line sounds like a failure, and its writer does not call it less."""
    return line.of.alarming and (line.of.line.level or "").lower() not in _MILD


def _flaws(claim: Claim, entry: ErrorType) -> list[str]:
    """What is wrong beside the verdict itself: left out of the report if it is not mended."""
    flaws = []
    if not unharmful(claim.summary):
        flaws.append("`root_cause` must be one plain sentence without commands, addresses and special characters")
    if claim.settle and not unharmful(claim.settle):
        flaws.append("`would_settle` must be one plain sentence without commands, addresses and special characters")
    if not attribution_stands(claim, entry):
        flaws.append(
            f"the usual attribution of {entry.name} is {entry.attribution or 'unknown'}: say in `attribution_reason` "
            f"what shows that it is {claim.attribution} here"
        )
    return flaws


def attribution_stands(claim: Claim, entry: ErrorType) -> bool:
    """Whether an attribution is the label's own, or argued."""
    return claim.attribution == (entry.attribution or "unknown") or (
        len(claim.reason) >= _REASON and unharmful(claim.reason)
    )


def unharmful(text: str) -> bool:
    """Whether a text is a sentence and nothing that acts."""
    return 0 < len(text) <= _SUMMARY and not _ACTIVE.search(text) and not addresses_the_reader(text)


def _repeats(claim: Claim, instructions: str) -> bool:
    """Whether an answer gives away what the model was told: many words in a row."""
    told = instructions.lower().split()
    shingles = {" ".join(told[i : i + _SHINGLE]) for i in range(len(told) - _SHINGLE + 1)}
    said = (
        " ".join((claim.reason, claim.summary, claim.settle, *(quote.text for quote in claim.quotes))).lower().split()
    )
    return any(" ".join(said[i : i + _SHINGLE]) in shingles for i in range(len(said) - _SHINGLE + 1))
