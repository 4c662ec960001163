"""What an envelope can turn out to be. Import these from kickoff.events."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal


@dataclass(frozen=True)
class Upload:
    """A real object was finalized. Whether it still is the current one, the bucket alone can tell."""

    bucket: str
    name: str
    """Byte for byte as Cloud Storage has it: never unquoted, stripped or normalized."""
    generation: int | None
    """None where the sender left it out: ask the bucket."""
    size: int | None
    """Bytes; never 0, except in Ignored.empty."""
    crc32c: str = ""
    """Base64 of the big-endian checksum, as Cloud Storage writes it; empty where not told."""
    event_id: str = ""
    """A trace id. Deliveries of one upload may carry several."""
    source: str = ""
    time: datetime | None = None

    @property
    def uri(self) -> str:
        return f"gs://{self.bucket}/{self.name}"


@dataclass(frozen=True)
class Message:
    """A Pub/Sub message that asks for something."""

    payload: dict[str, Any]
    """Its JSON data; for a message of attributes only, those (all strings)."""
    attributes: dict[str, str]
    message_id: str
    """Pub/Sub's id; for a body that came without one, ``sha256:`` and its digest."""
    publish_time: datetime | None = None
    subscription: str = ""
    topic: str = ""
    """``projects/P/topics/T`` where the envelope tells."""
    delivery_attempt: int | None = None
    from_attributes: bool = False


@dataclass(frozen=True)
class Tick:
    """A Cloud Scheduler job fired."""

    job: str
    """The job's id, without ``projects/…/jobs/``."""
    schedule_time: datetime
    """The instant it was due, in UTC; the same for every retry."""
    payload: dict[str, Any] = field(default_factory=dict)


HintKind = Literal["log", "epoch", "finished", "audit", "state"]


@dataclass(frozen=True)
class JobHint:
    """Something happened to a job. Never the truth about it: GetCustomJob is."""

    kind: HintKind
    job_id: str
    """The last part of the job's name; empty where only the run is known."""
    project: str = ""
    """Id or number: the two name one project, so never compare it."""
    location: str = ""
    run_id: str = ""
    data: dict[str, Any] = field(default_factory=dict)
    """log: text, severity · epoch: epoch, epochs, metrics, images_per_second · finished: metrics, model_uri ·
    audit: method, principal."""
    event_id: str = ""
    time: datetime | None = None


@dataclass(frozen=True)
class Ignored:
    """Well-formed, and nothing for Kickoff to do."""

    reason: str
    event_id: str = ""
    empty: Upload | None = None
    """The upload, where nothing but its zero bytes spoke against it: an empty completion marker is one such."""


Event = Upload | Message | Tick | JobHint | Ignored
