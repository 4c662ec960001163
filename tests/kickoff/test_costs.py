"""What a job has cost: replica-hours from its start to its end at dated prices; unknown stays unknown."""

from datetime import timedelta
from typing import Any

import pytest
from kickoff.costs import actual_cost
from kickoff.jobs import JobView
from kickoff.machines import machine_price, replica_price

from tests.kickoff.making import NOW

NAME = "projects/p/locations/r/customJobs/1"


def job(hours: float | None = 2.0, state: str = "JOB_STATE_SUCCEEDED") -> JobView:
    start = None if hours is None else NOW
    return JobView(NAME, state, NOW, start, NOW + timedelta(hours=hours or 0))


def spec(*pools: dict[str, Any]) -> dict[str, Any]:
    return {"jobSpec": {"workerPoolSpecs": list(pools)}}


def pool(machine: str = "n1-standard-4", replicas: int = 1, **machine_spec: Any) -> dict[str, Any]:
    return {"machineSpec": {"machineType": machine, **machine_spec}, "replicaCount": replicas}


def test_replica_hours_times_price() -> None:
    each = replica_price("n1-standard-4", "NVIDIA_TESLA_T4", 2, "pd-ssd", 100).usd
    plain = replica_price("n1-standard-4", "", 0, "pd-ssd", 100).usd
    assert each and plain and machine_price("n1-standard-4") == pytest.approx(0.21849885)
    gpus = pool(replicas=3, acceleratorType="NVIDIA_TESLA_T4", acceleratorCount=2)
    cost = actual_cost(spec(pool(), gpus, {}), job(2.0))
    assert cost == pytest.approx(2 * (plain + 3 * each))


def test_an_unknown_price_makes_the_cost_unknown_not_zero() -> None:
    assert actual_cost(spec(pool(), pool("z9-mega-1")), job()) is None


def test_a_job_that_never_started_cost_nothing() -> None:
    assert actual_cost(spec(pool("z9-mega-1")), job(None, "JOB_STATE_EXPIRED")) == 0.0


def test_a_job_that_runs_has_no_cost_yet() -> None:
    assert actual_cost(spec(pool()), JobView(NAME, "JOB_STATE_RUNNING", NOW, NOW)) is None
