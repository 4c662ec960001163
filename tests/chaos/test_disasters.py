"""Processes that sleep, clocks that differ, deliveries and sweeps at once: with real function processes."""

import os
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest
from kickoff.jobs import RUN_LABEL
from kickoff.runs import State, build_run_id

from tests.chaos.matrix import Scenario, check
from tests.chaos.world import LEASE, MARGIN, World, await_stopped

ONE = Scenario("one", lambda world: ("", b""))
LONG = Scenario("long", lambda world: ("", b""), state="CANCELLED")
REQUEST = {"recipe": "long", "idempotency_key": "k"}


@pytest.mark.parametrize("at", ["ledger.replace_run:after", "vertex.create:before", "vertex.create:after"])
@pytest.mark.parametrize("hidden", [False, True], ids=["listed", "not-yet-listed"])
def test_a_holder_suspended_past_its_lease_and_woken_makes_no_second_job_that_stays(
    world: World, at: str, hidden: bool
) -> None:
    """It is stopped before, right before or right after its POST; others go on meanwhile; then it wakes up."""
    if hidden:
        world.fault("list", "lag", labels={RUN_LABEL: build_run_id(("long", "key", "k"))})
    call, connection = world.begin(world.message(REQUEST), STOP_POINT=at)
    await_stopped(call.pid)
    for _ in range(3):
        world.later()
        assert world.sweep().status == 200
    os.kill(call.pid, signal.SIGCONT)
    assert world.finish(call, connection).status == 200
    world.services.vertex.services.faults.clear()
    world.sweep()
    [run] = world.runs()
    assert [job.name for job in world.jobs(run) if job.state in ("JOB_STATE_PENDING", "JOB_STATE_RUNNING")] == (
        [run.job.name] if run.job else []
    )
    world.heal()
    check(world, LONG)


@pytest.mark.parametrize("skew", [-MARGIN / 2, MARGIN / 2, 3 * (LEASE + MARGIN)])
def test_a_sweep_whose_clock_differs_takes_no_run_from_a_living_submitter_for_good(world: World, skew: float) -> None:
    """Within the margin it respects the lease; far beyond, two jobs may be made, and one of them is dropped."""
    call, connection = world.begin(world.message(REQUEST), STOP_POINT="vertex.create:before")
    await_stopped(call.pid)
    world.skew = skew
    for _ in range(3):
        assert world.sweep().status == 200
    [run] = world.runs()
    if skew < MARGIN:
        assert run.state is State.SUBMITTING
        assert run.submissions == 1
    os.kill(call.pid, signal.SIGCONT)
    world.finish(call, connection)
    world.skew = 0
    world.heal()
    check(world, LONG)


def test_one_request_delivered_at_once_by_eight_processes_under_eight_ids(world: World) -> None:
    deliveries = [world.message({"recipe": "plain", "idempotency_key": "k"}) for _ in range(8)]
    with ThreadPoolExecutor(8) as pool:
        calls = list(pool.map(world.deliver, deliveries))
    assert [call.status for call in calls] == [200] * 8
    assert sorted(call.body[0]["outcome"] for call in calls) == ["accepted"] + ["duplicate"] * 7
    assert len({call.body[0]["run_id"] for call in calls}) == 1, "each is told the run that it belongs to"
    world.heal()
    assert check(world, ONE) == "1 run SUCCEEDED, 1 job"


def test_two_sweeps_at_once_and_a_delivery_of_what_they_resolve(world: World) -> None:
    request = {"recipe": "plain", "idempotency_key": "k"}
    world.fault("create", "lose_answer")
    world.deliver(world.message(request))
    world.deliver(world.message({**request, "idempotency_key": "second"}), CRASH_POINT="ledger.create_run:after")
    world.later()
    with ThreadPoolExecutor(5) as pool:
        again = pool.submit(world.deliver, world.message({**request, "idempotency_key": "second"}))
        calls = [*pool.map(lambda _: world.sweep(), range(4)), again.result()]
    assert [call.status for call in calls] == [200] * 5
    assert all(call.body["errors"] == [] for call in calls[:4])
    world.heal()
    assert check(world, Scenario("two", ONE.prepare, runs=2)) == "2 runs SUCCEEDED, 2 jobs"


def test_a_poison_message_is_recorded_once_however_often_it_is_delivered(world: World) -> None:
    poison = world.message({"recipe": "plain", "nonsense": 1}, "poison-1")
    calls = [world.deliver(poison) for _ in range(3)]
    assert [call.status for call in calls] == [200] * 3, "delivering it again cannot help"
    fine = world.deliver(world.message({"recipe": "plain"}))
    assert fine.body[0]["outcome"] == "accepted"
    refused = [run for run in world.runs() if run.state is State.REJECTED]
    assert len(refused) == 1
    assert "nonsense" in refused[0].faults[0].message
