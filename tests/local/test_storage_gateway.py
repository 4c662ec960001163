"""What stands between gcloud and fake-gcs-server: one answer of its own, everything else passed on as it is."""

import http.client
import json
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from deploy.local.processes import free_port
from deploy.local.storage_gateway import serve


class Echo(BaseHTTPRequestHandler):
    """Answers with what it was asked."""

    def do_POST(self) -> None:  # name of http.server
        body = self.rfile.read(int(self.headers["Content-Length"]))
        told = {"path": self.path, "body": body.decode(), "upload": self.headers.get("X-Upload")}
        data = json.dumps(told).encode()
        self.send_response(308)
        self.send_header("Location", "/next")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_HEAD(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "1234")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Quiet."""


@pytest.fixture
def gateway() -> Iterator[http.client.HTTPConnection]:
    upstream = ThreadingHTTPServer(("127.0.0.1", 0), Echo)
    server = serve(f"http://127.0.0.1:{upstream.server_port}")
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=10)
    with ExitStack() as stack:
        for one in (upstream, server):
            threading.Thread(target=one.serve_forever, daemon=True).start()
            stack.callback(one.server_close)
            stack.callback(one.shutdown)
        stack.callback(connection.close)
        yield connection


def test_a_bucket_has_no_folders(gateway: http.client.HTTPConnection) -> None:
    gateway.request("GET", "/storage/v1/b/data/storageLayout?alt=json")
    answer = json.loads(gateway.getresponse().read())
    assert answer["bucket"] == "data"
    assert answer["hierarchicalNamespace"] == {"enabled": False}


@pytest.mark.parametrize("chunked", [False, True])
def test_a_call_is_passed_on_whole(gateway: http.client.HTTPConnection, chunked: bool) -> None:
    body = iter([b"two ", b"parts"]) if chunked else b"two parts"
    path = "/upload/storage/v1/b/data/o?name=a%2Fb"
    gateway.request("POST", path, body, {"X-Upload": "1"}, encode_chunked=chunked)
    answer = gateway.getresponse()
    assert (answer.status, answer.getheader("Location")) == (308, "/next")
    assert json.loads(answer.read()) == {"path": path, "body": "two parts", "upload": "1"}


def test_a_head_keeps_its_length(gateway: http.client.HTTPConnection) -> None:
    gateway.request("HEAD", "/storage/v1/b/data/o/x")
    answer = gateway.getresponse()
    assert answer.getheader("Content-Length") == "1234"
    assert answer.read() == b""


def test_an_upstream_that_is_gone_is_told() -> None:
    server = serve(f"http://127.0.0.1:{free_port()}")
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=10)
        connection.request("GET", "/storage/v1/b")
        answer = connection.getresponse()
        assert answer.status == 502
        assert b"fake-gcs-server did not answer" in answer.read()
        connection.close()
    finally:
        server.shutdown()
        server.server_close()
