"""The run record and its life: what the ledger stores, and which changes of state are allowed. Pure.

A run is named by the hash of its key, so that the second delivery of one request finds the first
one's record whatever ids the deliveries carry.
"""

import hashlib
import json
from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

SCHEMA_VERSION = 1

RECIPE_NAME = r"^[a-z](?:[a-z0-9-]{0,34}[a-z0-9])?$"
"""Recipe names are part of run ids, which are label values: lowercase, 36 characters at most."""

CUSTOM = "custom-job"
"""The recipe of a raw request, which brings its own worker pool specs."""


class State(StrEnum):
    HELD = "HELD"
    QUEUED = "QUEUED"
    SUBMITTING = "SUBMITTING"
    SUBMITTED = "SUBMITTED"
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"
    EXPIRED = "EXPIRED"
    REJECTED = "REJECTED"
    SUPERSEDED = "SUPERSEDED"


_ENDS = frozenset({State.SUCCEEDED, State.FAILED, State.CANCELLED, State.EXPIRED})

TRANSITIONS: Mapping[State, frozenset[State]] = {
    State.HELD: frozenset({State.QUEUED, State.CANCELLED, State.SUPERSEDED}),
    State.QUEUED: frozenset({State.SUBMITTING, State.CANCELLED, State.SUPERSEDED}),
    State.SUBMITTING: frozenset({State.SUBMITTED, State.QUEUED, State.REJECTED}),
    State.SUBMITTED: _ENDS | {State.RUNNING},
    State.RUNNING: _ENDS,
}
"""The whole table. A state that is not a key here is an end."""

TERMINAL = frozenset(State) - TRANSITIONS.keys()


class Record(BaseModel):
    """Immutable, and strict about unknown fields: a typo must not become a silent loss."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Change(Record):
    """One entry of a run's history."""

    state: State
    time: datetime
    note: str = ""


class FaultRecord(Record):
    path: str
    message: str


class Trigger(Record):
    """What asked for the run. `event_id` is a trace id and never part of the key."""

    kind: str
    """``upload``, ``message``, ``tick`` or ``rerun``."""
    event_id: str = ""
    source: str = ""
    """``gs://bucket/name#generation``, a subscription or topic, or a Scheduler job."""
    time: datetime | None = None
    by: str = ""


class DatasetRecord(Record):
    """A snapshot of what is trained on."""

    uri: str
    """``gs://bucket/root/``, or ``gs://bucket/name`` for a dataset of one object."""
    digest: str
    """SHA-256 over the members' names and crc32c values, hex."""
    objects: int
    bytes: int
    snapshot: str = ""
    """URI of the JSON list of (name, generation, crc32c, size) that the trainer reads by."""


class JobRecord(Record):
    """The CustomJob that belongs to the run, as last seen."""

    name: str
    """``projects/P/locations/R/customJobs/ID``."""
    state: str = "JOB_STATE_UNSPECIFIED"
    create_time: datetime | None = None
    start_time: datetime | None = None
    end_time: datetime | None = None
    error: str = ""

    @property
    def id(self) -> str:
        return self.name.rpartition("/")[2]


class ReplicaExit(Record):
    """A replica ended with an error. Vertex AI may have restarted it: alone it says nothing of the job's end."""

    replica: str
    """``workerpool0-0``."""
    status: int
    time: datetime | None = None


class Run(Record):
    """One request and everything needed to carry it on; the ledger's document."""

    schema_version: int = SCHEMA_VERSION
    run_id: str
    key: tuple[str, ...]
    """(recipe, kind, parts…): what makes two deliveries the same request."""
    attempt: int = 1
    recipe: str
    recipe_digest: str = ""
    state: State
    history: tuple[Change, ...]
    created: datetime
    updated: datetime
    trigger: Trigger
    request: dict[str, Any] = Field(default_factory=dict)
    """The normalized request; `request_digest` tells a reuse of the key with another body."""
    request_digest: str = ""
    labels: dict[str, str] = Field(default_factory=dict)
    dataset: DatasetRecord | None = None
    custom_job: dict[str, Any] = Field(default_factory=dict)
    """The CustomJob in REST JSON (camelCase, enum names), less the nonce label."""
    project: str = ""
    region: str = ""
    output: str = ""
    faults: tuple[FaultRecord, ...] = ()
    """Why a run was REJECTED."""
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    waiting_for: str = ""
    """Why a HELD or QUEUED run has not started, for people."""

    # The outbox: see outbox.py.
    nonce: str = ""
    nonces: tuple[str, ...] = ()
    lease_until: datetime | None = None
    next_attempt_at: datetime | None = None
    submissions: int = 0
    cancel_requested: bool = False
    job: JobRecord | None = None
    duplicate_jobs: tuple[str, ...] = ()
    max_active: int = 0
    newest_only: bool = False
    slots: tuple[str, ...] = ()
    """Slot documents it owns. The ledger keeps this field: see Ledger.replace_run."""
    empty_looks: int = 0
    """How often, since the last submission, Vertex listed no job of this run."""

    # The end.
    worst_case_usd: float | None = None
    cost_usd: float | None = None
    metrics: dict[str, float] = Field(default_factory=dict)
    model_uri: str = ""
    model_missing: bool = False
    model_digest: str = ""
    """SHA-256, hex, over the names and checksums of the model's objects: see datasets.build_digest."""
    replica_exits: tuple[ReplicaExit, ...] = ()
    finished_published: bool = False
    rerun_of: str = ""
    reruns: tuple[str, ...] = ()

    version: str = ""
    """The ledger's own token for compare-and-set; never part of the stored document."""

    @property
    def terminal(self) -> bool:
        return self.state in TERMINAL

    @property
    def due(self) -> datetime | None:
        """When the sweep should look at it: the end of a lease, else `next_attempt_at`; None: never."""
        return self.lease_until if self.state is State.SUBMITTING else self.next_attempt_at

    def moved(self, state: State, now: datetime, note: str = "", **changes: Any) -> "Run":
        """This run one transition further. Raises ValueError for a change not in TRANSITIONS."""
        if state not in TRANSITIONS.get(self.state, frozenset()):
            raise ValueError(f"run {self.run_id} cannot go from {self.state} to {state}")
        history = (*self.history, Change(state=state, time=now, note=note))
        update = {"state": state, "history": history, "updated": now, **changes}
        return self.model_copy(update=update)


def build_run_id(key: tuple[str, ...], attempt: int = 1) -> str:
    """The document's name: recipe, then 80 bits of the key's hash, then the attempt when not the first.

    Valid as a label value and as a path segment: at most 63 of ``[a-z0-9-]``.
    """
    digest = hashlib.sha256(json.dumps(key, ensure_ascii=True).encode()).hexdigest()
    suffix = "" if attempt == 1 else f"-{attempt}"
    return f"{key[0]}-{digest[:20]}{suffix}"
