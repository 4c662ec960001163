"""What tells of a job: service log lines, audit entries, the trainer's own events. Pure.

All are hints; GetCustomJob decides. A CustomJob has no completion event of its own.
https://cloud.google.com/logging/docs/reference/v2/rest/v2/LogEntry
"""

import re
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from kickoff.cloud_events import CloudEvent
from kickoff.errors import MalformedEvent
from kickoff.event_types import Ignored, JobHint
from kickoff.faults import schema_faults, shown
from kickoff.jobs import RUN_LABEL, split_job_name
from kickoff.own_events import EPOCH, RUN_ID, TrainingEpoch, TrainingFinished
from kickoff.pubsub_messages import PubsubMessage
from kickoff.wire_values import describe, malformed, parse_time

_JOB_METHOD = re.compile(r"google\.cloud\.aiplatform\.v1(?:beta1)?\.JobService\.(Create|Cancel|Delete)CustomJob")
_ID = re.compile(r"[A-Za-z0-9._-]{1,128}")


def is_log_entry(entry: Mapping[str, Any]) -> bool:
    payload = not entry.keys().isdisjoint({"textPayload", "jsonPayload", "protoPayload"})
    return payload and not entry.keys().isdisjoint({"logName", "resource", "severity", "insertId"})


def parse_log_entry(entry: Mapping[str, Any], message: PubsubMessage) -> JobHint | Ignored:
    """A LogEntry that a Cloud Logging sink sent to Pub/Sub."""
    event_id = message.message_id
    if isinstance(entry.get("protoPayload"), dict):
        return parse_audit(entry, event_id)
    resource = _dict(entry, "resource")
    if resource.get("type") != "ml_job":
        return Ignored(f"a log entry of {shown(resource.get('type'))}, not of a training job", event_id)
    labels = _dict(resource, "labels")
    if labels.get("task_name") != "service":
        # A replica can print anything, also the sentence that the service ends a job with.
        return Ignored("a log line of a replica; only task_name=service tells of the job", event_id)
    job_id = labels.get("job_id")
    if not (isinstance(job_id, str) and _ID.fullmatch(job_id)):
        raise malformed("resource.labels.job_id", f"is {describe(job_id)}; it must be a job's id")
    text = entry.get("textPayload") or _dict(entry, "jsonPayload").get("message")
    return JobHint(
        kind="log",
        job_id=job_id,
        project=_str(labels, "project_id"),
        location=_str(labels, "location"),
        data={"text": text if isinstance(text, str) else "", "severity": _str(entry, "severity")},
        event_id=event_id,
        time=parse_time(entry.get("timestamp")) or message.publish_time,
    )


def parse_audit(entry: Mapping[str, Any], event_id: str) -> JobHint | Ignored:
    """An audit log entry: it records calls, so it tells that a job was made, cancelled or deleted, not its end.

    https://cloud.google.com/logging/docs/audit#audit_log_entry_structure
    """
    payload = _dict(entry, "protoPayload")
    method = _str(payload, "methodName")
    found = _JOB_METHOD.fullmatch(method)
    if not found:
        return Ignored(f"an audit entry of {shown(method)}, not of a custom job", event_id)
    if _dict(payload, "status").get("code"):
        return Ignored(f"the call {found[1]}CustomJob was refused", event_id)
    request, response = _dict(payload, "request"), _dict(payload, "response")
    label = _str(_dict(_dict(request, "customJob"), "labels"), RUN_LABEL)
    names = (split_job_name(_str(box, key)) for box, key in ((response, "name"), (payload, "resourceName")))
    name = next((match for match in names if match), None)
    if name is None:
        return Ignored(f"an audit entry of {found[1]}CustomJob that does not name the job", event_id)
    return JobHint(
        kind="audit",
        job_id=name[2],
        project=name[0],
        location=name[1],
        run_id=label if re.fullmatch(RUN_ID, label) else "",
        data={
            "method": f"{found[1]}CustomJob",
            "principal": _str(_dict(payload, "authenticationInfo"), "principalEmail"),
        },
        event_id=event_id,
        time=parse_time(entry.get("timestamp")),
    )


def parse_training_event(event: CloudEvent) -> JobHint:
    """The trainer's epoch and finished events. Raises MalformedEvent with every fault."""
    model: type[TrainingEpoch] | type[TrainingFinished] = TrainingEpoch if event.type == EPOCH else TrainingFinished
    try:
        data = model.model_validate(event.data)
    except ValidationError as error:
        raise MalformedEvent.from_faults(schema_faults(error, model, ("data",))) from None
    return JobHint(
        kind="epoch" if event.type == EPOCH else "finished",
        job_id=data.job_id or "",
        run_id=data.run_id,
        data=data.model_dump(exclude={"run_id", "job_id"}),
        event_id=event.id,
        time=event.time,
    )


def _dict(box: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = box.get(key)
    return value if isinstance(value, dict) else {}


def _str(box: Mapping[str, Any], key: str) -> str:
    value = box.get(key)
    return value if isinstance(value, str) else ""
