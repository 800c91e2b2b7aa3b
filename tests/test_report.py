"""Renderings of one report: the JSON contract, one-line JSON, Markdown and text, whatever the log holds."""

from __future__ import annotations

import json
import os
import unicodedata
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

import diagnose
from diagnose.models import Evidence, Report, RootCause, RuleSet
from diagnose.models.report import (
    Alternative,
    AttemptSummary,
    ChainLink,
    Coverage,
    Culprit,
    DecidedBy,
    ExcludedFinding,
    Explanation,
    Finding,
    NodeRecovery,
    Progress,
    Recovery,
    SourceCoverage,
    Stats,
)
from diagnose.report import render, to_json
from diagnose.report.render import FORMATS
from diagnose.report.screen import headline, screen
from tests.commandline import FAILED, FIXTURES, caller
from tests.incidents import Incident, incidents, run

with open(os.path.join(FIXTURES, "report.schema.json"), encoding="utf-8") as _file:
    CONTRACT = Draft202012Validator(json.load(_file))

# A few of each status; every one of them goes through every rendering.
SOME = [*incidents("incidents")[::8], *incidents("healthy")[::5], *incidents("inconclusive")[::4]]

HOSTILE = "\x1b[2J\x1b]0;owned\x07\x1b]8;;http://x\x1b\\link\x9b31m\x08\x7f\r\n\t\u202e\u2028\u200b\x00 `code` |cell| *b* <i> \ud800"


def everything(text: str) -> Report:
    """A report in which every text a log or a name can reach is the given one."""
    evidence = Evidence(
        f"{text}.log", 7, text, "2026-03-02T03:04:05.250000+00:00", 3, text, text, before=(text,), after=(text,)
    )
    finding = Finding(
        "f1", "a-rule", "KeyError", "script", "cause", 0, (evidence,), hosts=frozenset([text]), gpus=frozenset([text])
    )
    return Report(
        status="failed",
        error_type="KeyError",
        category="script",
        attribution="user",
        sureness="possible",
        root_cause=RootCause(text, (evidence,), (text,)),
        alternatives=(Alternative("OutOfMemoryError", text, text, text),),
        chain=(
            ChainLink("KeyError", "cause", 1, evidence, "a-rule", None, (3,)),
            ChainLink("Terminated", "teardown", 2, evidence, None, "KeyError", (1, 2)),
        ),
        culprits=(Culprit("host", text, text, (text + "x",)), Culprit("file", text, text)),
        recovery=Recovery(
            "restart_elsewhere", text, (NodeRecovery(text, "reset_gpu", text, text),), (text,), text, "a-row"
        ),
        progress=Progress(1, 9, "2026-03-02T03:04:05+00:00", text, True, False),
        attempts=(AttemptSummary(0, False, None, 4), AttemptSummary(1, True, "KeyError", 9)),
        coverage=Coverage((SourceCoverage(f"{text}.log", "job", 12),), (text,), 4, 8, 2, 1),
        decided_by=DecidedBy("rules", "a-rule", "1.0.0", "not_needed"),
        stats=Stats(100, 12, 12, 0.25),
        changes=(f"packages: torch 2.4.0 -> {text}",),
        explanation=Explanation(
            (finding,), {"f1": (text,)}, (ExcludedFinding(replace(finding, id="f2"), text),), (text,), (text,)
        ),
    )


def harmless(text: str) -> bool:
    """Whether a terminal shows all of the text and acts on none of it."""
    return all(char.isprintable() or char == "\n" for char in text)


def without_seconds(plain: dict[str, Any]) -> dict[str, Any]:
    stats = {name: value for name, value in plain["stats"].items() if name != "seconds"}
    return {**plain, "stats": stats}


@pytest.mark.parametrize("incident", SOME, ids=lambda incident: incident.name)
def test_reports_of_jobs_keep_the_contract(incident: Incident, rule_set: RuleSet) -> None:
    report = run(incident.folder, incident.expected["inputs"], rule_set)
    plain = json.loads(render(report, "json"))
    CONTRACT.validate(plain)
    assert json.loads(render(report, "jsonl")) == plain == json.loads(json.dumps(to_json(report)))
    for form in FORMATS:
        for verbose in (False, True):
            text = render(report, form, verbose=verbose, explain=verbose)
            assert text.endswith("\n")
            assert not text.endswith("\n\n")
            text.encode("utf-8")
    assert harmless(render(report, "text", verbose=True, explain=True))


@pytest.mark.parametrize("status", ["failed", "no_failure", "inconclusive"])
@pytest.mark.parametrize("format", FORMATS)
def test_every_status_in_every_format(status: Any, format: Any) -> None:
    report = everything("plain")
    if status != "failed":
        report = replace(
            report, status=status, error_type=None, category=None, attribution=None, sureness=None, root_cause=None,
            chain=(), culprits=(), alternatives=(), decided_by=DecidedBy("none"),
        )  # fmt: skip
    text = render(report, format)
    word = {"failed": "FAILED", "no_failure": "NO FAILURE", "inconclusive": "INCONCLUSIVE"}[status]
    assert (f'"{status}"' if format.startswith("json") else word) in text
    if format.startswith("json"):
        CONTRACT.validate(json.loads(text))


def test_failed_without_a_name(rule_set: RuleSet) -> None:
    report = replace(everything("plain"), error_type=None, category=None, attribution="unknown", chain=())
    CONTRACT.validate(json.loads(render(report, "json")))
    assert render(report, "text").startswith("FAILED  cause not found")


@pytest.mark.parametrize("text", ["plain", "", HOSTILE, "\ud800", "\x1b" * 3000, "x" * 5000, "a\nb\nc", "{rank} %s"])
def test_any_text_keeps_the_contract(text: str) -> None:
    report = everything(text)
    for form in FORMATS[1:3]:
        written = render(report, form)
        CONTRACT.validate(json.loads(written))
        written.encode("utf-8")


def test_json_has_exactly_the_fields_of_the_contract() -> None:
    plain = to_json(everything("plain"))
    schema = CONTRACT.schema
    assert isinstance(schema, dict)
    assert set(plain) == set(schema["properties"])
    for name in ("recovery", "progress", "coverage", "stats"):
        part = plain[name]
        assert isinstance(part, dict)
        assert set(part) <= set(schema["properties"][name]["properties"])
    assert plain["alternatives"] == [
        {"error_type": "OutOfMemoryError", "for": "plain", "against": "plain", "test": "plain"}
    ]


def test_a_year_that_no_input_states_is_not_made_up(tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    lines = "Mar 05 04:02:09 gx-1 train: step {0} loss 2.5\nMar 05 04:02:10 gx-1 train: step {1} loss 2.5\n"
    log.write_text(lines.format(1, 2) + "Mar 05 04:02:11 gx-1 train: KeyError: 'x'\n" + FAILED)
    report = diagnose.diagnose(str(log))
    told = json.dumps(to_json(report))
    assert "04:02:1" in render(report, "text")
    for invented in ("2000-", "1999-", "2001-"):
        assert invented not in told
    (tmp_path / "k.dmesg").write_text("[Thu Mar  5 04:01:00 2026] usb 1-1: new device\n")
    dated = to_json(diagnose.diagnose(str(log), kernel_logs=[str(tmp_path / "k.dmesg")]))
    assert "2026-03-05T04:02:10Z" in json.dumps(dated)


def test_jsonl_is_one_line() -> None:
    for text in (HOSTILE, "a\nb\r\n\u2028"):
        written = render(everything(text), "jsonl")
        assert written.count("\n") == 1
        assert written.endswith("}\n")


def test_json_keeps_log_text_as_it_stands() -> None:
    cause = to_json(everything("naïve \x1b[31m 日本 `|`"))["root_cause"]
    assert isinstance(cause, dict)
    assert cause["summary"] == "naïve \x1b[31m 日本 `|`"


# Text


@pytest.mark.parametrize("verbose", [False, True])
@pytest.mark.parametrize("text", [HOSTILE, "\x1b]52;c;ZXZpbA==\x07", "\x9d0;x\x9c", "a\rb\x08c", "\u202egnp.exe"])
def test_log_text_never_drives_the_terminal(text: str, verbose: bool) -> None:
    written = render(everything(text), "text", explain=True, verbose=verbose)
    assert harmless(written)
    written.encode("utf-8")


def test_a_rules_id_never_drives_the_terminal() -> None:
    report = everything("x")
    assert harmless(render(replace(report, decided_by=replace(report.decided_by, rule=HOSTILE)), "text", explain=True))


def test_hostile_log_from_file_to_screen(tmp_path: Path, rule_set: RuleSet) -> None:
    name = "job\x1b[31m.log"
    (tmp_path / name).write_bytes(
        b"\x1b]0;owned\x07\x1b[2J step 1\n" + FAILED.encode().replace(b"'x'", b"'\x1b]8;;http://x\x07\xff\x9b2J\x08'")
    )
    report = run(str(tmp_path), [name], rule_set)
    assert report.error_type == "KeyError"
    for explain in (False, True):
        assert harmless(render(report, "text", explain=explain, verbose=explain))
    assert harmless(render(report, "markdown"))


def test_colour_is_the_only_escape() -> None:
    plain = render(everything(HOSTILE), "text")
    coloured = render(everything(HOSTILE), "text", colour=True)
    for code in ("\x1b[1;31m", "\x1b[2m", "\x1b[1m", "\x1b[0m"):
        coloured = coloured.replace(code, "")
    assert coloured == plain


@pytest.mark.parametrize("width", [1, 60, 80, 100, 132, 250])
@pytest.mark.parametrize("text", ["word " * 200, "x" * 3000, "short"])
def test_width_is_kept(width: int, text: str) -> None:
    report = everything("here")
    assert report.root_cause
    evidence = Evidence("logs/job.log", 123456, text, None, 3, "gx-001")
    report = replace(report, root_cause=RootCause(text, (evidence,)))
    lines = render(report, "text", width=width).splitlines()
    assert max(len(line) for line in lines[1:]) <= max(60, width)


@pytest.mark.parametrize("width", [60, 100])
def test_a_long_place_keeps_the_width(width: int) -> None:
    evidence = Evidence("/".join(["a-long-folder-name"] * 8) + "/job.log", 123456, "text " * 40, None, 3, "gx-001")
    report = replace(everything("here"), root_cause=RootCause("cause", (evidence,)))
    written = render(report, "text", width=width)
    assert "job.log:123456" in written
    assert max(len(line) for line in written.splitlines()[1:]) <= width


def test_verbose_keeps_the_whole_text() -> None:
    text = " ".join(f"word{number}" for number in range(400))
    report = replace(everything("here"), root_cause=RootCause(text, ()))
    assert "word399" not in render(report, "text")
    assert "word399" in render(report, "text", verbose=True)


@pytest.mark.parametrize("text", ["错误：设备丢失" * 40, "x" * 5000, "项目/训练/" * 30, "\u3000"])
def test_rows_fit_whatever_the_characters(text: str) -> None:
    for width in (60, 100):
        lines = render(everything(text), "text", width=width).splitlines()
        wide = [sum(2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in line) for line in lines]
        assert max(wide) <= width + 40  # a place keeps its end


def test_a_long_name_does_not_run_over_the_first_line() -> None:
    report = everything("x")
    named = replace(report, culprits=(replace(report.culprits[0], kind="host", id="y" * 3000),))
    assert len(render(named, "text").split("\n", 1)[0]) <= 100


# Markdown


def test_markdown_escapes_what_would_be_markup() -> None:
    written = render(everything("*a* _b_ [c](d) <img> #e |f| `g` ~h~ \\i"), "markdown")
    prose = [line for line in written.splitlines() if line.startswith("- **Cause")]
    assert prose == ["- **Cause:** \\*a\\* \\_b\\_ \\[c\\](d) \\<img\\> \\#e \\|f\\| \\`g\\` \\~h\\~ \\\\i"]


@pytest.mark.parametrize("word", ["http://evil.example/a", "www.evil.example", "@all", "see:user@host.org", "a/b#12"])
def test_markdown_links_and_calls_nobody(word: str) -> None:
    report = replace(everything("here"), root_cause=RootCause(f"look {word} here", (Evidence("job.log", 1, "x"),)))
    assert f"- **Cause:** look `{word}` here" in render(report, "markdown").splitlines()


def test_markdown_text_opens_no_list() -> None:
    report = replace(everything("here"), root_cause=RootCause("x", (), ("1. first", "- second")))
    written = render(report, "markdown")
    assert "1\\. first" in written
    assert "  - \\- second" in written


@pytest.mark.parametrize("text", ["a`b", "``", "`", "a ``` b", "`start", "end`"])
def test_code_spans_cannot_be_closed_from_inside(text: str) -> None:
    report = replace(everything("here"), root_cause=RootCause("cause", (Evidence("job.log", 1, text),)))
    line = next(line for line in render(report, "markdown").splitlines() if "job.log:1" in line)
    longest = max(len(run) for run in "".join(c if c == "`" else " " for c in text).split())
    fence = "`" * (longest + 1)
    assert line.endswith(f"{fence} {text} {fence}")


@pytest.mark.parametrize("text", [HOSTILE, "a\nb\n# c", "\r\n\r\n", "\x1b[31m", "|", "`" * 600])
def test_markdown_stays_within_its_lines(text: str) -> None:
    plain, hostile = render(everything("x"), "markdown"), render(everything(text), "markdown")
    assert harmless(hostile)
    assert len(hostile.splitlines()) == len(plain.splitlines())
    starts = ("**", "- **", "  - ", "Decided by rule `", "")
    assert all(line.startswith(starts) for line in hostile.splitlines())


# One report for all callers


def test_python_and_command_line_say_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    log, kernel = tmp_path / "job.log", tmp_path / "gx-001.dmesg"
    log.write_text(FAILED)
    kernel.write_text("[   12.000000] usb 1-1: new device\n")
    report = diagnose.diagnose(str(log), kernel_logs=[str(kernel)])
    done = caller(capsys, monkeypatch)(str(log), "--kernel-log", str(kernel), "--format", "json")
    assert without_seconds(json.loads(done.out)) == without_seconds(json.loads(json.dumps(to_json(report))))


def row(report: Report, label: str) -> list[str]:
    """The texts of a row and of those that go on with it."""
    rows = screen(report)
    at = next(index for index, one in enumerate(rows) if one.label == label)
    return [rows[at].text, *[one.text for one in takewhile(lambda one: not one.label, rows[at + 1 :])]]


def test_what_a_list_leaves_out_is_counted() -> None:
    report = everything("x")
    waiting = ChainLink(
        "NCCLTimeoutError", "symptom", 40, report.chain[0].first, None, "a-rule", tuple(range(0, 40, 2))
    )
    culprits = tuple(Culprit("rank", str(rank), "", (f"gx-{rank}",)) for rank in range(1, 40, 2))
    nodes = tuple(NodeRecovery(f"gx-{host}", "inspect", "") for host in range(1, 7))
    attempts = tuple(AttemptSummary(index, index == 8, "KeyError", index) for index in range(9))
    report = replace(
        report,
        chain=(report.chain[0], waiting),
        culprits=culprits,
        recovery=replace(report.recovery, nodes=nodes, from_checkpoint=None),
        attempts=attempts,
    )
    assert headline(report).parts[-1] == "rank 1, 3, 5, 7, 9, 11, 13, 15 and 12 more"
    assert row(report, "Chain")[1] == "20 ranks (0, 2, 4, 6 and 16 more) are victims"
    assert row(report, "Also") == ["rank 1 = gx-1", "rank 3 = gx-3", "rank 5 = gx-5", "rank 7 = gx-7", "and 16 more"]
    assert row(report, "Do job") == ["restart elsewhere without gx-1, gx-2, gx-3, gx-4 and 2 more"]
    assert row(report, "Attempts")[0].startswith("3 earlier; 4: KeyError at step 3; ")


def test_a_class_twice_in_a_row_is_one_step() -> None:
    report = everything("x")
    first = report.chain[0].first
    kinds = (("Terminated", 2, ()), ("Terminated", 1, ()), ("CUDAError", 2, (1, 2)), ("CUDAError", 2, (2, 3)))
    links = [ChainLink(name, "teardown", count, first, None, "a-rule", ranks) for name, count, ranks in kinds]
    report = replace(report, chain=(report.chain[0], *links, links[0]))
    assert row(report, "Chain")[0] == "KeyError -> Terminated x3 -> CUDAError on 3 ranks -> Terminated x2"
