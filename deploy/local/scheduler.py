"""Fires HTTP calls on schedules, as Cloud Scheduler does: `python -m deploy.local.scheduler --config FILE.json`.

The file is ``{"jobs": [{"name", "cron" | "every_seconds", "timezone", "url", "body", "paused"}]}``.

- A tick is an instant and goes out as ``X-CloudScheduler-ScheduleTime``, the same in every retry, so that one tick
  starts one run however often it is delivered.
- Two executions of one job never run at once. A tick that falls due while one is still being delivered waits; of
  several only the latest is kept.
- Whatever is not 2xx is tried again with back-off, within the job's `Retry` and never past its next tick.
- A laptop sleeps: of the ticks that were missed only the latest is fired, and only if it is less than 15 minutes late;
  the others are skipped. Nothing is kept across a restart: what fell due while this was not running is not fired.

https://cloud.google.com/scheduler/docs/reference/rest/v1/projects.locations.jobs
"""

import argparse
import http.client
import json
import signal
import sys
import threading
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlsplit

from kickoff.errors import ConfigurationError

from deploy.local.schedules import Job, Tick, due_ticks, parse_jobs

POLL_SECONDS = 0.5
"""How soon a change of the clock, or waking from sleep, is noticed."""


def build_headers(tick: Tick) -> dict[str, str]:
    """What Cloud Scheduler sends; a content type only with a body."""
    headers = {
        "User-Agent": "Google-Cloud-Scheduler",
        "X-CloudScheduler": "true",
        "X-CloudScheduler-JobName": tick.job.name,
        "X-CloudScheduler-ScheduleTime": tick.time.isoformat().replace("+00:00", "Z"),
        "Content-Length": str(len(tick.job.body)),
    }
    return headers | ({"Content-Type": "application/octet-stream"} if tick.job.body else {})


class Scheduler:
    """Runs the jobs, each in a thread of its own so that none can hold up another."""

    def __init__(
        self,
        jobs: Iterable[Job],
        log: Callable[[str], None] = print,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._log = log
        self._clock = clock
        self._stopping = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=(job,), name=f"schedule-{job.name}", daemon=True)
            for job in jobs
            if not job.paused
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """No further call is made; one in flight is left to its end, or to that of the process."""
        self._stopping.set()

    def _run(self, job: Job) -> None:
        since = self._clock()
        while not self._stopping.is_set():
            now = self._clock()
            for tick in due_ticks([job], since, now):
                self._deliver(tick)
            since = max(since, now)  # a clock that is set back fires nothing twice
            upcoming = next(job.schedule.ticks(since))
            self._stopping.wait(min(POLL_SECONDS, max(0.0, (upcoming - self._clock()).total_seconds())))

    def _deliver(self, tick: Tick) -> None:
        """Call until it answers 2xx, the retries are used up, or the next tick would come first."""
        retry = tick.job.retry
        following = next(tick.job.schedule.ticks(tick.time))
        for failures in range(1, retry.attempts + 2):
            problem = _call(tick)
            if not problem:
                return
            pause = retry.backoff(failures)
            last = failures > retry.attempts or self._clock() + timedelta(seconds=pause) >= following
            outlook = "given up" if last else f"again in {pause:g} s"
            self._log(f"scheduler: {tick.job.name}, tick of {tick.time.isoformat()}: {problem}; {outlook}")
            if last or self._stopping.wait(pause):
                return


def _call(tick: Tick) -> str:
    """Empty when it answered 2xx, else what went wrong. Redirects are not followed."""
    url = urlsplit(tick.job.url)
    kind = http.client.HTTPSConnection if url.scheme == "https" else http.client.HTTPConnection
    connection = kind(url.netloc, timeout=tick.job.retry.deadline)
    target = (url.path or "/") + (f"?{url.query}" if url.query else "")
    try:
        connection.request("POST", target, tick.job.body, build_headers(tick))
        status = connection.getresponse().status
        return "" if 200 <= status < 300 else f"HTTP {status}"
    except Exception as error:  # whatever it is, it is this job's trouble alone
        return f"{type(error).__name__}: {error}"
    finally:
        connection.close()


def main() -> int:
    summary = (__doc__ or "").splitlines()[0]
    parser = argparse.ArgumentParser(prog="python -m deploy.local.scheduler", description=summary)
    parser.add_argument("--config", type=Path, required=True)
    options = parser.parse_args()
    try:
        jobs = parse_jobs(json.loads(options.config.read_text()))
    except (OSError, ValueError, ConfigurationError) as error:
        print(f"scheduler: {options.config}: {error}", file=sys.stderr)
        return 1
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    scheduler = Scheduler(jobs, log=lambda line: print(line, file=sys.stderr, flush=True))
    scheduler.start()
    print(f"scheduler: ready, jobs: {', '.join(job.name for job in jobs) or 'none'}", flush=True)
    stop.wait()
    scheduler.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
