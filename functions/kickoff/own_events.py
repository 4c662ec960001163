"""The data of the CloudEvents that Kickoff itself sends. Their JSON Schemas are in docs/schemas/. Pure.

On Pub/Sub they are in binary mode: the data is the JSON, the CloudEvent's attributes are ``ce-…`` attributes.
https://github.com/googleapis/google-cloudevents/blob/main/docs/spec/pubsub.md
"""

import json
from datetime import datetime
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from kickoff.runs import Run, State

EPOCH = "dev.kickoff.training.epoch.v1"
FINISHED = "dev.kickoff.training.finished.v1"
RUN_FINISHED = "dev.kickoff.run.finished.v1"

RUN_ID = r"^[a-z][a-z0-9-]{0,62}$"
"""As runs.build_run_id makes them. It names a document of the ledger, so nothing else may pass."""
RunId = Annotated[str, Field(pattern=RUN_ID)]
JobId = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{0,128}$")]
"""Empty outside Vertex AI."""
Metric = Annotated[float, Field(allow_inf_nan=False)] | None
"""null stands for a number that is not finite (a loss that diverged), which JSON cannot say."""
Metrics = Annotated[dict[Annotated[str, Field(max_length=100)], Metric], Field(max_length=100)]


class Received(BaseModel):
    """Strict about types and lenient about new fields, so that an older function reads a newer trainer."""

    model_config = ConfigDict(frozen=True, strict=True, extra="ignore")


class TrainingEpoch(Received):
    """The primary replica has finished an epoch."""

    run_id: RunId
    job_id: JobId | None = ""
    epoch: int = Field(ge=1, le=1_000_000)
    """Of `epochs`, beginning with 1."""
    epochs: int = Field(ge=1, le=1_000_000)
    metrics: Metrics = Field(default_factory=dict)
    images_per_second: Metric = None


class TrainingFinished(Received):
    """The primary replica has trained and exported its model; the job itself may still be running."""

    run_id: RunId
    job_id: JobId | None = ""
    metrics: Metrics = Field(default_factory=dict)
    model_uri: str = Field(default="", max_length=2048)


class RunFinished(BaseModel):
    """A run has ended, in whatever way. Sent at least once, always with the same CloudEvent id."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    run_id: str
    recipe: str
    attempt: int
    state: State
    job: str
    """``projects/P/locations/R/customJobs/ID``; empty where no job was made."""
    job_state: str
    error: str
    created: datetime
    started: datetime | None
    ended: datetime
    dataset_uri: str
    dataset_digest: str
    metrics: dict[str, float]
    model_uri: str
    """Where the model is; empty unless the run succeeded and the model was seen there."""
    cost_usd: float | None
    """An estimate from list prices; null: unknown."""
    labels: dict[str, str]


def build_run_finished(run: Run) -> RunFinished:
    """What is said of a run that has ended."""
    job = run.job
    return RunFinished(
        run_id=run.run_id,
        recipe=run.recipe,
        attempt=run.attempt,
        state=run.state,
        job=job.name if job else "",
        job_state=job.state if job else "",
        error=job.error if job and job.error else "\n".join(fault.message for fault in run.faults),
        created=run.created,
        started=job.start_time if job else None,
        ended=run.history[-1].time,
        dataset_uri=run.dataset.uri if run.dataset else "",
        dataset_digest=run.dataset.digest if run.dataset else "",
        metrics=run.metrics,
        model_uri=run.model_uri,
        cost_usd=run.cost_usd,
        labels=run.labels,
    )


def build_pubsub_message(
    event_type: str, source: str, event_id: str, time: datetime, data: BaseModel, **others: str
) -> tuple[bytes, dict[str, str]]:
    """(data, attributes) of a Pub/Sub message that carries the CloudEvent in binary mode.

    `others` are further attributes of the event, which subscriptions can filter by.
    """
    event = {
        "specversion": "1.0",
        "type": event_type,
        "source": source,
        "id": event_id,
        "time": time.isoformat().replace("+00:00", "Z"),
        **others,
    }
    attributes = {f"ce-{name}": value for name, value in event.items()}
    attributes["content-type"] = "application/json"
    return json.dumps(data.model_dump(mode="json"), ensure_ascii=False).encode(), attributes
