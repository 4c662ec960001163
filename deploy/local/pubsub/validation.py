"""The documented rules of topics, subscriptions and messages. Pure: each check returns or raises INVALID_ARGUMENT.

https://cloud.google.com/pubsub/quotas and the comments of google/pubsub/v1/pubsub.proto
"""

import re
from collections.abc import Iterable
from typing import Any

from deploy.local.pubsub.deliveries import Policy
from deploy.local.pubsub.errors import PubSubError, invalid
from deploy.local.pubsub.filters import FilterError, parse_filter

MAX_REQUEST_BYTES = 10_000_000
MAX_MESSAGES = 1000
DELETED_TOPIC = "_deleted-topic_"

_PROJECT = r"(?:[a-z0-9.-]+:)?[A-Za-z0-9-]+"
_ID = r"[A-Za-z][A-Za-z0-9._~+%-]{2,254}"
_NAMES = {kind: re.compile(rf"projects/({_PROJECT})/{kind}/({_ID})") for kind in ("topics", "subscriptions")}

NOT_EMULATED = {
    "Topic": ("schema_settings", "ingestion_data_source_settings", "message_transforms"),
    "Subscription": ("bigquery_config", "cloud_storage_config", "bigtable_config", "message_transforms"),
}
MUTABLE = {
    "Topic": {"labels", "message_retention_duration", "message_storage_policy", "kms_key_name"},
    "Subscription": {
        "push_config",
        "ack_deadline_seconds",
        "retain_acked_messages",
        "message_retention_duration",
        "labels",
        "expiration_policy",
        "dead_letter_policy",
        "retry_policy",
    },
}


def check_name(kind: str, name: str) -> None:
    """`kind` is ``topics`` or ``subscriptions``."""
    match = _NAMES[kind].fullmatch(name)
    if match is None or match[2].lower().startswith("goog"):
        raise invalid(
            f"Invalid [{kind}] name: (name={name}); it must be projects/PROJECT/{kind}/ID, the id 3 to 255 of "
            "letters, digits and -._~+%, beginning with a letter and not with goog."
        )


def check_emulated(resource: Any) -> None:
    """Refuse what this emulator does not do rather than accept and ignore it."""
    kind = type(resource).__name__
    used = [name for name in NOT_EMULATED[kind] if name in {field.name for field, _ in resource.ListFields()}]
    if kind == "Subscription" and resource.enable_exactly_once_delivery:
        used.append("enable_exactly_once_delivery")
    if used:
        raise PubSubError("UNIMPLEMENTED", f"not emulated locally: {', '.join(used)} of {resource.name}")


def check_subscription(subscription: Any) -> None:
    """Everything that is wrong with it, in one error."""
    faults = [*_times(subscription), *_push(subscription.push_config), *_policies(subscription)]
    try:
        parse_filter(subscription.filter)
    except FilterError as error:
        faults.append(str(error))
    if faults:
        raise invalid("; ".join(faults))


def _times(subscription: Any) -> Iterable[str]:
    deadline = subscription.ack_deadline_seconds
    if not (deadline == 0 or 10 <= deadline <= 600):
        yield f"ack_deadline_seconds is {deadline}; it must be 10 to 600"
    retention = subscription.message_retention_duration.ToTimedelta().total_seconds()
    if subscription.HasField("message_retention_duration") and not 600 <= retention <= 31 * 86400:
        yield f"message_retention_duration is {retention:g}s; it must be 600s to {31 * 86400}s"


def _push(config: Any) -> Iterable[str]:
    if config.push_endpoint and not re.match(r"https?://[^/\s]", config.push_endpoint):
        yield f"push_config.push_endpoint is {config.push_endpoint!r}; it must be an http:// or https:// URL"
    if not config.push_endpoint and (config.HasField("oidc_token") or config.HasField("no_wrapper")):
        yield "push_config has settings and no push_endpoint"


def _policies(subscription: Any) -> Iterable[str]:
    if subscription.HasField("dead_letter_policy"):
        attempts = subscription.dead_letter_policy.max_delivery_attempts
        if not (attempts == 0 or 5 <= attempts <= 100):
            yield f"dead_letter_policy.max_delivery_attempts is {attempts}; it must be 5 to 100"
    if subscription.HasField("retry_policy"):
        low, high = backoff_bounds(subscription.retry_policy)
        for name, value in (("minimum_backoff", low), ("maximum_backoff", high)):
            if not 0 <= value <= 600:
                yield f"retry_policy.{name} is {value:g}s; it must be 0s to 600s"
        if low > high:
            yield f"retry_policy.minimum_backoff is {low:g}s, above its maximum_backoff of {high:g}s"


def backoff_bounds(policy: Any) -> tuple[float, float]:
    """Seconds; 10 and 600 unless given."""
    low = policy.minimum_backoff.ToTimedelta().total_seconds() if policy.HasField("minimum_backoff") else 10.0
    high = policy.maximum_backoff.ToTimedelta().total_seconds() if policy.HasField("maximum_backoff") else 600.0
    return low, high


def build_policy(subscription: Any) -> Policy:
    """What the subscription's fields mean for deliveries.

    Without a retry policy a pull subscription delivers again at once, a push one after 0.1 s doubled up to 60 s
    (https://cloud.google.com/pubsub/docs/handling-failures, https://cloud.google.com/pubsub/docs/push#push_backoff).
    """
    low, high = (0.1, 60.0) if subscription.push_config.push_endpoint else (0.0, 0.0)
    if subscription.HasField("retry_policy"):
        low, high = backoff_bounds(subscription.retry_policy)
    return Policy(
        ack_deadline=float(subscription.ack_deadline_seconds),
        ordered=subscription.enable_message_ordering,
        min_backoff=low,
        max_backoff=high,
        max_attempts=subscription.dead_letter_policy.max_delivery_attempts,
        retention=subscription.message_retention_duration.ToTimedelta().total_seconds(),
        retain_acked=subscription.retain_acked_messages,
    )


def with_defaults(subscription: Any) -> None:
    """Fill in what Pub/Sub fills in."""
    if not subscription.ack_deadline_seconds:
        subscription.ack_deadline_seconds = 10
    if not subscription.HasField("message_retention_duration"):
        subscription.message_retention_duration.FromSeconds(7 * 86400)
    if subscription.HasField("dead_letter_policy") and not subscription.dead_letter_policy.max_delivery_attempts:
        subscription.dead_letter_policy.max_delivery_attempts = 5
    if not subscription.HasField("expiration_policy"):
        subscription.expiration_policy.ttl.FromSeconds(31 * 86400)
    subscription.state = 1  # ACTIVE


def check_mask(resource: Any, mask: Any) -> None:
    """Which fields of the resource a FieldMask may change."""
    kind, paths = type(resource).__name__, list(mask.paths)
    if not paths:
        raise invalid("The update_mask in the request must be set and must contain at least one path.")
    wrong = [path for path in paths if path.partition(".")[0] not in MUTABLE[kind]]
    if wrong or not mask.IsValidForDescriptor(resource.DESCRIPTOR):
        fields = ", ".join(wrong or paths)
        raise invalid(f"Invalid update_mask provided in the request: {fields} of a {kind} cannot be changed.")


def check_messages(messages: Any, size: int) -> None:
    """One publish request of `size` bytes."""
    if not 1 <= len(messages) <= MAX_MESSAGES:
        raise invalid(f"messages has {len(messages)} entries; it must have 1 to {MAX_MESSAGES}")
    if size > MAX_REQUEST_BYTES:
        raise invalid(f"The request is {size} bytes; it must be at most {MAX_REQUEST_BYTES}.")
    faults = [fault for index, message in enumerate(messages) for fault in _message(f"messages[{index}]", message)]
    if faults:
        raise invalid("; ".join(faults[:20]))


def _message(path: str, message: Any) -> Iterable[str]:
    if not message.data and not message.attributes:
        yield f"{path} is empty; it must have data or an attribute"
    if len(message.attributes) > 100:
        yield f"{path} has {len(message.attributes)} attributes; it must have at most 100"
    for key, value in message.attributes.items():
        if not 1 <= len(key.encode()) <= 256 or key.lower().startswith("goog"):
            yield f"{path}.attributes has the key {key[:40]!r}; it must be 1 to 256 bytes and not begin with goog"
        if len(value.encode()) > 1024:
            yield f"{path}.attributes[{key[:40]!r}] is {len(value.encode())} bytes; it must be at most 1024"
    if len(message.ordering_key.encode()) > 1024:
        yield f"{path}.ordering_key is {len(message.ordering_key.encode())} bytes; it must be at most 1024"
