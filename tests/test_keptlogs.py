"""A report from kept logs is the report from the logs themselves: over all bundled logs, in parts, and when damaged."""

from __future__ import annotations

import gzip
import io
import random
import shutil
import sys
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest

from diagnose import feeding, spread
from diagnose.cli.main import main
from diagnose.compress import Filters, Guard, Listeners, Ranges, keptlog, ranges
from diagnose.errors import SourceError
from diagnose.keeping import Keeping
from diagnose.lines import order
from diagnose.models import FilterRule, LogSource, Report, RuleSet
from diagnose.models.rule import FilterExamples, Yields
from diagnose.pipeline import Request, Services, diagnose
from diagnose.settings import Limits
from diagnose.sources import kept, streams
from tests.incidents import incidents, inside, run
from tests.keeping import keep_all, kept_log

HEAD = 1500
FAILURE = "Traceback (most recent call last):\n  File \"/w/train.py\", line 3, in f\n    x\nKeyError: 'role'\n"


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """All heads and ranges are short, so that short logs go through all of it."""
    for module in (sys.modules["diagnose.sources.collect"], streams, spread, feeding):
        monkeypatch.setattr(module, "HEAD_BYTES", HEAD)
    monkeypatch.setattr(streams.read_head, "__defaults__", (HEAD,))
    for module in (kept, keptlog):
        monkeypatch.setattr(module, "KEPT_HEAD_BYTES", HEAD)
    monkeypatch.setattr(sys.modules["diagnose.sources.collect"], "KEPT_LOOKED_BYTES", HEAD + 4096)
    monkeypatch.setattr(feeding, "_YEAR_BYTES", HEAD)
    monkeypatch.setattr(order, "_LOOKED_BYTES", HEAD)
    for module in (spread, ranges):
        monkeypatch.setattr(module, "RANGE_BYTES", 4000)


@pytest.fixture(scope="module")
def keeper(rule_set: RuleSet) -> Keeping:
    return Keeping(rule_set)


def timeless(report: Report) -> Report:
    return replace(report, stats=replace(report.stats, seconds=0.0))


def steps(count: int) -> str:
    return "".join(f"2026-03-01 10:00:{step % 60:02} iteration {step}/ 99999 | loss 2.5\n" for step in range(count))


def report_of(folder: Path, rule_set: RuleSet, *paths: str) -> Report:
    with inside(str(folder)):
        return timeless(diagnose(Request(list(paths) or ["job.log"]), Services(rule_set)))


@pytest.mark.parametrize("part", range(4))
def test_bundled_logs_give_the_same_reports(part: int, rule_set: RuleSet, keeper: Keeping, tmp_path: Path) -> None:
    with_records = 0
    for incident in incidents()[part::4]:
        folder = tmp_path / incident.name
        shutil.copytree(incident.folder, folder)
        raw = timeless(run(str(folder), incident.expected["inputs"], rule_set))
        with_records += keep_all(folder, keeper, incident.expected["inputs"])
        again = timeless(run(str(folder), incident.expected["inputs"], rule_set))
        assert again == raw, incident.name
    assert with_records > 20


def test_the_same_bytes_however_the_log_is_cut_and_after_any_restart(keeper: Keeping) -> None:
    log = (steps(300) + "some new line\n" * 50 + "x" * 5000 + "\n" + steps(40) + FAILURE).encode()
    whole = kept_log(keeper, "job.log", log, len(log))
    assert whole is not None
    for block in (1, 7, 333, 4001):
        assert kept_log(keeper, "job.log", log, block) == whole
    for place in (0, 900, HEAD, 4100, 12_000, len(log)):  # what a writer has given at any time is a beginning of it
        assert whole.startswith(keeper.writer("job.log").feed(log[:place]))

    # In ranges, each by somebody who knows of those before but how many lines they have.
    parts = [log]
    while len(parts[-1]) + (start := sum(map(len, parts[:-1]))) > (border := ranges.next_border(start)):
        end = parts[-1].find(b"\n", border - start) + 1
        if not end or end == len(parts[-1]):
            break
        parts[-1:] = [parts[-1][:end], parts[-1][end:]]
    assert len(parts) > 4
    begun = whole[: whole.index(b"kept as=job\n") + len(b"kept as=job\n")]
    start = lines = 0
    for part in parts:
        begun += b"".join(keptlog.range_records([part], keeper.compressor("job", start), lines))
        start, lines = start + len(part), lines + part.count(b"\n")
    assert begun + keptlog.END == whole


def test_what_is_packed_or_comes_by_a_pipe_is_recognised(
    tmp_path: Path,
    rule_set: RuleSet,
    keeper: Keeping,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    log = (steps(300) + FAILURE).encode()
    (tmp_path / "job.log").write_bytes(log)
    raw = report_of(tmp_path, rule_set)
    assert raw.root_cause is not None
    whole = kept_log(keeper, "job.log", log)
    assert whole is not None
    (tmp_path / "job.log").unlink()
    (tmp_path / "sent.gz").write_bytes(gzip.compress(whole))
    packed = report_of(tmp_path, rule_set, "sent.gz")
    assert packed.coverage == raw.coverage  # the very same source, by the name it had
    assert packed.root_cause == raw.root_cause
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(whole)))
    assert main(["-", "--format", "json", "--no-llm"]) == 0
    assert '"job.log"' in capsys.readouterr().out


@pytest.mark.parametrize("size", [0, 1, HEAD - 1])
def test_a_log_shorter_than_its_head_is_itself_behind_a_line(
    size: int, tmp_path: Path, rule_set: RuleSet, keeper: Keeping
) -> None:
    log = (FAILURE + steps(300)).encode()[:size]
    (tmp_path / "job.log").write_bytes(log)
    raw = report_of(tmp_path, rule_set)
    whole = kept_log(keeper, "job.log", log)
    assert whole is not None
    assert whole.endswith(log)
    (tmp_path / "job.log").write_bytes(whole)
    assert report_of(tmp_path, rule_set) == raw


def test_what_must_be_read_as_a_whole_has_no_kept_log(keeper: Keeping) -> None:
    lines = steps(60).splitlines(keepends=True)
    assert kept_log(keeper, "job.log", "".join(reversed(lines)).encode()) is None
    assert kept_log(keeper, "job.log", "".join(lines).encode("utf-16")) is None
    assert kept_log(keeper, "job.log", b"\xef\xbb\xbf" + "".join(lines).encode()) is None
    assert kept_log(keeper, "job.log", b"\x7fELF" + bytes(9000)) is None


def damaged(tmp_path: Path, rule_set: RuleSet, data: bytes) -> list[str]:
    (tmp_path / "job.log").write_bytes(data)
    report = report_of(tmp_path, rule_set)
    assert all("\n" not in said for said in report.coverage.not_read)
    return list(report.coverage.not_read)


def test_damage_is_told_in_a_line_and_what_stands_before_is_used(
    tmp_path: Path, rule_set: RuleSet, keeper: Keeping
) -> None:
    whole = kept_log(keeper, "job.log", (steps(300) + FAILURE + steps(100)).encode())
    assert whole is not None
    end = len(b".\n")
    broken = "without its end: it broke off behind line"
    assert broken in damaged(tmp_path, rule_set, whole[:-end])[0]
    at = whole.index(b"KeyError") + 3
    said = damaged(tmp_path, rule_set, whole[:at])
    assert broken in said[0]
    records = whole.index(b"kept as=job\n") + len(b"kept as=job\n")
    for forged in (
        whole[:records] + b"what is this\n" + whole[records:],
        whole[:records] + b"99999999999999999999 x\n" + whole[records:],
        whole[:records] + b"-5 x\n" + whole[records:],
        whole[:records] + b"9999999999999 x\n" + whole[records:],
        whole[:records] + b"1tg x\n" + whole[records:],
        whole[:records] + b"1 one more line than was counted\n" + whole[records:],
        whole[:records] + b"1 " + b"x" * 3_000_000 + b"\n" + whole[records:],
        whole[:records] + b"1 a\rb\n" + whole[records:],
        whole[:records] + b"1 a\0b\n" + whole[records:],
        whole[:records] + b"# 1 2 3\n" + whole[records:],
        whole[:records] + b"# 9999999999999999 9999999999999999 0 0 0 0 0\n" + whole[records:],
        whole[:records] + b"# 1 0 0 0 0 0 0\n" * 3 + b"1 a\n# 9 0 1 0 0 0 0\n" + whole[records:],
        whole[:records] + b"5 a\n# 9 3 1 0 0 0 0\n" + whole[records:],
        whole[:records] + b"1 a\n2 b\n# 9 3 2 0 0 0 0\n-1 again\n# 9 3 1 0 0 0 0\n" + whole[records:],
        whole[:records] + b"# 0 0 0 9999999999999999 0 0 0\n" + whole[records:],
        whole[:records] + b"# 9999999999999999 0 0 0 0 0 0\n" + whole[records:],
        whole + b"1 behind the end\n",
        whole + b".\n",
    ):
        assert "the kept log is damaged at its record" in damaged(tmp_path, rule_set, forged)[0]


def test_no_damage_ends_a_run(tmp_path: Path, rule_set: RuleSet, keeper: Keeping) -> None:
    whole = kept_log(keeper, "job.log", (steps(200) + FAILURE).encode())
    assert whole is not None
    chance = random.Random(7)
    records = whole.index(b"kept as=")
    said: list[str] = []
    for _ in range(40):
        data = bytearray(whole)
        for _ in range(chance.randrange(1, 4)):
            place = chance.randrange(records, len(data)) if chance.random() < 0.8 else chance.randrange(80)
            data[place : place + chance.randrange(3)] = chance.randbytes(chance.randrange(4))
        (tmp_path / "job.log").write_bytes(data)
        try:
            report_of(tmp_path, rule_set)
        except SourceError as error:
            said.append(str(error))
    assert all("ive the log itself" in error or "update diagnose" in error or "not read" in error for error in said)


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (b"diagnose-kept/1", b"diagnose-kept/7", "of version 7, and this diagnose reads version 1"),
        (b"guard=", b"guard=..", "first line is damaged"),
        (b"name=job.log", b"name=..", "first line is damaged"),
        (b"name=job.log", b"name=%2Fetc%2Fpasswd", "first line is damaged"),
        (b"name=job.log", b"name=" + b"a" * 3000, "first line is damaged"),
        (b"kept as=job", b"kept as=god", "does not say what kind"),
    ],
)
def test_a_first_line_that_is_none_is_told(
    old: bytes, new: bytes, told: str, tmp_path: Path, rule_set: RuleSet, keeper: Keeping
) -> None:
    whole = kept_log(keeper, "job.log", steps(300).encode())
    assert whole is not None
    assert old in whole
    (tmp_path / "job.log").write_bytes(whole.replace(old, new, 1))
    with pytest.raises(SourceError, match=told):
        report_of(tmp_path, rule_set)


def test_lines_chosen_by_other_rules_are_told(tmp_path: Path, rule_set: RuleSet, keeper: Keeping) -> None:
    whole = kept_log(keeper, "job.log", (steps(300) + FAILURE).encode())
    assert whole is not None
    assert damaged(tmp_path, rule_set, whole) == []
    other = damaged(tmp_path, rule_set, whole.replace(keeper.guard.encode(), b"0" * 32))
    assert "by other rules than these" in other[0]
    assert "by other rules than these" in damaged(tmp_path, rule_set, whole.replace(b"as=job", b"as=kernel"))[0]
    fewer = Keeping(replace(rule_set, filters=rule_set.filters[1:]))
    assert fewer.guard != keeper.guard
    assert Keeping(replace(rule_set, diagnoses=rule_set.diagnoses[5:])).guard != keeper.guard


def test_two_inputs_are_never_called_alike(tmp_path: Path, rule_set: RuleSet, keeper: Keeping) -> None:
    """A kept log says what it is called, and may say what it likes: one that stands beside the log itself is another."""
    (tmp_path / "job.log").write_text(steps(5))
    whole = kept_log(keeper, "job.log", steps(300).encode())
    assert whole is not None
    (tmp_path / "other").write_bytes(whole)
    (tmp_path / "third").write_bytes(whole)
    report = report_of(tmp_path, rule_set, "job.log", "other", "third")
    assert sorted(source.source for source in report.coverage.sources) == ["job.log", "other", "third"]


def test_the_constant_grows_when_other_lines_are_kept() -> None:
    """Where this fails, the compressor keeps other lines than before: COMPRESSION must grow, and the digest be renewed."""
    progress = rule("t.steps", "iteration", r"{prefix}iteration \d+/ \d+.*", step=r"iteration (?P<step>\d+)")
    rules = (progress, rule("t.drop", "heartbeat", r"heartbeat \d+"))
    guard = Guard(("Error", "fail"))
    compressor = Ranges(LogSource("x"), Filters(rules), guard, Limits(), listeners=Listeners())
    text = ""
    for part in range(12):
        text += steps(90) + "heartbeat 7\n" * 20 + "loading shard 5 of 9\n" * 120
        text += f"bar {part}%|#| 3/9 [00:01]\rbar {part}%|##| 4/9 [00:02]\n" + (FAILURE if part % 4 == 3 else "")
    records = b"".join(keptlog.range_records([text.encode(), b"y" * 100_000 + b" fail\n"], compressor, 0))
    assert (keptlog.COMPRESSION, sha256(records).hexdigest()[:16]) == (2, "fb239839c72f944a")


def rule(id: str, keyword: str, pattern: str, step: str | None = None) -> FilterRule:
    return FilterRule(
        "filter-rule/v1", id, id, "stable", "", ("t",), "2026-01-01", (), ("job",), (keyword,), pattern,
        "collapse" if step else "drop", FilterExamples((), ()), yields=Yields({"step": step}) if step else None,
    )  # fmt: skip
