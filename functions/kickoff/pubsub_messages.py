"""Pub/Sub messages, in every spelling in which a push, a dump or a hand-made request carries one. Pure.

Wrapped pushes: https://cloud.google.com/pubsub/docs/push#receive_push
Unwrapped: https://cloud.google.com/pubsub/docs/payload-unwrapping
"""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from kickoff.errors import Fault, MalformedEvent
from kickoff.faults import shown
from kickoff.wire_values import decode_base64, describe, malformed, parse_time

_TRANSPORT_HEADERS = re.compile(
    r"x-.*|accept.*|authorization|cdn-loop|connection|content-.*|forwarded|from|function-execution-id|host|"
    r"traceparent|tracestate|transfer-encoding|user-agent|via"
)
_TOPIC = re.compile(r"projects/[^/?#]+/topics/[^/?#]+")


@dataclass(frozen=True)
class PubsubMessage:
    data: bytes
    attributes: dict[str, str]
    message_id: str
    publish_time: datetime | None = None
    subscription: str = ""
    topic: str = ""
    delivery_attempt: int | None = None

    @property
    def lower(self) -> dict[str, str]:
        """The attributes by lower-case name: unwrapped pushes carry them as HTTP headers, which have no case."""
        return {name.lower(): value for name, value in self.attributes.items()}


def open_published(data: Any, source: str, where: str) -> PubsubMessage:
    """The message inside Eventarc's messagePublished event, whose source names the topic."""
    if not isinstance(data, dict) or not isinstance(data.get("message"), dict):
        raise malformed(where, f"is {describe(data)}; it must be an object with a message")
    return open_push(data, source)


def open_push(document: Mapping[str, Any], path: str) -> PubsubMessage:
    message = document["message"]
    if not isinstance(message, dict):
        raise malformed("message", f"is {describe(message)}; it must be an object")
    subscription = document.get("subscription")
    attempt = document.get("deliveryAttempt", document.get("delivery_attempt"))
    return open_message(
        message,
        "message",
        topic=topic_in(path),
        subscription=subscription if isinstance(subscription, str) else "",
        attempt=attempt,
    )


def open_unwrapped(fields: Mapping[str, str], path: str, body: bytes) -> PubsubMessage:
    """A message whose data is the body; its attributes are headers, if the subscription has writeMetadata."""
    attributes = {}
    if is_unwrapped(fields):
        attributes = {name: value for name, value in fields.items() if not _TRANSPORT_HEADERS.fullmatch(name)}
    if body and not attributes.get("objectid", "").isascii():
        # Nothing says how Pub/Sub writes such a name into a header; the body has it for certain.
        del attributes["objectid"]
    return PubsubMessage(
        data=body,
        attributes=attributes,
        message_id=fields.get("x-goog-pubsub-message-id") or _digest(body, attributes),
        publish_time=parse_time(fields.get("x-goog-pubsub-publish-time")),
        subscription=fields.get("x-goog-pubsub-subscription-name", ""),
        topic=topic_in(path),
        delivery_attempt=_attempt(fields.get("x-goog-pubsub-delivery-attempt")),
    )


def is_unwrapped(fields: Mapping[str, str]) -> bool:
    return any(name.startswith("x-goog-pubsub-") for name in fields)


def open_message(
    message: Mapping[str, Any], where: str, *, topic: str = "", subscription: str = "", attempt: object = None
) -> PubsubMessage:
    attributes = message.get("attributes") or {}
    if not isinstance(attributes, dict):
        raise malformed(f"{where}.attributes", f"is {describe(attributes)}; it must be an object of strings")
    faults = [
        Fault(f"{where}.attributes", f"{where}.attributes[{shown(name)}] is {describe(value)}; it must be a string")
        for name, value in attributes.items()
        if not isinstance(value, str)
    ]
    if faults:
        raise MalformedEvent.from_faults(faults)
    data = _data_bytes(message.get("data"), f"{where}.data")
    ids = (message.get(name) for name in ("messageId", "message_id", "id"))
    message_id = next((str(found) for found in ids if isinstance(found, str | int) and found), "")
    times = (parse_time(message.get(name)) for name in ("publishTime", "publish_time"))
    return PubsubMessage(
        data=data,
        attributes=attributes,
        message_id=message_id or _digest(data, attributes),
        publish_time=next((time for time in times if time), None),
        subscription=subscription,
        topic=topic,
        delivery_attempt=_attempt(attempt),
    )


def _data_bytes(data: object, where: str) -> bytes:
    if data is None:
        return b""
    if isinstance(data, str):
        return decode_base64(data, where)
    if isinstance(data, dict) and data.get("type") == "Buffer" and isinstance(data.get("data"), list):
        # Node's JSON of a pulled message.
        try:
            return bytes(data["data"])
        except (ValueError, TypeError):
            raise malformed(where, "is a Buffer of something else than bytes") from None
    raise malformed(where, f"is {describe(data)}; it must be a base64 string")


def is_bare_message(document: Mapping[str, Any]) -> bool:
    """A PubsubMessage without its push wrapper, as dumps and hand-made requests have it."""
    named = "messageId" in document or "message_id" in document
    return isinstance(document.get("attributes"), dict) or (named and "data" in document)


def _attempt(value: object) -> int | None:
    """Pull dumps say 0 for "not counted"."""
    text = str(value)
    return int(text) or None if text.isascii() and text.isdigit() and len(text) < 10 else None


def topic_in(path: str) -> str:
    found = _TOPIC.search(path)
    return found.group() if found else ""


def _digest(data: bytes, attributes: Mapping[str, str]) -> str:
    """An identity for a message that came without one: the same content is then the same message."""
    digest = hashlib.sha256(data)
    for name, value in sorted(attributes.items()):
        digest.update(repr((name, value)).encode())
    return f"sha256:{digest.hexdigest()}"
