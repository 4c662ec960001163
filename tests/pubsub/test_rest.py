"""REST, as plain HTTP clients and gcloud use it."""

import base64
import json
import os
import shutil
import subprocess
import uuid
from pathlib import Path
from typing import Any

import pytest
import requests

from deploy.local.pubsub.server import PubSubServer
from tests.pubsub.emulators import Clients

P = "projects/rest"


@pytest.fixture
def call(server: PubSubServer) -> Any:
    def send(verb: str, path: str, body: Any = None) -> tuple[int, Any]:
        answer = requests.request(verb, f"{server.http_url}v1/{path}", json=body, timeout=20)
        return answer.status_code, answer.json()

    return send


def test_a_message_goes_all_the_way(call: Any) -> None:
    topic, subscription = f"{P}/topics/t-{uuid.uuid4().hex}", f"{P}/subscriptions/s-{uuid.uuid4().hex}"
    assert call("PUT", topic, {"labels": {"a": "b"}}) == (200, {"name": topic, "labels": {"a": "b"}, "state": "ACTIVE"})
    status, made = call("PUT", subscription, {"topic": topic, "ackDeadlineSeconds": 20, "filter": "attributes:kind"})
    assert (status, made["ackDeadlineSeconds"], made["filter"]) == (200, 20, "attributes:kind")
    message = {"data": base64.b64encode(b"x").decode(), "attributes": {"kind": "k"}}
    status, published = call("POST", f"{topic}:publish", {"messages": [message]})
    assert status == 200
    status, pulled = call("POST", f"{subscription}:pull", {"maxMessages": 5})
    [received] = pulled["receivedMessages"]
    assert received["message"]["messageId"] == published["messageIds"][0]
    assert received["message"]["data"] == message["data"]
    assert call("POST", f"{subscription}:acknowledge", {"ackIds": [received["ackId"]]}) == (200, {})
    assert call("POST", f"{subscription}:pull", {"maxMessages": 5, "returnImmediately": True}) == (200, {})
    status, changed = call(
        "PATCH", subscription, {"subscription": {"ackDeadlineSeconds": 30}, "updateMask": "ackDeadlineSeconds"}
    )
    assert (status, changed["ackDeadlineSeconds"], changed["filter"]) == (200, 30, "attributes:kind")
    assert call("GET", f"{topic}/subscriptions") == (200, {"subscriptions": [subscription]})
    assert call("DELETE", subscription) == (200, {})
    assert call("DELETE", topic) == (200, {})


def test_lists_come_in_pages(call: Any) -> None:
    project = f"projects/p-{uuid.uuid4().hex[:8]}"
    names = [f"{project}/topics/topic-{index}" for index in range(5)]
    for name in names:
        call("PUT", name)
    found: list[str] = []
    token = ""
    for _ in range(3):
        _, page = call("GET", f"{project}/topics?pageSize=2&pageToken={token}")
        found += [topic["name"] for topic in page["topics"]]
        token = page.get("nextPageToken", "")
    assert (found, token) == (names, "")


@pytest.mark.parametrize(
    ("verb", "path", "body", "status", "code", "says"),
    [
        ("GET", f"{P}/topics/absent", None, 404, "NOT_FOUND", "resource=absent"),
        ("PUT", f"{P}/topics/1x", {}, 400, "INVALID_ARGUMENT", "Invalid [topics] name"),
        ("PUT", f"{P}/topics/abc", {"nope": 1}, 400, "INVALID_ARGUMENT", "nope"),
        ("PUT", f"{P}/topics/abc", [1], 400, "INVALID_ARGUMENT", "Invalid JSON payload"),
        ("PUT", f"{P}/topics/abc", {"schemaSettings": {"schema": "s"}}, 501, "UNIMPLEMENTED", "schema_settings"),
        ("POST", f"{P}/snapshots/x", {}, 501, "UNIMPLEMENTED", "not emulated locally"),
        ("GET", f"{P}/topics?pageSize=x", None, 400, "INVALID_ARGUMENT", "Invalid JSON payload"),
    ],
)
def test_an_error_has_googles_shape(
    call: Any, verb: str, path: str, body: Any, status: int, code: str, says: str
) -> None:
    answered, document = call(verb, path, body)
    assert (answered, document["error"]["code"], document["error"]["status"]) == (status, status, code)
    assert says in document["error"]["message"]


def test_what_is_not_json_at_all_is_answered(server: PubSubServer) -> None:
    url = f"{server.http_url}v1/{P}/topics/abc"
    for body in (b"[" * 100_000, b"\xff\xfe", b"NaN", b'{"labels": ' * 5000):
        answer = requests.put(url, data=body, timeout=20)
        assert (answer.status_code, answer.json()["error"]["status"]) == (400, "INVALID_ARGUMENT")
    answer = requests.put(url, headers={"Content-Length": "99999999999"}, timeout=20)
    assert (answer.status_code, answer.json()["error"]["status"]) == (400, "INVALID_ARGUMENT")


def test_every_fault_of_a_subscription_is_said_at_once(call: Any, ours: Clients) -> None:
    settings = {
        "topic": ours.topic(),
        "ackDeadlineSeconds": 5,
        "messageRetentionDuration": "60s",
        "filter": "attributes.a = b",
        "pushConfig": {"pushEndpoint": "ftp://x"},
        "deadLetterPolicy": {"deadLetterTopic": f"{P}/topics/t", "maxDeliveryAttempts": 3},
        "retryPolicy": {"minimumBackoff": "20s", "maximumBackoff": "10s"},
    }
    status, document = call("PUT", f"{P}/subscriptions/bad", settings)
    assert status == 400
    for fault in (
        "ack_deadline_seconds is 5; it must be 10 to 600",
        "message_retention_duration is 60s",
        "push_endpoint is 'ftp://x'",
        "max_delivery_attempts is 3; it must be 5 to 100",
        "minimum_backoff is 20s, above",
        "filter has 'b' at",
    ):
        assert fault in document["error"]["message"]


@pytest.mark.gcloud
@pytest.mark.skipif(shutil.which("gcloud") is None, reason="gcloud is not installed here")
def test_gcloud_works_on_it(server: PubSubServer, tmp_path: Path) -> None:
    environ = os.environ | {
        "CLOUDSDK_API_ENDPOINT_OVERRIDES_PUBSUB": server.http_url,
        "CLOUDSDK_AUTH_DISABLE_CREDENTIALS": "true",
        "CLOUDSDK_CORE_PROJECT": "by-gcloud",
        "CLOUDSDK_CORE_DISABLE_PROMPTS": "1",
        "CLOUDSDK_CONFIG": str(tmp_path),
    }

    def gcloud(*words: str) -> tuple[int, str, str]:
        command = ["gcloud", "pubsub", *words, "--format=json"]
        done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=90)
        return done.returncode, done.stdout, done.stderr

    assert gcloud("topics", "create", "demo")[0] == 0
    code, _, error = gcloud("topics", "create", "demo")
    assert (code, "Resource already exists" in error) == (1, True)
    flags = ["--dead-letter-topic=demo", "--max-delivery-attempts=5", "--message-filter=attributes:kind"]
    assert gcloud("subscriptions", "create", "demo-pull", "--topic=demo", *flags)[0] == 0
    assert gcloud("topics", "publish", "demo", "--message=hello", "--attribute=kind=x")[0] == 0
    [received] = json.loads(gcloud("subscriptions", "pull", "demo-pull", "--auto-ack")[1])
    assert base64.b64decode(received["message"]["data"]) == b"hello"
