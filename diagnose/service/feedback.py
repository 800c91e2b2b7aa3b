"""What people say of a verdict.

In: an incident and what is said of it. Out: the incident as it is then. Raises `UsageError` for an unknown error type.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from diagnose.errors import UsageError
from diagnose.models import Incident
from diagnose.rules.bundle import load_bundled
from diagnose.service.settings import ServiceConfig
from diagnose.store.database import Database
from diagnose.store.incidents import confirm, correct, tell_outcome


def say(database: Database, config: ServiceConfig, incident: str, said: Mapping[str, Any], *, by: str) -> Incident:
    """Takes down feedback: `kind` is `confirm`, `correct` or `outcome`."""
    if said["kind"] == "outcome":
        return tell_outcome(database, incident, recovered=said["recovered"], by=by, note=said["note"])
    if said["kind"] == "confirm":
        return confirm(database, incident, recovered=said["recovered"], by=by, note=said["note"])
    known = load_bundled(config.rules).taxonomy
    entry = known.get(said["error_type"])
    if entry is None:
        raise UsageError(f"there is no error type {said['error_type'][:100]!r}: GET /v1/taxonomy lists them")
    return correct(
        database,
        incident,
        error_type=entry.name,
        attribution=said["attribution"] or entry.attribution,
        recovered=said["recovered"],
        by=by,
        note=said["note"],
    )
