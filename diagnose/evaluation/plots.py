"""Plots as SVG elements, small and without a library.

In: names, rates, counts. Out: SVG text that stands in an HTML page; its colours are classes of the page's style. Every
text is escaped: labels and names may hold anything.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape

from diagnose.dataclass import dataclass
from diagnose.evaluation.figures import Confusion, Level, Rate

_ROW, _NAME, _WIDTH, _FIGURE = 22, 210, 420, 170
_CHARS = 34  # of a name beside a plot


def safe(text: str) -> str:
    """Text as HTML shows it: markup is none, and what no eye sees or what turns the direction of text is shown."""
    return escape("".join(char if char.isprintable() else f"\\u{ord(char):04x}" for char in text))


def svg(width: int, height: int, title: str, parts: Iterable[str]) -> str:
    """One picture; `title` says what it shows to those who cannot see it."""
    return (
        f'<svg viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" '
        f'aria-label="{safe(title)}">{"".join(parts)}</svg>'
    )


def bars(title: str, rows: Sequence[tuple[str, Rate]]) -> str:
    """A bar for each rate, with its interval as a line."""
    height = _ROW * len(rows) + 26
    parts = [*_scale(height)]
    for number, (name, rate) in enumerate(rows):
        top = number * _ROW + 4
        parts.append(_text(_NAME - 8, top + 12, name, "name", anchor="end"))
        if rate.value is None:
            parts.append(_text(_NAME + 6, top + 12, "none", "figure"))
            continue
        low, high = (_NAME + share * _WIDTH for share in rate.interval)
        parts.append(_box(_NAME, top, rate.value * _WIDTH, 14, "bar"))
        parts.append(_line(low, top + 7, high, top + 7, "whisker"))
        parts.extend(_line(x, top + 3, x, top + 11, "whisker") for x in (low, high))
        parts.append(
            _text(_NAME + _WIDTH + 10, top + 12, f"{100 * rate.value:.1f} %  {rate.right}/{rate.of}", "figure")
        )
    return svg(_NAME + _WIDTH + _FIGURE, height, title, parts)


def coverage(title: str, levels: Sequence[Level]) -> str:
    """Accuracy over coverage: a point for each level of sureness, with the interval of its accuracy."""
    size, left, top = 300, 46, 24
    parts = []
    for tenth in range(0, 11, 2):
        x, y = left + tenth / 10 * size, top + size - tenth / 10 * size
        parts += [_line(left, y, left + size, y, "grid"), _line(x, top, x, top + size, "grid")]
        parts += [_text(left - 6, y + 4, f"{tenth * 10}", "axis", anchor="end")]
        parts += [_text(x, top + size + 16, f"{tenth * 10}", "axis", anchor="middle")]
    parts.append(_text(left + size / 2, top + size + 34, "% of the failures answered", "axis", anchor="middle"))
    parts.append(_text(left, top - 12, "% of those right", "axis"))
    points: list[tuple[float, float]] = []
    for level in levels:
        if level.coverage.value is None or level.accuracy.value is None:
            continue
        x, y = left + level.coverage.value * size, top + size - level.accuracy.value * size
        low, high = (top + size - share * size for share in level.accuracy.interval)
        parts.append(_line(x, low, x, high, "whisker"))
        parts.append(f'<circle class="point" cx="{_n(x)}" cy="{_n(y)}" r="5"/>')
        parts.append(_text(min(x + 9, left + size + 4), y + 16, level.sureness, "name"))
        points.append((x, y))
    if len(points) > 1:
        path = " ".join(f"{_n(x)},{_n(y)}" for x, y in points)
        parts.append(f'<polyline class="curve" points="{path}"/>')
    return svg(left + size + 90, top + size + 42, title, parts)


def confusion(title: str, cells: Sequence[Confusion]) -> str:
    """The labels by the answers: how often each was answered so; the darker the more."""
    wants = sorted({cell.want for cell in cells})
    gots = [*wants, *sorted({cell.got for cell in cells} - set(wants))]
    most = {want: sum(cell.count for cell in cells if cell.want == want) for want in wants}
    side, left, top = 16, _NAME, 190
    parts = []
    for row, want in enumerate(wants):
        parts.append(_text(left - 8, top + row * side + 12, want, "name", anchor="end"))
        parts.append(_line(left, top + row * side, left + len(gots) * side, top + row * side, "grid"))
    for column, got in enumerate(gots):
        x = left + column * side + 12
        parts.append(
            f'<text class="name" transform="translate({_n(x)} {top - 6}) rotate(-60)">{safe(_short(got))}</text>'
        )
        parts.append(_line(left + column * side, top, left + column * side, top + len(wants) * side, "grid"))
    for cell in cells:
        x, y = left + gots.index(cell.got) * side, top + wants.index(cell.want) * side
        kind = "right" if cell.want == cell.got else "wrong"
        shade = 1 + math.ceil(3 * cell.count / most[cell.want])
        told = f"{cell.want} answered {cell.got}: {cell.count} of {most[cell.want]}"
        parts.append(
            f"<g><title>{safe(told)}</title>{_box(x + 1, y + 1, side - 2, side - 2, f'{kind} shade{shade}')}"
            f"{_text(x + side / 2, y + 12, str(cell.count), 'cell', anchor='middle')}</g>"
        )
    return svg(left + len(gots) * side + 130, top + len(wants) * side + 8, title, parts)


@dataclass(frozen=True, slots=True)
class _Bin:
    name: str
    count: int


def durations(title: str, seconds: Sequence[float]) -> str:
    """How many cases took how long, on a scale where each bin is twice as wide as the one before."""
    bins = _bins(seconds)
    most = max((one.count for one in bins), default=1) or 1
    height = _ROW * len(bins) + 8
    parts = []
    for number, one in enumerate(bins):
        top = number * _ROW + 4
        parts.append(_text(_NAME - 8, top + 12, one.name, "name", anchor="end"))
        parts.append(_box(_NAME, top, one.count / most * _WIDTH, 14, "bar"))
        parts.append(_text(_NAME + one.count / most * _WIDTH + 8, top + 12, str(one.count), "figure"))
    return svg(_NAME + _WIDTH + 60, height, title, parts)


def _bins(seconds: Sequence[float]) -> list[_Bin]:
    if not seconds:
        return []
    powers = [max(-7, math.ceil(math.log2(max(one, 1e-9)))) for one in seconds]
    return [_Bin(f"up to {2.0**power:.3g} s", powers.count(power)) for power in range(min(powers), max(powers) + 1)]


def _scale(height: int) -> Iterable[str]:
    for tenth in range(0, 11, 2):
        x = _NAME + tenth / 10 * _WIDTH
        yield _line(x, 0, x, height - 20, "grid")
        yield _text(x, height - 6, f"{tenth * 10} %", "axis", anchor="middle")


def _box(x: float, y: float, width: float, height: float, kind: str) -> str:
    return f'<rect class="{kind}" x="{_n(x)}" y="{_n(y)}" width="{_n(max(width, 0.5))}" height="{_n(height)}"/>'


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    return f'<line class="{kind}" x1="{_n(x1)}" y1="{_n(y1)}" x2="{_n(x2)}" y2="{_n(y2)}"/>'


def _text(x: float, y: float, text: str, kind: str, *, anchor: str = "start") -> str:
    return f'<text class="{kind}" x="{_n(x)}" y="{_n(y)}" text-anchor="{anchor}">{safe(_short(text))}</text>'


def _short(text: str) -> str:
    return text if len(text) <= _CHARS else text[: _CHARS - 1] + "…"


def _n(value: float) -> str:
    """A coordinate, as short as it can be."""
    return f"{value:.1f}".removesuffix(".0")
