"""Slurm and pdsh host lists: `gx-[014,016-018]` to the hosts it names, and back-ends' short names.

In: the text of a host list. Out: host names in the list's order, never more than a bound.
"""

from __future__ import annotations

from diagnose.patterns import Lazy

MAX_HOSTS = 4096

_PIECE = Lazy(r"[^,\[\]]+|\[[^\[\]]*\]|,")
_NAME = Lazy(r"[A-Za-z0-9][A-Za-z0-9._:-]*\Z")
_IPV4 = Lazy(r"\d{1,3}(?:\.\d{1,3}){3}\Z")


def expand_hostlist(text: str, limit: int = MAX_HOSTS) -> tuple[str, ...]:
    """The hosts that a list such as `n[01-03],login1` or `r[1-2]c[0-1]` names, in its order, at most `limit`.

    A text that is no host list gives no hosts: what is not understood names nobody.
    """
    text = text.strip().strip("'\"")
    if not text or len(text) > 65536 or text.count("[") != text.count("]"):
        return ()
    hosts: dict[str, None] = {}
    for item in _split_items(text):
        for name in _expand_item(item, limit - len(hosts)):
            if not _NAME.match(name):
                return ()
            hosts[name] = None
        if len(hosts) >= limit:
            break
    return tuple(hosts)


def short_name(host: str) -> str:
    """`gx-043.cluster.local` without its domain; addresses stay whole."""
    if _IPV4.match(host) or ":" in host:
        return host
    return host.partition(".")[0] or host


def is_address(host: str) -> bool:
    """Whether this is an IPv4 or IPv6 address and not a name."""
    return _IPV4.match(host) is not None or host.count(":") > 1


def _split_items(text: str) -> list[str]:
    """Cut at the commas outside brackets."""
    items: list[str] = []
    current = ""
    for piece in _PIECE.findall(text):
        if piece == ",":
            items.append(current)
            current = ""
        else:
            current += piece
    items.append(current)
    return [item.strip() for item in items if item.strip()]


def _expand_item(item: str, limit: int) -> list[str]:
    """One item with any number of bracket groups; the product is cut at `limit`."""
    names = [""]
    for piece in _PIECE.findall(item):
        parts = _expand_range(piece[1:-1], limit) if piece.startswith("[") else [piece]
        names = [name + part for name in names for part in parts[: max(1, limit)]][: max(0, limit)]
    return names


def _expand_range(text: str, limit: int) -> list[str]:
    """`014,016-018` to its numbers with their leading zeros; no numbers where it is not such a list."""
    numbers: list[str] = []
    for part in text.split(","):
        low, dash, high = part.strip().partition("-")
        if not (low.isascii() and low.isdigit()) or len(low) > 12:
            return []
        if not dash:
            numbers.append(low)
        elif high.isascii() and high.isdigit() and len(high) <= 12:
            last = min(int(high), int(low) + limit)
            numbers.extend(str(number).zfill(len(low)) for number in range(int(low), last + 1))
        else:
            return []
        if len(numbers) >= limit:
            return numbers[: max(0, limit)]
    return numbers
