"""Hosts by the names that sites give them, and hosts whose clocks are wrong: the verdict is the same."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from diagnose.models import Report, RuleSet
from tests.incidents import Incident, run
from tests.test_metamorphic import ALL, HOST, files_of, hosts_of, report_on, shifted, write

# What stands before a host's own number: `{letter}` and `{digit}` tell several kinds of hosts apart.
STYLES = (
    "qz{letter}-w",
    "gpu-{letter}",
    "gpu{digit}0",
    "n{digit}",
    "g0{digit}",
    "aks-gpu-{digit}234-vmss0000",
    "slurm-h100-20{digit}-0",
    "gke-train-pool-{digit}f2a-x",
    "dgx-h100-{digit}",
)


def verdict(report: Report, rename: Callable[[str], str] = str) -> tuple[object, ...]:
    who = {(culprit.kind, rename(culprit.id)) for culprit in report.culprits}
    nodes = {(rename(node.host), node.action) for node in report.recovery.nodes}
    return report.status, report.error_type, report.attribution, report.recovery.job, who, nodes


def renamer(hosts: list[str], style: str) -> Callable[[str], str]:
    """Gives the hosts names of a style, also within lists such as `n[01-04]`."""
    pairs: list[tuple[re.Pattern[str], str]] = []
    for number, prefix in enumerate(sorted({HOST.match(host)[0] for host in hosts}, key=len, reverse=True)):
        new = style.format(letter="cdefgh"[number], digit=number + 1)
        own = "|".join(re.escape(host[len(prefix) :]) for host in hosts if HOST.match(host)[0] == prefix)
        begin = rf"(?<![A-Za-z0-9-]){re.escape(prefix)}"
        pairs.append((re.compile(rf"{begin}(?=\[\d)"), new))
        pairs.append((re.compile(rf"{begin}(?=(?:{own})(?![A-Za-z0-9]))"), new))

    def rename(text: str) -> str:
        for pattern, new in pairs:
            text = pattern.sub(new, text)
        return text

    return rename


@pytest.mark.parametrize("number", range(len(ALL)), ids=[incident.name for incident in ALL])
def test_hosts_by_the_names_of_sites(number: int, rule_set: RuleSet, tmp_path: Path) -> None:
    incident = ALL[number]
    before = report_on(incident, rule_set)
    hosts = hosts_of(incident, before)
    if not hosts:
        return  # nothing to rename
    for style in (STYLES[number % len(STYLES)], STYLES[(number + 3) % len(STYLES)]):
        rename = renamer(hosts, style)
        folder = tmp_path / style.replace("{", "").replace("}", "")
        folder.mkdir()
        write(str(folder), {rename(name): rename(text) for name, text in files_of(incident).items()})
        after = run(str(folder), [rename(word) for word in incident.expected["inputs"]], rule_set)
        assert verdict(after) == verdict(before, rename), style


def dated(incident: Incident) -> bool:
    """Whether any of several files bears times that a wrong clock would change."""
    files = files_of(incident)
    return len(files) > 1 and any(shifted(text, 300) != text for text in files.values())


SEVERAL = [incident for incident in ALL if dated(incident)]
# The kernel's only line lies so far before the failure that the work went on after it: nothing proves that it is late.
UNDECIDED = {("lustre-eviction", -300)}


def clocks(incident: Incident, rule_set: RuleSet) -> Iterator[tuple[str, ...]]:
    """The files that one host wrote, for each host that is not the only one."""
    files = files_of(incident)
    for host in hosts_of(incident, report_on(incident, rule_set)):
        own = tuple(name for name in files if re.search(rf"(?<![a-z0-9]){re.escape(host)}(?!\d)", name))
        if 0 < len(own) < len(files) and any(shifted(files[name], 300) != files[name] for name in own):
            yield own


@pytest.mark.parametrize("seconds", [-300, 300])
@pytest.mark.parametrize("incident", SEVERAL, ids=lambda incident: incident.name)
def test_clocks_are_wrong(incident: Incident, seconds: int, rule_set: RuleSet, tmp_path: Path) -> None:
    files = files_of(incident)
    wrong = list(clocks(incident, rule_set))
    everywhere = [tuple(files)] if all(shifted(text, seconds) != text for text in files.values()) else []
    for number, own in enumerate([*wrong, *everywhere]):
        folder = tmp_path / str(number)
        folder.mkdir()
        write(str(folder), {name: shifted(text, seconds) if name in own else text for name, text in files.items()})
        after = run(str(folder), incident.expected["inputs"], rule_set)
        if (incident.name, seconds) in UNDECIDED and own in wrong:
            assert after.status == "inconclusive", own
            assert not after.culprits, own
        else:
            assert verdict(after) == verdict(report_on(incident, rule_set)), own
