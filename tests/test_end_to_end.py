"""The story of the README, with every part real: an upload becomes one trained, recorded model."""

import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from google.auth.credentials import AnonymousCredentials
from google.cloud import storage
from google.pubsub_v1 import PublisherClient
from google.pubsub_v1.services.publisher.transports import PublisherGrpcTransport
from kickoff.clients import Clients
from kickoff.logs import read_tails
from kickoff.progress import list_epochs
from kickoff.runs import Run, State

from deploy.demo import evaluate
from deploy.demo_data import SCENES, upload
from deploy.follow import follow, wait_for_run
from deploy.local.stack import PROJECT, TRAINER_IMAGE, Stack
from deploy.models import download_model

DEADLINE = 240.0
pytestmark = pytest.mark.timeout(400)


@pytest.fixture(scope="module")
def trained(stack: Stack, clients: Clients) -> Run:
    """Upload the digits, touch nothing else, and wait for the run to end."""
    assert len(list(upload(stack.urls["storage"], SCENES["digits"]))) == 1797
    run = wait_for_run(clients.ledger, "digits", 60, stack.check)
    for _ in follow(clients.ledger, run.run_id, DEADLINE, stack.check):
        pass
    ended = clients.ledger.get_run(run.run_id)
    assert ended is not None
    assert ended.state is State.SUCCEEDED, explain(ended, stack)
    return ended


def explain(run: Run, stack: Stack) -> str:
    tails = read_tails(stack.urls["vertex"], run)
    told = ("\n".join([f"--- {replica}", *lines]) for replica, lines in tails)
    return "\n".join([f"{run.run_id} is {run.state}", *run.notes, *told])


def test_one_upload_makes_one_job_of_three_replicas(trained: Run, clients: Clients) -> None:
    jobs = clients.vertex.find_by_run(trained.project, trained.region, trained.run_id)
    assert [job.name for job in jobs] == [trained.job.name if trained.job else ""]
    pools = trained.custom_job["jobSpec"]["workerPoolSpecs"]
    assert [int(pool["replicaCount"]) for pool in pools] == [1, 2]


def test_the_record_tells_the_whole_life_of_the_run(trained: Run, clients: Clients) -> None:
    states = [change.state for change in trained.history]
    assert states[:3] == [State.QUEUED, State.SUBMITTING, State.SUBMITTED]
    assert states[-1] is State.SUCCEEDED
    assert trained.dataset is not None
    assert trained.dataset.objects == 1797
    assert eventually(lambda: getattr(clients.ledger.get_run(trained.run_id), "finished_published", False))
    assert not trained.model_missing


def test_every_epoch_was_reported_and_the_model_learned(trained: Run, clients: Clients) -> None:
    epochs = list_epochs(clients.ledger, trained.run_id)
    assert [epoch.epoch for epoch in epochs] == list(range(1, epochs[-1].epochs + 1))
    assert trained.metrics["val_accuracy"] >= 0.93


def test_the_saved_model_loaded_again_is_as_good(trained: Run, stack: Stack, tmp_path: Path) -> None:
    assert download_model(stack.urls["storage"], trained.model_uri, tmp_path) > 3
    again = evaluate(stack, trained, tmp_path)
    assert again["accuracy"] == pytest.approx(trained.metrics["val_accuracy"], abs=1e-3)


def test_uploading_the_same_bytes_again_starts_nothing(trained: Run, stack: Stack, clients: Clients) -> None:
    client = storage.Client(
        project=PROJECT,
        credentials=AnonymousCredentials(),
        client_options={"api_endpoint": stack.urls["storage"]},
    )
    client.bucket(f"{PROJECT}-data").blob("datasets/digits/_SUCCESS").upload_from_string(b"")
    time.sleep(4)
    assert [run.run_id for run in clients.ledger.find_runs(recipe="digits")] == [trained.run_id]


def publish(stack: Stack, payload: object, times: int = 1, **attributes: str) -> None:
    """Send one training request, or the same one several times at once, each under an id of its own."""
    import grpc

    data = json.dumps(payload).encode()
    with grpc.insecure_channel(stack.environ["PUBSUB_EMULATOR_HOST"]) as channel, ThreadPoolExecutor(5) as pool:
        client = PublisherClient(transport=PublisherGrpcTransport(channel=channel))
        topic = f"projects/{PROJECT}/topics/training-requests"
        message = {"data": data, "attributes": attributes}
        list(pool.map(lambda _: client.publish(topic=topic, messages=[message]), range(times)))


def eventually(probe: Callable[[], Any], seconds: float = 60.0) -> Any:
    """The probe's first true answer, or a failure when there is none in time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if answer := probe():
            return answer
        time.sleep(0.2)
    raise AssertionError(f"nothing came within {seconds:.0f} s")


def test_one_request_sent_five_times_at_once_starts_one_job(stack: Stack, clients: Clients) -> None:
    """The codelabs' own list of worker pool specs, as it stands in the notebook."""
    pool = {
        "replica_count": 1,
        "machine_spec": {"machine_type": "n1-standard-4"},
        "container_spec": {"image_uri": TRAINER_IMAGE, "command": ["true"]},
    }
    publish(stack, {"worker_pool_specs": [pool, pool], "idempotency_key": "five"}, times=5)

    def ended() -> Run | None:
        return next((run for run in clients.ledger.find_runs(recipe="custom-job") if run.terminal), None)

    run = eventually(ended)
    assert run.state is State.SUCCEEDED, explain(run, stack)
    time.sleep(2)
    assert len(clients.ledger.find_runs(recipe="custom-job")) == 1
    assert len(clients.vertex.find_by_run(run.project, run.region, run.run_id)) == 1


def test_a_refused_request_is_recorded_with_every_fault(stack: Stack, clients: Clients) -> None:
    publish(stack, {"recipe": "digits", "replicas": 0, "epoch": 3})

    def refused() -> Run | None:
        return next(iter(clients.ledger.find_runs(states=[State.REJECTED])), None)

    run = eventually(refused)
    text = " ".join(fault.message for fault in run.faults)
    assert "replicas is 0" in text
    assert "epoch is not a known key" in text
    assert run.job is None
