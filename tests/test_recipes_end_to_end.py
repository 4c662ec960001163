"""Each codelab system, and parameter servers, through the whole local stack: one message, a tiny dataset, one epoch.

Cassava (two ResNet50s) runs with KICKOFF_HEAVY=1 alone.
"""

import io
import json
import os
from typing import Any

import pytest
from google.auth.credentials import AnonymousCredentials
from google.cloud import storage
from google.pubsub_v1 import PublisherClient
from google.pubsub_v1.services.publisher.transports import PublisherGrpcTransport
from kickoff.clients import Clients
from kickoff.logs import read_tails
from kickoff.runs import Run, State

from deploy.follow import follow, wait_for_run
from deploy.local.stack import PROJECT, Stack

DATASET = f"gs://{PROJECT}-data/small/flowers/"
SECONDS = 300.0
SMALL = {"epochs": 1, "batch-size": 8}
REQUESTS: dict[str, dict[str, Any]] = {
    "flowers-multi-gpu": SMALL,
    "flowers-multi-machine": SMALL,
    "flowers-parameter-server": SMALL,
}
HEAVY = {"cassava": {**SMALL, "weights": "none", "image-size": 32}}
"""Two ResNet50s: minutes on two cores that other tests use too."""
if os.environ.get("KICKOFF_HEAVY"):
    REQUESTS |= HEAVY
REPLICAS = {"flowers-multi-gpu": [1], "flowers-multi-machine": [1, 1], "flowers-parameter-server": [1, 2, 1, 1]}
pytestmark = pytest.mark.timeout(420)


@pytest.fixture(scope="module")
def photos(stack: Stack) -> str:
    """Crops of the two real photographs that scikit-learn carries, as class folders: a temple and a flower."""
    from PIL import Image
    from sklearn.datasets import load_sample_images

    client = storage.Client(
        project=PROJECT, credentials=AnonymousCredentials(), client_options={"api_endpoint": stack.urls["storage"]}
    )
    bucket = client.bucket(f"{PROJECT}-data")
    for kind, photo in zip(("temple", "flower"), load_sample_images().images, strict=True):
        for index in range(24):
            x, y = 40 * (index % 8), 80 * (index // 8)
            jpeg = io.BytesIO()
            Image.fromarray(photo[y : y + 160, x : x + 160]).save(jpeg, format="JPEG")
            bucket.blob(f"small/flowers/{kind}/{index:02}.jpg").upload_from_string(jpeg.getvalue(), "image/jpeg")
    return DATASET


def ask(stack: Stack, payload: dict[str, Any]) -> None:
    import grpc

    with grpc.insecure_channel(stack.environ["PUBSUB_EMULATOR_HOST"]) as channel:
        client = PublisherClient(transport=PublisherGrpcTransport(channel=channel))
        message = {"data": json.dumps(payload).encode()}
        client.publish(topic=f"projects/{PROJECT}/topics/training-requests", messages=[message])


def explain(run: Run, stack: Stack) -> str:
    tails = read_tails(stack.urls["vertex"], run)
    faults = [fault.message for fault in run.faults]
    lines = [f"{run.run_id} is {run.state}", *faults, *run.notes]
    return "\n".join([*lines, *("--- " + replica + "\n" + "\n".join(text) for replica, text in tails)])


@pytest.mark.parametrize("recipe", REQUESTS)
def test_a_message_becomes_a_trained_model(recipe: str, photos: str, stack: Stack, clients: Clients) -> None:
    ask(stack, {"recipe": recipe, "dataset": photos, "args": REQUESTS[recipe]})
    run = wait_for_run(clients.ledger, recipe, 60, stack.check)
    for _ in follow(clients.ledger, run.run_id, SECONDS, stack.check):
        pass
    ended = clients.ledger.get_run(run.run_id)
    assert ended is not None and ended.state is State.SUCCEEDED, explain(ended or run, stack)
    assert not ended.model_missing and ended.dataset and ended.dataset.objects == 48
    pools = ended.custom_job["jobSpec"]["workerPoolSpecs"]
    assert [int(pool["replicaCount"]) for pool in pools] == REPLICAS.get(recipe, [1, 1])
