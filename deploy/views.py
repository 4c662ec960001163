"""Run records as rows and details for people, and as files for programs."""

import csv
import json
import sys
from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from kickoff.ledger.protocol import Ledger
from kickoff.progress import list_epochs
from kickoff.runs import Run, State
from kickoff.settling import holds

_PAGE = 200


@dataclass(frozen=True)
class RunRow:
    """One line of `kickoff runs`: a run, or a dataset that is held and is none yet."""

    run_id: str
    recipe: str
    state: str
    created: datetime
    seconds: float | None
    """From its creation to its end; None: it goes on, or never was."""
    epoch: int | None
    """Of `epochs`; None: none was reported."""
    epochs: int | None
    accuracy: float | None
    job_id: str
    note: str

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "created": self.created.isoformat()}

    @property
    def going(self) -> bool:
        return self.state in (State.SUBMITTING, State.SUBMITTED, State.RUNNING)

    def cells(self, now: datetime) -> tuple[str, ...]:
        seconds = (now - self.created).total_seconds() if self.going else self.seconds
        return (
            self.run_id,
            self.state,
            f"{self.created.astimezone():%m-%d %H:%M:%S}",
            "" if seconds is None else f"{seconds:.0f} s",
            f"{self.epoch}/{self.epochs}" if self.epoch else "",
            "" if self.accuracy is None else f"{self.accuracy:.4f}",
            self.note,
        )


def list_rows(ledger: Ledger, *, recipe: str = "", states: Collection[State] = (), limit: int = 20) -> list[RunRow]:
    """Runs newest first, and before them the datasets that wait."""
    rows = [_hold_row(hold) for hold in holds(ledger) if not recipe or hold.recipe == recipe]
    if states and State.HELD not in states:
        rows = []
    found = ledger.find_runs(recipe=recipe, states=states, limit=limit)
    return [*rows, *(_run_row(run, ledger) for run in found)]


def run_details(run: Run, ledger: Ledger) -> Iterator[tuple[str, str]]:
    """(name, text) of everything that is known of a run, in the order people ask."""
    yield "run", run.run_id
    yield "state", run.state + (f", waits for {run.waiting_for}" if run.waiting_for else "")
    yield "asked for by", f"{run.trigger.kind} {run.trigger.source} {run.trigger.by}".strip()
    for change in run.history:
        yield "", f"{change.time.astimezone():%Y-%m-%d %H:%M:%S} {change.state:10} {change.note}"
    yield from ((name, text) for name, text in _facts(run) if text)
    for epoch in list_epochs(ledger, run.run_id):
        numbers = "  ".join(f"{name} {value:.4f}" for name, value in epoch.metrics.items() if value is not None)
        yield f"epoch {epoch.epoch}/{epoch.epochs}", numbers
    for fault in run.faults:
        yield "fault", fault.message
    for text in (*run.warnings, *run.notes):
        yield "note", text


def _facts(run: Run) -> Iterator[tuple[str, str]]:
    if run.dataset:
        yield "dataset", f"{run.dataset.uri} · {run.dataset.objects} objects · digest {run.dataset.digest[:12]}"
    if run.job:
        yield "job", f"{run.job.name} ({run.job.state})"
        yield "error", run.job.error
    yield "duplicate jobs", ", ".join(run.duplicate_jobs)
    yield "model", f"{run.model_uri}{'  (missing)' if run.model_missing else ''}"
    yield "metrics", "  ".join(f"{name} {value:.4f}" for name, value in run.metrics.items())
    yield "cost", _cost(run)
    yield "rerun of", run.rerun_of
    yield "reruns", ", ".join(run.reruns)


def _cost(run: Run) -> str:
    parts = []
    if run.cost_usd is not None:
        parts.append(f"{run.cost_usd:.4f} USD")
    if run.worst_case_usd is not None:
        parts.append(f"at most {run.worst_case_usd:.2f} USD")
    return ", ".join(parts)


def export_runs(ledger: Ledger, format: str, recipe: str) -> None:
    """Write every run to standard output, as JSON lines or as CSV with the fields of a row."""
    writer = csv.DictWriter(sys.stdout, list(RunRow.__dataclass_fields__)) if format == "csv" else None
    if writer:
        writer.writeheader()
    after = ""
    while page := ledger.find_runs(recipe=recipe, oldest_first=True, limit=_PAGE, after=after):
        after = page[-1].run_id
        for run in page:
            if writer:
                writer.writerow(_run_row(run, ledger).to_json())
            else:
                print(json.dumps(run.model_dump(mode="json", exclude={"version"}), sort_keys=True))


def _run_row(run: Run, ledger: Ledger) -> RunRow:
    epochs = list_epochs(ledger, run.run_id) if run.job else []
    accuracy = run.metrics.get("val_accuracy")
    if accuracy is None and epochs:
        accuracy = epochs[-1].metrics.get("val_accuracy")
    note = run.waiting_for or (run.faults[0].message if run.faults else "") or (run.job.error if run.job else "")
    return RunRow(
        run_id=run.run_id,
        recipe=run.recipe,
        state=run.state,
        created=run.created,
        seconds=(run.history[-1].time - run.created).total_seconds() if run.terminal else None,
        epoch=epochs[-1].epoch if epochs else None,
        epochs=epochs[-1].epochs if epochs else None,
        accuracy=accuracy,
        job_id=run.job.id if run.job else "",
        note=note.splitlines()[0] if note else "",
    )


def _hold_row(hold: Any) -> RunRow:
    return RunRow(
        run_id=f"{hold.recipe} {hold.root}",
        recipe=hold.recipe,
        state=State.HELD,
        created=hold.since,
        seconds=None,
        epoch=None,
        epochs=None,
        accuracy=None,
        job_id="",
        note=hold.waiting_for,
    )
