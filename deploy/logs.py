"""A job's log lines through Cloud Logging's entries.list, which the local Vertex AI answers as well.

https://cloud.google.com/logging/docs/reference/v2/rest/v2/entries/list
"""

import json
import os
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kickoff.errors import TransientError

_PAGE = 1000
_TIMEOUT = 30
_PUBLIC = "https://logging.googleapis.com"


@dataclass(frozen=True)
class Line:
    """One line that a replica or the service wrote."""

    time: str
    replica: str
    """``workerpool0-0``, or ``service``."""
    severity: str
    text: str
    id: str


def list_lines(project: str, job_id: str, *, replica: str = "", since: str = "", endpoint: str = "") -> Iterator[Line]:
    """The lines of a job, oldest first. Raises TransientError where Cloud Logging does not answer."""
    query: dict[str, Any] = {
        "resourceNames": [f"projects/{project}"],
        "filter": build_filter(job_id, replica, since),
        "orderBy": "timestamp asc",
        "pageSize": _PAGE,
    }
    url = (endpoint or os.environ.get("CLOUDSDK_API_ENDPOINT_OVERRIDES_LOGGING") or _PUBLIC).rstrip("/")
    while True:
        answer = _post(f"{url}/v2/entries:list", query)
        yield from map(parse_line, answer.get("entries", []))
        if not answer.get("nextPageToken"):
            return
        query["pageToken"] = answer["nextPageToken"]


def build_filter(job_id: str, replica: str = "", since: str = "") -> str:
    """https://cloud.google.com/logging/docs/view/logging-query-language"""
    terms = ['resource.type="ml_job"', f'resource.labels.job_id="{job_id}"']
    if replica:
        terms.append(f'resource.labels.task_name="{replica}"')
    if since:
        terms.append(f'timestamp>="{since}"')
    return " AND ".join(terms)


def parse_line(entry: Mapping[str, Any]) -> Line:
    payload = entry.get("jsonPayload") or {}
    text = entry.get("textPayload") or payload.get("message") or json.dumps(payload)
    labels = entry.get("resource", {}).get("labels", {})
    return Line(
        time=entry.get("timestamp", ""),
        replica=labels.get("task_name", ""),
        severity=entry.get("severity", ""),
        text=str(text),
        id=entry.get("insertId", ""),
    )


def replica_tails(endpoint: str, job_name: str, lines: int = 15) -> dict[str, str]:
    """The last lines of every replica of a job, for people who ask why it failed."""
    parts = job_name.split("/")
    tails: dict[str, list[str]] = {}
    for line in list_lines(parts[1], parts[-1], endpoint=endpoint):
        tails.setdefault(line.replica, []).append(line.text)
    return {replica: "\n".join(texts[-lines:]) for replica, texts in sorted(tails.items())}


def _post(url: str, query: Mapping[str, Any]) -> dict[str, Any]:
    request = urllib.request.Request(
        url, json.dumps(query).encode(), {"Content-Type": "application/json", **_headers(url)}
    )
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT) as answer:
            return dict(json.load(answer))
    except urllib.error.HTTPError as error:
        raise TransientError(
            f"Cloud Logging answered {error.code}: {error.read(500).decode(errors='replace')}"
        ) from error
    except OSError as error:
        raise TransientError(f"Cloud Logging did not answer at {url}: {error}") from error


def _headers(url: str) -> dict[str, str]:
    """A token never goes over clear text."""
    if not url.startswith("https://"):
        return {}
    import google.auth
    import google.auth.transport.requests

    credentials, _ = google.auth.default(scopes=["https://www.googleapis.com/auth/logging.read"])
    credentials.refresh(google.auth.transport.requests.Request())
    return {"Authorization": f"Bearer {credentials.token}"}
