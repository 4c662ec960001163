"""Schedules and when they are due, as Cloud Scheduler sees it. Pure.

https://cloud.google.com/scheduler/docs/configuring/cron-job-schedules
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim
from kickoff.cron import cron_fault, timezone_fault
from kickoff.errors import ConfigurationError, Fault

CATCH_UP = timedelta(minutes=15)
"""How late a missed tick may still be fired."""


@dataclass(frozen=True)
class Cron:
    """A unix-cron schedule in a time zone; both day fields given: either one is enough.

    Google says of daylight saving only that it may make jobs run or not run. Here a time that the clock skips in spring
    comes at the first moment after the gap, and one that it has twice in autumn comes once, as in Debian's cron; where
    minute or hour begins with ``*`` the schedule goes by elapsed time.
    """

    text: str
    timezone: str

    def ticks(self, since: datetime) -> Iterator[datetime]:
        """Instants (UTC) after `since`, without end."""
        for tick in CronSim(self.text, since.astimezone(ZoneInfo(self.timezone))):
            instant = tick.astimezone(UTC)
            if instant > since:  # in the hour that comes twice cronsim begins anew with the first one
                yield instant


@dataclass(frozen=True)
class Every:
    """A tick every so many seconds, on multiples of that since 1970."""

    seconds: float

    def ticks(self, since: datetime) -> Iterator[datetime]:
        """Instants (UTC) after `since`, without end."""
        step = since.timestamp() // self.seconds
        while True:
            step += 1
            instant = datetime.fromtimestamp(step * self.seconds, UTC)
            if instant > since:
                yield instant


@dataclass(frozen=True)
class Retry:
    """Cloud Scheduler's RetryConfig; seconds. There the default is no retry, here a few, as Terraform sets it."""

    attempts: int = 3
    min_backoff: float = 1.0
    max_backoff: float = 30.0
    deadline: float = 180.0
    """Of one attempt: Cloud Scheduler's default is three minutes."""

    def backoff(self, failures: int) -> float:
        return float(min(self.max_backoff, self.min_backoff * 2.0 ** min(failures - 1, 30)))


@dataclass(frozen=True)
class Job:
    name: str
    schedule: Cron | Every
    url: str
    body: bytes = b""
    paused: bool = False
    retry: Retry = field(default_factory=Retry)


@dataclass(frozen=True)
class Tick:
    job: Job
    time: datetime


def due_ticks(jobs: Iterable[Job], since: datetime, now: datetime, catch_up: timedelta = CATCH_UP) -> list[Tick]:
    """What to fire at `now` when everything up to `since` was looked at: at most one tick a job, the latest.

    Paused jobs have none; ticks that are `catch_up` late or later are skipped.
    """
    due = []
    for job in jobs:
        latest = None
        for tick in job.schedule.ticks(max(since, now - catch_up)):
            if tick > now:
                break
            latest = tick
        if latest is not None and not job.paused:
            due.append(Tick(job, latest))
    return sorted(due, key=lambda tick: tick.time)


def parse_cron(text: str, timezone: str = "Etc/UTC") -> Cron:
    """A schedule. Raises ConfigurationError with every fault."""
    wrong = {"cron": cron_fault(text), "timezone": timezone_fault(timezone) or _unknown_here(timezone)}
    faults = [Fault(name, f"{name} {rest}") for name, rest in wrong.items() if rest]
    if faults:
        raise ConfigurationError.from_faults(faults)
    return Cron(text, timezone)


def _unknown_here(timezone: str) -> str:
    try:
        ZoneInfo(timezone)
    except (ZoneInfoNotFoundError, ValueError):
        return f"is {timezone!r}, and this machine has no time zone database; `pip install tzdata` gives it one"
    return ""


def parse_jobs(document: Any) -> list[Job]:
    """``{"jobs": [{"name", "cron" | "every_seconds", "timezone", "url", "body", "paused"}]}`` as jobs.

    Raises ConfigurationError with every fault.
    """
    if not isinstance(document, dict) or not isinstance(document.get("jobs"), list):
        raise ConfigurationError.from_faults([Fault("jobs", 'jobs is missing; the file must be {"jobs": [...]}')])
    faults: list[Fault] = []
    jobs = [_parse_job(f"jobs[{index}]", entry, faults) for index, entry in enumerate(document["jobs"])]
    names = [job.name for job in jobs if job is not None]
    faults += [Fault("jobs", f"jobs has {name!r} twice") for name in sorted({n for n in names if names.count(n) > 1})]
    if faults:
        raise ConfigurationError.from_faults(faults)
    return [job for job in jobs if job is not None]


def _parse_job(path: str, entry: Any, faults: list[Fault]) -> Job | None:
    if not isinstance(entry, dict):
        faults.append(Fault(path, f"{path} is {entry!r}; it must be an object"))
        return None
    found: list[Fault] = []

    def check(right: bool, key: str, must: str) -> None:
        if not right:
            found.append(Fault(f"{path}.{key}", f"{path}.{key} is {entry.get(key)!r}; it must be {must}"))

    known = {"name", "cron", "every_seconds", "timezone", "url", "body", "paused"}
    found += [Fault(f"{path}.{key}", f"{path}.{key} is not a known key") for key in sorted(entry.keys() - known)]
    name, url, body, paused = entry.get("name"), entry.get("url"), entry.get("body"), entry.get("paused", False)
    check(isinstance(name, str) and bool(re.fullmatch("[A-Za-z0-9_-]{1,500}", name)), "name", "1 to 500 of A-Za-z0-9_-")
    check(isinstance(url, str) and bool(re.match(r"https?://[^/\s]", url)), "url", "an http:// or https:// URL")
    check(isinstance(paused, bool), "paused", "true or false")
    schedule = _parse_schedule(path, entry, found)
    faults += found
    if found or schedule is None:
        return None
    payload = "" if body is None else body if isinstance(body, str) else json.dumps(body)
    return Job(str(name), schedule, str(url), payload.encode(), paused)


def _parse_schedule(path: str, entry: Mapping[str, Any], faults: list[Fault]) -> Cron | Every | None:
    cron, every = entry.get("cron"), entry.get("every_seconds")
    if (cron is None) == (every is None):
        faults.append(Fault(path, f"{path} must have one of cron and every_seconds"))
        return None
    if cron is not None:
        try:
            return parse_cron(str(cron), str(entry.get("timezone", "Etc/UTC")))
        except ConfigurationError as error:
            faults += [Fault(f"{path}.{fault.path}", f"{path}.{fault.message}") for fault in error.faults]
            return None
    if isinstance(every, bool) or not isinstance(every, int | float) or not 0.1 <= every <= 86400:
        name = f"{path}.every_seconds"
        faults.append(Fault(name, f"{name} is {every!r}; it must be a number from 0.1 to 86400"))
        return None
    return Every(float(every))
