"""What the page says of runs: rows, facts, links. Reads the ledger, writes nothing."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import quote

from kickoff.completion import build_console_url
from kickoff.holds import HoldView, holds
from kickoff.ledger.protocol import EXPIRING, Ledger
from kickoff.page.charts import Chart, Phase, build_charts, build_timeline
from kickoff.page.filters import PAGE, Filters, find
from kickoff.page.replicas import Replica, build_replicas
from kickoff.progress import EPOCHS, Epoch, list_epochs
from kickoff.runs import Run, State

HELD_SHOWN = 20
EPOCHS_SHOWN = 100
"""Rows of the table of epochs, the last ones; the curves have them all."""
_CHEAP = 4 * PAGE
"""A search that looked at no more runs than this may be repeated every few seconds."""
_ACTIVE = (State.SUBMITTING, State.SUBMITTED, State.RUNNING)

CSS = {
    State.HELD: "wait",
    State.QUEUED: "wait",
    State.SUBMITTING: "going",
    State.SUBMITTED: "going",
    State.RUNNING: "going",
    State.SUCCEEDED: "good",
    State.FAILED: "bad",
    State.EXPIRED: "bad",
    State.REJECTED: "bad",
    State.CANCELLED: "off",
    State.SUPERSEDED: "off",
}
MARK = {"wait": "◷", "going": "▶", "good": "✓", "bad": "✕", "off": "○"}
"""A shape for each colour: state must not be told by colour alone."""


@dataclass(frozen=True)
class Row:
    run: Run
    css: str
    mark: str
    epoch: Epoch | None
    accuracy: float | None
    seconds: float | None
    note: str


@dataclass(frozen=True)
class ListView:
    filters: Filters
    rows: list[Row]
    held: list[HoldView]
    held_more: int
    next_url: str
    """Empty: there is no more."""
    searched: int
    live: bool
    """Something on this page may still change."""
    news: str
    """What a screen reader should say when it differs from last time."""


def list_view(ledger: Ledger, filters: Filters, now: datetime) -> ListView:
    """One page of runs, newest first; on the first one also the datasets that are held."""
    found = find(ledger, filters)
    held = []
    if not filters.after and not filters.text and not filters.label and filters.state in ("", State.HELD):
        held = [hold for hold in holds(ledger) if filters.recipe in ("", hold.recipe)]
    rows = [_row(ledger, run, now) for run in found.runs]
    news = f"{rows[0].run.run_id} is {rows[0].run.state}" if rows else ""
    return ListView(
        filters=filters,
        rows=rows,
        held=held[:HELD_SHOWN],
        held_more=max(0, len(held) - HELD_SHOWN),
        next_url=filters.url(found.after) if found.after else "",
        searched=found.searched,
        live=not filters.after and found.searched <= _CHEAP,
        news=news,
    )


def _row(ledger: Ledger, run: Run, now: datetime) -> Row:
    epochs = list_epochs(ledger, run.run_id) if run.state in _ACTIVE else []
    accuracy = run.metrics.get("val_accuracy")
    if accuracy is None and epochs:
        accuracy = epochs[-1].metrics.get("val_accuracy")
    css = CSS[run.state]
    return Row(run, css, MARK[css], epochs[-1] if epochs else None, accuracy, _seconds(run, now), _note(run))


def _seconds(run: Run, now: datetime) -> float | None:
    if run.state is State.REJECTED:
        return None
    return max(0.0, ((run.history[-1].time if run.terminal else now) - run.created).total_seconds())


def _note(run: Run) -> str:
    if run.waiting_for:
        return f"waits for {run.waiting_for}"
    if run.faults:
        more = f" (and {len(run.faults) - 1} more)" if len(run.faults) > 1 else ""
        return run.faults[0].message + more
    if run.model_missing:
        return "the job succeeded, and left no model"
    return run.job.error if run.job and run.state is not State.CANCELLED else ""


@dataclass(frozen=True)
class RunView:
    run: Run
    css: str
    mark: str
    epochs: list[Epoch]
    charts: list[Chart]
    curves_gone: int
    """Days after which epochs are deleted, for a run whose epochs are; else 0."""
    metrics: list[str]
    """Names, in the order of the table's columns."""
    timeline: list[Phase]
    replicas: list[Replica]
    replicas_more: int
    links: list[tuple[str, str]]
    seconds: float | None
    live: bool
    news: str
    can_cancel: bool
    can_rerun: bool


def run_view(ledger: Ledger, run: Run, now: datetime) -> RunView:
    epochs = list_epochs(ledger, run.run_id)
    replicas, more = build_replicas(run)
    css = CSS[run.state]
    progress = f", epoch {epochs[-1].epoch} of {epochs[-1].epochs}" if epochs and not run.terminal else ""
    return RunView(
        run=run,
        css=css,
        mark=MARK[css],
        epochs=epochs,
        charts=build_charts(epochs),
        curves_gone=_days_kept(run, now) if run.metrics and not epochs else 0,
        metrics=list(dict.fromkeys(name for epoch in epochs for name in epoch.metrics)),
        timeline=build_timeline(run, now),
        replicas=replicas,
        replicas_more=more,
        links=list(build_links(run)),
        seconds=_seconds(run, now),
        live=not run.terminal,
        news=f"{run.run_id} is {run.state}{progress}",
        can_cancel=not run.terminal and not run.cancel_requested,
        can_rerun=run.terminal and bool(run.custom_job),
    )


def _days_kept(run: Run, now: datetime) -> int:
    kept = EXPIRING[EPOCHS]
    return kept.days if run.terminal and now - run.created > kept else 0


def build_links(run: Run) -> Iterator[tuple[str, str]]:
    """(text, URL); only https, so that no text of a request becomes a script."""
    if console := build_console_url(run):
        yield "Job in the console", console
    board = run.custom_job.get("jobSpec", {}).get("tensorboard", "")
    if board and run.job:
        experiment = run.job.name.replace("/", "+")
        yield "TensorBoard", f"https://{run.region}.tensorboard.googleusercontent.com/experiment/{experiment}"
    if run.model_uri.startswith("gs://"):
        yield "Model files", f"https://console.cloud.google.com/storage/browser/{quote(run.model_uri[5:])}"
