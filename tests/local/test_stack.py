"""What the stack says of a bad start, and of a Pub/Sub emulator that is not its own."""

import os
import socket
import subprocess
import sys
import time
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


def test_a_taken_port_is_told_before_anything_runs(tmp_path: Path) -> None:
    """Whatever holds it would be taken for the dashboard."""
    said: list[str] = []
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(PartFailed, match=rf"port {port} is taken .* --port"):
            Stack(tmp_path, say=said.append, port=port).__enter__()
    assert said == []


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(PartFailed, match=r"cannot be kept in .*KICKOFF_STATE"):
        Stack(tmp_path / "file" / "state").__enter__()


def test_a_second_stack_on_one_folder_is_refused(tmp_path: Path) -> None:
    first = Stack(tmp_path)
    first._acquire()
    try:
        with pytest.raises(PartFailed, match=r"already runs on .*KICKOFF_STATE"):
            Stack(tmp_path).__enter__()
    finally:
        first._stop()
    Stack(tmp_path)._acquire()


def test_a_part_that_ends_is_named_with_its_last_lines(tmp_path: Path) -> None:
    processes = Processes(tmp_path / "logs")
    program = "import sys; print('no room for the index'); sys.exit(3)"
    part = processes.start("storage", [sys.executable, "-c", program], {})
    with pytest.raises(PartFailed, match=r"(?s)storage ended with exit status 3 .*storage\.log.*no room for the index"):
        processes.wait_for_line(part, "ready", 20)
    assert processes.dead() is part
    processes.stop()


def test_parts_end_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    program = (
        "import pathlib, sys, time\n"
        "from deploy.local.processes import Processes\n"
        f"part = Processes(pathlib.Path({str(tmp_path)!r})).start('part', [sys.executable, '-c', "
        "'import time; print(1, flush=True); time.sleep(60)'], {})\n"
        "while not part.tail(): time.sleep(0.02)\n"
        "print(part.process.pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    environ = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT}/functions"}
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, env=environ) as parent:
        assert parent.stdout
        pid = int(parent.stdout.readline())
        os.kill(pid, 0)  # it runs
        parent.kill()
    deadline = time.monotonic() + 10
    while _runs(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not _runs(pid)


def _runs(pid: int) -> bool:
    """A zombie that no one has reaped yet has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except FileNotFoundError:
        return False
