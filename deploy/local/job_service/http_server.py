"""HTTP/1.1 for the routes: a thread a connection, one write an answer. Nothing a client sends ends it."""

import contextlib
import json
import socket
import struct
import traceback
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from deploy.local.job_service.errors import ApiError, render
from deploy.local.job_service.routes import DropConnection, Routes

_MAX_BODY = 10 * 2**20
_IDLE_SECONDS = 120


class HttpServer(ThreadingHTTPServer):
    """Serves `routes` on 127.0.0.1."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 1024
    allow_reuse_address = True

    def __init__(self, port: int, routes: Routes, *, verbose: bool = False) -> None:
        self.routes = routes
        self.verbose = verbose
        super().__init__(("127.0.0.1", port), _Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def server_bind(self) -> None:
        """Without the parent's reverse look-up of the host name, which can take seconds."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = self.server_address[:2]  # type: ignore[assignment]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away is no news."""
        if self.verbose:
            traceback.print_exc()


class _Handler(BaseHTTPRequestHandler):
    server: HttpServer
    protocol_version = "HTTP/1.1"
    timeout = _IDLE_SECONDS
    disable_nagle_algorithm = True

    def _serve(self) -> None:
        try:
            answer = self.server.routes.answer(self.command, self.path, self._read_body())
            status = 200
        except DropConnection as drop:
            self._drop(reset=drop.reset)
            return
        except ApiError as error:
            answer, status = render(error), error.code
        except Exception:
            traceback.print_exc()
            answer, status = render(ApiError(500, "Internal error encountered.")), 500
        self._send(status, answer)

    do_GET = do_POST = do_DELETE = do_PATCH = do_PUT = do_HEAD = do_OPTIONS = _serve  # noqa: N815

    def _read_body(self) -> bytes:
        if "chunked" in self.headers.get("Transfer-Encoding", "").lower():
            return self._read_chunks()
        text = self.headers.get("Content-Length") or "0"
        length = int(text) if text.isascii() and text.isdigit() and len(text) < 12 else -1
        if not 0 <= length <= _MAX_BODY:
            self.close_connection = True
            raise ApiError(
                413 if length > 0 else 400, f"Content-Length is {text[:30]!r}; it must be from 0 to {_MAX_BODY}"
            )
        return self.rfile.read(length)

    def _read_chunks(self) -> bytes:
        body = b""
        while True:
            line = self.rfile.readline(64).partition(b";")[0].strip()
            try:
                length = int(line, 16)
            except ValueError:
                length = -1
            if length < 0 or len(body) + length > _MAX_BODY:
                self.close_connection = True
                raise ApiError(400, "the chunked body cannot be read")
            body += self.rfile.read(length)
            self.rfile.readline(8)
            if length == 0:
                return body

    def _send(self, status: int, answer: dict[str, Any] | str) -> None:
        text = isinstance(answer, str)
        body = (answer if isinstance(answer, str) else json.dumps(answer)).encode(errors="replace")
        self.send_response(status)
        self.send_header("Content-Type", "text/plain; charset=utf-8" if text else "application/json; charset=UTF-8")
        self.send_header("Content-Length", str(len(body)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers_with(b"" if self.command == "HEAD" else body)

    def end_headers_with(self, body: bytes) -> None:
        """Headers and body in one write, so that no delayed acknowledgement comes between them."""
        self._headers_buffer: list[bytes]
        self._headers_buffer.extend([b"\r\n", body])
        self.flush_headers()

    def _drop(self, *, reset: bool) -> None:
        self.close_connection = True
        with contextlib.suppress(OSError):
            if reset:
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.shutdown(socket.SHUT_RDWR) if not reset else self.connection.close()

    def log_message(self, format: str, *args: Any) -> None:
        if self.server.verbose:
            super().log_message(format, *args)
