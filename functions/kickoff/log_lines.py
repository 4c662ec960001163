"""Structured log lines, one JSON object each: Cloud Logging takes them apart, and alerts are made of them.

https://cloud.google.com/run/docs/logging#using-json
"""

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal

from kickoff.runs import Run, State

_BAD = frozenset({State.FAILED, State.EXPIRED})


def log_line(severity: Literal["INFO", "WARNING", "ERROR"], message: str, **fields: Any) -> None:
    """Print one line. `kickoff` in `fields` names its kind; deploy/gcp/monitoring.tf counts by it."""
    print(json.dumps({"severity": severity, "message": message, **fields}), flush=True)


def log_end(run: Run) -> None:
    """A run's end, said once by whoever wrote it."""
    severity: Literal["INFO", "ERROR"] = "ERROR" if run.state in _BAD else "INFO"
    fields = {"run_id": run.run_id, "recipe": run.recipe, "state": run.state}
    log_line(severity, f"run {run.run_id} ended {run.state}", kickoff="run-ended", **fields)


def log_sweep(report: Mapping[str, Any], oldest: Run | None, now: datetime) -> None:
    """What a pass of the sweep did, and how long the oldest queued run has waited, in seconds; 0: none is queued."""
    waited = (now - oldest.created).total_seconds() if oldest else 0.0
    severity: Literal["INFO", "WARNING"] = "WARNING" if report["errors"] else "INFO"
    log_line(severity, "sweep", kickoff="sweep", oldest_queued_seconds=round(waited), report=dict(report))
