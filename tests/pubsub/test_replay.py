"""Dead letters sent again, over the emulator with the stock clients."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kickoff.errors import KickoffError

from deploy import replay as module
from deploy.local.pubsub.server import PubSubServer
from deploy.replay import Letter, build_copy, replay, replay_dead_letters
from tests.pubsub.emulators import Clients, Endpoint, wait_for

pytestmark = pytest.mark.filterwarnings("ignore:The return_immediately flag")

AT_ONCE = {"minimum_backoff": {"seconds": 0}, "maximum_backoff": {"seconds": 0}}


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PULL_SECONDS", 0.5)


class Poisoned:
    """A push subscription with a dead-letter topic, and a subscription to that."""

    def __init__(self, clients: Clients, endpoint: Endpoint, **settings: Any) -> None:
        self.topic, self.letters = clients.topic(), clients.topic()
        self.dead = clients.subscription(self.letters)
        policy = {"dead_letter_topic": self.letters, "max_delivery_attempts": 5}
        push = {"push_endpoint": endpoint.url}
        self.name = clients.subscription(
            self.topic, push_config=push, dead_letter_policy=policy, retry_policy=AT_ONCE, **settings
        )


def test_after_the_fix_every_letter_is_delivered_as_it_was(ours: Clients, endpoint: Endpoint) -> None:
    poisoned = Poisoned(ours, endpoint)
    endpoint.statuses = [500]
    # Attribute names that are also parameters of the client's own publish.
    attributes = {"data": "d", "topic": "t", "kind": "x"}
    ours.publish_messages(poisoned.topic, [{"data": body, "attributes": attributes} for body in (b"\x00one", b"two")])
    endpoint.wait(10)
    letters = ours.pull(poisoned.dead, 2)
    assert len(letters) == 2
    ours.nack(poisoned.dead, letters)

    endpoint.statuses = [200]
    outcome = replay(ours.subscriber, ours.publisher, poisoned.dead)
    assert (len(outcome.sent), outcome.kept) == (2, {})
    assert set(outcome.sent) == {letter.message.message_id for letter in letters}
    endpoint.wait(12)
    bodies = [request.body for request in endpoint.requests[10:]]
    assert all(b'"attributes": {' in body and b"CloudPubSubDeadLetter" not in body for body in bodies)
    assert sum(b'"kind": "x"' in body and b'"topic": "t"' in body for body in bodies) == 2
    assert all(b'"deliveryAttempt": 1' in body for body in bodies)
    assert replay(ours.subscriber, ours.publisher, poisoned.dead).sent == {}


def test_what_fails_again_is_not_sent_round_and_round(ours: Clients, endpoint: Endpoint) -> None:
    poisoned = Poisoned(ours, endpoint)
    endpoint.statuses = [500]
    ours.publish(poisoned.topic, b"incurable")
    endpoint.wait(5)
    outcome = replay(ours.subscriber, ours.publisher, poisoned.dead)
    assert len(outcome.sent) == 1
    endpoint.wait(10)
    [letter] = ours.pull(poisoned.dead)
    assert letter.message.message_id not in outcome.sent
    assert len(endpoint.requests) == 10


def test_a_letter_that_cannot_be_sent_stays(ours: Clients, endpoint: Endpoint) -> None:
    poisoned = Poisoned(ours, endpoint)
    endpoint.statuses = [500]
    ours.publish(poisoned.topic, b"orphan")
    wait_for(lambda: len(endpoint.requests) >= 5)
    ours.publish(poisoned.letters, b"not a letter at all")
    ours.publisher.delete_topic(topic=poisoned.topic)
    outcome = replay(ours.subscriber, ours.publisher, poisoned.dead)
    assert outcome.sent == {}
    assert sorted(outcome.kept.values()) == [
        "it does not say which subscription gave it up; name the topic",
        f"the topic of {poisoned.name} was deleted; name another",
    ]
    assert len(ours.pull(poisoned.dead, 2)) == 2, "given back at once"


def test_only_so_many_and_only_those_selected_are_sent_to_the_topic_named(ours: Clients) -> None:
    letters, target = ours.topic(), ours.topic()
    dead, received = ours.subscription(letters), ours.subscription(target)
    ours.publish(letters, *[b"%d" % index for index in range(6)])
    outcome = replay(
        ours.subscriber, ours.publisher, dead, topic=target, limit=2, select=lambda letter: int(letter.data) % 2 == 1
    )
    assert len(outcome.sent) == 2
    assert sorted(one.message.data for one in ours.pull(received, 2)) == [b"1", b"3"]
    assert len(ours.pull(dead, 4)) == 4


def test_a_letter_is_acknowledged_only_after_its_copy_is_published(
    ours: Clients, monkeypatch: pytest.MonkeyPatch
) -> None:
    letters, target = ours.topic(), ours.topic()
    dead, received = ours.subscription(letters), ours.subscription(target)
    ours.publish(letters, b"x")

    ids: list[str] = []

    def crash(subscription: str, ack_ids: list[str]) -> None:
        ids.extend(ack_ids)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(ours.subscriber, "acknowledge", crash)
        with pytest.raises(KeyboardInterrupt):
            replay(ours.subscriber, ours.publisher, dead, topic=target)
    assert [one.message.data for one in ours.pull(received)] == [b"x"]
    ours.subscriber.modify_ack_deadline(subscription=dead, ack_ids=ids, ack_deadline_seconds=0)
    assert [one.message.data for one in ours.pull(dead)] == [b"x"], "it is still there: doubled, not lost"


def test_the_command_uses_short_names_and_says_what_stays(
    ours: Clients, server: PubSubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PUBSUB_EMULATOR_HOST", server.endpoint)
    letters, target = ours.topic(), ours.topic()
    _, project, _, short = ours.subscription(letters).split("/")
    ours.publish(letters, b"a", b"b")
    assert replay_dead_letters(project, short, target.rpartition("/")[2]) == 2
    ours.publish(letters, b"c")
    with pytest.raises(KickoffError, match=r"0 dead letters were sent again; these stay:\n.*absent"):
        replay_dead_letters(project, short, "absent")


@given(st.dictionaries(st.text(min_size=1, max_size=20), st.text(max_size=5), max_size=4), st.binary(), st.text())
def test_a_copy_has_the_messages_own_attributes_and_no_others(own: dict[str, str], data: bytes, key: str) -> None:
    own = {name: value for name, value in own.items() if not name.startswith("CloudPubSubDeadLetter")}
    marks = {
        "CloudPubSubDeadLetterSourceSubscription": "s",
        "CloudPubSubDeadLetterSourceSubscriptionProject": "p",
        "CloudPubSubDeadLetterSourceDeliveryCount": "5",
    }
    letter = Letter("1", data, {**own, **marks}, key, published=None)  # type: ignore[arg-type]
    assert letter.source == "projects/p/subscriptions/s"
    assert build_copy(letter) == {"data": data, "attributes": own, "ordering_key": key}
