"""Lines that nobody speaks of and that come over and over are thinned out: what they say of steps is not lost."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from diagnose.compress import Compressor, Filters, Guard, Listeners
from diagnose.compress.repeats import EVERY, WORN, Repeats
from diagnose.lines.interests import spoken_literals
from diagnose.lines.steps import STEP_LITERALS
from diagnose.models import KeptLine, LogSource, RuleSet
from diagnose.settings import Limits, Settings
from tests.incidents import run

LISTENERS = Listeners(spoken_literals(), STEP_LITERALS)
GUARD = Guard(("CUDA error",))


def kept(lines: list[str], chunk: int = 1 << 16, listeners: Listeners | None = LISTENERS) -> list[KeptLine]:
    compressor = Compressor(LogSource("job.log"), Filters(()), GUARD, Limits(), listeners=listeners)
    data = "".join(line + "\n" for line in lines).encode()
    out = [line for start in range(0, len(data), chunk) for line in compressor.feed(data[start : start + chunk])]
    out += compressor.finish()
    counts = compressor.counts
    assert counts.lines == len(lines)
    assert counts.kept + counts.dropped == len(lines)
    return out


def numbers(out: list[KeptLine]) -> list[int]:
    return [line.number for line in out]


def test_the_first_lines_pass_then_ever_fewer_and_the_last() -> None:
    out = numbers(kept([f"worker said {number % 7} and {number:06}" for number in range(20_000)]))
    assert out[:WORN] == list(range(1, WORN + 1))
    assert out[-1] == 20_000
    assert len(out) < WORN + 40
    gaps = [later - before for before, later in zip(out[WORN:], out[WORN + 1 : -1], strict=False)]
    assert min(gaps) >= EVERY
    assert gaps == sorted(gaps)


def test_without_listeners_every_line_passes() -> None:
    assert len(kept(["said 1"] * 2_000, listeners=None)) == 2_000


def test_each_writer_is_thinned_out_by_itself() -> None:
    lines = [f"[rank{number % 4}]: worker said {number}" for number in range(8_000)]
    out = kept(lines)
    for rank in range(4):
        own = [line for line in out if line.raw.startswith(f"[rank{rank}]".encode())]
        assert WORN <= len(own) < WORN + 30
        assert own[-1].raw == lines[7_996 + rank].encode()


@pytest.mark.parametrize(
    "text",
    [
        "srun: job {0} queued",
        "rank 3 is on host gx-{0}",
        "NCCL INFO comm {0}",
        "Traceback {0} Error: ",
        "x@gx-{0}: $ ls",
    ],
)
def test_lines_that_a_reader_wants_all_pass(text: str) -> None:
    assert len(kept([text.format(number) for number in range(2_000)])) == 2_000


@pytest.mark.parametrize("form", ["step={0} of it loss={1}", "Epoch [{2}][{0}/9000] loss {1}", "global_step: {0}, {1}"])
def test_a_step_that_falls_passes_with_the_one_before_it(form: str) -> None:
    steps = [*range(3_000), *range(1_500, 4_000)]
    lines = [form.format(step, step * 7919 % 1000, step // 9000) for step in steps]
    out = numbers(kept(lines))
    assert {3_000, 3_001} <= set(out)
    assert len(out) < 1_200


def test_counters_that_begin_anew_every_few_lines_are_read_as_they_are() -> None:
    assert len(kept([f"batch {number % 10} of 10 done" for number in range(3_000)])) == 3_000


def test_words_for_steps_without_a_number_behind_them_are_read_as_they_are() -> None:
    assert len(kept([f"{number} is the step that is done" for number in range(2_000)])) == 2_000


def test_what_is_held_back_passes_before_a_guarded_line() -> None:
    lines = [f"worker said {number}" for number in range(1_000)]
    out = kept([*lines, "CUDA error: x", *lines[:30]])
    place = next(index for index, line in enumerate(out) if line.guarded)
    assert out[place - 1].number == 1_000
    assert out[-1].number == 1_031


def test_lines_of_an_open_record_all_pass() -> None:
    lines = [f"worker said {number}" for number in range(1_000)]
    trace = [
        "Traceback (most recent call last):",
        '  File "a.py", line 1, in f',
        *[f"worker said {n}" for n in range(20)],
    ]
    out = numbers(kept([*lines, *trace, "KeyError: 1"]))
    assert out[-22:] == list(range(1_002, 1_024))


@pytest.mark.parametrize("seed", range(4))
def test_chunks_make_no_difference(seed: int) -> None:
    luck = random.Random(seed)
    forms = ["worker said {0}", "[rank{1}]: step={0} loss 0.{0}", "only {2} here", "CUDA error {0}", "Epoch {1} of {0}"]
    lines = []
    for number in range(6_000):
        word = "".join(luck.choices("abc", k=3))
        lines.append(luck.choices(forms, (50, 50, 2, 0.2, 20))[0].format(number, number % 3, word))
    whole = kept(lines)
    assert len(whole) < len(lines) // 2
    for chunk in (61, 4_096, 1 << 20):
        assert kept(lines, chunk) == whole


class Slowly(Compressor):
    """The slow twin: of an open record each line is judged by a call of its own."""

    def _in_record(self, first, lines, templates, verdicts, place):  # type: ignore[no-untyped-def]
        for index in range(place, len(verdicts)):
            if not self._line(first + index, lines[index], self._verdict_of(templates[index])):
                return index + 1
        return len(verdicts)


@pytest.mark.parametrize("seed", range(6))
def test_lines_of_open_records_are_judged_as_one_by_one(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(seed)
    texts = (
        ["Traceback (most recent call last):", "CUDA error: x"]
        + ["worker said {0}"] * 9
        + ["it step={0} loss=0.1"] * 9
        + ["[rank{1}]:   x = y"] * 30
    )
    monkeypatch.setattr("diagnose.compress.repeats.WRITERS", rng.choice([5, 100_000]))
    lines: list[str] = []
    while len(lines) < 6_000:
        text = rng.choice(texts)
        lines += [text.format(n % 900, rng.randrange(3)) for n in range(rng.choice([1, 1, 40, 700]))]
    fast = kept(lines, 4096)
    monkeypatch.setattr("tests.test_compress_repeats.Compressor", Slowly)
    assert fast == kept(lines, 4096)
    assert len(fast) < len(lines)


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("diagnose.compress.repeats.WRITERS", 8)
    monkeypatch.setattr("diagnose.compress.repeats.FAMILIES", 8)
    repeats = Repeats(LISTENERS)
    out: list[KeptLine] = []
    for number in range(2_000):
        raw = f"[rank{number % 50}]: word{'x' * (number % 20)} {number}".encode()
        shape = repeats.shape(b"[rank00]: word" + b"x" * (number % 20) + b" 0000")
        assert shape is not None
        repeats.take(shape, number, raw, out)
    assert len(repeats._families) <= 8
    assert repeats.evicted > 0
    assert len(out) + len(repeats.held()) + repeats.dropped == 2_000


RESTARTED = """\
{steps}Traceback (most recent call last):
  File "/w/train.py", line 7, in step
    loss = f(x)
RuntimeError: CUDA error: an illegal memory access was encountered
{again}"""


@pytest.mark.parametrize("form", ["it step={0} loss=0.{1}\n", "[rank0]: train iteration {0} loss {1}\n"])
def test_the_report_is_that_of_all_lines(form: str, rule_set: RuleSet, tmp_path: Path) -> None:
    steps = "".join(form.format(step, step * 7919 % 1000) for step in range(5_000))
    again = "".join(form.format(step, step * 7919 % 1000) for step in range(4_000, 7_000))
    (tmp_path / "job.log").write_text(RESTARTED.format(steps=steps, again=again))
    packed = run(str(tmp_path), ["job.log"], rule_set)
    whole = run(str(tmp_path), ["job.log"], rule_set, Settings(compress=False))
    assert packed.coverage.dropped_lines > 5_000
    assert packed.progress == whole.progress
    assert (packed.status, packed.error_type, packed.attempts) == (whole.status, whole.error_type, whole.attempts)
    assert [f.id for f in packed.explanation.findings] == [f.id for f in whole.explanation.findings]
