"""A job's log lines, through Cloud Logging's entries.list, which the local Vertex AI answers as well. Effect.

https://cloud.google.com/logging/docs/reference/v2/rest/v2/entries/list. One call needs no client library.
"""

import json
import logging
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http.client import HTTPException
from itertools import islice
from typing import Any

from kickoff.errors import TransientError
from kickoff.runs import Run

log = logging.getLogger("kickoff")

_PAGE = 1000
_TIMEOUT = 10.0
_LONGEST = 1000
"""Characters of a line in a tail."""


@dataclass(frozen=True)
class Line:
    """One line that a replica or the service wrote."""

    time: str
    replica: str
    """``workerpool0-0``, or ``service``."""
    severity: str
    text: str
    id: str


def list_lines(
    endpoint: str,
    project: str,
    job_id: str,
    *,
    replica: str = "",
    since: str = "",
    newest_first: bool = False,
    page: int = _PAGE,
) -> Iterator[Line]:
    """The lines of a job, oldest first unless asked otherwise. Raises TransientError where they cannot be had."""
    query: dict[str, Any] = {
        "resourceNames": [f"projects/{project}"],
        "filter": build_filter(job_id, replica, since),
        "orderBy": f"timestamp {'desc' if newest_first else 'asc'}",
        "pageSize": page,
    }
    while True:
        answer = _post(f"{endpoint.rstrip('/')}/v2/entries:list", query)
        yield from map(parse_line, answer.get("entries", []))
        if not answer.get("nextPageToken"):
            return
        query["pageToken"] = answer["nextPageToken"]


def read_last_lines(endpoint: str, run: Run, count: int = 15) -> list[str]:
    """Of the replica that failed first, else of the primary; oldest first. Empty where they cannot be had."""
    replica = run.replica_exits[0].replica if run.replica_exits else "workerpool0-0"
    return [_shorten(line.text) for line in reversed(_newest(endpoint, run, replica, count))]


def read_tails(endpoint: str, run: Run, count: int = 15, most: int = _PAGE) -> list[tuple[str, list[str]]]:
    """(replica, its last lines, oldest first) among the job's newest `most` lines; empty where they cannot be had."""
    tails: dict[str, list[str]] = {}
    for line in _newest(endpoint, run, "", most):
        lines = tails.setdefault(line.replica, [])
        if len(lines) < count:
            lines.insert(0, _shorten(line.text))
    return sorted(tails.items())


def build_filter(job_id: str, replica: str = "", since: str = "") -> str:
    """https://cloud.google.com/logging/docs/view/logging-query-language"""
    terms = ['resource.type="ml_job"', f'resource.labels.job_id="{job_id}"']
    if replica:
        terms.append(f'resource.labels.task_name="{replica}"')
    if since:
        terms.append(f'timestamp>="{since}"')
    return " AND ".join(terms)


def parse_line(entry: Mapping[str, Any]) -> Line:
    """A LogEntry's text: the service writes text, replicas write messages or JSON of their own."""
    payload = entry.get("jsonPayload") or {}
    text = entry.get("textPayload") or payload.get("message") or (json.dumps(payload) if payload else "")
    labels = entry.get("resource", {}).get("labels", {})
    return Line(
        time=entry.get("timestamp", ""),
        replica=labels.get("task_name", ""),
        severity=entry.get("severity", ""),
        text=str(text),
        id=entry.get("insertId", ""),
    )


def _newest(endpoint: str, run: Run, replica: str, count: int) -> list[Line]:
    if run.job is None:
        return []
    lines = list_lines(endpoint, run.project, run.job.id, replica=replica, newest_first=True, page=min(count, _PAGE))
    try:
        return list(islice(lines, count))
    except TransientError as error:
        log.warning("the last lines of run %s cannot be read: %s", run.run_id, error)
        return []


def _shorten(text: str) -> str:
    return text[:_LONGEST]


def _post(url: str, query: Mapping[str, Any]) -> dict[str, Any]:
    try:
        headers = {"Content-Type": "application/json", **_authorization(url)}
        request = urllib.request.Request(url, json.dumps(query).encode(), headers, method="POST")
        with urllib.request.urlopen(request, timeout=_TIMEOUT) as answer:
            return dict(json.load(answer))
    except urllib.error.HTTPError as error:
        words = error.read(500).decode(errors="replace")
        raise TransientError(f"Cloud Logging answered {error.code}: {words}") from error
    except (OSError, HTTPException, ValueError) as error:
        raise TransientError(f"Cloud Logging did not answer at {url}: {error}") from error


def _authorization(url: str) -> dict[str, str]:
    """A token never goes over clear text."""
    if not url.startswith("https://"):
        return {}
    import google.auth
    import google.auth.transport.requests
    from google.auth.exceptions import GoogleAuthError

    try:
        credentials, _ = google.auth.default(scopes=["https://www.googleapis.com/auth/logging.read"])
        credentials.refresh(google.auth.transport.requests.Request())
    except GoogleAuthError as error:
        raise OSError(f"no credentials: {error}") from error
    return {"Authorization": f"Bearer {credentials.token}"}
