"""Explained verdicts on failed GPU training jobs.

    from diagnose import diagnose
    report = diagnose(["job.log"], kernel_logs=["gx-043.kernel.log"])

`diagnose` reads what a job left behind and returns a `Report`; `Report` is what every rendering shows.
"""

from __future__ import annotations

# Nothing is imported before it is asked for: the command line wants to be at hand for Ctrl-C first.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from diagnose.errors import DiagnoseError, LimitExceeded, RuleError, SourceError, UsageError
    from diagnose.models import Report
    from diagnose.settings import Limits, Settings

__all__ = ["DiagnoseError", "LimitExceeded", "Limits", "RuleError", "Settings", "SourceError", "UsageError", "diagnose"]


def diagnose(
    paths: str | Sequence[str],
    *,
    kernel_logs: Sequence[str] = (),
    scheduler_records: Sequence[str] = (),
    inventory: str | None = None,
    settings: Settings | None = None,
) -> Report:
    """Diagnose one job from its inputs: files, globs, directories or archives.

    Raises `SourceError` where nothing can be read, `RuleError` where a site's rules are unusable, `UsageError` where
    the inventory is.
    """
    from diagnose.pipeline import Request, Services
    from diagnose.pipeline import diagnose as run
    from diagnose.rules.bundle import load_bundled
    from diagnose.settings import Settings

    settings = settings or Settings()
    request = Request([paths] if isinstance(paths, str) else list(paths), kernel_logs, scheduler_records, inventory)
    return run(request, Services(load_bundled(settings.rules)), settings)


def __getattr__(name: str) -> object:
    """Give a public name, from its module."""
    if name in __all__:
        from diagnose import errors, settings

        return getattr(settings if name in ("Limits", "Settings") else errors, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
