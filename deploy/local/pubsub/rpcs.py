"""The unary methods of the two services, by name: what gRPC and REST both dispatch on."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from deploy.local.pubsub.api import Api, Call, pb


@dataclass(frozen=True)
class Rpc:
    """One unary method of a service."""

    service: str
    name: str
    request: Any
    answer: Callable[[Api, Any, Call], Any]


def _rpcs() -> list[Rpc]:
    publisher = [
        ("CreateTopic", "Topic", Api.create_topic),
        ("UpdateTopic", "UpdateTopicRequest", Api.update_topic),
        ("GetTopic", "GetTopicRequest", Api.get_topic),
        ("ListTopics", "ListTopicsRequest", Api.list_topics),
        ("ListTopicSubscriptions", "ListTopicSubscriptionsRequest", Api.list_topic_subscriptions),
        ("DeleteTopic", "DeleteTopicRequest", Api.delete_topic),
        ("Publish", "PublishRequest", Api.publish),
        ("DetachSubscription", "DetachSubscriptionRequest", Api.detach_subscription),
    ]
    subscriber = [
        ("CreateSubscription", "Subscription", Api.create_subscription),
        ("UpdateSubscription", "UpdateSubscriptionRequest", Api.update_subscription),
        ("ModifyPushConfig", "ModifyPushConfigRequest", Api.modify_push_config),
        ("GetSubscription", "GetSubscriptionRequest", Api.get_subscription),
        ("ListSubscriptions", "ListSubscriptionsRequest", Api.list_subscriptions),
        ("DeleteSubscription", "DeleteSubscriptionRequest", Api.delete_subscription),
        ("Pull", "PullRequest", Api.pull),
        ("Acknowledge", "AcknowledgeRequest", Api.acknowledge),
        ("ModifyAckDeadline", "ModifyAckDeadlineRequest", Api.modify_ack_deadline),
        ("Seek", "SeekRequest", Api.seek),
    ]
    return [
        Rpc(service, name, pb(request), answer)
        for service, methods in (("Publisher", publisher), ("Subscriber", subscriber))
        for name, request, answer in methods
    ]


RPCS: dict[str, Rpc] = {rpc.name: rpc for rpc in _rpcs()}
