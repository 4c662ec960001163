"""Firestore answers a query only where an index serves it, and its emulator answers without one. So: look."""

import itertools
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import kickoff.ledger
import pytest
from google.cloud.firestore_v1.types import StructuredQuery
from kickoff.ledger.firestore import FirestoreLedger, document_fields
from kickoff.ledger.protocol import EXPIRING
from kickoff.runs import State

from tests.kickoff.making import NOW

FILE = json.loads((Path(kickoff.ledger.__file__).parent / "firestore.indexes.json").read_text())


@pytest.fixture
def ledger(monkeypatch: pytest.MonkeyPatch) -> Iterator[FirestoreLedger]:
    monkeypatch.setenv("FIRESTORE_EMULATOR_HOST", "127.0.0.1:9")
    ledger = FirestoreLedger("p")
    yield ledger
    ledger.close()


def test_every_query_of_runs_has_its_index_and_no_index_is_idle(ledger: FirestoreLedger) -> None:
    needed = set()
    filters = itertools.product([(), (State.QUEUED, State.HELD)], ["", "flowers"], [None, NOW], [False, True])
    for states, recipe, due, oldest_first in filters:
        query = ledger.build_query(states, recipe, due, oldest_first)._to_protobuf()
        needed.add(_index(query))
    declared = {tuple((f["fieldPath"], f["order"]) for f in index["fields"]) for index in FILE["indexes"]}
    assert {index for index in needed if len(index) > 1} == declared, "one field alone is indexed by Firestore itself"


def test_no_large_text_is_indexed() -> None:
    exempt = {(row["collectionGroup"], row["fieldPath"]) for row in FILE["fieldOverrides"] if row["indexes"] == []}
    assert ("runs", "record") in exempt
    assert {(name, "data") for name in ("holds", "slots", "epochs")} <= exempt


def test_bulky_details_expire_and_nothing_else_does() -> None:
    declared = {(row["collectionGroup"], row["fieldPath"]) for row in FILE["fieldOverrides"] if row.get("ttl")}
    assert declared == {(collection, "expires") for collection in EXPIRING} == {("epochs", "expires")}
    expires = document_fields("epochs", "run/000001", {})["expires"]
    assert timedelta(days=399) < expires - datetime.now(UTC) < timedelta(days=401)
    for collection in ("holds", "slots", "finished", "cursors", "activations"):
        assert "expires" not in document_fields(collection, "id", {})


def _index(query: StructuredQuery) -> tuple[tuple[str, str], ...]:
    """Equalities (IN is several of them) in order of name, then the order, as Firestore builds its indexes."""
    where = query.where
    single = [where.field_filter] if where.field_filter.field.field_path else []
    filters = single or [one.field_filter for one in where.composite_filter.filters]
    operators = StructuredQuery.FieldFilter.Operator
    equal = sorted(f.field.field_path for f in filters if f.op in (operators.EQUAL, operators.IN))
    order = [(o.field.field_path, o.direction.name) for o in query.order_by if o.field.field_path != "__name__"]
    return (*((name, "ASCENDING") for name in equal), *order)
