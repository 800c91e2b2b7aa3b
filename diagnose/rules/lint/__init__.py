"""Lint: every check that a rule set must pass before people rely on it.

In: a rule set, or directories. Out: problems, each with file, line and the name of the check. A check is a small class
with `validate(rule)` and `finalize()`; the list below is the table of contents.
"""

from diagnose.rules.lint.run import CHECKS, lint, lint_paths

__all__ = ["CHECKS", "lint", "lint_paths"]
