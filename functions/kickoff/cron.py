"""Checks of a recipe's schedule: five cron fields as Cloud Scheduler takes them, and a time zone. Pure.

https://cloud.google.com/scheduler/docs/configuring/cron-job-schedules
Firing is Cloud Scheduler's work, and ``deploy/local/scheduler.py``'s on the laptop.
"""

import re
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

_MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_DAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
_DAYS_IN_MONTH = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)

_FIELDS: tuple[tuple[str, int, int, tuple[str, ...], int], ...] = (
    ("minute", 0, 59, (), 0),
    ("hour", 0, 23, (), 0),
    ("day of month", 1, 31, (), 0),
    ("month", 1, 12, _MONTHS, 1),
    ("day of week", 0, 7, _DAYS, 0),
)
"""Name, least, greatest, names of values, and the value of the first name. 7 is Sunday too."""

_TERM = re.compile(r"(?P<first>\*|[0-9A-Z]+)(?:-(?P<last>[0-9A-Z]+))?(?:/(?P<step>[0-9]+))?", re.ASCII)


def cron_fault(text: str) -> str:
    """What is wrong with a schedule, as the rest of a sentence that begins with its path; empty: nothing."""
    parts = text.upper().split()
    if len(parts) != 5:
        return f"is {text!r}, which has {len(parts)} fields; it must have 5: minute hour day-of-month month day-of-week"
    values: list[set[int]] = []
    for part, (name, least, greatest, names, base) in zip(parts, _FIELDS, strict=True):
        found = _field(part, least, greatest, names, base)
        if found is None:
            return f"is {text!r}; its {name} is {part!r}, which must be made of {_allowed(least, greatest, names)}"
        values.append(found)
    return _never(text, parts, values)


def timezone_fault(name: str) -> str:
    """What is wrong with a time zone's name; empty: nothing, or this machine has no time zone database to ask."""
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        if available_timezones():
            return f"is {name!r}; it must be a name of the IANA time zone database such as Europe/Berlin or Etc/UTC"
    return ""


def _allowed(least: int, greatest: int, names: tuple[str, ...]) -> str:
    extra = f" or {names[0]} to {names[-1]}" if names else ""
    return f"*, {least} to {greatest}{extra}, ranges a-b, lists a,b and steps /n (no L, W, # or ?)"


def _field(part: str, least: int, greatest: int, names: tuple[str, ...], base: int) -> set[int] | None:
    found: set[int] = set()
    for term in part.split(","):
        values = _term(term, least, greatest, names, base)
        if values is None:
            return None
        found |= values
    return found


def _term(term: str, least: int, greatest: int, names: tuple[str, ...], base: int) -> set[int] | None:
    match = _TERM.fullmatch(term)
    if not match or (match["first"] == "*" and match["last"]):
        return None
    step = int(match["step"] or 1)
    if match["first"] == "*":
        first, last = least, greatest
    else:
        first = _value(match["first"], names, base)
        last = _value(match["last"], names, base) if match["last"] else (greatest if match["step"] else first)
    if step == 0 or not least <= first <= last <= greatest:
        return None
    return set(range(first, last + 1, step))


def _value(text: str, names: tuple[str, ...], base: int) -> int:
    """The number; -1 for what is neither a number nor a name."""
    if text in names:
        return names.index(text) + base
    return int(text) if text.isdecimal() and len(text) <= 4 else -1


def _never(text: str, parts: list[str], values: list[set[int]]) -> str:
    """30 February is a valid spelling of never."""
    days, months = values[2], values[3]
    either = not parts[2].startswith("*") and not parts[4].startswith("*")
    if either or min(days) <= max(_DAYS_IN_MONTH[month - 1] for month in months):
        return ""
    return f"is {text!r}; no month of it has a day {min(days)}, so it would never fire"
