"""What Vertex AI says of a CustomJob, and what that means for its run. Pure.

https://cloud.google.com/vertex-ai/docs/reference/rest/v1/JobState
"""

import re
from dataclasses import dataclass, field
from datetime import datetime

from kickoff.runs import JobRecord, State

JOB_STATES = (
    "JOB_STATE_UNSPECIFIED",
    "JOB_STATE_QUEUED",
    "JOB_STATE_PENDING",
    "JOB_STATE_RUNNING",
    "JOB_STATE_SUCCEEDED",
    "JOB_STATE_FAILED",
    "JOB_STATE_CANCELLING",
    "JOB_STATE_CANCELLED",
    "JOB_STATE_PAUSED",
    "JOB_STATE_EXPIRED",
    "JOB_STATE_UPDATING",
    "JOB_STATE_PARTIALLY_SUCCEEDED",
)
"""The API's names, each at its number."""

RUN_LABEL = "kickoff-run"
NONCE_LABEL = "kickoff-nonce"

_RUN_STATES = {
    "JOB_STATE_QUEUED": State.SUBMITTED,
    "JOB_STATE_PENDING": State.SUBMITTED,
    "JOB_STATE_RUNNING": State.RUNNING,
    "JOB_STATE_CANCELLING": State.RUNNING,
    # Not an end, although the SDK's wait loop takes it for one: a paused job can go on.
    "JOB_STATE_PAUSED": State.RUNNING,
    "JOB_STATE_UPDATING": State.RUNNING,
    "JOB_STATE_SUCCEEDED": State.SUCCEEDED,
    # "Some results may be missing due to errors": nobody should deploy such a model by itself.
    "JOB_STATE_PARTIALLY_SUCCEEDED": State.FAILED,
    "JOB_STATE_FAILED": State.FAILED,
    "JOB_STATE_CANCELLED": State.CANCELLED,
    "JOB_STATE_EXPIRED": State.EXPIRED,
}
ENDED = frozenset(name for name, state in _RUN_STATES.items() if state not in (State.SUBMITTED, State.RUNNING))

_JOB_NAME = re.compile(r"projects/([^/]+)/locations/([^/]+)/customJobs/([^/]+)")


@dataclass(frozen=True)
class JobView:
    """One answer of GetCustomJob or ListCustomJobs."""

    name: str
    """``projects/P/locations/R/customJobs/ID``; P may be the project's number."""
    state: str
    """See `state_name`."""
    create_time: datetime | None = None
    start_time: datetime | None = None
    end_time: datetime | None = None
    update_time: datetime | None = None
    error: str = ""
    """Filled up to a minute after the end."""
    error_code: int = 0
    """A google.rpc.Code."""
    labels: dict[str, str] = field(default_factory=dict)
    display_name: str = ""

    @property
    def id(self) -> str:
        return self.name.rpartition("/")[2]

    @property
    def ended(self) -> bool:
        return is_end(self.state)

    def record(self) -> JobRecord:
        """As a run's record keeps it."""
        return JobRecord(
            name=self.name,
            state=self.state,
            create_time=self.create_time,
            start_time=self.start_time,
            end_time=self.end_time,
            error=self.error,
        )


def state_name(state: str | int) -> str:
    """The API's name of a state that came as name or number; a number it does not know: ``JOB_STATE_<number>``."""
    if isinstance(state, str) and not state.isdecimal():
        return state
    number = int(state)
    return JOB_STATES[number] if 0 <= number < len(JOB_STATES) else f"JOB_STATE_{number}"


def run_state(state: str | int) -> State | None:
    """The run's state for a job's; None for one that says nothing (unspecified, newer than this code): look again."""
    return _RUN_STATES.get(state_name(state))


def is_end(state: str | int) -> bool:
    return state_name(state) in ENDED


def split_job_name(name: str) -> tuple[str, str, str] | None:
    """(project id or number, location, job id)."""
    found = _JOB_NAME.fullmatch(name)
    return (found[1], found[2], found[3]) if found else None


def is_same_job(name: str, job_id: str, location: str = "") -> bool:
    """Whether `name` is the job that a hint means.

    By the last part and the location alone: the project is written as its id here and as its number there.
    """
    parts = split_job_name(name)
    return parts is not None and parts[2] == job_id and location in ("", parts[1])
