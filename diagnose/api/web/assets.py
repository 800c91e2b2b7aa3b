"""The style, the script and the picture of the pages: files of the package, under names that change with them.

In: a name. Out: bytes and their media type; the address of a file bears its digest, so it may be kept for good.
"""

from __future__ import annotations

import os
from hashlib import sha256
from typing import Final

from diagnose.dataclass import dataclass

_FOLDER: Final = os.path.join(os.path.dirname(__file__), "static")
_MEDIA: Final = {
    "site.css": "text/css; charset=utf-8",
    "site.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}


@dataclass(frozen=True, slots=True)
class Asset:
    """One file."""

    data: bytes
    media: str
    digest: str


def _read(name: str) -> Asset:
    with open(os.path.join(_FOLDER, name), "rb") as file:
        data = file.read()
    return Asset(data, _MEDIA[name], sha256(data).hexdigest()[:16])


ASSETS: Final = {name: _read(name) for name in _MEDIA}


def address(name: str) -> str:
    """Where a page finds a file."""
    return f"/static/{name}?v={ASSETS[name].digest}"
