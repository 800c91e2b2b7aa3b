"""The Log Agent: rules that a model writes while a log streams, what is admitted of them, and what is never."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from diagnose.agents.families import Families
from diagnose.agents.filter_author import FREQUENCY, by_frequency, filter_rule
from diagnose.agents.fingerprint import Sniffer, plain_name
from diagnose.agents.log_agent import LogAgent, LogBudget
from diagnose.agents.model import ChatModel
from diagnose.agents.settings import ModelSettings
from diagnose.compress import Filters, template
from diagnose.dataclass import replace
from diagnose.models import JobContext, LogSource, RuleSet
from diagnose.models.learning import FilterCandidate, Fingerprint
from diagnose.pipeline import Request, Services, diagnose
from diagnose.rules.admission import Admission
from tests.modelserver import ModelServer, completion, model_server, refused

pytestmark = pytest.mark.allow_hosts(["127.0.0.1"])

ROUTINE = "[rank{rank}]: widget-cache: shelf {n} holds {m} crates, colour blue"
PATTERN = r"{prefix}widget-cache: shelf \d{1,19} holds \d{1,19} crates, colour blue"
BUDGET = LogBudget(calls_per_mb=1_000.0, least=50, seconds=20.0)


class Shelf:
    """Where candidates are kept."""

    def __init__(self, *candidates: FilterCandidate) -> None:
        self.kept = {each.rule.id: each for each in candidates}

    def of(self, fingerprint: Fingerprint) -> list[FilterCandidate]:
        return [each for each in self.kept.values() if each.fingerprint == fingerprint]

    def add(self, candidate: FilterCandidate) -> None:
        self.kept.setdefault(candidate.rule.id, candidate)

    def count(self, fingerprint: Fingerprint, id: str, hits: int) -> None:
        known = self.kept[id]
        self.kept[id] = replace(known, hits=known.hits + hits)


@pytest.fixture(scope="module")
def admission(rule_set: RuleSet) -> Admission:
    return Admission(rule_set, lambda: [("somewhere:1", "quota of shard gone for good")])


def log(lines: int = 30_000, *, end: str = "") -> bytes:
    routine = "".join(f"{ROUTINE.format(rank=n % 4, n=n, m=n * 7)}\n" for n in range(lines))
    return (routine + end).encode()


def run(data: bytes, rules: RuleSet, agent: LogAgent | None, name: str = "train-7b-001") -> Any:
    request = Request(["-"], stdin=io.BytesIO(data), context=JobContext(name=name))
    return diagnose(request, Services(rules, log_agent=agent))


def answer(*rules: dict[str, Any]) -> dict[str, Any]:
    plain = {
        "kind": 1,
        "title": "crates on shelves",
        "pattern": PATTERN,
        "keywords": ["widget-cache: shelf"],
        "action": "drop",
    }
    return {"rules": [{**plain, **rule} for rule in rules]}


def scripted(said: dict[str, Any], chosen: list[int]) -> Callable[[Any], Any]:
    """A server that answers questions for rules and questions for a vote."""
    return lambda asked: completion({"chosen": chosen} if "Somebody wrote these filter rules" in asked.text else said)


@pytest.fixture
def served() -> Iterator[Callable[[Callable[[Any], Any]], tuple[ChatModel, ModelServer]]]:
    open_: list[Any] = []

    def serve(script: Callable[[Any], Any]) -> tuple[ChatModel, ModelServer]:
        manager = model_server(script)
        server = manager.__enter__()
        open_.append(manager)
        settings = ModelSettings(server.url, "scripted-1", state=None, attempts=1, seconds=20.0, cache=False)
        return ChatModel(settings), server

    yield serve
    for manager in open_:
        manager.__exit__(None, None, None)


def agent_of(rule_set: RuleSet, shelf: Shelf, model: ChatModel | None = None, **more: Any) -> LogAgent:
    more.setdefault("budget", BUDGET)
    return LogAgent(rule_set, shelf, redact=lambda: lambda text: text.replace("secret", "<key-1>"), model=model, **more)


def test_the_admitted_rule_applies_to_this_job_and_to_the_next_of_its_kind(rule_set, served):
    model, server = served(scripted(answer({}), [1]))
    shelf = Shelf()
    agent = agent_of(rule_set, shelf, model)
    report = run(log(120_000), rule_set, agent)
    agent.close()
    [candidate] = shelf.kept.values()
    assert (candidate.state, candidate.author) == ("applied", "agent:scripted-1")
    assert candidate.fingerprint == Fingerprint("train-0b-0")
    assert candidate.hits > 119_000
    assert candidate.rule.pattern == PATTERN
    assert candidate.rule.status == "experimental"
    asked = len(server.asked)
    later = agent_of(rule_set, shelf, model)
    again = run(log(120_000), rule_set, later, "train-7b-002")
    later.close()
    assert again.stats.kept_lines < report.stats.kept_lines or again.stats.kept_lines < 2_000
    assert len(server.asked) == asked  # the family is covered
    assert next(iter(shelf.kept.values())).hits > 238_000
    other = agent_of(rule_set, Shelf(*shelf.kept.values()), None)
    unlike = run(log(120_000), rule_set, other, "eval")
    other.close()
    assert unlike.stats.kept_lines > again.stats.kept_lines


def test_findings_are_the_same_with_and_without(rule_set, served):
    model, _ = served(scripted(answer({}), [1]))
    end = "[rank3]: OSError: [Errno 28] No space left on device\nsrun: error: gx-012: task 3: Exited with exit code 1\n"
    shelf = Shelf()
    agent = agent_of(rule_set, shelf, model)
    first = run(log(60_000, end=end), rule_set, agent)
    agent.close()
    plain = run(log(60_000, end=end), rule_set, None)
    assert shelf.kept
    assert (first.status, first.error_type, first.root_cause) == (plain.status, plain.error_type, plain.root_cause)


def test_without_a_model_candidates_are_proposed_and_never_applied(rule_set):
    shelf = Shelf()
    agent = agent_of(rule_set, shelf)
    plain = run(log(), rule_set, None)
    report = run(log(), rule_set, agent)
    agent.close()
    [candidate] = shelf.kept.values()
    assert (candidate.state, candidate.author) == ("proposed", FREQUENCY)
    assert candidate.hits > 29_000
    again = agent_of(rule_set, shelf)
    later = run(log(), rule_set, again)
    again.close()
    assert report.stats.kept_lines == later.stats.kept_lines == plain.stats.kept_lines


def test_what_a_person_has_rejected_does_not_come_back(rule_set, served):
    model, _ = served(scripted(answer({}), [1]))
    shelf = Shelf()
    first = agent_of(rule_set, shelf, model)
    run(log(), rule_set, first)
    first.close()
    [candidate] = shelf.kept.values()
    shelf = Shelf(replace(candidate, state="rejected"))
    agent = agent_of(rule_set, shelf, model)
    plain = run(log(60_000), rule_set, None)
    assert run(log(60_000), rule_set, agent).stats.kept_lines == plain.stats.kept_lines
    agent.close()
    assert [each.state for each in shelf.kept.values()] == ["rejected"]


@pytest.mark.parametrize(
    "rule",
    [
        {"pattern": ".*", "keywords": ["widget-cache"]},
        {"pattern": "{prefix}.*", "keywords": ["widget-cache"]},
        {"pattern": "{prefix}widget-cache: .*", "keywords": ["widget-cache: "]},
        {"pattern": r"{prefix}widget-cache: shelf \d+ holds \d+ crates.{0,500}", "keywords": ["widget-cache: shelf"]},
        {"pattern": r"{prefix}(?:widget-cache|Traceback|CUDA error).{0,200}", "keywords": ["widget-cache"]},
        {"pattern": r"(\S+\s*)+(\S+\s*)+(\S+\s*)+widget-cache: shelf", "keywords": ["widget-cache: shelf"]},
        {
            "pattern": r"{prefix}widget-cache: shelf (?=\d)\d+ holds \d+ crates, colour blue",
            "keywords": ["widget-cache: shelf"],
        },
        {
            "pattern": r"{prefix}widget-cache: shelf (\d)\1* holds \d+ crates, colour blue",
            "keywords": ["widget-cache: shelf"],
        },
        {
            "pattern": r"{prefix}widget-cache: shelf 1\d* holds \d+ crates, colour blue",
            "keywords": ["widget-cache: shelf"],
        },
        {
            "pattern": r"((((x{1,1000}){1,1000}){1,1000}){1,1000})widget-cache: shelf",
            "keywords": ["widget-cache: shelf"],
        },
        {"pattern": "{prefix}another line altogether", "keywords": ["another line"]},
        {"pattern": "[", "keywords": ["widget-cache"], "title": "broken"},
        {"keywords": ["nothing of it"]},
        {"kind": 8},
    ],
)
def test_hostile_rules_are_never_admitted(rule_set, served, rule):
    if len(rule.get("pattern", PATTERN)) < 8:
        rule = {**rule, "pattern": rule["pattern"] + " " * 8}
    model, _ = served(scripted(answer(rule), [1]))
    shelf = Shelf()
    agent = agent_of(rule_set, shelf, model)
    plain = run(log(), rule_set, None)
    assert run(log(), rule_set, agent).stats.kept_lines == plain.stats.kept_lines
    agent.close()
    assert not shelf.kept


def test_the_vote_decides(rule_set, served):
    model, server = served(scripted(answer({}), []))
    shelf = Shelf()
    agent = agent_of(rule_set, shelf, model)
    run(log(), rule_set, agent)
    agent.close()
    assert not shelf.kept
    assert len(server.asked) == BUDGET.samples + 1


def test_a_rule_of_one_sample_alone_is_not_even_voted_on(rule_set, served):
    given = iter([answer({}), {"rules": []}, {"rules": []}])
    model, server = served(lambda _: completion(next(given)))
    shelf = Shelf()
    agent = agent_of(rule_set, shelf, model)
    run(log(), rule_set, agent)
    agent.close()
    assert not shelf.kept
    assert len(server.asked) == BUDGET.samples


def test_the_budget_is_kept(rule_set, served):
    model, server = served(scripted({"rules": []}, []))
    names = [chr(97 + n // 26) + chr(97 + n % 26) for n in range(120)]
    kinds = "".join(f"widget-cache: shelf {name} holds {m} crates\n" for m in range(600) for name in names)
    agent = agent_of(rule_set, Shelf(), model, budget=replace(BUDGET, calls_per_job=8))
    run(kinds.encode(), rule_set, agent)
    agent.close()
    assert 0 < len(server.asked) <= 8
    few, small = served(scripted({"rules": []}, []))
    agent = agent_of(rule_set, Shelf(), few, budget=replace(BUDGET, calls_per_mb=0.1))
    run(kinds.encode(), rule_set, agent)
    agent.close()
    assert not small.asked


def test_an_outage_costs_filters_and_nothing_else(rule_set, served):
    model, _ = served(lambda _: refused(503))
    shelf = Shelf()
    agent = agent_of(rule_set, shelf, model)
    plain = run(log(), rule_set, None)
    assert run(log(), rule_set, agent).stats.kept_lines == plain.stats.kept_lines
    agent.close()
    assert not shelf.kept


def test_what_is_redacted_is_neither_sent_nor_stored(rule_set, served):
    data = log().replace(b"colour blue", b"colour secret")
    model, server = served(scripted(answer({"pattern": PATTERN.replace("blue", r"\S{1,90}")}), [1]))
    shelf = Shelf()
    agent = agent_of(rule_set, shelf, model)
    run(data, rule_set, agent)
    agent.close()
    assert server.asked
    assert b"colour secret" not in server.wire
    assert all("secret" not in line for each in shelf.kept.values() for line in each.rule.examples.noise)


def test_lines_that_somebody_listens_for_are_never_asked_about(rule_set, admission):
    families = Families(Filters(rule_set.filters), admission)
    lines = [
        b"step 12 of 90: all is well",
        b"    return self.forward(x)",
        b"RuntimeError: CUDA error: device-side assert triggered",
        b"gadget: retrying the upload",
        "gadget: grüne Kiste".encode(),
        b"",
        b"x" * 5_000,
    ]
    for _ in range(10):
        families.watch(LogSource("job.log")).lines(lines, [template(line) for line in lines])
    assert families.frequent(1) == []


@pytest.mark.parametrize(
    ("pattern", "keywords", "reason"),
    [
        (PATTERN, ("widget-cache: shelf",), None),
        (PATTERN + "|quota of shard gone for good", ("widget-cache: shelf", "quota of shard"), "filter-hides"),
        (r"{prefix}[\w-]{1,30}: shelf \d{1,19} holds \d{1,19} crates, colour \w{1,9}", (": shelf ",), "another kind"),
        (PATTERN.replace(r"\d{1,19} holds", "[0-4]+ holds"), ("widget-cache: shelf",), "filter-digits"),
        ("x" * 700, ("xxxxxx",), "longer than"),
    ],
)
def test_what_admission_says(admission, pattern, keywords, reason):
    families = Families(Filters(()), admission)
    lines = [ROUTINE.format(rank=n, n=n, m=n).encode() for n in range(4)]
    families.watch(LogSource("job.log")).lines(lines, [template(line) for line in lines])
    [family] = families.frequent(1)
    rule = filter_rule(family, pattern, keywords, "drop", "crates", "agent:x", str)
    others = [b"gizmo-cache: shelf 4 holds 5 crates, colour red"]
    why = admission.refuses(rule, family.samples, others)
    assert (why is None) if reason is None else (why is not None and reason in why)


def test_a_rule_by_frequency_is_made_of_the_lines_own_words(admission):
    families = Families(Filters(()), admission)
    lines = [ROUTINE.format(rank=n, n=n, m=n).encode() for n in range(4)]
    families.watch(LogSource("job.log")).lines(lines, [template(line) for line in lines])
    draft = by_frequency(families.frequent(1)[0], str)
    assert draft is not None
    assert draft.rule.pattern == PATTERN
    assert re.fullmatch(r"agent-[a-z-]+-[0-9a-f]{10}", draft.rule.id)
    assert json.dumps(draft.rule.examples.noise)


def test_fingerprints():
    sniffer = Sniffer(JobContext())
    sniffer.source("logs/train-7b-4711.out")
    sniffer.lines(
        [b"pyxis: importing docker image: nvcr.io#nvidia/pytorch:24.07", b"using torch 2.4", b"megatron core"]
    )
    assert sniffer.fingerprint == Fingerprint("train-0b-0", "nvcr.io#nvidia/pytorch:24.07", "megatron")
    assert plain_name("a\x1b[31m12") == "a[0m0"
    assert not Fingerprint(framework="torch").known
