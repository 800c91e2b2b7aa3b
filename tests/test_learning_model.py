"""Rules that a model writes: filled up, tried like every other, mended on what stood against them, and never believed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from diagnose.agents.model import ChatModel
from diagnose.agents.settings import ModelSettings
from diagnose.cli.rules import judged
from diagnose.learning.case import Case
from diagnose.learning.corpus import Corpus
from diagnose.learning.model_author import ModelAuthor
from diagnose.learning.propose import Proposal, propose
from diagnose.learning.trial import Trial
from diagnose.models import RuleSet
from diagnose.rules.tree import shipped_rules
from tests.modelserver import ModelServer, Reply, completion, model_server, refused
from tests.test_learning_case import case_of_lines

pytestmark = pytest.mark.allow_hosts(["127.0.0.1"])

LINE = "lease-broker: shard lease 8812 for worker 3 revoked by coordinator, giving up"
GOOD: dict[str, Any] = {
    "line": 1,
    "title": "A shard's lease was revoked",
    "pattern": r"lease-broker: shard lease (?P<lease>\d{1,18}) for worker (?P<worker>\d{1,18}) revoked by coordinator",
    "keywords": ["revoked by coordinator"],
    "captures": [{"name": "lease", "type": "int"}, {"name": "worker", "type": "int"}],
    "cause": "The coordinator revoked lease {lease} of worker {worker}",
    "hint": "Look at the coordinator's log for why the lease was revoked.",
    "negatives": [{"line": "lease-broker: shard lease 8812 for worker 3 renewed", "why": "a renewal is routine"}],
}


@pytest.fixture(scope="module")
def trial(rule_set: RuleSet, tmp_path_factory: pytest.TempPathFactory) -> Trial:
    return Trial(rule_set, shipped_rules(), Corpus(str(tmp_path_factory.mktemp("empty")), judged), judged)


@pytest.fixture
def proposed(trial: Trial) -> Iterator[Callable[..., tuple[Proposal, ModelServer]]]:
    managers: list[Any] = []

    def run(
        script: Callable[[Any], Reply], case: Case | None = None, redact: Any = str
    ) -> tuple[Proposal, ModelServer]:
        manager = model_server(script)
        server = manager.__enter__()
        managers.append(manager)
        model = ChatModel(ModelSettings(server.url, "scripted-1", state=None, attempts=1, seconds=10.0, cache=False))
        author = ModelAuthor(model, trial.rule_set, redact, lambda *_: (), ())
        return propose(case or case_of_lines(LINE), trial, redact=redact, author=author), server

    yield run
    for manager in managers:
        manager.__exit__(None, None, None)


def test_a_models_rule_is_filled_up_and_tried(proposed):
    proposal, _ = proposed(lambda _: completion(GOOD))
    rule = proposal.rule
    assert rule is not None, proposal.why_not
    assert (rule.author, rule.status, rule.error_type) == (("agent:scripted-1",), "experimental", "NetworkError")
    assert rule.signatures["main"].pattern == GOOD["pattern"]
    assert rule.examples.positive[0].expect.captures == {"lease": 8812, "worker": 3}
    assert rule.verdict.cause == GOOD["cause"]


def test_it_is_told_what_stood_against_its_rule_and_mends_it(proposed):
    bad = {**GOOD, "cause": "the lease {nothing} was revoked."}
    answers = iter([bad, GOOD])
    proposal, server = proposed(lambda _: completion(next(answers)))
    assert proposal.rule is not None
    assert proposal.rule.author == ("agent:scripted-1",)
    assert "'nothing' is no capture" in server.asked[1].text


@pytest.mark.parametrize(
    "change",
    [
        {"pattern": ".*revoked by coordinator.*|.*"},
        {"pattern": r"(a+)+$|revoked by coordinator"},
        {"pattern": r"((((x{1,1000}){1,1000}){1,1000}){1,1000})revoked by coordinator"},
        {"pattern": r"(?i)revoked by coordinator"},
        {"pattern": r"(?<=shard )lease"},
        {"pattern": r"(\w+) \1"},
        {"pattern": "[[[[["},
        {"pattern": r"another line entirely"},
        {"pattern": "\\w{5,9}", "keywords": ["lease-broker"]},
        {"keywords": ["words that are not there"]},
        {"line": 60},
        {"captures": [{"name": "ghost", "type": "int"}]},
        {"cause": "[ {lease"},
        {"title": "x\n- evil: true\n\x1b[31m" + "y" * 20},
        {"negatives": [{"line": LINE, "why": "it is the very line"}]},
        {
            "negatives": [
                {"line": "mail root@corp.example.org the key ghp_0123456789abcdefghijABCDEFGHIJ0123", "why": "w" * 9}
            ]
        },
    ],
)
def test_hostile_answers_never_become_a_rule_of_theirs_that_is_broken(proposed, trial, change):
    proposal, _ = proposed(lambda _: completion({**GOOD, **change}))
    rule = proposal.rule
    assert rule is not None, proposal.why_not  # at the latest, code writes one
    assert trial.problems(rule, proposal.path) == ()
    assert "ghp_" not in proposal.text
    assert "\x1b" not in proposal.text
    assert rule.status == "experimental"
    if "pattern" in change:
        assert rule.signatures["main"].pattern != change["pattern"]


@pytest.mark.parametrize(
    "script",
    [
        lambda _: refused(503),
        lambda _: completion("I cannot help with that"),
        lambda _: completion({"pattern": "x"}),
        lambda _: completion('{"line": 1, ' + "[" * 50_000),
        lambda _: Reply(b"\x00" * 5_000),
    ],
)
def test_without_an_answer_code_writes_the_rule(proposed, script):
    proposal, _ = proposed(script)
    assert proposal.rule is not None
    assert proposal.rule.author == ("agent:template",)


def test_what_is_redacted_is_not_sent(proposed):
    case = case_of_lines(LINE.replace("worker 3", "worker 3 of hunter2"))
    _, server = proposed(lambda _: completion(GOOD), case, lambda text: text.replace("hunter2", "<key-1>"))
    assert b"hunter2" not in server.wire
    assert "<key-1>" in server.asked[0].text
