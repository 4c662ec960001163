"""What people ask of a run: cancel it, run it again."""

import json
from collections.abc import Callable
from datetime import datetime
from typing import Any

from kickoff.errors import Fault, InvalidRequest
from kickoff.ledger.protocol import AlreadyExists, Ledger
from kickoff.outbox import Accepted, cancelled
from kickoff.runs import Change, Run, State, Trigger, build_run_id
from kickoff.updating import Clock, find_run, update_run
from kickoff.vertex import JobService

_ATTEMPTS = 1000


def cancel(ledger: Ledger, vertex: JobService, run_id: str, *, now: Clock, by: str = "") -> Run:
    """End the run. One that has no job yet ends at once; else Vertex is asked, and its job's end is recorded as usual.

    A run whose job is being created is cancelled by its submitter, or by the sweep that adopts the job.
    """
    run = find_run(ledger, run_id)
    run = update_run(ledger, run, lambda current: _cancelling(current, now(), by))
    if run.state in (State.SUBMITTED, State.RUNNING) and run.job:
        vertex.cancel(run.job.name)
    return run


def rerun(
    ledger: Ledger, run_id: str, reason: str, client_token: str, *, now: Clock, by: str = "", force: bool = False
) -> Accepted:
    """Accept the next attempt of the same request: the same job under a new run id, linked both ways.

    The same `client_token` again finds the attempt that it made. While an earlier attempt is active this is refused,
    unless forced.
    """
    first, latest, attempt = find_run(ledger, run_id), None, 1
    base = build_run_id(first.key)
    for attempt in range(1, _ATTEMPTS):
        found = ledger.get_run(build_run_id(first.key, attempt))
        if found is None:
            made = _make_attempt(ledger, latest or first, first, attempt, reason, client_token, now, by, force)
            if made:
                return made
            found = find_run(ledger, build_run_id(first.key, attempt))
        if found.trigger.kind == "rerun" and found.trigger.event_id == client_token:
            return Accepted(_link(ledger, found), created=False)
        latest = found
    raise InvalidRequest(f"run {base} has {_ATTEMPTS} attempts; that is the limit")


def _make_attempt(
    ledger: Ledger,
    latest: Run,
    origin: Run,
    attempt: int,
    reason: str,
    token: str,
    now: Callable[[], datetime],
    by: str,
    force: bool,
) -> Accepted | None:
    """None when someone else made this attempt at the same moment."""
    check_rerun(latest, origin, reason, token, force)
    try:
        made = ledger.create_run(build_attempt(origin, attempt, reason, token, now(), by))
    except AlreadyExists:
        return None
    return Accepted(_link(ledger, made), created=True)


def check_rerun(latest: Run, origin: Run, reason: str, token: str, force: bool) -> None:
    """Raises InvalidRequest with everything that speaks against it."""
    faults = []
    if not reason.strip():
        faults.append(Fault("reason", "reason is empty; say why, it is kept in the record"))
    if not token:
        faults.append(Fault("client_token", "client_token is empty; send one, so that a repeated call makes one run"))
    if not latest.terminal and not force:
        faults.append(Fault("run_id", f"run {latest.run_id} is {latest.state}; wait for its end, cancel it, or force"))
    if not origin.custom_job:
        faults.append(Fault("run_id", f"run {origin.run_id} was refused and has no job; send the request again"))
    if faults:
        raise InvalidRequest.from_faults(faults)


def build_attempt(origin: Run, attempt: int, reason: str, token: str, time: datetime, by: str) -> Run:
    """The same request as a new run: its id takes the old one's place in labels, output and environment."""
    run_id = build_run_id(origin.key, attempt)
    kept = origin.model_dump(
        include={
            "key", "recipe", "recipe_digest", "request", "request_digest", "labels", "dataset", "custom_job", "project",
            "region", "output", "warnings", "max_active", "newest_only", "worst_case_usd",
        }
    )  # fmt: skip
    for field in ("request", "labels", "custom_job", "output"):
        kept[field] = renamed(kept[field], origin.run_id, run_id)
    return Run(
        **kept,
        run_id=run_id,
        attempt=attempt,
        state=State.QUEUED,
        history=(Change(state=State.QUEUED, time=time, note=f"rerun of {origin.run_id}: {reason.strip()}"),),
        created=time,
        updated=time,
        next_attempt_at=time,
        trigger=Trigger(kind="rerun", event_id=token, source=origin.run_id, time=time, by=by),
        rerun_of=origin.run_id,
    )


def renamed(value: Any, old: str, new: str) -> Any:
    """A JSON value with one run id for another in every text. A run id holds a hash: no other text contains it."""
    return json.loads(json.dumps(value).replace(old, new))


def _link(ledger: Ledger, run: Run) -> Run:
    """Name the attempt in the run that it repeats. Done again by a repeated call, should this one be cut short."""

    def linked(current: Run) -> Run | None:
        if run.run_id in current.reruns:
            return None
        return current.model_copy(update={"reruns": (*current.reruns, run.run_id)})

    update_run(ledger, find_run(ledger, run.rerun_of), linked)
    return run


def _cancelling(run: Run, time: datetime, by: str) -> Run | None:
    if run.state in (State.HELD, State.QUEUED):
        return cancelled(run, time, by)
    if run.terminal or run.cancel_requested:
        return None
    note = f"cancellation asked for{f' by {by}' if by else ''}"
    return run.model_copy(update={"cancel_requested": True, "notes": (*run.notes, note), "updated": time})
