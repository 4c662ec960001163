"""A run as Vertex AI would start it: snapshot, fence, model and checkpoints in Cloud Storage, events on Pub/Sub."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from deploy.local.pubsub.server import PubSubServer
from tests.trainer.conftest import Launch
from tests.trainer.test_sources import snapshot_of
from trainer.evaluate import evaluate

TOPIC, SUBSCRIPTION = "projects/kickoff-local/topics/training-events", "projects/kickoff-local/subscriptions/seen"

pytestmark = pytest.mark.timeout(400)  # several TensorFlow processes, on whatever cores there are


@pytest.fixture
def pubsub(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with PubSubServer(0, 0, "127.0.0.1") as server:
        monkeypatch.setenv("PUBSUB_EMULATOR_HOST", server.endpoint)
        yield server.endpoint


def test_everything_goes_through_the_wire(
    digits: Path,
    gcs: str,
    gcs_client: Any,
    upload: Callable[[Path, str], None],
    pubsub: str,
    launch: Launch,
    tmp_path: Path,
) -> None:
    from google.cloud import pubsub_v1

    upload(digits, "gs://wire-data/datasets/digits")
    snapshot = json.dumps(snapshot_of(gcs_client, "wire-data", "datasets/digits/"))
    gcs_client.create_bucket("wire-models")
    gcs_client.bucket("wire-models").blob("runs/7/snapshot.json").upload_from_string(snapshot)
    pubsub_v1.PublisherClient().create_topic(name=TOPIC)
    subscriber = pubsub_v1.SubscriberClient()
    subscriber.create_subscription(name=SUBSCRIPTION, topic=TOPIC)
    env = {
        "STORAGE_EMULATOR_HOST": gcs,
        "PUBSUB_EMULATOR_HOST": pubsub,
        "AIP_MODEL_DIR": "gs://wire-models/runs/7/model/",
        "AIP_CHECKPOINT_DIR": "gs://wire-models/runs/7/checkpoints/",
        "AIP_TENSORBOARD_LOG_DIR": "gs://wire-models/runs/7/logs/",
        "CLOUD_ML_JOB_ID": "4711",
        "CLOUD_ML_PROJECT_ID": "kickoff-local",
        "KICKOFF_RUN_ID": "digits-abc",
        "KICKOFF_EVENTS_TOPIC": TOPIC,
    }
    data = "--data=gs://wire-models/runs/7/snapshot.json"
    (replica,) = launch(["--model=digits", data, "--epochs=2", "--keep-checkpoints=2"], env=env)
    assert replica.wait(120) == 0, replica.text

    blobs = list(gcs_client.list_blobs("wire-models", prefix="runs/7/"))
    written = [blob for blob in blobs if not blob.name.endswith("snapshot.json")]
    assert all(blob.metadata == {"kickoff-run": "digits-abc"} for blob in written), "so no dataset takes them in"
    names = [blob.name.removeprefix("runs/7/") for blob in blobs]
    expected = {"winner", "model/saved_model.pb", "model/model.keras", "model/labels.txt", "model/metrics.json"}
    assert expected <= set(names)
    assert len([name for name in names if name.startswith("checkpoints/")]) == 2
    assert any(name.startswith("logs/events.out") for name in names)
    assert gcs_client.bucket("wire-models").blob("runs/7/winner").download_as_bytes() == b"4711"
    metrics = json.loads(gcs_client.bucket("wire-models").blob("runs/7/model/metrics.json").download_as_bytes())
    assert metrics["data"]["digest"] == "ab" * 32
    again = evaluate("gs://wire-models/runs/7/model/", "", tmp_path)
    assert again["accuracy"] == pytest.approx(metrics["val_accuracy"], abs=1e-6)

    pulled = subscriber.pull(subscription=SUBSCRIPTION, max_messages=10, timeout=20).received_messages
    messages = [(message.message.attributes, json.loads(message.message.data)) for message in pulled]
    kinds = [attributes["ce-type"] for attributes, _ in messages]
    assert sorted(kinds) == ["dev.kickoff.training.epoch.v1"] * 2 + ["dev.kickoff.training.finished.v1"]
    for attributes, body in messages:
        assert attributes["ce-specversion"] == "1.0" and attributes["content-type"] == "application/json"
        assert attributes["ce-id"] and attributes["ce-time"] and attributes["ce-source"]
        assert (body["run_id"], body["job_id"]) == ("digits-abc", "4711")
    epochs = {body["epoch"]: body for _, body in messages if "epoch" in body}
    assert epochs[2]["epochs"] == 2 and epochs[2]["images_per_second"] > 0
    assert epochs[2]["metrics"]["val_accuracy"] == metrics["val_accuracy"]
    (finished,) = [body for _, body in messages if "model_uri" in body]
    assert finished["model_uri"] == "gs://wire-models/runs/7/model/"
