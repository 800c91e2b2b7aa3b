"""Every bound and choice of a run, as one frozen object built at the edge and passed down."""

from __future__ import annotations

from diagnose.dataclass import dataclass, field


@dataclass(frozen=True, slots=True)
class Limits:
    """Upper bounds; each is reported when it bites. Sizes in bytes, times in seconds.

    `roots`, where there are any, are the only folders below which files are read, as real paths: links that lead
    elsewhere are refused, and so are pipes, for which a service would wait.
    """

    line_bytes: int = 64 * 1024
    block_bytes: int = 256 * 1024  # what fits a processor's own cache with its lines and templates
    files: int = 20_000
    depth: int = 12
    archive_members: int = 20_000
    archive_depth: int = 3
    expanded_bytes: int = 64 * 1024**3
    expansion_ratio: int = 2_000
    seconds: float = 600.0
    templates: int = 100_000
    record_lines: int = 200
    findings: int = 20_000
    pattern_seconds: float = 0.25
    structured_bytes: int = 64 * 1024 * 1024
    roots: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Settings:
    """Choices of one run. `rules` are directories added to the shipped rules, later ones winning.

    `processes` may compress at once; more than one are forked, which no program with threads should ask for.
    `withheld` are error types that nothing read may name, not even an exception's class: what other stages make of such
    failures is measured so.
    """

    rules: tuple[str, ...] = ()
    compress: bool = True
    processes: int = 1
    withheld: frozenset[str] = frozenset()
    limits: Limits = field(default_factory=Limits)
