"""Starting the two emulators, and clients and endpoints to try them with."""

import os
import shutil
import signal
import socket
import subprocess
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from unittest import mock

from google.cloud import pubsub_v1
from google.pubsub_v1 import PublisherClient as GeneratedPublisher

PROJECT = "battery"


@dataclass
class Clients:
    """The stock clients, on one emulator."""

    publisher: Any
    subscriber: Any

    def topic(self) -> str:
        return str(self.publisher.create_topic(name=f"projects/{PROJECT}/topics/t-{uuid.uuid4().hex[:8]}").name)

    def subscription(self, topic: str, **settings: Any) -> str:
        name = f"projects/{PROJECT}/subscriptions/s-{uuid.uuid4().hex[:8]}"
        return str(self.subscriber.create_subscription(request={"name": name, "topic": topic, **settings}).name)

    def publish(self, topic: str, *bodies: bytes, **attributes: str) -> list[str]:
        """One request, so that the order of the bodies is the order of the messages."""
        return self.publish_messages(topic, [{"data": body, "attributes": attributes} for body in bodies])

    def publish_messages(self, topic: str, messages: list[dict[str, Any]]) -> list[str]:
        # The client's own `publish` collects batches; the generated one below it is one request, not tried again.
        return list(GeneratedPublisher.publish(self.publisher, topic=topic, messages=messages, retry=None).message_ids)

    def pull(self, subscription: str, count: int = 1, seconds: float = 10.0) -> list[Any]:
        """`count` received messages, or those that came within `seconds`."""
        received: list[Any] = []
        end = time.monotonic() + seconds
        while len(received) < count and time.monotonic() < end:
            request = {"subscription": subscription, "max_messages": count - len(received), "return_immediately": True}
            received.extend(self.subscriber.pull(request=request, timeout=30).received_messages)
            time.sleep(0.01)
        return received

    def ack(self, subscription: str, received: list[Any]) -> None:
        ids = [message.ack_id for message in received]
        self.subscriber.acknowledge(subscription=subscription, ack_ids=ids)

    def nack(self, subscription: str, received: list[Any]) -> None:
        ids = [message.ack_id for message in received]
        self.subscriber.modify_ack_deadline(subscription=subscription, ack_ids=ids, ack_deadline_seconds=0)

    def close(self) -> None:
        self.publisher.transport.close()
        self.subscriber.close()


def clients_of(endpoint: str) -> Clients:
    with mock.patch.dict(os.environ, {"PUBSUB_EMULATOR_HOST": endpoint}):
        return Clients(pubsub_v1.PublisherClient(), pubsub_v1.SubscriberClient())


def open_stream(ended: threading.Event, name: str) -> Iterator[Any]:
    """The requests of a stream that never acknowledges; an iterator that ends would close it."""
    yield pubsub_v1.types.StreamingPullRequest(subscription=name, stream_ack_deadline_seconds=10)
    ended.wait(30)


@dataclass
class Request:
    path: str
    headers: dict[str, str]
    body: bytes
    time: float


@dataclass
class Endpoint:
    """A push endpoint that answers as `statuses` says (the last one for ever) and remembers what came."""

    url: str = ""
    statuses: list[int] = field(default_factory=lambda: [200])
    requests: list[Request] = field(default_factory=list)
    delay: float = 0.0
    active: int = 0
    most_active: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def status(self, request: Request) -> int:
        """What the request gets; replaced by tests that decide by its content."""
        return self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]

    def wait(self, count: int, seconds: float = 20.0) -> list[Request]:
        wait_for(lambda: len(self.requests) >= count, seconds, lambda: f"{len(self.requests)} of {count} requests came")
        return self.requests


def wait_for(condition: Any, seconds: float = 20.0, say: Any = lambda: "it did not happen") -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"after {seconds:g} s: {say()}"
        time.sleep(0.01)


@contextmanager
def push_endpoint() -> Iterator[Endpoint]:
    endpoint = Endpoint()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            request = Request(self.path, {k.lower(): v for k, v in self.headers.items()}, body, time.monotonic())
            with endpoint.lock:
                endpoint.active += 1
                endpoint.most_active = max(endpoint.most_active, endpoint.active)
            time.sleep(endpoint.delay)
            with endpoint.lock:
                endpoint.active -= 1
                endpoint.requests.append(request)
                status = endpoint.status(request)
            self.send_response(status)
            if status == 302:
                self.send_header("Location", "/elsewhere")
            if status >= 200 and status != 204:
                self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None: ...

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 128

        def handle_error(self, request: Any, client_address: Any) -> None:
            """A connection that the other side cut."""

    with Server(("127.0.0.1", 0), Handler) as server:
        endpoint.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        yield endpoint
        server.shutdown()


def google_emulator_jar() -> Path | None:
    """Google's own emulator, beside the gcloud on PATH."""
    gcloud = shutil.which("gcloud")
    if gcloud is None or shutil.which("java") is None:
        return None
    folder = Path(gcloud).resolve().parents[1] / "platform" / "pubsub-emulator" / "lib"
    return next(iter(sorted(folder.glob("cloud-pubsub-emulator-*-all.jar"))), None)


@contextmanager
def google_emulator(jar: Path) -> Iterator[str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = ["java", "-jar", str(jar), "--host=127.0.0.1", f"--port={port}"]
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True, stdin=subprocess.DEVNULL
    )
    try:
        wait_for(lambda: listens(port) or process.poll() is not None, 60, lambda: "the Java emulator did not start")
        assert process.poll() is None, "the Java emulator ended at once"
        yield f"127.0.0.1:{port}"
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(10)


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
