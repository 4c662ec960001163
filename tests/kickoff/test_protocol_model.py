"""Ledger and protocol against a simple model, through histories that hypothesis invents.

Each history delivers, crashes, loses answers, hides jobs from lists, lets processes sleep around their effects, sweeps,
cancels and reruns, in any order. After it everything is healed and swept until quiet; then the books must balance.
"""

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, multiple, rule
from kickoff.datasets import Listing, StoredObject
from kickoff.errors import InvalidRequest, KickoffError, LedgerUnavailable
from kickoff.ledger import SLOTS, open_ledger
from kickoff.ledger.records import ACTIVE
from kickoff.outbox import accept, submit, submit_next
from kickoff.record import Recorder
from kickoff.runs import Run, State
from kickoff.settings import Settings
from kickoff.steering import cancel, rerun
from kickoff.sweep_pass import run_pass

from tests.kickoff.making import NOW, make_run
from tests.kickoff.vertex_model import VertexModel

CAP = 1
NAMES = st.sampled_from(["a", "b"])
POINTS = [
    "ledger.create_run:before",
    "ledger.create_run:after",
    "ledger.replace_run:before",
    "ledger.replace_run:after",
    "vertex.create:before",
    "vertex.create:after",
    "vertex.cancel:before",
    "vertex.cancel:after",
    "bus.publish:before",
    "bus.publish:after",
]
TROUBLE = st.one_of(
    st.none(),
    st.tuples(st.sampled_from(POINTS), st.integers(1, 2), st.sampled_from(["crash", "outage", "sleep"])),
)
ANSWERS = st.lists(
    st.sampled_from(["ok", "lost", "lost", "lost", "quota", "rejected", "unavailable"]), min_size=1, max_size=3
)


class Crash(BaseException):
    """The process is gone: nothing catches this."""


@dataclass
class Process(threading.Thread):
    """One call of an entry point, in its own thread, with trouble at a point. Only one runs at a time."""

    act: Callable[[], object]
    trouble: tuple[str, int, str] | None
    passed: int = 0
    error: BaseException | None = None
    sleeping: bool = False
    still: threading.Event = field(default_factory=threading.Event)
    wake: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        super().__init__(daemon=True)

    __hash__ = threading.Thread.__hash__

    def run(self) -> None:
        try:
            self.act()
        except (Crash, KickoffError):
            pass
        except BaseException as error:
            self.error = error
        self.still.set()

    def go(self) -> bool:
        """Run until it sleeps or ends; True when it sleeps."""
        self.still.clear()
        self.sleeping = False
        if self.ident is None:
            self.start()
        else:
            self.wake.set()
        assert self.still.wait(30), "a process hangs"
        if self.sleeping:
            return True
        self.join(30)
        if self.error:
            raise self.error
        return False

    def point(self, name: str) -> None:
        if self.trouble is None or name != self.trouble[0]:
            return
        self.passed += 1
        if self.passed != self.trouble[1]:
            return
        kind = self.trouble[2]
        if kind == "crash":
            raise Crash
        if kind == "outage" and name.startswith("ledger."):
            raise LedgerUnavailable("the answer was lost" if name.endswith("after") else "no answer")
        if kind == "sleep":
            self.sleeping = True
            self.still.set()
            assert self.wake.wait(60)


class StorageModel:
    """The fence's objects and the models that jobs wrote."""

    def __init__(self, vertex: VertexModel) -> None:
        self.vertex = vertex

    def stat(self, bucket: str, name: str) -> StoredObject | None:
        return _stored(name) if self.read(bucket, name, 1) else None

    def read(self, bucket: str, name: str, generation: int) -> bytes:
        return self.vertex.winners.get(name.split("/")[1], "").encode()

    def list(self, bucket: str, prefix: str) -> Listing:
        return Listing(NOW, [_stored(f"{prefix}saved_model.pb")])


class BusModel:
    def __init__(self) -> None:
        self.ids: list[str] = []

    def publish(self, topic: str, data: bytes, attributes: dict[str, str]) -> str:
        self.ids.append(attributes["ce-id"])
        return "1"


def _stored(name: str) -> StoredObject:
    return StoredObject(name=name, generation=1, crc32c="AAAAAA==", size=1, created=NOW)


class Histories(RuleBasedStateMachine):
    runs: Bundle[str] = Bundle("runs")

    def __init__(self) -> None:
        super().__init__()
        self.folder = TemporaryDirectory()
        self.settings = Settings.from_environ(
            {
                "KICKOFF_PROJECT": "p",
                "KICKOFF_LEDGER": f"sqlite://{self.folder.name}/runs.db",
                "KICKOFF_FINISHED_TOPIC": "projects/p/topics/run-finished",
            }
        )
        self.ledger = open_ledger(self.settings.ledger)
        self.vertex = VertexModel(NOW)
        self.bus = BusModel()
        self.fence = self.vertex.fence
        self.asleep: list[Process] = []
        self.acknowledged: set[str] = set()
        self.delivered: dict[str, datetime] = {}
        self.patch = patch("kickoff.points.point", _point)
        self.patch.start()

    def teardown(self) -> None:
        try:
            self.heal()
            self.check_books()
        finally:
            self.patch.stop()
            for process in self.asleep:
                process.trouble = None
                process.wake.set()
            self.ledger.close()
            self.folder.cleanup()

    @rule(target=runs, name=NAMES, trouble=TROUBLE, answers=ANSWERS)
    def deliver(self, name: str, trouble: Any, answers: list[str]) -> Any:
        """One more delivery of a request, the first or not."""
        run = make_run(name, created=self.now(), project="p", max_active=CAP)
        self.delivered.setdefault(run.run_id, self.now())
        self.vertex.answers = answers

        def act() -> None:
            accepted = accept(self.ledger, run)
            self.acknowledged.add(accepted.run.run_id)
            submit(self.ledger, self.vertex, run.run_id, **self.how())

        self.process(act, trouble)
        return run.run_id if self.ledger.get_run(run.run_id) else multiple()

    @rule(name=NAMES)
    def deliver_another_body(self, name: str) -> None:
        run = make_run(name, created=self.now(), request_digest="other")
        if self.ledger.get_run(run.run_id):
            try:
                accept(self.ledger, run)
            except InvalidRequest:
                return
            raise AssertionError("another body under the same key was swallowed")

    @rule(trouble=TROUBLE, answers=ANSWERS)
    def sweep(self, trouble: Any, answers: list[str]) -> None:
        self.vertex.answers = answers
        self.process(self.pass_, trouble)

    @rule(run_id=runs, trouble=TROUBLE)
    def hint(self, run_id: str, trouble: Any) -> None:
        """record_completion: look at the job; where that ended the run, start the next."""

        def act() -> None:
            recorded = self.recorder().record_run(self.ledger.get_run(run_id))  # type: ignore[arg-type]
            if recorded and recorded.terminal:
                submit_next(self.ledger, self.vertex, recorded.recipe, **self.how())

        self.process(act, trouble)

    @rule(run_id=runs, trouble=TROUBLE)
    def cancel(self, run_id: str, trouble: Any) -> None:
        self.process(lambda: cancel(self.ledger, self.vertex, run_id, now=self.now), trouble)

    @rule(target=runs, run_id=runs, token=st.sampled_from(["x", "y"]), trouble=TROUBLE)
    def rerun(self, run_id: str, token: str, trouble: Any) -> Any:
        made: list[Run] = []

        def act() -> None:
            made.append(rerun(self.ledger, run_id, "again", token, now=self.now).run)
            submit(self.ledger, self.vertex, made[0].run_id, **self.how())

        self.process(act, trouble)
        return made[0].run_id if made else multiple()

    @rule(number=st.integers(0, 3), end=st.sampled_from(["SUCCEEDED", "FAILED", "CANCELLED"]))
    def advance(self, number: int, end: str) -> None:
        going = [name for name, job in self.vertex.jobs.items() if not job.ended]
        if going:
            self.vertex.advance(going[number % len(going)], f"JOB_STATE_{end}")

    @rule(passes=st.integers(1, 3))
    def a_while_goes_by(self, passes: int) -> None:
        """Leases pass, and the sweep runs after each."""
        for _ in range(passes):
            self.vertex.now += timedelta(seconds=self.settings.lease + 1)
            self.pass_()

    @rule(seconds=st.sampled_from([1, 20, 200]))
    def wait(self, seconds: int) -> None:
        self.vertex.now += timedelta(seconds=seconds)

    @rule()
    def lists_catch_up(self) -> None:
        self.vertex.hidden.clear()

    @rule(number=st.integers(0, 5))
    def wake(self, number: int) -> None:
        if self.asleep:
            self.asleep.pop(number % len(self.asleep)).go()

    @invariant()
    def no_more_runs_are_active_than_slots_allow(self) -> None:
        active = self.ledger.find_runs(states=ACTIVE)
        assert len(active) <= CAP
        owners = sorted(slot.data["run_id"] for slot in self.ledger.list_documents(SLOTS))
        assert owners == sorted(run.run_id for run in active), "a slot leaked, or two runs share one"

    @invariant()
    def what_was_acknowledged_is_there(self) -> None:
        assert all(self.ledger.get_run(run_id) for run_id in self.acknowledged)

    def heal(self) -> None:
        """All wake up, everything answers again, jobs run to their ends, and the sweep runs until nothing is left."""
        while self.asleep:
            self.asleep.pop().go()
        self.vertex.hidden.clear()
        self.vertex.answers = []
        for _ in range(100):
            self.vertex.now += timedelta(seconds=self.settings.lease + 1)
            report = self.pass_()
            assert report.errors == []
            going = [name for name, job in self.vertex.jobs.items() if not job.ended]
            for name in going:
                self.vertex.advance(name)
            runs = self.ledger.find_runs(limit=1000)
            if report.quiet and not going and all(run.terminal for run in runs):
                return
        raise AssertionError(f"not quiet after 100 sweeps: {[(run.run_id, run.state) for run in runs]}")

    def check_books(self) -> None:
        runs = self.ledger.find_runs(limit=1000)
        assert self.ledger.list_documents(SLOTS) == []
        for run in runs:
            jobs = self.vertex.of_run(run.run_id)
            assert run.finished_published
            assert f"{run.run_id}/finished" in self.bus.ids
            named = run.job.name if run.job else ""
            unnamed = [job for job in jobs if job.name not in (named, *run.duplicate_jobs)]
            # A job may end before any list shows it. If it trained its run names it, unless that was cancelled.
            assert all(job.ended for job in unnamed)
            if run.state is not State.CANCELLED:
                assert all(job.id != self.vertex.winners.get(run.run_id) for job in unnamed)
            assert named not in run.duplicate_jobs
            if run.state in (State.SUCCEEDED, State.FAILED):
                assert run.job and self.vertex.winners[run.run_id] == run.job.id, (
                    "the record names a job that did not train"
                )
                assert run.job.state == self.vertex.jobs[named].state
            if run.state in (State.REJECTED, State.SUPERSEDED):
                assert not named

    def pass_(self) -> Any:
        return run_pass(self.ledger, self.vertex, record=self.recorder().record_run, budget=10_000, **self.how())

    def recorder(self) -> Recorder:
        storage: Any = StorageModel(self.vertex)
        bus: Any = self.bus
        vertex: Any = self.vertex
        return Recorder(self.ledger, vertex, bus, storage, self.settings, self.now)

    def how(self) -> dict[str, Any]:
        return {"settings": self.settings, "now": self.now, "fence": self.fence}

    def now(self) -> datetime:
        return self.vertex.now

    def process(self, act: Callable[[], object], trouble: tuple[str, int, str] | None) -> None:
        process = Process(act, trouble)
        if process.go():
            self.asleep.append(process)


def _point(name: str) -> None:
    process = threading.current_thread()
    if isinstance(process, Process):
        process.point(name)


TestHistories = Histories.TestCase
TestHistories.settings = settings(
    max_examples=int(os.environ.get("KICKOFF_HISTORIES", "40")),
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    print_blob=True,
)


def test_the_run_follows_the_job_that_trained_though_the_named_one_ended_first() -> None:
    """The first job is hidden, a second is made and named; the first wins the fence, the second leaves at it."""
    history = _two_jobs()
    history.vertex.advance(history.first)
    history.vertex.advance(history.second)
    history.hint(run_id=history.run_id, trouble=None)
    run = history.ledger.get_run(history.run_id)
    assert run and run.job and run.job.name == history.first
    assert not run.terminal
    assert run.duplicate_jobs == (history.second,)
    history.teardown()


def test_a_hidden_winner_is_adopted_by_the_fence_alone() -> None:
    history = Histories()
    run_id = str(history.deliver(name="a", trouble=None, answers=["lost"]))
    [name] = history.vertex.jobs
    history.vertex.advance(name)
    history.a_while_goes_by(passes=1)
    run = history.ledger.get_run(run_id)
    assert run and run.job and run.job.name == name
    history.teardown()
    assert list(history.vertex.jobs) == [name], "no second job was made"


def test_a_duplicate_is_noted_before_it_is_cancelled() -> None:
    history = _two_jobs()
    history.lists_catch_up()
    history.sweep(trouble=("vertex.cancel:before", 1, "crash"), answers=["ok"])
    run = history.ledger.get_run(history.run_id)
    assert run and run.duplicate_jobs == (history.first,)
    assert not history.vertex.jobs[history.first].ended
    history.teardown()
    assert history.vertex.jobs[history.first].state == "JOB_STATE_CANCELLED"


class _TwoJobs(Histories):
    run_id, first, second = "", "", ""


def _two_jobs() -> _TwoJobs:
    history = _TwoJobs()
    history.run_id = str(history.deliver(name="a", trouble=None, answers=["lost"]))
    history.a_while_goes_by(passes=2)
    history.first, history.second = history.vertex.jobs
    return history
