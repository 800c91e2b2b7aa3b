"""Marked lines settled writer by writer: the same as one by one, whatever stands between them; and it really ran."""

from __future__ import annotations

from functools import partial

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from diagnose.compress import Listeners, compressor, sampling, settling
from diagnose.compress.routine import Routine
from diagnose.compress.sampling import ProgressSampler, Quota
from diagnose.models.rule import Yields
from tests.test_compress_compressor import RULES, rule
from tests.test_compress_routine import HAS_PCRE2, Slow, run

pytestmark = pytest.mark.skipif(not HAS_PCRE2, reason="the extra `fast` is not installed")

ALL = (
    *RULES,
    rule("beats", "alive", r"{prefix}alive \d*", yields=Yields({"step": r"alive (?P<step>\d+)"})),
    rule("nine", "tick", r"{prefix}tick 9\d*", yields=Yields({"step": r"tick (?P<step>\d+)"})),
)
# What a rank does next: mostly it goes on.
OTHERS = (
    "skew",
    "reset",
    "noise",
    "noise",
    "alive",
    "beat",
    "tick",
    "setup",
    "novel",
    "often",
    "guard",
    "open",
    "text",
)
DO = st.sampled_from([*["step"] * 12, *OTHERS, "bar", "late"])
LOGS = st.lists(st.tuples(DO, st.integers(0, 3), st.integers(0, 3)), max_size=60)


def lines_of(deeds: list[tuple[str, int, int]], many: int) -> bytes:
    """The log of some ranks whose steps go on from deed to deed, each of which is done by `many` of them in turn."""
    steps = [95] * 4
    lines = []
    for deed, first, more in deeds:
        for rank in [(first + each) % 4 for each in range(many)]:
            step = steps[rank]
            if deed == "step":
                steps[rank] += more
            elif deed == "reset":
                steps[rank] = 7
            lines.append(
                {
                    "skew": f"{rank}: step {step + more - 1} loss 2.{more}",
                    "noise": f"{rank}: noise {step}",
                    "alive": f"{rank}: alive ",
                    "beat": f"alive {step}",
                    "tick": f"{rank}: tick {more}9{step}",
                    "setup": f"{rank}: setup {more}",
                    "novel": f"novel {'abcd'[rank]}{'efgh'[more]} of {step}",
                    "often": f"{rank}: said {step}",
                    "guard": f"{rank}: step {step} CUDA error {more}",
                    "open": "Traceback (most recent call last):",
                    "text": f'  File "x.py", line {step}',
                    "bar": f"a\rstep {step} loss 1.0\r",
                    "late": f"node-{rank}: step {step} loss {'1' * (more + 1)}.5",
                }.get(deed, f"{rank}: step {step} loss 1.{more}")
            )
    return "".join(f"{line}\n" for line in lines).encode()


WARM = lines_of([(deed, 0, more) for deed in ("step", "noise", "alive", "beat", "setup") for more in range(4)] * 3, 4)


def taught() -> Routine:
    routine = Routine(20)
    run(WARM * 20, routine, ALL, chunk=900)
    assert routine.ready
    return routine


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(deeds=LOGS, many=st.sampled_from([1, 3, 4, 9]), chunk=st.sampled_from([200, 1000, 1 << 20]))
@pytest.mark.parametrize("listeners", [None, Listeners(("spoken",), ("step",))])
def test_the_same_lines_as_one_by_one(
    deeds: list[tuple[str, int, int]],
    many: int,
    chunk: int,
    listeners: Listeners | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(compressor, "_PAUSE", 0)
    monkeypatch.setattr(sampling, "PROGRESS_EVERY", 4)
    data = lines_of(deeds, many)
    assert run(data, taught(), ALL, chunk, listeners=listeners) == run(data, Slow(), ALL, chunk, listeners=listeners)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(deeds=LOGS, limit=st.integers(3, 16))
def test_the_same_lines_where_writers_are_forgotten(
    deeds: list[tuple[str, int, int]], limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compressor, "_PAUSE", 0)
    monkeypatch.setattr(compressor, "ProgressSampler", partial(ProgressSampler, limit))
    monkeypatch.setattr(compressor, "Quota", partial(Quota, limit))
    data = lines_of(deeds, 3)
    assert run(data, taught(), ALL, 90) == run(data, Slow(), ALL, 90)


def test_most_samples_are_settled_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that pass on too; where a step falls, and only there, the lines of that writer are looked at."""
    seen: list[tuple[int, int, int]] = []
    settle = settling.Settling.settle

    def watched(*args: object) -> tuple[list[tuple[int, str]], list[int]]:
        passed, left = settle(*args)  # type: ignore[arg-type]
        seen.append((len(args[2]), len(passed), len(left)))  # type: ignore[arg-type]
        return passed, left

    monkeypatch.setattr(settling.Settling, "settle", watched)
    rising = [("step", 0, 1)] * 200
    data = lines_of([*rising, ("guard", 1, 1), *rising, ("reset", 0, 0), *rising], 4)
    routine = taught()
    expected = run(data, Slow(), ALL)
    seen.clear()
    assert run(data, routine, ALL, 1 << 20) == expected
    marked, passed, left = map(sum, zip(*seen, strict=True))
    assert marked == data.count(b"\n")
    assert 4 <= passed < 100
    assert 0 < left <= 2 * 4 * 201  # of the part in which steps fall


def test_names_that_are_forgotten_have_lines_free_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compressor, "Quota", partial(Quota, 3))
    data = b"".join(b"%d: setup 1\n" % rank for rank in (0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 0, 1, 1, 2, 2, 2))
    expected = run(data, Slow(), ALL, 1000)
    assert len(expected[0]) == 12
    assert run(data, taught(), ALL, 99) == expected
