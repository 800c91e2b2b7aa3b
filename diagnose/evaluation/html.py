"""An evaluation as one HTML page: tables and plots, with nothing outside itself and nothing that runs.

In: an `Evaluation`. Out: the page. Lines of logs stand in it, so every text is escaped, and the page's own policy
forbids scripts, frames, pictures and connections besides.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from diagnose.evaluation import plots
from diagnose.evaluation.cost import costs_of
from diagnose.evaluation.figures import COUNTS, RATES, Figures, wrong_parts
from diagnose.evaluation.model import OURS, Result, Said
from diagnose.evaluation.plots import safe
from diagnose.evaluation.run import Evaluation
from diagnose.evaluation.text import PAST_HEAD, WORDS, nearest_words, past_rows, setup_words, shown

_LINE = 240
_STYLE: Final = """
:root { color-scheme: light dark; --ink: #1d2733; --dim: #66707c; --rule: #d5dae0; --back: #fff; --bar: #3a6ea5;
  --good: #2f7d4f; --bad: #b3402e; }
@media (prefers-color-scheme: dark) { :root { --ink: #dbe2ea; --dim: #95a0ac; --rule: #3a444f; --back: #161b21;
  --bar: #6ea3d8; --good: #5fb184; --bad: #e07a66; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--back); margin: 2rem auto;
  max-width: 70rem; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2.2rem; } p.dim { color: var(--dim); }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: .2rem .9rem .2rem 0; border-bottom: 1px solid var(--rule); vertical-align: top; }
td.line { font-family: ui-monospace, monospace; font-size: .8rem; overflow-wrap: anywhere; max-width: 32rem; }
svg text { fill: var(--ink); font: 12px system-ui, sans-serif; } svg text.axis { fill: var(--dim); font-size: 11px; }
svg text.cell { font-size: 10px; } .bar { fill: var(--bar); opacity: .75; } .grid { stroke: var(--rule); }
.whisker { stroke: var(--ink); } .point { fill: var(--bar); } .curve { fill: none; stroke: var(--bar); }
.right { fill: var(--good); } .wrong { fill: var(--bad); } .shade1 { opacity: .25; } .shade2 { opacity: .4; }
.shade3 { opacity: .6; } .shade4 { opacity: .8; }
"""


def as_html(evaluation: Evaluation) -> str:
    """The page."""
    digest = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    body = "\n".join(_body(evaluation))
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>diagnose: evaluation of {len(evaluation.results)} cases</title>\n"
        f"<style>{_STYLE}</style></head>\n<body>\n{body}\n</body></html>\n"
    )


def _body(evaluation: Evaluation) -> Iterator[str]:
    figures = evaluation.figures[OURS]
    yield f"<h1>Evaluation of {figures.cases} cases</h1>"
    yield f'<p class="dim">{safe(setup_words(evaluation.setup))}. Rates with 95 % intervals (Wilson).</p>'
    yield from _problems(evaluation)
    yield "<h2>The right error type, beside what people do today</h2>"
    yield _wide(plots.bars("right error type by method", [(n, one.rates["type"]) for n, one in _methods(evaluation)]))
    yield "<h2>All figures</h2>"
    yield _wide(_methods_table(evaluation))
    yield "<h2>Accuracy against coverage</h2>"
    yield "<p>If only answers count that are so sure, or surer.</p>"
    yield _wide(plots.coverage("accuracy against coverage", figures.levels))
    yield _wide(
        _table(
            ("at least", "failures answered", "right of those"),
            [(one.sureness, shown(one.coverage), shown(one.accuracy)) for one in figures.levels],
        )
    )
    yield from _stages(figures)
    yield "<h2>By label</h2>"
    yield _wide(plots.bars("right error type by label", [(one.name, one.type) for one in figures.labels]))
    yield _wide(
        _table(
            ("label", "cases", "type", "attribution", "line"),
            [
                (one.name, str(one.cases), shown(one.type), shown(one.attribution), shown(one.line))
                for one in figures.labels
            ],
        )
    )
    yield "<h2>Confusion</h2><p>Rows are labels, columns answers; an accepted answer counts as the label.</p>"
    yield _wide(plots.confusion("labels by answers", figures.confusions))
    yield from _cost(evaluation)
    yield from _cases(evaluation)


def _methods(evaluation: Evaluation) -> Iterable[tuple[str, Figures]]:
    return evaluation.figures.items()


def _problems(evaluation: Evaluation) -> Iterator[str]:
    rows = [(one.case.name, "broken", one.problem) for one in evaluation.broken]
    rows += [(one.name, "unusable", one.why) for one in evaluation.unread]
    if rows:
        yield "<h2>Not measured</h2><p>Broken cases count as wrong; unusable labels count in no figure.</p>"
        yield _wide(_table(("case", "", "why"), rows))


def _methods_table(evaluation: Evaluation) -> str:
    every = list(evaluation.figures.values())
    rows = [(name, *(shown(one.rates[name]) for one in every)) for name in RATES]
    rows += [
        (
            f"{name}, mean of labels",
            *("-" if (mean := one.macro.get(name)) is None else f"{100 * mean:.1f} %" for one in every),
        )
        for name in ("type", "attribution")
    ]
    rows += [(WORDS.get(name, name), *(str(one.counts[name]) for one in every)) for name in COUNTS]
    return _table(("", *evaluation.figures), rows)


def _stages(figures: Figures) -> Iterator[str]:
    rows = [
        (one.stage.replace("_", " "), shown(one.coverage), shown(one.accuracy))
        for one in figures.stages
        if one.accuracy.of
    ]
    if rows:
        yield "<h2>Who decided</h2>"
        yield _wide(_table(("stage", "failures answered", "right of those"), rows))
    if figures.past:
        yield "<h2>Past incidents</h2>"
        yield _wide(_table(PAST_HEAD, past_rows(figures)))
    if figures.nearest.of:
        yield f"<p>Right label among the 3 nearest incidents: {safe(nearest_words(figures))}</p>"
    states = {name: count for name, count in figures.states.items() if name not in ("not_needed", "not_configured")}
    if states:
        told = ", ".join(f"{name.replace('_', ' ')} {count}" for name, count in states.items())
        yield f"<p>The model: {safe(told)}</p>"


def _cost(evaluation: Evaluation) -> Iterator[str]:
    cost = costs_of(evaluation.results)
    yield "<h2>Cost</h2>"
    yield (
        f"<p>Seconds a case: median {cost.median:.2f}, 95 % {cost.p95:.2f}, most {cost.longest:.2f}. "
        f"Tokens: {cost.tokens_in} in, {cost.tokens_out} out by {cost.calls} calls.</p>"
    )
    yield _wide(plots.durations("seconds a case", [one.seconds for one in evaluation.results if not one.problem]))


def _cases(evaluation: Evaluation) -> Iterator[str]:
    rows = [row for result in evaluation.results if (row := _case(result))]
    if rows:
        yield "<h2>Cases that are not right in all</h2>"
        yield _wide(
            _table(("case", "label", "answer", "sure", "decided by", "not right", "first line cited"), rows, lines=True)
        )


def _case(result: Result) -> tuple[str, ...] | None:
    said: Said | None = result.said.get(OURS)
    if said is None or not (parts := wrong_parts(said.score)):
        return None
    answer = said.answer
    cited = answer.cited[0] if answer.cited else None
    place = f"{cited.source}:{cited.line}: {cited.text[:_LINE]}" if cited else ""
    return (
        result.case.name,
        result.case.label,
        answer.label,
        answer.sureness or "",
        answer.stage.replace("_", " "),
        ", ".join(WORDS.get(part, part) for part in parts),
        place,
    )


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], *, lines: bool = False) -> str:
    """A table; with `lines` its last column holds lines of logs."""
    made = ["<table><thead><tr>", *(f"<th>{safe(cell)}</th>" for cell in head), "</tr></thead><tbody>"]
    for row in rows:
        made.append("<tr>")
        for place, cell in enumerate(row):
            kind = ' class="line"' if lines and place == len(row) - 1 else ""
            made.append(f"<td{kind}>{safe(cell)}</td>")
        made.append("</tr>")
    return "".join([*made, "</tbody></table>"])


def _wide(inner: str) -> str:
    return f'<div class="wide">{inner}</div>'
