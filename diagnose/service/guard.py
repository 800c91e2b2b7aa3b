"""Which addresses a service may reach on the word of strangers: none that is private, unless its keeper said so.

In: a URL. Out: `Target`: the very address to connect to, so that a name cannot lead elsewhere after it was checked.
Raises `Refused`.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from diagnose.dataclass import dataclass
from diagnose.service.paths import Refused

Resolve = Callable[[str, int], Sequence[str]]
_NAT64 = ipaddress.ip_network("64:ff9b::/96")  # what stands behind is an address of the old kind
_UNICAST = ipaddress.ip_network("2000::/3")
_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Target:
    """Where to connect: `url` names the checked address, `host` is the name that certificates and headers bear."""

    url: str
    host: str
    name: str


def resolved(host: str, port: int) -> list[str]:
    """All addresses of a name. Raises `OSError`."""
    return list(dict.fromkeys(str(found[4][0]) for found in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)))


def target_of(url: str, allow: Sequence[str], resolve: Resolve = resolved) -> Target:
    """Where a URL leads, if a service may go there: every address that its name has must be one."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise Refused("that is no address") from None
    if parts.scheme not in _PORTS or not parts.hostname or parts.username is not None:
        raise Refused("an address must be http(s)://host/... without user and password")
    name, port = parts.hostname, port or _PORTS[parts.scheme]
    try:
        addresses = resolve(name, port)
    except (OSError, UnicodeError):
        raise Refused(f"{name} has no address") from None
    networks = [ipaddress.ip_network(one) for one in allow]
    for address in addresses:
        if not _public(address, networks):
            raise Refused(f"{name} leads to {address}, which is not public; DIAGNOSE_WEBHOOK_ALLOW may allow it")
    if not addresses:
        raise Refused(f"{name} has no address")
    shown = f"[{addresses[0]}]" if ":" in addresses[0] else addresses[0]
    default = port == _PORTS[parts.scheme]
    host = f"[{name}]" if ":" in name else name
    return Target(
        urlunsplit((parts.scheme, f"{shown}:{port}", parts.path or "/", parts.query, "")),
        host if default else f"{host}:{port}",
        name,
    )


def _public(address: str, networks: Sequence[Any]) -> bool:
    """Whether an address is one of the public network, or of one that is allowed."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    inner = getattr(found, "ipv4_mapped", None) or getattr(found, "sixtofour", None)
    if found in _NAT64:
        inner = ipaddress.ip_address(int(found) & 0xFFFFFFFF)
    if inner is not None:
        found = inner
    if any(found.version == network.version and found in network for network in networks):
        return True
    if found.version == 6 and found not in _UNICAST:  # what translators and old standards hide others' addresses in
        return False
    return found.is_global and not found.is_multicast
