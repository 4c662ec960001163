"""What the trainer publishes is what record_completion reads: the two share a contract and no code."""

import base64
import json
import math
from collections.abc import Iterator
from typing import Any

import pytest
from google.cloud import pubsub_v1
from kickoff.event_types import JobHint
from kickoff.events import parse_event

from deploy.local.pubsub.server import PubSubServer
from trainer.progress import Events

TOPIC = "projects/kickoff-local/topics/training-events"
SUBSCRIPTION = "projects/kickoff-local/subscriptions/training-events"
ENVIRON = {"KICKOFF_EVENTS_TOPIC": TOPIC, "KICKOFF_RUN_ID": "digits-0123456789abcdef0123", "CLOUD_ML_JOB_ID": "7"}


@pytest.fixture
def subscriber(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    with PubSubServer(http_port=None) as server:
        monkeypatch.setenv("PUBSUB_EMULATOR_HOST", server.endpoint)
        subscriber = pubsub_v1.SubscriberClient()
        pubsub_v1.PublisherClient().create_topic(name=TOPIC)
        subscriber.create_subscription(name=SUBSCRIPTION, topic=TOPIC)
        yield subscriber
        subscriber.close()


def pull(subscriber: Any, count: int) -> list[JobHint]:
    hints: list[JobHint] = []
    while len(hints) < count:
        answer = subscriber.pull(subscription=SUBSCRIPTION, max_messages=10, timeout=10)
        subscriber.acknowledge(subscription=SUBSCRIPTION, ack_ids=[each.ack_id for each in answer.received_messages])
        hints += [_parse(each.message) for each in answer.received_messages]
    return hints


def _parse(message: Any) -> JobHint:
    body = {"data": base64.b64encode(message.data).decode(), "attributes": dict(message.attributes), "messageId": "1"}
    event = parse_event("POST", "/", {}, json.dumps({"message": body}).encode())
    assert isinstance(event, JobHint)
    return event


def test_epochs_and_the_end_arrive_as_hints(subscriber: Any) -> None:
    events = Events(ENVIRON, report=pytest.fail)
    events.epoch(1, 2, {"loss": math.nan, "accuracy": 0.5, "val_loss": math.inf}, 123.44)
    events.flush()
    events.finished({"accuracy": 0.97}, "gs://models/digits/model/")
    epoch, finished = sorted(pull(subscriber, 2), key=lambda hint: hint.kind)
    assert (epoch.kind, epoch.run_id, epoch.job_id) == ("epoch", ENVIRON["KICKOFF_RUN_ID"], "7")
    metrics = {"loss": None, "accuracy": 0.5, "val_loss": None}
    assert epoch.data == {"epoch": 1, "epochs": 2, "metrics": metrics, "images_per_second": 123.4}
    assert finished.data == {"metrics": {"accuracy": 0.97}, "model_uri": "gs://models/digits/model/"}
    assert epoch.event_id != finished.event_id and epoch.time and finished.time


def test_outside_vertex_the_job_is_unnamed(subscriber: Any) -> None:
    events = Events({name: value for name, value in ENVIRON.items() if name != "CLOUD_ML_JOB_ID"}, report=pytest.fail)
    events.epoch(1, 1, {"loss": 1.0}, 1.0)
    events.flush()
    assert pull(subscriber, 1)[0].job_id == ""
