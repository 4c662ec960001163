"""The emulator's errors, and the one place where they become Google's error JSON.

https://cloud.google.com/apis/design/errors
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

STATUSES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    405: "UNIMPLEMENTED",
    409: "ALREADY_EXISTS",
    413: "INVALID_ARGUMENT",
    429: "RESOURCE_EXHAUSTED",
    499: "CANCELLED",
    500: "INTERNAL",
    501: "UNIMPLEMENTED",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}

CODES = {
    "DEADLINE_EXCEEDED": 4,
    "NOT_FOUND": 5,
    "RESOURCE_EXHAUSTED": 8,
    "ABORTED": 10,
    "INTERNAL": 13,
    "UNAVAILABLE": 14,
}
"""google.rpc.Code, for a job's own `error`."""


@dataclass(frozen=True)
class Violation:
    """One thing that is wrong with a request."""

    field: str
    message: str
    alone: bool = False
    """The service sends this sentence as the whole message when nothing else is wrong."""


class ApiError(Exception):
    """An answer other than 200."""

    def __init__(self, code: int, message: str, status: str = "", violations: Iterable[Violation] = ()) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.status = status or STATUSES.get(code, "UNKNOWN")
        self.violations = tuple(violations)


def invalid_payload(violations: Sequence[Violation]) -> ApiError:
    """The body does not fit the schema: Google's front end answers, one sentence a line."""
    return ApiError(400, "\n".join(violation.message for violation in violations), violations=violations)


def invalid_argument(violations: Sequence[Violation]) -> ApiError:
    """The body fits the schema and breaks rules of Vertex AI: the service answers, all faults at once."""
    if len(violations) == 1 and violations[0].alone:
        message = violations[0].message
    else:
        rows = (f"{number}.Field: {v.field}; Message: {v.message}" for number, v in enumerate(violations, 1))
        message = "List of found errors:\t" + "\t".join(rows)
    return ApiError(400, message, violations=violations)


def failed_precondition(message: str) -> ApiError:
    return ApiError(400, message, "FAILED_PRECONDITION")


def not_found(what: str) -> ApiError:
    return ApiError(404, f"{what} is not found.")


def render(error: ApiError) -> dict[str, Any]:
    """The body of an error answer."""
    body: dict[str, Any] = {"code": error.code, "message": error.message, "status": error.status}
    if error.violations:
        found = [{"field": violation.field, "description": violation.message} for violation in error.violations]
        body["details"] = [{"@type": "type.googleapis.com/google.rpc.BadRequest", "fieldViolations": found}]
    return {"error": body}
