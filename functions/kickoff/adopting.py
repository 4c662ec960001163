"""Which of the jobs that carry a run's label is its job, after an answer, or a process, was lost.

Vertex promises nowhere that a list shows every job that was made, so no job is listed twice, a margin apart, before
another is made; and what shows up later still is a duplicate (duplicates.py).
"""

from datetime import timedelta

from kickoff.duplicates import Fence, drop_duplicates, find_jobs, no_fence
from kickoff.jobs import JobView
from kickoff.ledger.protocol import Conflict, Ledger
from kickoff.runs import Run, State
from kickoff.settings import Settings
from kickoff.updating import Clock, find_run
from kickoff.vertex import JobService

LOOKS = 2
"""How often in a row, a margin apart, no job may be listed before a new one is made."""


def adopt(
    ledger: Ledger, vertex: JobService, run: Run, *, settings: Settings, now: Clock, fence: Fence = no_fence
) -> Run:
    """Resolve a SUBMITTING run whose lease has passed: name its job, look again later, or queue it anew."""
    time = now()
    if run.state is not State.SUBMITTING or run.lease_until is None or run.lease_until > time:
        return run
    ours = find_jobs(vertex, run, fence)
    chosen = select_job(run, ours, fence(run) if ours else "")
    if chosen is None:
        return _store(ledger, _without_job(run, settings, now))
    note = f"adopted job {chosen.id}: the answer to its creation was lost"
    moved = run.moved(State.SUBMITTED, time, note, job=chosen.record(), lease_until=None, waiting_for="")
    stored = _store(ledger, moved)
    if stored.job is None or stored.job.id != chosen.id:
        return stored
    if stored.cancel_requested and not chosen.ended:
        vertex.cancel(chosen.name)
    rest = [job for job in ours if job.id != chosen.id]
    return drop_duplicates(ledger, vertex, stored, rest, f"job {chosen.id} is the run's") if rest else stored


def select_job(run: Run, ours: list[JobView], winner: str) -> JobView | None:
    """The fence's winner, else the first made of those not dropped; a cancelled one only if no other is there."""
    dropped = {name.rpartition("/")[2] for name in run.duplicate_jobs}
    ranked = sorted(
        (job for job in ours if job.id == winner or job.id not in dropped),
        key=lambda job: (
            job.id != winner,
            job.state in ("JOB_STATE_CANCELLING", "JOB_STATE_CANCELLED"),
            job.create_time.isoformat() if job.create_time else "",
            job.id,
        ),
    )
    return ranked[0] if ranked else None


def _without_job(run: Run, settings: Settings, now: Clock) -> Run:
    time, looks = now(), run.empty_looks + 1
    if looks < LOOKS:
        again = time + timedelta(seconds=settings.lease_margin)
        return run.model_copy(update={"empty_looks": looks, "lease_until": again})
    note = f"Vertex AI lists no job of this run, {looks} times in a row: submitting anew"
    return run.moved(State.QUEUED, time, note, lease_until=None, next_attempt_at=time)


def _store(ledger: Ledger, run: Run) -> Run:
    try:
        return ledger.replace_run(run)
    except Conflict:  # someone else resolves it
        return find_run(ledger, run.run_id)
