"""Bytes with names: files, folders, archives and pipes become inputs that say which rank, host and kind they are."""

from diagnose.sources.collect import collect
from diagnose.sources.inventory import load_inventory

__all__ = ["collect", "load_inventory"]
