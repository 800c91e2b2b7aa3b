"""The lines worth reading are found within bounds, whatever the log."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from diagnose.agents.excerpt import Excerpt, Gatherer, deciding_text
from diagnose.agents.held import _MOST_LINES, LINE_CHARS, Holder
from diagnose.agents.tools import Request, read
from diagnose.dataclass import replace
from diagnose.models import Evidence, Opinion, Report, RootCause, RuleSet
from diagnose.pipeline import Request as Job
from diagnose.pipeline import Services, diagnose
from tests.made import finding, line


class Listening(Gatherer):
    """A witness that keeps what it was asked about."""

    report: Report | None = None

    def opinion(self, report: Report) -> Opinion:
        self.report = report
        return Opinion()

    def begin(self) -> Listening:
        return self


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory, rule_set: RuleSet) -> Report:
    """A report that decides nothing."""
    log = tmp_path_factory.mktemp("job") / "job.log"
    log.write_text("something\nexit code: 1\n")
    return replace(diagnose(Job([str(log)]), Services(rule_set)), root_cause=None)


def with_(report: Report, **changes: Any) -> Report:
    return replace(report, **changes)


def gathered(lines: dict[str, list[str]], **how: Any) -> Gatherer:
    gatherer = Gatherer(**how)
    for source, texts in lines.items():
        for number, text in enumerate(texts, 1):
            gatherer.observe(line(source, number, text=text))
    return gatherer


def texts(excerpt: Excerpt) -> list[str]:
    return [each.line.text for each in excerpt.lines]


ROUTINE = [f"all is well in unit {name}" for name in ("alpha", "beta", "gamma", "delta") for _ in range(500)]


def test_errors_their_surroundings_and_the_end_are_chosen_first(report: Report) -> None:
    lines = [*ROUTINE[:1_000], "before it", "fatal error: it broke", "after it", *ROUTINE[1_000:], "the last words"]
    chosen = gathered({"a.log": lines}).excerpt(report, 300)
    assert {"fatal error: it broke", "after it", "the last words"} <= set(texts(chosen))
    assert chosen.seen == len(lines)
    assert [each.id for each in chosen.lines] == list(range(1, len(chosen.lines) + 1))
    assert [each.line.number for each in chosen.lines] == sorted(each.line.number for each in chosen.lines)


@pytest.mark.parametrize("tokens", [50, 200, 1_000, 5_000])
def test_the_budget_is_kept(tokens: int, report: Report) -> None:
    lines = [f"error {number} {'x' * (number % 700)}" for number in range(3_000)]
    chosen = gathered({"a.log": lines}).excerpt(report, tokens)
    assert 0 < sum(len(text) for text in texts(chosen)) <= 3 * tokens


def test_what_is_alike_is_told_once_or_twice_with_how_often(report: Report) -> None:
    lines = {f"r{rank}.log": ["start", f"watchdog timeout on rank {rank:03d}"] for rank in range(64)}
    lines["r7.log"].insert(1, "error: rank seven saw something else")
    chosen = gathered(lines).excerpt(report, 400)
    assert "error: rank seven saw something else" in texts(chosen)
    timeouts = [each for each in chosen.lines if "watchdog" in each.line.text]
    assert sum(each.alike for each in timeouts) + len(timeouts) == 64


def test_findings_and_what_surrounds_them_come_first(report: Report) -> None:
    lines = [*ROUTINE[:100], "unit beta glows blue", *ROUTINE[100:300], *["error: noise"] * 50]
    told = with_(
        report,
        explanation=with_(
            report.explanation, findings=(finding("f", evidence=(Evidence("a.log", 101, "unit beta glows blue"),)),)
        ),
    )
    assert "unit beta glows blue" in texts(gathered({"a.log": lines}).excerpt(told, 60))


def test_a_finding_whose_line_is_no_longer_held_is_shown_all_the_same(report: Report) -> None:
    told = with_(report, root_cause=RootCause("x", (Evidence("gone.log", 5, "the line that was let go"),)))
    assert "the line that was let go" in texts(gathered({"a.log": ["a"]}).excerpt(told, 100))


def test_what_good_runs_print_too_gives_way(report: Report) -> None:
    lines = ["error: the usual one 12", "error: a new one"]
    chosen = gathered({"a.log": lines}, healthy=frozenset({"error: the usual one 00"})).excerpt(report, 22)
    assert texts(chosen) == ["error: a new one"]


def test_scheduler_and_kernel_are_heard(report: Report) -> None:
    gatherer = Gatherer()
    for number, text in enumerate([*ROUTINE, *["error: x"] * 20], 1):
        gatherer.observe(line("a.log", number, text=text))
    gatherer.observe(line("sacct.txt", 1, text="4711|OUT_OF_TOWN|1:0", kind="scheduler"))
    gatherer.observe(line("k.log", 1, text="kernel: card 3 failed", kind="kernel"))
    chosen = texts(gatherer.excerpt(report, 120))
    assert "4711|OUT_OF_TOWN|1:0" in chosen
    assert "kernel: card 3 failed" in chosen


@pytest.mark.parametrize("sources, each", [(1, 200_000), (40, 5_000), (5_000, 20), (20_000, 4)])
def test_what_is_held_is_bounded(sources: int, each: int) -> None:
    holder = Holder()
    for source in range(sources):
        for number in range(each):
            text = f"error {'abcdefghij'[number % 10]}" if number % 3 == 0 else f"fine {number}"
            holder.observe(line(f"r{source}.log", number + 1, text=text))
    held = list(holder)
    assert len(held) <= max(_MOST_LINES, 3 * sources) * 1.1
    assert holder.seen == sources * each
    assert any(one.line.text.startswith("error") for one in held)
    assert held[-1].line.source.name == f"r{sources - 1}.log"


def test_long_lines_are_cut_and_still_end_as_they_end() -> None:
    holder = Holder()
    holder.observe(line(text="a" * 60_000 + " the end"))
    (held,) = holder
    assert len(held.line.text) <= LINE_CHARS
    assert held.line.text.endswith("the end")


def test_tools_read_what_is_held_and_no_more(report: Report) -> None:
    lines = [f"unit {number} reports" for number in range(3_000)]
    lines[1_500] = "error: unit lost"
    lines[1_510] = "a rare word"
    gatherer = gathered({"a.log": lines})
    chosen = gatherer.excerpt(report, 100).lines
    number = next(each.id for each in chosen if each.line.text == "error: unit lost")
    found = read([Request("grep", "RARE|unheard of"), Request("window", line=number)], chosen, gatherer.holder)
    assert found[0].line.text == "a rare word"
    assert [each.id for each in found] == list(range(len(chosen) + 1, len(chosen) + 1 + len(found)))
    assert len(found) <= 30
    assert (
        read([Request("window", line=10**9), Request("grep", "|||"), Request("grep", "")], chosen, gatherer.holder)
        == ()
    )
    assert len(read([Request("grep", "unit")] * 100, chosen, gatherer.holder)) <= 48


def test_an_incident_is_remembered_by_what_decided(report: Report) -> None:
    told = with_(report, root_cause=RootCause("x", (Evidence("a.log", 2, "it broke", before=("just before",)),)))
    text = deciding_text(told, gathered({"a.log": ["start", "it broke", "error: late"]}).excerpt(told, 500))
    assert text.splitlines()[:2] == ["just before", "it broke"]
    assert "error: late" in text
    assert len(deciding_text(told, gathered({"a.log": ["error " + "x" * 900] * 900}).excerpt(told, 10**6))) <= 6_000


def test_a_run_hands_its_lines_on(tmp_path: Path, rule_set: RuleSet) -> None:
    (tmp_path / "job.log").write_text("2027-03-01 10:00:00 step 3\nthe frobnicator broke\nexit code: 1\n")
    listening = Listening()
    diagnose(Job([str(tmp_path / "job.log")]), Services(rule_set, second_opinion=listening))
    assert listening.report is not None
    assert "the frobnicator broke" in texts(listening.excerpt(listening.report, 500))


def test_steps_after_the_last_alarm_show_that_work_goes_on() -> None:
    holder = Holder()
    holder.observe(line(text="step 1", number=1, progress="steps"))
    assert holder.went_on
    holder.observe(line(text="error: it broke", number=2))
    assert not holder.went_on
    holder.observe(line(text="step 2 nan iterations: 0", number=3, progress="steps"))
    assert holder.went_on
    holder.observe(line("other.log", text="fatal", number=1))
    assert not holder.went_on
    assert not Holder().went_on
