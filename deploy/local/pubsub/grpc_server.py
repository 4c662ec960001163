"""The gRPC face: generic handlers, so that no generated service code is needed beyond google-cloud-pubsub's types."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
from google.pubsub_v1 import types

from deploy.local.pubsub.api import PULL_BYTES, Api, build_received, wake
from deploy.local.pubsub.deliveries import Ask, Holder
from deploy.local.pubsub.errors import PubSubError, invalid
from deploy.local.pubsub.rpcs import RPCS, Rpc

MAX_CALLS = 256
"""Calls at once; each open StreamingPull and waiting Pull is one. More get RESOURCE_EXHAUSTED."""

StreamingPullRequest: Any = types.StreamingPullRequest.pb()
StreamingPullResponse: Any = types.StreamingPullResponse.pb()

_OPTIONS = [
    ("grpc.max_receive_message_length", 20 * 1024 * 1024),
    ("grpc.max_send_message_length", 20 * 1024 * 1024),
    ("grpc.so_reuseport", 0),  # a taken port is an error, not shared
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 5000),
    ("grpc.keepalive_permit_without_calls", 1),
]


def build_server(api: Api, address: str, pool: ThreadPoolExecutor) -> tuple[grpc.Server, int]:
    """A server bound to `address` (``host:port``, port 0 for any), and its port. Raises OSError if the port is taken.

    Each call takes a thread of `pool`, which has room for MAX_CALLS.
    """
    server = grpc.server(pool, options=_OPTIONS, maximum_concurrent_rpcs=MAX_CALLS)
    for service in ("Publisher", "Subscriber"):
        methods = {rpc.name: _unary(api, rpc) for rpc in RPCS.values() if rpc.service == service}
        if service == "Subscriber":
            methods["StreamingPull"] = grpc.stream_stream_rpc_method_handler(
                lambda requests, context: _streaming_pull(api, requests, context),
                request_deserializer=StreamingPullRequest.FromString,
                response_serializer=StreamingPullResponse.SerializeToString,
            )
        server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(f"google.pubsub.v1.{service}", methods)])
    try:
        port = server.add_insecure_port(address)
    except RuntimeError as error:
        raise OSError(f"cannot listen on {address}: is the port taken?") from error
    return server, port


class _GrpcCall:
    def __init__(self, context: grpc.ServicerContext) -> None:
        self._context = context

    def ended(self) -> bool:
        return not self._context.is_active()

    def on_end(self, callback: Callable[[], None]) -> None:
        self._context.add_callback(callback)


def _unary(api: Api, rpc: Rpc) -> Any:
    def answer(request: Any, context: grpc.ServicerContext) -> Any:
        try:
            return rpc.answer(api, request, _GrpcCall(context))
        except PubSubError as error:
            context.abort(error.grpc_code, error.message)

    return grpc.unary_unary_rpc_method_handler(
        answer,
        request_deserializer=rpc.request.FromString,
        response_serializer=lambda response: response.SerializeToString(),
    )


def _streaming_pull(api: Api, requests: Iterator[Any], context: grpc.ServicerContext) -> Iterator[Any]:
    try:
        yield from _Stream(api, requests, context).responses()
    except PubSubError as error:
        context.abort(error.grpc_code, error.message)


class _Stream:
    """One StreamingPull. Messages it got and did not acknowledge are delivered again after their deadline."""

    def __init__(self, api: Api, requests: Iterator[Any], context: grpc.ServicerContext) -> None:
        first = next(requests, None)
        if first is None:
            raise invalid("The stream ended before its first request.")
        self._api = api
        self._requests = requests
        self._context = context
        self._subscription = api.pulled(first.subscription)
        self._holder = Holder()
        self._max_messages = first.max_outstanding_messages if first.max_outstanding_messages > 0 else 10**9
        self._max_bytes = first.max_outstanding_bytes if first.max_outstanding_bytes > 0 else 10**12
        self._error: PubSubError | None = None
        self._half_closed = False
        self._set_deadline(first.stream_ack_deadline_seconds)
        self._apply(first)

    def responses(self) -> Iterator[Any]:
        self._context.add_callback(lambda: wake(self._subscription))
        threading.Thread(target=self._read, name="streaming-pull-requests", daemon=True).start()
        resource = self._subscription.resource
        while not self._ended():
            batch = self._subscription.take(self._ask, self._holder, 60.0, self._ended)
            if batch:
                yield StreamingPullResponse(
                    received_messages=[build_received(delivery) for delivery in batch],
                    subscription_properties={"message_ordering_enabled": resource.enable_message_ordering},
                )
            elif self._subscription.closed:
                self._api.pulled(resource.name)  # says what became of it
                raise PubSubError("UNAVAILABLE", "The emulator is stopping.")
        if self._error is not None:
            raise self._error

    def _ask(self) -> Ask:
        messages = min(1000, self._max_messages - self._holder.messages)
        room = self._max_bytes - self._holder.bytes
        return Ask(messages if room > 0 else 0, min(room, PULL_BYTES), self._deadline)

    def _ended(self) -> bool:
        return self._half_closed or self._error is not None or not self._context.is_active()

    def _read(self) -> None:
        """Take in acknowledgements until the client closes its side."""
        try:
            for request in self._requests:
                if request.subscription:
                    raise invalid("subscription must be set in the first request of a stream only")
                if request.stream_ack_deadline_seconds:
                    self._set_deadline(request.stream_ack_deadline_seconds)
                self._apply(request)
        except PubSubError as error:
            self._error = error
        except grpc.RpcError:
            pass  # cancelled
        except Exception:
            if self._context.is_active():
                raise
        self._half_closed = True
        wake(self._subscription)

    def _set_deadline(self, seconds: int) -> None:
        if not 10 <= seconds <= 600:
            raise invalid(f"stream_ack_deadline_seconds is {seconds}; it must be 10 to 600")
        self._deadline = float(seconds)

    def _apply(self, request: Any) -> None:
        if len(request.modify_deadline_seconds) != len(request.modify_deadline_ack_ids):
            raise invalid("modify_deadline_seconds and modify_deadline_ack_ids must have the same length")
        if request.ack_ids:
            self._api.settle(self._subscription, request.ack_ids, None)
        for seconds, ack_id in zip(request.modify_deadline_seconds, request.modify_deadline_ack_ids, strict=True):
            self._api.settle(self._subscription, [ack_id], seconds)
