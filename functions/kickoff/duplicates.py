"""Jobs too many: one run, two jobs, after an answer or a process was lost.

The trainer's fence decides who trains: the job that won it keeps or gets the run. Before anyone has won, the job that
the record names stays. Every other one is named in the record, then cancelled: in that order, so that a job which was
dropped is never adopted.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from kickoff.jobs import NONCE_LABEL, JobView
from kickoff.ledger.protocol import Ledger
from kickoff.runs import Run, State
from kickoff.updating import Clock, update_run
from kickoff.vertex import JobService

if TYPE_CHECKING:
    from kickoff.storage import Storage

Fence = Callable[[Run], str]
"""The id of the job that won the run's fence, empty while none has."""


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


def settle_duplicates(
    ledger: Ledger, vertex: JobService, run: Run, jobs: list[JobView], *, now: Clock, fence: Fence = no_fence
) -> Run:
    """Of `jobs`, which carry the run's label, drop those that are not its job.

    The fence's winner is never dropped while the run goes on: the record is made to name it. While a submission is
    under way that is left to its submitter, and after it to `adopt`.
    """
    others = [job for job in select_ours(run, jobs) if not (run.job and run.job.id == job.id)]
    if run.state is State.SUBMITTING:
        others = [job for job in others if job.labels[NONCE_LABEL] != run.nonce]
    if not others:
        return run
    winner = "" if run.terminal else fence(run)
    ahead = next((job for job in others if job.id == winner), None)
    if ahead:
        others.remove(ahead)
        if run.job:
            run = follow_winner(ledger, vertex, run, ahead, now)
    why = f"job {run.job.id} is the run's" if run.job else f"the run is {run.state}"
    return drop_duplicates(ledger, vertex, run, others, why) if others else run


def settle_at_end(
    ledger: Ledger, vertex: JobService, run: Run, job: JobView, *, now: Clock, fence: Fence = no_fence
) -> Run:
    """Before the end of `job` is taken for the end of its run: it may be a duplicate that left the field to another.

    Only a run that was submitted more than once can have several jobs, so all others cost no call.
    """
    if run.submissions < 2 or not job.ended or run.terminal:
        return run
    return settle_duplicates(ledger, vertex, run, find_jobs(vertex, run, fence), now=now, fence=fence)


def follow_winner(ledger: Ledger, vertex: JobService, run: Run, winner: JobView, now: Clock) -> Run:
    """Name the job that trains in place of the one named so far, and cancel that one."""
    named = run.job

    def renamed(current: Run) -> Run | None:
        if current.terminal or named is None or current.job is None or current.job.id != named.id:
            return None
        note = f"job {winner.id} won the fence before job {named.id}, which is a duplicate"
        kept = (name for name in current.duplicate_jobs if name != winner.name)
        return current.model_copy(
            update={
                "job": winner.record(),
                "duplicate_jobs": (*kept, named.name),
                "notes": (*current.notes, note),
                "updated": now(),
            }
        )

    stored = update_run(ledger, run, renamed)
    if named and stored.job and stored.job.id == winner.id:
        vertex.cancel(named.name)
    return stored


def find_jobs(vertex: JobService, run: Run, fence: Fence) -> list[JobView]:
    """Every job of the run that a list shows, and the fence's winner also where no list shows it yet."""
    jobs = vertex.find_by_run(run.project, run.region, run.run_id)
    winner = fence(run)
    if winner and all(job.id != winner for job in jobs):
        job = vertex.get(f"projects/{run.project}/locations/{run.region}/customJobs/{winner}")
        jobs += [job] if job else []
    return select_ours(run, jobs)


def select_ours(run: Run, jobs: list[JobView]) -> list[JobView]:
    """Jobs with a nonce that the run issued. Anyone can write a label; nobody guesses a nonce."""
    return [job for job in jobs if job.labels.get(NONCE_LABEL) in run.nonces]


def drop_duplicates(ledger: Ledger, vertex: JobService, run: Run, jobs: list[JobView], why: str) -> Run:
    """Note jobs that are not the run's, then cancel them. In that order: a noted job is never adopted."""
    run = update_run(ledger, run, lambda current: _noted(current, jobs, why))
    for job in jobs:
        if not job.ended and not (run.job and run.job.id == job.id):
            vertex.cancel(job.name)
    return run


def _noted(run: Run, jobs: list[JobView], why: str) -> Run | None:
    known = {name.rpartition("/")[2] for name in run.duplicate_jobs} | ({run.job.id} if run.job else set())
    fresh = tuple(job for job in jobs if job.id not in known)
    if not fresh:
        return None
    note = f"duplicate job {', '.join(job.id for job in fresh)}: {why}"
    names = tuple(job.name for job in fresh)
    return run.model_copy(update={"duplicate_jobs": (*run.duplicate_jobs, *names), "notes": (*run.notes, note)})
