"""Whole jobs through the pipeline: what a person would call the right answer, for failed, healthy and undecidable ones.

Each directory under fixtures/{incidents,healthy,inconclusive} holds the inputs of one job and an `expected.yaml`;
`inconclusive` holds those that nobody could name, failed ones among them:
`status`, `error_type` or one of `accept`, `attribution` or one of `accept_attribution`, `evidence` (one of these lines,
give or take one, is among the first three cited), `culprits` (one of them is named), `innocent` (kinds of culprits that
the inputs cannot tell), `job` (allowed actions), `node`
(`none`: nothing is drained, reset, rebooted or replaced; `act`: something is, or an inspection; `any`).
"""

import glob
import json
import os
import re
from dataclasses import MISSING, dataclass, field, fields

import pytest
import yaml
from jsonschema import Draft202012Validator

from diagnose.pipeline import Services, diagnose
from diagnose.report import to_json
from diagnose.rules.load import load_rules
from tests.incidents import request_of

FIXTURES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "fixtures")
GROUPS = ("incidents", "healthy", "inconclusive")
EVICTING = {"drain", "reset_gpu", "reboot", "replace"}
PACKED = re.compile(r"\.(gz|zst|xz|bz2)$")


@dataclass(frozen=True)
class Expected:
    id: str
    title: str
    error_type: str | None
    status: str
    attribution: str | None
    inputs: list
    node: str
    sources_of_text: list
    accept: list = field(default_factory=list)
    accept_attribution: list = field(default_factory=list)
    evidence: list = field(default_factory=list)
    culprits: list = field(default_factory=list)
    job: list = field(default_factory=list)
    innocent: list = field(default_factory=list)
    notes: str = ""
    known_miss: str = ""


# How an entry of these lists is written, and the types of its values.
ENTRIES = {
    "evidence": ("{source: gx-04.dmesg, line: 1}", {"source": str, "line": int}),
    "culprits": ("{kind: host, id: gx-04}", {"kind": str, "id": (str, int)}),
}
STATUSES, NODES = ("failed", "no_failure", "inconclusive"), ("none", "act", "any")
REQUIRED = [one.name for one in fields(Expected) if one.default is MISSING and one.default_factory is MISSING]


def same_source(cited, wanted):
    """Whether two names mean one file: names may be shortened from the left, and a packed file is its content."""
    ours, theirs = (re.split(r"[/!]", PACKED.sub("", os.path.normpath(name))) for name in (cited, wanted))
    return ours[-len(theirs) :] == theirs or theirs[-len(ours) :] == ours


def same_culprit(named, wanted):
    return named["kind"] == wanted["kind"] and any(
        same_id(wanted["kind"], name, str(wanted["id"])) for name in (named["id"], *named["names"])
    )


def same_id(kind, name, wanted):
    name, wanted = name.lower(), wanted.lower()
    if kind in ("gpu", "switch"):
        bus = re.compile(r"[0-9a-f]{2}:[0-9a-f]{2}(?=(?:\.\d)?$)")
        ours, theirs = bus.search(name), bus.search(wanted)
        return ours[0] == theirs[0] if ours and theirs else name == wanted
    if kind == "file":
        return same_source(re.sub(r":\d+$", "", name), re.sub(r":\d+$", "", wanted))
    if kind == "host":
        return name == wanted or (not wanted[0].isdigit() and name.split(".")[0] == wanted.split(".")[0])
    return name == wanted


def faults(expected, report):
    """What is wrong with a report (as JSON), in words; nothing when it is right."""
    found = []

    def check(name, got, wanted):
        if got not in wanted:
            found.append(f"{name} is {got}, not {' or '.join(map(str, wanted))}")

    check("status", report["status"], [expected.status])
    actions = {node["action"] for node in report["recovery"]["nodes"]}
    if expected.node == "none" and actions & EVICTING:
        found.append(f"node action is {sorted(actions & EVICTING)}, and nothing proves a fault of a node")
    if expected.node == "act" and not actions:
        found.append("no node action")
    if expected.job:
        check("recovery.job", report["recovery"]["job"], expected.job)
    if expected.status != "failed" or report["status"] != "failed":
        return found
    check("error_type", report["error_type"], [expected.error_type, *expected.accept])
    check("attribution", report["attribution"], [expected.attribution, *expected.accept_attribution])
    blamed = sorted({culprit["kind"] for culprit in report["culprits"]} & set(expected.innocent))
    if blamed:
        found.append(f"{' and '.join(blamed)} named, which the inputs cannot tell")
    cited = report["root_cause"]["evidence"][:3]
    if not any(
        one["line"] and same_source(one["source"], want["source"]) and abs(one["line"] - want["line"]) <= 1
        for one in cited
        for want in expected.evidence
    ):
        found.append(f"evidence is {[(one['source'], one['line']) for one in cited]}, not {expected.evidence}")
    if expected.culprits and not any(
        same_culprit(named, wanted) for named in report["culprits"] for wanted in expected.culprits
    ):
        named = [(culprit["kind"], culprit["id"]) for culprit in report["culprits"]]
        found.append(f"culprits are {named}, none of {expected.culprits}")
    return found


def known_miss(folder):
    """Why a fixture is known to be missed; one that cannot be read is no reason for the others not to run."""
    try:
        return read_expected(folder).known_miss
    except (AssertionError, yaml.YAMLError):
        return ""


def cases():
    for group in GROUPS:
        for path in sorted(glob.glob(os.path.join(FIXTURES, group, "*", "expected.yaml"))):
            folder = os.path.dirname(path)
            known = known_miss(folder)  # strict: a miss that is mended must lose its mark
            marks = [pytest.mark.xfail(reason=known, strict=True)] if known else []
            yield pytest.param(folder, id=f"{group}/{os.path.basename(folder)}", marks=marks)


def read_expected(folder):
    path = os.path.join(folder, "expected.yaml")
    with open(path, encoding="utf-8") as file:
        given = yaml.safe_load(file)
    assert isinstance(given, dict), f"{path} is no mapping"
    missing = [key for key in REQUIRED if key not in given]
    unknown = sorted(set(given) - {one.name for one in fields(Expected)})
    assert not missing, f"{path} lacks {', '.join(missing)}"
    assert not unknown, f"{path} has unknown keys: {', '.join(unknown)}"
    for one in fields(Expected):
        value = given.get(one.name)
        assert one.type is not list or value is None or isinstance(value, list), f"{path}: {one.name} is to be a list"
        form, types = ENTRIES.get(one.name, ("", {}))
        for entry in (value or ()) if form else ():
            right = isinstance(entry, dict) and entry.keys() == types.keys()
            right = right and all(isinstance(entry[name], wanted) for name, wanted in types.items())
            assert right, f"{path}: {one.name} has {entry!r}; an entry is written {form}"
    assert given["status"] in STATUSES, f"{path}: status is {given['status']!r}, none of {', '.join(STATUSES)}"
    assert given["node"] in NODES, f"{path}: node is {given['node']!r}, none of {', '.join(NODES)}"
    return Expected(**{name: value for name, value in given.items() if value is not None or name in REQUIRED})


@pytest.fixture(scope="session")
def services():
    return Services(load_rules())


@pytest.fixture(scope="session")
def contract():
    with open(os.path.join(FIXTURES, "report.schema.json"), encoding="utf-8") as file:
        return Draft202012Validator(json.load(file))


@pytest.mark.parametrize("folder", list(cases()))
def test_verdict(folder, services, contract, monkeypatch):
    expected = read_expected(folder)
    monkeypatch.chdir(folder)
    report = to_json(diagnose(request_of(expected.inputs), services))
    assert [error.message for error in contract.iter_errors(report)] == []
    assert faults(expected, report) == []


def test_the_fixtures_are_whole(services):
    """Every input of a fixture exists, every error type is one of the taxonomy's, every text has a public source."""
    folders = [case.values[0] for case in cases()]
    assert folders
    for folder in folders:
        expected = read_expected(folder)
        assert expected.id == os.path.basename(folder)
        for name in expected.inputs:
            assert name.startswith("--") or os.path.exists(os.path.join(folder, name)), (expected.id, name)
        named = [name for name in (expected.error_type, *expected.accept) if name]
        assert set(named) <= set(services.rules.taxonomy), expected.id
        assert expected.status != "failed" or (expected.evidence and expected.attribution), expected.id
        assert (expected.status == "failed" and bool(named)) is ("/incidents/" in folder), expected.id
        assert expected.sources_of_text, expected.id


def test_the_incidents_reach_every_family(services):
    """No family that can be a root cause is without an incident."""
    taxonomy = services.rules.taxonomy
    incidents = [read_expected(case.values[0]) for case in cases() if case.id.startswith("incidents/")]
    causes = {entry.family for entry in taxonomy.values()} - {"teardown"}
    assert {taxonomy[incident.error_type].family for incident in incidents} == causes


RIGHT = (
    "id: x\ntitle: t\nerror_type: E\nstatus: failed\nattribution: user\ninputs: []\nnode: any\nsources_of_text: []\n"
)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("id: x\n", "lacks title, error_type, status"),
        ("[]\n", "is no mapping"),
        (RIGHT + "evidnce: []\n", "unknown keys: evidnce"),
        (
            RIGHT + "evidence: [gx-04.dmesg:1]\n",
            r"has 'gx-04.dmesg:1'; an entry is written {source: gx-04.dmesg, line: 1}",
        ),
        (RIGHT + "evidence: [{source: a.log, line: '7'}]\n", "an entry is written {source: gx-04.dmesg, line: 1}"),
        (RIGHT + "evidence: {source: a.log, line: 7}\n", "evidence is to be a list"),
        (RIGHT + "culprits: [host gx-04]\n", "an entry is written {kind: host, id: gx-04}"),
        (RIGHT.replace("any", "drain"), "node is 'drain', none of none, act, any"),
        (RIGHT.replace("failed", "broken"), "status is 'broken'"),
    ],
)
def test_what_is_wrong_with_a_fixture_is_said(text, told, tmp_path):
    (tmp_path / "expected.yaml").write_text(text)
    with pytest.raises(AssertionError, match=f"{tmp_path.name}.expected.yaml.*{told}"):
        read_expected(str(tmp_path))
    assert known_miss(str(tmp_path)) == ""
