"""A local server that stands where Google's REST APIs stand: it keeps every call that the real gcloud makes.

It has just enough memory for `describe || create` to mean something: what was created is found afterwards,
what was not answers 404 in Google's error JSON, long-running operations are done at once, and IAM policies
are read and written. It judges nothing: the tests assert the calls.
"""

import gzip
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from tests.gcp.calls import Call, error, is_collection, key, new_name, operation, resource_name

APIS = {
    "artifactregistry": "",
    "cloudbilling": "",
    "cloudbuild": "",
    "cloudfunctions": "",
    "cloudquotas": "",
    "cloudresourcemanager": "",
    "cloudscheduler": "",
    "compute": "compute/v1/",
    "containeranalysis": "",
    "firestore": "",
    "iam": "",
    "logging": "",
    "monitoring": "",
    "pubsub": "",
    "run": "",
    "serviceusage": "",
    "storage": "storage/v1/",
}
"""API: the path that gcloud's endpoint override must end in."""

_ITEMS = {"b": "items", "tags": "tags", "accounts": "accounts", "roles": "roles"}


@dataclass
class Recorder:
    """The calls so far, and the resources that they made, by API and path."""

    url: str
    calls: list[Call] = field(default_factory=list)
    resources: dict[str, dict[str, Any]] = field(default_factory=dict)
    policies: dict[str, dict[str, Any]] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def environ(self, project: str) -> dict[str, str]:
        """What makes gcloud call this server and nothing else, without credentials."""
        overrides = {
            f"CLOUDSDK_API_ENDPOINT_OVERRIDES_{api.upper()}": f"{self.url}/{api}/{root}" for api, root in APIS.items()
        }
        return {
            **overrides,
            "CLOUDSDK_AUTH_DISABLE_CREDENTIALS": "true",
            "CLOUDSDK_CORE_PROJECT": project,
            "CLOUDSDK_CORE_DISABLE_PROMPTS": "1",
            "CLOUDSDK_CORE_DISABLE_USAGE_REPORTING": "true",
            "CLOUDSDK_COMPONENT_MANAGER_DISABLE_UPDATE_CHECK": "true",
            "NO_PROXY": "127.0.0.1",
        }

    def put(self, api: str, path: str, resource: Any) -> None:
        """Let a resource exist, as if it had been made before."""
        self.resources[key(api, path)] = resource

    def made(self, api: str, pattern: str) -> list[Call]:
        """The calls that change something of `api`, whose path matches `pattern` from its start."""
        writes = ("POST", "PUT", "PATCH", "DELETE")
        return [c for c in self.calls if c.api == api and c.method in writes and re.match(pattern, c.path)]

    def answer(self, call: Call) -> tuple[int, Any]:
        """(HTTP status, JSON) for one call. The rules of one API each come before the general ones."""
        from tests.gcp.google_apis import answer_special

        with self.lock:
            self.calls.append(call)
            special = answer_special(self, call)
            if special is not None:
                return special
            if call.method == "GET":
                return self._get(call)
            if call.method == "DELETE":
                self.resources.pop(key(call.api, call.path), None)
                return 200, operation(call, {})
            return self._write(call)

    def _get(self, call: Call) -> tuple[int, Any]:
        found = self.resources.get(key(call.api, call.path))
        if found is not None:
            return 200, found
        collection = call.path.rpartition("/")[2]
        if is_collection(call.path):
            prefix = key(call.api, call.path) + "/"
            items = [r for k, r in self.resources.items() if k.startswith(prefix) and "/" not in k[len(prefix) :]]
            return 200, {_ITEMS.get(collection, collection): items}
        return 404, error(404, "NOT_FOUND", f"{call.path} was not found")

    def _write(self, call: Call) -> tuple[int, Any]:
        body = dict(call.body) if isinstance(call.body, dict) else {}
        path = call.path
        if call.method == "POST":
            name = new_name(call, body)
            path = path if name is None else f"{path}/{name}"
        known = self.resources.get(key(call.api, path), {})
        if call.method == "POST" and known:
            return 409, error(409, "ALREADY_EXISTS", f"{path} already exists")
        resource = {**known, **body, "name": body.get("name") or resource_name(path)}
        self.resources[key(call.api, path)] = resource
        return 200, operation(call, resource)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    recorder: Recorder

    def _handle(self) -> None:
        parts = urlsplit(self.path)
        api, _, path = unquote(parts.path).lstrip("/").partition("/")
        path = path.removeprefix(APIS.get(api, ""))
        query = {key: values[-1] for key, values in parse_qs(parts.query).items() if key not in ("alt", "prettyPrint")}
        body = self._body()
        kind = self.headers.get("Content-Type", "")
        if "multipart/related" in kind:
            metadata, body = _parts(body, kind)
            query = {**json.loads(metadata), **query}
        elif api != "upload":
            body = _json(body)
        status, answer = self.recorder.answer(Call(api, self.command, path, query, body))
        data = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _handle  # noqa: N815

    def _body(self) -> bytes:
        data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        return gzip.decompress(data) if self.headers.get("Content-Encoding") == "gzip" else data

    def log_message(self, format: str, *args: object) -> None:
        pass


def _json(data: bytes) -> Any:
    try:
        return json.loads(data) if data else None
    except ValueError:
        return data


def _parts(data: bytes, kind: str) -> tuple[bytes, bytes]:
    """Metadata and media of an upload of both (multipart/related)."""
    boundary = kind.partition("boundary=")[2].strip("'\"").encode()
    found = []
    for part in data.split(b"--" + boundary)[1:3]:
        start = re.search(rb"\r?\n\r?\n", part)
        found.append(re.sub(rb"\r?\n\Z", b"", part[start.end() :] if start else part))
    return found[0], found[1]


@contextmanager
def recording() -> Iterator[Recorder]:
    """A Recorder that serves on a free port of 127.0.0.1 until the block ends."""
    handler: Any = type("Handler", (_Handler,), {})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    recorder = Recorder(f"http://127.0.0.1:{server.server_port}")
    handler.recorder = recorder
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield recorder
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
