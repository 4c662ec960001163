"""The REST face, for `gcloud pubsub` (CLOUDSDK_API_ENDPOINT_OVERRIDES_PUBSUB) and plain HTTP clients.

https://cloud.google.com/pubsub/docs/reference/rest
"""

import json
import re
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from google.protobuf import json_format

from deploy.local.pubsub.api import Api
from deploy.local.pubsub.errors import PubSubError, invalid
from deploy.local.pubsub.rpcs import RPCS
from deploy.local.pubsub.validation import MAX_REQUEST_BYTES

_TOPIC = "(?P<topic>projects/[^/]+/topics/[^/:]+)"
_SUBSCRIPTION = "(?P<subscription>projects/[^/]+/subscriptions/[^/:]+)"
_PROJECT = "(?P<project>projects/[^/]+)"
_NAMED_TOPIC = _TOPIC.replace("topic>", "name>", 1)
_NAMED_SUBSCRIPTION = _SUBSCRIPTION.replace("subscription>", "name>", 1)

ROUTES = [
    (verb, re.compile(f"/v1/{path}"), rpc)
    for verb, path, rpc in [
        ("PUT", _NAMED_TOPIC, "CreateTopic"),
        ("PATCH", _NAMED_TOPIC, "UpdateTopic"),
        ("GET", _TOPIC, "GetTopic"),
        ("DELETE", _TOPIC, "DeleteTopic"),
        ("POST", f"{_TOPIC}:publish", "Publish"),
        ("GET", f"{_TOPIC}/subscriptions", "ListTopicSubscriptions"),
        ("GET", f"{_PROJECT}/topics", "ListTopics"),
        ("PUT", _NAMED_SUBSCRIPTION, "CreateSubscription"),
        ("PATCH", _NAMED_SUBSCRIPTION, "UpdateSubscription"),
        ("GET", _SUBSCRIPTION, "GetSubscription"),
        ("DELETE", _SUBSCRIPTION, "DeleteSubscription"),
        ("GET", f"{_PROJECT}/subscriptions", "ListSubscriptions"),
        ("POST", f"{_SUBSCRIPTION}:pull", "Pull"),
        ("POST", f"{_SUBSCRIPTION}:acknowledge", "Acknowledge"),
        ("POST", f"{_SUBSCRIPTION}:modifyAckDeadline", "ModifyAckDeadline"),
        ("POST", f"{_SUBSCRIPTION}:modifyPushConfig", "ModifyPushConfig"),
        ("POST", f"{_SUBSCRIPTION}:seek", "Seek"),
        ("POST", f"{_SUBSCRIPTION}:detach", "DetachSubscription"),
    ]
]


class _RestCall:
    def ended(self) -> bool:
        return False

    def on_end(self, callback: Callable[[], None]) -> None: ...


def answer(api: Api, verb: str, target: str, body: bytes) -> tuple[int, str]:
    """Status and JSON text for one request; `target` is the request line's path with its query."""
    url = urlsplit(target)
    try:
        rpc_name, fields = _route(verb, url.path)
        rpc = RPCS[rpc_name]
        request = rpc.request()
        query = {name: value for name, value in parse_qsl(url.query) if name in {"pageSize", "pageToken", "updateMask"}}
        _fill(request, body, query)
        named = request.topic if rpc_name == "UpdateTopic" else request
        named = request.subscription if rpc_name == "UpdateSubscription" else named
        for name, value in fields.items():
            setattr(named, name, value)
        response = rpc.answer(api, request, _RestCall())
        return 200, json_format.MessageToJson(response, indent=None)
    except PubSubError as error:
        return error.http_status, json.dumps(error.as_json())


def _route(verb: str, path: str) -> tuple[str, dict[str, str]]:
    for method, pattern, rpc in ROUTES:
        match = pattern.fullmatch(path)
        if match and method == verb:
            return rpc, {name: unquote(value) for name, value in match.groupdict().items()}
    raise PubSubError("UNIMPLEMENTED", f"not emulated locally: {verb} {path}")


def _fill(request: Any, body: bytes, query: dict[str, str]) -> None:
    try:
        if body:
            json_format.Parse(body, request)
        json_format.ParseDict(query, request)
    except (json_format.ParseError, ValueError, RecursionError) as error:
        raise invalid(f"Invalid JSON payload received. {error}") from error


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    timeout = 60
    server: "RestServer"

    def _respond(self) -> None:
        length = self.headers.get("Content-Length") or "0"
        if not length.isdecimal() or int(length) > 2 * MAX_REQUEST_BYTES:  # base64 makes it longer
            limit = f"Content-Length is {length[:20]}; it must be a number up to {2 * MAX_REQUEST_BYTES}"
            status, text = 400, json.dumps(invalid(limit).as_json())
            self.close_connection = True
        else:
            status, text = answer(self.server.api, self.command, self.path, self.rfile.read(int(length)))
        payload = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json; charset=UTF-8")
        self.send_header("Content-Length", str(len(payload)))
        self.end_headers()
        self.wfile.write(payload)

    do_GET = do_PUT = do_POST = do_PATCH = do_DELETE = _respond  # noqa: N815

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet: errors go to the caller."""


class RestServer(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, api: Api, host: str, port: int) -> None:
        self.api = api
        try:
            super().__init__((host, port), _Handler)
        except OSError as error:
            raise OSError(f"cannot listen on {host}:{port}: {error.strerror}") from error
