"""Which of the jobs that carry a run's label is its job, after an answer, or a process, was lost.

Vertex promises nowhere that a list shows every job that was made, and a sleeping process can POST after its lease. So
the trainer's fence decides who trains (its winner keeps or gets the run), and before it there is a winner the first
job made stays. Every other job is named in the record, then cancelled.
"""

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING

from kickoff.jobs import NONCE_LABEL, JobView
from kickoff.ledger.protocol import Conflict, Ledger
from kickoff.outbox import Clock, drop_duplicates
from kickoff.runs import Run, State
from kickoff.settings import Settings
from kickoff.updating import find_run, update_run
from kickoff.vertex import Vertex

if TYPE_CHECKING:
    from kickoff.storage import Storage

Fence = Callable[[Run], str]
"""The id of the job that won the run's fence, empty while none has."""

LOOKS = 2
"""How often in a row, a margin apart, no job may be listed before a new one is made."""


def no_fence(run: Run) -> str:
    """Where no storage is at hand: as if no job had won yet."""
    return ""


def storage_fence(storage: "Storage") -> Fence:
    """The fence that our trainer keeps: the object `winner` below the job's base output directory."""

    def read(run: Run) -> str:
        base = run.custom_job.get("jobSpec", {}).get("baseOutputDirectory", {}).get("outputUriPrefix", "")
        bucket, _, prefix = base.removeprefix("gs://").partition("/")
        if not base.startswith("gs://") or not bucket:
            return ""
        name = f"{prefix.rstrip('/')}/winner".lstrip("/")
        found = storage.stat(bucket, name)
        data = storage.read(bucket, name, found.generation) if found else None
        return (data or b"").decode(errors="replace").strip()

    return read


def adopt(ledger: Ledger, vertex: Vertex, run: Run, *, settings: Settings, now: Clock, fence: Fence = no_fence) -> Run:
    """Resolve a SUBMITTING run whose lease has passed: name its job, look again later, or queue it anew."""
    time = now()
    if run.state is not State.SUBMITTING or run.lease_until is None or run.lease_until > time:
        return run
    listed = vertex.find_by_run(run.project, run.region, run.run_id)
    ours = select_ours(run, listed)
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


def settle_duplicates(
    ledger: Ledger, vertex: Vertex, run: Run, jobs: list[JobView], *, now: Clock, fence: Fence = no_fence
) -> Run:
    """Given every active job with the run's label, leave the one that the record names.

    Only where another one has won the fence, and so is the one that trains, is the record changed to name that one.
    """
    others = [job for job in select_ours(run, jobs) if not (run.job and run.job.id == job.id)]
    if not others or run.state is State.SUBMITTING:  # that one is its submitter's, then `adopt`'s
        return run
    winner = fence(run)
    ahead = next((job for job in others if job.id == winner), None)
    if ahead and run.job and not run.terminal:
        named = run.job

        def renamed(current: Run) -> Run | None:
            if current.terminal or current.job is None or current.job.id != named.id:
                return None
            note = f"job {ahead.id} won the fence before job {named.id}, which is a duplicate and is cancelled"
            return current.model_copy(
                update={
                    "job": ahead.record(),
                    "duplicate_jobs": (*(n for n in current.duplicate_jobs if n != ahead.name), named.name),
                    "notes": (*current.notes, note),
                    "updated": now(),
                }
            )

        run = update_run(ledger, run, renamed)
        vertex.cancel(named.name)
        others = [job for job in others if not (run.job and run.job.id == job.id)]
    why = f"job {run.job.id} is the run's" if run.job else f"the run is {run.state}"
    return drop_duplicates(ledger, vertex, run, others, why) if others else run


def select_ours(run: Run, jobs: list[JobView]) -> list[JobView]:
    """Jobs with a nonce that the run issued. Anyone can write a label; nobody guesses a nonce."""
    return [job for job in jobs if job.labels.get(NONCE_LABEL) in run.nonces]


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
