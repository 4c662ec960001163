"""What the page says of runs: rows, filters, facts. Reads the ledger, writes nothing."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import urlencode

from kickoff.completion import build_console_url
from kickoff.holds import HoldView, holds
from kickoff.ledger.protocol import Ledger
from kickoff.page.charts import Chart, Phase, build_charts, build_timeline
from kickoff.progress import Epoch, list_epochs
from kickoff.runs import TERMINAL, Run, State

PAGE = 50
SCAN = 2000
"""Runs that one request looks through for a text or label; the next page goes on from there."""
_BATCH = 200
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
class Filters:
    """What the URL asks for."""

    recipe: str = ""
    state: str = ""
    label: str = ""
    """``name`` or ``name=value``."""
    text: str = ""
    after: str = ""

    @classmethod
    def from_query(cls, query: Mapping[str, str]) -> "Filters":
        given = {name: query.get(name, "").strip()[:200] for name in cls.__dataclass_fields__}
        if given["state"] not in State.__members__:
            given["state"] = ""
        return cls(**given)

    @property
    def any(self) -> bool:
        return any((self.recipe, self.state, self.label, self.text))

    def url(self, after: str) -> str:
        given = {name: value for name, value in vars(self).items() if value and name != "after"}
        return "/?" + urlencode({**given, "after": after})

    def matches(self, run: Run) -> bool:
        """The part of the filter that the ledger does not answer."""
        return _has_label(run, self.label) and _has_text(run, self.text)


def _has_label(run: Run, label: str) -> bool:
    name, equals, value = label.partition("=")
    return not label or (name in run.labels and (not equals or run.labels[name] == value))


def _has_text(run: Run, text: str) -> bool:
    if not text:
        return True
    job = run.job.name if run.job else ""
    dataset = run.dataset.uri if run.dataset else ""
    parts = (run.run_id, *run.key, run.trigger.source, run.trigger.by, job, dataset, run.model_uri, run.waiting_for)
    faults = (fault.message for fault in run.faults)
    return any(text.lower() in part.lower() for part in (*parts, *faults))


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
    next_url: str
    """Empty: there is no more."""
    searched: int
    live: bool
    """Something on this page may still change."""


def list_view(ledger: Ledger, filters: Filters, now: datetime) -> ListView:
    """One page of runs, newest first; on the first one also the datasets that are held."""
    runs, after, searched = _find(ledger, filters)
    held = []
    if not filters.after and not filters.text and not filters.label and filters.state in ("", State.HELD):
        held = [hold for hold in holds(ledger) if filters.recipe in ("", hold.recipe)]
    rows = [_row(ledger, run, now) for run in runs]
    live = bool(held) or not filters.after
    return ListView(filters, rows, held, filters.url(after) if after else "", searched, live)


def _find(ledger: Ledger, filters: Filters) -> tuple[list[Run], str, int]:
    """(runs, where the next page goes on, how many were looked at)."""
    states = [State(filters.state)] if filters.state else []
    found: list[Run] = []
    after, searched = filters.after, 0
    batch = _BATCH if filters.text or filters.label else PAGE + 1
    while searched < SCAN:
        page = ledger.find_runs(recipe=filters.recipe, states=states, limit=batch, after=after)
        for run in page:
            if len(found) == PAGE:
                return found, after, searched
            searched += 1
            after = run.run_id
            if filters.matches(run):
                found.append(run)
        if len(page) < batch:
            return found, "", searched
    return found, after, searched


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
    return ((run.history[-1].time if run.terminal else now) - run.created).total_seconds()


def _note(run: Run) -> str:
    if run.waiting_for:
        return f"waits for {run.waiting_for}"
    if run.faults:
        more = f" (and {len(run.faults) - 1} more)" if len(run.faults) > 1 else ""
        return run.faults[0].message + more
    if run.model_missing:
        return "the job succeeded, and left no model"
    return run.job.error if run.job else ""


@dataclass(frozen=True)
class Replica:
    name: str
    role: str
    machine: str
    state: str
    note: str


@dataclass(frozen=True)
class RunView:
    run: Run
    css: str
    mark: str
    epochs: list[Epoch]
    charts: list[Chart]
    timeline: list[Phase]
    replicas: list[Replica]
    links: list[tuple[str, str]]
    seconds: float | None
    live: bool
    can_cancel: bool
    can_rerun: bool


def run_view(ledger: Ledger, run: Run, now: datetime) -> RunView:
    epochs = list_epochs(ledger, run.run_id)
    css = CSS[run.state]
    return RunView(
        run=run,
        css=css,
        mark=MARK[css],
        epochs=epochs,
        charts=build_charts(epochs),
        timeline=build_timeline(run, now),
        replicas=list(build_replicas(run)),
        links=list(build_links(run)),
        seconds=_seconds(run, now),
        live=not run.terminal,
        can_cancel=not run.terminal and not run.cancel_requested,
        can_rerun=run.state in TERMINAL and bool(run.custom_job),
    )


_ROLES = ("primary", "worker", "parameter server or reduction server", "evaluator")
_STATES = {
    State.SUBMITTED: "provisioning",
    State.RUNNING: "running",
    State.SUCCEEDED: "ended",
    State.FAILED: "ended",
    State.CANCELLED: "ended",
    State.EXPIRED: "ended",
}


def build_replicas(run: Run) -> Iterator[Replica]:
    """Each replica of the job's pools, with the exits that Vertex AI told of."""
    exits: dict[str, list[int]] = {}
    for exit_ in run.replica_exits:
        exits.setdefault(exit_.replica, []).append(exit_.status)
    for index, pool in enumerate(run.custom_job.get("jobSpec", {}).get("workerPoolSpecs", [])):
        machine = _machine(pool.get("machineSpec", {}))
        for number in range(min(int(pool.get("replicaCount", 0)), 64)):
            name = f"workerpool{index}-{number}"
            statuses = exits.get(name, [])
            state = "failed" if statuses and run.state is State.FAILED else _STATES.get(run.state, "waiting")
            note = f"exit {', '.join(map(str, statuses))}" if statuses else ""
            yield Replica(name, _ROLES[min(index, 3)], machine, state, note)


def _machine(spec: Mapping[str, Any]) -> str:
    text = str(spec.get("machineType", ""))
    if count := spec.get("acceleratorCount"):
        text += f" with {count} {spec.get('acceleratorType', '')}"
    return text


def build_links(run: Run) -> Iterator[tuple[str, str]]:
    """(text, URL); only https, so that no text of a request becomes a script."""
    if console := build_console_url(run):
        yield "Job in the console", console
    board = run.custom_job.get("jobSpec", {}).get("tensorboard", "")
    if board and run.job:
        experiment = run.job.name.replace("/", "+")
        yield "TensorBoard", f"https://{run.region}.tensorboard.googleusercontent.com/experiment/{experiment}"
    if run.model_uri.startswith("gs://"):
        yield "Model files", f"https://console.cloud.google.com/storage/browser/{run.model_uri[5:]}"
