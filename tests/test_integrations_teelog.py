"""The bounded log of a command's output: whole lines, the beginning and the end, never more than the bound."""

from __future__ import annotations

import os
import re
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from diagnose.integrations.teelog import TeeLog

MOST = 1_000_000


def test_what_fits_is_kept_as_it_came(tmp_path: Path) -> None:
    log = TeeLog(str(tmp_path / "log"), MOST)
    for chunk in (b"a", b"b\nc", b"\r", b"\xff\x00\n", b"no end"):
        log.add(chunk)
    log.close()
    assert (tmp_path / "log").read_bytes() == b"ab\nc\r\xff\x00\nno end"


def test_the_beginning_and_the_end_stay(tmp_path: Path) -> None:
    log = TeeLog(str(tmp_path / "log"), MOST)
    lines = [b"line %07d of the output\n" % number for number in range(200_000)]
    for at in range(0, len(lines), 37):
        log.add(b"".join(lines[at : at + 37]))
        assert sum(file.stat().st_size for file in tmp_path.iterdir()) <= MOST
    log.close()
    kept = (tmp_path / "log").read_bytes()
    assert [file.name for file in tmp_path.iterdir()] == ["log"]
    assert len(kept) <= MOST + 200
    head, left_out, tail = re.split(rb"\[diagnose: (\d+ bytes, \d+ lines), left out here[^\n]*\n", kept)
    size, count = map(int, re.findall(rb"\d+", left_out))
    whole = b"".join(lines)
    assert whole.startswith(head)
    assert whole.endswith(tail)
    assert len(head) + size + len(tail) == len(whole)
    assert count == whole[len(head) : len(head) + size].count(b"\n")
    assert len(head) > MOST * 0.39
    assert len(tail) > MOST * 0.19


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.binary(max_size=700) | st.integers(1, 3000).map(lambda size: b"x" * size), max_size=60))
def test_any_chunks(tmp_path_factory: object, chunks: list[bytes]) -> None:
    folder = tmp_path_factory.mktemp("tee")  # type: ignore[attr-defined]
    log = TeeLog(str(folder / "log"), 5_000)
    for chunk in chunks:
        log.add(chunk)
    log.close()
    kept, whole = (folder / "log").read_bytes(), b"".join(chunks)
    assert os.listdir(folder) == ["log"]
    parts = re.split(rb"\[diagnose: (\d+) bytes, \d+ lines, left out here[^\n]*\n", kept)
    if len(parts) == 1:
        assert kept == whole
    else:
        head, size, tail = parts
        assert whole.startswith(head)
        assert whole.endswith(tail)
        assert len(head) + int(size) + len(tail) == len(whole)
        assert len(kept) < 5_200


def test_a_full_disk_ends_the_keeping_and_nothing_else() -> None:
    log = TeeLog("/dev/full", MOST)
    log.add(b"a line\n")
    log.add(b"another\n")
    log.close()
    assert log.problem == "/dev/full: No space left on device; the log ends there"


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    log = TeeLog(str(tmp_path / "absent" / "log"), MOST)
    log.add(b"a line\n")
    log.close()
    assert "No such file or directory" in log.problem
