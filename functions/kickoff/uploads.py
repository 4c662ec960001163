"""Cloud Storage's news of objects: which of it is the upload of a real object. Pure.

The object resource: https://cloud.google.com/storage/docs/json_api/v1/objects#resource
Notifications through Pub/Sub: https://cloud.google.com/storage/docs/pubsub-notifications
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from kickoff.cloud_events import CloudEvent
from kickoff.errors import Fault, MalformedEvent
from kickoff.event_types import Ignored, Upload
from kickoff.faults import shown
from kickoff.pubsub_messages import PubsubMessage
from kickoff.strict_json import parse_object
from kickoff.wire_values import describe, malformed

_BUCKET = re.compile(r"[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]")
_DELETED = "an object was deleted or overwritten"
_ARCHIVED = "an object became a noncurrent version"
_METADATA = "only an object's metadata changed"
PASSING_TYPES = {
    "google.cloud.storage.object.v1.deleted": _DELETED,
    "google.cloud.storage.object.v1.archived": _ARCHIVED,
    "google.cloud.storage.object.v1.metadataUpdated": _METADATA,
}
"""CloudEvents of Cloud Storage that ask for nothing."""
_PASSING = {"OBJECT_DELETE": _DELETED, "OBJECT_ARCHIVE": _ARCHIVED, "OBJECT_METADATA_UPDATE": _METADATA}
_TEMPORARY = re.compile(r"(?:^|/)parallel_composite_uploads/")
"""gsutil and `gcloud storage` put the parts of a composite upload there, each with its own finalize."""


@dataclass(frozen=True)
class _Trace:
    event_id: str
    source: str
    time: datetime | None


def parse_storage_event(event: CloudEvent) -> Upload | Ignored:
    """A ``google.cloud.storage.object.v1.finalized`` event, or a 1st-gen event mapped to it."""
    if not isinstance(event.data, dict):
        raise malformed("data", f"is {describe(event.data)}; it must be a Cloud Storage object")
    return _select_upload(event.data, _Trace(event.id, event.source, event.time))


def is_notification(message: PubsubMessage) -> bool:
    attributes = message.lower
    return "eventtype" in attributes and not attributes.keys().isdisjoint(
        {"bucketid", "objectid", "notificationconfig"}
    )


def parse_notification(message: PubsubMessage) -> Upload | Ignored:
    """A Cloud Storage notification, payload format JSON_API_V1 or NONE.

    Attributes and payload must agree where both tell; either alone is enough.
    """
    attributes = message.lower
    event_type = attributes["eventtype"]
    if event_type in _PASSING:
        return Ignored(_PASSING[event_type], message.message_id)
    if event_type != "OBJECT_FINALIZE":
        known = ", ".join(["OBJECT_FINALIZE", *_PASSING])
        raise malformed("attributes.eventType", f"is {shown(event_type)}; Cloud Storage sends {known}")
    resource = parse_object(message.data, "message.data") if message.data else {}
    told = {
        key: attributes[name]
        for key, name in (("bucket", "bucketid"), ("name", "objectid"), ("generation", "objectgeneration"))
        if name in attributes
    }
    faults = [
        Fault(
            f"attributes.{key}",
            f"attributes and payload disagree on {key}: {shown(value)} and {shown(resource[key])}",
        )
        for key, value in told.items()
        if resource.get(key) is not None and str(resource[key]) != value
    ]
    if faults:
        raise MalformedEvent.from_faults(faults)
    source = attributes.get("notificationconfig") or message.subscription
    return _select_upload({**resource, **told}, _Trace(message.message_id, source, message.publish_time))


def _select_upload(resource: Mapping[str, Any], trace: _Trace) -> Upload | Ignored:
    faults: list[Fault] = []
    upload = Upload(
        bucket=_bucket(resource, faults),
        name=_name(resource, faults),
        generation=_int64(resource, "generation", faults),
        size=_int64(resource, "size", faults),
        crc32c=_text(resource, "crc32c", faults),
        event_id=trace.event_id,
        source=trace.source,
        time=trace.time,
    )
    if faults:
        raise MalformedEvent.from_faults(faults)
    if reason := _why_not(resource, upload.name):
        return Ignored(reason, trace.event_id)
    if upload.size == 0:
        return Ignored("the object is empty", trace.event_id, empty=upload)
    return upload


def _why_not(resource: Mapping[str, Any], name: str) -> str:
    """Why this is not the upload of a dataset's object, or nothing."""
    state = resource.get("resourceState")
    if state == "not_exists" or resource.get("timeDeleted"):
        return _DELETED
    if state is not None and str(resource.get("metageneration", "1")) != "1":
        # 1st-gen object.change events come for metadata too; newer finalize events do not.
        return _METADATA
    if name.endswith(("/", "_$folder$")):
        return "a folder placeholder"
    if _TEMPORARY.search(name):
        return "a temporary part of a composite upload"
    if resource.get("customerEncryption"):
        return "the object is encrypted with its owner's own key, so no job can read it"
    return ""


def _bucket(resource: Mapping[str, Any], faults: list[Fault]) -> str:
    bucket = _text(resource, "bucket", faults, required=True)
    if bucket and not _BUCKET.fullmatch(bucket):
        faults.append(Fault("data.bucket", f"data.bucket is {shown(bucket)}; that is no bucket's name"))
    return bucket


def _name(resource: Mapping[str, Any], faults: list[Fault]) -> str:
    """https://cloud.google.com/storage/docs/objects#naming"""
    name = _text(resource, "name", faults, required=True)
    size = len(name.encode())
    if size > 1024:
        faults.append(Fault("data.name", f"data.name has {size} bytes; it must have at most 1024"))
    if "\r" in name or "\n" in name or name in (".", ".."):
        faults.append(Fault("data.name", f"data.name is {shown(name)}; no object can be named so"))
    return name


def _text(resource: Mapping[str, Any], key: str, faults: list[Fault], *, required: bool = False) -> str:
    value = resource.get(key)
    if isinstance(value, str) and (value or not required):
        return value
    if value is None and not required:
        return ""
    hint = ""
    if value is None and isinstance(resource.get("data"), dict) and key in resource["data"]:
        hint = f"; data.data.{key} is there: the event is wrapped twice"
    rule = "it must be a string that is not empty" if required else "it must be a string"
    faults.append(Fault(f"data.{key}", f"data.{key} is {describe(value)}; {rule}{hint}"))
    return ""


def _int64(resource: Mapping[str, Any], key: str, faults: list[Fault]) -> int | None:
    """Cloud Storage writes int64 as strings, some emulators as numbers; neither goes through a float."""
    value = resource.get(key)
    text = str(value)
    if value is None:
        return None
    if isinstance(value, str | int) and text.isascii() and text.isdigit() and len(text) < 20 and int(text) < 2**63:
        return int(text)
    faults.append(Fault(f"data.{key}", f"data.{key} is {describe(value)}; it must be a whole number of 64 bits"))
    return None
