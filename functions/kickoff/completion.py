"""What a hint and Vertex AI's answer mean for a run's record. Pure.

A hint is never believed about the end of a job: GetCustomJob is. An epoch event is believed about its metrics,
because IAM says who may publish it, and because asking Vertex AI at each epoch would spend its quota.
"""

import re
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from kickoff.event_types import JobHint
from kickoff.jobs import JobView, is_same_job, run_state
from kickoff.progress import finite
from kickoff.runs import JobRecord, ReplicaExit, Run, State

ACTIVE = frozenset({State.SUBMITTED, State.RUNNING})
"""States in which the run has a job that may end at any time."""

SOON = timedelta(seconds=15)
"""After a hint that the end is near."""
ERROR_DELAY = timedelta(seconds=90)
"""Vertex AI fills a failed job's error up to a minute after its end."""
UNKNOWN_DELAY = timedelta(minutes=5)
STALLED = timedelta(hours=1)
"""A job that Vertex AI has not started by then probably waits for capacity or quota."""
GONE = timedelta(hours=1)
"""How long a job may be missing before its run is given up: no read of Vertex AI promises to see the last write."""

_MAX_EXITS = 50
_REPLICA_EXIT = re.compile(r"[Tt]he replica ([a-z0-9-]+) exited with a non-zero status of (-?\d{1,9})")
_CLOSING = ("Job completed", "Job failed", "Job cancelled", "Tearing down", "Finished tearing down")


@dataclass(frozen=True)
class Evidence:
    """What was gathered about an ended job beside Vertex AI's answer."""

    metrics: dict[str, float] = field(default_factory=dict)
    model_uri: str = ""
    model_digest: str = ""
    """Empty: no model was found at `model_uri`."""
    cost_usd: float | None = None
    note: str = ""
    """What could not be gathered, and why."""


@dataclass(frozen=True)
class Decision:
    run: Run | None = None
    """To be written; None: the record stays as it is."""
    reason: str = ""


def is_about(run: Run, hint: JobHint) -> bool:
    """Whether the hint's job is the run's own, not a duplicate's or a stranger's."""
    if hint.run_id and hint.run_id != run.run_id:
        return False
    if not hint.job_id:
        return True
    if run.job is not None:
        return is_same_job(run.job.name, hint.job_id, hint.location)
    return not any(is_same_job(name, hint.job_id) for name in run.duplicate_jobs)


def job_to_ask(run: Run, hint: JobHint) -> str:
    """The name to ask GetCustomJob for; empty: this hint needs no answer of Vertex AI."""
    if run.job is None or not is_about(run, hint):
        return ""
    if run.state in ACTIVE:
        return "" if hint.kind == "epoch" and run.state is State.RUNNING else run.job.name
    return run.job.name if wants_error(run) and hint.kind != "epoch" else ""


def decide_completion(
    run: Run, hint: JobHint, job: JobView | None, now: datetime, evidence: Evidence | None = None
) -> Decision:
    """What to write to `run`.

    `job` is Vertex AI's answer for `job_to_ask`: None where nothing was asked, or where there is no such job.
    `evidence` is needed where the job has ended.
    """
    if not is_about(run, hint):
        return Decision(reason="of a job that is not the run's")
    if run.state in ACTIVE:
        if job is None:
            return Decision(reason="metrics only") if hint.kind == "epoch" else _gone(run, now)
        return _active(run, hint, job, now, evidence or Evidence())
    if run.terminal:
        return _late(run, hint, job, now)
    return Decision(reason=f"the run is {run.state} and names no job yet; the sweep resolves it")


def wants_error(run: Run) -> bool:
    """Whether the run failed and Vertex AI has not yet said why."""
    return run.state is State.FAILED and run.job is not None and not run.job.error


def build_console_url(run: Run) -> str:
    """The job's page in the Google Cloud console; empty where there is no job."""
    if run.job is None:
        return ""
    return f"https://console.cloud.google.com/ai/platform/locations/{run.region}/training/{run.job.id}?project={run.project}"


def _active(run: Run, hint: JobHint, job: JobView, now: datetime, evidence: Evidence) -> Decision:
    state = run_state(job.state)
    changes: dict[str, Any] = {"job": _record(run, job), "replica_exits": _exits(run, hint, job)}
    if state is not None and state not in ACTIVE:
        return _ended(run, state, job, now, evidence, changes)
    if state is None:
        changes["waiting_for"] = f"Vertex AI says {job.state}, which this version of Kickoff does not know"
    else:
        changes["waiting_for"] = _stalled(job, now) if state is State.SUBMITTED else ""
    look = _next_look(run, hint, job, now)
    if state is State.RUNNING and run.state is State.SUBMITTED:
        return Decision(run.moved(State.RUNNING, now, next_attempt_at=look, **changes), "running")
    if look == run.next_attempt_at and all(getattr(run, name) == value for name, value in changes.items()):
        return Decision(reason="nothing new")
    return Decision(run.model_copy(update={**changes, "updated": now, "next_attempt_at": look}), "seen")


def _ended(
    run: Run, state: State, job: JobView, now: datetime, evidence: Evidence, changes: dict[str, Any]
) -> Decision:
    changes.update(
        waiting_for="",
        next_attempt_at=now,  # due at once: the sweep announces the end where this process cannot
        metrics=evidence.metrics,
        cost_usd=evidence.cost_usd,
        notes=(*run.notes, evidence.note) if evidence.note else run.notes,
    )
    note = job.error
    if state is State.SUCCEEDED:
        changes.update(
            model_uri=evidence.model_uri if evidence.model_digest else "",
            model_digest=evidence.model_digest,
            model_missing=not evidence.model_digest,
        )
        note = "" if evidence.model_digest else f"no model at {evidence.model_uri or 'any place the job named'}"
    elif job.state == "JOB_STATE_PARTIALLY_SUCCEEDED":
        note = "Vertex AI says partially succeeded: some results may be missing"
    return Decision(run.moved(state, now, note[:500], **changes), "ended")


def _late(run: Run, hint: JobHint, job: JobView | None, now: datetime) -> Decision:
    """A hint for a run that has ended: only what the record still lacks is taken from it."""
    changes: dict[str, Any] = {}
    if job is not None and job.error and run.job is not None and not run.job.error:
        changes["job"] = _record(run, job)
        changes["replica_exits"] = _exits(run, hint, job)
    told = finite(hint.data.get("metrics", {})) if hint.kind == "finished" else {}
    if told and run.state is State.SUCCEEDED:
        changes["metrics"] = told  # better than the last epoch's, which is what the end was written with
    changes = {name: value for name, value in changes.items() if getattr(run, name) != value}
    if not changes:
        return Decision(reason=f"the run is {run.state} already")
    return Decision(run.model_copy(update={**changes, "updated": now}), "completed the record")


def _gone(run: Run, now: datetime) -> Decision:
    if now - run.updated < GONE:
        return Decision(reason="Vertex AI does not know the job now; the sweep looks again")
    note = "the job is gone from Vertex AI; how it ended was never seen"
    return Decision(run.moved(State.FAILED, now, note, next_attempt_at=now, waiting_for=""), "ended")


def _record(run: Run, job: JobView) -> JobRecord:
    """The name stays as it was recorded: Vertex AI may answer with the project's number."""
    return job.record().model_copy(update={"name": run.job.name}) if run.job else job.record()


def _exits(run: Run, hint: JobHint, job: JobView) -> tuple[ReplicaExit, ...]:
    """The exits noted so far, and those that this log line or the job's error tells of."""
    exits = list(run.replica_exits)
    if hint.kind == "log":
        found = _REPLICA_EXIT.search(hint.data.get("text", ""))
        if found:
            exits.append(ReplicaExit(replica=found[1], status=int(found[2]), time=hint.time))
    for replica, status in _REPLICA_EXIT.findall(job.error):
        if not any((known.replica, known.status) == (replica, int(status)) for known in exits):
            exits.append(ReplicaExit(replica=replica, status=int(status), time=job.end_time))
    return tuple(dict.fromkeys(exits))[:_MAX_EXITS]


def _is_closing(hint: JobHint) -> bool:
    return hint.kind == "finished" or (hint.kind == "log" and hint.data.get("text", "").startswith(_CLOSING))


def _next_look(run: Run, hint: JobHint, job: JobView, now: datetime) -> datetime | None:
    """When to ask again although no event comes; None: comparing with the list of active jobs, as each sweep does, is
    enough."""
    look = None
    if _is_closing(hint):
        look = now + SOON
    elif run_state(job.state) is None:
        look = now + UNKNOWN_DELAY
    elif run_state(job.state) is State.SUBMITTED and job.create_time:
        look = job.create_time + STALLED if now < job.create_time + STALLED else None
    known = run.next_attempt_at
    return known if known is not None and known > now and (look is None or known < look) else look


def _stalled(job: JobView, now: datetime) -> str:
    if job.create_time is None or now - job.create_time < STALLED:
        return ""
    return f"Vertex AI to start the job, {job.state} since {job.create_time:%Y-%m-%d %H:%M} UTC: capacity or quota?"
