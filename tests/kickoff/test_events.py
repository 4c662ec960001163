"""Whatever is sent, parse_event answers with an event or a MalformedEvent; and names pass it byte for byte."""

import base64
import copy
import itertools
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kickoff.errors import MalformedEvent
from kickoff.event_types import Event, Ignored, JobHint, Message, Tick, Upload
from kickoff.events import MAX_REQUEST, parse_event

from tests.kickoff.event_cases import load_cases

JSON_HEADERS = {"Content-Type": "application/json"}
FINALIZED = "google.cloud.storage.object.v1.finalized"
CE = {"ce-specversion": "1.0", "ce-type": FINALIZED, "ce-source": "//storage.googleapis.com/x", "ce-id": "1"}
BODIES = [
    body for case in load_cases() if isinstance(body := case["input"].get("body_json"), dict) and len(str(body)) < 5000
]
HEADERS = [case["input"]["headers"] for case in load_cases() if "headers" in case["input"]]

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=15,
)
object_names = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\n"), min_size=1, max_size=120)


def outcome(method: str, path: str, headers: dict[str, str], body: bytes) -> Event | MalformedEvent:
    """Anything but a MalformedEvent that escapes fails the test."""
    try:
        return parse_event(method, path, headers, body)
    except MalformedEvent as error:
        assert error.faults and all(fault.message for fault in error.faults)
        return error


@given(
    method=st.text(max_size=8),
    path=st.text(max_size=30),
    headers=st.sampled_from(HEADERS) | st.dictionaries(st.text(max_size=20), st.text(max_size=40), max_size=6),
    body=st.binary(max_size=200) | json_values.map(lambda value: json.dumps(value).encode()),
)
@settings(max_examples=200, deadline=None)
def test_any_request_is_read_or_refused(method: str, path: str, headers: dict[str, str], body: bytes) -> None:
    outcome(method, path, headers, body)
    outcome("POST", path, headers, body)


@given(data=st.data())
@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.data_too_large, HealthCheck.too_slow])
def test_real_envelopes_with_any_part_replaced_are_read_or_refused(data: st.DataObject) -> None:
    body = copy.deepcopy(data.draw(st.sampled_from(BODIES)))
    inner = _open_data(body)
    for target in (body, inner):
        if isinstance(target, dict) and target:
            _replace(target, data)
    if isinstance(inner, dict) and isinstance(body.get("message"), dict):
        body["message"]["data"] = base64.b64encode(json.dumps(inner).encode()).decode()
    headers = data.draw(st.sampled_from(HEADERS))
    outcome("POST", "/", headers, json.dumps(body).encode())


def _open_data(body: dict[str, Any]) -> Any:
    message = body.get("message")
    try:
        return json.loads(base64.b64decode(message["data"])) if isinstance(message, dict) else None
    except (KeyError, TypeError, ValueError, RecursionError):
        return None


KEYS = "specversion type source id data data_base64 message attributes messageId publishTime subscription context "
KEYS += "eventId eventType resource timestamp bucket name generation size metageneration resourceState kind logName "
KEYS += "textPayload jsonPayload protoPayload labels methodName response request status run_id epoch metrics "
KEYS += "receivedMessages"
VALUES: list[Any] = [None, 7, "x", {"x": "y"}]
TYPES = ["google.storage.object.finalize", "google.pubsub.topic.publish", FINALIZED]
TYPES += ["google.cloud.audit.log.v1.written", "dev.kickoff.training.epoch.v1"]


@pytest.mark.parametrize("kind", ["body", "push", "background", "cloud event"])
def test_every_pair_of_known_keys_with_values_of_any_kind_is_read_or_refused(kind: str) -> None:
    """Any key may meet any other, each with a value of a kind that it never has."""
    for first, second in itertools.combinations(KEYS.split(), 2):
        for one, two in itertools.product(VALUES, repeat=2):
            document = {first: one, second: two}
            if kind == "body":
                outcome("POST", "/", {}, json.dumps(document).encode())
            elif kind == "push":
                data = base64.b64encode(json.dumps(document).encode()).decode()
                outcome("POST", "/", {}, json.dumps({"message": {"data": data, **document}}).encode())
            elif kind == "background":
                context = {"eventId": "1", "eventType": TYPES[len(first + second) % 2], **document}
                outcome("POST", "/", {}, json.dumps({"context": context, "data": document}).encode())
            else:
                headers = {**CE, "ce-type": TYPES[2 + len(first + second) % 3]}
                outcome("POST", "/", headers, json.dumps(document).encode())


def _replace(target: Any, data: st.DataObject) -> None:
    """Walk down at random and put any JSON value in some place."""
    while True:
        keys: list[Any] = list(target) if isinstance(target, dict) else list(range(len(target)))
        key = data.draw(st.sampled_from(keys))
        below = target[key]
        if isinstance(below, dict | list) and below and data.draw(st.booleans()):
            target = below
            continue
        target[key] = data.draw(json_values)
        return


def _binary(resource: dict[str, Any]) -> Event:
    return parse_event("POST", "/", {**JSON_HEADERS, **CE}, json.dumps(resource).encode())


def _structured(resource: dict[str, Any]) -> Event:
    event = {name.removeprefix("ce-"): value for name, value in CE.items()}
    body = json.dumps({**event, "data": resource}, ensure_ascii=False).encode()
    return parse_event("POST", "/", {"Content-Type": "application/cloudevents+json"}, body)


def _pushed(resource: dict[str, Any]) -> Event:
    attributes = {"eventType": "OBJECT_FINALIZE", "bucketId": resource["bucket"], "objectId": resource["name"]}
    data = base64.b64encode(json.dumps(resource).encode()).decode()
    return _push({"messageId": "1", "attributes": attributes, "data": data})


def _pushed_without_payload(resource: dict[str, Any]) -> Event:
    attributes = {
        "eventType": "OBJECT_FINALIZE",
        "payloadFormat": "NONE",
        "bucketId": resource["bucket"],
        "objectId": resource["name"],
        "objectGeneration": resource["generation"],
    }
    return _push({"messageId": "1", "attributes": attributes})


def _background(resource: dict[str, Any]) -> Event:
    context = {"eventId": "1", "eventType": "google.storage.object.finalize", "resource": {"name": resource["name"]}}
    return parse_event("POST", "/", {}, json.dumps({"context": context, "data": resource}).encode())


def _push(message: dict[str, Any], **beside: Any) -> Event:
    return parse_event("POST", "/", JSON_HEADERS, json.dumps({"message": message, **beside}).encode())


@pytest.mark.parametrize("send", [_binary, _structured, _pushed, _pushed_without_payload, _background])
@given(name=object_names, generation=st.integers(1, 2**63 - 1))
@settings(max_examples=60, deadline=None)
def test_an_objects_name_and_generation_pass_unchanged(
    send: Callable[[dict[str, Any]], Event], name: str, generation: int
) -> None:
    resource = {"bucket": "acme-data", "name": name, "generation": str(generation), "size": "1"}
    if len(name.encode()) > 1024 or name in (".", ".."):
        with pytest.raises(MalformedEvent):
            send(resource)
        return
    event = send(resource)
    if name.endswith(("/", "_$folder$")) or "parallel_composite_uploads/" in name:
        assert isinstance(event, Ignored)
        return
    assert isinstance(event, Upload)
    assert (event.name.encode(), event.generation) == (name.encode(), generation)


@given(
    payload=st.dictionaries(
        st.text(min_size=1, max_size=10), st.integers(-(2**63), 2**63 - 1) | st.text(max_size=20), max_size=5
    ),
    attempt=st.integers(1, 1000),
)
@settings(max_examples=60, deadline=None)
def test_a_messages_payload_passes_unchanged(payload: dict[str, Any], attempt: int) -> None:
    payload = {"recipe": "flowers", **payload}
    data = base64.b64encode(json.dumps(payload, ensure_ascii=False).encode()).decode()
    event = _push({"messageId": "7", "data": data}, subscription="projects/p/subscriptions/s", deliveryAttempt=attempt)
    assert isinstance(event, Message)
    assert event.payload == payload
    assert (event.message_id, event.subscription, event.delivery_attempt) == (
        "7",
        "projects/p/subscriptions/s",
        attempt,
    )


@given(instant=st.datetimes(datetime(2000, 1, 1), datetime(2100, 1, 1)), hours=st.integers(-12, 14))
@settings(max_examples=60, deadline=None)
def test_a_tick_is_an_instant_whatever_its_offset(instant: datetime, hours: int) -> None:
    due = instant.replace(tzinfo=UTC)
    written = due.astimezone(timezone(timedelta(hours=hours))).isoformat()
    event = parse_event(
        "POST",
        "/",
        {"X-CloudScheduler-JobName": "projects/p/locations/r/jobs/j", "X-CloudScheduler-ScheduleTime": written},
        b"",
    )
    assert event == Tick("j", due)


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"x" * 10_000_000, "10000000 bytes"),
        (b"[" * 900_000, "deeper than 64"),
        (b'{"a":' * 150_000, "deeper than 64"),
        (b"[" + b"[]," * 300_000 + b"[]]", "an array of 300001"),
        (b'{"a":' + b"9" * 900_000 + b"}", "64 bits"),
        (b'{"a":1e999999}', "beyond a double"),
        (b'{"a":-Infinity}', "-Infinity"),
        (b"\xff\xfe{\x00}\x00", "not UTF-8"),
        (b"\xef\xbb\xbf{}", "BOM"),
        (b'{"a":"\\udc00"}', "surrogate"),
        (b'{"\\ud800":1}', "surrogate"),
        (b"{" + b",".join(b'"k%d":1,"k%d":2' % (n, n) for n in range(40_000)) + b"}", "'k0' twice"),
    ],
    ids=lambda value: value[:12].decode("latin-1") if isinstance(value, bytes) else "",
)
def test_hostile_bodies_are_refused_with_the_reason(body: bytes, says: str) -> None:
    with pytest.raises(MalformedEvent, match=says):
        parse_event("POST", "/", JSON_HEADERS, body)


def test_a_surrogate_pair_is_a_character() -> None:
    event = _push({"messageId": "1", "data": base64.b64encode(b'{"recipe":"\\ud83d\\udce6"}').decode()})
    assert isinstance(event, Message) and event.payload == {"recipe": "📦"}


def test_a_request_too_large_to_record_is_refused() -> None:
    data = json.dumps({"recipe": "x" * MAX_REQUEST}).encode()
    with pytest.raises(MalformedEvent, match=f"at most {MAX_REQUEST}"):
        _push({"messageId": "1", "data": base64.b64encode(data).decode()})


def test_depth_is_counted_exactly() -> None:
    def nested(levels: int) -> bytes:
        return b'{"recipe":' + b"[" * (levels - 1) + b"]" * (levels - 1) + b"}"

    assert isinstance(parse_event("POST", "/", {}, nested(64)), Message)
    with pytest.raises(MalformedEvent, match="deeper than 64"):
        parse_event("POST", "/", {}, nested(65))


RESOURCE = {"bucket": "acme-data", "name": "raw/a.csv", "generation": "7", "size": "1"}


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"timeDeleted": "2026-01-02T03:04:05Z"}, "ignored: an object was deleted or overwritten"),
        ({"resourceState": "not_exists"}, "ignored: an object was deleted or overwritten"),
        ({"resourceState": "exists"}, "upload"),
        ({"resourceState": "exists", "metageneration": "2"}, "ignored: only an object's metadata changed"),
        ({"metageneration": "2"}, "upload"),
        ({"customerEncryption": {}}, "upload"),
        ({"crc32c": None}, "upload"),
        ({"crc32c": ""}, "upload"),
        ({"crc32c": 5}, "data.crc32c is a number (5); it must be a string"),
        ({"bucket": ""}, "data.bucket is a string (''); it must be a string that is not empty"),
        ({"bucket": 5, "data": {"bucket": "x"}}, "data.bucket is a number (5); it must be a string"),
        ({"bucket": "Upper"}, "data.bucket is 'Upper'; that is no bucket's name"),
        ({"name": "a\rb"}, "data.name is 'a\\rb'; no object can be named so"),
        ({"name": "a\nb"}, "data.name is 'a\\nb'; no object can be named so"),
        ({"name": ".."}, "data.name is '..'; no object can be named so"),
        ({"name": "é" * 513}, "data.name has 1026 bytes; it must have at most 1024"),
        ({"name": "é" * 512}, "upload"),
        ({"size": True}, "data.size is a boolean (True); it must be a whole number of 64 bits"),
        ({"size": 1.0}, "data.size is a number (1.0); it must be a whole number of 64 bits"),
        ({"size": "٣"}, "data.size is a string ('٣'); it must be a whole number of 64 bits"),
        ({"generation": str(2**63)}, "data.generation is a string ('9223372036854775808'); it must be a whole number"),
        ({"generation": str(2**63 - 1)}, "upload"),
        ({"size": 0}, "ignored: the object is empty"),
    ],
)
def test_each_property_of_an_object(changes: dict[str, Any], says: str) -> None:
    try:
        event = _binary({**RESOURCE, **changes})
    except MalformedEvent as error:
        assert str(error).startswith(says) and len(error.faults) == 1
        return
    assert says == (f"ignored: {event.reason}" if isinstance(event, Ignored) else "upload"), event


def test_where_a_notification_came_from() -> None:
    message = {
        "messageId": "1",
        "attributes": {"eventType": "OBJECT_FINALIZE", "bucketId": "acme-data", "objectId": "a"},
    }
    event = _push(message, subscription="projects/p/subscriptions/s")
    assert isinstance(event, Upload) and event.source == "projects/p/subscriptions/s"
    message["attributes"] |= {"notificationConfig": "projects/_/buckets/acme-data/notificationConfigs/1"}  # type: ignore[operator]
    event = _push(message, subscription="projects/p/subscriptions/s")
    assert isinstance(event, Upload) and event.source.endswith("notificationConfigs/1")


def _log(entry: dict[str, Any]) -> Event:
    message = {
        "messageId": "1",
        "publishTime": "2026-01-02T03:04:05Z",
        "data": base64.b64encode(json.dumps(entry).encode()).decode(),
    }
    return _push(message)


def _service_line(**changes: Any) -> dict[str, Any]:
    labels = {"job_id": "77", "project_id": "p", "task_name": "service", **changes.pop("labels", {})}
    return {
        "logName": "l",
        "textPayload": "Job is running.",
        "resource": {"type": "ml_job", "labels": labels},
        **changes,
    }


@pytest.mark.parametrize("job_id", [77, None, "", "a/b", "x" * 129])
def test_a_line_must_name_its_job(job_id: Any) -> None:
    with pytest.raises(MalformedEvent, match=r"resource\.labels\.job_id is"):
        _log(_service_line(labels={"job_id": job_id}))


def test_what_is_read_from_a_line() -> None:
    line = _log(_service_line(timestamp="2026-01-02T03:04:00Z", severity="ERROR"))
    assert isinstance(line, JobHint) and line.data == {"text": "Job is running.", "severity": "ERROR"}
    assert (line.job_id, line.project, line.time) == ("77", "p", datetime(2026, 1, 2, 3, 4, tzinfo=UTC))
    structured = _log(_service_line(textPayload=None, jsonPayload={"message": "Job failed."}))
    assert isinstance(structured, JobHint) and structured.data["text"] == "Job failed."
    assert structured.time == datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)  # published: the entry does not say


@pytest.mark.parametrize("payload", [{"recipe": "flowers", "resource": {}}, {"recipe": "flowers", "textPayload": "x"}])
def test_a_request_with_a_word_of_log_entries_is_a_request(payload: dict[str, Any]) -> None:
    assert isinstance(_log(payload), Message)


@pytest.mark.parametrize(("label", "run_id"), [("flowers-0123", "flowers-0123"), ("../x", ""), ("A", ""), ("", "")])
def test_the_label_of_a_created_job_names_the_run(label: str, run_id: str) -> None:
    payload = {
        "methodName": "google.cloud.aiplatform.v1beta1.JobService.CreateCustomJob",
        "request": {"customJob": {"labels": {"kickoff-run": label}}},
        "response": {"name": "projects/12/locations/r/customJobs/77"},
        "authenticationInfo": {"principalEmail": "a@b"},
    }
    hint = _log({"logName": "l", "protoPayload": payload})
    assert isinstance(hint, JobHint) and (hint.kind, hint.run_id, hint.job_id, hint.location) == (
        "audit",
        run_id,
        "77",
        "r",
    )
    assert hint.data == {"method": "CreateCustomJob", "principal": "a@b"}
