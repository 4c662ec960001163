"""The sweep against the JobService emulator: what no event told."""

import sqlite3
from concurrent.futures import ThreadPoolExecutor

import pytest
from kickoff.errors import StorageUnavailable
from kickoff.runs import Run, State

from tests.kickoff.lab import Lab
from tests.kickoff.making import make_custom_job

GOING = {State.SUBMITTED, State.RUNNING}


def test_it_submits_a_run_whose_acceptor_died(lab: Lab) -> None:
    run = lab.queued()
    assert lab.sweep().counts["started"] == 1
    assert lab.run(run).state in GOING
    assert len(lab.jobs(run)) == 1


def test_it_adopts_after_the_lease_and_submits_anew_after_two_empty_looks(lab: Lab) -> None:
    lost, never = lab.queued("lost"), lab.queued("never")
    lab.fault("create", "lose_answer")
    lab.submit(lost)
    lab.fault("create", "status", status=503)
    lab.submit(never)
    assert lab.sweep().quiet, "leases are respected"
    lab.later(lab.settings.lease + 1)
    assert lab.sweep().counts["adopted"] == 2
    assert lab.run(lost).state in GOING
    lab.later(lab.settings.lease + 1)
    lab.sweep()
    assert lab.run(never).state in GOING
    assert [len(lab.jobs(run)) for run in (lost, never)] == [1, 1]


def test_it_notices_ends_that_no_event_told_and_starts_the_next_in_the_same_pass(lab: Lab) -> None:
    first, second = (lab.queued(name, image="instant", max_active=1) for name in ("first", "second"))
    lab.submit(first)
    lab.later(1)
    lab.submit(second)
    _await_end(lab, first)
    lab.sweep()
    assert lab.run(first).state is State.SUCCEEDED
    assert lab.run(second).state in GOING


def test_a_queue_whose_freer_died_is_found(lab: Lab) -> None:
    first, second = (lab.queued(name, max_active=1) for name in ("first", "second"))
    lab.submit(first)
    lab.submit(second)
    lab.ledger.replace_run(lab.run(first).moved(State.CANCELLED, lab.time))
    assert lab.run(second).due is None, "it is not polled for"
    assert lab.sweep().counts["started"] == 1
    assert lab.run(second).state in GOING


def test_after_a_429_it_leaves_the_rest_of_that_place_for_the_next_pass(lab: Lab) -> None:
    runs = [lab.queued(f"m-{n}") for n in range(5)]
    elsewhere = lab.queued("elsewhere", region="europe-west4")
    lab.fault("create", "status", status=429)
    lab.sweep()
    states = [lab.run(run).submissions for run in runs]
    assert sum(states) == 1, "one try told enough"
    assert lab.run(elsewhere).state in GOING
    lab.later(20)
    lab.sweep()
    assert {lab.run(run).state for run in runs} <= GOING


def test_two_sweeps_at_once_do_everything_once(lab: Lab) -> None:
    runs = [lab.queued(f"m-{n}", image="instant") for n in range(12)]
    lab.fault("create", "lose_answer")
    lab.submit(runs[0])
    lab.later(lab.settings.lease + 1)
    with ThreadPoolExecutor(4) as pool:
        reports = list(pool.map(lambda _: lab.sweep(), range(4)))
    assert [report.errors for report in reports] == [[]] * 4
    assert [len(lab.jobs(run)) for run in runs] == [1] * 12
    assert {lab.run(run).state for run in runs} <= {*GOING, State.SUCCEEDED}


def test_one_poisoned_run_is_reported_and_postponed_and_the_others_go_on(lab: Lab) -> None:
    poisoned, fine = (lab.submit(lab.queued(name, image="instant")) for name in ("poisoned", "fine"))
    _await_end(lab, poisoned)
    _await_end(lab, fine)
    lab.ledger.replace_run(poisoned.model_copy(update={"next_attempt_at": lab.time}))

    def record(run: Run) -> Run:
        if run.run_id == poisoned.run_id:
            raise RuntimeError("a bug")
        return lab.record(run)

    report = lab.sweep(record=record)
    assert set(report.errors) == {f"run {poisoned.run_id}: RuntimeError: a bug"}
    assert lab.run(fine).state is State.SUCCEEDED
    due = lab.run(poisoned).due
    assert due and due > lab.time, "it does not stand before the others in every pass"


def test_a_record_that_cannot_be_read_hides_no_other(lab: Lab) -> None:
    lab.queued("newer")
    db = sqlite3.connect(lab.folder / "runs.db")
    with db:
        db.execute("UPDATE runs SET record = replace(record, '\"schema_version\":1', '\"schema_version\":99')")
    db.close()
    run = lab.queued("fine")
    assert lab.sweep().errors == []
    assert lab.run(run).state in GOING


def test_a_step_that_fails_does_not_stop_the_others(lab: Lab) -> None:
    run = lab.queued()

    def settle() -> int:
        raise StorageUnavailable("bucket kickoff-data did not answer")

    report = lab.sweep(datasets={"settled": settle, "lost": lambda: 2})
    assert report.errors == ["settled: bucket kickoff-data did not answer"]
    assert report.counts["lost"] == 2
    assert lab.run(run).state in GOING


def test_an_outage_of_vertex_is_reported_and_loses_nothing(lab: Lab) -> None:
    runs = [lab.queued(f"m-{n}", image="instant") for n in range(3)]
    lab.fault("any", "status", status=503, times=None)
    lab.sweep()
    report = lab.sweep()
    assert any("503" in error for error in report.errors)
    lab.clear_faults()
    for _ in range(3):
        lab.later(lab.settings.lease + 1)
        lab.sweep()
    assert {lab.run(run).state for run in runs} <= {*GOING, State.SUCCEEDED}
    assert [len(lab.jobs(run)) for run in runs] == [1, 1, 1]


def test_a_pass_is_bounded_and_the_next_one_goes_on(lab: Lab) -> None:
    runs = [lab.queued(f"m-{n}", image="instant") for n in range(7)]
    assert lab.sweep(limit=3).counts["started"] == 3
    assert lab.sweep(limit=3).counts["started"] == 3
    for _ in range(12):
        lab.later(1)
        lab.sweep(limit=3)
    assert {lab.run(run).state for run in runs} == {State.SUCCEEDED}
    assert not lab.sweep(budget=0).finished


def test_the_scan_of_active_runs_goes_round(lab: Lab) -> None:
    """More runs that go on than a pass looks at: those behind them are reached all the same."""
    for n in range(4):
        lab.submit(lab.queued(f"idle-{n}"))
    lab.later(1)
    last = lab.submit(lab.queued("last", image="instant"))
    _await_end(lab, last)
    for _ in range(3):
        lab.sweep(limit=2)
    assert lab.run(last).state is State.SUCCEEDED


def test_a_cancellation_that_did_not_reach_vertex_is_asked_for_again(lab: Lab) -> None:
    run = lab.submit(lab.queued())
    lab.ledger.replace_run(run.model_copy(update={"cancel_requested": True}))
    assert lab.sweep().counts["cancelled"] == 1
    assert lab.going(run) == []


def test_jobs_of_runs_that_this_ledger_does_not_know_are_left_alone(lab: Lab) -> None:
    job = lab.vertex.create(lab.project, "us-central1", make_custom_job("stranger-1", "idle"), "aaaa")
    assert lab.sweep().quiet
    found = lab.vertex.get(job.name)
    assert found and not found.ended


def test_a_job_of_a_run_that_ended_without_it_is_dropped(lab: Lab) -> None:
    lab.fault("create", "lose_answer")
    run = lab.submit(lab.queued())
    queued = lab.ledger.replace_run(run.moved(State.QUEUED, lab.time))
    ended = lab.ledger.replace_run(queued.moved(State.CANCELLED, lab.time))
    [job] = lab.jobs(run)
    lab.sweep()
    assert lab.going(run) == []
    assert lab.run(ended).duplicate_jobs == (job.name,)


def _await_end(lab: Lab, run: Run) -> None:
    for _ in range(500):
        if all(job.ended for job in lab.jobs(run)):
            return
    pytest.fail("an instant job did not end")
