"""What a job has cost, by list prices. Pure."""

from collections.abc import Mapping
from typing import Any

from kickoff.jobs import JobView
from kickoff.policy import worst_case_cost


def actual_cost(custom_job: Mapping[str, Any], job: JobView) -> float | None:
    """USD from the start of the job to its end, restarts and retries included; None: unknown.

    An estimate: list prices of one region, and a job that fails by the service's own fault is not billed.
    A job that never started cost nothing.
    """
    if job.start_time is None:
        return 0.0 if job.ended else None
    if job.end_time is None:
        return None
    hourly = worst_case_cost(custom_job).hourly_usd
    return None if hourly is None else hourly * max(0.0, (job.end_time - job.start_time).total_seconds()) / 3600
