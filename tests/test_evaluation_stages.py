"""What comes after the rules, measured without them."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from diagnose.cli.importing import import_cases
from diagnose.dataclass import replace
from diagnose.evaluation.cases import find_cases
from diagnose.evaluation.judge import Plan
from diagnose.evaluation.memory import content_of, remember
from diagnose.evaluation.model import OURS
from diagnose.evaluation.run import evaluate, halves
from diagnose.models import RuleSet
from diagnose.store.database import open_database
from diagnose.store.incidents import StoredIncidents
from tests.incidents import FIXTURES
from tests.models import HOSTILE, Modelled
from tests.opinions import Knowing

INCIDENTS = os.path.join(FIXTURES, "incidents")


def test_somebody_who_knows_is_heard_where_no_rule_decides(rule_set: RuleSet) -> None:
    """Nothing between an opinion and the report throws right answers away, though no rule proves that the job failed."""
    cases = find_cases([INCIDENTS]).cases
    plan = Plan(withheld=frozenset(rule_set.taxonomy), ask=Knowing(), baselines=False)
    evaluation = evaluate(cases, plan, jobs=2)
    figures = evaluation.figures[OURS]
    kind = figures.rates["type"]
    assert kind.value is not None
    assert kind.value >= 0.95
    assert figures.counts["false_node"] == 0
    assert {one.stage: one.accuracy.of for one in figures.stages}["rules"] == 0
    assert sum(result.tokens_in for result in evaluation.results) == 1000 * len(cases)


# Of each family some, few enough to ask about each: asking is what takes time.
ASKED = (
    "address-in-use",
    "cuda-oom-one-rank-late",
    "disk-full-ds-save",
    "ecc-on-one-of-two-hosts",
    "keyerror-one-of-64",
    "nccl-timeout-all-ranks",
    "nfs-estale-nemo",
    "preempted-lightning",
    "xid79-one-host-of-four",
    "syntax-error",
)


def test_a_model_that_knows_is_heard(rule_set: RuleSet) -> None:
    """Through the whole of it: excerpt, redaction, wire, checks."""
    cases = find_cases([os.path.join(INCIDENTS, name) for name in ASKED]).cases
    every = frozenset(rule_set.taxonomy)
    evaluation = evaluate(cases, Plan(withheld=every, ask=Modelled("perfect", every), baselines=False))
    figures = evaluation.figures[OURS]
    assert [result.problem for result in evaluation.results if result.problem] == []
    assert figures.rates["type"].right == len(ASKED)
    assert figures.rates["line"].right >= 0.7 * len(ASKED)
    assert all(result.calls >= 1 and result.tokens_in >= 100 for result in evaluation.results)


def test_a_model_that_harms_is_not(rule_set: RuleSet) -> None:
    """Neither where rules decide, nor where they do not, nor where there is nothing to decide."""
    undecided = os.path.join(FIXTURES, "inconclusive")
    roots = [os.path.join(INCIDENTS, name) for name in ASKED[:2]]
    roots += [os.path.join(undecided, name) for name in ("quoted-errors-in-help", "only-exit-codes", "bars-only")]
    cases = find_cases(roots).cases
    for withheld in (frozenset[str](), frozenset(rule_set.taxonomy)):
        # One that quotes true lines for a wrong label is refused only where those lines do not speak of it: with all
        # rules taken away, lines of a failure's consequences do speak of other labels.
        kinds = [kind for kind in HOSTILE if not withheld or kind != "contradicting"]
        asked = [replace(case, name=f"{case.name}~{kind}") for case in cases for kind in kinds]
        alone = evaluate(asked, Plan(withheld=withheld, baselines=False)).figures[OURS]
        with_it = evaluate(asked, Plan(withheld=withheld, ask=Modelled(withheld=withheld), baselines=False)).figures[
            OURS
        ]
        assert with_it.rates["type"] == alone.rates["type"]
        assert with_it.counts == alone.counts
        assert with_it.states.keys() <= {"not_needed", "rejected", "unavailable"}


def test_the_memory_is_asked_and_what_is_tested_is_not_in_it(tmp_path: Path) -> None:
    for name in ("ecc-on-one-of-two-hosts", "ecc-contained-titan", "ecc-contained-ds-trainer", "runs-in-one-file"):
        shutil.copytree(os.path.join(INCIDENTS, name), tmp_path / name)
    cases = find_cases([str(tmp_path)]).cases
    kept, tested = halves(cases, "7")
    past, unread = remember(kept, Plan())
    assert unread == ()
    assert [one.id for one in past.changed_since(0)] == [case.name for case in kept]
    assert all(one.error_type == "ECCError" and one.confirmed and one.text for one in past)
    copies = find_cases([os.path.join(INCIDENTS, tested[0].name)]).cases
    assert content_of(copies[0]) == content_of(tested[0]) != content_of(kept[0])


def test_the_memory_is_filled_as_an_import_fills_it(tmp_path: Path, rule_set: RuleSet) -> None:
    """With all rules, whatever is withheld from the question."""
    for name in ("ecc-on-one-of-two-hosts", "keyerror-one-of-64"):
        shutil.copytree(os.path.join(INCIDENTS, name), tmp_path / "cases" / name)
    past, unread = remember(find_cases([str(tmp_path / "cases")]).cases, Plan(withheld=frozenset(rule_set.taxonomy)))
    assert unread == ()
    with open_database(str(tmp_path / "memory.sqlite3")) as database:
        assert import_cases(str(tmp_path / "cases"), database, rule_set) == 0
        imported = {incident.error_type: incident for incident in StoredIncidents(database)}
    assert imported.keys() == {"ECCError", "KeyError"}
    for one in past:
        same = imported[one.error_type]
        assert (one.text, one.attribution, one.job) == (same.text, same.attribution, same.job)


def test_remembering_tells_what_cannot_be_remembered(tmp_path: Path) -> None:
    (tmp_path / "c.log").write_bytes(b"\x7fELF\x00\x00" * 99)
    (tmp_path / "c.yaml").write_text("error_type: KeyError\n")
    past, unread = remember(find_cases([str(tmp_path)]).cases, Plan())
    assert len(past) == 0
    assert unread[0].why.startswith("cannot be remembered: nothing to read")
