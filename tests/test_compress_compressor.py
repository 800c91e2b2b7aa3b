"""The compressor against a naive reader of the same rules, and its promises one by one."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diagnose.compress import (
    RECORD_HOLD_LINES,
    RECORD_OPENERS,
    Compressor,
    Filters,
    Guard,
    PassThrough,
    expand,
    is_bar,
    sampling,
)
from diagnose.compress.filters import ROUTINE_BYTES
from diagnose.compress.prefix import writer_span
from diagnose.compress.sampling import PROGRESS_EVERY
from diagnose.models import FilterRule, KeptLine, LogSource
from diagnose.models.rule import FilterExamples, Yields
from diagnose.settings import Limits

SOURCE = LogSource("job.log")
LIMITS = Limits()
KEYWORDS = ("CUDA error", "Xid 79", "NCCL WARN", "fp16 overflow")


def rule(id_: str, keyword: str, pattern: str, **more) -> FilterRule:
    base = FilterRule(
        schema="filter-rule/v1",
        id=id_,
        title=id_,
        status="test",
        description="",
        author=("test",),
        created="2026-11-30",
        tags=(),
        sources=("job",),
        keywords=(keyword,),
        pattern=pattern,
        action="drop",
        examples=FilterExamples((), ()),
    )
    return replace(base, **more)


RULES = (
    rule("noise", "noise", r"{prefix}noise \d+.*"),
    rule("setup", "setup", r"{prefix}setup \d+", action="collapse", keep_first=2, per="rank"),
    rule(
        "steps",
        "step ",
        r"{prefix}step \d+ loss [\d.]+",
        yields=Yields({"step": r"step (?P<step>\d+)"}),
    ),
    rule("client", "urllib3", r"{prefix}urllib3: .*"),
    rule("kernel-noise", "audit", r"audit \d+", sources=("kernel",)),
)


def run(data: bytes, rules=RULES, keywords=KEYWORDS, limits=LIMITS, chunk: int | None = None) -> list[KeptLine]:
    compressor = Compressor(SOURCE, Filters(rules), Guard(keywords), limits)
    size = chunk or max(1, len(data))
    kept = []
    for start in range(0, len(data), size):
        kept += compressor.feed(data[start : start + size])
    kept += compressor.finish()
    counts = compressor.counts
    assert counts.kept == len(kept)
    assert counts.bytes == len(data)
    return kept


def naive(data: bytes, rules=RULES, keywords=KEYWORDS) -> list[tuple[int, bytes, bool, str | None]]:
    """What a compressor must keep, said as plainly as possible: no templates, no caches, no blocks."""
    ranked = sorted(rules, key=lambda rule: (-max(map(len, rule.keywords)), rule.id))
    patterns = {rule.id: re.compile(expand(rule.pattern)) for rule in ranked}
    out: list[tuple[int, bytes, bool, str | None]] = []
    hold = happened = 0
    shown: dict[tuple[str, bytes], int] = {}
    state: dict[tuple[str, bytes], list[int]] = {}
    held: dict[tuple[str, bytes], tuple[int, bytes, bool, str | None]] = {}

    def flush() -> None:
        out.extend(sorted(held.values()))
        held.clear()

    def judge(number: int, raw: bytes, bar: bool) -> None:
        nonlocal hold, happened
        guarded = any(keyword.encode() in raw for keyword in keywords)
        opens = any(opener.encode() in raw for opener in RECORD_OPENERS)
        hit = next(
            (
                r
                for r in ranked
                if "job" in r.sources
                and len(raw) <= ROUTINE_BYTES
                and any(k.encode() in raw for k in r.keywords)
                and patterns[r.id].fullmatch(raw)
            ),
            None,
        )
        held_open = hold > 0
        if opens:
            hold = RECORD_HOLD_LINES
        elif hold:
            hold = hold - 1 if hit or bar else RECORD_HOLD_LINES
        must = held_open or guarded or opens
        if guarded or opens:
            happened += 1
            flush()
        name = raw[slice(*writer_span(raw, hit.per or "rank"))] if hit else b""
        if hit and hit.yields:
            found = re.search(hit.yields.progress["step"].encode(), raw)
            step = int(found["step"]) if found else -1
            key = (hit.id, name)
            line = (number, raw, guarded, hit.id)
            if key not in state:
                state[key] = [step, 0, 0, happened]
                out.append(line)
                return
            last, seen, gone, before = state[key]
            fell = step < last
            state[key] = [step, seen + 1, gone, before]
            if not (fell or must or before < happened or seen + 1 >= max(PROGRESS_EVERY, gone // sampling._PART)):
                held[key] = line
                return
            earlier = held.pop(key, None)
            if earlier and fell:
                out.append(earlier)
            state[key][1:] = [0, 0 if fell else gone + seen + 1, happened]
            out.append(line)
        elif hit is None or must:
            out.append((number, raw, guarded, "" if bar and hit is None else None))
        elif hit.action == "collapse":
            shown[hit.id, name] = shown.get((hit.id, name), 0) + 1
            if shown[hit.id, name] <= hit.keep_first:
                out.append((number, raw, guarded, None))

    lines = data.replace(b"\0", b"").replace(b"\r\n", b"\n").split(b"\n")
    if not lines[-1]:
        lines.pop()
    for number, line in enumerate(lines, 1):
        segments = [segment for segment in line.split(b"\r") if segment] or [b""]
        pending, run = None, False
        for segment in segments:
            bar = bool(segment) and b"\r" in line and is_bar(segment)
            guarded = any(keyword.encode() in segment for keyword in keywords)
            if bar and not hold and not guarded:
                if run:
                    pending = segment
                else:
                    judge(number, segment, True)
                run = True
                continue
            if pending is not None:
                judge(number, pending, True)
            pending, run = None, False
            judge(number, segment, bar)
        if pending is not None:
            judge(number, pending, True)
    flush()
    return out


def alike(kept: list[tuple[int, bytes, bool, str | None]]) -> list[tuple[int, bytes, bool, str | None]]:
    """The lines, pieces of one line that come one after another in a fixed order: when several are held back, none is."""
    groups = itertools.groupby(kept, key=lambda line: line[0])
    return [line for _, group in groups for line in sorted(group, key=lambda line: (line[1], str(line)))]


def flat(kept: list[KeptLine]) -> list[tuple[int, bytes, bool, str | None]]:
    return [(line.number, line.raw, line.guarded, line.progress) for line in kept]


PIECES = st.sampled_from(
    [
        b"noise %d and so on",
        b"[rank%d]: noise 4",
        b"setup %d",
        b"%d: setup 9",
        b"step %d loss 2.5",
        b"[rank1]: step %d loss 1.25",
        b"urllib%d: GET /",
        b"audit %d",
        b"something else %d",
        b"NVRM: Xid %d",
        b"fp%d overflow",
        b"Traceback (most recent call last):",
        b"noise 5 CUDA error %d",
        b"step 3 loss 0.%d NCCL WARN",
        b" 10%%|#  | %d/100 [00:01<00:09,  9.1it/s]",
        b" 1%%|  | 1/9 [00:01<00:09,  9it/s] CUDA error",
        b"",
        b"\0\0",
    ]
)
LINES = st.builds(
    lambda piece, number, times, end: (piece.replace(b"%d", b"%d" % number).replace(b"%%", b"%") + end) * times,
    PIECES,
    st.integers(0, 79),
    st.sampled_from([1, 1, 1, 2, 70]),
    st.sampled_from([b"\n", b"\n", b"\n", b"\r\n", b"\r", b"\r\r\n"]),
)
LOGS = st.lists(LINES, max_size=20).map(b"".join)


@settings(max_examples=80, deadline=None)
@given(log=LOGS, templates=st.sampled_from([4, 100_000]), chunk=st.sampled_from([1, 3, 4096, 1 << 20]))
def test_keeps_what_the_naive_reader_keeps(log, templates, chunk):
    expected = naive(log)
    assert alike(flat(run(log, limits=Limits(templates=templates), chunk=chunk))) == alike(expected)


def test_pieces_of_one_line_that_are_held_back_all_pass():
    step, other = b"step 0 loss 2.5", b"[rank1]: step 0 loss 1.25"
    log = b"\r".join([step, other, step, other]) + b"\n"
    assert alike(flat(run(log))) == alike(naive(log))


@settings(max_examples=40, deadline=None)
@given(log=LOGS)
def test_guarded_lines_and_record_lines_are_those_of_the_slow_twin(log):
    slow = PassThrough(SOURCE, LIMITS, Guard(KEYWORDS))
    everything = slow.feed(log) + slow.finish()
    kept = {(line.number, line.raw) for line in run(log)}
    assert {(line.number, line.raw) for line in everything if line.guarded} <= kept
    assert {(line.number, line.raw) for line in everything if b"Traceback" in line.raw} <= kept
    assert kept <= {(line.number, line.raw) for line in everything}


@settings(max_examples=40, deadline=None)
@given(data=st.binary(max_size=400), chunk=st.integers(1, 9))
def test_any_bytes_in_any_chunks(data, chunk):
    limits = Limits(line_bytes=16)
    assert run(data, limits=limits, chunk=chunk) == run(data, limits=limits)


def test_a_guard_keyword_beats_a_filter():
    kept = run(b"noise 1\nnoise 2 CUDA error\nnoise 3\n")
    assert flat(kept) == [(2, b"noise 2 CUDA error", True, None)]


def test_a_keyword_with_digits_is_asked_of_each_line():
    kept = run(b"noise 1 Xid 79\nnoise 1 Xid 13\n")
    assert [(line.number, line.guarded) for line in kept] == [(1, True)]


def test_a_filter_keyword_with_digits_is_asked_of_each_line():
    assert [line.raw for line in run(b"urllib3: a\nurllib4: a\n")] == [b"urllib4: a"]


def test_a_rule_speaks_only_for_its_sources():
    assert len(run(b"audit 7\n")) == 1
    compressor = Compressor(LogSource("k", kind="kernel"), Filters(RULES), Guard(()), LIMITS)
    assert compressor.feed(b"audit 7\n") == []
    assert compressor.counts.dropped == 1


def test_progress_first_nth_reset_last_and_last_before_an_error():
    steps = [b"step %d loss 1.0" % number for number in range(1, 121)]
    log = b"\n".join([*steps[:60], b"CUDA error: x", *steps[60:], b"step 5 loss 1.0", b"step 6 loss 1.0"]) + b"\n"
    kept = run(log)
    assert [line.raw for line in kept] == [
        steps[0],
        steps[50],
        steps[59],
        b"CUDA error: x",
        steps[60],
        steps[110],
        steps[119],
        b"step 5 loss 1.0",
        b"step 6 loss 1.0",
    ]
    assert {line.progress for line in kept} == {"steps", None}


def test_what_is_held_back_comes_before_a_guarded_line_in_order():
    log = b"".join(b"[rank%d]: step %d loss 1.0\n" % (rank, step) for step in (1, 2) for rank in range(4))
    kept = run(log + b"CUDA error\n")
    assert [line.number for line in kept] == list(range(1, 10))


def test_collapse_keeps_the_first_of_each_rank():
    log = b"".join(b"[rank%d]: setup %d\n" % (number % 2, number) for number in range(10))
    compressor = Compressor(SOURCE, Filters(RULES), Guard(()), LIMITS)
    assert [line.number for line in compressor.feed(log) + compressor.finish()] == [1, 2, 3, 4]
    assert compressor.counts.collapsed == 6


def test_an_open_record_keeps_everything_until_enough_routine_lines_have_passed():
    opener = b"Traceback (most recent call last):\n"
    log = opener + b"noise 1\n" * 10 + b'  File "x.py"\n' + b"noise 2\n" * (RECORD_HOLD_LINES + 5)
    kept = run(log)
    assert len(kept) == 1 + 10 + 1 + RECORD_HOLD_LINES


def test_bars_collapse_but_a_traceback_between_them_survives():
    bar = b" %d%%|#  | %d/100 [00:01<00:09,  9.1it/s]"
    trace = b'Traceback (most recent call last):\r  File "a.py", line 1\rKeyError: 1\r'
    log = b"".join(bar % (i, i) + b"\r" for i in range(20)) + trace + b"end\n"
    kept = run(log)
    assert [line.raw for line in kept] == [
        bar % (0, 0),  # it shows whether the bar began anew
        bar % (19, 19),
        b"Traceback (most recent call last):",
        b'  File "a.py", line 1',
        b"KeyError: 1",
        b"end",
    ]
    assert {line.number for line in kept} == {1}


def test_a_bar_with_a_message_behind_it_is_kept():
    bar = b" 1%|  | 1/9 [00:01<00:09,  9it/s]"
    kept = run(bar + b"\r" + bar + b" CUDA error\r" + bar + b"\n")
    assert [line.guarded for line in kept] == [False, True, False]


def test_empty_and_nul_lines_are_counted():
    assert [(line.number, line.raw) for line in run(b"a\n\n\0\0\0\nb\r\n")] == [
        (1, b"a"),
        (2, b""),
        (3, b""),
        (4, b"b"),
    ]


def test_memory_of_templates_is_bounded_and_counted():
    compressor = Compressor(SOURCE, Filters(RULES), Guard(()), Limits(templates=4))
    compressor.feed(b"".join(b"line %s\n" % (b"x" * length) for length in range(1, 20)))
    assert compressor.counts.evicted_templates == 16


def test_writers_are_bounded_and_what_they_hold_is_not_lost(monkeypatch):
    monkeypatch.setattr("diagnose.compress.sampling.ProgressSampler.__init__.__defaults__", (2,))
    monkeypatch.setattr("diagnose.compress.sampling.Quota.__init__.__defaults__", (2,))
    log = b"".join(b"[rank%d]: step %d loss 1.0\n" % (rank, step) for rank in range(3) for step in (1, 2))
    log += b"".join(b"[rank%d]: setup 1\n" % rank for rank in range(3))
    assert [line.number for line in run(log)] == [1, 3, 2, 4, 5, 7, 8, 9, 6]


def test_a_step_of_thousands_of_digits_is_no_step():
    log = b"step 1 loss 1.0\nstep %s loss 1.0\n" % (b"9" * 4000)
    assert len(run(log)) == 2


@pytest.mark.parametrize("chunk", [1000, 70_000, 1 << 20])
def test_a_long_line_keeps_head_tail_and_what_the_guard_wants(chunk):
    middle = b"y" * 300_000 + b"CUDA error: here" + b"y" * 200_000
    log = b"noise 1 " + b"x" * 40_000 + middle + b"z" * 40_000 + b"\nnoise 2\n"
    (line,) = run(log, chunk=chunk)
    assert line.truncated
    assert line.guarded
    assert line.raw.startswith(b"noise 1 xxx")
    assert line.raw.endswith(b"zzz")
    assert b"CUDA error: here" in line.raw
    assert len(line.raw) < 64 * 1024 + 4096 + 200
    assert line == run(log)[0]


def test_a_long_line_of_many_hits_stays_bounded():
    (line,) = run((b"CUDA error " + b"-" * 9000) * 300)
    assert line.guarded
    assert len(line.raw) < 64 * 1024 + 16 * 4200
    assert line.raw.count(b"CUDA error") >= 16


def test_a_long_line_without_a_keyword_is_kept_unguarded():
    (line,) = run(b"noise 1 " + b"x" * 100_000)
    assert (line.truncated, line.guarded) == (True, False)


def test_segments_of_an_endless_line_come_out_as_they_end():
    compressor = Compressor(SOURCE, Filters(RULES), Guard(KEYWORDS), LIMITS)
    assert [line.raw for line in compressor.feed(b"one\rCUDA error\rth")] == [b"one", b"CUDA error"]
    assert [line.raw for line in compressor.finish()] == [b"th"]
    assert compressor.counts.lines == 1


def test_a_writer_that_goes_on_and_on_shows_ever_less() -> None:
    kept = run(b"".join(b"3: step %d loss 2.5\n" % step for step in range(200_000)))
    assert len(kept) < 200
    assert [line.number for line in kept][:3] == [1, 51, 101]
    assert kept[-1].number == 200_000
