"""Puts the parts together for the two entry points that follow runs: record_completion and sweep."""

from collections.abc import Iterable
from contextlib import suppress

from kickoff.answers import Outcome
from kickoff.clients import Clients
from kickoff.duplicates import storage_fence
from kickoff.errors import PermanentError, TransientError
from kickoff.event_types import Event
from kickoff.log_lines import log_sweep
from kickoff.lost import find_lost
from kickoff.outbox import submit_next
from kickoff.record import Recorder
from kickoff.runs import Run, State, Trigger
from kickoff.settling import Settled, settle_due
from kickoff.start import start_settled
from kickoff.sweep_pass import SweepReport, run_pass
from kickoff.switches import pause_reason
from kickoff.updating import Clock, update_run

_PAGE = 100


def record_event(event: Event, clients: Clients, now: Clock) -> Outcome:
    """Take one hint; where it ended a run, start the oldest one that waits for its slot, at once."""
    recorded = build_recorder(clients, now).record(event)
    run = recorded.run
    if recorded.ended and run is not None:
        start_next(run, clients, now)
    return Outcome(recorded.outcome, run.run_id if run else "", recorded.reason)


def start_next(run: Run, clients: Clients, now: Clock) -> None:
    """The sweep does it where this fails; the end of `run` is written and must not be delivered again."""
    try:
        submit_next(
            clients.ledger,
            clients.vertex,
            run.recipe,
            settings=clients.settings,
            now=now,
            max_total=clients.policy.max_active_total,
            fence=storage_fence(clients.storage),
        )
    except TransientError:
        return


def sweep_all(clients: Clients, now: Clock) -> SweepReport:
    """One pass over everything that no event told us."""
    report = run_pass(
        clients.ledger,
        clients.vertex,
        settings=clients.settings,
        now=now,
        record=build_recorder(clients, now).record_run,
        datasets={
            "released": lambda: release_held(clients, now),
            "settled": lambda: start_found(due_holds(clients, now), "hold", clients, now),
            "lost": lambda: start_found(lost_datasets(clients, now), "sweep", clients, now),
        },
        fence=storage_fence(clients.storage),
        max_total=clients.policy.max_active_total,
    )
    with suppress(TransientError):
        queued = clients.ledger.find_runs(states=[State.QUEUED], oldest_first=True, limit=1)
        log_sweep(report.to_json(), queued[0] if queued else None, now())
    return report


def build_recorder(clients: Clients, now: Clock) -> Recorder:
    return Recorder(clients.ledger, clients.vertex, clients.bus, clients.storage, clients.settings, now)


def due_holds(clients: Clients, now: Clock) -> Iterable[Settled]:
    return settle_due(clients.recipes, ledger=clients.ledger, storage=clients.storage, now=now())


def lost_datasets(clients: Clients, now: Clock) -> Iterable[Settled]:
    return find_lost(clients.recipes, ledger=clients.ledger, storage=clients.storage, now=now())


def start_found(found: Iterable[Settled], source: str, clients: Clients, now: Clock) -> int:
    """Start a run for each dataset; how many were new."""
    started = 0
    for settled in found:
        trigger = Trigger(kind="upload", source=f"{settled.dataset.uri} ({source})", time=settled.newest)
        try:
            outcome = start_settled(settled, trigger, clients, now)
        except PermanentError:  # never done: it is settled again later, and says so in the log
            continue
        started += outcome.outcome == "accepted"
    return started


def release_held(clients: Clients, now: Clock) -> int:
    """Queue what a pause held, once it is over."""
    released = 0
    for run in clients.ledger.find_runs(states=[State.HELD], oldest_first=True, limit=_PAGE):
        if not pause_reason(clients, clients.recipes.get(run.recipe)):
            time = now()

            def queued(current: Run) -> Run | None:
                if current.state is not State.HELD:
                    return None
                return current.moved(State.QUEUED, time, "off pause", waiting_for="", next_attempt_at=time)  # noqa: B023

            released += update_run(clients.ledger, run, queued).state is State.QUEUED
    return released
