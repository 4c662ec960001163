"""One subscription's messages: what is ready, leased, delayed, given up. Pure: the clock comes in as `now`.

At least once: a message leaves only by an acknowledgement, the end of its retention, a seek, or by being
forwarded to the dead-letter topic. Times are seconds of one monotonic clock.
"""

import bisect
import heapq
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from deploy.local.pubsub.deliveries import Ask, Delivery, Entry, Holder, Policy, State


@dataclass(slots=True)
class _Key:
    """The messages of one ordering key: those not leased, in order, and those leased."""

    waiting: list[int] = field(default_factory=list)
    leased: set[int] = field(default_factory=set)


class Backlog:
    """Not thread safe: the broker's lock is held around every call.

    `forward(entry)` sends a message to the dead-letter topic and says whether it could.
    """

    def __init__(self, policy: Policy, forward: Callable[[Entry], bool], tag: str = "") -> None:
        self.policy = policy
        self.bytes = 0
        self._tag = tag
        self._forward = forward
        self._entries: dict[int, Entry] = {}
        self._acked: dict[int, Entry] = {}
        self._keys: dict[str, _Key] = {}
        self._ready: list[int] = []
        self._delayed: list[tuple[float, int]] = []
        self._deadlines: list[tuple[float, int]] = []

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, seq: int, message: Any, size: int, now: float) -> None:
        entry = Entry(seq, message, now, size, message.ordering_key if self.policy.ordered else "")
        self.bytes += size
        self._insert(entry, now)

    def lease(self, ask: Ask, holder: Holder, now: float) -> list[Delivery]:
        """Messages for `holder`, oldest first.

        Messages of one ordering key come in order, and further ones only once all earlier ones are acknowledged.
        """
        self.tick(now)
        batch: list[Delivery] = []
        followers: list[Entry] = []
        size = 0
        while len(batch) < ask.messages and (entry := self._peek()):
            if batch and size + entry.size > ask.bytes:
                break
            heapq.heappop(self._ready)
            size += entry.size
            batch.append(self._grant(entry, ask.seconds, holder, now))
            if (
                ask.several_of_a_key
                and entry.key
                and (follower := self._head(entry.key))
                and follower.not_before <= now
            ):
                self._make_ready(follower)
                followers.append(follower)
        for follower in followers:  # those that did not fit wait for the acknowledgement of the others
            if follower.state is State.READY:
                follower.state = State.WAITING
        return batch

    def ack(self, ack_ids: Iterable[str], now: float) -> None:
        """Ids that are out of date are passed over, as Pub/Sub does. Raises ValueError for a foreign id."""
        for entry in [self._find(ack_id) for ack_id in dict.fromkeys(ack_ids)]:
            if entry is not None:
                self._remove(entry, now, acked=True)

    def modify(self, ack_ids: Iterable[str], seconds: float, now: float) -> None:
        """Extend the leases to `seconds` from now; 0 gives the messages back. Raises ValueError for a foreign id."""
        for entry in [self._find(ack_id) for ack_id in ack_ids]:
            if entry is None or entry.state is not State.LEASED:
                continue
            if seconds:
                entry.deadline = now + seconds
                heapq.heappush(self._deadlines, (entry.deadline, entry.seq))
            else:
                self._fail(entry, now)

    def tick(self, now: float) -> None:
        """End what is due: leases, back-offs, retention."""
        while self._deadlines and self._deadlines[0][0] <= now:
            deadline, seq = heapq.heappop(self._deadlines)
            entry = self._entries.get(seq)
            if entry and entry.state is State.LEASED and entry.deadline == deadline:
                self._fail(entry, now)
        while self._delayed and self._delayed[0][0] <= now:
            not_before, seq = heapq.heappop(self._delayed)
            entry = self._entries.get(seq)
            if entry and entry.state is State.DELAYED and entry.not_before == not_before:
                self._make_ready(entry)
        if len(self._deadlines) > 4 * len(self._entries) + 1000:  # mostly of leases that ended otherwise
            leased = (entry for entry in self._entries.values() if entry.state is State.LEASED)
            self._deadlines = [(entry.deadline, entry.seq) for entry in leased]
            heapq.heapify(self._deadlines)
        for entries in (self._entries, self._acked):
            while entries and (oldest := next(iter(entries.values()))).published + self.policy.retention <= now:
                self._drop(oldest, now)

    def next_due(self) -> float | None:
        """When `tick` may have something to do."""
        return min((heap[0][0] for heap in (self._deadlines, self._delayed) if heap), default=None)

    def seek(self, published_before: Callable[[Any], bool], now: float) -> None:
        """Acknowledge the messages for which `published_before` holds, make all others unacknowledged."""
        everything = sorted([*self._acked.values(), *self._entries.values()], key=lambda entry: entry.seq)
        self.clear()
        for entry in everything:
            fresh = Entry(entry.seq, entry.message, entry.published, entry.size, entry.key, deliveries=entry.deliveries)
            if not published_before(entry.message):
                self.bytes += entry.size
                self._insert(fresh, now)
            elif self.policy.retain_acked:
                self.bytes += entry.size
                self._acked[entry.seq] = fresh

    def clear(self) -> None:
        for entry in self._entries.values():
            self._unlease(entry)
        for container in (self._entries, self._acked, self._keys, self._ready, self._delayed, self._deadlines):
            container.clear()
        self.bytes = 0

    # What follows moves single entries between the states.

    def _insert(self, entry: Entry, now: float) -> None:
        self._entries[entry.seq] = entry
        if entry.key:
            self._keys.setdefault(entry.key, _Key()).waiting.append(entry.seq)
            self._offer(entry.key, now)
        else:
            self._make_ready(entry)

    def _make_ready(self, entry: Entry) -> None:
        entry.state = State.READY
        heapq.heappush(self._ready, entry.seq)

    def _peek(self) -> Entry | None:
        """The oldest ready entry; what the heap still names but is no longer ready is dropped."""
        while self._ready:
            entry = self._entries.get(self._ready[0])
            if entry and entry.state is State.READY:
                return entry
            heapq.heappop(self._ready)
        return None

    def _head(self, key: str) -> Entry | None:
        waiting = self._keys[key].waiting if key in self._keys else []
        return self._entries[waiting[0]] if waiting else None

    def _offer(self, key: str, now: float) -> None:
        """Make the key's first message ready, or delayed, if none of the key's is outstanding."""
        head = self._head(key)
        if head is None:
            if key in self._keys and not self._keys[key].leased:
                del self._keys[key]
        elif not self._keys[key].leased and head.state is State.WAITING:
            self._schedule(head, now)

    def _schedule(self, entry: Entry, now: float) -> None:
        if entry.not_before > now:
            entry.state = State.DELAYED
            heapq.heappush(self._delayed, (entry.not_before, entry.seq))
        else:
            self._make_ready(entry)

    def _grant(self, entry: Entry, seconds: float, holder: Holder, now: float) -> Delivery:
        entry.state = State.LEASED
        entry.attempts += 1
        entry.deliveries += 1
        entry.ack_id = f"{self._tag}:{entry.seq}:{entry.deliveries}"
        entry.deadline = now + seconds
        entry.holder = holder
        holder.messages += 1
        holder.bytes += entry.size
        heapq.heappush(self._deadlines, (entry.deadline, entry.seq))
        if entry.key:
            self._keys[entry.key].waiting.remove(entry.seq)
            self._keys[entry.key].leased.add(entry.seq)
        return Delivery(entry.ack_id, entry.message, entry.attempts if self.policy.max_attempts else 0)

    def _unlease(self, entry: Entry) -> None:
        if entry.holder is not None:
            entry.holder.messages -= 1
            entry.holder.bytes -= entry.size
            entry.holder = None

    def _fail(self, entry: Entry, now: float) -> None:
        """A delivery was refused or its deadline passed: forward, or deliver again after the back-off."""
        exhausted = self.policy.max_attempts and entry.attempts >= self.policy.max_attempts
        entry.not_before = now + self.policy.backoff(entry.attempts)
        self._give_back(entry)
        if entry.key:
            # What was delivered behind it is delivered again behind it; that is no failure of its own.
            for seq in sorted(later for later in self._keys[entry.key].leased if later > entry.seq):
                self._entries[seq].attempts -= 1
                self._give_back(self._entries[seq])
        if exhausted and self._forward(entry):
            self._remove(entry, now)
        elif entry.key:
            self._offer(entry.key, now)
        else:
            self._schedule(entry, now)

    def _give_back(self, entry: Entry) -> None:
        self._unlease(entry)
        entry.state = State.WAITING
        if entry.key:
            self._keys[entry.key].leased.discard(entry.seq)
            bisect.insort(self._keys[entry.key].waiting, entry.seq)

    def _drop(self, entry: Entry, now: float) -> None:
        if self._acked.pop(entry.seq, None):
            self.bytes -= entry.size
        else:
            self._remove(entry, now)

    def _remove(self, entry: Entry, now: float, acked: bool = False) -> None:
        self._unlease(entry)
        del self._entries[entry.seq]
        if acked and self.policy.retain_acked:
            self._acked[entry.seq] = entry
        else:
            self.bytes -= entry.size
        if entry.key:
            key = self._keys[entry.key]
            key.leased.discard(entry.seq)
            if entry.seq in key.waiting:
                key.waiting.remove(entry.seq)
            self._offer(entry.key, now)

    def _find(self, ack_id: str) -> Entry | None:
        tag, _, rest = ack_id.partition(":")
        seq, _, deliveries = rest.partition(":")
        if tag != self._tag or not (seq.isdecimal() and deliveries.isdecimal()):
            raise ValueError(ack_id)
        entry = self._entries.get(int(seq))
        return entry if entry and entry.ack_id == ack_id else None
