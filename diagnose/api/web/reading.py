"""A kept report, as far as a page shows more of it than the first screen.

In: `diagnose.report/v1` as JSON text. Out: `Kept`, checked.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class Line(_Part):
    """A line that proves something, and those around it."""

    source: str
    line: int | None
    text: str
    time: str | None = None
    rank: int | None = None
    host: str | None = None
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()


class Link(_Part):
    """A step from the cause to the last symptom."""

    error_type: str
    role: str
    count: int
    first: Line
    rule: str | None = None
    explained_by: str | None = None
    ranks: tuple[int, ...] = ()


class Cause(_Part):
    """The root cause."""

    summary: str
    evidence: tuple[Line, ...]


class Coverage(_Part):
    """What was read."""

    ranks_seen: int | None = None
    ranks_expected: int | None = None


class Kept(_Part):
    """A report."""

    status: str
    error_type: str | None
    root_cause: Cause | None
    chain: tuple[Link, ...]
    coverage: Coverage


def kept(report: str) -> Kept:
    """The report of a JSON text."""
    return Kept.model_validate_json(report)
