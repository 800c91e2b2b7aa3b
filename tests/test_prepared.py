"""What is made of rules once serves run after run: no job's report depends on those before it."""

from __future__ import annotations

import random

from diagnose.dataclass import replace
from diagnose.models import Report, RuleSet
from diagnose.pipeline import Services, diagnose
from diagnose.prepared import Prepared
from diagnose.report import render
from diagnose.settings import Settings
from tests.incidents import Incident, incidents, inside, request_of

SOME = random.Random(3).sample(incidents(), 40)


def reports(some: list[Incident], services: Services, settings: Settings) -> dict[str, str]:
    def shown(incident: Incident) -> str:
        with inside(incident.folder):
            report: Report = diagnose(request_of(incident.expected["inputs"]), services, settings)
        return render(replace(report, stats=replace(report.stats, seconds=0.0)), "json")

    return {incident.name: shown(incident) for incident in some}


def test_jobs_read_one_after_the_other_say_what_each_says_alone(rule_set: RuleSet) -> None:
    settings = Settings(processes=1)
    alone = reports(SOME, Services(rule_set), settings)
    services = Services(rule_set, prepared=Prepared(rule_set))
    assert reports(SOME, services, settings) == alone
    assert reports(SOME[::-1], services, settings) == alone


def test_what_was_made_of_other_rules_is_not_used(rule_set: RuleSet) -> None:
    none = replace(rule_set, diagnoses=(), filters=())
    settings = Settings(processes=1)
    alone = reports(SOME[:3], Services(rule_set), settings)
    assert reports(SOME[:3], Services(rule_set, prepared=Prepared(none)), settings) == alone
