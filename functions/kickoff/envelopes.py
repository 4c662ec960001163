"""The outer shells in which Google and people send events, each opened into one of three plain forms. Pure.

* CloudEvents: cloud_events.py. Pub/Sub pushes: pubsub_messages.py.
* 1st-gen background events: https://cloud.google.com/functions/1stgendocs/writing/write-event-driven-functions
* Cloud Scheduler's HTTP calls: https://cloud.google.com/scheduler/docs/reference/rest/v1/projects.locations.jobs#httptarget
"""

from collections.abc import Mapping
from typing import Any, cast
from urllib.parse import unquote

from kickoff.cloud_events import CloudEvent, open_binary, open_document, open_structured
from kickoff.errors import Fault, MalformedEvent
from kickoff.event_types import Tick
from kickoff.faults import shown
from kickoff.pubsub_messages import (
    PubsubMessage,
    is_bare_message,
    is_unwrapped,
    open_message,
    open_push,
    open_unwrapped,
    topic_in,
)
from kickoff.strict_json import parse_object
from kickoff.wire_values import describe, malformed, parse_time

FINALIZED = "google.cloud.storage.object.v1.finalized"
PUBLISHED = "google.cloud.pubsub.topic.v1.messagePublished"

_LEGACY_TYPES = {
    "google.storage.object.finalize": FINALIZED,
    # Sent for every kind of change: uploads.py looks at resourceState.
    "providers/cloud.storage/eventTypes/object.change": FINALIZED,
    "google.storage.object.delete": "google.cloud.storage.object.v1.deleted",
    "google.storage.object.archive": "google.cloud.storage.object.v1.archived",
    "google.storage.object.metadataUpdate": "google.cloud.storage.object.v1.metadataUpdated",
    "google.pubsub.topic.publish": PUBLISHED,
    "providers/cloud.pubsub/eventTypes/topic.publish": PUBLISHED,
}


def open_envelope(method: str, path: str, headers: Mapping[str, str], body: bytes) -> CloudEvent | PubsubMessage | Tick:
    """Open one HTTP request. Raises MalformedEvent with every fault found."""
    fields = {name.lower(): _header_text(name, value) for name, value in headers.items()}
    if not fields.keys().isdisjoint({"x-cloudscheduler", "x-cloudscheduler-jobname"}):
        return _open_tick(fields, body)
    if method.upper() != "POST":
        raise malformed("method", f"is {shown(method)}; it must be POST")
    content_type = fields.get("content-type", "")
    if content_type.startswith("application/cloudevents"):
        return open_structured(content_type, body, "body")
    if any(name.startswith("ce-") for name in fields):
        return open_binary(fields, content_type, body, "body")
    if body:
        return _open_document(parse_object(body, "body"), fields, path, body)
    if is_unwrapped(fields):
        return open_unwrapped(fields, path, body)
    raise malformed("body", "is empty; it must hold an event")


def _open_document(
    document: Mapping[str, Any], fields: Mapping[str, str], path: str, body: bytes
) -> CloudEvent | PubsubMessage:
    """Nothing but its keys says what the body is."""
    if is_unwrapped(fields):
        return open_unwrapped(fields, path, body)
    if "specversion" in document:
        return open_document(document, "body")
    if "message" in document:
        return open_push(document, path)
    if "eventType" in document or isinstance(document.get("context"), dict):
        return _open_background(document, path)
    if "receivedMessages" in document:
        raise malformed("receivedMessages", "is a batch; send one message a request")
    if is_bare_message(document):
        return open_message(document, "message", topic=topic_in(path))
    return open_unwrapped(fields, path, body)


def _open_tick(fields: Mapping[str, str], body: bytes) -> Tick:
    job = fields.get("x-cloudscheduler-jobname", "").rpartition("/")[2]
    written = fields.get("x-cloudscheduler-scheduletime", "")
    due = parse_time(written)
    faults = []
    if not job:
        faults.append(Fault("x-cloudscheduler-jobname", "x-cloudscheduler-jobname is missing"))
    if due is None:
        rule = "it must be an RFC 3339 time with an offset"
        name = "x-cloudscheduler-scheduletime"
        faults.append(Fault(name, f"{name} is {shown(written)}; {rule}" if written else f"{name} is missing; {rule}"))
    if faults or due is None:
        raise MalformedEvent.from_faults(faults)
    return Tick(job=job, schedule_time=due, payload=parse_object(body, "body") if body.strip() else {})


def _open_background(document: Mapping[str, Any], path: str) -> CloudEvent | PubsubMessage:
    context = document["context"] if isinstance(document.get("context"), dict) else document
    event_type, event_id = context.get("eventType"), context.get("eventId")
    faults = [
        Fault(name, f"{name} is {describe(value)}; a background event has it as a string")
        for name, value in (("eventType", event_type), ("eventId", event_id))
        if not (isinstance(value, str) and value)
    ]
    if faults:
        raise MalformedEvent.from_faults(faults)
    resource = context.get("resource")
    source = resource.get("name") if isinstance(resource, dict) else resource
    kind = _LEGACY_TYPES.get(cast(str, event_type), cast(str, event_type))
    data = document.get("data")
    if kind == PUBLISHED:
        if not isinstance(data, dict):
            raise malformed("data", f"is {describe(data)}; it must be a Pub/Sub message")
        message = {"messageId": event_id, "publishTime": context.get("timestamp"), **data}
        return open_message(message, "data", topic=topic_in(source if isinstance(source, str) else path))
    return CloudEvent(
        type=kind,
        source=source if isinstance(source, str) else "",
        id=cast(str, event_id),
        time=parse_time(context.get("timestamp")),
        data=data,
    )


def _header_text(name: str, value: str) -> str:
    """WSGI hands headers over as Latin-1; CloudEvents, and only they, percent-encode what is not ASCII."""
    try:
        text = value.encode("latin-1").decode("utf-8")
        return unquote(text, errors="strict") if name.lower().startswith("ce-") else text
    except UnicodeError:
        return value.encode(errors="replace").decode()
