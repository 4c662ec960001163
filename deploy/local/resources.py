"""Buckets, topics and push subscriptions of the local stack, made with the official clients.

The same names as `deploy/gcp` makes in the cloud.
"""

import contextlib
from collections.abc import Iterable, Mapping
from typing import Any

from deploy.names import BUCKETS, DEAD_LETTERED, SUBSCRIPTIONS, TOPICS, dead_letter, pull

_ACK_DEADLINE = 600
_MIN_BACKOFF = 1
_MAX_BACKOFF = 60
_MAX_DELIVERY_ATTEMPTS = 10


def create_buckets(endpoint: str, project: str, region: str) -> None:
    """Make the project's buckets at the Cloud Storage emulator."""
    from google.auth.credentials import AnonymousCredentials
    from google.cloud import storage

    client = storage.Client(
        project=project, credentials=AnonymousCredentials(), client_options={"api_endpoint": endpoint}
    )
    for suffix in BUCKETS:
        client.create_bucket(f"{project}-{suffix}", location=region)


def create_topics(address: str, project: str, functions: Mapping[str, str]) -> None:
    """Make topics, their dead letters, and push subscriptions to the functions' URLs. Idempotent.

    Subscriptions of an earlier stack, in an emulator that outlived it, push to this one's functions from now on.
    """
    import grpc
    from google.api_core.exceptions import AlreadyExists
    from google.pubsub_v1 import PublisherClient, SubscriberClient
    from google.pubsub_v1.services.publisher.transports import PublisherGrpcTransport
    from google.pubsub_v1.services.subscriber.transports import SubscriberGrpcTransport

    with grpc.insecure_channel(address) as channel:
        publisher = PublisherClient(transport=PublisherGrpcTransport(channel=channel))
        subscriber = SubscriberClient(transport=SubscriberGrpcTransport(channel=channel))
        for topic in TOPICS:
            with contextlib.suppress(AlreadyExists):
                publisher.create_topic(request={"name": f"projects/{project}/topics/{topic}"})
        for request in build_subscriptions(project, functions):
            try:
                subscriber.create_subscription(request=request)
            except AlreadyExists:
                push = {"subscription": request["name"], "push_config": request.get("push_config", {})}
                subscriber.modify_push_config(request=push)


def build_subscriptions(project: str, functions: Mapping[str, str]) -> Iterable[dict[str, Any]]:
    """The requests that make every push subscription, that of the ends of runs, and one on every dead letter."""
    for topic in DEAD_LETTERED:
        function = SUBSCRIPTIONS.get(topic)
        yield {
            "name": f"projects/{project}/subscriptions/{f'{topic}-push' if function else pull(topic)}",
            "topic": f"projects/{project}/topics/{topic}",
            "ack_deadline_seconds": _ACK_DEADLINE,
            **({"push_config": {"push_endpoint": functions[function]}} if function else {}),
            "retry_policy": {
                "minimum_backoff": {"seconds": _MIN_BACKOFF},
                "maximum_backoff": {"seconds": _MAX_BACKOFF},
            },
            "dead_letter_policy": {
                "dead_letter_topic": f"projects/{project}/topics/{dead_letter(topic)}",
                "max_delivery_attempts": _MAX_DELIVERY_ATTEMPTS,
            },
        }
        yield {
            "name": f"projects/{project}/subscriptions/{dead_letter(topic)}",
            "topic": f"projects/{project}/topics/{dead_letter(topic)}",
        }
