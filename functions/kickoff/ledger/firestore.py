"""Run records in Firestore (native mode), by preconditions alone: no transaction, no document that many write.

Composite indexes are declared in firestore.indexes.json beside this file.
Errors and quotas: https://cloud.google.com/firestore/docs/understand-error-codes
"""

import hashlib
import json
import re
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from google.api_core import exceptions
from google.api_core.datetime_helpers import DatetimeWithNanoseconds
from google.api_core.retry import Retry, if_exception_type
from google.auth.exceptions import GoogleAuthError
from google.cloud import firestore
from google.cloud.firestore_v1.base_query import FieldFilter

from kickoff.errors import LedgerUnavailable
from kickoff.ledger.protocol import EXPIRING, SLOTS, AlreadyExists, Conflict, Document
from kickoff.ledger.records import decode_run, decode_runs, encode_data, encode_run, index_fields, sortable, with_slots
from kickoff.points import around
from kickoff.runs import Run, State

RUNS = "runs"
_LAST = "\U0010ffff"


class FirestoreLedger:
    """`timeout` is the deadline of each call in seconds.

    Writes are never retried inside, so that AlreadyExists or Conflict is never the answer to one's own first try.
    """

    def __init__(self, project: str, database: str = "(default)", timeout: float = 20.0) -> None:
        with _translated():
            self._db = firestore.Client(project=project, database=database)
        self._timeout = timeout
        # The client's own retry of a read goes on for 300 s, longer than a push waits for its answer.
        passing = if_exception_type(exceptions.ServiceUnavailable, exceptions.InternalServerError, exceptions.Aborted)
        self._patience: dict[str, Any] = {"retry": Retry(predicate=passing, timeout=timeout), "timeout": timeout}

    def create_run(self, run: Run) -> Run:
        with around("ledger.create_run"), _translated(f"run {run.run_id}"):
            result = self._runs.document(run.run_id).create(_run_fields(run), retry=None, timeout=self._timeout)
        return run.model_copy(update={"version": _version(result.update_time)})

    def get_run(self, run_id: str) -> Run | None:
        with _translated():
            snapshot = self._runs.document(run_id).get(**self._patience)
        return _run(snapshot) if snapshot.exists else None

    def replace_run(self, run: Run, *, claim: Sequence[str] = ()) -> Run:
        run, release = with_slots(run, tuple(claim))
        batch = self._db.batch()
        batch.update(self._runs.document(run.run_id), _run_fields(run), option=self._unchanged(run.version))
        for slot in release:
            batch.delete(self._place(SLOTS, slot))
        for slot in claim:
            batch.create(self._place(SLOTS, slot), document_fields(SLOTS, slot, {"run_id": run.run_id}))
        with around("ledger.replace_run"), _translated(f"run {run.run_id}, or one of the slots {', '.join(claim)}"):
            results = batch.commit(retry=None, timeout=self._timeout)
        return run.model_copy(update={"version": _version(results[0].update_time)})

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
        if job_id:  # at most a few: no composite index for them
            with _translated():
                found = self._runs.where(filter=FieldFilter("job_id", "==", job_id)).get(**self._patience)
            runs = [run for run in _decoded(found) if not states or run.state in states]
            runs = [run for run in runs if not recipe or run.recipe == recipe]
            return sorted(runs, key=lambda run: (run.created, run.run_id), reverse=not oldest_first)[:limit]
        query = self.build_query(states, recipe, due_before, oldest_first)
        with _translated():
            if after:
                query = query.start_after(self._runs.document(after).get(**self._patience))
            return _decoded(query.limit(limit).get(**self._patience))

    def build_query(
        self, states: Collection[State], recipe: str, due_before: datetime | None, oldest_first: bool
    ) -> Any:
        """The query of `find_runs`; each combination needs its index in firestore.indexes.json."""
        query = self._filtered(states, recipe)
        if due_before:
            return query.where(filter=FieldFilter("due", "<=", sortable(due_before))).order_by("due")
        direction = firestore.Query.ASCENDING if oldest_first else firestore.Query.DESCENDING
        return query.order_by("created", direction=direction).order_by("__name__", direction=direction)

    def count_runs(self, *, states: Collection[State] = (), recipe: str = "") -> int:
        with _translated():
            return int(self._filtered(states, recipe).count().get(**self._patience)[0][0].value)

    def create_document(self, collection: str, id: str, data: dict[str, Any]) -> Document:
        fields = document_fields(collection, id, data)
        with around(f"ledger.create_document.{collection}"), _translated(f"{collection}/{id}"):
            result = self._place(collection, id).create(fields, retry=None, timeout=self._timeout)
        return Document(collection, id, data, _version(result.update_time), result.update_time)

    def get_document(self, collection: str, id: str) -> Document | None:
        with _translated():
            snapshot = self._place(collection, id).get(**self._patience)
        return _document(collection, snapshot) if snapshot.exists else None

    def replace_document(self, document: Document) -> Document:
        collection, id = document.collection, document.id
        batch = self._db.batch()
        fields = document_fields(collection, id, document.data)
        batch.update(self._place(collection, id), fields, option=self._unchanged(document.version))
        with around(f"ledger.replace_document.{collection}"), _translated(f"{collection}/{id}"):
            updated = batch.commit(retry=None, timeout=self._timeout)[0].update_time
        return Document(collection, id, document.data, _version(updated), updated)

    def delete_document(self, document: Document) -> None:
        place = self._place(document.collection, document.id)
        with around(f"ledger.delete_document.{document.collection}"):
            try:
                with _translated(f"{document.collection}/{document.id}"):
                    place.delete(option=self._unchanged(document.version), retry=None, timeout=self._timeout)
            except Conflict:
                if self.get_document(document.collection, document.id):
                    raise

    def list_documents(self, collection: str, *, prefix: str = "", limit: int = 100, after: str = "") -> list[Document]:
        query = self._db.collection(collection).order_by("id").limit(limit)
        query = query.where(filter=FieldFilter("id", ">=", prefix)).where(filter=FieldFilter("id", "<", prefix + _LAST))
        if after:
            query = query.where(filter=FieldFilter("id", ">", after))
        with _translated():
            return [_document(collection, snapshot) for snapshot in query.get(**self._patience)]

    def close(self) -> None:
        self._db.close()

    @property
    def _runs(self) -> Any:
        return self._db.collection(RUNS)

    def _place(self, collection: str, id: str) -> Any:
        """A document's name may hold no slash and not be a dot: https://firebase.google.com/docs/firestore/quotas"""
        plain = re.fullmatch(r"[A-Za-z0-9][\w.@=+~-]{0,400}", id, re.ASCII)
        return self._db.collection(collection).document(id if plain else f"_{hashlib.sha256(id.encode()).hexdigest()}")

    def _filtered(self, states: Collection[State], recipe: str) -> Any:
        query: Any = self._runs
        if recipe:
            query = query.where(filter=FieldFilter("recipe", "==", recipe))
        if states:
            query = query.where(filter=FieldFilter("state", "in", sorted(state.value for state in states)))
        return query

    def _unchanged(self, version: str) -> Any:
        try:
            time = DatetimeWithNanoseconds.from_rfc3339(version)
        except ValueError as error:
            raise Conflict("it was never read from this ledger") from error
        return self._db.write_option(last_update_time=time.timestamp_pb())


def _run_fields(run: Run) -> dict[str, Any]:
    return {"record": encode_run(run), **index_fields(run), "revision": uuid.uuid4().hex}


def document_fields(collection: str, id: str, data: Mapping[str, Any]) -> dict[str, Any]:
    """What is stored of a document."""
    # `revision`: Firestore keeps the update time of a write that changes nothing, and two racers would both win.
    fields: dict[str, Any] = {"id": id, "data": encode_data(collection, id, data), "revision": uuid.uuid4().hex}
    if lifetime := EXPIRING.get(collection):  # Firestore deletes it then: https://cloud.google.com/firestore/docs/ttl
        fields["expires"] = datetime.now(UTC) + lifetime
    return fields


def _run(snapshot: Any) -> Run:
    return decode_run(snapshot.get("record"), _version(snapshot.update_time))


def _decoded(snapshots: Iterable[Any]) -> list[Run]:
    return decode_runs((snapshot.get("record"), _version(snapshot.update_time)) for snapshot in snapshots)


def _document(collection: str, snapshot: Any) -> Document:
    data = json.loads(snapshot.get("data"))
    return Document(collection, snapshot.get("id"), data, _version(snapshot.update_time), snapshot.update_time)


def _version(time: Any) -> str:
    return str(time.rfc3339())


@contextmanager
def _translated(unique: str = "") -> Iterator[None]:
    """Firestore's answers as a race's outcome, or as the one error that the rest of Kickoff knows.

    Only a write, which says what it wants `unique`, can lose a race: a query's FAILED_PRECONDITION is a missing index.
    """
    try:
        yield
    except exceptions.AlreadyExists as error:
        raise AlreadyExists(f"{unique} exists") from error
    except (exceptions.GoogleAPIError, GoogleAuthError) as error:
        if unique and isinstance(error, exceptions.FailedPrecondition | exceptions.NotFound):
            raise Conflict(f"{unique} changed since it was read") from error
        raise LedgerUnavailable(f"the ledger did not answer: {error}") from error
