"""A service with something to look at: jobs that failed, a node that several blame, candidates of rules."""

from __future__ import annotations

import time
from collections.abc import Callable
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

from diagnose.dataclass import replace
from diagnose.models import Report
from diagnose.models.learning import FilterCandidate, Fingerprint
from diagnose.models.rule import FilterExamples, FilterRule
from diagnose.rules.load import load_rules
from diagnose.service.claims import Claims
from diagnose.service.jobs import NewJob
from diagnose.service.submissions import Submissions
from diagnose.service.work import outcome_of
from diagnose.store.candidates import StoredCandidates
from diagnose.store.database import Database

INCIDENTS = Path(__file__).parent / "fixtures" / "incidents"
FAILED = ("ecc-on-one-of-two-hosts", "keyerror-one-of-64", "cuda-oom-one-rank-late", "disk-full-ds-save")
Post = Callable[..., Any]


def seed(post: Post, jobs: tuple[str, ...] = FAILED, **headers: str) -> dict[str, str]:
    """Hands jobs in, one after the other; returns the ids of their diagnoses by name."""
    made: dict[str, str] = {}
    now = int(time.time())
    for number, name in enumerate(jobs):
        began, ended = now - 90_000 * (number + 1), now - 90_000 * (number + 1) + 5_400 * (number + 1)
        folder = str((INCIDENTS / name).resolve())
        body = {
            "job_id": f"{4711 + number}",
            "name": name,
            "user": "ada",
            "cluster": "qx",
            "gpus": 8 * (number + 1),
            "started_at": _iso(began),
            "ended_at": _iso(ended),
            "logs": [{"path": folder}],
        }
        answer = post("/v1/diagnoses", json=body, headers={"Prefer": "wait=60", **headers})
        assert answer.status_code == 200, answer.text
        made[name] = answer.headers["diagnosis-id"]
    return made


def _iso(seconds: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def propose(database: Database, id: str = "learnt-shelves", author: str = "agent:frequency") -> None:
    """A new filter rule, and one by the name of a shipped rule."""
    rules = load_rules()
    new = replace(rules.filters[0], id=id, examples=FilterExamples(("shelf 0 holds 0 crates",), ("shelf 0 fell",)))
    changed: FilterRule = replace(rules.filters[1], title="Something else")
    for rule in (new, changed):
        StoredCandidates(database).add(
            FilterCandidate(rule, Fingerprint("train-b", "train:1", "torch"), author, hits=41)
        )


def put(app: Any, report: Report, job_id: str, **job: Any) -> str:
    """A job with this report, as if a worker had made it; returns the id of its diagnosis."""
    database = app.state.running.opening.database()
    row, _ = Submissions(database).accept(NewJob(job_id=job_id, **job))
    claim = Claims(database).claim(row.id, "test", 3)
    assert claim is not None
    assert Claims(database).finish(claim, outcome_of(report))
    return str(row.id)


_VOID = {"meta", "link", "input", "path", "rect", "circle", "img", "br", "hr"}


class Page(HTMLParser):
    """A page as a reader's program sees it: elements in order, and what is wrong with them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.open: list[int] = []
        self.texts: dict[int, str] = {}
        self.wrong: list[str] = []
        self.feed(text)
        self.close()
        self.wrong += [f"never closed: {self.elements[one][0]}" for one in self.open]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in _VOID:
            self.open.append(len(self.elements) - 1)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.elements[self.open[-1]][0] != tag:
            self.wrong.append(f"closed out of turn: {tag}")
        else:
            self.open.pop()

    def handle_data(self, data: str) -> None:
        for one in self.open:
            self.texts[one] = self.texts.get(one, "") + data

    def all(self, tag: str) -> list[dict[str, str]]:
        return [attributes for name, attributes in self.elements if name == tag]

    def text(self, tag: str) -> list[str]:
        return [
            " ".join(self.texts.get(number, "").split())
            for number, (name, _) in enumerate(self.elements)
            if name == tag
        ]

    def shape(self) -> list[tuple[str, tuple[str, ...]]]:
        """The elements and the names of their attributes, whatever the texts."""
        return [(tag, tuple(attributes)) for tag, attributes in self.elements]

    def problems(self) -> list[str]:
        """What keeps readers out, and what a strict policy of content would refuse."""
        found = list(self.wrong)
        ids = [attributes["id"] for _, attributes in self.elements if "id" in attributes]
        found += [f"id twice: {one}" for one in {one for one in ids if ids.count(one) > 1}]
        labelled = {attributes.get("for") for attributes in self.all("label")}
        levels = [int(tag[1]) for tag, _ in self.elements if tag in ("h1", "h2", "h3", "h4")]
        found += ["not one h1"] if levels.count(1) != 1 else []
        found += [f"h{a} before h{b}" for a, b in pairwise(levels) if b > a + 1]
        for number, (tag, attributes) in enumerate(self.elements):
            shown = f"{tag} {attributes}"
            found += [f"inline: {shown}" for name in attributes if name == "style" or name.startswith("on")]
            if tag == "style" or (tag == "script" and (self.texts.get(number) or "src" not in attributes)):
                found.append(f"inline: {shown}")
            for name in ("href", "src", "action"):
                where = attributes.get(name, "/")
                if not where.startswith(("/", "#", "?")) or where.startswith("//"):
                    found.append(f"leads elsewhere: {shown}")
                if where.startswith("#") and where[1:] not in ids:
                    found.append(f"leads nowhere: {shown}")
            for name in ("aria-labelledby", "aria-describedby"):
                found += [f"no {one}: {shown}" for one in attributes.get(name, "").split() if one not in ids]
            named = "aria-label" in attributes or "aria-labelledby" in attributes
            if tag in ("a", "button", "summary") and not (named or self.texts.get(number, "").strip()):
                found.append(f"no name: {shown}")
            if tag in ("input", "select") and attributes.get("type") not in ("hidden", "radio"):
                found += [] if attributes.get("id") in labelled or named else [f"no label: {shown}"]
            if tag == "svg" and not (named or attributes.get("aria-hidden") == "true"):
                found.append(f"no name: {shown}")
            if tag == "section" and not named:
                found.append(f"no name: {shown}")
        found += [] if self.all("html")[0].get("lang") else ["no language"]
        return found
