"""Delivery to push endpoints: POST, and the answer's status acknowledges or gives back.

https://cloud.google.com/pubsub/docs/push, https://cloud.google.com/pubsub/docs/payload-unwrapping

Differences from Pub/Sub: http:// endpoints are allowed, and no OIDC token is sent (the token's settings are kept
and shown, as there is nobody here to sign one).
"""

import base64
import contextlib
import http.client
import json
import socket
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import SplitResult, urlsplit

from deploy.local.pubsub.broker import Subscription
from deploy.local.pubsub.deliveries import Ask, Delivery, Holder

ACKNOWLEDGES = frozenset({102, 200, 201, 202, 204})
MAX_IN_FLIGHT = 16
_MAX_ANSWER_BYTES = 64 * 1024


def build_push(delivery: Delivery, subscription: Any) -> tuple[bytes, dict[str, str]]:
    """Body and headers of the request, wrapped or unwrapped as the subscription says."""
    message = delivery.message
    published = message.publish_time.ToJsonString()
    headers = {"User-Agent": "CloudPubSub-Google", "Accept": "application/json"}
    if subscription.push_config.HasField("no_wrapper"):
        if subscription.push_config.no_wrapper.write_metadata:
            headers |= {
                "x-goog-pubsub-subscription-name": subscription.name,
                "x-goog-pubsub-message-id": message.message_id,
                "x-goog-pubsub-publish-time": published,
            }
            if message.ordering_key:
                headers["x-goog-pubsub-ordering-key"] = message.ordering_key
            headers |= {key: value for key, value in message.attributes.items() if _is_header(key, value)}
        return message.data, headers
    wrapped: dict[str, Any] = {}
    if message.attributes:
        wrapped["attributes"] = dict(message.attributes)
    if message.data:
        wrapped["data"] = base64.b64encode(message.data).decode()
    wrapped |= {"messageId": message.message_id, "message_id": message.message_id}
    if message.ordering_key:
        wrapped |= {"orderingKey": message.ordering_key, "ordering_key": message.ordering_key}
    wrapped |= {"publishTime": published, "publish_time": published}
    body: dict[str, Any] = {"message": wrapped, "subscription": subscription.name}
    if delivery.attempt:
        body["deliveryAttempt"] = delivery.attempt
    return json.dumps(body).encode(), {**headers, "Content-Type": "application/json"}


def _is_header(key: str, value: str) -> bool:
    """Whether the attribute can be written as a header at all."""
    return key.isascii() and key.replace("-", "").replace("_", "").isalnum() and value.isprintable() and value.isascii()


class Pusher:
    """Pushes one subscription's messages, several at a time.

    The window of requests in flight grows by one with each success up to `max_in_flight` and halves with each
    failure, so that an endpoint that is down or slow is not flooded; a failing message backs off on its own and
    holds nobody else up.
    """

    def __init__(self, subscription: Subscription, max_in_flight: int = MAX_IN_FLIGHT) -> None:
        self._subscription = subscription
        self._max = max_in_flight
        self._window = min(4, max_in_flight)
        self._holder = Holder()
        self._stopped = False
        self._local = threading.local()
        self._connections: set[http.client.HTTPConnection] = set()
        name = subscription.name.rpartition("/")[2]
        self._pool = ThreadPoolExecutor(max_in_flight, thread_name_prefix=f"push-{name}")
        self._thread = threading.Thread(target=self._run, name=f"push-{name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Ends requests in flight; their messages are delivered again, should anybody ask."""
        with self._subscription.changed:
            self._stopped = True
            self._subscription.changed.notify_all()
            connections = list(self._connections)
        self._pool.shutdown(wait=False)
        for connection in connections:
            if connection.sock is not None:
                with contextlib.suppress(OSError):
                    connection.sock.shutdown(socket.SHUT_RDWR)

    def _run(self) -> None:
        while not (self._stopped or self._subscription.closed):
            for delivery in self._subscription.take(self._ask, self._holder, 60.0, lambda: self._stopped):
                try:
                    self._pool.submit(self._push, delivery)
                except RuntimeError:  # the pool was shut down meanwhile
                    self._subscription.modify([delivery.ack_id], 0)

    def _ask(self) -> Ask:
        deadline = self._subscription.resource.ack_deadline_seconds
        return Ask(self._window - self._holder.messages, 10**9, deadline, several_of_a_key=False)

    def _push(self, delivery: Delivery) -> None:
        resource = self._subscription.resource
        body, headers = build_push(delivery, resource)
        try:
            status = self._post(
                urlsplit(resource.push_config.push_endpoint), body, headers, resource.ack_deadline_seconds
            )
        except (OSError, http.client.HTTPException, ValueError):
            status = 0
        with self._subscription.changed:
            if status in ACKNOWLEDGES:
                self._window = min(self._window + 1, self._max)
                self._subscription.ack([delivery.ack_id])
            else:
                self._window = max(self._window // 2, 1)
                self._subscription.modify([delivery.ack_id], 0)

    def _post(self, url: SplitResult, body: bytes, headers: dict[str, str], timeout: float) -> int:
        """The status. A kept connection that turns out to be closed is opened anew, once."""
        path = (url.path or "/") + (f"?{url.query}" if url.query else "")
        connection, kept = self._connection(url, timeout)
        try:
            return _exchange(connection, path, body, headers)
        except (ConnectionError, http.client.RemoteDisconnected):
            self._discard(connection)
            if not kept or self._stopped:
                raise
        except BaseException:
            self._discard(connection)
            raise
        connection, _ = self._connection(url, timeout)
        try:
            return _exchange(connection, path, body, headers)
        except BaseException:
            self._discard(connection)
            raise

    def _connection(self, url: SplitResult, timeout: float) -> tuple[http.client.HTTPConnection, bool]:
        """This thread's connection to the endpoint, and whether it was used before."""
        if self._stopped:
            raise ConnectionAbortedError("stopping")
        kept: tuple[str, http.client.HTTPConnection] | None = getattr(self._local, "kept", None)
        if kept and kept[0] == url.netloc and kept[1].sock is not None:
            kept[1].sock.settimeout(timeout)
            return kept[1], True
        if kept:  # to another endpoint, or closed by the answer
            self._discard(kept[1])
        make: Callable[..., http.client.HTTPConnection] = (
            http.client.HTTPSConnection if url.scheme == "https" else http.client.HTTPConnection
        )
        connection = make(url.netloc, timeout=timeout)
        connection.connect()
        self._local.kept = (url.netloc, connection)
        self._connections.add(connection)
        if self._stopped:  # `stop` may have missed this one
            self._discard(connection)
            raise ConnectionAbortedError("stopping")
        return connection, False

    def _discard(self, connection: http.client.HTTPConnection) -> None:
        connection.close()
        self._connections.discard(connection)
        self._local.kept = None


def _exchange(connection: http.client.HTTPConnection, path: str, body: bytes, headers: dict[str, str]) -> int:
    connection.request("POST", path, body, headers)
    response = connection.getresponse()
    response.read(_MAX_ANSWER_BYTES)
    if response.status < 200 or not response.isclosed():  # more is to come that nobody wants
        connection.close()
    return response.status
