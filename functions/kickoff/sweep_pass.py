"""One pass of the sweep: finds what no event told us. Idempotent, bounded, safe to run twice at once.

Each step works off what is due, oldest first; one run's failure is reported and the others go on. What is not reached
within the budget is reached by the next call: due runs leave the list when they are done, and the scan of active runs
keeps a cursor.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from kickoff.adopting import adopt
from kickoff.duplicates import Fence, no_fence, settle_duplicates
from kickoff.errors import KickoffError, TransientError
from kickoff.jobs import RUN_LABEL, JobView, run_state
from kickoff.ledger.protocol import AlreadyExists, Conflict, Document, Ledger
from kickoff.outbox import QUEUES, submit, submit_next
from kickoff.runs import TERMINAL, Run, State
from kickoff.settings import Settings
from kickoff.updating import Clock, find_run, update_run
from kickoff.vertex import JobService

CURSORS = "cursors"
_CURSOR = "sweep"
_GOING = (State.SUBMITTED, State.RUNNING)
_POSTPONED = timedelta(minutes=5)


@dataclass
class SweepReport:
    """How often the sweep did what, for the log and the answer."""

    counts: Counter[str] = field(default_factory=Counter)
    errors: list[str] = field(default_factory=list)
    finished: bool = True
    """False: the budget ran out, the next call goes on."""

    @property
    def quiet(self) -> bool:
        """Nothing was done, and nothing failed."""
        return self.finished and not self.errors and not self.counts.total()

    def to_json(self) -> dict[str, Any]:
        return {**{name: n for name, n in self.counts.items() if n}, "errors": self.errors, "finished": self.finished}


def run_pass(
    ledger: Ledger,
    vertex: JobService,
    *,
    settings: Settings,
    now: Clock,
    record: Callable[[Run], Run | None],
    datasets: Mapping[str, Callable[[], int]] | None = None,
    fence: Fence = no_fence,
    max_total: int = 0,
    limit: int = 200,
    budget: float = 45.0,
) -> SweepReport:
    """`record` looks at a run's job (GetCustomJob) and writes what it finds: record.py. `datasets` are further steps by
    name, each returning how much it did: holds that are due, lost datasets. `limit` is the number of runs that a step
    looks at, `budget` the seconds after which no new one is begun.
    """
    pass_ = _Pass(ledger, vertex, settings, now, record, fence, max_total, limit, now() + timedelta(seconds=budget))
    pass_.each("adopted", pass_.due([State.SUBMITTING]), pass_.resolve)
    pass_.start_due()
    for name, step in (datasets or {}).items():
        pass_.step(name, step)
    pass_.step("", pass_.compare_jobs)
    pass_.each("recorded", pass_.due([*_GOING, *TERMINAL]), pass_.look)
    pass_.step("started", pass_.start_queues)  # last: what ended above has freed its slots
    return pass_.report


@dataclass
class _Pass:
    ledger: Ledger
    vertex: JobService
    settings: Settings
    now: Clock
    record: Callable[[Run], Run | None]
    fence: Fence
    max_total: int
    limit: int
    until: datetime
    report: SweepReport = field(default_factory=SweepReport)

    def due(self, states: Iterable[State]) -> list[Run]:
        """Due runs; of those that the limit lets through the oldest first, so that back-off starves nobody."""
        found: list[Run] = []

        def find() -> int:
            found.extend(self.ledger.find_runs(states=list(states), due_before=self.now(), limit=self.limit))
            return 0

        self.step("", find)
        return sorted(found, key=lambda run: (run.created, run.run_id))

    def each(self, count: str, runs: Iterable[Run], act: Callable[[Run], bool]) -> None:
        """`act` on each run while there is time; it says whether it did anything."""
        for run in runs:
            if self.now() >= self.until:
                self.report.finished = False
                return
            try:
                self.report.counts[count] += act(run)
            except TransientError as error:  # the next pass may well succeed
                self.report.errors.append(f"run {run.run_id}: {error}")
            except Exception as error:  # one poisoned record must not stop the others
                self.report.errors.append(f"run {run.run_id}: {type(error).__name__}: {error}")
                self.step("", lambda run=run: self._postpone(run))  # type: ignore[misc]

    def step(self, name: str, act: Callable[[], int]) -> None:
        """One step that stands alone; its failure is reported and the next step runs."""
        if self.now() >= self.until:
            self.report.finished = False
            return
        try:
            done = act()
        except KickoffError as error:
            self.report.errors.append(f"{name or act.__name__}: {error}")
            return
        if done:
            self.report.counts[name] += done

    def resolve(self, run: Run) -> bool:
        after = adopt(self.ledger, self.vertex, run, settings=self.settings, now=self.now, fence=self.fence)
        if after.state is State.QUEUED:
            self._submit(after)
        return after.version != run.version

    def start_due(self) -> None:
        """Submit what is due. After a 429 the rest of that project and region stays due for the next pass."""
        exhausted: set[tuple[str, str]] = set()

        def start(run: Run) -> bool:
            if (run.project, run.region) in exhausted:
                return False
            after = self._submit(run)
            if after.state is State.QUEUED and after.submissions > run.submissions:
                exhausted.add((run.project, run.region))
            return after.version != run.version

        self.each("started", self.due([State.QUEUED]), start)

    def start_queues(self) -> int:
        """Recipes with runs that wait for a slot: whoever freed one may have died before it started the next."""
        started = 0
        for queue in self.ledger.list_documents(QUEUES, limit=1000):
            started += len(submit_next(self.ledger, self.vertex, queue.id, **self._how()))
        return started

    def compare_jobs(self) -> int:
        """Active runs and Vertex's active jobs, side by side: ends that nobody noticed, and jobs too many."""
        cursor = self._cursor()
        page = self.ledger.find_runs(
            states=_GOING, oldest_first=True, limit=self.limit, after=str(cursor.data.get("after", ""))
        )
        places = {(self.settings.project, self.settings.region), *((run.project, run.region) for run in page)}
        active = {place: self.vertex.list_active(*place) for place in sorted(places)}
        by_id = {job.id: job for jobs in active.values() for job in jobs}
        self.each("recorded", (run for run in page if _differs(run, by_id)), self.look)
        runs = {run.run_id: run for run in page}
        for jobs in active.values():
            self._compare_labels(jobs, runs)
        data = {"after": page[-1].run_id if len(page) == self.limit else ""}
        if data != cursor.data:
            with suppress(Conflict):  # another sweep moved it
                self.ledger.replace_document(Document(CURSORS, cursor.id, data, cursor.version, cursor.updated))
        return 0

    def look(self, run: Run) -> bool:
        after = self.record(run)
        return after is not None and after.version != run.version

    def _compare_labels(self, jobs: list[JobView], known: Mapping[str, Run]) -> None:
        labelled: dict[str, list[JobView]] = {}
        for job in jobs:
            labelled.setdefault(job.labels[RUN_LABEL], []).append(job)
        odd = (
            run_id
            for run_id, its in labelled.items()
            if not (run := known.get(run_id)) or len(its) > 1 or not _is_named(run, its[0]) or run.cancel_requested
        )
        found = (run for run_id in odd if (run := self.ledger.get_run(run_id)))
        self.each("cancelled", found, lambda run: self._settle(run, labelled[run.run_id]))

    def _settle(self, run: Run, jobs: list[JobView]) -> bool:
        after = settle_duplicates(self.ledger, self.vertex, run, jobs, now=self.now, fence=self.fence)
        named = next((job for job in jobs if _is_named(after, job)), None)
        if named and after.cancel_requested and named.state != "JOB_STATE_CANCELLING":
            self.vertex.cancel(named.name)
            return True
        return after.version != run.version

    def _submit(self, run: Run) -> Run:
        return submit(self.ledger, self.vertex, run.run_id, **self._how())

    def _how(self) -> dict[str, Any]:
        return {"settings": self.settings, "now": self.now, "max_total": self.max_total, "fence": self.fence}

    def _postpone(self, run: Run) -> int:
        """So that a run which fails in every pass does not stand before all others."""
        again = self.now() + _POSTPONED

        def postponed(current: Run) -> Run | None:
            if current.version != run.version or current.due is None:
                return None
            field = "lease_until" if current.state is State.SUBMITTING else "next_attempt_at"
            return current.model_copy(update={field: again})

        update_run(self.ledger, find_run(self.ledger, run.run_id), postponed)
        return 0

    def _cursor(self) -> Document:
        found = self.ledger.get_document(CURSORS, _CURSOR)
        if found is None:
            with suppress(AlreadyExists):
                return self.ledger.create_document(CURSORS, _CURSOR, {"after": ""})
            return self._cursor()
        return found


def _differs(run: Run, active: Mapping[str, JobView]) -> bool:
    """Whether the record is behind what the list of active jobs shows."""
    job = active.get(run.job.id) if run.job else None
    return job is None or run_state(job.state) not in (run.state, State.SUBMITTED, None)


def _is_named(run: Run, job: JobView) -> bool:
    return run.job is not None and run.job.id == job.id
