"""The last lines that a replica wrote, from Cloud Logging. Effect.

https://cloud.google.com/logging/docs/reference/v2/rest/v2/entries/list. One call needs no client library.
"""

import json
import logging
import urllib.request
from http.client import HTTPException
from typing import Any

from kickoff.runs import Run

log = logging.getLogger("kickoff")

_TIMEOUT = 10.0


def read_last_lines(endpoint: str, run: Run, count: int = 15) -> list[str]:
    """Of the replica that failed first, else of the primary; oldest first. Empty where they cannot be had."""
    if run.job is None:
        return []
    replica = run.replica_exits[0].replica if run.replica_exits else "workerpool0-0"
    terms = [
        'resource.type="ml_job"',
        f'resource.labels.job_id="{run.job.id}"',
        f'resource.labels.task_name="{replica}"',
    ]
    query = {
        "resourceNames": [f"projects/{run.project}"],
        "filter": " AND ".join(terms),
        "orderBy": "timestamp desc",
        "pageSize": count,
    }
    try:
        entries = _post(f"{endpoint.rstrip('/')}/v2/entries:list", query).get("entries", [])
    except (OSError, HTTPException, ValueError) as error:
        log.warning("the last lines of run %s cannot be read: %s", run.run_id, error)
        return []
    return [_text(entry) for entry in reversed(entries)]


def read_tails(endpoint: str, run: Run, count: int = 15, most: int = 1000) -> list[tuple[str, list[str]]]:
    """(replica, its last lines, oldest first) among the job's newest `most` lines; empty where they cannot be had."""
    if run.job is None:
        return []
    query = {
        "resourceNames": [f"projects/{run.project}"],
        "filter": f'resource.type="ml_job" AND resource.labels.job_id="{run.job.id}"',
        "orderBy": "timestamp desc",
        "pageSize": most,
    }
    tails: dict[str, list[str]] = {}
    try:
        entries = _post(f"{endpoint.rstrip('/')}/v2/entries:list", query).get("entries", [])
    except (OSError, HTTPException, ValueError) as error:
        log.warning("the last lines of run %s cannot be read: %s", run.run_id, error)
        return []
    for entry in entries:
        replica = entry.get("resource", {}).get("labels", {}).get("task_name", "")
        lines = tails.setdefault(replica, [])
        if len(lines) < count:
            lines.insert(0, _text(entry))
    return sorted(tails.items())


def _text(entry: dict[str, Any]) -> str:
    payload = entry.get("jsonPayload") or {}
    return str(entry.get("textPayload") or payload.get("message") or "")[:1000]


def _post(url: str, query: dict[str, Any]) -> dict[str, Any]:
    headers = {"Content-Type": "application/json", **_authorization(url)}
    request = urllib.request.Request(url, json.dumps(query).encode(), headers, method="POST")
    with urllib.request.urlopen(request, timeout=_TIMEOUT) as answer:
        return dict(json.load(answer))


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
