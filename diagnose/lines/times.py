"""Times as launchers and schedulers print them.

In: `2026-03-09T04:36:02`, `2024-07-18_09:58:12`, `Thu, 09 Apr 2026 18:40:12 +0000`, ISO with zone. Out: seconds since
the epoch; without a zone they are read as UTC, as everywhere.
"""

from __future__ import annotations

from diagnose.lines.stamps import MONTHS, epoch, offset
from diagnose.patterns import Lazy

_ISO = Lazy(r"(\d{4})-(\d\d)-(\d\d)[T _](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?\s?(Z|[+-]\d\d:?\d\d)?")
_RFC = Lazy(r"(?:\w{3}, )?(\d{1,2}) (\w{3}) (\d{4}) (\d\d):(\d\d):(\d\d)(?: ([+-]\d{4}|GMT|UTC))?")


def read_time(text: str) -> float | None:
    """Seconds since the epoch of the time that `text` begins with, or None."""
    text = text.strip()[:64]
    if match := _ISO.match(text):
        year, month, day, hour, minute, second = (int(part) for part in match.groups()[:6])
        fraction, zone = float(f"0.{match[7]}") if match[7] else 0.0, match[8]
    elif (match := _RFC.match(text)) and match[2] in MONTHS:
        day, year, hour, minute, second = (int(match[part]) for part in (1, 3, 4, 5, 6))
        month, fraction, zone = MONTHS[match[2]], 0.0, match[7]
    else:
        return None
    start = epoch(year, month, day, hour, minute)
    return None if start is None else start + second + fraction - offset(zone)
