"""The most that a job can cost: price x replicas x timeout. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kickoff.machines import PRICES_DATE, PRICES_REGION, replica_price
from kickoff.spec_values import timeout_of


@dataclass(frozen=True)
class PoolCost:
    pool: int
    replicas: int
    machine: str
    hourly_usd: float | None
    """For all replicas of the pool."""


@dataclass(frozen=True)
class Cost:
    """The most that a job can cost: price x replicas x timeout, at list prices of PRICES_REGION and PRICES_DATE.

    Spot and flexible starts are priced as standard machines: their discounts change from day to day, and this is a
    bound. `usd` is None when any price is unknown; `why` then says which.
    """

    usd: float | None
    hourly_usd: float | None
    hours: float
    pools: tuple[PoolCost, ...] = ()
    why: str = ""


def worst_case_cost(custom_job: Mapping[str, Any]) -> Cost:
    """Of a CustomJob in REST JSON."""
    spec = custom_job.get("jobSpec", {})
    hours = timeout_of(spec) / 3600
    pools: list[PoolCost] = []
    unknown: list[str] = []
    for index, pool in enumerate(spec.get("workerPoolSpecs", [])):
        if not pool:
            continue
        priced, missing = _pool_cost(index, pool)
        pools.append(priced)
        unknown += missing
    if unknown:
        why = f"no price is known for {', '.join(dict.fromkeys(unknown))} (catalogue of {PRICES_DATE}, {PRICES_REGION})"
        return Cost(None, None, hours, tuple(pools), why)
    hourly = sum(pool.hourly_usd or 0.0 for pool in pools)
    return Cost(hourly * hours, hourly, hours, tuple(pools))


def _pool_cost(index: int, pool: Mapping[str, Any]) -> tuple[PoolCost, Sequence[str]]:
    machine, disk = pool.get("machineSpec", {}), pool.get("diskSpec", {})
    kind, replicas = machine.get("machineType", ""), int(pool.get("replicaCount", 0))
    price = replica_price(
        kind,
        machine.get("acceleratorType", ""),
        int(machine.get("acceleratorCount", 0)),
        disk.get("bootDiskType", "pd-ssd"),
        int(disk.get("bootDiskSizeGb", 100)),
    )
    unknown = [*price.unknown, *(["a TPU slice"] if "tpuTopology" in machine else [])]
    hourly = None if price.usd is None or unknown else price.usd * replicas
    return PoolCost(index, replicas, kind, hourly), unknown
