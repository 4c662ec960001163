"""Topics, subscriptions, and messages on their way: the emulator's state, in memory, under one lock.

All of it is gone when the process ends: topics, subscriptions and what was not acknowledged. Kickoff finds what a
lost message asked for by its sweep, as it does in the cloud.
"""

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from google.pubsub_v1 import types

from deploy.local.pubsub.backlog import Backlog
from deploy.local.pubsub.deliveries import Ask, Delivery, Entry, Holder
from deploy.local.pubsub.errors import PubSubError, already_exists, not_found
from deploy.local.pubsub.filters import parse_filter
from deploy.local.pubsub.validation import DELETED_TOPIC, build_policy

PubsubMessage: Any = types.PubsubMessage.pb()

DEFAULT_MAX_BYTES = 512 * 1024 * 1024
MESSAGE_OVERHEAD = 512
"""Bytes that one held message costs beside its contents, roughly."""


class Subscription:
    """A subscription and its messages. `changed` is notified whenever a waiting subscriber should look again."""

    def __init__(self, resource: Any, backlog: Backlog, lock: threading.RLock) -> None:
        self.resource = resource
        self.backlog = backlog
        self.changed = threading.Condition(lock)
        self.matches = parse_filter(resource.filter)
        self.closed = False

    @property
    def name(self) -> str:
        return str(self.resource.name)

    def take(
        self, ask: Callable[[], Ask], holder: Holder, timeout: float, ended: Callable[[], bool] = lambda: False
    ) -> list[Delivery]:
        """Lease what `ask()` says, waiting up to `timeout` seconds for the first message.

        Empty on time-out, when `ended()`, and when the subscription is closed. An ask for no messages waits too.
        """
        until = time.monotonic() + timeout
        with self.changed:
            while not (self.closed or ended()):
                now = time.monotonic()
                batch = self.backlog.lease(ask(), holder, now)
                if batch or now >= until:
                    return batch
                due = self.backlog.next_due()
                self.changed.wait(max(0.001, min(until, due or until) - now))
        return []

    def ack(self, ack_ids: Iterable[str]) -> None:
        with self.changed:
            self.backlog.ack(ack_ids, time.monotonic())
            self.changed.notify_all()

    def modify(self, ack_ids: Iterable[str], seconds: float) -> None:
        """0 seconds: deliver again."""
        with self.changed:
            self.backlog.modify(ack_ids, seconds, time.monotonic())
            self.changed.notify_all()

    def close(self) -> None:
        with self.changed:
            self.closed = True
            self.backlog.clear()
            self.changed.notify_all()


class Broker:
    """`max_bytes` bounds what all subscriptions hold together; beyond it a publish gets RESOURCE_EXHAUSTED."""

    def __init__(self, max_bytes: int = DEFAULT_MAX_BYTES) -> None:
        self.lock = threading.RLock()
        self.topics: dict[str, Any] = {}
        self.subscriptions: dict[str, Subscription] = {}
        self._attached: dict[str, dict[str, Subscription]] = {}
        """Topic name to the subscriptions that get its messages."""
        self._max_bytes = max_bytes
        self._sequence = time.time_ns() // 1000
        """Message ids are unique across restarts."""

    def add_topic(self, topic: Any) -> None:
        with self.lock:
            if topic.name in self.topics:
                raise already_exists(topic.name)
            self.topics[topic.name] = topic
            self._attached[topic.name] = {}

    def topic(self, name: str) -> Any:
        with self.lock:
            if name not in self.topics:
                raise not_found(name)
            return self.topics[name]

    def delete_topic(self, name: str) -> None:
        """Its subscriptions stay, with what they hold, and their topic becomes ``_deleted-topic_``."""
        with self.lock:
            self.topic(name)
            del self.topics[name]
            for subscription in self._attached.pop(name).values():
                subscription.resource.topic = DELETED_TOPIC

    def attached(self, topic: str) -> list[Subscription]:
        with self.lock:
            self.topic(topic)
            return list(self._attached[topic].values())

    def add_subscription(self, resource: Any) -> Subscription:
        with self.lock:
            if resource.name in self.subscriptions:
                raise already_exists(resource.name)
            self.topic(resource.topic)
            if resource.dead_letter_policy.dead_letter_topic:
                self.topic(resource.dead_letter_policy.dead_letter_topic)
            self._sequence += 1
            backlog = Backlog(build_policy(resource), self._forwarder(resource.name), tag=f"s{self._sequence}")
            subscription = Subscription(resource, backlog, self.lock)
            self.subscriptions[resource.name] = subscription
            self._attached[resource.topic][resource.name] = subscription
            return subscription

    def subscription(self, name: str) -> Subscription:
        with self.lock:
            if name not in self.subscriptions:
                raise not_found(name)
            return self.subscriptions[name]

    def replace(self, subscription: Subscription, resource: Any) -> None:
        """New settings for what is already there."""
        with subscription.changed:
            if resource.dead_letter_policy.dead_letter_topic:
                self.topic(resource.dead_letter_policy.dead_letter_topic)
            subscription.resource = resource
            subscription.backlog.policy = build_policy(resource)
            subscription.changed.notify_all()

    def delete_subscription(self, name: str) -> None:
        with self.lock:
            subscription = self.subscription(name)
            del self.subscriptions[name]
            self._attached.get(subscription.resource.topic, {}).pop(name, None)
            subscription.close()

    def detach(self, name: str) -> None:
        """The subscription stays as a name; its messages are gone and no more come."""
        with self.lock:
            subscription = self.subscription(name)
            self._attached.get(subscription.resource.topic, {}).pop(name, None)
            subscription.resource.detached = True
            subscription.close()

    def publish(self, topic: str, messages: Sequence[Any]) -> list[str]:
        """The messages' new ids. Once this returns, every subscription whose filter passes them holds them."""
        moment = datetime.now(UTC)
        stamped = []
        with self.lock:
            attached = self.attached(topic)
            self._check_room(messages, attached)
            now = time.monotonic()
            for message in messages:
                self._sequence += 1
                copy = PubsubMessage()
                copy.CopyFrom(message)
                copy.message_id = str(self._sequence)
                copy.publish_time.FromMilliseconds(int(moment.timestamp() * 1000))
                stamped.append(copy.message_id)
                size = message_size(copy)
                for subscription in attached:
                    if subscription.matches(copy.attributes):
                        subscription.backlog.add(self._sequence, copy, size, now)
            for subscription in attached:
                subscription.changed.notify_all()
        return stamped

    def tick(self) -> None:
        """What is due although no subscriber asks: dead letters, the end of retention."""
        with self.lock:
            for subscription in list(self.subscriptions.values()):
                subscription.backlog.tick(time.monotonic())

    def close(self) -> None:
        """Wakes everyone who waits; keeps nothing."""
        with self.lock:
            for subscription in self.subscriptions.values():
                subscription.close()

    def _check_room(self, messages: Sequence[Any], attached: list[Subscription]) -> None:
        held = sum(subscription.backlog.bytes for subscription in self.subscriptions.values())
        wanted = sum(message_size(message) for message in messages) * len(attached)
        if wanted and held + wanted > self._max_bytes:
            fullest = max(attached, key=lambda subscription: subscription.backlog.bytes)
            raise PubSubError(
                "RESOURCE_EXHAUSTED",
                f"{held} bytes are held unacknowledged and the emulator's limit is {self._max_bytes}; "
                f"{fullest.name} holds {len(fullest.backlog)} messages",
            )

    def _forwarder(self, name: str) -> Callable[[Entry], bool]:
        def forward(entry: Entry) -> bool:
            subscription = self.subscriptions[name].resource
            topic = subscription.dead_letter_policy.dead_letter_topic
            if topic not in self.topics:
                return False
            try:
                self.publish(topic, [build_dead_letter(entry, subscription)])
            except PubSubError:  # no room: keep it, and try again at the next failure
                return False
            return True

        return forward


def message_size(message: Any) -> int:
    return int(message.ByteSize()) + MESSAGE_OVERHEAD


def build_dead_letter(entry: Entry, subscription: Any) -> Any:
    """The message as it is forwarded, with the attributes of
    https://cloud.google.com/pubsub/docs/handling-failures#track-delivery-attempts
    """
    _, project, _, short = subscription.name.split("/")
    letter = PubsubMessage()
    letter.CopyFrom(entry.message)
    letter.attributes["CloudPubSubDeadLetterSourceDeliveryCount"] = str(entry.attempts)
    letter.attributes["CloudPubSubDeadLetterSourceSubscription"] = short
    letter.attributes["CloudPubSubDeadLetterSourceSubscriptionProject"] = project
    letter.attributes["CloudPubSubDeadLetterSourceTopicPublishTime"] = entry.message.publish_time.ToJsonString()
    return letter
