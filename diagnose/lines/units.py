"""The one way to write a PCI address, so that every source's spelling names the same GPU.

In: any spelling (`9B:00`, `PCI:0000:9b:00.0`, `00000000:9B:00.0`, NCCL's busId `9b000`). Out: `0000:9b:00`.
"""

from __future__ import annotations

import re

from diagnose.patterns import Lazy

_PCI = Lazy(r"(?:PCI:)?\s*(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}):([0-9a-f]{2})(?:\.[0-7])?\Z", re.IGNORECASE)
_BUS_ID = Lazy(r"(?:0x)?([0-9a-f]{4,12})\Z", re.IGNORECASE)


def normalise_pci(text: str) -> str:
    """`domain:bus:device` in lower case without the function digit; a text that is no PCI address comes back as is.

    NCCL prints `busId` as one hexadecimal number: domain, bus (two digits), device (two digits), function (one).
    """
    text = text.strip().strip("()[],;").rstrip(".:")
    if (match := _PCI.match(text)) is not None:
        domain, bus, device = match.groups()
        return f"{int(domain or '0', 16):04x}:{bus}:{device}".lower()
    if (match := _BUS_ID.match(text)) is not None:
        number = int(match.group(1), 16)
        return f"{number >> 20:04x}:{number >> 12 & 0xFF:02x}:{number >> 4 & 0xFF:02x}"
    return text


def is_pci(text: str) -> bool:
    """Whether this is a normalised PCI address."""
    return _NORMAL.match(text) is not None


_NORMAL = Lazy(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\Z")
