"""Incident directories of tests/fixtures as data, and the pipeline run on them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import yaml

from diagnose.models import Report, RuleSet
from diagnose.pipeline import Request, Services, diagnose
from diagnose.settings import Settings

FIXTURES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "fixtures")


@dataclass(frozen=True)
class Incident:
    """One labelled job: its directory and what `expected.yaml` says."""

    folder: str
    expected: dict[str, Any]

    @property
    def name(self) -> str:
        return os.path.basename(self.folder)


def incidents(*kinds: str) -> list[Incident]:
    """All incidents of the given folders of tests/fixtures, by name."""
    found: list[Incident] = []
    for kind in kinds or ("incidents", "healthy", "inconclusive"):
        root = os.path.join(FIXTURES, kind)
        for name in sorted(os.listdir(root)) if os.path.isdir(root) else []:
            path = os.path.join(root, name, "expected.yaml")
            if os.path.exists(path):
                with open(path, encoding="utf-8") as file:
                    found.append(Incident(os.path.join(root, name), yaml.safe_load(file)))
    return found


@contextmanager
def inside(folder: str) -> Iterator[None]:
    """Work in a folder for a while."""
    before = os.getcwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def request_of(arguments: Sequence[str]) -> Request:
    """The request that the command line would make of these arguments."""
    paths: list[str] = []
    kernel: list[str] = []
    scheduler: list[str] = []
    inventory: str | None = None
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        if word == "--kernel-log":
            kernel.append(rest.pop(0))
        elif word == "--scheduler-record":
            scheduler.append(rest.pop(0))
        elif word == "--inventory":
            inventory = rest.pop(0)
        else:
            paths.append(word)
    return Request(paths, kernel, scheduler, inventory)


def run(folder: str, arguments: Sequence[str], rule_set: RuleSet, settings: Settings | None = None) -> Report:
    """The report on a job whose inputs lie in a folder."""
    with inside(folder):
        return diagnose(request_of(arguments), Services(rule_set), settings)
