"""Shapes of single values in a CustomJob: names, URIs, durations. Pure."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from kickoff.faults import KeyPath, shown

DEFAULT_TIMEOUT = 7 * 86400
"""Seconds; Vertex AI's own when a job names none."""

PROJECT = re.compile(r"(?:[a-z0-9.-]+:)?[a-z][a-z0-9-]{4,28}[a-z0-9]|[0-9]{6,20}", re.ASCII)
EMAIL = re.compile(r"[^@\s]+@[a-z0-9.-]+\.[a-z]+", re.ASCII)
NETWORK = re.compile(r"projects/[0-9]+/global/networks/[a-z0-9-]+", re.ASCII)
TENSORBOARD = re.compile(r"projects/[^/]+/locations/[^/]+/tensorboards/[^/]+")
KMS_KEY = re.compile(r"projects/[^/]+/locations/[^/]+/keyRings/[^/]+/cryptoKeys/[^/]+")
GCS = re.compile(r"gs://[a-z0-9][a-z0-9._-]{1,220}[a-z0-9](?:/.*)?", re.DOTALL)
IMAGE = re.compile(
    r"[a-z0-9][a-z0-9.-]*(?::[0-9]+)?/[a-z0-9][a-z0-9._/-]*[a-z0-9](?::[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?"
    r"(?:@sha256:[0-9a-f]{64})?",
    re.ASCII,
)
MACHINE = re.compile(r"[a-z][a-z0-9]*(?:-[a-z0-9]+)+", re.ASCII)
ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


def project_fault(project: str) -> str:
    """Why this cannot be a project's id or number; empty: it can."""
    if PROJECT.fullmatch(project):
        return ""
    return f"is {shown(project)}; a project id has 6 to 30 of a-z 0-9 -, and is not the project's display name"


def seconds(duration: str) -> int:
    """``3600s`` -> 3600."""
    return int(duration.removesuffix("s"))


def timeout_of(spec: Mapping[str, Any]) -> int:
    """Seconds that a job may run."""
    text = spec.get("scheduling", {}).get("timeout", "")
    return seconds(text) if text and seconds(text) else DEFAULT_TIMEOUT


def strings(value: Any, path: KeyPath = ()) -> Iterator[tuple[KeyPath, str]]:
    """Every string of a JSON value, with its path."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from strings(item, (*path, str(key)))
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from strings(item, (*path, index))
