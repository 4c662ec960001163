"""Answers what `gcloud storage` asks and fake-gcs-server does not know; passes everything else on.

Only gcloud is pointed here: stock clients speak to fake-gcs-server itself. `gcloud storage cp -r` asks for the
bucket's storageLayout first, to learn whether it has folders, and gives up at 404.
https://cloud.google.com/storage/docs/json_api/v1/buckets/getStorageLayout
"""

import argparse
import http.client
import json
import re
import signal
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import FrameType
from urllib.parse import urlsplit

_LAYOUT = re.compile(r"/storage/v1/b/([^/?]+)/storageLayout(?:\?.*)?")
_HOP_BY_HOP = frozenset({"connection", "keep-alive", "transfer-encoding", "te", "trailer", "upgrade", "content-length"})
_BLOCK = 1 << 16


class Gateway(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    upstream = ""

    def _answer(self) -> None:
        match = _LAYOUT.fullmatch(self.path)
        if match and self.command == "GET":
            self._layout(match[1])
        else:
            self._pass_on()

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do_HEAD = _answer  # noqa: N815  # names of http.server

    def _layout(self, bucket: str) -> None:
        layout = {
            "kind": "storage#storageLayout",
            "bucket": bucket,
            "location": "US-CENTRAL1",
            "locationType": "region",
            "hierarchicalNamespace": {"enabled": False},
        }
        self._send(200, [("Content-Type", "application/json")], json.dumps(layout).encode())

    def _pass_on(self) -> None:
        body = self._read_body()
        headers = {name: value for name, value in self.headers.items() if name.lower() not in _HOP_BY_HOP}
        connection = http.client.HTTPConnection(self.upstream, timeout=600)
        try:
            connection.request(self.command, self.path, body, headers)
            answer = connection.getresponse()
            kept = [(name, value) for name, value in answer.getheaders() if name.lower() not in _HOP_BY_HOP]
            if self.command == "HEAD" and (length := answer.getheader("Content-Length")):
                kept.append(("Content-Length", length))
            self._send(answer.status, kept, answer.read())
        except OSError as error:
            self._send(502, [], f"fake-gcs-server did not answer: {error}".encode())
        finally:
            connection.close()

    def _read_body(self) -> bytes:
        if "chunked" in self.headers.get("Transfer-Encoding", ""):
            return b"".join(iter(self._read_chunk, b""))
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def _read_chunk(self) -> bytes:
        size = int(self.rfile.readline(_BLOCK).split(b";")[0], 16)
        chunk = self.rfile.read(size)
        self.rfile.readline(_BLOCK)
        return chunk

    def _send(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
        self.send_response_only(status)
        for name, value in headers:
            self.send_header(name, value)
        if self.command != "HEAD":
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def serve(upstream: str, port: int = 0) -> ThreadingHTTPServer:
    """A server on 127.0.0.1 that passes on to `upstream`, ``http://host:port``. Call serve_forever on it."""
    handler = type("BoundGateway", (Gateway,), {"upstream": urlsplit(upstream).netloc, "log_message": lambda *_: None})
    server = ThreadingHTTPServer(("127.0.0.1", port), handler)
    server.daemon_threads = True
    return server


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--upstream", required=True, help="http://127.0.0.1:PORT of fake-gcs-server")
    options = parser.parse_args()

    def stop(number: int, frame: FrameType | None) -> None:
        sys.exit(0)

    signal.signal(signal.SIGTERM, stop)
    server = serve(options.upstream, options.port)
    print(f"http://127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
