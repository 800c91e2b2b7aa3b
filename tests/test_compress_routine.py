"""Routine lines taken out by the block: what is found stays the same, line for line, and the stage really ran."""

from __future__ import annotations

import builtins
import itertools
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diagnose.compress import Compressor, Filters, Guard, Listeners, Ranges, ranges, silence
from diagnose.compress import routine as module
from diagnose.compress.relax import template
from diagnose.compress.routine import DROPPED, OTHER, Fate, Routine
from diagnose.models import CompressionCounts, FilterRule, KeptLine, LogSource, RuleSet
from diagnose.settings import Limits
from tests.test_compress_compressor import KEYWORDS, LOGS, RULES, alike, flat, naive, rule

LISTENERS = Listeners(("spoken",), ("step",))
SOURCE, LIMITS = LogSource("job.log"), Limits()
HAS_PCRE2 = module.installed()
needs_pcre2 = pytest.mark.skipif(not HAS_PCRE2, reason="the extra `fast` is not installed")


class Slow(Routine):
    """Never takes out anything."""

    def __init__(self) -> None:
        super().__init__()
        self.learning = False


def run(
    data: bytes,
    routine: Routine,
    rules: tuple[FilterRule, ...] = RULES,
    chunk: int = 1 << 16,
    keywords: tuple[str, ...] = KEYWORDS,
    limits: Limits = LIMITS,
    listeners: Listeners | None = None,
) -> tuple[list[KeptLine], CompressionCounts]:
    compressor = Compressor(SOURCE, Filters(rules), Guard(keywords), limits, listeners=listeners, routine=routine)
    kept = [line for at in range(0, len(data), chunk) for line in compressor.feed(data[at : at + chunk])]
    kept += compressor.finish()
    return kept, compressor.counts


def cut(routine: Routine, text: bytes) -> list[bytes]:
    """The marks of the lines of a text."""
    marked = routine.marks(text)
    assert marked is not None
    marks, steps = marked
    assert len(marks) == len(steps) == text.count(b"\n")
    return marks


def log(seed: int, lines: int = 3000) -> bytes:
    """Mostly routine lines, whose numbers are of all lengths, between others of every sort."""
    draw = random.Random(seed)
    forms = (
        "{r}: noise {n} of {f:.3f}",
        "noise {n}{p}{f}",
        "{r}: setup {n}",
        "{r}: step {n} loss {f:.2f}",
        "noise {n} CUDA error {n}",
        "noise {n} Xid {x}",
        "noise Xid{p}{x}",
        "urllib{u}: GET {n}",
        "novel {w} {n}",
        "Traceback (most recent call last):",
        '  File "x.py", line {n}',
        "",
        "nul \0 {n}",
        "a\rnoise {n}\r",
        "noise {w}{n}{w}{p}x",
    )
    weights = (40, 30, 5, 15, 0.3, 3, 2, 5, 1, 0.03, 0.3, 1, 0.2, draw.choice((0, 0.1)), 6)
    text = "\n".join(
        draw.choices(forms, weights)[0].format(
            r=draw.randrange(4),
            n=int(10 ** (draw.random() * 5)),
            f=draw.random() * 10 ** draw.randrange(4),
            p=" " * draw.randrange(1, 4),
            x=draw.choice((7, 13, 79, 79, 790)),
            u=draw.choice((2, 3)),
            w=draw.choice("abc"),
        )
        for _ in range(lines)
    )
    return (text + draw.choice(("", "\n", "\r\n"))).encode()


@needs_pcre2
@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("together", [1, 8, 256])
def test_the_same_lines_as_line_by_line(seed: int, together: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_TOGETHER", together)
    data = log(seed)
    for listeners in (None, LISTENERS):
        expected = run(data, Slow(), listeners=listeners)
        for noted, chunk in ((1, 1000), (50, 4096), (100, 9000)):
            routine = Routine(noted)
            assert run(data, routine, chunk=chunk, listeners=listeners) == expected
            assert routine.ready
            assert run(data, routine, chunk=chunk, listeners=listeners) == expected  # all learnt, no warm-up


@needs_pcre2
@pytest.mark.parametrize("listeners", [None, LISTENERS])
def test_among_many_new_templates_it_stays_the_same(
    listeners: Listeners | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What stands for a line taken out is none of the new templates that are learnt together."""
    monkeypatch.setattr(silence, "REPAID", 1)
    words = ("".join(letters) for letters in itertools.product("abcdefghij", repeat=4))
    lines = [f"noise {n} of {n}.5" for n in range(100, 400)]
    for n in range(100, 400):
        lines += [f"novel {next(words)}", f"noise {n} of {n}.5"]
    lines += ["Traceback (most recent call last):", *(f"noise {n} of {n}.5" for n in range(100, 300))]
    data = "".join(f"{line}\n" for line in lines).encode()
    routine = Routine(50)
    assert run(data, routine, chunk=9000, listeners=listeners) == run(data, Slow(), chunk=9000, listeners=listeners)
    assert routine.ready


@needs_pcre2
@settings(max_examples=60, deadline=None)
@given(log=st.lists(LOGS, min_size=1, max_size=4).map(b"".join), chunk=st.sampled_from([3, 100, 1 << 20]))
def test_keeps_what_the_naive_reader_keeps(log: bytes, chunk: int) -> None:
    routine = Routine(1)
    for _ in range(2):
        assert alike(flat(run(log, routine, chunk=chunk)[0])) == alike(naive(log))


@needs_pcre2
@pytest.mark.parametrize("seed", range(4))
def test_ranges_share_what_is_learnt(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranges, "RANGE_BYTES", 9000)
    data = log(seed)
    found = []
    for routine in (Slow(), Routine(1)):
        compressor = Ranges(SOURCE, Filters(RULES), Guard(KEYWORDS), LIMITS, routine=routine)
        kept = [line for at in range(0, len(data), 700) for line in compressor.feed(data[at : at + 700])]
        found.append((kept + compressor.finish(), compressor.counts))
    assert found[0] == found[1]


@needs_pcre2
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("templates", [1, 7, 50])
def test_where_templates_are_forgotten_all_that_may_matter_stays_the_same(seed: int, templates: int) -> None:
    """Lines taken out by the block teach no templates, so that these are forgotten at other places.

    What is not thinned out depends on no memory of templates. What is thinned out for being repeated does: the first
    line of each template passes, and one that was forgotten has a first line again. To keep that equal, lines that are
    taken out would have to be remembered, for which each would have to be looked at.
    """
    data, limits = log(seed), Limits(templates=templates)
    slow, routine = Slow(), Routine(1)
    run(data, routine, chunk=4000)
    assert routine.ready
    assert run(data, routine, limits=limits)[0] == run(data, slow, limits=limits)[0]
    fast_kept, fast = run(data, routine, limits=limits, listeners=LISTENERS)
    slow_kept, counts = run(data, slow, limits=limits, listeners=LISTENERS)
    assert [line for line in fast_kept if line.guarded] == [line for line in slow_kept if line.guarded]
    assert [line for line in fast_kept if line.progress] == [line for line in slow_kept if line.progress]
    assert (fast.lines, fast.bytes) == (counts.lines, counts.bytes)
    assert fast.kept + fast.dropped + fast.collapsed == counts.kept + counts.dropped + counts.collapsed
    apart = {raw for _, raw in {(line.number, line.raw) for line in fast_kept} ^ {(s.number, s.raw) for s in slow_kept}}
    spoken = Listeners((*KEYWORDS, "Traceback", "noise", "setup", "spoken"))
    assert all(spoken.interest(template(raw)) == 0 for raw in apart), "only what nobody speaks of is thinned out"


@needs_pcre2
def test_most_lines_are_taken_out_by_the_block() -> None:
    routine = Routine(100)
    lines = [b"%d: noise %d of %d.5" % (n % 64, n, n * 7) for n in range(1000, 3000)]
    run(b"\n".join(lines) + b"\n", routine)
    marks = cut(routine, b"\n".join([*lines, b"other", b"5: noise 1234 of x"]) + b"\n")
    assert marks.count(DROPPED) > 1900
    assert marks[-2:] == [OTHER, OTHER]


@needs_pcre2
def test_a_guarded_line_is_never_taken_out() -> None:
    """Keywords with digits, and lengths of numbers that no line had before."""
    draw = random.Random(3)
    routine = Routine(1)
    for _ in range(30):
        numbers = [draw.choice((5, 55, 79, 555, 79_000)) for _ in range(200)]
        data = b"".join(b"noise %d Xid %d end\n" % (draw.choice((1, 10)), number) for number in numbers)
        kept, _ = run(data, routine, chunk=draw.choice((500, 5000)))
        guarded = [place for place, number in enumerate(numbers, 1) if str(number).startswith("79")]
        assert [line.number for line in kept if line.guarded] == guarded


@needs_pcre2
def test_a_pattern_holds_only_what_was_judged() -> None:
    asked: set[bytes] = set()

    def judge(each: bytes) -> Fate | None:
        asked.add(each)
        return None if b"0000" in each else Fate()

    routine = Routine(1)
    shapes = [b"a %d%sb %d" % (10**first, b" " * second, 10**third)
              for first in range(3) for second in (1, 3, 4) for third in range(3)]  # fmt: skip
    routine.note([template(each) for each in shapes], judge)
    for first in range(6):
        for second in range(1, 6):
            for third in range(6):
                line = b"a %d%sb %d" % (10**first, b" " * second, 10**third)
                if cut(routine, line + b"\n") == [DROPPED]:
                    assert template(line) in asked
                    assert judge(template(line)) is not None
    assert cut(routine, b"\n".join(shapes) + b"\n") == [DROPPED] * len(shapes)


@needs_pcre2
def test_what_is_only_partly_routine_is_taken_out_as_it_was_seen() -> None:
    routine = Routine(1)
    seen = [b"a 0 b 00", b"a 00 b 0"]
    routine.note(seen, lambda each: Fate() if each in seen else None)
    assert cut(routine, b"a 7 b 42\na 42 b 7\na 4 b 7\na 42 b 42\n") == [DROPPED, DROPPED, OTHER, OTHER]


@needs_pcre2
def test_marks_name_rule_writer_and_step() -> None:
    """Whatever stands around them; where a name or a step ends within a number, the lines are left as they are."""
    fates = {
        b"a0: step 00 of 000": Fate(b"7", (0, 4), (9, 11)),
        b"a0: step 0 of 000": Fate(b"7", (0, 4), (9, 10)),
        b"it 0": Fate(b"8", (0, 0), (3, 4)),
        b"it 00": Fate(b"8", (0, 0), (3, 5)),
        b"it 00 x": Fate(b"9", (3, 4), (0, 0)),
        b"it 00 y": Fate(b"9", (3, 5), (0, 0)),
        b"a0: 00 z": Fate(b"9", (4, 6), (1, 2)),
        b"gone": Fate(),
    }
    routine = Routine(1)
    routine.note(list(fates), fates.get)
    text = b"a3: step 12 of 500\na4: step 9 of 500\nit 5\nit 55\nit 55 x\nit 55 y\na3: 44 z\ngone\nother\n"
    assert routine.marks(text) == (
        [b"7\0a3: ", b"7\0a4: ", b"8\0", b"8\0", OTHER, b"9\x0055", OTHER, DROPPED, OTHER],
        [b"12", b"9", b"5", b"55", b"it 55 x", b"", b"a3: 44 z", b"", b"other"],
    )


@needs_pcre2
def test_bytes_that_mean_something_in_patterns() -> None:
    routine = Routine(1)
    lines = [bytes(range(1, 10)) + bytes(range(11, 48)) + bytes(range(58, 256)), b"\\E(?#[a-z]{2})$^ \\d", b"x|y #c"]
    routine.note(lines, lambda _: Fate())
    for line in lines:
        assert cut(routine, line + b"\n") == [DROPPED]
        assert cut(routine, line[1:] + b"\n" + line + b"x\n") == [OTHER, OTHER]


@needs_pcre2
def test_more_forms_than_a_pattern_holds() -> None:
    routine = Routine(1)
    draw = random.Random(1)
    lines = [bytes(draw.choices(b"abcdef ", k=900)) + b"0" for _ in range(200)]
    routine.note(lines, lambda _: Fate())
    assert routine.ready
    assert cut(routine, b"\n".join(lines) + b"\n").count(DROPPED) > 10


def broken(*_: object, **__: object) -> None:
    raise ValueError


@needs_pcre2
def test_a_limit_of_the_library_turns_it_off_and_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    data = log(5)
    expected = run(data, Slow())
    routine = Routine(1)
    run(data, routine)
    assert routine.ready
    routine._substitute = broken
    assert run(data, routine, chunk=2000) == expected
    assert not routine.ready
    monkeypatch.setattr("pcre2.compile", broken)
    routine = Routine(1)
    assert run(data, routine, chunk=2000) == expected
    assert not routine.learning


def test_without_the_library_all_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = builtins.__import__

    def without(name: str, *more: object) -> object:
        if name.startswith("pcre2"):
            raise ImportError(name)
        return usual(name, *more)

    data = log(6)
    expected = run(data, Slow())
    monkeypatch.setattr(builtins, "__import__", without)
    routine = Routine(1)
    assert run(data, routine) == expected
    assert not routine.ready
    assert not routine.learning


@needs_pcre2
@pytest.mark.parametrize("seed", range(3))
def test_shipped_filters(seed: int, rule_set: RuleSet) -> None:
    """Examples of all shipped filters, with numbers of other lengths, in any order."""
    draw = random.Random(seed)
    examples = [each for known in rule_set.filters for each in known.examples.noise] * 20
    examples += [each for known in rule_set.filters for each in known.examples.signal]
    lines = []
    for _ in range(4000):
        text = draw.choice(examples)
        lines.append("".join(draw.choice(("", each, each * 2)) if each in "3 " else each for each in text))
    data = "\n".join(lines).encode() + b"\n"
    keywords = ("CUDA error", "Xid 79", "nan", "exit code 1")
    expected = run(data, Slow(), rule_set.filters, keywords=keywords)
    routine = Routine(1)
    for chunk in (5000, 1 << 16):
        assert run(data, routine, rule_set.filters, chunk, keywords) == expected
    assert routine.ready


@needs_pcre2
def test_a_form_that_stays_away_makes_room() -> None:
    """What is missed is learnt as well, as long as it is much."""
    routine = Routine(10)
    words = ["".join(random.Random(seed).choices("abcdefgh", k=20)) for seed in range(3)]
    data = b"".join(b"noise %d %s\n" % (n, word.encode()) for word in words for n in range(100, 999))
    run(data, routine, chunk=2000)
    assert cut(routine, b"".join(b"noise 555 %s\n" % word.encode() for word in words)) == [DROPPED] * 3


def test_rules_that_fit_templates_only() -> None:
    rules = (rule("a", "nine", r"nine 9\d*"), *RULES)
    data = b"nine 9\nnine 95\nnine 59\nnine 5\n" * 300
    assert len(run(data, Routine(1), rules, chunk=900)[0]) == 600
