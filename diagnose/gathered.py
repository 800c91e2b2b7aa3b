"""What all sources of a job add to while they are read.

In: the rules and settings of a run. Out: `Gathered`: the readers that look across sources, and what reading came to.
"""

from __future__ import annotations

from collections.abc import Callable

from diagnose.dataclass import dataclass, field
from diagnose.lines import Calendar
from diagnose.lines.attempts import AttemptTracker
from diagnose.lines.inventory import Inventory
from diagnose.lines.jobs import JobNumbers
from diagnose.lines.progress import ProgressReader
from diagnose.lines.timeline import Timeline
from diagnose.models import CompressionCounts, Line, LogSource, Record, RuleSet, SourceCoverage
from diagnose.prepared import Prepared
from diagnose.rules.aggregate import Aggregator
from diagnose.rules.matcher import Matcher
from diagnose.settings import Settings


@dataclass(slots=True)
class Cost:
    """What reading cost, in bytes and lines."""

    bytes: int = 0
    lines: int = 0
    kept: int = 0
    dropped: int = 0
    evicted: int = 0


@dataclass(slots=True)
class Covered:
    """What was read, and in words what was not.

    `kernel_hosts` are the hosts whose kernel logs were; `numbers` turn the line numbers of a source that was not read
    from beginning to end into those of the file, None where they are not known.
    """

    sources: list[SourceCoverage] = field(default_factory=list)
    not_read: list[str] = field(default_factory=list)
    kernel_hosts: set[str] = field(default_factory=set)
    numbers: dict[str, Callable[[int], int | None]] = field(default_factory=dict)


class Gathered:
    """What all sources of one job add to; `hear` are told every line, `recorded` every record of a scheduler.

    `prepared` is what was made of these rules before, where somebody has it.
    """

    def __init__(
        self,
        rules: RuleSet,
        settings: Settings,
        hear: tuple[Callable[[Line], None], ...] = (),
        recorded: Callable[[Record], None] | None = None,
        prepared: Prepared | None = None,
    ) -> None:
        if prepared is None or prepared.rules is not rules or prepared.compress != settings.compress:
            prepared = Prepared(rules, compress=settings.compress)
        self.prepared = prepared
        families = {name: entry.family for name, entry in rules.taxonomy.items()}
        self.settings = settings
        self.hear = hear
        self.recorded = recorded
        self.groups = Aggregator(settings.limits, families)
        self.matcher = Matcher(rules, self.groups, settings.limits, prepared.gate)
        if settings.withheld:
            from diagnose.rules.without import Withheld

            self.matcher.sink = Withheld(self.groups, settings.withheld)
        self.guard, self.interests = prepared.guard, prepared.interests
        self.progress = ProgressReader(rules.filters)
        self.inventory = Inventory()
        self.jobs = JobNumbers()
        self.timeline = Timeline()
        self.calendar = Calendar()
        self.trackers: dict[str, AttemptTracker] = {}
        self.notes: list[str] = []
        self.cost = Cost()
        self.coverage = Covered()

    def account(
        self, source: LogSource, tracker: AttemptTracker, counts: CompressionCounts, *, truncated: bool
    ) -> None:
        """Notes what one source has come to."""
        if truncated:
            self.timeline.truncated.add(source.name)
        self.trackers[source.name] = tracker
        self.cost.lines += counts.lines
        self.cost.kept += counts.kept
        self.cost.dropped += counts.dropped + counts.collapsed
        self.cost.evicted += counts.evicted_templates
        cut = truncated or counts.truncated > 0
        self.coverage.sources.append(SourceCoverage(source.name, source.kind, counts.lines, cut))
