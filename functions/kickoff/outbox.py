"""The outbox: accept a run once, and give it exactly one job. The only code that creates jobs.

Vertex AI's CreateCustomJob takes no request id and its answer can be lost after the job was made, so:

- `accept` is one atomic create of the run's record; a delivery is acknowledged once that exists.
- `submit` takes a QUEUED run to SUBMITTING with a nonce and a lease, POSTs, and writes the job's name, each by
  compare-and-set. Where the answer is uncertain the run stays SUBMITTING, and after the lease jobs are looked for
  by label (adopting.py); nothing else ever resolves it.
- Whoever loses a compare-and-set after its POST notes its own job as a duplicate and cancels it.
"""

import hashlib
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from kickoff.duplicates import Fence, no_fence, settle_duplicates
from kickoff.errors import Fault, InvalidRequest, JobRejected, QuotaExceeded, VertexUnavailable
from kickoff.jobs import JobView
from kickoff.ledger.protocol import AlreadyExists, Conflict, Ledger
from kickoff.runs import FaultRecord, Run, State
from kickoff.settings import Settings
from kickoff.slots import TOTAL, choose_slots
from kickoff.updating import Clock, find_run, update_run
from kickoff.vertex import JobService

QUEUES = "queues"
"""Collection: one document for each recipe that ever had a run waiting for a slot, so that the sweep looks there."""

_FIRST_BACK_OFF, _LONGEST_BACK_OFF = 15.0, 600.0
_PAGE = 50


@dataclass(frozen=True)
class Accepted:
    run: Run
    """The stored run: for a duplicate, the one that the first delivery made."""
    created: bool


def accept(ledger: Ledger, run: Run) -> Accepted:
    """Store the run, or find the one stored before under the same key.

    Raises InvalidRequest where that one came with another body: the second request must not be swallowed in silence.
    """
    try:
        return Accepted(ledger.create_run(run), created=True)
    except AlreadyExists:
        first = find_run(ledger, run.run_id)
    if first.key != run.key or first.request_digest != run.request_digest:
        key = run.key[-1]
        raise InvalidRequest.from_faults(
            [
                Fault(
                    "idempotency_key",
                    f"idempotency_key {key!r} was used before, by run {first.run_id}, with another request; "
                    "send the same request, or another key",
                )
            ]
        )
    return Accepted(first, created=False)


def submit(
    ledger: Ledger,
    vertex: JobService,
    run_id: str,
    *,
    settings: Settings,
    now: Clock,
    max_total: int = 0,
    fence: Fence = no_fence,
) -> Run:
    """Start the run's job if it is QUEUED, its time has come and a slot is free. Returns the run as it then stands.

    Safe to call at any time, by any number of processes. `max_total` caps the active runs of all recipes, 0: no cap.
    """
    outbox = _Outbox(ledger, vertex, settings, now, max_total, fence)
    run = find_run(ledger, run_id)
    if run.state is not State.QUEUED:
        return run
    if not run.max_active and not max_total:
        return outbox.start(run)
    run = outbox.supersede(run)
    outbox.start_oldest(run.recipe)
    return outbox.park(find_run(ledger, run_id))


def submit_next(
    ledger: Ledger,
    vertex: JobService,
    recipe: str,
    *,
    settings: Settings,
    now: Clock,
    max_total: int = 0,
    fence: Fence = no_fence,
) -> list[Run]:
    """Start the oldest runs that wait for the slots of `recipe`, while slots are free. Returns those that it started.

    Called when a run has ended, and by the sweep for every queue.
    """
    return _Outbox(ledger, vertex, settings, now, max_total, fence).start_oldest(recipe)


@dataclass(frozen=True)
class _Outbox:
    ledger: Ledger
    vertex: JobService
    settings: Settings
    now: Clock
    max_total: int
    fence: Fence

    def start_oldest(self, recipe: str) -> list[Run]:
        started = []
        for run in self._waiting("" if self.max_total else recipe):
            run = self.start(run)
            if run.state is State.QUEUED:  # no slot, or no quota: then there is none for the next one either
                break
            started.append(run)
        return started

    def _waiting(self, recipe: str) -> Iterator[Run]:
        """Queued runs whose time has come, oldest first."""
        after = ""
        while page := self.ledger.find_runs(
            states=[State.QUEUED], recipe=recipe, oldest_first=True, limit=_PAGE, after=after
        ):
            after = page[-1].run_id
            yield from (run for run in page if not run.next_attempt_at or run.next_attempt_at <= self.now())

    def start(self, run: Run) -> Run:
        """One QUEUED run through SUBMITTING, if it may start now."""
        run = self.supersede(run)
        while run.state is State.QUEUED:
            time = self.now()
            if run.next_attempt_at and run.next_attempt_at > time:
                return run
            if run.cancel_requested:
                return update_run(self.ledger, run, lambda current: cancelled(current, self.now()))
            slots = choose_slots(self.ledger, run, self.max_total)
            if isinstance(slots, str):
                return self.park(run, slots)
            try:
                taken = self.ledger.replace_run(self._leased(run, time), claim=slots)
            except AlreadyExists:  # someone took that slot: there may be another
                continue
            except Conflict:
                run = find_run(self.ledger, run.run_id)
                continue
            return self._post(taken)
        return run

    def _leased(self, run: Run, time: datetime) -> Run:
        nonce = secrets.token_hex(8)
        return run.moved(
            State.SUBMITTING,
            time,
            nonce=nonce,
            nonces=(*run.nonces, nonce),
            lease_until=time + timedelta(seconds=self.settings.lease),
            next_attempt_at=None,
            submissions=run.submissions + 1,
            empty_looks=0,
            waiting_for="",
        )

    def _post(self, run: Run) -> Run:
        """The one POST of this lease, and what its answer means."""
        if run.lease_until is None or run.lease_until - self.now() < timedelta(seconds=self.settings.create_timeout):
            return self._back_to_queue(run, "the lease was too short for a submission when its turn came", delay=0)
        try:
            job = self.vertex.create(run.project, run.region, run.custom_job, run.nonce)
        except JobRejected as error:
            words = str(error)
            return update_run(self.ledger, run, lambda current: _rejected(current, run.nonce, self.now(), words))
        except QuotaExceeded as error:
            return self._back_to_queue(run, f"quota: {error}", delay=back_off(run.run_id, run.submissions))
        except VertexUnavailable as error:
            note = f"no certain answer to CreateCustomJob ({error}); the job is looked for after the lease"
            return update_run(self.ledger, run, lambda current: _uncertain(current, run.nonce, note))
        return self._name(run, job)

    def _name(self, run: Run, job: JobView) -> Run:
        time = self.now()

        def named(current: Run) -> Run | None:
            if current.state is not State.SUBMITTING or current.nonce != run.nonce:
                return None
            return current.moved(State.SUBMITTED, time, job=job.record(), lease_until=None, waiting_for="")

        stored = update_run(self.ledger, run, named)
        if stored.job is None or stored.job.id != job.id:
            return settle_duplicates(self.ledger, self.vertex, stored, [job], now=self.now, fence=self.fence)
        if stored.cancel_requested:
            self.vertex.cancel(job.name)
        return stored

    def _back_to_queue(self, run: Run, why: str, delay: float) -> Run:
        time = self.now()

        def queued(current: Run) -> Run | None:
            if current.state is not State.SUBMITTING or current.nonce != run.nonce:
                return None
            again = time + timedelta(seconds=delay)
            return current.moved(State.QUEUED, time, why, lease_until=None, next_attempt_at=again, waiting_for=why)

        return update_run(self.ledger, run, queued)

    def park(self, run: Run, why: str = "its turn: older runs wait for the same slots") -> Run:
        """Leave a QUEUED run to whoever frees a slot. The queue's document comes first: the sweep follows it."""
        if run.state is not State.QUEUED or (run.waiting_for and run.next_attempt_at is None):
            return run
        if run.next_attempt_at and run.next_attempt_at > self.now():
            return run
        for queue in (run.recipe, *([TOTAL] if self.max_total else [])):
            if self.ledger.get_document(QUEUES, queue) is None:
                try:
                    self.ledger.create_document(QUEUES, queue, {})
                except AlreadyExists:
                    continue
        change = {"waiting_for": why, "next_attempt_at": None, "updated": self.now()}
        waits = (State.QUEUED,)
        return update_run(
            self.ledger, run, lambda current: current.model_copy(update=change) if current.state in waits else None
        )

    def supersede(self, run: Run) -> Run:
        """For `newest_only` recipes: queued runs of older versions of the same dataset, or of older messages, end."""
        if not run.newest_only or run.state is not State.QUEUED:
            return run
        siblings = [run]
        after = ""
        while page := self.ledger.find_runs(states=[State.QUEUED], recipe=run.recipe, limit=_PAGE, after=after):
            siblings += [other for other in page if other.key[:-1] == run.key[:-1] and other.run_id != run.run_id]
            after = page[-1].run_id
        newest = max(siblings, key=lambda one: (one.created, one.run_id))
        note = f"superseded by {newest.run_id}, a newer version"
        for old in siblings:
            if old.run_id != newest.run_id:
                old = update_run(self.ledger, old, lambda current: _superseded(current, self.now(), note))
            run = old if old.run_id == run.run_id else run
        return run


def back_off(run_id: str, submissions: int) -> float:
    """Seconds before the next try after a 429: doubling, at most ten minutes, spread by the run's own name."""
    longest = min(_LONGEST_BACK_OFF, _FIRST_BACK_OFF * 2.0 ** min(submissions - 1, 10))
    spread = int.from_bytes(hashlib.sha256(f"{run_id} {submissions}".encode()).digest()[:2], "big") / 65536
    return longest * (0.5 + spread / 2)


def _rejected(run: Run, nonce: str, time: datetime, words: str) -> Run | None:
    if run.state is not State.SUBMITTING or run.nonce != nonce:
        return None
    faults = (FaultRecord(path="", message=words),)
    return run.moved(
        State.REJECTED, time, "refused by Vertex AI", faults=faults, lease_until=None, next_attempt_at=time
    )


def _uncertain(run: Run, nonce: str, note: str) -> Run | None:
    if run.state is not State.SUBMITTING or run.nonce != nonce or note in run.notes:
        return None
    return run.model_copy(update={"notes": (*run.notes, note)})


def cancelled(run: Run, time: datetime, by: str = "") -> Run | None:
    """The end of a run that has no job yet; None for a run in another state."""
    if run.state not in (State.QUEUED, State.HELD):
        return None
    note = f"cancelled{f' by {by}' if by else ''} before a job was made"
    return run.moved(State.CANCELLED, time, note, next_attempt_at=time, waiting_for="")


def _superseded(run: Run, time: datetime, note: str) -> Run | None:
    if run.state is not State.QUEUED:
        return None
    return run.moved(State.SUPERSEDED, time, note, next_attempt_at=time, waiting_for="")
