"""Time stamps in; seconds since the epoch out.

Stamps without a zone are read as UTC. A stamp without a year takes the year that puts it nearest to the last time
read in the same source, else the calendar's; one without a date takes the day of the last time read.
"""

from __future__ import annotations

import re

from diagnose.patterns import Lazy

ISO = (
    r"([0-9]{4}[-/][0-9]{2}[-/][0-9]{2}(?:[ T_:-]| {2,3})[0-9]{2}:[0-9]{2}):([0-9]{2})"
    r"(?:[.,:]([0-9]{1,9}))?(?: ?(Z|UTC|GMT|[+-][0-9]{2}:?[0-9]{2})\b)?"
)
DAYS = r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)"
WEEKDAYS = frozenset(("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"))
MONTHS = {
    name: number
    for number, name in enumerate(
        ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"), start=1
    )
}
_MONTH = "(" + "|".join(MONTHS) + ")"
_CLOCK = r"([0-9]{1,2}):([0-9]{2}):([0-9]{2})(?:[.,]([0-9]{1,9}))?"
LOCALE = (
    rf"{DAYS},?\s{{1,2}}(?:{_MONTH}\s{{1,2}}([0-9]{{1,2}})|([0-9]{{1,2}})\s{_MONTH}\s([0-9]{{4}})),?\s{_CLOCK}"
    r"(?:\s([AP]M))?(?:\s([A-Z]{2,5}|[+-][0-9]{2}:?[0-9]{2}))?(?:\s([0-9]{4}))?"
)
SYSLOG = rf"{_MONTH}\s{{1,2}}([0-9]{{1,2}})\s(?:([0-9]{{4}})\s)?{_CLOCK}"

_YEAR = Lazy(rb"(?:\b|_)((?:20[0-4][0-9]))[-/](?:0[1-9]|1[0-2])[-/][0-3][0-9]|:[0-9]{2} (20[0-4][0-9])\b")
_DAY_SECONDS = 86_400
_HALF_YEAR = 183 * _DAY_SECONDS
# Where no input says the year: a leap year that nobody takes for the true one.
_NO_YEAR = 2000
_NO_YEARS = ("1999-", "2000-", "2001-")  # and its neighbours, for a log over New Year
_BEFORE_MONTH = (0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334)
_MONTH_DAYS = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_CACHED_MINUTES = 2048


def epoch(year: int, month: int, day: int, hour: int, minute: int) -> float | None:
    """Seconds since the epoch of a minute in UTC; None where there is no such date or it is not a plausible one."""
    if not (1980 <= year <= 2199 and 1 <= month <= 12 and 1 <= day <= _MONTH_DAYS[month - 1]):
        return None
    if hour > 23 or minute > 59:
        return None
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    if month == 2 and day == 29 and not leap:
        return None
    before = year - 1
    days = before * 365 + before // 4 - before // 100 + before // 400 - 719_162
    days += _BEFORE_MONTH[month - 1] + (1 if leap and month > 2 else 0) + day - 1
    return float(days * _DAY_SECONDS + hour * 3600 + minute * 60)


def offset(zone: str | None) -> int:
    """Seconds east of UTC of `+0100`, `-08:00`, `Z`; names of zones count as UTC, because they are ambiguous."""
    if not zone or zone[0] not in "+-":
        return 0
    digits = zone[1:].replace(":", "")
    seconds = int(digits[:2]) * 3600 + int(digits[2:4]) * 60
    return -seconds if zone[0] == "-" else seconds


def fraction(digits: str | None) -> float:
    """`123` as 0.123."""
    return int(digits) / 10.0 ** len(digits) if digits else 0.0


def from_number(value: float) -> float | None:
    """An epoch number in seconds, milli-, micro- or nanoseconds, told apart by size, as seconds."""
    for _ in range(4):
        if 3e8 <= value < 7.3e9:
            return value
        value /= 1000.0
    return None


def is_dated(stamp: str) -> bool:
    """Whether the year of an ISO stamp made here is one that an input stated."""
    return not stamp.startswith(_NO_YEARS)


class Calendar:
    """What year it is, as far as any input has said; the readers of a job share one, so that each tells the others."""

    def __init__(self, year: int | None = None) -> None:
        self.year = year

    def learn(self, block: bytes) -> None:
        """Take the year from the first dated stamp of `block`, unless it is known."""
        if self.year is None:
            found = _YEAR.search(block)
            if found:
                self.year = int(found.group(1) or found.group(2))


class Clock:
    """Turns the parts of stamps of one source into times; remembers the last, to complete what stamps leave out."""

    def __init__(self, calendar: Calendar | None = None) -> None:
        self.calendar = calendar if calendar is not None else Calendar()
        self.last: float | None = None
        self._minutes: dict[str, float | None] = {}

    def iso(self, minute: str, second: str, digits: str | None, zone: str | None) -> float | None:
        """The time of the groups of `ISO`."""
        start = self._minutes.get(minute, -1.0)
        if start == -1.0:
            year = int(minute[:4])
            start = epoch(year, int(minute[5:7]), int(minute[8:10]), int(minute[-5:-3]), int(minute[-2:]))
            if len(self._minutes) >= _CACHED_MINUTES:
                self._minutes.clear()
            self._minutes[minute] = start
            if start is not None and self.calendar.year is None:
                self.calendar.year = year
        if start is None:
            return None
        time = start + int(second)
        if digits:
            time += int(digits) / 10.0 ** len(digits)
        if zone:
            time -= offset(zone)
        self.last = time
        return time

    def dated(self, year: int, month: int, day: int, clock: tuple[str, str, str, str | None]) -> float | None:
        """The time of a full date and `(hour, minute, second, fraction)`."""
        hour, minute, second, digits = clock
        start = epoch(year, month, day, int(hour), int(minute))
        if start is None:
            return None
        if self.calendar.year is None:
            self.calendar.year = year
        self.last = start + int(second) + fraction(digits)
        return self.last

    def yearless(self, month: int, day: int, clock: tuple[str, str, str, str | None]) -> float | None:
        """The time of a date that lacks its year: nearest to the last time, so that order survives New Year."""
        hour, minute, second, digits = clock
        rest = int(second) + fraction(digits)
        last = self.last
        if last is None:
            year = self.calendar.year or _NO_YEAR
            start = epoch(year, month, day, int(hour), int(minute))
            if start is None:
                return None
            self.last = start + rest
            return self.last
        year = 1970 + int(last / (365.2425 * _DAY_SECONDS))
        best: float | None = None
        for candidate in (year, year + 1, year - 1):
            start = epoch(candidate, month, day, int(hour), int(minute))
            if start is None:
                continue
            if best is None or abs(start + rest - last) < abs(best - last):
                best = start + rest
            if abs(best - last) < _HALF_YEAR:
                break
        if best is not None:
            self.last = best
        return best

    def dateless(self, clock: tuple[str, str, str, str | None]) -> float | None:
        """The time of a stamp that is a time of day only; None before any date was seen."""
        hour, minute, second, digits = clock
        if self.last is None or int(hour) > 23 or int(minute) > 59:
            return None
        of_day = int(hour) * 3600 + int(minute) * 60 + int(second) + fraction(digits)
        time = self.last - self.last % _DAY_SECONDS + of_day
        if time - self.last > _DAY_SECONDS / 2:
            time -= _DAY_SECONDS
        elif self.last - time > _DAY_SECONDS / 2:
            time += _DAY_SECONDS
        self.last = time
        return time

    def locale(self, found: re.Match[str], base: int = 0) -> float | None:
        """The time of a match of `LOCALE` whose first group is number `base + 1`."""
        group = [found.group(base + index) for index in range(1, 13)]
        month = MONTHS[group[0] or group[3] or ""]
        day = int(group[1] or group[2] or 0)
        hour = int(group[5])
        if group[9]:
            hour = hour % 12 + (12 if group[9] == "PM" else 0)
        clock = (str(hour), group[6], group[7], group[8])
        year = group[4] or group[11]
        time = self.yearless(month, day, clock) if year is None else self.dated(int(year), month, day, clock)
        if time is not None and group[10]:
            time -= offset(group[10])
            self.last = time
        return time
