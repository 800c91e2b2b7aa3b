"""What lies beside the rules in a checkout: logs of healthy runs, and the lines that prove the bundled incidents.

In: a directory of fixtures (`healthy/`, `incidents/<id>/expected.yaml`). Out: paths, lines, known noise. Outside a
checkout everything is empty, and the checks that need it say nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import yaml

from diagnose.rules.lint.base import Labelled, log_files, read_log

NOISE_FILE: Final = "noise.yml"
_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True, slots=True)
class Fixtures:
    """The fixtures of a checkout; `noise` is how many healthy lines each rule is known to find."""

    healthy: tuple[str, ...] = ()
    evidence: tuple[tuple[str, str], ...] = ()
    noise: Mapping[str, int] | None = None


def read_fixtures(root: str) -> Fixtures:
    """Read the fixtures below a directory; a directory that is not there gives none."""
    healthy = os.path.join(root, "healthy")
    known = _yaml(os.path.join(healthy, NOISE_FILE))
    return Fixtures(
        healthy=log_files(healthy),
        evidence=tuple(_evidence(os.path.join(root, "incidents"))),
        noise={str(rule): int(count) for rule, count in known.items() if isinstance(count, int)},
    )


def read_incidents(root: str) -> tuple[Labelled, ...]:
    """The labelled jobs below a directory of fixtures, without those that are known to be missed."""
    found: list[Labelled] = []
    for group in ("incidents", "healthy", "inconclusive"):
        folder = os.path.join(root, group)
        for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else ():
            label = _yaml(os.path.join(folder, name, "expected.yaml"))
            if not label.get("inputs") or not label.get("status") or label.get("known_miss"):
                continue
            found.append(
                Labelled(
                    os.path.join(folder, name),
                    tuple(map(str, label["inputs"])),
                    str(label["status"]),
                    (label.get("error_type"), *(label.get("accept") or ())),
                    (label.get("attribution"), *(label.get("accept_attribution") or ())),
                )
            )
    return tuple(found)


def write_noise(root: str, findings: Sequence[tuple[str, str, int, str]]) -> str:
    """Accept what rules find in healthy logs: write how many lines each does, and return the file's path."""
    counts: dict[str, int] = {}
    for rule, *_ in findings:
        counts[rule] = counts.get(rule, 0) + 1
    path = os.path.join(root, "healthy", NOISE_FILE)
    head = "# Lines of these logs that rules find and the engine sets aside; lint fails when a number rises.\n"
    with open(path, "w", encoding="utf-8") as file:
        file.write(head + "".join(f"{rule}: {count}\n" for rule, count in sorted(counts.items())))
    return path


def _evidence(root: str) -> Iterator[tuple[str, str]]:
    """Every line that an incident's `expected.yaml` names as evidence, as (where, line)."""
    for name in sorted(os.listdir(root)) if os.path.isdir(root) else ():
        folder = os.path.join(root, name)
        lines: dict[str, list[str]] = {}
        for entry in _yaml(os.path.join(folder, "expected.yaml")).get("evidence") or ():
            source, number = entry.get("source"), entry.get("line")
            path = os.path.join(folder, str(source))
            if not isinstance(number, int) or not os.path.isfile(path):
                continue  # a member of an archive, or a record without lines
            if path not in lines:
                lines[path] = read_log(path).split("\n")
            if 0 < number <= len(lines[path]):
                yield f"{name}/{source}:{number}", lines[path][number - 1].removesuffix("\r")


def _yaml(path: str) -> Mapping[str, Any]:
    """A YAML mapping of the checkout; empty where there is no such file."""
    try:
        with open(path, encoding="utf-8") as file:
            found = yaml.load(file, Loader=_LOADER)  # noqa: S506 # a safe loader, the fast one where there is one
    except (OSError, yaml.YAMLError, UnicodeDecodeError):
        return {}
    return found if isinstance(found, Mapping) else {}
