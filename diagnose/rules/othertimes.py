"""What logs tell of another time than the job's, and what that has to do with the job.

In: the groups of a job, the spans of its attempts, the lines by which kernels start. Out: for a group, whether it lay
before the job and still held when the job met it, and whether its host was started anew since.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from diagnose.lines.timeline import AttemptProgress
from diagnose.models import Line, RuleSet
from diagnose.rules.aggregate import Group

# States that last until somebody mends them: a service that did not start, parts that do not fit each other.
_LASTING = frozenset({"FabricManagerError", "DriverMismatch"})
_REMEMBERED = 86_400.0  # seconds
_AT_ONCE = 600.0  # seconds: a host that starts so soon after a fault was brought down by it
_NOT_THE_JOB = frozenset({"kernel", "scheduler"})
# What a job that met a fault of its host says: its device failed, its peers waited, it was killed.
_OF_A_HOST = frozenset({"cuda", "comm", "hardware", "host", "node", "network"})


class OtherTimes:
    """Answers for the groups of one job."""

    def __init__(
        self,
        groups: Sequence[Group],
        attempts: Mapping[int, AttemptProgress],
        boots: Sequence[Line],
        rule_set: RuleSet,
    ) -> None:
        self._attempts = attempts
        self._boots = boots
        own = [group.sighting for group in groups if group.sighting.line.source.kind not in _NOT_THE_JOB]
        self._met = {(sighting.rule.id if sighting.rule else None, sighting.error_type) for sighting in own}
        families = {entry.family for one in own if (entry := rule_set.taxonomy.get(one.error_type)) is not None}
        self._hurt = bool(families & _OF_A_HOST)
        self._dated = any(progress.started is not None for progress in attempts.values())

    def lasts(self, group: Group) -> bool:
        """Whether a host's state that was told before the job is the one that the job met: by its own words as well."""
        sighting = group.sighting
        met = (sighting.rule.id if sighting.rule else None, sighting.error_type) in self._met
        if not met or sighting.error_type not in _LASTING or group.last is None or self._booted(group) is not None:
            return False
        started = min((p.started for p in self._attempts.values() if p.started is not None), default=None)
        return started is not None and 0 <= started - group.last <= _REMEMBERED

    def mended(self, group: Group) -> bool:
        """Whether a kernel's fault lies before its host's next start, and nothing ties it to the job.

        Where the job's own lines bear times, these decide; where they tell of a fault of a machine, it may be this one.
        """
        if group.sighting.line.source.kind != "kernel" or self._dated or self._hurt:
            return False
        boot = self._booted(group)
        if boot is None:
            return False
        return boot.time is None or group.last is None or boot.time - group.last > _AT_ONCE

    def _booted(self, group: Group) -> Line | None:
        """The first start of the host after what a group tells, in the same log."""
        line = group.sighting.line
        later = (
            boot
            for boot in self._boots
            if boot.source.name == line.source.name and boot.host == line.host and boot.number > group.span[1]
        )
        return min(later, key=lambda boot: boot.number, default=None)
