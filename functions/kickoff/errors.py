"""Everything that can go wrong, by what the caller should do about it.

KickoffError
├── ConfigurationError            a setting or recipe is wrong: refuse to start, name the key
├── PermanentError                delivering again cannot help: record, acknowledge
│   ├── MalformedEvent            the envelope cannot be read
│   ├── InvalidRequest            the request breaks documented rules, every fault at once
│   ├── Forbidden                 outside the allow-list, the caps or the budget
│   └── JobRejected               Vertex AI refused (4xx but 429), its words kept
└── TransientError                trying again can help
    ├── LedgerUnavailable         before accept: raise, the platform delivers again
    ├── StorageUnavailable        the bucket could not be listed or read
    ├── PublishFailed             Pub/Sub did not take a message; the sweep publishes it again
    ├── VertexUnavailable         after accept: the outbox keeps it, the sweep goes on
    └── QuotaExceeded             429: definitely not created, queue it again
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True, order=True)
class Fault:
    """One thing that is wrong, in words that say where, what is there, and what may be there.

    `message` is a whole sentence that begins with the path:
    ``worker_pool_specs[1].replica_count is 0; it must be at least 1``.
    """

    path: str
    message: str

    def __str__(self) -> str:
        return self.message


class KickoffError(Exception):
    """The root. Carries every fault found, not the first one only."""

    def __init__(self, message: str, faults: Iterable[Fault] = ()) -> None:
        self.faults: tuple[Fault, ...] = tuple(faults)
        super().__init__(message)

    @classmethod
    def from_faults(cls, faults: Iterable[Fault]) -> Self:
        """An error whose text is all the faults, one a line."""
        found = tuple(faults)
        return cls("\n".join(str(fault) for fault in found), found)


class ConfigurationError(KickoffError):
    """A setting, a policy or a recipe is wrong; nothing starts until it is mended."""


class PermanentError(KickoffError):
    """Delivering the same event again cannot help."""


class MalformedEvent(PermanentError):
    """The envelope or its JSON cannot be read."""


class InvalidRequest(PermanentError):
    """The request breaks a documented rule of Vertex AI or of Kickoff."""


class Forbidden(PermanentError):
    """The request is well formed, and policy does not allow it."""


class JobRejected(PermanentError):
    """Vertex AI answered a definite refusal; `code` is its HTTP status, the text its own words."""

    def __init__(self, message: str, code: int = 400) -> None:
        super().__init__(message)
        self.code = code


class TransientError(KickoffError):
    """The same call may succeed later."""


class LedgerUnavailable(TransientError):
    """The run records cannot be read or written now."""


class StorageUnavailable(TransientError):
    """Cloud Storage did not answer."""


class PublishFailed(TransientError):
    """Pub/Sub did not confirm a message."""


class VertexUnavailable(TransientError):
    """Vertex AI did not give a definite answer: after a create the job may exist."""


class QuotaExceeded(TransientError):
    """Vertex AI answered 429: definitely not created, and worth trying later."""
