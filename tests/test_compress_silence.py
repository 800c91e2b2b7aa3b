"""New templates judged together: which are spoken of, and the same lines kept as one by one."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagnose.compress import Compressor, Filters, Guard, Listeners, silence, verdicts
from diagnose.compress.filters import ROUTINE_BYTES
from diagnose.compress.silence import Silence
from diagnose.compress.verdicts import Verdicts
from diagnose.models import CompressionCounts, KeptLine, LogSource
from diagnose.settings import Limits
from tests.test_compress_compressor import KEYWORDS, RULES

LISTENERS = Listeners(("spoken",), ("step",))


@given(
    templates=st.lists(st.text("abc ", max_size=9), min_size=1, max_size=12, unique=True),
    literals=st.lists(st.text("abc ", min_size=1, max_size=4), min_size=1, max_size=5),
)
def test_what_holds_a_literal_is_spoken_of(templates: list[str], literals: list[str]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(silence, "REPAID", 0)
        known = Silence(each.encode() for each in literals)
    expected = {each.encode() for each in templates if any(literal in each for literal in literals)}
    assert known.spoken([each.encode() for each in templates]) == expected


def test_it_is_made_when_it_repays() -> None:
    known = Silence([b"a"])
    assert known.spoken([b"%d" % number for number in range(silence.REPAID - 1)]) is None
    assert known.spoken([b"b", b"ca"]) == {b"ca"}


def log(seed: int) -> bytes:
    draw = random.Random(seed)
    share = draw.choice((0.5, 0.9, 1.0))
    often = ["".join(draw.choices("abcdef", k=6)) for _ in range(30)]

    def line() -> str:
        if draw.random() < 0.002:
            return "Traceback (most recent call last):"
        roll = draw.random()
        if roll < 0.04:
            return draw.choice(("noise {n}", "setup {n}", "step {n} loss 2.5", "CUDA error {n}", "x Xid 7{n}")).format(
                n=draw.randrange(12)
            )
        if roll < 0.05:
            return draw.choice("xyz") * (ROUTINE_BYTES + draw.randrange(3))
        if roll < share:
            return " ".join("".join(draw.choices("abcdef", k=6)) for _ in range(3))
        return f"{draw.choice(often)} {draw.choice(('step', 'spoken', 'w'))} {draw.randrange(900)}"

    return "\n".join(line() for _ in range(3000)).encode()


def run(data: bytes, chunk: int, templates: int, listeners: Listeners | None) -> tuple[list[KeptLine], object]:
    limits = Limits(templates=templates)
    one = Compressor(
        LogSource("job.log"), Filters(RULES), Guard(KEYWORDS), limits, inside=chunk > 9000, listeners=listeners
    )
    kept = [line for at in range(0, len(data), chunk) for line in one.feed(data[at : at + chunk])]
    kept += one.finish()
    return kept, one.counts


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("listeners", [None, LISTENERS])
@pytest.mark.parametrize("templates", [100, 100_000])
def test_the_same_lines_as_one_by_one(
    seed: int, listeners: Listeners | None, templates: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = log(seed)
    for chunk in (1000, 20_000, 1 << 20):
        monkeypatch.setattr(silence, "REPAID", 10**9)
        expected = run(data, chunk, templates, listeners)
        monkeypatch.setattr(silence, "REPAID", 0)
        monkeypatch.setattr(verdicts, "_MANY", 2)
        taken: list[int] = []
        usual = Verdicts._learn_silent

        def learn(self: Verdicts, *distinct: dict[bytes, None], seen: bool, usual=usual, taken=taken) -> object:
            silent = usual(self, *distinct, seen=seen)
            taken.append(len(silent or ()))
            return silent

        with monkeypatch.context() as patch:
            patch.setattr(Verdicts, "_learn_silent", learn)
            assert run(data, chunk, templates, listeners) == expected
        counts = expected[1]
        assert isinstance(counts, CompressionCounts)
        assert max(taken) > 2 or counts.evicted_templates
