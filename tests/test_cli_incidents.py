"""The memory on the command line: recording, listing, correcting, exchanging, emptying, and every refusal in words."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.commandline import Call, caller
from tests.stores import KEY_ERROR

STEPS = "".join(f"2026-10-01 00:0{i}:00 INFO step {i} loss 2.0\n" for i in range(5))


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Call:
    monkeypatch.setenv("DIAGNOSE_DATABASE", str(tmp_path / "memory.sqlite3"))
    monkeypatch.setenv("USER", "ada")
    return caller(capsys, monkeypatch)


@pytest.fixture
def log(tmp_path: Path) -> str:
    path = tmp_path / "job.log"
    path.write_text(STEPS + KEY_ERROR)
    return str(path)


def recorded(call: Call, log: str) -> str:
    done = call(log, "--record", "--name", "pretrain", "--job-id", "4711")
    found = re.fullmatch(r"diagnose: recorded as incident (i[0-9a-f]{12})\n", done.err)
    assert found, done.err
    return found[1]


def test_a_run_is_recorded_listed_shown_and_confirmed(call: Call, log: str) -> None:
    name = recorded(call, log)
    listed = call("incidents", "list")
    assert listed.code == 0
    head, row = listed.out.splitlines()
    assert head.startswith("incident       when (UTC)        error type  decided")
    assert row.startswith(f"{name}  2026-10-01 00:04  KeyError    rules    -        pretrain  KeyError: 'role'")
    shown = call("incidents", "show", name)
    assert "not confirmed" in shown.out
    assert "KeyError: 'role'" in shown.out
    assert "4711 pretrain" in shown.out
    done = call("incidents", "confirm", name, "--recovered", "yes", "--note", "mended")
    assert done.out == f"{name}: KeyError, confirmed, recovered\n"
    shown = call("incidents", "show", name)
    assert "it worked" in shown.out
    assert "ada confirm mended" in shown.out


def test_a_list_says_where_it_was_cut_short(call: Call, log: str) -> None:
    for name in ("one", "two"):
        assert call("incidents", "add", log, "--error-type", "KeyError", "--id", name).code == 0
    cut = call("incidents", "list", "--limit", "1")
    assert (cut.code, cut.out.count("\n")) == (0, 2)
    assert cut.err == "the newest 1; there are more: --limit N shows N\n"
    assert not call("incidents", "list", "--limit", "2").err


def test_a_correction_names_a_type_of_the_taxonomy(call: Call, log: str) -> None:
    name = recorded(call, log)
    wrong = call("incidents", "correct", name, "--error-type", "DiskFul")
    assert wrong.code == 2
    assert "did you mean DiskFull" in wrong.err
    done = call(
        "incidents", "correct", name, "--error-type", "DiskFull", "--summary", "scratch of ada@example.org full"
    )
    assert done.out == f"{name}: DiskFull, confirmed, outcome not known\n"
    shown = json.loads(call("incidents", "show", name, "--format", "json").out)
    assert (shown["error_type"], shown["attribution"], shown["confirmed"]) == ("DiskFull", "infrastructure", True)
    assert "ada@example.org" not in shown["summary"]


def test_nothing_is_opened_without_need(call: Call, log: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DIAGNOSE_DATABASE")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    call(log)
    assert not os.path.exists(tmp_path / "data")
    call(log, "--record")
    assert os.path.exists(tmp_path / "data" / "diagnose" / "memory.sqlite3")


def test_with_a_database_set_history_is_told_and_nothing_recorded(call: Call, log: str) -> None:
    recorded(call, log)
    other = Path(log).with_name("other.log")
    other.write_text((STEPS + KEY_ERROR).replace("10-01", "10-02"))
    for _ in range(2):
        done = call(str(other), "--name", "pretrain")
        assert "this workload failed alike once before" in done.out
        assert done.err == ""
    assert len(call("incidents", "list").out.splitlines()) == 2


def test_recording_by_setting_says_nothing(call: Call, log: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DIAGNOSE_RECORD", "1")
    assert call(log).err == ""
    assert len(call("incidents", "list").out.splitlines()) == 2


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("DIAGNOSE_RECORD", "perhaps", "DIAGNOSE_RECORD must be 1 or 0"),
        ("DIAGNOSE_NODES", "many", "DIAGNOSE_NODES must be a whole number"),
        ("DIAGNOSE_KEEP_DAYS", "-1", "DIAGNOSE_KEEP_DAYS must be a whole number"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(
    call: Call, log: str, monkeypatch: pytest.MonkeyPatch, name: str, value: str, said: str
) -> None:
    monkeypatch.setenv(name, value)
    done = call(log)
    assert done.code == 2
    assert said in done.err


def test_a_memory_that_cannot_be_had_costs_no_report(call: Call, log: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DIAGNOSE_DATABASE", log)
    done = call(log, "--record")
    assert done.code == 0
    assert done.out.startswith("FAILED")
    assert re.fullmatch(r"diagnose: not recorded: the memory .* is a file of another kind; .*\n", done.err)
    assert call("incidents", "list").code == 2
    monkeypatch.setenv("DIAGNOSE_DATABASE", "postgresql://u:geheim@127.0.0.1:1/d")
    done = call(log)
    assert done.out.startswith("FAILED")
    assert "geheim" not in done.err


def test_a_log_whose_cause_is_known_is_added(call: Call, log: str) -> None:
    added = call("incidents", "add", log, "--error-type", "DiskFull", "--id", "my-case", "--recovered", "no")
    assert added.out == "my-case\n"
    shown = json.loads(call("incidents", "show", "my-case", "--format", "json").out)
    assert (shown["error_type"], shown["decided_by"], shown["recovered"]) == ("DiskFull", "person", False)
    assert "KeyError" in shown["text"]
    assert call("incidents", "add", log, "--error-type", "Gone").code == 2
    assert call("incidents", "add", "no-such.log", "--error-type", "DiskFull").code == 2


@pytest.fixture
def cases(tmp_path: Path) -> Path:
    root = tmp_path / "cases"
    (root / "c2").mkdir(parents=True)
    (root / "c1.log").write_text(STEPS + KEY_ERROR)
    (root / "c1.yaml").write_text("id: c1\nerror_type: KeyError\nattribution: user\nroot_cause: no role in gx-043\n")
    (root / "c2" / "job.log").write_text(STEPS.replace("10-01", "10-02") + KEY_ERROR)
    (root / "c2" / "case.yaml").write_text("error_type: DiskFull\ninputs: [job.log]\nrecovery: {job: [restart]}\n")
    (root / "h.log").write_text(STEPS + "exit code: 0\n")
    (root / "h.yaml").write_text("error_type: null\n")
    return root


def test_cases_are_imported_once(call: Call, cases: Path) -> None:
    first = call("incidents", "import", str(cases))
    assert first.out == "added 2 incidents, 0 were there already, 1 hold no failure\n"
    assert call("incidents", "import", str(cases)).out == "added 0 incidents, 2 were there already, 1 hold no failure\n"
    lines = [json.loads(line) for line in call("incidents", "list", "--format", "jsonl").out.splitlines()]
    by_id = {line["id"]: line for line in lines}
    assert by_id["c1"]["summary"] == "no role in gx-043" or "<host" in by_id["c1"]["summary"]
    assert (by_id["c2"]["error_type"], by_id["c2"]["job"], by_id["c2"]["confirmed"]) == ("DiskFull", "restart", True)
    (cases / "c1.yaml").write_text("id: c1\nerror_type: ValueError\n")
    assert call("incidents", "import", str(cases)).out.startswith("added 1 incident, 1 were there")
    assert len(call("incidents", "list").out.splitlines()) == 3


def test_an_error_type_that_a_case_accepts_is_right(call: Call, tmp_path: Path) -> None:
    """A case may have several right answers: a rule that gives another than the first is confirmed by it."""
    folder = tmp_path / "accepting"
    folder.mkdir()
    said = "RuntimeError: NCCL error: unhandled system error (run with NCCL_DEBUG=INFO for details)\n"
    (folder / "n1.log").write_text(STEPS + said)
    (folder / "n1.yaml").write_text("error_type: ECCError\n")
    assert call("incidents", "import", str(folder)).code == 0
    given = json.loads(call(str(folder / "n1.log"), "--format", "json").out)
    assert given["decided_by"]["rule"]
    (folder / "n1.yaml").write_text(f"error_type: ECCError\naccept: [ECCError, {given['error_type']}, NoSuchType, 7]\n")
    assert call("incidents", "import", str(folder)).out.startswith("added 1 incident")
    shown = json.loads(call("incidents", "show", "n1", "--format", "json").out)
    assert (shown["error_type"], shown["accepted"]) == ("ECCError", [given["error_type"]])
    assert (shown["decided_by"], shown["rule"]) == ("rules", given["decided_by"]["rule"])
    exported = call("incidents", "export").out
    assert json.loads(exported)["accepted"] == [given["error_type"]]
    assert f"Or       {given['error_type']}" in call("incidents", "show", "n1").out
    row = next(
        row for row in call("rules", "stats").out.splitlines() if row.startswith(given["decided_by"]["rule"] + " ")
    )
    assert re.search(r" 1 +1 +1 +0 ", row), row  # hits, decided, confirmed, refuted


@pytest.mark.parametrize(
    ("label", "said"),
    [
        ("error_type: KeyError\ninputs: [../secret.log]\n", "lies outside its folder"),
        ("error_type: KeyError\ninputs: [/etc/passwd]\n", "lies outside its folder"),
        ("error_type: KeyError\ninputs: [--output, x]\n", "is no file"),
        ("error_type: KeyError\ninputs: [none.log]\n", "does not exist"),
        ("error_type: KeyError\ninputs: {a: b}\n", "names no inputs"),
        ("error_type: KeyError\nid: '../../x'\n", "is no name for an incident"),
        ("error_type: [unclosed\n", "not readable"),
        ("error_type: KeyError\nx: &a [1]\ny: [" + "*a, " * 99 + "*a]\n", "too many aliases"),
        ("error_type: KeyError\nx: " + "[" * 9_000 + "\n", "not readable"),
        ("error_type: Gone\n", "is none of the taxonomy's"),
    ],
)
def test_cases_that_cannot_be_used_are_told(call: Call, cases: Path, label: str, said: str) -> None:
    (cases.parent / "secret.log").write_text("secret")
    (cases / "bad.log").write_text(STEPS)
    (cases / "bad.yaml").write_text(label)
    done = call("incidents", "import", str(cases))
    assert done.out.startswith("added 2 incidents")
    assert said in done.err


def test_a_link_that_leads_out_of_a_case_is_not_followed(call: Call, cases: Path) -> None:
    (cases.parent / "secret.log").write_text("secret")
    (cases / "bad.log").symlink_to(cases.parent / "secret.log")
    (cases / "bad.yaml").write_text("error_type: KeyError\n")
    assert "lies outside its folder" in call("incidents", "import", str(cases)).err


def test_what_is_exported_is_imported_elsewhere(
    call: Call, cases: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    call("incidents", "import", str(cases))
    text = call("incidents", "export").out
    file = tmp_path / "incidents.jsonl"
    assert call("incidents", "export", "--output", str(file)).out == "2 incidents\n"
    assert file.read_text() == text
    monkeypatch.setenv("DIAGNOSE_DATABASE", str(tmp_path / "other.sqlite3"))
    assert call("incidents", "import", str(file)).out.startswith("added 2 incidents")
    assert call("incidents", "import", str(file)).out == "added 0 incidents, changed 0, 2 were there already\n"

    def plain(lines: str) -> list[dict[str, object]]:
        return [json.loads(line) | {"revision": 0} for line in lines.splitlines()]

    assert plain(call("incidents", "export").out) == plain(text)


@pytest.mark.parametrize(
    "line",
    [
        "no json",
        "[1]",
        "{}",
        '{"schema": "diagnose.incident/v1"}',
        '{"schema": "diagnose.incident/v1", "id": "a", "status": "gone", "decided_by": "rules"}',
        '{"schema": "diagnose.incident/v1", "id": "a", "status": "failed", "decided_by": "rules", "text": 3}',
        '{"schema": "diagnose.incident/v1", "id": "a", "status": "failed", "decided_by": "rules", "context": [1]}',
        '{"schema": "diagnose.incident/v1", "id": "a", "status": "failed", "decided_by": "rules", "nodes": [[]]}',
        "[" * 100_000,
    ],
)
def test_lines_that_are_no_incidents_are_refused(call: Call, tmp_path: Path, line: str) -> None:
    file = tmp_path / "bad.jsonl"
    file.write_text(line + "\n")
    done = call("incidents", "import", str(file))
    assert done.code == 2
    assert done.err.startswith("diagnose: line 1: ")
    assert call("incidents", "list").code == 1


def test_deleting_and_pruning(call: Call, log: str, cases: Path) -> None:
    call("incidents", "import", str(cases))
    name = recorded(call, log)
    assert call("incidents", "prune", "--older-than", "0").out.startswith("deleted 1 incident")
    assert call("incidents", "show", name).code == 2
    assert call("incidents", "delete", "c1", "nothing").code == 1
    assert call("incidents", "show", "c1").code == 2
    assert call("incidents", "prune", "--older-than", "0", "--confirmed-too").out.startswith("deleted 1 incident")
    assert call("incidents", "list").code == 1
    call(log, "--record", "--user", "bob")
    assert call("incidents", "delete", "--of-user", "bob").out == "deleted 1 incident and 1 attempt\n"
    assert call("incidents", "delete", "--of-user", "bob").code == 1


@pytest.mark.parametrize(
    "words",
    [
        ("show", "nothing"),
        ("confirm", "nothing"),
        ("correct", "nothing", "--error-type", "DiskFull"),
        ("delete",),
        ("import", "no-such-place"),
        ("list", "--limit", "0"),
        ("prune", "--older-than", "-3"),
    ],
)
def test_refusals_are_one_line(call: Call, words: tuple[str, ...]) -> None:
    done = call("incidents", *words)
    assert done.code == 2
    assert done.err.startswith("diagnose: ")
    assert done.err.count("\n") == 1


def test_an_incident_without_a_type_is_corrected_not_confirmed(call: Call, tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    log.write_text("2027-03-01 10:00:00 step 3 loss 1.0\nthe frobnicator has lost its marbles\nexit code: 1\n")
    call(str(log), "--record")
    name = call("incidents", "list").out.splitlines()[1].split()[0]
    assert "diagnose incidents correct" in call("incidents", "confirm", name).err


def test_every_verb_is_in_the_help(call: Call) -> None:
    text = call("incidents", "--help").out
    assert all(
        verb in text for verb in ("add", "list", "show", "confirm", "correct", "delete", "import", "export", "prune")
    )


def test_a_backtest_of_nothing_says_so(call: Call) -> None:
    done = call("policy", "backtest")
    assert done.code == 1
    assert "nothing is recorded yet" in done.err


def test_a_backtest_tells_stops_and_their_fate(call: Call, tmp_path: Path) -> None:
    write: Callable[[int, str], str]

    def write(day: int, end: str) -> str:
        path = tmp_path / f"d{day}.log"
        path.write_text("world size 8\n" + STEPS.replace("10-01", f"10-0{day}") + end)
        return str(path)

    for day in (1, 2):
        call(write(day, KEY_ERROR), "--record", "--name", "a")
    call(write(3, "step 9 loss 1.0\nexit code: 0\n"), "--record", "--name", "a")
    text = call("policy", "backtest").out
    assert "over 2 failed attempts of 1 workload, 2026-10-01 to 2026-10-02" in text
    assert "Stops    2: 1 right (died alike), 1 false, 0 not known" in text
    made = json.loads(call("policy", "backtest", "--format", "json", "--stop-hours", "3").out)
    assert [(one["kind"], one["fate"], one["row"]) for one in made["actions"]] == [
        ("stop", "right", "fix-the-code"),
        ("stop", "false", "fix-the-code"),
    ]
    assert made["actions"][0]["saved"] == pytest.approx(8 * 240 / 3600)
    assert made["actions"][1]["lost"] == pytest.approx(24)
    assert call("policy", "backtest", "--stop-hours", "-1").code == 2


def test_a_backtest_replays_another_policy(call: Call, tmp_path: Path, log: str) -> None:
    recorded(call, log)
    site = tmp_path / "site"
    site.mkdir()
    (site / "policy.yml").write_text(
        "schema: policy/v1\nrules:\n  - {id: keep-trying, error_types: [KeyError], job: restart}\n"
    )
    made = json.loads(call("policy", "backtest", "--rules", str(site), "--format", "json").out)
    assert [(one["kind"], one["row"]) for one in made["actions"]] == [("restart", "keep-trying")]
