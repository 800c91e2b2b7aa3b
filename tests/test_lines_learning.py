"""What a head teaches is the same whether all its lines are read or only those that can teach something."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from diagnose.lines import LineReader, reader
from diagnose.lines.learning import EveryLine
from diagnose.models import KeptLine, LogSource
from diagnose.settings import Limits

FIXTURES = Path(__file__).parent / "fixtures" / "incidents"
FORMS = (
    "{rank}: [2026-03-01 10:00:{step:02}] iteration {step} | loss 2.{step}",
    "{rank}: Traceback (most recent call last):",
    "{step}: epoch",
    "{rank}: [rank{rank}]: ready",
    "{task}: [rank{rank}]: ready",
    "{task}: torch/distributed/run.py:700 starts",
    "gx-{rank:02}: step {step} of 1000",
    "gx-{rank:02}: 2026-03-01 10:00:00 step {step}",
    "2026-03-01 10:00:{step:02},123 [INFO] train: step {step} loss 2.{step}",
    "2026-03-01T10:00:{step:02}Z gx-{rank:02} kernel: eth{rank} up",
    "2026-03-01T10:00:{step:02}Z gx-{rank:02} [rank{rank}]: up",
    "worker-{rank}  | step {step}",
    "db  | step {step}",
    "role/{rank} step {step}",
    "pod-{rank}-abc container step {step}",
    "[{rank}]:2026-03-01 10:00:00 step {step}",
    "Rank {rank}: [rank{rank}] up",
    "10.0.0.{rank}: step {step}",
    '{{"log":"gx-{rank:02}: step {step}\\n","stream":"stderr","time":"2026-03-01T10:00:00.0Z"}}',
    "loss 2.{step}",
    "",
    "   {rank}: indented",
)


def _known(head: bytes) -> tuple[object, ...]:
    known = _learnt(head)
    settled = {name: min(count, 6) for name, count in known._counts.items()}
    return known._proven, known.labelled, known.tasks_are_nodes, settled


def _learnt(head: bytes):
    lines = LineReader(LogSource("job.log"), Limits())
    lines.learn(head)
    return lines._known


def _both(head: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    fast = _known(head)
    with monkeypatch.context() as patch:
        patch.setattr(reader, "LESSONS", EveryLine)
        slow = _known(head)
    assert fast == slow


@pytest.mark.parametrize("seed", range(60))
def test_heads_of_mixed_forms_teach_the_same(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = random.Random(seed)
    forms = draw.sample(FORMS, draw.randint(1, 4))
    lines = [
        draw.choice(forms).format(rank=draw.randrange(12), task=draw.randrange(2), step=draw.randrange(100))
        for _ in range(300)
    ]
    _both("\n".join(lines).encode(), monkeypatch)


def test_heads_of_the_incidents_teach_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    for path in sorted(FIXTURES.rglob("*"))[:200]:
        if path.is_file():
            _both(path.read_bytes()[: 64 * 1024], monkeypatch)


def test_most_lines_of_a_head_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    read = []
    whole = LineReader.read
    monkeypatch.setattr(LineReader, "read", lambda self, kept: (read.append(kept.raw), whole(self, kept))[1])
    _learnt(b"".join(b"2026-03-01 10:00:00,123 [INFO] train: step %d loss 2.1\n" % step for step in range(1000)))
    assert len(read) < 40


@pytest.mark.parametrize("form", FORMS)
def test_a_line_that_filters_may_drop_teaches_nothing_after_the_head(form: str) -> None:
    head = b"loss 1.0\nloss 0.9\n"
    lines = LineReader(LogSource("job.log"), Limits())
    lines.learn(head)
    before = (set(lines._known._proven), dict(lines._known._counts), lines._known.labelled, lines._known.taught)
    for step in range(20):
        raw = form.format(rank=step % 4, task=step % 2, step=step).encode()
        lines.read(KeptLine(step + 3, raw))
    known = lines._known
    assert (known._proven, known._counts, known.labelled, known.taught) == before
    assert not known.tasks_are_nodes


def test_a_guarded_line_teaches_wherever_it_stands() -> None:
    lines = LineReader(LogSource("job.log"), Limits())
    lines.learn(b"loss 1.0\n")
    (tagged,) = lines.read(KeptLine(9000, b"3: Traceback (most recent call last):", guarded=True))
    (frame,) = lines.read(KeptLine(9001, b'3:   File "a.py", line 1, in f'))
    assert (tagged.rank, frame.rank) == (3, 3)
