"""The calls of Pub/Sub's Publisher and Subscriber services: protobuf requests in, protobuf answers out.

What gRPC and REST share. Not here, and so UNIMPLEMENTED: snapshots, schemas, exactly-once delivery, export
subscriptions, message transforms. IAM is not checked.

https://cloud.google.com/pubsub/docs/reference/rpc/google.pubsub.v1
"""

import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from google.protobuf.empty_pb2 import Empty
from google.pubsub_v1 import types

from deploy.local.pubsub.broker import Broker, Subscription
from deploy.local.pubsub.deliveries import Ask, Delivery, Holder
from deploy.local.pubsub.errors import PubSubError, invalid
from deploy.local.pubsub.push import Pusher
from deploy.local.pubsub.validation import (
    check_emulated,
    check_mask,
    check_messages,
    check_name,
    check_subscription,
    with_defaults,
)

PULL_SECONDS = 10.0
"""How long a pull waits for a first message. Pub/Sub's own wait is not documented, only that it is bounded."""
PULL_BYTES = 3_500_000
"""Together in one answer: with PUBSUB_EMULATOR_HOST the stock clients receive no more than 4 MiB at once, and so no
single message that is larger."""


class Call(Protocol):
    """The caller's side of one request."""

    def ended(self) -> bool:
        """Whether nobody waits for the answer any more."""

    def on_end(self, callback: Callable[[], None]) -> None: ...


class Api:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._pushers: dict[str, Pusher] = {}

    # Publisher

    def create_topic(self, topic: Any, _call: Call) -> Any:
        check_name("topics", topic.name)
        check_emulated(topic)
        topic.state = 1  # ACTIVE
        self._broker.add_topic(topic)
        return topic

    def update_topic(self, request: Any, _call: Call) -> Any:
        check_mask(request.topic, request.update_mask)
        with self._broker.lock:
            topic = self._broker.topic(request.topic.name)
            request.update_mask.MergeMessage(request.topic, topic, True, True)
            return topic

    def get_topic(self, request: Any, _call: Call) -> Any:
        return self._broker.topic(request.topic)

    def list_topics(self, request: Any, _call: Call) -> Any:
        with self._broker.lock:
            names = [name for name in self._broker.topics if name.startswith(f"{request.project}/topics/")]
            page, token = _page(names, request)
            return pb("ListTopicsResponse")(topics=[self._broker.topics[name] for name in page], next_page_token=token)

    def list_topic_subscriptions(self, request: Any, _call: Call) -> Any:
        page, token = _page([subscription.name for subscription in self._broker.attached(request.topic)], request)
        return pb("ListTopicSubscriptionsResponse")(subscriptions=page, next_page_token=token)

    def delete_topic(self, request: Any, _call: Call) -> Any:
        self._broker.delete_topic(request.topic)
        return Empty()

    def publish(self, request: Any, _call: Call) -> Any:
        check_messages(request.messages, request.ByteSize())
        ids = self._broker.publish(request.topic, request.messages)
        return pb("PublishResponse")(message_ids=ids)

    def detach_subscription(self, request: Any, _call: Call) -> Any:
        self._broker.detach(request.subscription)
        self._stop_pushing(request.subscription)
        return pb("DetachSubscriptionResponse")()

    # Subscriber

    def create_subscription(self, resource: Any, _call: Call) -> Any:
        check_name("subscriptions", resource.name)
        check_name("topics", resource.topic)
        check_emulated(resource)
        check_subscription(resource)
        with_defaults(resource)
        self._push_or_not(self._broker.add_subscription(resource))
        return resource

    def update_subscription(self, request: Any, _call: Call) -> Any:
        check_mask(request.subscription, request.update_mask)
        with self._broker.lock:
            subscription = self._broker.subscription(request.subscription.name)
            changed = type(subscription.resource)()
            changed.CopyFrom(subscription.resource)
            request.update_mask.MergeMessage(request.subscription, changed, True, True)
            check_emulated(changed)
            check_subscription(changed)
            with_defaults(changed)
            self._broker.replace(subscription, changed)
        self._push_or_not(subscription)
        return changed

    def modify_push_config(self, request: Any, call: Call) -> Any:
        update = pb("UpdateSubscriptionRequest")(subscription={"name": request.subscription})
        update.subscription.push_config.CopyFrom(request.push_config)
        update.update_mask.paths.append("push_config")
        self.update_subscription(update, call)
        return Empty()

    def get_subscription(self, request: Any, _call: Call) -> Any:
        return self._broker.subscription(request.subscription).resource

    def list_subscriptions(self, request: Any, _call: Call) -> Any:
        with self._broker.lock:
            held = self._broker.subscriptions
            page, token = _page(
                [name for name in held if name.startswith(f"{request.project}/subscriptions/")], request
            )
            resources = [held[name].resource for name in page]
            return pb("ListSubscriptionsResponse")(subscriptions=resources, next_page_token=token)

    def delete_subscription(self, request: Any, _call: Call) -> Any:
        self._broker.delete_subscription(request.subscription)
        self._stop_pushing(request.subscription)
        return Empty()

    def pull(self, request: Any, call: Call) -> Any:
        subscription = self.pulled(request.subscription)
        if request.max_messages < 1:
            raise invalid(f"max_messages is {request.max_messages}; it must be at least 1")
        call.on_end(lambda: wake(subscription))
        ask = Ask(min(request.max_messages, 1000), PULL_BYTES, subscription.resource.ack_deadline_seconds)
        seconds = 0.0 if request.return_immediately else PULL_SECONDS
        batch = subscription.take(lambda: ask, Holder(), seconds, call.ended)
        return pb("PullResponse")(received_messages=[build_received(delivery) for delivery in batch])

    def acknowledge(self, request: Any, _call: Call) -> Any:
        self.settle(self._broker.subscription(request.subscription), request.ack_ids, None)
        return Empty()

    def modify_ack_deadline(self, request: Any, _call: Call) -> Any:
        self.settle(self._broker.subscription(request.subscription), request.ack_ids, request.ack_deadline_seconds)
        return Empty()

    def seek(self, request: Any, _call: Call) -> Any:
        subscription = self._broker.subscription(request.subscription)
        if request.WhichOneof("target") != "time":
            raise PubSubError("UNIMPLEMENTED", "not emulated locally: seek to a snapshot; seek to a time works")
        instant = (request.time.seconds, request.time.nanos)
        with subscription.changed:
            subscription.backlog.seek(
                lambda message: (message.publish_time.seconds, message.publish_time.nanos) < instant, time.monotonic()
            )
            subscription.changed.notify_all()
        return pb("SeekResponse")()

    def settle(self, subscription: Subscription, ack_ids: Sequence[str], seconds: int | None) -> None:
        """Acknowledge (None), extend, or give back (0)."""
        if seconds is not None and not 0 <= seconds <= 600:
            raise invalid(f"ack_deadline_seconds is {seconds}; it must be 0 to 600")
        try:
            if seconds is None:
                subscription.ack(ack_ids)
            else:
                subscription.modify(ack_ids, seconds)
        except ValueError as error:
            raise invalid(f"Some acknowledgement ids in the request were invalid: {str(error)[:80]!r}") from error

    def close(self) -> None:
        for name in list(self._pushers):
            self._stop_pushing(name)

    def pulled(self, name: str) -> Subscription:
        """The subscription, if it can be pulled from."""
        subscription = self._broker.subscription(name)
        if subscription.resource.detached:
            raise PubSubError("FAILED_PRECONDITION", f"Subscription is detached (resource={name}).")
        if subscription.resource.push_config.push_endpoint:
            raise PubSubError("FAILED_PRECONDITION", f"Method does not support push subscriptions (resource={name}).")
        return subscription

    def _push_or_not(self, subscription: Subscription) -> None:
        """Start or stop the pusher as the push endpoint says; the endpoint itself is read for each message."""
        with self._broker.lock:
            wanted = bool(subscription.resource.push_config.push_endpoint) and not subscription.closed
            if wanted and subscription.name not in self._pushers:
                self._pushers[subscription.name] = Pusher(subscription)
                self._pushers[subscription.name].start()
        if not wanted:
            self._stop_pushing(subscription.name)

    def _stop_pushing(self, name: str) -> None:
        with self._broker.lock:
            pusher = self._pushers.pop(name, None)
        if pusher is not None:
            pusher.stop()


def wake(subscription: Subscription) -> None:
    with subscription.changed:
        subscription.changed.notify_all()


def build_received(delivery: Delivery) -> Any:
    return pb("ReceivedMessage")(ack_id=delivery.ack_id, message=delivery.message, delivery_attempt=delivery.attempt)


def pb(name: str) -> Any:
    """The protobuf class behind a proto-plus one."""
    return getattr(types, name).pb()


def _page(names: Sequence[str], request: Any) -> tuple[list[str], str]:
    """One page in the order of the names; the token is the last name of the page before."""
    rest = [name for name in sorted(names) if name > request.page_token]
    size = request.page_size or 100
    if size < 0:
        raise invalid(f"page_size is {size}; it must not be negative")
    page = rest[: min(size, 1000)]
    return page, page[-1] if len(page) < len(rest) else ""
