"""What a run says while it goes: a line for people, a CloudEvent for Kickoff, scalars for TensorBoard."""

import json
import math
import sys
import time
import uuid
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

EPOCH = "dev.kickoff.training.epoch.v1"
FINISHED = "dev.kickoff.training.finished.v1"


def say(line: str) -> None:
    print(line, flush=True)


def warn(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def format_epoch(epoch: int, epochs: int, metrics: Mapping[str, float], rate: float) -> str:
    """`epoch 3/10 loss 0.123 accuracy 0.96 val_accuracy 0.95 1234 images/s`."""
    figures = " ".join(f"{name} {value:.4f}" for name, value in metrics.items())
    return f"epoch {epoch}/{epochs} {figures} {rate:.0f} images/s"


class Events:
    """Publishes CloudEvents in the binary mode of the Pub/Sub binding; publishes nothing without a topic.

    Training never fails over an event: Kickoff asks Vertex AI for the truth. The finished event is waited for,
    because the process ends right after it.
    """

    def __init__(self, environ: Mapping[str, str], report: Callable[[str], None] = warn) -> None:
        self._topic = topic_path(environ)
        self._run_id = environ.get("KICKOFF_RUN_ID", "")
        self._job_id = environ.get("CLOUD_ML_JOB_ID", "")
        self._report = report
        self._publisher: Any = None
        self._pending: list[Any] = []

    def epoch(self, epoch: int, epochs: int, metrics: Mapping[str, float], rate: float) -> None:
        """`epoch` counts from 1; `rate` is training images a second over all replicas."""
        self._publish(
            EPOCH,
            {"epoch": epoch, "epochs": epochs, "metrics": finite(metrics), "images_per_second": round(rate, 1)},
        )

    def finished(self, metrics: Mapping[str, float], model_uri: str) -> None:
        self._publish(FINISHED, {"metrics": finite(metrics), "model_uri": model_uri})
        self.flush()

    def flush(self, timeout: float = 30.0) -> None:
        """Waits until everything published has arrived, or says what did not."""
        deadline = time.monotonic() + timeout
        for future in self._pending:
            try:
                future.result(timeout=max(deadline - time.monotonic(), 0.0))
            except Exception as error:
                self._report(f"warning: an event was not published to {self._topic}: {error!r}")
        self._pending.clear()

    def _publish(self, event_type: str, data: Mapping[str, Any]) -> None:
        if not self._topic:
            return
        payload = {"run_id": self._run_id, "job_id": self._job_id, **data}
        attributes = {
            "ce-specversion": "1.0",
            "ce-type": event_type,
            "ce-source": f"//kickoff/runs/{self._run_id or 'unnamed'}",
            "ce-id": str(uuid.uuid4()),
            "ce-time": datetime.now(UTC).isoformat(),
            "content-type": "application/json",
        }
        try:
            if self._publisher is None:
                from google.cloud import pubsub_v1

                self._publisher = pubsub_v1.PublisherClient()
            self._pending.append(self._publisher.publish(self._topic, json.dumps(payload).encode(), **attributes))
        except Exception as error:
            self._report(f"warning: an event was not published to {self._topic}: {error!r}")
            self._topic = ""


def finite(metrics: Mapping[str, float]) -> dict[str, float | None]:
    """JSON has no NaN: a metric that is not finite is null, so that a diverged epoch still shows."""
    return {name: value if math.isfinite(value) else None for name, value in metrics.items()}


def topic_path(environ: Mapping[str, str]) -> str:
    """`projects/P/topics/T` from KICKOFF_EVENTS_TOPIC, which may be the whole path or the name alone."""
    topic = environ.get("KICKOFF_EVENTS_TOPIC", "")
    if not topic or topic.startswith("projects/"):
        return topic
    project = environ.get("CLOUD_ML_PROJECT_ID") or environ.get("GOOGLE_CLOUD_PROJECT", "")
    return f"projects/{project}/topics/{topic}" if project else ""
