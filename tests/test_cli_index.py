"""`diagnose index` on a real database, and a report that past incidents decide."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("sqlalchemy")
pytest.importorskip("chromadb")

from diagnose.cli.main import main
from diagnose.dataclass import replace
from diagnose.errors import OutageError
from diagnose.models import RuleSet
from diagnose.pipeline import Request, Services, diagnose
from diagnose.services import service_settings, services
from diagnose.store.embeddings import Endpoint

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
LOG = """\
step 100 loss 2.5
spindle: flux capacitor desynchronised on bank {n}
spindle: cannot realign the nvlink, giving up: FluxError code 17
"""


@pytest.fixture
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DIAGNOSE_DATABASE", str(tmp_path / "memory.sqlite3"))
    monkeypatch.setenv("DIAGNOSE_EMBEDDINGS", "hashed")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for name in ("DIAGNOSE_INDEX", "DIAGNOSE_CHROMA_URL", "DIAGNOSE_VECTORS", "DIAGNOSE_EMBEDDINGS_URL"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def add(folder: Path, n: int, error_type: str, text: str = LOG) -> None:
    log = folder / f"job{n}.log"
    log.write_text(text.format(n=n))
    words = ["incidents", "add", str(log), "--error-type", error_type, "--id", f"past-{n}", "--summary", f"bank {n}"]
    assert main(words) == 0


def test_it_is_made_compared_and_asked(memory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for n in range(3):
        add(memory, n, "NVLinkError")
    add(memory, 9, "DiskFull", "OSError: [Errno 28] No space left on device\n")
    capsys.readouterr()
    assert main(["index", "check"]) == 1
    seen = capsys.readouterr()
    assert "not in the index: past-0, past-1, past-2, past-9" in seen.out
    assert "run: diagnose index rebuild" in seen.err
    assert main(["index", "rebuild"]) == 0
    assert "the index holds 4 incidents; 4 read" in capsys.readouterr().out
    assert main(["index", "check"]) == 0
    assert "sound: 4 incidents" in capsys.readouterr().out
    assert main(["index", "similar", str(memory / "job9.log"), "--count", "1"]) == 0
    assert "past-9  DiskFull" in capsys.readouterr().out
    empty = memory / "empty"
    empty.write_text("")
    assert main(["index", "similar", str(empty)]) == 1


def test_past_incidents_decide_what_no_rule_does(memory: Path, rule_set: RuleSet) -> None:
    for n in range(3):
        add(memory, n, "NVLinkError")
    log = memory / "now.log"
    log.write_text(LOG.format(n=7))
    told: list[str] = []
    with services(rule_set, service_settings(os.environ), told.append) as opened:
        report = diagnose(Request([str(log)]), Services(rule_set, second_opinion=opened.second_opinion))
    assert told == []
    assert report.error_type == "NVLinkError"
    assert report.decided_by.stage == "retrieval"
    assert {each.id for each in report.decided_by.similar_incidents} == {"past-0", "past-1", "past-2"}
    assert report.recovery.nodes == ()
    assert report.root_cause is not None
    assert [each.line for each in report.root_cause.evidence] == [3]


def test_a_rule_is_never_overruled(memory: Path, rule_set: RuleSet) -> None:
    log = "[rank0]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n"
    for n in range(3):
        add(memory, n, "NVLinkError", log)
    path = memory / "now.log"
    path.write_text(log)
    plain = diagnose(Request([str(path)]), Services(rule_set))
    with services(rule_set, service_settings(os.environ), print) as opened:
        report = diagnose(Request([str(path)]), Services(rule_set, second_opinion=opened.second_opinion))
    assert report.error_type == plain.error_type == "OutOfMemoryError"
    assert replace(report, stats=plain.stats) == plain


def damaged(data: bytes, how: str) -> bytes:
    """A file as a failing disk, a full one or a mistake leaves it."""
    chance = random.Random(how)
    if how == "cut off":
        return data[: len(data) // 2]
    if how == "empty":
        return b""
    if how == "zeros":
        return data[:100] + bytes(len(data) - 100)
    if how == "text":
        return b"nothing of the kind" * 100
    found = bytearray(data)
    for _ in range(len(found) // 50):
        found[chance.randrange(100 if len(found) > 4096 else 0, len(found))] = chance.randrange(256)
    return bytes(found)


@pytest.mark.parametrize("how", ["cut off", "empty", "zeros", "text", "noise 1", "noise 2", "noise 3"])
@pytest.mark.parametrize("which", ["index.sqlite3", "chroma/chroma.sqlite3"])
def test_a_damaged_index_costs_no_report_and_is_told(
    memory: Path, rule_set: RuleSet, capsys: pytest.CaptureFixture[str], how: str, which: str
) -> None:
    """Chroma itself ends the process over some of them, and the driver of SQLite fails over its own words."""
    add(memory, 0, "NVLinkError")
    assert main(["index", "rebuild"]) == 0
    file = memory / "memory.index" / which
    file.write_bytes(damaged(file.read_bytes(), how))
    log = memory / "now.log"
    log.write_text(LOG.format(n=7))
    with services(rule_set, service_settings(os.environ), print) as opened:
        report = diagnose(Request([str(log)]), Services(rule_set, second_opinion=opened.second_opinion))
    assert report.status in ("failed", "inconclusive")
    capsys.readouterr()
    for words in (["index", "check"], ["index", "rebuild"]):
        code = main(words)
        said = capsys.readouterr().err
        assert said.count("\n") <= 1
        assert code in (0, 1) or (code == 2 and "run: diagnose index rebuild" in said and "Traceback" not in said)
    shutil.rmtree(memory / "memory.index")
    assert main(["index", "rebuild"]) == 0
    assert main(["index", "check"]) == 0


def test_an_endpoint_that_fails_again_and_again_is_left_alone(
    memory: Path, rule_set: RuleSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(memory, 0, "NVLinkError")
    monkeypatch.setenv("DIAGNOSE_EMBEDDINGS_URL", "http://127.0.0.1:9/v1")
    monkeypatch.setenv("DIAGNOSE_EMBEDDINGS_MODEL", "m")
    asked: list[str] = []

    def embed(endpoint: Endpoint, texts: Sequence[str]) -> Any:
        asked.append(endpoint.name)
        raise OutageError("the embeddings endpoint does not answer")

    monkeypatch.setattr(Endpoint, "embed", embed)
    log = memory / "now.log"
    log.write_text(LOG.format(n=7))
    said = []
    for _ in range(5):  # each as a process of its own
        with services(rule_set, service_settings(os.environ), print) as opened:
            report = diagnose(Request([str(log)]), Services(rule_set, second_opinion=opened.second_opinion))
        said.append(repr(report))
    assert len(asked) == 3
    assert "does not answer" in said[2]
    assert "failed 3 times in a row" in said[3]
    assert "failed 3 times in a row" in said[4]


def test_a_name_that_is_no_text_costs_no_report(
    memory: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Paths may be any bytes; messages that name them are looked through for secrets."""
    add(memory, 0, "NVLinkError")
    (memory / "file").write_text("")
    monkeypatch.setenv("DIAGNOSE_INDEX", f"{memory}/file/\udcff")
    assert main([str(memory / "job0.log"), "--exit-zero"]) == 0
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("DIAGNOSE_VECTORS", "faiss", "DIAGNOSE_VECTORS must be one of chroma, numpy"),
        ("DIAGNOSE_EMBEDDINGS", "big", "for an endpoint set DIAGNOSE_EMBEDDINGS_URL"),
        ("DIAGNOSE_EMBEDDINGS_URL", "nowhere", "DIAGNOSE_EMBEDDINGS_URL is no address"),
        ("DIAGNOSE_EMBEDDINGS_URL", "http://127.0.0.1:9/v1", "set DIAGNOSE_EMBEDDINGS_MODEL"),
        ("DIAGNOSE_CHROMA_TOKEN_FILE", "/nonexistent/token", "cannot be read"),
        ("DIAGNOSE_INDEX", "/proc/none", "cannot be opened"),
    ],
)
def test_wrong_settings_are_told_in_one_line(
    memory: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    name: str,
    value: str,
    message: str,
) -> None:
    monkeypatch.setenv(name, value)
    assert main(["index", "rebuild"]) == 2
    said = capsys.readouterr().err
    assert message in said
    with contextlib.suppress(ValueError):
        assert said.count("\n") == 1
