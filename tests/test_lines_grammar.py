"""The bounded collector of a record's lines: as if each line were taken with its number and its mark."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from diagnose.lines.grammar import Lines
from diagnose.models import Line, LogSource

SOURCE = LogSource("job.log", "job")


class Plainly:
    """The slow twin: every line beside its serial number and its mark."""

    def __init__(self, limit: int) -> None:
        self.limit = max(limit, 4)
        self.entries: list[tuple[int, Line, bool]] = []
        self.next = 0

    def add(self, line: Line, *, keep: bool = False) -> None:
        self.entries.append((self.next, line, keep))
        self.next += 1
        if len(self.entries) > 2 * self.limit:
            self.trim()

    def trim(self) -> None:
        head = self.limit // 2
        tail = self.limit - head
        middle = [entry for entry in self.entries[head:-tail] if entry[2]][: self.limit // 4]
        self.entries = self.entries[: head - len(middle)] + middle + self.entries[-tail:]

    def pop_blank_tail(self) -> list[Line]:
        end = len(self.entries)
        while end > 1 and not self.entries[end - 1][1].body.strip() and not self.entries[end - 1][2]:
            end -= 1
        tail = [line for _, line, _ in self.entries[end:]]
        del self.entries[end:]
        return tail

    def finish(self) -> tuple[tuple[Line, ...], dict[int, int]]:
        if len(self.entries) > self.limit:
            self.trim()
        return tuple(line for _, line, _ in self.entries), {entry[0]: at for at, entry in enumerate(self.entries)}


@given(
    st.integers(1, 12),
    st.lists(st.one_of(st.tuples(st.booleans(), st.booleans()), st.integers(0, 30), st.just("pop")), max_size=40),
)
def test_as_if_each_line_were_taken_with_its_number(limit: int, steps: list[tuple[bool, bool] | int | str]) -> None:
    lines, twin = Lines(limit), Plainly(limit)
    for step in steps:
        number = twin.next + 1
        if step == "pop":
            assert lines.pop_blank_tail() == twin.pop_blank_tail()
        elif isinstance(step, int):
            some = [Line(SOURCE, number + place, "x", "x", "job.log") for place in range(step)]
            lines.extend(some)
            for line in some:
                twin.add(line)
        else:
            body = " " if step[0] else "y"
            line = Line(SOURCE, number, body, body, "job.log")
            assert lines.add(line, keep=step[1]) == number - 1
            twin.add(line, keep=step[1])
    assert len(lines) == twin.next
    assert lines.finish() == twin.finish()
