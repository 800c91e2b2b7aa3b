"""Ranges of a source, each alone and all in one go: the same lines, and none lost that a filter does not match."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from diagnose.compress import Compressor, Filters, Guard, Ranges, add_counts, range_blocks
from diagnose.compress import ranges as module
from diagnose.models import CompressionCounts, KeptLine, LogSource
from diagnose.settings import Limits
from tests.test_compress_compressor import KEYWORDS, RULES

SOURCE, LIMITS = LogSource("job.log"), Limits(line_bytes=300)
FILTERS, GUARD = Filters(RULES), Guard(KEYWORDS)


def log(seed: int, lines: int = 400) -> bytes:
    draw = random.Random(seed)
    forms = (
        "{r}: step {n} loss 1.{n}",
        "{r}: setup {n}",
        "noise {n}",
        "{r}: CUDA error {n}",
        "novel {w}",
        "a\rb\rc {n}",
        "ends \r",
        "Traceback (most recent call last):",
        "  File x",
        "",
        "x" * draw.choice((10, 400, 2000)),
        "nul \0 {n}",
    )
    weights = (30, 10, 20, 1, 3, 1, 1, 0.3, 1, 1, draw.choice((0, 0.5)), 1)
    text = "\n".join(
        draw.choices(forms, weights)[0].format(r=draw.randrange(4), n=number, w=draw.choice("abcdef") * 3)
        for number in range(lines)
    )
    return (text + draw.choice(("", "\n", "\r\n"))).encode()


def whole(data: bytes, chunk: int) -> tuple[list[KeptLine], CompressionCounts]:
    compressor = Ranges(SOURCE, FILTERS, GUARD, LIMITS)
    kept = [line for at in range(0, len(data), chunk) for line in compressor.feed(data[at : at + chunk])]
    kept += compressor.finish()
    return kept, compressor.counts


def by_range(data: bytes, chunk: int, count: int) -> tuple[list[KeptLine], CompressionCounts]:
    def window(start: int):
        return (data[at : at + chunk] for at in range(start, len(data), chunk))

    out: list[KeptLine] = []
    counts = CompressionCounts()
    for index in range(count):
        compressor: Ranges | None = None
        kept: list[KeptLine] = []
        for place, block in range_blocks(window, index, last=index == count - 1):
            compressor = compressor or Ranges(SOURCE, FILTERS, GUARD, LIMITS, place)
            kept += compressor.feed(block)
        if compressor is not None:
            kept += compressor.finish()
            out += [replace(line, number=line.number + counts.lines) for line in kept]
            counts = add_counts(counts, compressor.counts)
    return out, counts


@pytest.mark.parametrize("seed", range(25))
def test_range_by_range_gives_what_one_reader_gives(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    data = log(seed)
    for size in (64, 700, 5000):
        monkeypatch.setattr(module, "RANGE_BYTES", size)
        expected = whole(data, 999)
        assert whole(data, 17) == expected
        count = -(-len(data) // size)
        for chunk in (50, 4096):
            assert by_range(data, chunk, count) == expected
        assert by_range(data, 333, max(1, count - 2)) == expected  # the file has grown since its size was asked


@pytest.mark.parametrize("seed", range(10))
def test_borders_hide_nothing_that_no_filter_matches(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    data = log(seed)
    single = Compressor(SOURCE, FILTERS, GUARD, LIMITS)
    kept = {line.number for line in [*single.feed(data), *single.finish()] if line.progress is None}
    monkeypatch.setattr(module, "RANGE_BYTES", 900)
    ranged, counts = whole(data, 500)
    assert kept <= {line.number for line in ranged}
    assert counts.lines == single.counts.lines


def test_a_line_longer_than_a_range(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RANGE_BYTES", 64)
    data = b"first\n" + b"y" * 1000 + b"\nlast CUDA error\n" + b"z" * 200
    assert by_range(data, 40, 20) == whole(data, 40)
    assert by_range(data, 4000, 20) == whole(data, 4000)
