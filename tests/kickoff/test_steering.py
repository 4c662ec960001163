"""Cancel and rerun, against the JobService emulator."""

from concurrent.futures import ThreadPoolExecutor

import kickoff.points
import pytest
from kickoff.errors import InvalidRequest, VertexUnavailable
from kickoff.runs import Run, State
from kickoff.steering import cancel, rerun

from tests.kickoff.lab import Lab


def stop(lab: Lab, run: Run) -> Run:
    return cancel(lab.ledger, lab.vertex, run.run_id, now=lab.now, by="ada")


def again(lab: Lab, run: Run, token: str = "t-1", **fields: object) -> Run:
    options = {"reason": "a bug is fixed", "client_token": token, "now": lab.now, **fields}
    return rerun(lab.ledger, run.run_id, **options).run  # type: ignore[arg-type]


def test_a_queued_or_held_run_is_cancelled_at_once_and_never_submitted(lab: Lab) -> None:
    for state in (State.QUEUED, State.HELD):
        run = stop(lab, lab.queued(state.value, state=state))
        assert run.state is State.CANCELLED
        assert run.history[-1].note == "cancelled by ada before a job was made"
        assert lab.submit(run).state is State.CANCELLED
        assert lab.jobs(run) == []


def test_a_run_with_a_job_is_cancelled_at_vertex(lab: Lab) -> None:
    run = stop(lab, lab.submit(lab.queued()))
    assert run.cancel_requested
    assert lab.going(run) == []
    assert stop(lab, run).version == run.version, "a second time changes nothing"


def test_a_run_is_cancelled_while_its_job_is_created(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    run = lab.queued()
    asked: list[Run] = []

    def ask_once(name: str) -> None:
        if name == "vertex.create:after" and not asked:
            asked.append(run)
            asked.append(stop(lab, run))

    monkeypatch.setattr(kickoff.points, "point", ask_once)
    run = lab.submit(run)
    assert asked[1].state is State.SUBMITTING
    assert len(lab.jobs(run)) == 1
    assert lab.going(run) == []


def test_a_run_is_cancelled_while_the_answer_to_its_creation_is_lost(lab: Lab) -> None:
    lab.fault("create", "lose_answer")
    run = stop(lab, lab.submit(lab.queued()))
    assert run.state is State.SUBMITTING
    lab.later(lab.settings.lease + 1)
    run = lab.adopt(run)
    assert len(lab.jobs(run)) == 1
    assert lab.going(run) == []


def test_a_cancelled_run_of_which_no_job_was_made_ends_without_one(lab: Lab) -> None:
    lab.fault("create", "status", status=503)
    run = stop(lab, lab.submit(lab.queued()))
    for _ in range(3):
        lab.later(lab.settings.lease + 1)
        lab.sweep()
    assert lab.run(run).state is State.CANCELLED
    assert lab.jobs(run) == []


def test_an_outage_of_vertex_keeps_the_wish(lab: Lab) -> None:
    run = lab.submit(lab.queued())
    lab.fault("cancel", "status", status=503, times=None)
    with pytest.raises(VertexUnavailable):
        stop(lab, run)
    lab.clear_faults()
    lab.sweep()
    assert lab.going(run) == []


def test_a_run_that_does_not_exist_is_named(lab: Lab) -> None:
    with pytest.raises(InvalidRequest, match="run 'flowers-0' does not exist"):
        cancel(lab.ledger, lab.vertex, "flowers-0", now=lab.now)


def test_a_rerun_is_the_same_request_under_a_new_name_linked_both_ways(lab: Lab) -> None:
    first = stop(lab, lab.queued(labels={"team": "vision"}))
    lab.later(60)
    second = again(lab, first, by="ada")
    assert second.run_id == f"{first.run_id}-2"
    assert (second.attempt, second.rerun_of, second.key) == (2, first.run_id, first.key)
    assert second.history[0].note == f"rerun of {first.run_id}: a bug is fixed"
    assert (second.trigger.kind, second.trigger.by) == ("rerun", "ada")
    assert lab.run(first).reruns == (second.run_id,)
    assert first.run_id not in str(second.custom_job).replace(second.run_id, "")
    assert second.output == f"{first.output}-2"
    second = lab.submit(second)
    assert second.state is State.SUBMITTED
    assert lab.jobs(first) == []
    stop(lab, second)
    lab.record(second)
    third = again(lab, second, "t-2", force=True)
    assert (third.run_id, third.rerun_of) == (f"{first.run_id}-3", second.run_id)
    assert third.output == f"{first.output}-3"


def test_the_same_client_token_makes_one_attempt_however_often_and_by_whomever(lab: Lab) -> None:
    first = stop(lab, lab.queued())
    with ThreadPoolExecutor(6) as pool:
        runs = list(pool.map(lambda _: again(lab, first), range(6)))
    assert {run.run_id for run in runs} == {f"{first.run_id}-2"}
    with ThreadPoolExecutor(4) as pool:
        runs = list(pool.map(lambda n: again(lab, first, f"other-{n}", force=True), range(4)))
    assert {run.run_id for run in runs} == {f"{first.run_id}-{n}" for n in (3, 4, 5, 6)}


def test_what_speaks_against_a_rerun_is_told_all_at_once(lab: Lab) -> None:
    run = lab.submit(lab.queued())
    with pytest.raises(InvalidRequest) as caught:
        again(lab, run, "", reason=" ")
    assert [fault.path for fault in caught.value.faults] == ["reason", "client_token", "run_id"]
    assert "is SUBMITTED; wait for its end, cancel it, or force" in str(caught.value)
    assert lab.run(run) == run
