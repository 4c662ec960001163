"""Runs for tests."""

from datetime import UTC, datetime
from typing import Any

from kickoff.runs import Change, Run, State, Trigger, build_run_id

NOW = datetime(2026, 12, 1, 12, tzinfo=UTC)


def make_run(name: str = "m-1", *, recipe: str = "flowers", created: datetime = NOW, **fields: Any) -> Run:
    """A queued run of a message, as start_training would accept it."""
    key = fields.pop("key", (recipe, "message", name))
    state = fields.pop("state", State.QUEUED)
    run_id = build_run_id(key)
    values: dict[str, Any] = {
        "trigger": Trigger(kind=key[1], event_id=name),
        "request_digest": "d1",
        "custom_job": make_custom_job(run_id),
        "project": "kickoff-local",
        "region": "us-central1",
        "output": f"gs://kickoff-local-models/{recipe}/{run_id}",
        "next_attempt_at": created if state is State.QUEUED else None,
    }
    history = (Change(state=state, time=created),)
    fixed = {"run_id": run_id, "key": key, "recipe": recipe, "state": state, "history": history}
    return Run(**{**fixed, **values, "created": created, "updated": created, **fields})


def make_custom_job(run_id: str, image: str = "instant") -> dict[str, Any]:
    pool = {
        "machineSpec": {"machineType": "n1-standard-4"},
        "replicaCount": 1,
        "containerSpec": {"imageUri": image, "env": [{"name": "KICKOFF_RUN_ID", "value": run_id}]},
    }
    output = {"outputUriPrefix": f"gs://kickoff-local-models/flowers/{run_id}/"}
    return {
        "displayName": run_id,
        "jobSpec": {"workerPoolSpecs": [pool], "baseOutputDirectory": output},
        "labels": {"kickoff-run": run_id},
    }
