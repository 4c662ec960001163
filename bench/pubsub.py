"""The Pub/Sub emulator's speed: publish, StreamingPull and push, each part a process of its own.

    python -m bench.pubsub [--messages 5000] [--bytes 500]

Stock clients; the push endpoint is a bare HTTP server that answers 204 at once. Publishing is one client in requests of
100 messages. On a shared machine trust ratios.
"""

import argparse
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.pubsub.emulators import Clients, clients_of


def serve(messages: int) -> None:
    """Be the endpoint: print the port, then a line for every `messages` requests."""
    count = 0

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            nonlocal count
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(204)
            self.end_headers()
            with lock:
                count += 1
                if count % messages == 0:
                    print("all", flush=True)

        def log_message(self, format: str, *args: Any) -> None: ...

    lock = threading.Lock()
    ThreadingHTTPServer.request_queue_size = 128
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        print(server.server_address[1], flush=True)
        server.serve_forever()


@contextmanager
def part(*words: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen([sys.executable, "-m", *words], stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def publish(clients: Clients, topic: str, messages: int, size: int) -> float:
    """Seconds."""
    started = time.monotonic()
    for _ in range(messages // 100):
        clients.publish(topic, *[b"x" * size] * 100)
    return time.monotonic() - started


def stream(clients: Clients, name: str, messages: int) -> float:
    """Seconds until one subscriber client has everything."""
    done = threading.Event()
    left = iter(range(messages - 1))

    def receive(message: Any) -> None:
        message.ack()
        if next(left, None) is None:
            done.set()

    started = time.monotonic()
    future = clients.subscriber.subscribe(name, receive)
    done.wait(120)
    seconds = time.monotonic() - started
    future.cancel()
    future.result(20)
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.pubsub")
    parser.add_argument("--messages", type=int, default=5000)
    parser.add_argument("--bytes", type=int, default=500)
    parser.add_argument("--endpoint", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    messages = options.messages // 100 * 100
    if options.endpoint:
        serve(messages)
        return
    endpoint_words = ("bench.pubsub", "--endpoint", "--messages", str(messages))
    with part("deploy.local.pubsub", "--port", "0") as emulator, part(*endpoint_words) as endpoint:
        match = re.search(r"grpc (\S+)", line(emulator))
        assert match, "the emulator did not start"
        clients = clients_of(match[1])
        pulled, pushed = clients.topic(), clients.topic()
        name = clients.subscription(pulled)
        seconds = publish(clients, pulled, messages, options.bytes)
        print(f"publish        {messages / seconds:7.0f} messages/s")
        print(f"StreamingPull  {messages / stream(clients, name, messages):7.0f} messages/s")
        url = f"http://127.0.0.1:{int(line(endpoint))}/"
        clients.subscription(pushed, push_config={"push_endpoint": url})
        started = time.monotonic()
        publish(clients, pushed, messages, options.bytes)
        line(endpoint)
        print(f"push           {messages / (time.monotonic() - started):7.0f} messages/s")
        [peak] = re.findall(r"VmHWM:\s+(\d+)", Path(f"/proc/{emulator.pid}/status").read_text())
        print(f"emulator       {int(peak) // 1024:7d} MiB at most")
        clients.close()


if __name__ == "__main__":
    main()
