"""Schedules as Cloud Scheduler reads them, and the calls that they make."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from kickoff.errors import ConfigurationError
from kickoff.events import Tick as TickEvent
from kickoff.events import parse_event

from deploy.local.scheduler import Scheduler, build_headers
from deploy.local.schedules import Cron, Every, Job, Retry, Tick, due_ticks, parse_cron, parse_jobs
from tests.pubsub.emulators import Endpoint, push_endpoint, wait_for


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


def ticks(cron: str, zone: str, since: str, count: int) -> list[str]:
    return [tick.isoformat()[:16] for tick in islice(parse_cron(cron, zone).ticks(at(since)), count)]


@pytest.mark.parametrize(
    ("cron", "zone", "since", "expected"),
    [
        ("0 3 * * 1", "Etc/UTC", "2026-11-27T00:00Z", ["2026-11-30T03:00", "2026-12-07T03:00"]),
        ("0 3 * * 1", "Europe/Berlin", "2026-11-27T00:00Z", ["2026-11-30T02:00", "2026-12-07T02:00"]),
        ("*/20 * * * *", "Asia/Kathmandu", "2026-11-27T00:00Z", ["2026-11-27T00:15", "2026-11-27T00:35"]),
        # Both day fields: either is enough.
        ("0 0 13 * 5", "Etc/UTC", "2026-11-10T12:00Z", ["2026-11-13T00:00", "2026-11-20T00:00"]),
        ("0 0 15 * 5", "Etc/UTC", "2026-11-13T12:00Z", ["2026-11-15T00:00", "2026-11-20T00:00"]),
        # Sunday is 0, 7 and SUN.
        ("0 0 * * 7", "Etc/UTC", "2026-11-27T00:00Z", ["2026-11-29T00:00", "2026-12-06T00:00"]),
        ("0 0 * * 0", "Etc/UTC", "2026-11-27T00:00Z", ["2026-11-29T00:00", "2026-12-06T00:00"]),
        ("0 0 * dec sun", "Etc/UTC", "2026-11-27T00:00Z", ["2026-12-06T00:00", "2026-12-13T00:00"]),
        ("0 0 29 2 *", "Etc/UTC", "2026-01-01T00:00Z", ["2028-02-29T00:00", "2032-02-29T00:00"]),
        # A tick at `since` itself was looked at already.
        ("0 3 * * *", "Etc/UTC", "2026-11-27T03:00Z", ["2026-11-28T03:00", "2026-11-29T03:00"]),
        # Berlin, 29 March 2026: 02:00 to 03:00 is skipped. 02:30 comes at 03:00, which is 01:00 UTC, and only once.
        ("30 2 * * *", "Europe/Berlin", "2026-03-28T12:00Z", ["2026-03-29T01:00", "2026-03-30T00:30"]),
        # 25 October 2026: 02:00 to 03:00 comes twice. 02:30 fires the first time only; every hour fires in both.
        ("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00Z", ["2026-10-25T00:30", "2026-10-26T01:30"]),
        ("45 2 * * *", "Europe/Berlin", "2026-10-25T01:10Z", ["2026-10-26T01:45", "2026-10-27T01:45"]),
        ("30 * * * *", "Europe/Berlin", "2026-10-25T00:00Z", ["2026-10-25T00:30", "2026-10-25T01:30"]),
    ],
)
def test_a_schedule_fires_when_cloud_scheduler_would(cron: str, zone: str, since: str, expected: list[str]) -> None:
    assert ticks(cron, zone, since, 2) == expected


@pytest.mark.parametrize(
    ("cron", "zone", "says"),
    [
        ("0 0 3 * * 1", "Etc/UTC", "6 fields"),
        ("", "Etc/UTC", "0 fields"),
        ("0 0 L * *", "Etc/UTC", "day of month is 'L'"),
        ("0 0 * * 5L", "Etc/UTC", "day of week is '5L'"),
        ("0 0 * * 1#2", "Etc/UTC", "day of week is '1#2'"),
        ("60 0 * * *", "Etc/UTC", "minute is '60'"),
        ("0 0 30 2 *", "Etc/UTC", "never fire"),
        ("0 0 * * *", "Mars/Olympus", "timezone is 'Mars/Olympus'"),
        ("every 5 minutes", "CET+1", "timezone is 'CET+1'"),
        ("every 5 minutes", "CET+1", "cron is 'every 5 minutes'"),
    ],
)
def test_a_bad_schedule_is_refused_with_the_reason(cron: str, zone: str, says: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse_cron(cron, zone)
    assert says in str(caught.value)


def job(name: str = "nightly", schedule: Cron | Every | None = None, **settings: Any) -> Job:
    return Job(name, schedule or Cron("0 3 * * *", "Etc/UTC"), settings.pop("url", "http://127.0.0.1:1/"), **settings)


def test_nothing_is_due_before_its_time_and_each_tick_once() -> None:
    nightly = job()
    assert due_ticks([nightly], at("2026-11-27T02:00Z"), at("2026-11-27T02:59:59Z")) == []
    due = due_ticks([nightly], at("2026-11-27T02:59:59Z"), at("2026-11-27T03:00:00.4Z"))
    assert due == [Tick(nightly, at("2026-11-27T03:00Z"))]
    assert due_ticks([nightly], at("2026-11-27T03:00:00.4Z"), at("2026-11-27T03:00:01Z")) == []


def test_of_missed_ticks_only_the_latest_fires_and_only_if_it_is_not_too_late() -> None:
    frequent, nightly = job("frequent", Cron("*/5 * * * *", "Etc/UTC")), job()
    asleep, awake = at("2026-11-27T00:01Z"), at("2026-11-27T03:14Z")
    due = due_ticks([frequent, nightly], asleep, awake)
    assert [(tick.job.name, tick.time) for tick in due] == [
        ("nightly", at("2026-11-27T03:00Z")),
        ("frequent", at("2026-11-27T03:10Z")),
    ]
    assert due_ticks([nightly], asleep, at("2026-11-27T03:16Z")) == []
    assert due_ticks([nightly], asleep, at("2026-11-27T03:16Z"), catch_up=timedelta(hours=1))


def test_a_paused_job_is_never_due_and_unpausing_fires_no_old_tick() -> None:
    since, now = at("2026-11-27T02:59Z"), at("2026-11-27T03:01Z")
    assert due_ticks([job(paused=True)], since, now) == []
    assert due_ticks([job()], now, at("2026-11-27T03:05Z")) == []


def test_a_plain_interval_has_ticks_on_its_multiples() -> None:
    found = list(islice(Every(90).ticks(at("2026-11-27T00:00:10Z")), 2))
    assert found == [at("2026-11-27T00:01:30Z"), at("2026-11-27T00:03:00Z")]


def test_a_call_is_read_by_the_function_as_this_tick() -> None:
    tick = Tick(job(body=b'{"recipe": "digits"}'), at("2026-11-27T03:00Z"))
    event = parse_event("POST", "/", build_headers(tick), tick.job.body)
    assert isinstance(event, TickEvent)
    assert (event.job, event.schedule_time, event.payload) == ("nightly", tick.time, {"recipe": "digits"})


def test_a_file_of_jobs_is_read() -> None:
    document = {
        "jobs": [
            {"name": "a", "cron": "0 3 * * 1", "timezone": "Europe/Berlin", "url": "http://h/x", "body": {"k": 1}},
            {"name": "b", "every_seconds": 2, "url": "http://h", "paused": True},
        ]
    }
    first, second = parse_jobs(document)
    assert (first.schedule, first.body, first.paused) == (Cron("0 3 * * 1", "Europe/Berlin"), b'{"k": 1}', False)
    assert (second.schedule, second.body, second.paused) == (Every(2.0), b"", True)


def test_every_fault_of_a_file_is_said_at_once() -> None:
    document = {
        "jobs": [
            {"name": "a b", "cron": "61 * * * *", "timezone": "Nowhere", "url": "ftp://x", "paused": 1, "typo": 2},
            {"name": "c", "cron": "* * * * *", "every_seconds": 5, "url": "http://h"},
            {"name": "d", "every_seconds": 0, "url": "http://h"},
            {"name": "e", "every_seconds": 5, "url": "http://h"},
            {"name": "e", "every_seconds": 5, "url": "http://h"},
            7,
        ]
    }
    with pytest.raises(ConfigurationError) as caught:
        parse_jobs(document)
    paths = {fault.path for fault in caught.value.faults}
    keys = ("name", "cron", "timezone", "url", "paused", "typo")
    assert paths == {f"jobs[0].{key}" for key in keys} | {"jobs[1]", "jobs[2].every_seconds", "jobs", "jobs[5]"}
    wrongs: list[Any] = [None, [], {"jobs": 3}]
    for wrong in wrongs:
        with pytest.raises(ConfigurationError, match="jobs is missing"):
            parse_jobs(wrong)


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with push_endpoint() as running:
        yield running


def clock_from(text: str) -> Callable[[], datetime]:
    """A clock that now shows `text` and goes on from there."""
    began = time.monotonic()
    return lambda: at(text) + timedelta(seconds=time.monotonic() - began)


@contextmanager
def running(*jobs: Job, **settings: Any) -> Iterator[list[str]]:
    lines: list[str] = []
    scheduler = Scheduler(jobs, log=lines.append, **settings)
    scheduler.start()
    try:
        yield lines
    finally:
        scheduler.stop()


def test_a_job_calls_with_cloud_schedulers_headers(endpoint: Endpoint) -> None:
    with running(job("sweep", Every(0.2), url=f"{endpoint.url}/sweep?x=1")):
        first, second = endpoint.wait(2)[:2]
    assert (first.path, first.body) == ("/sweep?x=1", b"")
    assert first.headers["user-agent"] == "Google-Cloud-Scheduler"
    assert first.headers["x-cloudscheduler"] == "true"
    assert first.headers["x-cloudscheduler-jobname"] == "sweep"
    assert "content-type" not in first.headers
    times = [at(request.headers["x-cloudscheduler-scheduletime"]) for request in (first, second)]
    assert times[1] - times[0] >= timedelta(seconds=0.2), "another instant, and that of the schedule"


def test_a_failed_call_is_made_again_for_the_same_tick_and_then_given_up(endpoint: Endpoint) -> None:
    endpoint.statuses = [500, 302, 503, 404]
    retry = Retry(attempts=2, min_backoff=0.01, max_backoff=0.02)
    with running(job(url=endpoint.url, retry=retry), clock=clock_from("2026-11-27T02:59:59.8Z")) as lines:
        requests = list(endpoint.wait(3))
        wait_for(lambda: len(lines) >= 3)
    assert {one.headers["x-cloudscheduler-scheduletime"] for one in requests} == {"2026-11-27T03:00:00Z"}
    assert "HTTP 500; again in 0.01 s" in lines[0]
    assert "HTTP 302; again in 0.02 s" in lines[1]
    assert "HTTP 503; given up" in lines[2]


def test_a_job_whose_machine_slept_fires_the_latest_tick_on_waking(endpoint: Endpoint) -> None:
    moment = [at("2026-11-27T00:01:00Z")]
    every_five = job("often", Cron("*/5 * * * *", "Etc/UTC"), url=endpoint.url)
    with running(every_five, job(url=f"{endpoint.url}/nightly"), clock=lambda: moment[0]):
        time.sleep(0.2)
        assert endpoint.requests == []
        moment[0] = at("2026-11-27T03:21:00Z")
        endpoint.wait(1)
        time.sleep(0.7)
    assert [one.headers["x-cloudscheduler-scheduletime"] for one in endpoint.requests] == ["2026-11-27T03:20:00Z"]


def test_retries_never_outlast_the_next_tick(endpoint: Endpoint) -> None:
    endpoint.statuses = [500]
    with running(job("a", Every(0.4), url=endpoint.url, retry=Retry(attempts=50, min_backoff=30))) as lines:
        endpoint.wait(3)
    times = [request.headers["x-cloudscheduler-scheduletime"] for request in endpoint.requests]
    assert len(times) == len(set(times))
    assert all("given up" in line for line in lines)


def test_a_job_in_trouble_stops_no_other_and_never_runs_twice_at_once(endpoint: Endpoint) -> None:
    endpoint.delay = 0.3
    with push_endpoint() as slow:
        slow.delay = 30
        jobs = [
            job("down", Every(0.2), url="http://127.0.0.1:1"),
            job("stuck", Every(0.2), url=slow.url),
            job("fine", Every(0.1), url=endpoint.url),
        ]
        with running(*jobs):
            endpoint.wait(3)
            wait_for(lambda: slow.active == 1)
            assert slow.most_active == 1
    assert endpoint.most_active == 1


def test_the_process_fires_and_ends_at_once(endpoint: Endpoint, tmp_path: Path) -> None:
    config = tmp_path / "jobs.json"
    config.write_text(json.dumps({"jobs": [{"name": "sweep", "every_seconds": 0.2, "url": endpoint.url, "body": {}}]}))
    command = [sys.executable, "-m", "deploy.local.scheduler", "--config", str(config)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "scheduler: ready, jobs: sweep\n"
        assert endpoint.wait(1)[0].body == b"{}"
        started = time.monotonic()
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0
        assert time.monotonic() - started < 5
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate(timeout=10)


@pytest.mark.parametrize("text", ["{", '{"jobs": [{"name": "a"}]}', "\xff"])
def test_a_bad_file_ends_the_process_with_a_reason(tmp_path: Path, text: str) -> None:
    config = tmp_path / "jobs.json"
    config.write_text(text, encoding="latin-1")
    command = [sys.executable, "-m", "deploy.local.scheduler", "--config", str(config)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    assert done.returncode == 1
    assert done.stderr.startswith(f"scheduler: {config}: ")
    assert "Traceback" not in done.stderr
