"""What `compress.py` measures of ours, as a process of its own that loads no more than it needs.

    python benchmarks/compressing.py {ours,plain,shipped,re,re2} FILE RULES PROCESSES

Prints how many lines are left. `ours` compresses by so many made rules, with the guard and line numbers; `plain` does
so without `pcre2`; `shipped` by the filters that are shipped, with samples of progress, as `diagnose` does. `re` and
`re2` are loops over lines, by the same made rules as one pattern or one set, and without a guard.
"""

from __future__ import annotations

import sys

FITTING = (
    r"\d+: \[\d{4}-\d\d-\d\d [\d:.]+\] iteration +\d+/ *\d+ \| consumed samples: +\d+ \| elapsed time .*",
    r"\d+: gx-\d+:\d+:\d+ \[\d+\] NCCL INFO Channel .*",
    r"\d+: {5}forward-backward \.+: \([\d.]+, [\d.]+\)",
    r":::MLLOG \{.*weights_initialization.*\}",
)
KEYWORDS = ("iteration ", "NCCL INFO Channel", "forward-backward ...", "weights_initialization")


def patterns(count: int) -> list[tuple[str, str]]:
    """So many rules as keyword and whole-line pattern; those that fit stand among those that do not."""
    made = [(f"event_{number:03}_done", rf"\d+: worker event_{number:03}_done in \d+ ms.*") for number in range(count)]
    for place, fitting in enumerate(zip(KEYWORDS, FITTING, strict=True)):
        made[place * count // len(FITTING)] = fitting
    return made


def ours(path: str, count: int, processes: int) -> int:
    """Compress one file by made rules, or by the shipped ones where `count` is 0."""
    from diagnose import garbage
    from diagnose.compress import Filters, Guard, Listeners, Ranges, Routine
    from diagnose.lines import guard_keywords
    from diagnose.lines.interests import spoken_literals
    from diagnose.lines.steps import STEP_LITERALS
    from diagnose.models import FilterRule, LogSource
    from diagnose.models.rule import FilterExamples
    from diagnose.rules.bundle import load_bundled
    from diagnose.rules.gate import Gate
    from diagnose.settings import Limits
    from diagnose.sources import collect
    from diagnose.spread import Spread

    shipped = load_bundled()
    rules = shipped.filters
    if count:
        rules = tuple(
            FilterRule(
                schema="filter-rule/v1", id=f"r{number}", title="", status="test", description="", author=(),
                created="", tags=(), sources=("job",), keywords=(keyword,), pattern=pattern, action="drop",
                examples=FilterExamples((), ()),
            )
            for number, (keyword, pattern) in enumerate(patterns(count))
        )  # fmt: skip
    filters = Filters(rules)
    guard = Guard((*Gate(shipped.diagnoses).keywords, *guard_keywords()))
    listeners = None if count else Listeners(spoken_literals(), STEP_LITERALS)
    limits = Limits()
    routine = Routine()

    class Stages:
        def compressor(self, source: LogSource, start: int = 0) -> Ranges:
            return Ranges(source, filters, guard, limits, start, listeners=listeners, routine=routine)

        def reading(self, _source: LogSource) -> None:
            """Nothing: lines are only counted."""

    garbage.settle()  # as the command does
    stages = Stages()
    kept = 0
    inputs = collect([path], limits=limits).inputs
    with Spread(inputs, stages, processes) as spread:
        if spread.has(0):
            return sum(len(frame[2][0]) for frame in spread.frames(0) if frame[0] == "kept")
        compressor = stages.compressor(inputs[0].source)
        for block in inputs[0].blocks():
            kept += len(compressor.feed(block))
        return kept + len(compressor.finish())


def by_re(path: str, count: int) -> int:
    """What a loop over lines with one alternation leaves."""
    import re

    routine = re.compile("|".join(f"(?:{pattern})" for _, pattern in patterns(count)).encode()).fullmatch
    with open(path, "rb") as file:
        return sum(1 for line in file if not routine(line[:-1]))


def by_re2(path: str, count: int) -> int:
    """What a loop over lines with one set leaves."""
    import re2

    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    rules = re2.Set.FullMatchSet(options)
    for _, pattern in patterns(count):
        rules.Add(pattern)
    rules.Compile()
    routine = rules.Match
    with open(path, "rb") as file:
        return sum(1 for line in file if not routine(line[:-1]))


def main() -> None:
    """Do as one is told."""
    how, path, count, processes = sys.argv[1:]
    if how == "plain":
        sys.modules["pcre2"] = None  # type: ignore[assignment]  # as if it were not installed
    if how == "re":
        print(by_re(path, int(count)))
    elif how == "re2":
        print(by_re2(path, int(count)))
    else:
        print(ours(path, 0 if how == "shipped" else int(count), int(processes)))


if __name__ == "__main__":
    main()
