"""Each codelab system, and parameter servers, through the whole local stack: one message, a tiny dataset, one epoch.

Cassava (two ResNet50s) runs with KICKOFF_HEAVY=1 alone.
"""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kickoff.clients import Clients
from kickoff.logs import read_tails
from kickoff.runs import Run, State

from deploy.demo import evaluate, read_evaluations
from deploy.demo_data import SCENES, publish_request, upload
from deploy.follow import follow, wait_for_run
from deploy.local.stack import Stack
from deploy.models import download_model

IMAGES = 48
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
    """Cuts of two real photographs, as the demo uploads them; few enough for a test."""
    scene = SCENES["flowers-multi-machine"]
    few = replace(scene, files=lambda: (item for item in scene.files() if int(item[0][-6:-4]) % 2), root="small/")
    assert len(list(upload(stack.urls["storage"], few))) == IMAGES
    return str(few.request("any")["dataset"])


def explain(run: Run, stack: Stack) -> str:
    tails = read_tails(stack.urls["vertex"], run)
    faults = [fault.message for fault in run.faults]
    lines = [f"{run.run_id} is {run.state}", *faults, *run.notes]
    return "\n".join([*lines, *("--- " + replica + "\n" + "\n".join(text) for replica, text in tails)])


@pytest.mark.parametrize("recipe", REQUESTS)
def test_a_message_becomes_a_trained_model(
    recipe: str, photos: str, stack: Stack, clients: Clients, tmp_path: Path
) -> None:
    request = {"recipe": recipe, "dataset": photos, "args": REQUESTS[recipe]}
    publish_request(stack.environ["PUBSUB_EMULATOR_HOST"], request)
    run = wait_for_run(clients.ledger, recipe, 60, stack.check)
    for _ in follow(clients.ledger, run.run_id, SECONDS, stack.check):
        pass
    ended = clients.ledger.get_run(run.run_id)
    assert ended is not None and ended.state is State.SUCCEEDED, explain(ended or run, stack)
    assert not ended.model_missing and ended.dataset and ended.dataset.objects == IMAGES
    pools = ended.custom_job["jobSpec"]["workerPoolSpecs"]
    assert [int(pool["replicaCount"]) for pool in pools] == REPLICAS.get(recipe, [1, 1])
    if recipe == "flowers-parameter-server":
        check_evaluations(ended, stack)
        check_model(ended, stack, tmp_path)


def check_evaluations(run: Run, stack: Stack) -> None:
    """The evaluator of pool 3 measured the checkpoints, the last one too, and got what the primary got."""
    last = read_evaluations(stack.urls["storage"], run)[-1]
    assert last["epoch"] == 1
    assert last["val_accuracy"] == pytest.approx(run.metrics["val_accuracy"])


def check_model(run: Run, stack: Stack, folder: Path) -> None:
    """What tf_keras saved does after loading what the record says."""
    download_model(stack.urls["storage"], run.model_uri, folder)
    assert evaluate(stack, run, folder)["accuracy"] == pytest.approx(run.metrics["val_accuracy"], abs=1e-3)
