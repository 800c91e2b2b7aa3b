"""Places that settings name, as messages may repeat them.

In: a path, or an address. Out: words for a message. A setting may hold a password by mistake: what names nothing
that is there is not repeated, nor is an address that is none.
"""

from __future__ import annotations

import os
from urllib.parse import urlsplit

from diagnose.errors import UsageError
from diagnose.sources.printable import printable


def as_known(path: str) -> str:
    """A path of which something is there, else the folder below which it would be."""
    above = path = os.path.abspath(path)
    while not os.path.lexists(above) and os.path.dirname(above) != above:
        above = os.path.dirname(above)
    return printable(path) if above == path else f"below {printable(above)}"


def check_address(name: str, address: str, example: str, instead: str) -> None:
    """Raises `UsageError`, which does not repeat it, where a setting's value is no plain address of a server."""
    try:
        parts = urlsplit(address)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        usable = False
    if not usable or not address.isprintable() or " " in address:
        raise UsageError(f"{name} is no address: give one such as {example}")
    if parts.username is not None or parts.query or parts.fragment:
        raise UsageError(
            f"{name} holds more than an address: leave out user, password, ? and #, and give the key by {instead}"
        )
