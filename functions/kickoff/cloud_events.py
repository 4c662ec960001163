"""CloudEvents 1.0 in the two content modes, over HTTP or inside a Pub/Sub message. Pure.

https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/bindings/http-protocol-binding.md and
https://github.com/googleapis/google-cloudevents/blob/main/docs/spec/pubsub.md. The `cloudevents` SDK is not used:
it parses JSON laxly, and raises errors of many kinds on what must be refused with a reason.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from kickoff.errors import Fault, MalformedEvent
from kickoff.faults import shown
from kickoff.strict_json import parse_object
from kickoff.wire_values import decode_base64, describe, malformed, parse_time


@dataclass(frozen=True)
class CloudEvent:
    type: str
    source: str
    id: str
    time: datetime | None
    data: Any
    """Parsed JSON; None where the event has no data."""


def open_binary(attributes: Mapping[str, str], content_type: str, body: bytes, where: str) -> CloudEvent:
    """A CloudEvent whose attributes are `attributes` named ``ce-…`` (lower case) and whose data is `body`."""
    required = ("specversion", "type", "source", "id")
    if missing := [f"ce-{name}" for name in required if not attributes.get(f"ce-{name}")]:
        raise MalformedEvent.from_faults(
            Fault(name, f"{name} is missing; a CloudEvent has ce-specversion, ce-type, ce-source and ce-id")
            for name in missing
        )
    _check_version(attributes["ce-specversion"], "ce-specversion")
    media = content_type.partition(";")[0].strip()
    if media.endswith(("protobuf", "avro")):
        raise malformed("content-type", f"is {shown(media)}; the data must be JSON")
    return CloudEvent(
        type=attributes["ce-type"],
        source=attributes["ce-source"],
        id=attributes["ce-id"],
        time=parse_time(attributes.get("ce-time")),
        data=parse_object(body, where) if body else None,
    )


def open_structured(content_type: str, body: bytes, where: str) -> CloudEvent:
    """A CloudEvent as one JSON document. A batch is refused whole."""
    media = content_type.partition(";")[0].strip()
    if media.startswith("application/cloudevents-batch"):
        raise malformed("content-type", f"is {media}: a batch is refused whole; send one event a request")
    if media not in ("application/cloudevents", "application/cloudevents+json"):
        raise malformed("content-type", f"is {shown(media)}; the format must be application/cloudevents+json")
    return open_document(parse_object(body, where), where)


def open_document(document: Mapping[str, Any], where: str) -> CloudEvent:
    """A structured CloudEvent that is parsed already."""
    faults = [
        Fault(f"{where}.{name}", f"{where}.{name} is {describe(document.get(name))}; a CloudEvent has it as a string")
        for name in ("specversion", "type", "source", "id")
        if not (isinstance(document.get(name), str) and document[name])
    ]
    if faults:
        raise MalformedEvent.from_faults(faults)
    _check_version(document["specversion"], f"{where}.specversion")
    data = document.get("data")
    if isinstance(encoded := document.get("data_base64"), str) and data is None:
        data = parse_object(decode_base64(encoded, f"{where}.data_base64"), f"{where}.data_base64")
    return CloudEvent(
        type=document["type"],
        source=document["source"],
        id=document["id"],
        time=parse_time(document.get("time")),
        data=data,
    )


def _check_version(version: str, where: str) -> None:
    if version != "1.0":
        raise malformed(where, f"is {shown(version)}; it must be 1.0")
