"""An evaluation as text for a terminal.

In: an `Evaluation`. Out: lines. Names of files are printable already; nothing else here comes from logs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from diagnose.evaluation.cost import costs_of
from diagnose.evaluation.figures import COUNTS, RATES, REMEMBERED, Figures, Rate, wrong_parts
from diagnose.evaluation.model import OURS
from diagnose.evaluation.run import Evaluation, Setup

WORDS = {"false_node": "node acted on for nothing", "blame_user": "user blamed falsely", "innocent": "innocents named"}
WORDS["blame_infra"] = "infrastructure blamed falsely"

# The cases that rules left open, by what a memory could know of them.
PAST_WORDS = dict(zip(REMEMBERED, ("label remembered", "label not remembered", "nothing to name", "all"), strict=True))
PAST_HEAD = ("what rules left open", "decided by past incidents", "right of those", "the very label")


def as_text(evaluation: Evaluation, *, verbose: bool = False) -> str:
    """The figures; with `verbose` also every case that is not right in all."""
    return "\n".join(_lines(evaluation, verbose=verbose)) + "\n"


def shown(rate: Rate) -> str:
    """`41/50 82.0 % (69-90)`."""
    if rate.value is None:
        return "-"
    low, high = rate.interval
    return f"{rate.right}/{rate.of} {100 * rate.value:.1f} % ({100 * low:.0f}-{100 * high:.0f})"


def setup_words(setup: Setup) -> str:
    """How the evaluation was made, in one line."""
    parts = [f"ruleset {setup.ruleset}" if setup.ruleset else ""]
    parts.append(f"without rules for {', '.join(setup.without)}" if setup.without else "")
    parts.append(f"model {setup.model}" if setup.model else "no model")
    parts.append(f"{setup.stored} past incidents" if setup.stored else "no past incidents")
    parts.append(f"split by {setup.split}" if setup.split else "")
    return "; ".join(part for part in parts if part)


def _lines(evaluation: Evaluation, *, verbose: bool) -> Iterator[str]:
    figures = evaluation.figures[OURS]
    broken = f", {len(evaluation.broken)} broken" if evaluation.broken else ""
    unread = f", {len(evaluation.unread)} unusable" if evaluation.unread else ""
    yield f"{figures.cases} cases{broken}{unread}; {setup_words(evaluation.setup)}"
    yield "rates with 95 % intervals (Wilson)"
    yield ""
    methods = list(evaluation.figures)
    yield from _table(
        ("", *methods),
        [
            *((name, *(shown(one.rates[name]) for one in evaluation.figures.values())) for name in RATES),
            *(
                (f"{name}, mean of labels", *(_percent(one.macro.get(name)) for one in evaluation.figures.values()))
                for name in ("type", "attribution")
            ),
            *(
                (WORDS.get(name, name), *(str(one.counts[name]) for one in evaluation.figures.values()))
                for name in COUNTS
            ),
        ],
    )
    yield ""
    yield from _own(figures)
    cost = costs_of(evaluation.results)
    yield f"seconds a case: median {cost.median:.2f}, 95 % {cost.p95:.2f}, most {cost.longest:.2f}"
    if cost.calls or cost.tokens_in:
        cases = max(1, figures.cases)
        yield (
            f"tokens: {cost.tokens_in} in, {cost.tokens_out} out by {cost.calls} calls; "
            f"a case {cost.tokens_in / cases:.0f} in, {cost.tokens_out / cases:.0f} out"
        )
    yield ""
    yield from _table(
        ("label", "cases", "type", "attribution", "line"),
        [
            (one.name, str(one.cases), shown(one.type), shown(one.attribution), shown(one.line))
            for one in figures.labels
        ],
    )
    confused = [cell for cell in figures.confusions if cell.want != cell.got]
    if confused:
        yield ""
        yield from _table(("confused", "answered", "cases"), [(c.want, c.got, str(c.count)) for c in confused])
    yield from _cases(evaluation, verbose=verbose)


def _own(figures: Figures) -> Iterator[str]:
    """What only the pipeline has: sureness, stages, the memory."""
    yield from _table(
        ("if only answers count that are", "failures answered", "right of those"),
        [
            (
                level.sureness if number == 0 else f"{level.sureness} or surer",
                shown(level.coverage),
                shown(level.accuracy),
            )
            for number, level in enumerate(figures.levels)
        ],
    )
    yield ""
    decided = [one for one in figures.stages if one.accuracy.of]
    if decided:
        yield from _table(
            ("decided by", "failures answered", "right of those"),
            [(one.stage.replace("_", " "), shown(one.coverage), shown(one.accuracy)) for one in decided],
        )
        yield ""
    if figures.past:
        yield from _table(PAST_HEAD, past_rows(figures))
        yield ""
    if figures.nearest.of:
        yield f"right label among the 3 nearest incidents: {nearest_words(figures)}"
    if set(figures.states) - {"not_needed", "not_configured"}:
        yield "model: " + ", ".join(f"{state.replace('_', ' ')} {count}" for state, count in figures.states.items())


def past_rows(figures: Figures) -> list[tuple[str, ...]]:
    """How often past incidents decided, and how often that was right."""
    return [(PAST_WORDS[one.cases], shown(one.decided), shown(one.right), shown(one.label)) for one in figures.past]


def nearest_words(figures: Figures) -> str:
    """How often the right label is among the nearest incidents, by both counts."""
    return f"{shown(figures.nearest)}; the very label {shown(figures.nearest_label)}"


def _cases(evaluation: Evaluation, *, verbose: bool) -> Iterator[str]:
    rows: list[tuple[str, ...]] = []
    for result in evaluation.results if verbose else ():
        said = result.said.get(OURS)
        if said is not None and (parts := wrong_parts(said.score)):
            rows.append((result.case.name, result.case.label, said.answer.label, ", ".join(parts)))
    if rows:
        yield ""
        yield from _table(("case", "label", "answer", "not right"), rows)
    if evaluation.broken or evaluation.unread:
        yield ""
        for result in evaluation.broken:
            yield f"broken: {result.case.name}: {_one_line(result.problem)}"
        for one in evaluation.unread:
            yield f"unusable: {one.name}: {_one_line(one.why)}"


def _one_line(text: str) -> str:
    """Words of an error, which may hold anything of an input, on one line that cannot drive a terminal."""
    from diagnose.sources.printable import printable

    return printable(" ".join(text.split()))[:300]


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f} %"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]
    for row in (head, *rows):
        yield "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
