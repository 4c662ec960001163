"""The words of a delivery: an entry of a backlog, who holds it, by what policy, what was asked for and what came."""

from dataclasses import dataclass
from enum import Enum
from typing import Any


class State(Enum):
    READY = 1
    DELAYED = 2
    """Backing off after a failed delivery."""
    LEASED = 3
    WAITING = 4
    """Behind an earlier message with the same ordering key."""


@dataclass(slots=True)
class Holder:
    """Who leases: a stream, a push endpoint. Counts what it has outstanding, for flow control."""

    messages: int = 0
    bytes: int = 0


@dataclass(slots=True)
class Entry:
    seq: int
    message: Any
    """A `PubsubMessage`, shared between subscriptions: never changed."""
    published: float
    size: int
    key: str
    state: State = State.WAITING
    attempts: int = 0
    """Deliveries that failed, and the present one."""
    deliveries: int = 0
    ack_id: str = ""
    """Of the latest delivery; good until the next one, also after its deadline."""
    deadline: float = 0.0
    not_before: float = 0.0
    holder: Holder | None = None


@dataclass(frozen=True)
class Policy:
    """The parts of a Subscription that decide on deliveries; seconds."""

    ack_deadline: float = 10.0
    ordered: bool = False
    min_backoff: float = 0.0
    max_backoff: float = 0.0
    """0: at once."""
    max_attempts: int = 0
    """0: no dead letters."""
    retention: float = 7 * 86400.0
    retain_acked: bool = False

    def backoff(self, attempts: int) -> float:
        """Exponential: the minimum after the first failure, doubled after each further one, up to the maximum."""
        return min(self.max_backoff, self.min_backoff * 2.0 ** min(attempts - 1, 40))


@dataclass(frozen=True)
class Delivery:
    ack_id: str
    message: Any
    attempt: int
    """1 at first; 0 where there is no dead-letter policy."""


@dataclass(frozen=True)
class Ask:
    """What a subscriber wants to lease."""

    messages: int
    bytes: int
    """A single message that is larger comes alone."""
    seconds: float
    several_of_a_key: bool = True
    """Messages of one ordering key together: not to a push endpoint, whose requests run at the same time."""
