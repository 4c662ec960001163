"""What an exit means, and the table of transitions."""

from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploy.local.job_service import states
from deploy.local.job_service.states import PRIMARY, Action, Policy, decide_exit

WORKER = "workerpool1-0"


@pytest.mark.parametrize(
    ("replica", "status", "restarts", "retries", "policy", "action"),
    [
        (PRIMARY, 0, 0, 0, Policy(), Action.SUCCEED),
        (PRIMARY, 0, 5, 3, Policy(disable_retries=True), Action.SUCCEED),
        (WORKER, 0, 0, 0, Policy(restart_all=True), Action.NOTHING),
        (WORKER, 137, 0, 0, Policy(), Action.RESTART_REPLICA),
        (WORKER, 137, 0, 0, Policy(restart_all=True), Action.RESTART_REPLICAS),
        (WORKER, 137, 4, 0, Policy(), Action.RESTART_REPLICA),
        (WORKER, 137, 5, 0, Policy(), Action.RETRY_JOB),
        (WORKER, 137, 5, 2, Policy(restart_all=True), Action.RETRY_JOB),
        (WORKER, 137, 5, 3, Policy(), Action.FAIL),
        (WORKER, 1, 0, 0, Policy(), Action.FAIL),
        (PRIMARY, 1, 0, 0, Policy(restart_all=True), Action.FAIL),
        (WORKER, 73, 0, 0, Policy(), Action.FAIL),
        (WORKER, 75, 0, 0, Policy(restart_all=True), Action.RESTART_REPLICAS),
        (WORKER, 139, 0, 0, Policy(), Action.FAIL),
        (WORKER, 137, 0, 0, Policy(restart_all=True, disable_retries=True), Action.FAIL),
    ],
)
def test_an_exit(replica: str, status: int, restarts: int, retries: int, policy: Policy, action: Action) -> None:
    assert decide_exit(replica, status, restarts, retries, policy) == action


def test_a_preempted_replica_is_restarted_whatever_its_status() -> None:
    assert decide_exit(WORKER, 1, 0, 0, Policy(), preempted=True) == Action.RESTART_REPLICA


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 255)), max_size=80), st.booleans())
def test_every_job_ends_after_finitely_many_failures(exits: list[tuple[int, int]], restart_all: bool) -> None:
    restarts, retries, started = dict.fromkeys(range(3), 0), 0, 0
    for replica, status in exits:
        action = decide_exit(f"workerpool1-{replica}", status, restarts[replica], retries, Policy(restart_all))
        if action == Action.FAIL:
            break
        started += 1
        if action == Action.RETRY_JOB:
            retries, restarts = retries + 1, dict.fromkeys(range(3), 0)
        else:
            restarts[replica] += 1
    assert retries <= states.MAX_JOB_RETRIES
    assert started <= (states.MAX_JOB_RETRIES + 1) * (3 * states.MAX_WORKER_RESTARTS + 1)


def test_an_end_is_an_end_and_cancelling_leads_to_cancelled_alone() -> None:
    assert states.TERMINAL.isdisjoint(states.TRANSITIONS)
    assert cast(set[str], set(states.TRANSITIONS)) == {states.QUEUED, states.PENDING, states.RUNNING, states.CANCELLING}
    assert states.TRANSITIONS[states.CANCELLING] == {states.CANCELLED}
