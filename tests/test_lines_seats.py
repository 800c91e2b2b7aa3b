"""Indented lines whose prefixes are not read again are the lines that reading them would give."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from diagnose.lines import reader as readers
from diagnose.lines.heads import Head
from diagnose.lines.reader import LineReader
from diagnose.lines.seats import NoSeats, Seats
from diagnose.models import KeptLine, Line, LogSource
from diagnose.settings import Limits
from tests.incidents import incidents

PREFIXES = (
    "", "[rank3]:", "[rank12]: ", "[default1]:", "[default0]: ", "[1,3]<stderr>:", "3:", "12: ", "gx-7: ", "gx-7:3: ",
    "2026-03-01 10:00:00,000 ", "2026-03-01 10:00:00 INFO", "[pod/train-0/pytorch] ", "(RayTrainWorker pid=77)",
    "(RayTrainWorker pid=77, ip=10.1.2.3) ", "[0]:", "[ 12.345678]", "Mar  1 10:00:00 gx-7 kernel:", "[rank1]:[rank2]:",
    "GPU 00000000:B1:00.0", "{", "2026-03-01T10:00:00.000000000Z stderr F", "[2026-03-01 10:00:00]", "- [rank3]:",
    "rank 3:", "[trainer1|rank9]:", "gx-7: 3:",
)  # fmt: skip
BODIES = (
    'File "/w/a.py", line 3, in f', "x = y", "^^^^", "- item", "[3] done", "12: x", "3 of 4", '"loss": 1', "", "{}",
    " 50%|##  | 5/9 [00:01<00:02]", "frame #3: f() + 0x1", "Traceback (most recent call last):", "[rank7]: y",
    "torch/distributed/run.py: x", "0x00 std out F", "KeyError: 1", "Clocks", "it stderr F x",
)  # fmt: skip

lines = st.tuples(st.sampled_from(PREFIXES), st.integers(0, 6), st.sampled_from(BODIES), st.booleans())


def read(texts: list[tuple[str, bool]], kind: str, *, seats: bool, monkeypatch: pytest.MonkeyPatch) -> list[Line]:
    with monkeypatch.context() as patch:
        patch.setattr(readers, "SEATS", Seats if seats else NoSeats)
        reader = LineReader(LogSource("job.log", kind), Limits())
    reader.learn("".join(f"{text}\n" for text, _ in texts[: len(texts) // 2]).encode())
    made = [
        line
        for number, (text, guarded) in enumerate(texts)
        for line in reader.read(KeptLine(number + 1, text.encode(), guarded))
    ]
    return [*made, *reader.finish()]


@given(st.lists(lines, max_size=24), st.sampled_from(["job", "kernel", "scheduler"]))
@example([("[rank3]:", 3, "x = y", False)] * 3 + [("[rank12]: ", 2, "x = y", True)] * 3, "job")
@example([("[default1]:", 2, "x = y", False), ("[rank3]:", 0, "KeyError: 1", True)] * 3, "job")
@example([("GPU 00000000:B1:00.0", 0, "", False), ("", 4, "Clocks", False), ("", 0, "KeyError: 1", False)] * 2, "job")
@example([("", 2, "3 of 4", False), ("", 2, "2026-03-01 10:00:00 x", False), ("", 2, "[0]: y", False)], "job")
@example([("gx-7: ", 2, "x = y", True)] * 6 + [("gx-7: ", 2, "x [repeated 3x across cluster]", False)], "job")
@example([("worker/3 ", 2, "x = y", True)] * 8 + [("worker/3 ", 2, "| Name | Type", False)], "job")
@example([("[0]:[rank4]: ", 3, "x = y", True)] * 8 + [("[0]:[rank4]: ", 3, "a > y ]<stderr>: x", False)], "job")
@example([("12: ", 4, "x = y", True)] * 6 + [("12: ", 4, "torch/distributed/run.py: x", True)] * 2, "job")
def test_as_if_every_prefix_were_read(given_lines, kind: str) -> None:
    texts = [(prefix + " " * blanks + body, guarded) for prefix, blanks, body, guarded in given_lines]
    with pytest.MonkeyPatch.context() as patch:
        assert read(texts, kind, seats=True, monkeypatch=patch) == read(texts, kind, seats=False, monkeypatch=patch)


def test_the_bundled_logs_read_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    found = 0
    for incident in incidents():
        for path in sorted(
            each for each in Path(incident.folder).iterdir() if each.suffix in {".log", ".out", ".txt", ".err"}
        ):
            texts = [(text, True) for text in path.read_bytes().decode("utf-8", "replace").split("\n")]
            one, other = (read(texts, "job", seats=seats, monkeypatch=monkeypatch) for seats in (True, False))
            assert one == other, path
            found += sum(line.body.startswith("  ") for line in one)
    assert found > 1000


def test_a_seat_is_found_by_what_stands_before_the_blanks() -> None:
    seats = Seats()
    source = LogSource("job.log", "job")
    seats.note(Line(source, 1, "[rank3]:   x", "  x", "job.log|rank 3"), 9, Head())
    assert seats.of("[rank3]:     y") is not None
    assert seats.of("[rank4]:     y") is None
    assert seats.of("[rank3]:  y") is None
    stamped = Head()
    stamped.stage = 1
    seats.note(Line(source, 1, "10:00:00   x", "  x", "job.log"), 9, stamped)
    assert seats.of("10:00:00   x") is None
