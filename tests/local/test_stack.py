"""What the stack says of a bad start, and of a Pub/Sub emulator that is not its own."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from kickoff.errors import ConfigurationError

from deploy.local.processes import PartFailed, Processes, answers, free_port
from deploy.local.resources import create_topics
from deploy.local.stack import ROOT, Stack


@pytest.fixture
def emulator(tmp_path: Path) -> Iterator[str]:
    processes = Processes(tmp_path / "logs")
    argv = [sys.executable, "-m", "deploy.local.pubsub", "--port", "0"]
    part = processes.start("pubsub", argv, {"PYTHONPATH": str(ROOT)})
    try:
        yield processes.wait_for_line(part, r"grpc (127\.0\.0\.1:\d+)")
    finally:
        processes.stop()


def test_a_variable_left_over_from_an_ended_stack_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The clients would wait for minutes, in silence."""
    monkeypatch.setenv("PUBSUB_EMULATOR_HOST", f"127.0.0.1:{free_port()}")
    with pytest.raises(PartFailed, match=r"PUBSUB_EMULATOR_HOST is .* unset the variable"), Stack(tmp_path):
        pass


def test_a_wrong_recipe_is_told_before_anything_runs(tmp_path: Path) -> None:
    recipes = tmp_path / "recipes"
    recipes.mkdir()
    (recipes / "odd.yaml").write_text("name: odd\nwhen: {message: {}}\njob: {image: i, replica: 3}\n")
    said: list[str] = []
    with pytest.raises(ConfigurationError, match=r"odd\.yaml:3: job\.replica"):
        Stack(tmp_path / "state", say=said.append, recipes=recipes).__enter__()
    assert said == []


@pytest.mark.parametrize("address", ["", "8085", "localhost:", "127.0.0.1:99999", "[::1]:x"])
def test_what_is_no_address_answers_nothing(address: str) -> None:
    assert not answers(address)


def test_subscriptions_of_an_earlier_stack_push_to_this_one(emulator: str) -> None:
    import grpc
    from google.pubsub_v1 import SubscriberClient
    from google.pubsub_v1.services.subscriber.transports import SubscriberGrpcTransport

    for port in (1, 2):
        urls = {name: f"http://127.0.0.1:{port}" for name in ("start_training", "record_completion")}
        create_topics(emulator, "acme", urls)
    with grpc.insecure_channel(emulator) as channel:
        client = SubscriberClient(transport=SubscriberGrpcTransport(channel=channel))
        found = list(client.list_subscriptions(request={"project": "projects/acme"}))
    pushed = {sub.push_config.push_endpoint for sub in found if sub.name.endswith("-push")}
    assert pushed == {"http://127.0.0.1:2"}
    assert {sub.push_config.push_endpoint for sub in found if not sub.name.endswith("-push")} == {""}
