"""What a job has cost, by list prices. Pure."""

from collections.abc import Mapping
from typing import Any

from kickoff.jobs import JobView
from kickoff.machines import replica_price

_DISK_TYPE, _DISK_GB = "pd-ssd", 100
"""Vertex AI's defaults. https://cloud.google.com/vertex-ai/docs/reference/rest/v1/DiskSpec"""


def hourly_cost(custom_job: Mapping[str, Any]) -> float | None:
    """USD an hour for all replicas of a CustomJob in REST JSON; None: the price of some part is unknown."""
    total = 0.0
    for pool in custom_job.get("jobSpec", {}).get("workerPoolSpecs", []):
        if not pool:
            continue
        machine, disk = pool.get("machineSpec", {}), pool.get("diskSpec", {})
        price = replica_price(
            machine.get("machineType", ""),
            machine.get("acceleratorType", ""),
            int(machine.get("acceleratorCount", 0)),
            disk.get("bootDiskType", _DISK_TYPE),
            int(disk.get("bootDiskSizeGb", _DISK_GB)),
        )
        if price.usd is None:
            return None
        total += price.usd * int(pool.get("replicaCount", 1))
    return total


def actual_cost(custom_job: Mapping[str, Any], job: JobView) -> float | None:
    """USD from the start of the job to its end, restarts and retries included; None: unknown.

    An estimate: list prices of one region, and a job that fails by the service's own fault is not billed.
    A job that never started cost nothing.
    """
    if job.end_time is None or job.start_time is None:
        return 0.0 if job.ended else None
    hourly = hourly_cost(custom_job)
    return None if hourly is None else hourly * max(0.0, (job.end_time - job.start_time).total_seconds()) / 3600
