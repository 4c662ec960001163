"""Any envelope that Google or a person sends, read into what it asks for. Pure.

`parse_event` is the one way in; docs/envelopes.md lists what each real-world envelope becomes.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from kickoff.cloud_events import CloudEvent, open_binary, open_structured
from kickoff.envelopes import FINALIZED, PUBLISHED, open_envelope
from kickoff.errors import MalformedEvent
from kickoff.event_types import Event, Ignored, JobHint, Message, Tick, Upload
from kickoff.faults import shown
from kickoff.hints import is_log_entry, parse_audit, parse_log_entry, parse_training_event
from kickoff.own_events import EPOCH, FINISHED, RUN_FINISHED
from kickoff.pubsub_messages import PubsubMessage, open_published
from kickoff.strict_json import parse_json, parse_object
from kickoff.uploads import PASSING_TYPES, is_notification, parse_notification, parse_storage_event
from kickoff.wire_values import decode_base64, describe, malformed

__all__ = ["Event", "Ignored", "JobHint", "Message", "Tick", "Upload", "parse_event"]

MAX_REQUEST = 262_144
"""Bytes of a message that asks for a run: the run's document holds it, and the CustomJob made of it."""

AUDIT = "google.cloud.audit.log.v1.written"
_OTHERS = {**PASSING_TYPES, RUN_FINISHED: "Kickoff's own word that a run ended"}
_FOREIGN_ATTRIBUTES = (
    ("a Cloud Build notification", {"buildid", "status"}),
    ("a billing budget's alert", {"billingaccountid", "budgetid"}),
    ("a Cloud Deploy notification", {"action", "resourcetype"}),
    ("a Storage Transfer notification", {"eventtype", "transferjobname"}),
    ("a Secret Manager notification", {"eventtype", "secretid"}),
    ("a GKE notification", {"cluster_name", "type_url"}),
)
_FOREIGN_DATA = (
    ("an Artifact Registry notification", {"action", "digest"}),
    ("an Artifact Registry notification", {"action", "tag"}),
    ("an Artifact Analysis notification", {"name", "kind", "notificationTime"}),
    ("a Cloud Monitoring incident", {"incident", "version"}),
    ("a Security Command Center finding", {"notificationConfigName", "finding"}),
    ("an asset inventory feed", {"asset", "window"}),
    ("a BigQuery transfer's end", {"dataSourceId", "destinationDatasetId"}),
    ("a Gmail notification", {"emailAddress", "historyId"}),
)
_ADDED_BY_PUBSUB = ("googclient_", "cloudpubsubdeadlettersource")
"""Prefixes of attributes that the client libraries and dead-letter forwarding add to a message."""


def parse_event(method: str, path: str, headers: Mapping[str, str], body: bytes) -> Event:
    """What one HTTP request asks for.

    `path` is the request's path, a query may follow. Raises MalformedEvent, and nothing else, for a request
    that cannot be read: answer it with 2xx, for delivering it again cannot help.
    """
    envelope = open_envelope(method, path, headers, body)
    if isinstance(envelope, CloudEvent):
        return _parse_cloud_event(envelope)
    if isinstance(envelope, PubsubMessage):
        return parse_message(envelope)
    return envelope


def parse_message(message: PubsubMessage) -> Event:
    """What a Pub/Sub message, pushed or pulled, asks for."""
    attributes = message.lower
    if is_notification(message):
        return parse_notification(message)
    content_type = attributes.get("content-type", "")
    if content_type.startswith("application/cloudevents"):
        return _parse_cloud_event(open_structured(content_type, message.data, "message.data"))
    if any(name.startswith("ce-") for name in attributes):
        return _parse_cloud_event(open_binary(attributes, content_type, message.data, "message.data"))
    if foreign := _foreign(_FOREIGN_ATTRIBUTES, attributes):
        return Ignored(foreign, message.message_id)
    if not message.data:
        return _attributes_only(message)
    payload = _payload(message.data)
    if is_log_entry(payload):
        return parse_log_entry(payload, message)
    if foreign := _foreign(_FOREIGN_DATA, payload):
        return Ignored(foreign, message.message_id)
    if payload.get("kind") == "storage#object":
        rule = "it came without its eventType, so what happened to it is not told; use writeMetadata with noWrapper"
        raise malformed("message.data", f"is a Cloud Storage object; {rule}")
    if len(message.data) > MAX_REQUEST:
        raise malformed("message.data", f"has {len(message.data)} bytes; a request has at most {MAX_REQUEST}")
    return _message(message, payload)


def _parse_cloud_event(event: CloudEvent) -> Event:
    if event.type == FINALIZED:
        return parse_storage_event(event)
    if event.type == PUBLISHED:
        return parse_message(open_published(event.data, event.source, "data"))
    if event.type in (EPOCH, FINISHED):
        return parse_training_event(event)
    if event.type == AUDIT:
        if not isinstance(event.data, dict):
            raise malformed("data", f"is {describe(event.data)}; it must be an audit log entry")
        return parse_audit(event.data, event.id)
    if event.type in _OTHERS:
        return Ignored(_OTHERS[event.type], event.id)
    known = ", ".join((FINALIZED, PUBLISHED, AUDIT, EPOCH, FINISHED))
    raise malformed("type", f"is {shown(event.type)}; Kickoff takes {known}")


def _attributes_only(message: PubsubMessage) -> Message:
    asked = _message(message, {}, from_attributes=True)
    if not asked.attributes:
        raise malformed("message", "has neither data nor attributes; there is nothing to do")
    return replace(asked, payload=dict(asked.attributes))


def _message(message: PubsubMessage, payload: dict[str, Any], *, from_attributes: bool = False) -> Message:
    return Message(
        payload=payload,
        attributes={
            name: value for name, value in message.attributes.items() if not name.lower().startswith(_ADDED_BY_PUBSUB)
        },
        message_id=message.message_id,
        publish_time=message.publish_time,
        subscription=message.subscription,
        topic=message.topic,
        delivery_attempt=message.delivery_attempt,
        from_attributes=from_attributes,
    )


def _payload(data: bytes) -> dict[str, Any]:
    try:
        payload = parse_json(data, "message.data")
    except MalformedEvent:
        if _is_json_object_in_base64(data):
            raise malformed("message.data", "looks base64-encoded twice; publish the JSON itself") from None
        raise
    if not isinstance(payload, dict):
        raise malformed("message.data", f"is {describe(payload)}; it must be a JSON object")
    return payload


def _is_json_object_in_base64(data: bytes) -> bool:
    try:
        parse_object(decode_base64(data.decode("ascii").strip(), ""), "")
    except (MalformedEvent, UnicodeDecodeError):
        return False
    return True


def _foreign(table: Iterable[tuple[str, set[str]]], keys: Mapping[str, Any]) -> str:
    """What service's notification it is, by the keys that mark it; empty: none known."""
    return next((what for what, marks in table if keys.keys() >= marks), "")
