"""`/v1/rules`, `/v1/taxonomy`, `/v1/policy`: what the service knows.

In: requests. Out: rules, error types, policy, as they are used. They need no database: they are there when it is away.
"""

from __future__ import annotations

import functools
from typing import Annotated, Any

from fastapi import APIRouter, Path, Request

from diagnose.api import schemas
from diagnose.api.auth import Reader
from diagnose.api.problems import ProblemError
from diagnose.api.routes.common import problems, running_of
from diagnose.dataclass import fields, is_dataclass
from diagnose.models import RuleSet
from diagnose.rules.bundle import load_bundled

router = APIRouter(prefix="/v1", tags=["knowledge"])


@functools.lru_cache(4)
def known_rules(dirs: tuple[str, ...]) -> RuleSet:
    """The rules of a service, read once."""
    return load_bundled(dirs)


def plain(value: object) -> Any:
    """A rule as JSON has it, without what is empty."""
    if is_dataclass(value) and not isinstance(value, type):
        made = {each.name: plain(getattr(value, each.name)) for each in fields(value)}
        return {name: item for name, item in made.items() if item not in (None, [], {}, "")}
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value if isinstance(value, (str, int, float, bool)) or value is None else str(value)


@router.get("/rules", response_model=schemas.RuleList, responses=problems())
def rules(request: Request, _caller: Reader) -> schemas.RuleList:
    """All diagnosis rules."""
    known = known_rules(running_of(request).config.rules)
    items = [
        schemas.RuleItem(id=one.id, title=one.title, error_type=one.error_type, status=one.status, role=one.role)
        for one in known.diagnoses
    ]
    return schemas.RuleList(ruleset=known.version, items=items)


@router.get("/rules/{id}", response_model=schemas.Rule, responses=problems(404))
def rule(request: Request, _caller: Reader, id: Annotated[str, Path(max_length=200)]) -> schemas.Rule:
    """One diagnosis rule."""
    for one in known_rules(running_of(request).config.rules).diagnoses:
        if one.id == id:
            return schemas.Rule(
                id=one.id,
                title=one.title,
                error_type=one.error_type,
                status=one.status,
                role=one.role,
                body=plain(one),
            )
    raise ProblemError(404, f"there is no rule {id[:100]!r}: GET /v1/rules lists them")


@router.get("/taxonomy", response_model=schemas.Taxonomy, responses=problems())
def taxonomy(request: Request, _caller: Reader) -> schemas.Taxonomy:
    """All error types."""
    known = known_rules(running_of(request).config.rules).taxonomy
    return schemas.Taxonomy(
        items=[
            schemas.ErrorTypeItem(
                name=one.name,
                family=one.family,
                category=one.category,
                attribution=one.attribution,
                meaning=one.meaning,
                symptom=one.symptom,
            )
            for one in known.values()
        ]
    )


@router.get("/policy", response_model=schemas.Policy, responses=problems())
def policy(request: Request, _caller: Reader) -> schemas.Policy:
    """Which action follows from which verdict."""
    known = known_rules(running_of(request).config.rules)
    return schemas.Policy(rows=[plain(row) for row in known.policy], budgets=plain(known.budgets))
