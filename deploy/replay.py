"""Sends dead letters again, to the topic that they came from, once what they stumbled over is mended.

A dead letter is acknowledged only after its copy is published: a crash between the two doubles a message and never
loses one. What a request asks for is still started once where it carries an idempotency key; without one, a copy is a
new message, with a new id.

https://cloud.google.com/pubsub/docs/handling-failures
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

DEAD_LETTER_ATTRIBUTES = "CloudPubSubDeadLetter"
PULL_SECONDS = 3.0
"""How long to wait for a letter before there is taken to be none."""


@dataclass(frozen=True)
class Letter:
    """A dead letter."""

    message_id: str
    data: bytes
    attributes: dict[str, str]
    ordering_key: str
    published: datetime
    """When it became a dead letter."""

    @property
    def source(self) -> str:
        """The subscription that gave it up, ``projects/P/subscriptions/S``; empty if it does not say."""
        project = self.attributes.get(f"{DEAD_LETTER_ATTRIBUTES}SourceSubscriptionProject", "")
        short = self.attributes.get(f"{DEAD_LETTER_ATTRIBUTES}SourceSubscription", "")
        return f"projects/{project}/subscriptions/{short}" if project and short else ""


@dataclass
class Replay:
    """What became of the letters: id of the dead letter to id of its copy, or to why it stays."""

    sent: dict[str, str] = field(default_factory=dict)
    kept: dict[str, str] = field(default_factory=dict)


def build_copy(letter: Letter) -> dict[str, Any]:
    """The message as it was first published: its data, its key, its own attributes. Pure."""
    own = {key: value for key, value in letter.attributes.items() if not key.startswith(DEAD_LETTER_ATTRIBUTES)}
    return {"data": letter.data, "attributes": own, "ordering_key": letter.ordering_key}


def replay(
    subscriber: Any,
    publisher: Any,
    subscription: str,
    topic: str = "",
    limit: int = 1000,
    select: Callable[[Letter], bool] = lambda _letter: True,
) -> Replay:
    """Publish again up to `limit` of the letters that `subscription` holds now and that `select` wants.

    `subscriber` and `publisher` are google.cloud.pubsub_v1 clients; `subscription` and `topic` are full names. Without
    a topic each letter goes to that of the subscription which gave it up. A letter that cannot be sent stays where it
    is, as do those that arrive meanwhile: what fails again is not sent round and round. Raises google.api_core's
    errors of the pull.
    """
    started = datetime.now(UTC)
    outcome = Replay()
    topics: dict[str, str] = {}
    seen: set[str] = set()
    unsent: list[str] = []
    while len(outcome.sent) < limit:
        batch = _pull(subscriber, subscription, min(100, limit - len(outcome.sent)))
        if not any(received.message.message_id not in seen for received in batch):
            break
        for received in batch:
            letter = _letter(received.message)
            again = letter.message_id in seen
            seen.add(letter.message_id)
            if again or letter.published > started or not select(letter):
                unsent.append(received.ack_id)
                continue
            try:
                copy_id = _publish(publisher, topic or _topic_of(subscriber, letter, topics), build_copy(letter))
            except Exception as error:  # this letter's trouble alone: its topic is gone, it is too large now
                outcome.kept[letter.message_id] = str(error)
                unsent.append(received.ack_id)
                continue
            outcome.sent[letter.message_id] = copy_id
            subscriber.acknowledge(subscription=subscription, ack_ids=[received.ack_id])
    for start in range(0, len(unsent), 1000):  # only now: given back at once they would come again at once
        give_back = {"subscription": subscription, "ack_ids": unsent[start : start + 1000], "ack_deadline_seconds": 0}
        subscriber.modify_ack_deadline(request=give_back)
    return outcome


def replay_dead_letters(project: str, subscription: str, topic: str, limit: int = 1000) -> int:
    """`replay` with short names and clients of its own: how many were sent. Raises KickoffError if some stayed."""
    from google.cloud import pubsub_v1
    from kickoff.errors import Fault, KickoffError

    with pubsub_v1.SubscriberClient() as subscriber:
        name = f"projects/{project}/subscriptions/{subscription}"
        outcome = replay(subscriber, pubsub_v1.PublisherClient(), name, f"projects/{project}/topics/{topic}", limit)
    if outcome.kept:
        sent = Fault("", f"{len(outcome.sent)} dead letters were sent again; these stay:")
        raise KickoffError.from_faults([sent, *(Fault(key, f"{key}: {why}") for key, why in outcome.kept.items())])
    return len(outcome.sent)


def _pull(subscriber: Any, subscription: str, count: int) -> list[Any]:
    from google.api_core.exceptions import DeadlineExceeded

    request = {"subscription": subscription, "max_messages": count}
    try:
        return list(subscriber.pull(request=request, timeout=PULL_SECONDS, retry=None).received_messages)
    except DeadlineExceeded:
        return []


def _publish(publisher: Any, topic: str, message: dict[str, Any]) -> str:
    """One request of the generated client: the client's own `publish` cannot send every attribute name."""
    from google.pubsub_v1 import PublisherClient

    return str(PublisherClient.publish(publisher, topic=topic, messages=[message], timeout=30.0).message_ids[0])


def _topic_of(subscriber: Any, letter: Letter, known: dict[str, str]) -> str:
    if not letter.source:
        raise ValueError("it does not say which subscription gave it up; name the topic")
    if letter.source not in known:
        known[letter.source] = subscriber.get_subscription(subscription=letter.source).topic
    if not known[letter.source].startswith("projects/"):  # `_deleted-topic_`
        raise ValueError(f"the topic of {letter.source} was deleted; name another")
    return known[letter.source]


def _letter(message: Any) -> Letter:
    attributes = dict(message.attributes)
    return Letter(message.message_id, message.data, attributes, message.ordering_key, message.publish_time)
