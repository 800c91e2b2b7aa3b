"""The README's example: what it shows is what the command prints.

To bring the README up to date run the command behind its marker `main` and put the output behind `output`.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.commandline import ROOT, Outcome, caller

README = Path(ROOT, "README.md").read_text("utf-8")


def behind(marker: str) -> str:
    """The block behind a marker `<!-- marker -->`."""
    return README.split(f"<!-- {marker} -->\n\n", 1)[1].split("\n\n", 1)[0]


def without_seconds(text: str) -> str:
    """The output without the one figure that differs between runs."""
    return re.sub(r"\d+\.\d s\b", "0.1 s", text)


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Outcome]:
    """The command line within this process, in the project's root."""
    monkeypatch.chdir(ROOT)
    monkeypatch.delenv("COLUMNS", raising=False)
    return caller(capsys, monkeypatch)


def test_the_example_prints_what_the_readme_shows(call: Callable[..., Outcome]) -> None:
    command = shlex.split(behind("main").split("&& ")[-1])
    assert command[0] == ".venv/bin/diagnose"
    outcome = call(*command[1:])
    assert outcome.code == 0
    shown = behind("output").removeprefix("```text\n").removesuffix("\n```")
    assert without_seconds(outcome.out).rstrip("\n") == without_seconds(shown)


@pytest.mark.parametrize("link", sorted(set(re.findall(r"\]\((?!https?:)([^)#]+)", README))))
def test_links_lead_somewhere(link: str) -> None:
    assert os.path.exists(os.path.join(ROOT, link))
