"""One subscription's messages against a simple model: nothing is lost, nothing overtakes, nothing comes too early."""

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from deploy.local.pubsub.backlog import Backlog
from deploy.local.pubsub.deliveries import Ask, Delivery, Entry, Holder, Policy


@dataclass
class Message:
    data: bytes
    ordering_key: str = ""


@dataclass
class Trial:
    """A backlog and what it forwarded."""

    policy: Policy
    can_forward: bool = True
    forwarded: list[Entry] = field(default_factory=list)
    sequence: int = 0

    def __post_init__(self) -> None:
        self.backlog = Backlog(self.policy, self._forward, tag="t")
        self.holder = Holder()

    def _forward(self, entry: Entry) -> bool:
        if self.can_forward:
            self.forwarded.append(entry)
        return self.can_forward

    def add(self, data: bytes, key: str = "", now: float = 0.0, size: int = 10) -> None:
        self.sequence += 1
        self.backlog.add(self.sequence, Message(data, key), size, now)

    def lease(self, now: float = 0.0, count: int = 100, **ask: Any) -> list[Delivery]:
        return self.backlog.lease(Ask(**{"messages": count, "bytes": 10**9, "seconds": 10.0, **ask}), self.holder, now)


def datas(batch: list[Delivery]) -> list[bytes]:
    return [delivery.message.data for delivery in batch]


def test_a_lease_ends_at_its_deadline() -> None:
    trial = Trial(Policy())
    trial.add(b"a")
    assert datas(trial.lease(now=0)) == [b"a"]
    assert trial.lease(now=9.99) == []
    assert datas(trial.lease(now=10)) == [b"a"]


def test_an_extension_moves_the_deadline_and_an_older_one_is_void() -> None:
    trial = Trial(Policy())
    trial.add(b"a")
    [delivery] = trial.lease(now=0)
    trial.backlog.modify([delivery.ack_id], 60, now=5)
    assert trial.lease(now=11) == []
    assert datas(trial.lease(now=65)) == [b"a"]
    trial.backlog.modify([delivery.ack_id], 0, now=66)  # of the first delivery: void
    assert trial.lease(now=67) == []


def test_a_late_acknowledgement_counts_until_the_next_delivery() -> None:
    trial = Trial(Policy())
    trial.add(b"a")
    trial.add(b"b")
    first = trial.lease(now=0)
    trial.backlog.tick(now=20)
    trial.backlog.ack([first[0].ack_id], now=20)
    assert datas(trial.lease(now=21)) == [b"b"]
    trial.backlog.ack([first[1].ack_id], now=22)
    assert len(trial.backlog) == 1, "b was delivered again since"


def test_a_batch_respects_its_bytes_but_a_large_message_comes_alone() -> None:
    trial = Trial(Policy())
    for data in (b"a", b"b", b"c"):
        trial.add(data, size=40)
    assert datas(trial.lease(bytes=90)) == [b"a", b"b"]
    assert datas(trial.lease(bytes=1)) == [b"c"]


def test_the_back_off_doubles_up_to_its_maximum() -> None:
    policy = Policy(min_backoff=10, max_backoff=35)
    assert [policy.backoff(attempts) for attempts in (1, 2, 3, 4, 5000)] == [10, 20, 35, 35, 35]
    trial = Trial(policy)
    trial.add(b"a")
    [delivery] = trial.lease(now=0)
    trial.backlog.modify([delivery.ack_id], 0, now=0)
    assert trial.backlog.next_due() == 10
    assert trial.lease(now=9.9) == []
    assert datas(trial.lease(now=10)) == [b"a"]


def test_a_message_is_forwarded_after_its_attempts_or_kept_if_it_cannot_be() -> None:
    trial = Trial(Policy(max_attempts=5), can_forward=False)
    trial.add(b"a")
    for attempt in range(1, 7):
        [delivery] = trial.lease()
        assert delivery.attempt == attempt
        trial.can_forward = attempt >= 6
        trial.backlog.modify([delivery.ack_id], 0, now=0)
    assert [entry.attempts for entry in trial.forwarded] == [6]
    assert (len(trial.backlog), trial.backlog.bytes, trial.holder) == (0, 0, Holder())


def test_retention_ends_a_messages_life_also_while_it_is_leased() -> None:
    trial = Trial(Policy(retention=600))
    trial.add(b"a", now=0)
    trial.lease(now=595)
    trial.backlog.tick(now=600)
    assert (len(trial.backlog), trial.backlog.bytes, trial.holder) == (0, 0, Holder())


def test_memory_does_not_grow_with_what_went_through() -> None:
    trial = Trial(Policy(ordered=True))
    trial.add(b"stays")
    trial.lease(seconds=600.0)
    for index in range(5000):
        trial.add(b"x", key=f"k{index % 3}")
        [delivery] = trial.lease(seconds=600.0)
        trial.backlog.modify([delivery.ack_id], 300, now=0)
        trial.backlog.ack([delivery.ack_id], now=0)
    trial.backlog.tick(now=0)
    backlog = trial.backlog
    parts = (backlog._entries, backlog._acked, backlog._keys, backlog._ready, backlog._delayed, backlog._deadlines)
    assert sum(len(part) for part in parts) < 2000
    assert datas(trial.lease(now=600)) == [b"stays"], "its deadline was not lost"


def test_keyed_messages_come_together_in_order_but_not_to_a_second_lease() -> None:
    trial = Trial(Policy(ordered=True))
    for data in (b"1", b"2", b"3"):
        trial.add(data, key="k")
    assert datas(trial.lease(count=2)) == [b"1", b"2"]
    assert trial.lease() == []


def test_an_endpoint_gets_one_of_a_key_at_a_time() -> None:
    trial = Trial(Policy(ordered=True))
    for data in (b"1", b"2"):
        trial.add(data, key="k")
    batch = trial.lease(several_of_a_key=False)
    assert datas(batch) == [b"1"]
    trial.backlog.ack([batch[0].ack_id], now=0)
    assert datas(trial.lease(several_of_a_key=False)) == [b"2"]


def test_a_failed_message_takes_those_behind_it_back_without_an_attempt_of_theirs() -> None:
    trial = Trial(Policy(ordered=True, max_attempts=5))
    for data in (b"1", b"2", b"3"):
        trial.add(data, key="k")
    batch = trial.lease()
    trial.backlog.modify([batch[1].ack_id], 0, now=0)
    assert trial.lease() == [], "1 is still out"
    trial.backlog.ack([batch[0].ack_id], now=0)
    again = trial.lease()
    assert [(one.message.data, one.attempt) for one in again] == [(b"2", 2), (b"3", 1)]


@pytest.mark.parametrize("ack_id", ["", "t", "t:1", "other:1:1", "t:x:1", "t:1:-1"])
def test_a_foreign_id_is_an_error(ack_id: str) -> None:
    trial = Trial(Policy())
    with pytest.raises(ValueError):
        trial.backlog.ack([ack_id], now=0)


class Deliveries(RuleBasedStateMachine):
    """Random publishing, leasing, acknowledging, refusing and waiting."""

    keys = st.sampled_from(["", "k", "l"])

    @initialize(
        ordered=st.booleans(), backoff=st.sampled_from([0.0, 3.0]), attempts=st.sampled_from([0, 5]), can=st.booleans()
    )
    def begin(self, ordered: bool, backoff: float, attempts: int, can: bool) -> None:
        policy = Policy(ordered=ordered, min_backoff=backoff, max_backoff=8 * backoff, max_attempts=attempts)
        self.trial = Trial(policy, can_forward=can)
        self.now = 0.0
        self.published: dict[bytes, str] = {}
        self.acked: list[bytes] = []
        self.out: dict[str, tuple[bytes, float]] = {}
        """Our deliveries: ack id to data and deadline."""

    def current(self) -> dict[str, tuple[bytes, float]]:
        return {ack_id: held for ack_id, held in self.out.items() if held[1] > self.now}

    @rule(key=keys)
    def publish(self, key: str) -> None:
        data = b"%d" % len(self.published)
        self.published[data] = key if self.trial.policy.ordered else ""
        self.trial.add(data, key, self.now)

    @rule(count=st.integers(1, 4), several=st.booleans())
    def lease(self, count: int, several: bool) -> None:
        batch = self.trial.lease(self.now, count, several_of_a_key=several)
        held = [data for data, _ in self.current().values()]
        for delivery in batch:
            data = delivery.message.data
            assert data not in self.acked
            if not self.published[data]:
                assert data not in held, "leased twice at the same time"
            self.out[delivery.ack_id] = (data, self.now + 10)
        for key in set(self.published.values()) - {""}:
            order = [int(data) for data in datas(batch) if self.published[data] == key]
            assert order == sorted(order)
            gone = {*self.acked, *(entry.message.data for entry in self.trial.forwarded)}
            waiting = [int(data) for data, its in self.published.items() if its == key and data not in gone]
            assert order == waiting[: len(order)], "something overtook"

    @rule(pick=st.randoms(use_true_random=False), action=st.sampled_from(["ack", "nack", "extend"]))
    def settle(self, pick: Any, action: str) -> None:
        if not self.out:
            return
        ack_id = pick.choice(sorted(self.out))
        data, _ = self.out[ack_id]
        before = len(self.trial.backlog)
        if action == "ack":
            self.trial.backlog.ack([ack_id], self.now)
            if len(self.trial.backlog) < before:
                self.acked.append(data)
            else:
                assert data in self.acked or self.redelivered(ack_id, data) or data in self.forwarded()
            del self.out[ack_id]
        elif action == "nack":
            self.trial.backlog.modify([ack_id], 0, self.now)
            self.out[ack_id] = (data, self.now)
        elif self.out[ack_id][1] > self.now:
            self.trial.backlog.modify([ack_id], 10, self.now)
            self.out[ack_id] = (data, self.now + 10)

    def redelivered(self, ack_id: str, data: bytes) -> bool:
        mine = int(ack_id.rpartition(":")[2])
        return self.trial.backlog._entries[int(data) + 1].deliveries > mine

    def forwarded(self) -> list[bytes]:
        return [entry.message.data for entry in self.trial.forwarded]

    @rule(seconds=st.sampled_from([0.5, 5.0, 30.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.trial.backlog.tick(self.now)

    @invariant()
    def accounts_balance(self) -> None:
        if not hasattr(self, "trial"):
            return
        forwarded = self.forwarded()
        assert len(forwarded) == len(set(forwarded))
        assert len(self.trial.backlog) == len(self.published) - len(self.acked) - len(forwarded)
        assert self.trial.backlog.bytes == 10 * len(self.trial.backlog)
        assert 0 <= self.trial.holder.messages <= len(self.trial.backlog)
        assert self.trial.holder.bytes == 10 * self.trial.holder.messages

    def teardown(self) -> None:
        """Whatever happened, a patient subscriber gets the rest."""
        if not hasattr(self, "trial"):
            return
        for _ in range(200):
            if not len(self.trial.backlog):
                break
            self.now += 100
            batch = self.trial.lease(self.now)
            self.trial.backlog.ack([delivery.ack_id for delivery in batch], self.now)
        assert len(self.trial.backlog) == 0, "a message got stuck"


TestDeliveries = Deliveries.TestCase
TestDeliveries.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)
