"""How a run is stored: one JSON text, and beside it the fields that are searched. Pure; the same for every store."""

import json
import logging
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from pydantic import ValidationError
from pydantic_core import PydanticSerializationError

from kickoff.errors import Fault, InvalidRequest, LedgerUnavailable
from kickoff.ledger.protocol import MAX_BYTES
from kickoff.runs import SCHEMA_VERSION, Run, State

log = logging.getLogger("kickoff")

ACTIVE = frozenset({State.SUBMITTING, State.SUBMITTED, State.RUNNING})
"""The states in which a run may hold slots."""

Migration = Callable[[dict[str, Any]], dict[str, Any]]

MIGRATIONS: Mapping[int, Migration] = {}
"""From schema version N to N + 1. A field that is added with a default needs none."""


def encode_run(run: Run) -> str:
    """The stored text. Raises InvalidRequest for a record beyond what a Firestore document holds."""
    try:
        text = run.model_dump_json(exclude={"version"})
    except PydanticSerializationError as error:  # half of a surrogate pair, which JSON can spell and UTF-8 cannot
        raise InvalidRequest(f"request cannot be stored as UTF-8: {error}") from error
    size = len(text.encode())
    if size > MAX_BYTES:
        raise InvalidRequest.from_faults(
            [Fault("request", f"request makes a run record of {size} bytes; it must be at most {MAX_BYTES}")]
        )
    return text


def decode_run(text: str, version: str, migrations: Mapping[int, Migration] = MIGRATIONS) -> Run:
    """The run in a stored text, written by this or an older version of the schema."""
    data = json.loads(text)
    found = data.get("schema_version")
    if not isinstance(found, int) or found > SCHEMA_VERSION:
        raise LedgerUnavailable(
            f"run {data.get('run_id')} has schema version {found!r}; this code reads up to {SCHEMA_VERSION}"
        )
    try:
        for step in range(found, SCHEMA_VERSION):
            data = {**migrations[step](data), "schema_version": step + 1}
        return Run.model_validate({**data, "version": version})
    except (KeyError, ValidationError) as error:
        raise LedgerUnavailable(f"run {data.get('run_id')} cannot be read: {error}") from error


def decode_runs(rows: Iterable[tuple[str, str]]) -> list[Run]:
    """Of (stored text, version) pairs those that can be read: one unreadable record must not hide all others."""
    runs = []
    for text, version in rows:
        try:
            runs.append(decode_run(text, version))
        except LedgerUnavailable as error:
            log.error("left out of a list: %s", error)  # noqa: TRY400
    return runs


def index_fields(run: Run) -> dict[str, str | None]:
    """What runs are found by."""
    return {
        "state": run.state.value,
        "recipe": run.recipe,
        "created": sortable(run.created),
        "updated": sortable(run.updated),
        "due": sortable(run.due) if run.due else None,
        "job_id": run.job.id if run.job else "",
    }


def with_slots(run: Run, claim: tuple[str, ...]) -> tuple[Run, tuple[str, ...]]:
    """The run as it is to be written, and the slots that the same write deletes."""
    if run.state in ACTIVE:
        return run.model_copy(update={"slots": (*run.slots, *claim)}), ()
    return run.model_copy(update={"slots": ()}), run.slots


def sortable(time: datetime) -> str:
    """UTC with microseconds in a fixed width: the order of texts is the order of times."""
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def encode_data(collection: str, id: str, data: Mapping[str, Any]) -> str:
    """A small document's stored text. Raises InvalidRequest when it is too large to store."""
    text = json.dumps(data, allow_nan=False)
    if len(text) > MAX_BYTES:
        raise InvalidRequest(f"document {collection}/{id} has more than {MAX_BYTES} bytes")
    return text
