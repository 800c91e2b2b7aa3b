"""Bytes with names: files, folders, archives and pipes become inputs that say which rank, host and kind they are."""

from __future__ import annotations

from diagnose.models import Unit
from diagnose.settings import Limits
from diagnose.sources.collect import collect

__all__ = ["collect", "load_inventory"]


def load_inventory(path: str, limits: Limits | None = None) -> tuple[Unit, ...]:
    """Return the units that an inventory file lists; `inventory.load_inventory` states the format and the errors."""
    from diagnose.sources.inventory import load_inventory as load  # few runs are given one

    return load(path, limits)
