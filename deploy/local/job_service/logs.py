"""Log lines of the service and of replicas: kept as Cloud Logging entries, and as plain text for people.

The service's own lines also go to a Pub/Sub topic, as a sink on ``resource.type="ml_job"`` would send them.
"""

import base64
import contextlib
import errno
import json
import os
import queue
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from deploy.local.job_service.clock import Clock, timestamp

Json = dict[str, Any]
SERVICE = "service"
_PUBLISH_TRIES = 5
_QUEUE = 100_000
"""Lines waiting for the topic; further ones are dropped, which the emulator's own log says."""


class Logs:
    """Appends entries to ``<state>/jobs/<id>/entries.jsonl`` and text to ``<state>/jobs/<id>/<task>.log``."""

    def __init__(self, state: Path, clock: Clock, topic: str) -> None:
        self.folder = state / "jobs"
        self._clock = clock
        self._lock = threading.Lock()
        self._publisher = Publisher(topic) if topic else None
        self._lines: dict[str, int] = {}

    def close(self) -> None:
        if self._publisher:
            self._publisher.close()

    def path(self, job_id: str, task: str) -> Path:
        return self.folder / job_id / f"{task}.log"

    def service(self, job_id: str, project: str, *lines: str, severity: str = "INFO") -> None:
        """Write lines of the service itself, and send them to the topic."""
        for entry in self._append(job_id, project, SERVICE, severity, lines):
            if self._publisher:
                self._publisher.send(entry)

    def replica(self, job_id: str, project: str, name: str, lines: list[str], *, error: bool) -> None:
        """Write what a replica printed; standard error is severity ERROR, as on the service."""
        self._append(job_id, project, name, "ERROR" if error else "INFO", lines)

    def tail(self, job_id: str, task: str, lines: int = 10, limit: int = 20_000) -> list[str]:
        """The last lines that a task wrote."""
        try:
            with self.path(job_id, task).open("rb") as log:
                log.seek(max(0, log.seek(0, os.SEEK_END) - limit))
                return log.read().decode(errors="replace").splitlines()[-lines:]
        except FileNotFoundError:
            return []

    def entries(self, job_id: str) -> Iterator[Json]:
        """Every entry of a job, oldest first."""
        return (entry for _, entry in self.entries_from(job_id, 0))

    def entries_from(self, job_id: str, offset: int) -> Iterator[tuple[int, Json]]:
        """Entries from a byte offset on, each with the offset after it. Raises ValueError for one inside a line."""
        try:
            with (self.folder / job_id / "entries.jsonl").open("rb") as log:
                log.seek(offset)
                for line in log:
                    if not line.endswith(b"\n"):
                        return
                    offset += len(line)
                    yield offset, json.loads(line)
        except FileNotFoundError:
            return

    def _append(
        self, job_id: str, project: str, task: str, severity: str, lines: list[str] | tuple[str, ...]
    ) -> list[Json]:
        folder = self.folder / job_id
        with self._lock:
            if job_id not in self._lines:
                self._lines[job_id] = sum(1 for _ in self.entries(job_id))
            first = self._lines[job_id]
            self._lines[job_id] += len(lines)
            now = timestamp(self._clock.now())
            entries = [
                build_entry(job_id, project, task, severity, line, now, number)
                for number, line in enumerate(lines, first)
            ]
            _write(folder / "entries.jsonl", "".join(json.dumps(entry) + "\n" for entry in entries))
            _write(folder / f"{task}.log", "".join(f"{line}\n" for line in lines))
        return entries


def _write(path: Path, text: str) -> None:
    """Append whole lines or none: a full disk costs the lines, and neither the file nor the job."""
    data = text.encode(errors="backslashreplace")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab", buffering=0) as log:
            size = log.tell()
            if log.write(data) != len(data):
                log.truncate(size)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    except OSError as error:
        with contextlib.suppress(OSError):
            print(f"{path} lost lines: {error}", file=sys.stderr, flush=True)


def build_entry(job_id: str, project: str, task: str, severity: str, text: str, now: str, number: int) -> Json:
    """A LogEntry of resource ``ml_job``. Insert ids grow within a job, so that they order entries of one instant."""
    name = "ml.googleapis.com%2F" + job_id if task == SERVICE else task
    return {
        "insertId": f"{number:012d}",
        "logName": f"projects/{project}/logs/{name}",
        "resource": {"type": "ml_job", "labels": {"job_id": job_id, "project_id": project, "task_name": task}},
        "severity": severity,
        "timestamp": now,
        "receiveTimestamp": now,
        "labels": {"ml.googleapis.com/endpoint": ""},
        **_payload(text, task),
    }


def _payload(text: str, task: str) -> Json:
    """A line that is a JSON object becomes jsonPayload, anything else a message (the service's own: text)."""
    if task == SERVICE:
        return {"textPayload": text}
    if text.startswith("{"):
        try:
            parsed = json.loads(text)
            if isinstance(parsed, dict):
                return {"jsonPayload": parsed}
        except (ValueError, RecursionError):
            pass
    return {"jsonPayload": {"message": text, "levelname": "INFO"}}


class Publisher:
    """Sends entries to a topic of the Pub/Sub emulator over REST, in order, from a thread of its own."""

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self._queue: queue.Queue[Json | None] = queue.Queue(_QUEUE)
        self._thread = threading.Thread(target=self._run, name="log-publisher", daemon=True)
        self._thread.start()

    def send(self, entry: Json) -> None:
        try:
            self._queue.put_nowait(entry)
        except queue.Full:
            print("a service line was dropped: the log topic does not keep up", flush=True)

    def close(self) -> None:
        """Give what waits two seconds to go out."""
        self._queue.put(None)
        self._thread.join(2.0)

    def _run(self) -> None:
        while (entry := self._queue.get()) is not None:
            batch = [entry]
            while len(batch) < 500 and not self._queue.empty():
                following = self._queue.get()
                if following is None:
                    self._publish(batch)
                    return
                batch.append(following)
            self._publish(batch)

    def _publish(self, batch: list[Json]) -> None:
        messages = [
            {
                "data": base64.b64encode(json.dumps(entry).encode()).decode(),
                "attributes": {"logging.googleapis.com/timestamp": entry["timestamp"]},
            }
            for entry in batch
        ]
        host = os.environ.get("PUBSUB_EMULATOR_HOST", "")
        base = os.environ.get("CLOUDSDK_API_ENDPOINT_OVERRIDES_PUBSUB") or f"http://{host}/"
        url, body = f"{base.rstrip('/')}/v1/{self._topic}:publish", json.dumps({"messages": messages}).encode()
        for attempt in range(_PUBLISH_TRIES):
            try:
                request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
                urllib.request.urlopen(request, timeout=5).close()
                return
            except (urllib.error.URLError, OSError) as error:
                if attempt == _PUBLISH_TRIES - 1:
                    print(f"{len(batch)} service lines were not published to {self._topic}: {error}", flush=True)
                else:
                    time.sleep(0.2 * 2**attempt)
