"""What a ledger does. Two implementations, sqlite.py and firestore.py, pass one test suite.

Every write is one atomic step with a precondition, none is a transaction that others can hold up.
Reads see every write that returned before them. Every method raises LedgerUnavailable when the store
cannot answer; then a write may or may not have happened, and doing it again is safe.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Protocol

from kickoff.runs import Run, State

SLOTS = "slots"
"""The collection of `max_active` slots: see slots.py."""

EXPIRING = {"epochs": timedelta(days=400)}
"""Collections of bulky details, and how long the cloud's ledger keeps each document after its last write.

The record of a run, which has its final figures, its key and everything that makes a request one job never expire.
"""

MAX_BYTES = 1_000_000
"""Of one record as JSON; Firestore's own limit is 1 MiB. https://cloud.google.com/firestore/quotas"""


class AlreadyExists(Exception):
    """Someone else made it first. A normal outcome of a race, not a KickoffError."""


class Conflict(Exception):
    """It changed since it was read: read it again and decide anew."""


@dataclass(frozen=True)
class Document:
    """A small record: a hold, a slot, an epoch, a cursor, an activation, the pause switch."""

    collection: str
    id: str
    data: dict[str, Any]
    """JSON values only."""
    version: str
    """The ledger's token for compare-and-set."""
    updated: datetime


class Ledger(Protocol):
    def create_run(self, run: Run) -> Run:
        """Create the record, or raise AlreadyExists; nothing retries inside, so that is never one's own lost answer."""

    def get_run(self, run_id: str) -> Run | None: ...

    def replace_run(self, run: Run, *, claim: Sequence[str] = ()) -> Run:
        """Write `run` if its `version` is still the stored one, else raise Conflict.

        Slots go with the record, in the same atomic write: those named by `claim` are created, owned by the run
        (AlreadyExists, and nothing written, when one is taken) and added to `run.slots`; a run that is written in a
        state other than SUBMITTING, SUBMITTED or RUNNING gives all its slots back. So no slot can leak.
        """

    def find_runs(
        self,
        *,
        states: Collection[State] = (),
        recipe: str = "",
        due_before: datetime | None = None,
        job_id: str = "",
        oldest_first: bool = False,
        limit: int = 100,
        after: str = "",
    ) -> list[Run]:
        """Runs that match every filter given, newest `created` first, at most `limit`.

        `after` is the id of the last run of the page before. `due_before`: only runs whose `due` is at or
        before it, in the order of `due` (no paging there: what is worked off leaves the list).
        """

    def count_runs(self, *, states: Collection[State] = (), recipe: str = "") -> int: ...

    def create_document(self, collection: str, id: str, data: dict[str, Any]) -> Document:
        """Raises AlreadyExists, also when the document there has the same content."""

    def get_document(self, collection: str, id: str) -> Document | None: ...

    def replace_document(self, document: Document) -> Document:
        """Write `document.data` if `document.version` is still the stored one, else raise Conflict."""

    def delete_document(self, document: Document) -> None:
        """Delete it if `document.version` is still the stored one, else raise Conflict. Gone already: fine."""

    def list_documents(self, collection: str, *, prefix: str = "", limit: int = 100, after: str = "") -> list[Document]:
        """Documents whose id begins with `prefix` and comes after `after`, in the order of ids (code points)."""

    def close(self) -> None: ...
