"""One accepted run, one job: the outbox against the JobService emulator over the wire."""

import threading
from concurrent.futures import ThreadPoolExecutor

import kickoff.points
import pytest
from kickoff.errors import InvalidRequest, VertexUnavailable
from kickoff.jobs import NONCE_LABEL, RUN_LABEL
from kickoff.ledger import SLOTS
from kickoff.outbox import accept, back_off, submit_next
from kickoff.runs import State, Trigger

from tests.kickoff.lab import Lab
from tests.kickoff.making import make_run


def test_the_first_delivery_makes_the_run_and_every_other_one_sees_it(lab: Lab) -> None:
    first = accept(lab.ledger, make_run())
    again = accept(lab.ledger, make_run(trigger=Trigger(kind="message", event_id="another id")))
    assert (first.created, again.created) == (True, False)
    assert again.run == first.run


def test_the_same_key_with_another_body_is_refused_and_names_the_run(lab: Lab) -> None:
    first = accept(lab.ledger, make_run("k-1")).run
    with pytest.raises(InvalidRequest, match=f"idempotency_key 'k-1' was used before, by run {first.run_id}"):
        accept(lab.ledger, make_run("k-1", request_digest="other"))


def test_a_submitted_run_names_the_job_that_carries_its_label_and_nonce(lab: Lab) -> None:
    run = lab.submit(lab.queued())
    assert run.state is State.SUBMITTED
    assert [change.state for change in run.history] == [State.QUEUED, State.SUBMITTING, State.SUBMITTED]
    [job] = lab.jobs(run)
    assert run.job and run.job.name == job.name
    assert job.labels == {RUN_LABEL: run.run_id, NONCE_LABEL: run.nonce}
    assert lab.ledger.find_runs(job_id=job.id) == [run]


def test_eight_processes_that_submit_at_once_make_one_job(lab: Lab) -> None:
    run = lab.queued()
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: lab.submit(run), range(8)))
    assert lab.run(run).state is State.SUBMITTED
    assert len(lab.jobs(run)) == 1


def test_a_definite_refusal_ends_the_run_in_vertex_s_own_words(lab: Lab) -> None:
    run = lab.queued()
    broken = run.model_copy(update={"custom_job": {**run.custom_job, "displayName": "x" * 129}})
    run = lab.submit(lab.ledger.replace_run(broken))
    assert run.state is State.REJECTED
    assert "128" in run.faults[0].message
    assert lab.jobs(run) == []


def test_a_429_queues_the_run_again_with_a_growing_delay(lab: Lab) -> None:
    lab.fault("create", "status", status=429, times=2)
    run = lab.submit(lab.queued())
    assert run.state is State.QUEUED
    assert "quota" in run.waiting_for
    assert run.next_attempt_at and 7 <= (run.next_attempt_at - lab.time).total_seconds() <= 15
    assert lab.submit(run) == run, "not before its time"
    lab.later(20)
    run = lab.submit(run)
    assert run.next_attempt_at and 15 <= (run.next_attempt_at - lab.time).total_seconds() <= 30
    lab.later(40)
    assert lab.submit(run).state is State.SUBMITTED
    assert len(lab.jobs(run)) == 1


def test_back_off_doubles_up_to_ten_minutes_and_differs_between_runs() -> None:
    delays = [back_off("flowers-1", n) for n in range(1, 20)]
    assert all(7.5 * 2**n <= delay <= 15 * 2**n for n, delay in enumerate(delays[:5]))
    assert 300 <= max(delays) <= 600
    assert len({back_off(f"flowers-{n}", 3) for n in range(50)}) > 40


@pytest.mark.parametrize(
    ("kind", "fields", "made"),
    [
        ("status", {"status": 500}, 0),
        ("status", {"status": 503}, 0),
        ("status", {"status": 408}, 0),
        ("reset", {}, 0),
        ("timeout", {"seconds": 1.5}, 0),
        ("lose_answer", {}, 1),
        ("lose_answer", {"status": 500}, 1),
        ("lose_answer", {"status": 504}, 1),
    ],
)
def test_an_uncertain_answer_is_resolved_by_label_alone(
    lab: Lab, kind: str, fields: dict[str, float], made: int
) -> None:
    if kind == "timeout":
        lab = Lab(lab.folder, lab.server, lab.project, create_timeout=0.5)
    lab.fault("create", kind, **fields)
    run = lab.submit(lab.queued())
    assert run.state is State.SUBMITTING
    assert "no certain answer" in run.notes[0]
    assert lab.adopt(run) == run, "nobody resolves it before the lease has passed"
    assert lab.submit(run) == run
    assert len(lab.jobs(run)) == made

    lab.later(lab.settings.lease + 1)
    run = lab.adopt(run)
    if made:
        assert run.state is State.SUBMITTED
        assert "adopted" in run.history[-1].note
    else:
        assert (run.state, run.empty_looks) == (State.SUBMITTING, 1), "an empty list is believed the second time"
        lab.later(lab.settings.lease_margin + 1)
        run = lab.adopt(run)
        assert run.state is State.QUEUED
        run = lab.submit(run)
    assert run.state is State.SUBMITTED
    [job] = lab.jobs(run)
    assert run.job and run.job.name == job.name
    assert run.duplicate_jobs == ()


def test_a_job_that_the_list_shows_late_is_dropped_when_it_shows(lab: Lab) -> None:
    lab.fault("create", "lose_answer")
    lab.fault("list", "lag", labels={RUN_LABEL: lab.queued().run_id})
    run = lab.submit(lab.queued())
    for _ in range(2):
        lab.later(lab.settings.lease + 1)
        run = lab.adopt(run)
    run = lab.submit(run)
    assert run.state is State.SUBMITTED
    lab.clear_faults()
    late, named = lab.jobs(run)
    assert run.job and run.job.name == named.name
    report = lab.sweep()
    assert report.errors == []
    run = lab.run(run)
    assert run.job and run.job.name == named.name, "the one that the record names stays"
    assert run.duplicate_jobs == (late.name,)
    assert lab.going(run) == [named.name]


def test_the_job_that_won_the_fence_gets_the_run(lab: Lab) -> None:
    lab.fault("create", "lose_answer")
    lab.fault("list", "lag", labels={RUN_LABEL: lab.queued().run_id})
    run = lab.submit(lab.queued())
    for _ in range(2):
        lab.later(lab.settings.lease + 1)
        run = lab.adopt(run)
    run = lab.submit(run)
    lab.clear_faults()
    late, named = lab.jobs(run)
    lab.winners[run.run_id] = late.id
    lab.sweep()
    run = lab.run(run)
    assert run.job and run.job.name == late.name
    assert run.duplicate_jobs == (named.name,)
    assert lab.going(run) == [late.name]


def test_a_job_with_a_forged_label_is_not_taken_for_the_run_s(lab: Lab) -> None:
    run = lab.queued()
    lab.fault("create", "status", status=503)
    run = lab.submit(run)
    forged = lab.vertex.create(lab.project, run.region, run.custom_job, "feedface")
    lab.later(lab.settings.lease + 1)
    assert lab.adopt(run).empty_looks == 1
    lab.sweep()
    found = lab.vertex.get(forged.name)
    assert found and not found.ended, "what others made is left alone"


def test_a_submitter_that_wakes_after_its_lease_does_not_post(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    run = lab.queued()
    slept: list[str] = []

    def sleep_once(name: str) -> None:
        if name == "ledger.replace_run:after" and not slept:
            slept.append(name)
            lab.later(lab.settings.lease + 1)

    monkeypatch.setattr(kickoff.points, "point", sleep_once)
    run = lab.submit(run)
    assert run.state is State.QUEUED
    assert "lease was too short" in run.history[-1].note
    assert lab.jobs(run) == []


@pytest.mark.parametrize("where", ["vertex.create:before", "vertex.create:after"])
def test_a_submitter_that_sleeps_around_its_post_loses_its_job_to_the_other(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    asleep, wake = threading.Event(), threading.Event()

    def sleep_once(name: str) -> None:
        if name == where and not asleep.is_set():
            asleep.set()
            assert wake.wait(30)

    monkeypatch.setattr(kickoff.points, "point", sleep_once)
    run = lab.queued()
    if where.endswith("after"):
        lab.fault("list", "lag", labels={RUN_LABEL: run.run_id})
    sleeper = threading.Thread(target=lambda: lab.submit(run))
    sleeper.start()
    assert asleep.wait(30)
    for _ in range(2):
        lab.later(lab.settings.lease + 1)
        lab.adopt(run)
    assert lab.submit(run).state is State.SUBMITTED
    wake.set()
    sleeper.join(30)
    lab.clear_faults()
    after = lab.run(run)
    assert lab.going(run) == [after.job.name if after.job else ""]
    assert len(lab.jobs(run)) == 2
    assert len(after.duplicate_jobs) == 1


def test_max_active_holds_and_the_oldest_starts_when_a_slot_frees(lab: Lab) -> None:
    runs = []
    for n in range(4):
        runs.append(lab.submit(lab.queued(f"m-{n}", max_active=2)))
        lab.later(1)
    assert [run.state for run in runs] == [State.SUBMITTED] * 2 + [State.QUEUED] * 2
    assert runs[2].waiting_for == "a free slot: 2 of 2 runs of recipe flowers are active"
    assert runs[3].due is None
    lab.ledger.replace_run(runs[1].moved(State.FAILED, lab.time))
    started = submit_next(lab.ledger, lab.vertex, "flowers", **lab.how())
    assert [run.run_id for run in started] == [runs[2].run_id]
    assert lab.run(runs[3]).state is State.QUEUED
    assert {slot.data["run_id"] for slot in lab.ledger.list_documents(SLOTS)} == {runs[0].run_id, runs[2].run_id}


def test_a_newcomer_does_not_overtake_those_that_wait(lab: Lab) -> None:
    first = lab.submit(lab.queued("first", max_active=1))
    lab.later(1)
    second = lab.submit(lab.queued("second", max_active=1))
    lab.ledger.replace_run(first.moved(State.FAILED, lab.time))
    lab.later(1)
    third = lab.submit(lab.queued("third", max_active=1))
    assert third.state is State.QUEUED
    assert lab.run(second).state is State.SUBMITTED


def test_the_cap_on_all_recipes_is_kept_together_with_their_own(lab: Lab) -> None:
    lab.max_total = 2
    runs = []
    for n, recipe in enumerate(["a", "b", "c"]):
        runs.append(lab.submit(lab.queued(f"m-{n}", recipe=recipe, max_active=5)))
        lab.later(1)
    assert [run.state for run in runs] == [State.SUBMITTED, State.SUBMITTED, State.QUEUED]
    assert "2 of 2 runs of this project" in runs[2].waiting_for
    lab.ledger.replace_run(runs[0].moved(State.FAILED, lab.time))
    submit_next(lab.ledger, lab.vertex, "a", **lab.how())
    assert lab.run(runs[2]).state is State.SUBMITTED


def test_sixteen_submitters_never_exceed_max_active(lab: Lab) -> None:
    runs = [lab.queued(f"m-{n}", max_active=3) for n in range(16)]
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lab.submit, runs))
    states = [lab.run(run).state for run in runs]
    assert states.count(State.SUBMITTED) == 3
    assert len(lab.ledger.list_documents(SLOTS)) == 3
    assert len(lab.vertex.list_active(lab.project, "us-central1")) == 3


def test_newest_only_supersedes_what_waits_and_says_so(lab: Lab) -> None:
    def version(digest: str) -> tuple[str, ...]:
        return ("flowers", "upload", "gs://b/flowers/", digest)

    runs = []
    for digest in ("one", "two", "three"):
        runs.append(lab.submit(lab.queued(key=version(digest), max_active=1, newest_only=True)))
        lab.later(1)
    other = lab.submit(lab.queued(key=("flowers", "upload", "gs://b/other/", "x"), max_active=1, newest_only=True))
    runs = [lab.run(run) for run in runs]
    assert [run.state for run in runs] == [State.SUBMITTED, State.SUPERSEDED, State.QUEUED]
    assert runs[1].history[-1].note == f"superseded by {runs[2].run_id}, a newer version"
    assert other.state is State.QUEUED, "another dataset is no newer version"


def test_vertex_unavailable_while_looking_leaves_the_run_for_later(lab: Lab) -> None:
    lab.fault("create", "lose_answer")
    run = lab.submit(lab.queued())
    lab.later(lab.settings.lease + 1)
    lab.fault("list", "status", status=500, times=None)
    with pytest.raises(VertexUnavailable):
        lab.adopt(run)
    assert lab.run(run) == run
    report = lab.sweep()
    assert run.run_id in report.errors[0]
    lab.clear_faults()
    assert lab.adopt(run).state is State.SUBMITTED
