"""Bytes with names: files, folders, archives and pipes become inputs that say which rank, host and kind they are."""

from __future__ import annotations

from collections.abc import Sequence

from diagnose.models import Unit
from diagnose.settings import Limits
from diagnose.sources.collect import collect
from diagnose.sources.walk import Left, find

__all__ = ["collect", "files_of", "load_inventory"]


def files_of(paths: Sequence[str], limits: Limits | None = None) -> list[str]:
    """Return the paths of all files behind files, globs and folders, as `collect` would open them."""
    return [found.path for found in find([(path, "job") for path in paths], limits or Limits(), Left())]


def load_inventory(path: str, limits: Limits | None = None) -> tuple[Unit, ...]:
    """Return the units that an inventory file lists; `inventory.load_inventory` states the format and the errors."""
    from diagnose.sources.inventory import load_inventory as load  # few runs are given one

    return load(path, limits)
