"""What the trainer tells of itself, each event a document of its own, so that no record is written often.

The collection ``epochs`` has one document for each epoch of a run, named ``<run_id>/<epoch, six digits>``; the
collection ``finished`` has at most one for each run, named by it.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from kickoff.event_types import JobHint
from kickoff.ledger.protocol import AlreadyExists, Conflict, Document, Ledger

EPOCHS = "epochs"
FINISHED = "finished"
_PAGE = 500
_TRIES = 10


@dataclass(frozen=True)
class Epoch:
    """One trained epoch, as the primary replica reported it."""

    epoch: int
    """Of `epochs`, beginning with 1."""
    epochs: int
    metrics: dict[str, float | None]
    """None: not a finite number."""
    images_per_second: float | None
    time: datetime | None
    job_id: str = ""


@dataclass(frozen=True)
class Note:
    """A progress document as it is to be written."""

    collection: str
    id: str
    data: dict[str, Any]


def build_note(hint: JobHint) -> Note:
    """The document for an epoch or finished hint. Pure."""
    data = {
        **hint.data,
        "run_id": hint.run_id,
        "job_id": hint.job_id,
        "event_id": hint.event_id,
        "time": hint.time.isoformat() if hint.time else None,
    }
    if hint.kind == "epoch":
        return Note(EPOCHS, f"{hint.run_id}/{hint.data['epoch']:06d}", data)
    return Note(FINISHED, hint.run_id, data)


def write_note(ledger: Ledger, note: Note) -> bool:
    """Store it, unless the same or a newer one is there. False: nothing was written.

    A job that was restarted from a checkpoint reports an epoch again: the later report holds.
    """
    for _ in range(_TRIES):
        try:
            ledger.create_document(note.collection, note.id, note.data)
            return True
        except AlreadyExists:
            stored = ledger.get_document(note.collection, note.id)
        if stored is None:
            continue
        if not _is_newer(note.data, stored.data):
            return False
        try:
            ledger.replace_document(Document(stored.collection, stored.id, note.data, stored.version, stored.updated))
            return True
        except Conflict:
            continue
    return False


def list_epochs(ledger: Ledger, run_id: str) -> list[Epoch]:
    """The epochs reported so far, in order."""
    found: list[Epoch] = []
    after = ""
    while page := ledger.list_documents(EPOCHS, prefix=f"{run_id}/", limit=_PAGE, after=after):
        after = page[-1].id
        found += [_epoch(document.data) for document in page]
    return found


def final_words(ledger: Ledger, run_id: str) -> tuple[dict[str, float], str]:
    """(metrics, model URI) of the finished event; without one, the last epoch's metrics and no URI."""
    if finished := ledger.get_document(FINISHED, run_id):
        return finite(finished.data.get("metrics", {})), str(finished.data.get("model_uri", ""))
    epochs = list_epochs(ledger, run_id)
    return (finite(epochs[-1].metrics) if epochs else {}), ""


def finite(metrics: dict[str, float | None]) -> dict[str, float]:
    return {name: value for name, value in metrics.items() if value is not None}


def _is_newer(data: dict[str, Any], stored: dict[str, Any]) -> bool:
    if data["event_id"] == stored.get("event_id"):
        return False
    return (data["time"] or "") > (stored.get("time") or "")


def _epoch(data: dict[str, Any]) -> Epoch:
    return Epoch(
        epoch=data["epoch"],
        epochs=data["epochs"],
        metrics=data.get("metrics", {}),
        images_per_second=data.get("images_per_second"),
        time=datetime.fromisoformat(data["time"]) if data.get("time") else None,
        job_id=data.get("job_id", ""),
    )
