"""A sighting: one place in one source where a rule, or a record by itself, says that something happened.

In: nothing. Out: `Sighting`, the unit that `matcher` makes and `aggregate` gathers into findings.
"""

from __future__ import annotations

from collections.abc import Mapping

from diagnose.dataclass import dataclass, field
from diagnose.models import Line
from diagnose.models.rule import DiagnosisRule, Role
from diagnose.rules.captures import Value


@dataclass(slots=True)
class EvidenceDraft:
    """An evidence line with the lines around it, still being gathered while the source is read."""

    line: Line
    before: tuple[str, ...] = ()
    after: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Sighting:
    """One sighting. `place` tells apart what one rule sees at different places (an exception's type and code line).

    `attempt` counts within the source. `also` are further lines that belong to the same fact. `over` is the line that
    says it was over again (a link is up, a server answers).
    """

    rule: DiagnosisRule | None
    signature: str
    error_type: str
    role: Role
    survivable: bool
    line: Line
    attempt: int
    captures: Mapping[str, Value]
    place: str = ""
    also: tuple[Line, ...] = ()
    over: Line | None = None

    @property
    def rank(self) -> int | None:
        """The rank it happened on, as captured or as the line's prefix says."""
        value = self.captures.get("rank")
        return value if isinstance(value, int) else self.line.rank

    @property
    def host(self) -> str | None:
        """The host it happened on, as captured or as the line's prefix says."""
        value = self.captures.get("host")
        return value if isinstance(value, str) else self.line.host

    @property
    def gpu(self) -> str | None:
        """The GPU it happened on: a PCI id, or a local index."""
        value = self.captures.get("gpu")
        return str(value) if value is not None else self.line.gpu
