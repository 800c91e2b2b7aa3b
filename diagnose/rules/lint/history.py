"""Checks against what Git knows: a rule that changed says when.

In: rules in a Git checkout. Out: problems `modified`; outside a checkout, or without git, none.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from datetime import date
from functools import cached_property

from diagnose.errors import Problem
from diagnose.rules.decode import decode
from diagnose.rules.lint.base import Check, Rule


class ModifiedIsKept(Check):
    """`modified` changes with the content: a rule that differs from HEAD has a new `modified`, or today's date."""

    name = "modified"

    def validate(self, rule: Rule) -> Iterator[Problem]:
        path = os.path.realpath(self.context.rule_set.paths[rule.id])
        if path not in self._changed:
            return
        data = _git(os.path.dirname(path), "show", f"HEAD:./{os.path.basename(path)}")
        if data is None:
            return
        before, _ = decode(data, path, type(rule))
        if before is None or before == rule or before.id != rule.id:
            return
        today = date.today().isoformat()  # noqa: DTZ011 # the author's day, as written in the file
        dates = (rule.created, rule.modified)
        if (before.created, before.modified) == dates and today not in dates:
            yield self.problem(
                rule, "modified" if rule.modified else "created", f"the content changed; set `modified: {today}`"
            )

    @cached_property
    def _changed(self) -> frozenset[str]:
        """Files that differ from HEAD."""
        found: set[str] = set()
        for root in self.context.roots:
            top = _git(root, "rev-parse", "--show-toplevel")
            names = _git(root, "diff", "--name-only", "--no-ext-diff", "--no-textconv", "-z", "HEAD", "--", ".")
            if top is not None and names is not None:
                base = os.fsdecode(top.rstrip(b"\n"))
                found |= {
                    os.path.realpath(os.path.join(base, os.fsdecode(name))) for name in names.split(b"\0") if name
                }
        return frozenset(found)


def _git(folder: str, *arguments: str) -> bytes | None:
    """What git prints; None when there is no git, no checkout, or no HEAD. Runs no hook, pager or external program."""
    program = shutil.which("git")
    if program is None:
        return None
    command = [program, "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "--no-pager", *arguments]
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, timeout=20, check=False)  # noqa: S603 # fixed words
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout if done.returncode == 0 else None
